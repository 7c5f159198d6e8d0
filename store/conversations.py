"""Conversations: create once, read, list, change, run and pause, delete."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from redis import Redis

from store.confirmations import held_risks
from store.errors import ConversationNotFound, IllegalMove
from store.keys import ConversationKeys, pair
from store.listing import Listing
from store.scripts import Scripts
from store.secrets import Sealer
from store.stamps import Stamp
from store.text import record
from wire import ConversationId, Micros, user_message

#: fields of the hash that are JSON
_JSON_FIELDS = ("confirmation_policy", "title", "tags", "stats", "security_analyzer", "info", "app")

#: changes that agents know by name: they are events of the log. Source: the agent-server wire
_ANNOUNCED = ("tags", "security_analyzer")


class Conversations:
    """The state of all conversations."""

    def __init__(self, redis: "Redis", scripts: Scripts, listing: Listing, sealer: Sealer) -> None:
        self._redis = redis
        self._scripts = scripts
        self._listing = listing
        self._sealer = sealer

    def create(
        self,
        conversation_id: ConversationId,
        *,
        confirmation_policy: dict[str, Any] | None = None,
        title: str | None = None,
        tags: dict[str, str] | None = None,
        security_analyzer: dict[str, Any] | None = None,
        initial_message: list[dict[str, Any]] | None = None,
        secrets: Mapping[str, Any] | None = None,
        sandbox_id: str | None = None,
        app: dict[str, Any] | None = None,
        **info: Any,
    ) -> bool:
        """Make a conversation unless the id is taken; True if this call made it, also when it was repeated.

        confirmation_policy is that of docs/wire.md, 4; initial_message is the content of a first
        user message, which starts a run; info is kept as given. One with a sandbox is an app conversation; app is
        what such a one has beyond others. Raises SecretsRefused.
        """
        policy = confirmation_policy or {"kind": "NeverConfirm"}
        stamp = Stamp.now()
        first: tuple[str | bytes, ...] = ("", "", "", "")
        if initial_message is not None:
            event = user_message(initial_message, stamp.at)
            first = (event.id, pair(event.kind, event.source), event.raw, record(event))
        fields: dict[str, str | int] = {
            "id": conversation_id,
            "seq": 0,
            "revision": stamp.at,
            "execution_status": "idle",
            "confirmation_policy": json.dumps(policy),
            "held": held_risks(policy),
            "title": json.dumps(title),
            "tags": json.dumps(tags or {}),
            "stats": "{}",
            "security_analyzer": json.dumps(security_analyzer),
            "info": json.dumps(info),
            "created_at": stamp.utc_time,
            "updated_at": stamp.utc_time,
            "text_chunk": 0,
            "groups": "",
        }
        if sandbox_id:
            app = app or {}
            fields |= {"sandbox_id": sandbox_id, "app": json.dumps(app), "groups": _groups(sandbox_id, app)}
        sealed = self._sealer.seal(conversation_id, secrets or {})
        args = [*stamp.args, str(uuid4()), *first, 2 * len(sealed), *_words(sealed), *_words(fields)]
        [outcome] = self._listing.write(self._scripts.create_conversation, conversation_id, args)
        return bool(outcome == "created")

    def adopt(self, conversation_id: ConversationId, sandbox_id: str | None) -> None:
        """Make a conversation that an agent speaks of, unless there is one.

        Raises ConversationNotFound of what was deleted a moment ago: the agent in its sandbox has not heard it yet.
        """
        if sandbox_id and self._redis.exists(ConversationKeys(conversation_id).deleted):
            self.get(conversation_id)
        self.create(conversation_id, sandbox_id=sandbox_id)

    def get(self, conversation_id: ConversationId) -> dict[str, Any]:
        """The state of a conversation. Raises ConversationNotFound."""
        [state] = self.get_many([conversation_id])
        if state is None:
            raise ConversationNotFound
        return state

    def get_many(self, conversation_ids: Sequence[ConversationId]) -> list[dict[str, Any] | None]:
        """States in the order of the ids, None for an id that is unknown."""
        with self._redis.pipeline(transaction=False) as pipe:
            for conversation_id in conversation_ids:
                keys = ConversationKeys(conversation_id)
                pipe.hgetall(keys.root)
                pipe.hkeys(keys.secrets)
            replies: list[Any] = pipe.execute() if conversation_ids else []
        return [_state(stored, names) if stored else None for stored, names in zip(*[iter(replies)] * 2, strict=True)]

    def search(
        self,
        *,
        status: str | None = None,
        group: str | None = None,
        by: str = "created",
        descending: bool = True,
        limit: int = 100,
        start: tuple[Micros, ConversationId] | None = None,
    ) -> tuple[list[dict[str, Any]], tuple[Micros, ConversationId] | None]:
        """One page of conversations by time of creation or last change, and the place where the next one begins.

        Of a status, of a group (see `store/keys.py`) or of all.
        """
        entries = self._listing.page(among=status or group, by=by, descending=descending, limit=limit + 1, start=start)
        following = (entries[limit].at, entries[limit].id) if len(entries) > limit else None
        found = []
        for entry, state in zip(entries[:limit], self.get_many([entry.id for entry in entries[:limit]]), strict=True):
            if state is None:
                self._listing.forget(entry.id, entry.revision)
                continue
            if int(state["revision"]) != entry.revision:  # a worker was killed before it told the listing
                told = (state[name] for name in ("execution_status", "created_at", "updated_at", "groups"))
                self._listing.note(entry.id, int(state["revision"]), *told)
            if status in (None, state["execution_status"]):
                found.append(state)
        return found, following

    def count(self, *, status: str | None = None, group: str | None = None) -> int:
        """How many conversations there are, of a status, of a group or in all."""
        return self._listing.count(status or group)

    def sandbox_of(self, conversation_id: ConversationId) -> str | None:
        """The sandbox that a conversation lives in; None if it is detached. Raises ConversationNotFound."""
        stored: Any = self._redis.hmget(ConversationKeys(conversation_id).root, ["id", "sandbox_id"])
        if stored[0] is None:
            raise ConversationNotFound
        return stored[1].decode() if stored[1] else None

    def update(self, conversation_id: ConversationId, **fields: Any) -> None:
        """Set a title, tags, a security analyzer or what an app conversation has. Raises ConversationNotFound."""
        args: list[Any] = [*Stamp.now().args, "-"]
        for name, value in fields.items():
            args += (name, json.dumps(value), int(name in _ANNOUNCED))
        self._listing.write(self._scripts.set_fields, conversation_id, args)

    def change_status(self, conversation_id: ConversationId, verb: str) -> None:
        """Run, pause or interrupt, as `_status.lua` has it. Raises ConversationNotFound, IllegalMove."""
        [outcome] = self._listing.write(self._scripts.change_status, conversation_id, [*Stamp.now().args, verb])
        if outcome != "done":
            raise IllegalMove(verb, outcome)

    def put_secrets(self, conversation_id: ConversationId, secrets: Mapping[str, Any]) -> None:
        """Keep secrets, sealed; nothing ever tells them again. Raises ConversationNotFound, SecretsRefused."""
        if sealed := self._sealer.seal(conversation_id, secrets):
            args = [Stamp.now().utc_time, *_words(sealed)]
            self._listing.write(self._scripts.put_secrets, conversation_id, args)
        else:
            self.get(conversation_id)

    def delete(self, conversation_id: ConversationId) -> None:
        """Remove a conversation and everything of it. Raises ConversationNotFound."""
        reply = self._scripts.delete_conversation([ConversationKeys(conversation_id).root], [str(uuid4())])
        if reply is None:
            raise ConversationNotFound
        _, revision = reply
        self._listing.forget(conversation_id, int(revision))


def _groups(sandbox_id: str, app: dict[str, Any]) -> str:
    """What an app conversation is listed by, beside its status; see `store/keys.py`."""
    parent = app.get("parent_conversation_id")
    return ",".join(["app", f"in-{sandbox_id}", f"of-{parent}" if parent else "top"])


def _words(pairs: Mapping[str, Any]) -> list[Any]:
    return [word for name_and_value in pairs.items() for word in name_and_value]


def _state(stored: dict[bytes, bytes], secret_names: list[bytes]) -> dict[str, Any]:
    state: dict[str, Any] = {name.decode(): value.decode() for name, value in stored.items()}
    for name in _JSON_FIELDS:
        state[name] = json.loads(state.get(name, "null"))
    return {**state["info"], **state, "secret_names": sorted(name.decode() for name in secret_names)}
