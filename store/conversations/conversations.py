"""Conversations: create once, read, list, change, run and pause, delete.

Round trips are those to Redis. A change takes one more in a cluster, where it is listed after its script.

App conversations are those in a sandbox, with the members that only they have. Source: the app-server wire.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict
from uuid import uuid4

from core.bounds import MOST_SECRETS, MOST_SECRETS_BYTES
from core.cuts import beginning
from core.scopes import NOWHERE, Origin
from core.wire import MOST_TITLE, REPORTED_MEMBERS, ConversationId, user_message
from store.approvals.audit import SERVER, Actor, said
from store.approvals.decisions import MOST_READ, ReadQuorum
from store.approvals.effects import encodable, held_risks, message_claim
from store.conversation import Conversation, State, info_fields, read_state, title_fields
from store.conversations.lists import Damaged, readable
from store.errors import (
    ConversationNotFound,
    HeldByQuorum,
    IllegalMove,
    NeedsApproval,
    NobodyRuns,
    NotItsSandbox,
    NotStartedHere,
    OwnerChanged,
    RightsChanged,
    RunsInTerminal,
    StoreFull,
    TooManySecrets,
)
from store.keys import APP_FIELD, ConversationKeys, SandboxKeys, pair
from store.link.attempts import Stamp, is_finished, minted
from store.link.commands import Redis
from store.link.secrets import Sealer
from store.listing import Cursor, Listing, ListingFilter, folded
from store.log.text import record
from store.projections import Projections
from store.sandboxes.sandboxes import Places, Sandbox, Sandboxes, SandboxId
from store.scripts import Scripts
from store.scripts.calls import (
    ChangeStatus,
    CreateConversation,
    DeleteConversation,
    InterruptConversation,
    PutSecrets,
    ReportConversation,
    SetFields,
    SetOwner,
)

#: changes that agents know by name: they are events of the log. Source: the agent-server wire
_ANNOUNCED = ("tags", "security_analyzer")

#: most tombstones of one sandbox, 100 bytes each; beyond it the oldest are forgotten
MOST_TOMBSTONES = 10_000

#: children that a conversation's state names, the oldest first
MOST_CHILDREN = 100

#: how an agent without a model reports itself, as clients of the wire can read no agent that names none
_NO_MODEL = "none"

#: conversations that are read at once
_PAGE = 100


def _own_fields(
    confirmation_seconds: int | None, origin: Origin, approves_inside: bool, external: Mapping[str, Any] | None
) -> dict[str, str]:
    """The fields that some conversations have."""
    values: dict[str, Any] = {
        "confirmation_seconds": confirmation_seconds,
        "origin": origin.stored or None,
        "approves_inside": approves_inside or None,
        "external": external,
        "told": external and {"capabilities": ["decide_each", *(["edit"] if external["can_edit"] else [])]},
    }
    return Conversation.fields_of(**{name: value for name, value in values.items() if value is not None})


def _groups_of(sandbox_id: str, app: Mapping[str, object]) -> str:
    """The groups that an app conversation is listed in, beside its status; see `store/keys.toml`."""
    parent = app.get("parent_conversation_id")
    return ",".join(["app", f"in-{sandbox_id}", f"of-{parent}" if parent else "top"])


def in_sandbox(sandbox_id: str, app: Mapping[str, object], incarnation: str) -> dict[str, str]:
    """The fields of a conversation in a sandbox; it is masked by the secrets of the others there, too."""
    groups = _groups_of(sandbox_id, app)
    return Conversation.fields_of(sandbox_id=sandbox_id, secrets_version=incarnation, groups=groups, app=app)


class Conversations:
    """The state of all conversations."""

    def __init__(
        self,
        redis: Redis,
        scripts: Scripts,
        listing: Listing,
        projections: Projections,
        sealer: Sealer,
        places: Places,
        audit_days: int,
        quorum: ReadQuorum,
    ) -> None:
        """quorum: reads what several people must approve."""
        self._redis = redis
        self._quorum = quorum
        self._audit_seconds = audit_days * 86_400
        self._scripts = scripts
        self._listing = listing
        self._projections = projections
        self._sealer = sealer
        self._places = places

    def create(
        self,
        conversation_id: ConversationId,
        *,
        confirmation_policy: dict[str, object] | None = None,
        title: str | None = None,
        tags: dict[str, str] | None = None,
        security_analyzer: Mapping[str, object] | None = None,
        initial_message: list[dict[str, object]] | None = None,
        secrets: Mapping[str, object] | None = None,
        sandbox_id: str | None = None,
        app: dict[str, Any] | None = None,
        confirmation_seconds: int | None = None,
        start_body: bytes = b"",
        origin: Origin = NOWHERE,
        approves_inside: bool = False,
        owner: str = "",
        right_tags: dict[str, str] | None = None,
        external: Mapping[str, Any] | None = None,
        **info: object,
    ) -> bool:
        """Create a conversation unless the id is taken; True if this call created it, also when it was repeated.

        confirmation_policy is that of docs/wire.md, 4; initial_message is the content of a first user message, which
        starts a run: the agent of a sandbox gets it with its start, and is expected to post it. info is kept as given.
        A conversation with a sandbox is an app conversation; app holds the members that only app conversations have.
        start_body: `sandboxes/start_tasks.py`. origin: `core/scopes.py`. approves_inside: `core/modes.py`. owner: name
        of who starts it. right_tags: those that grants are compared with, where they are not its tags. external:
        `agents/asking.py`. One round trip, in a sandbox two. Raises SecretsRefused, TooManyConversations, StoreFull,
        and ConversationNotFound where the start task that `app` names has ended.
        """
        incarnation = str(minted("incarnation"))
        if is_finished():
            return bool(self.get(conversation_id)["incarnation"] == incarnation)
        policy = confirmation_policy or {"kind": "NeverConfirm"}
        stamp = Stamp.now()
        fields = title_fields(title) | Conversation.fields_of(
            id=conversation_id,
            seq=0,
            revision=stamp.at,
            execution_status="idle",
            confirmation_policy=policy,
            held=held_risks(policy),
            tags=tags or {},
            stats={},
            security_analyzer=security_analyzer,
            created_at=stamp.utc_time,
            updated_at=stamp.utc_time,
            text_chunk=0,
            groups="",
            owner=owner,
            right_tags=(tags or {}) if right_tags is None else right_tags,
        )
        fields |= info_fields(info) | _own_fields(confirmation_seconds, origin, approves_inside, external)
        if sandbox_id:
            fields |= in_sandbox(sandbox_id, app or {}, incarnation)
        sealed = self._sealer.seal(conversation_id, secrets or {})
        start_id = (app or {}).get("start_id", "")
        took = sandbox_id is not None and self._places.take(sandbox_id, conversation_id, made=True, start_id=start_id)
        is_new = False
        try:
            reply = self._scripts.create_conversation(
                ConversationKeys(conversation_id).root,
                stamp=stamp,
                incarnation=incarnation,
                **_first_message(initial_message, stamp, in_sandbox=bool(sandbox_id)),
                start_body=start_body,
                start_id=start_id,
                secrets=sealed,
                fields=fields,
            )
            is_new = isinstance(self._projections.settled(conversation_id, reply), CreateConversation.Created)
        except (ConversationNotFound, StoreFull):
            if took and sandbox_id:
                self._places.leave(sandbox_id, conversation_id, made=True)
            raise
        if took and sandbox_id and not is_new:  # the id is that of another sandbox's conversation, or of none
            self._places.leave(sandbox_id, conversation_id, made=True)
        if sandbox_id and (sealed or start_body):
            self._renew_masks(conversation_id, sandbox_id)
        return is_new

    def _adopt_child(self, conversation_id: ConversationId, sandbox_id: str, parent_id: ConversationId | None) -> None:
        """Create a child that the agent of its parent has started by itself, unless it exists.

        Raises NotStartedHere unless it is a child of a conversation in that sandbox, and where the sandbox has a
        tombstone of it: a late webhook creates nothing that was deleted. Raises TooManyConversations.
        """
        is_gone = self._redis.zscore(SandboxKeys.gone(sandbox_id), conversation_id) is not None
        [parent] = [None] if parent_id is None else self.get_many([parent_id])
        if is_gone or parent is None or parent.get("sandbox_id") != sandbox_id:
            raise NotStartedHere
        owner, right_tags = self.owner(ConversationId(parent["id"])), self.right_tags(ConversationId(parent["id"]))
        inherited = {"sandbox_id": sandbox_id, "confirmation_seconds": parent["confirmation_seconds"], "owner": owner}
        origin, app = Origin.of(parent["origin"] or {}), {"parent_conversation_id": parent_id}
        self.create(conversation_id, app=app, origin=origin, right_tags=right_tags, **inherited)

    def get(self, conversation_id: ConversationId) -> State:
        """The state of a conversation. Raises ConversationNotFound."""
        [state] = self.get_many([conversation_id])
        if state is None:
            raise ConversationNotFound
        return state

    def get_many(self, conversation_ids: Sequence[ConversationId]) -> list[State | None]:
        """States in the order of the ids, None for an unknown id. One round trip."""
        return [read_state(stored, names) if stored else None for stored, names in self._stored(conversation_ids)]

    def get_each(self, conversation_ids: Sequence[ConversationId]) -> list[State | Damaged | None]:
        """As `get_many`; one that cannot be read is named in the log, and keeps none of the others back."""
        return [
            readable(one, read_state, *stored) if stored[0] else None
            for one, stored in zip(conversation_ids, self._stored(conversation_ids), strict=True)
        ]

    def _stored(self, conversation_ids: Sequence[ConversationId]) -> list[tuple[dict[bytes, bytes], list[bytes]]]:
        """The hash of each conversation, empty for an unknown id, and the names of its secrets. One round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            for conversation_id in conversation_ids:
                keys = ConversationKeys(conversation_id)
                pipe.hgetall(keys.root)
                pipe.hkeys(keys.secrets)
            replies = pipe.execute() if conversation_ids else []
        return list(zip(*[iter(replies)] * 2, strict=True))

    def page(
        self, filters: ListingFilter, *, by: str, descending: bool, limit: int, start: Cursor | None
    ) -> tuple[list[State], Cursor | None]:
        """One page of the conversations that pass, and the next page's cursor. Cost: `Listing.page`, and one read.

        Each wrong entry of the listing that the page meets is corrected, by one round trip. A conversation that cannot
        be read is named in the log, and keeps none of the others back.
        """
        entries, following = self._listing.page(filters, by=by, descending=descending, limit=limit, start=start)
        found = []
        for entry, state in zip(entries, self.get_each([entry.id for entry in entries]), strict=True):
            if isinstance(state, Damaged):
                continue
            self._listing.correct(entry, state)
            if state is not None and filters.passes(state):
                found.append(state)
        return found, following

    def count(self, *, status: str | None = None) -> int:
        """The number of conversations, of a status or in all. One round trip."""
        return self._listing.count(ListingFilter(statuses=_one(status)))

    def sandbox_of(self, conversation_id: ConversationId) -> str | None:
        """The sandbox of a conversation; None if it is detached. One round trip. Raises ConversationNotFound."""
        stored = self._redis.hmget(ConversationKeys(conversation_id).root, ["id", "sandbox_id"])
        if stored[0] is None:
            raise ConversationNotFound
        return stored[1].decode() if stored[1] else None

    def update(self, conversation_id: ConversationId, *, app: Mapping[str, Any] | None = None, **fields: Any) -> bool:
        """Set a title, tags, a security analyzer, confirmation_seconds, or `app` members; others stay as they are.

        True if its agent must be told a title or tags. One round trip. Raises ConversationNotFound.
        """
        if "title" in fields:
            fields["folded_title"] = folded(fields["title"])
        if "tags" in fields:
            fields["right_tags"] = fields["tags"]
        stored = Conversation.fields_of(**fields, app=app or {})
        rows = [(name, text, name in _ANNOUNCED) for name, text in stored.items()]
        root = ConversationKeys(conversation_id).root
        reply = self._scripts.set_fields(
            root, stamp=Stamp.now(), held="-", mode=None, actor=None, reason=None, fields=rows
        )
        return isinstance(self._projections.settled(conversation_id, reply), SetFields.Due)

    def right_tags(self, conversation_id: ConversationId) -> dict[str, str]:
        """The tags that grants are compared with: as clients gave them, whatever an agent reports. One round trip."""
        stored = self._redis.hget(ConversationKeys(conversation_id).root, "right_tags")
        found: dict[str, str] = json.loads(stored or b"{}")
        return found

    def owner(self, conversation_id: ConversationId) -> str:
        """Who owns a conversation; empty where nobody is known. Raises ConversationNotFound."""
        known, owner = self._redis.hmget(ConversationKeys(conversation_id).root, ["id", "owner"])
        if known is None:
            raise ConversationNotFound
        return (owner or b"").decode()

    def own(self, conversation_id: ConversationId, name: str) -> None:
        """Make somebody the owner of a copy that has none yet. One round trip."""
        self._scripts.name_owner(ConversationKeys(conversation_id).root, owner=name)

    def give(self, conversation_id: ConversationId, owner: str, *, before: str, actor: Actor) -> None:
        """Give a conversation to another owner; an entry of its audit says so.

        before: the owner that the actor has seen. Raises ConversationNotFound, OwnerChanged, RightsChanged.
        """
        stamp = Stamp.now()
        reply = self._scripts.set_owner(
            ConversationKeys(conversation_id).root,
            id_prefix=stamp.id_prefix,
            time=stamp.utc_time,
            actor=actor.json,
            reason=said(f"From {before or 'nobody'} to {owner}."),
            rights=actor.rights,
            owner=owner,
            before=before,
        )
        match self._projections.settled(conversation_id, reply):
            case SetOwner.Other():
                raise OwnerChanged
            case SetOwner.Changed():
                raise RightsChanged

    def report(
        self,
        conversation_id: ConversationId,
        sandbox_id: str,
        *,
        title: str | None = None,
        tags: Mapping[str, str] | None = None,
        app: Mapping[str, object] | None = None,
        told: Mapping[str, object] | None = None,
        parent_id: ConversationId | None = None,
        **fields: object,
    ) -> None:
        """Keep an agent server's report; an unknown child of a conversation there is created. Members that the report
        lacks stay.

        A title is kept where there is none; tags are merged. One round trip.
        Raises NotItsSandbox, NotStartedHere, TooManyConversations.
        """
        kept = {name: value for name, value in (tags or {}).items() if encodable(name + value)}
        report = partial(
            self._scripts.report_conversation,
            ConversationKeys(conversation_id).root,
            stamp=Stamp.now(),
            sandbox=sandbox_id,
            title=json.dumps(beginning(title, MOST_TITLE)) if title else "",
            folded_title=folded(title and beginning(title, MOST_TITLE)),
            tags=json.dumps(kept) if kept else "",
            fields=Conversation.fields_of(**fields, told=told or {}, app=app or {}),
        )
        reply = report()
        if reply is None:
            self._adopt_child(conversation_id, sandbox_id, parent_id)
            reply = report()
        if isinstance(self._projections.settled(conversation_id, reply), ReportConversation.Foreign):
            raise NotItsSandbox

    def change_status(self, conversation_id: ConversationId, verb: str, *, actor: Actor = SERVER) -> None:
        """Run, pause or interrupt, as `_status.lua` has it.

        actor: who may or may not approve what waits. Raises ConversationNotFound, NobodyRuns, IllegalMove,
        NeedsApproval, HeldByQuorum and RightsChanged.
        """
        stamp, root, actor = Stamp.now(), ConversationKeys(conversation_id).root, actor.by("run")
        for attempt in range(MOST_READ):
            reply = self._scripts.change_status(
                root,
                stamp=stamp,
                verb=verb,
                may_decide=actor.may_decide,
                actor=actor.json,
                rights=actor.rights,
                quorum=self._quorum(conversation_id, actor, attempt > 0) if verb == "run" and actor.may_decide else "",
            )
            if not isinstance(reply, ChangeStatus.Unread):
                break
        match self._projections.settled(conversation_id, reply):
            case ChangeStatus.Forbidden():
                raise NeedsApproval
            case ChangeStatus.Refused(state):
                raise IllegalMove(verb, state.status)
            case ChangeStatus.Held():
                raise HeldByQuorum
            case ChangeStatus.Unattended():
                raise NobodyRuns
            case ChangeStatus.External():
                raise RunsInTerminal
            case ChangeStatus.Changed() | ChangeStatus.Unread():
                raise RightsChanged

    def put_secrets(
        self, conversation_id: ConversationId, secrets: Mapping[str, object], sandbox_id: str | None = None
    ) -> None:
        """Keep secrets, sealed; no response contains them. They are masked in all conversations of its sandbox.

        Raises ConversationNotFound, SecretsRefused, TooManySecrets.
        """
        sealed = self._sealer.seal(conversation_id, secrets)
        if not sealed:
            self.get(conversation_id)
            return
        reply = self._scripts.put_secrets(
            ConversationKeys(conversation_id).root,
            utc=Stamp.now().utc_time,
            version=str(minted("secrets")),
            most=MOST_SECRETS,
            most_bytes=MOST_SECRETS_BYTES,
            secrets=sealed,
        )
        if isinstance(self._projections.settled(conversation_id, reply), PutSecrets.TooMany):
            raise TooManySecrets
        if sandbox_id:
            self._renew_masks(conversation_id, sandbox_id)

    def _renew_masks(self, conversation_id: ConversationId, sandbox_id: str) -> None:
        """Have a conversation's secrets masked in the others of its sandbox. A round trip, and one for each of them."""
        others, _ = self._places.known(SandboxId(sandbox_id))
        for other in others - {conversation_id}:
            root = ConversationKeys(ConversationId(other)).root
            self._scripts.keep_fields(root, fields=Conversation.fields_of(secrets_version=str(uuid4())))

    def secrets_of(self, conversation_id: ConversationId) -> dict[str, object]:
        """The secrets of a conversation, unsealed: for its agent alone. One round trip. Raises SecretsRefused."""
        sealed = self._redis.hgetall(ConversationKeys(conversation_id).secrets)
        return self._sealer.open(conversation_id, {name.decode(): value for name, value in sealed.items()})

    def secrets_in(self, sandbox_id: SandboxId) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
        """The secrets of each conversation in a sandbox that has some: for its way out alone. Two round trips.

        First those of conversations that the sandbox's owner started, or of which no key is known; then those of other
        keys' conversations. In a sandbox without an owner all are of the first kind. Raises SecretsRefused.
        """
        present, _ = self._places.known(sandbox_id)
        ids = [ConversationId(one) for one in sorted(present)]
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.hget(SandboxKeys.box(sandbox_id), "owner")
            for one in ids:
                pipe.hget(ConversationKeys(one).root, f"{APP_FIELD}started_by")
                pipe.hgetall(ConversationKeys(one).secrets)
            owner, *found = pipe.execute()
        own, others = list[dict[str, object]](), list[dict[str, object]]()
        for one, key, sealed in zip(ids, found[::2], found[1::2], strict=True):
            if sealed:
                is_own = not owner or key is None or json.loads(key) == owner.decode()
                opened = self._sealer.open(one, {name.decode(): value for name, value in sealed.items()})
                (own if is_own else others).append(opened)
        return own, others

    def interrupt(
        self, conversation_id: ConversationId, sandbox_id: str, stamp: Stamp, error: Mapping[str, object]
    ) -> None:
        """Note that the agent server of a conversation ended: a run is paused, and remembered as interrupted.

        stamp: its id prefix is that of this end, so that a repeat appends nothing. error: members of a
        ConversationErrorEvent; empty: no such event. One round trip. Raises ConversationNotFound, NotItsSandbox.
        """
        reply = self._scripts.interrupt_conversation(
            ConversationKeys(conversation_id).root,
            stamp=stamp,
            sandbox_id=sandbox_id,
            failure=json.dumps(error)[1:-1],
        )
        if isinstance(self._projections.settled(conversation_id, reply), InterruptConversation.Foreign):
            raise NotItsSandbox

    def note_recovery(self, conversation_id: ConversationId, agent_log: Sequence[object], *, interrupted: bool) -> None:
        """Keep what the recovery knows, as `Conversation` has it. Of an unknown conversation nothing is kept."""
        fields = Conversation.fields_of(agent_log=agent_log, interrupted=interrupted)
        self._scripts.keep_fields(ConversationKeys(conversation_id).root, fields=fields)

    def settle_labels(self, conversation_id: ConversationId, due: str) -> None:
        """Note that the agent has the titles and tags that were due, as `labels_due` of the state named them; a change
        since then stays due."""
        self._scripts.settle_labels(ConversationKeys(conversation_id).root, due=due)

    def delete(self, conversation_id: ConversationId, actor: Actor = SERVER, *, revision: str = "") -> bool:
        """Remove a conversation with its events and secrets. Three round trips, in a sandbox four. Its audit is kept.

        The tombstone is written first: after a kill in between the conversation still exists. revision: that which it
        must have; of another one nothing changes, and this is False. Raises ConversationNotFound.
        """
        sandbox_id = self._redis.hget(ConversationKeys(conversation_id).root, "sandbox_id")
        if sandbox_id and not revision:
            self.bury(conversation_id, sandbox_id.decode())
        reply = self._scripts.delete_conversation(
            ConversationKeys(conversation_id).root,
            deletion=str(uuid4()),
            utc=Stamp.now().utc_time,
            actor=actor.by("deletion").json,
            audit_seconds=self._audit_seconds,
            wanted=revision,
        )
        if reply is None:
            raise ConversationNotFound
        if reply == "changed":
            return False
        if sandbox_id and revision:  # only now: one that stays needs its place in the sandbox
            self.bury(conversation_id, sandbox_id.decode())
        self._listing.forget(conversation_id, reply.revision)
        if reply.is_audited:
            self._projections.refresh(conversation_id)
        if isinstance(
            reply, DeleteConversation.Gone
        ):  # its worker may have been killed before it took the conversation off the list
            raise ConversationNotFound
        return True

    def bury(self, conversation_id: ConversationId, sandbox_id: str) -> None:
        """Keep a tombstone of a conversation in a sandbox, and free its place. One round trip."""
        self._scripts.bury_conversation(
            SandboxKeys.root, sandbox=sandbox_id, conversation=conversation_id, most=MOST_TOMBSTONES
        )


class _FirstMessage(TypedDict):
    """A first user message as `create_conversation.lua` takes it: an event, or the expected echo of one."""

    message_id: str
    pair: str
    event: bytes
    record: bytes
    echo: str


def _first_message(content: list[dict[str, object]] | None, stamp: Stamp, *, in_sandbox: bool) -> _FirstMessage:
    if content is None or in_sandbox:
        echo = "" if content is None else f"{message_claim(content)} {uuid4().hex}"
        return {"message_id": "", "pair": "", "event": b"", "record": b"", "echo": echo}
    event = user_message(content, stamp.at, minted("message"))
    place = pair(event.kind, event.source)
    return {"message_id": event.id, "pair": place, "event": event.raw, "record": record(event), "echo": ""}


def _one(status: str | None) -> tuple[str, ...]:
    return () if status is None else (status,)


def app_filter(*, sandbox_id: str | None = None, with_children: bool = False, **others: Any) -> ListingFilter:
    """The filter for app conversations; others are the title and the times of `ListingFilter`."""
    if sandbox_id is not None:
        return ListingFilter(group=f"in-{sandbox_id}", top=not with_children, **others)
    return ListingFilter(group="app" if with_children else "top", **others)


class AppConversations:
    """All app conversations: those in a sandbox."""

    def __init__(self, conversations: Conversations, listing: Listing, sandboxes: Sandboxes) -> None:
        self._conversations = conversations
        self._listing = listing
        self._sandboxes = sandboxes

    def get_many(self, ids: list[ConversationId]) -> list[State | None]:
        """States in the order of the ids, each with its sandbox and the ids of its children, at most MOST_CHILDREN.

        None for an id that is unknown or detached. Two round trips, and one read of sandboxes, whatever the number.
        """
        states = self._conversations.get_many(ids)
        found = [state if state and state.get("sandbox_id") else None for state in states]
        apps = [state for state in found if state]
        children = self._listing.members([f"of-{state['id']}" for state in apps], MOST_CHILDREN)
        for state, ids_of_children in zip(apps, children, strict=True):
            state["sub_conversation_ids"] = ids_of_children
        self._add_sandboxes(apps)
        return found

    def get(self, conversation_id: ConversationId) -> State:
        """One of them, as `get_many`. Raises ConversationNotFound."""
        [state] = self.get_many([conversation_id])
        if state is None:
            raise ConversationNotFound
        return state

    def children(self, conversation_id: ConversationId) -> Iterator[State]:
        """Every child's state, the oldest first; a page at a time, so that children may be deleted meanwhile."""
        return self._each(f"of-{conversation_id}")

    def each_in(self, sandbox_id: SandboxId) -> Iterator[State]:
        """The state of every conversation in a sandbox, the oldest first; read as `children` are."""
        return self._each(f"in-{sandbox_id}")

    def _each(self, group: str) -> Iterator[State]:
        start: Cursor | None = None
        while True:
            states, start = self._conversations.page(
                ListingFilter(group=group), by="created", descending=False, limit=_PAGE, start=start
            )
            yield from states
            if start is None:
                return

    def search(
        self, filters: ListingFilter, *, by: str, descending: bool, limit: int, start: Cursor | None
    ) -> tuple[list[State], Cursor | None]:
        """One page by `created`, `updated` or `title`, without children's ids, and the next page's cursor.

        A page may be shorter than the limit and not the last, as `Listing.page`. Cost: that of `Conversations.page` and
        one read of sandboxes.
        """
        states, following = self._conversations.page(filters, by=by, descending=descending, limit=limit, start=start)
        found = [{**state, "sub_conversation_ids": []} for state in states]
        self._add_sandboxes(found)
        return found, following

    def count(self, filters: ListingFilter) -> int:
        """The number of app conversations that pass. Cost: that of `Listing.count`."""
        return self._listing.count(filters)

    def report(self, sandbox_id: SandboxId, conversation_id: ConversationId, reported: Mapping[str, Any]) -> None:
        """Keep an agent server's report about a conversation, as `Conversations.report`: title, tags, stats, agent and
        REPORTED_MEMBERS.

        A report with status `deleting` changes nothing. Raises NotItsSandbox, NotStartedHere, TooManyConversations.
        """
        if reported.get("execution_status") == "deleting":
            return
        fields = {name: reported[name] for name in ("title", "tags", "stats", "agent") if reported.get(name)}
        llm = fields.get("agent", {}).get("llm")
        model = llm.get("model") if isinstance(llm, dict) else None
        app = {"llm_model": model} if isinstance(model, str) and model != _NO_MODEL else {}
        parent_id = reported.get("parent_conversation_id")
        told = {name: reported[name] for name in REPORTED_MEMBERS if reported.get(name) is not None}
        self._conversations.report(conversation_id, sandbox_id, app=app, told=told, parent_id=parent_id, **fields)

    def update(self, conversation_id: ConversationId, *, app: Mapping[str, object], **fields: object) -> bool:
        """Set members of an app conversation, and its title or tags, as `Conversations.update`. Three round trips.

        Raises ConversationNotFound, also of a detached conversation.
        """
        if self._conversations.sandbox_of(conversation_id) is None:
            raise ConversationNotFound
        return self._conversations.update(conversation_id, app=app, **fields)

    def in_sandbox(self, sandbox_id: SandboxId) -> int:
        """The number of conversations in a sandbox. One round trip."""
        return self._listing.count(ListingFilter(group=f"in-{sandbox_id}"))

    def runs_in(self, sandbox_id: SandboxId) -> bool:
        """Whether an agent runs a conversation of a sandbox, among the MOST_SCANNED that changed last."""
        return bool(self._with_status(sandbox_id, "running"))

    def work_in(self, sandbox_id: SandboxId) -> str:
        """What the agents of a sandbox do, among the MOST_SCANNED conversations that changed last.

        Returns "runs"; "asks": actions wait for a decision; "rests"; "": it has no conversation.
        """
        found = self._with_status(sandbox_id, "running", "waiting_for_confirmation")
        if any(state["execution_status"] == "running" for state in found):
            return "runs"
        return "asks" if found else "rests" if self.in_sandbox(sandbox_id) else ""

    def _with_status(self, sandbox_id: SandboxId, *statuses: str) -> list[State]:
        filters = ListingFilter(group=f"in-{sandbox_id}", statuses=statuses)
        found, _ = self._conversations.page(filters, by="updated", descending=True, limit=_PAGE, start=None)
        return found

    def _add_sandboxes(self, states: list[State]) -> None:
        ids = list({SandboxId(state["sandbox_id"]) for state in states})
        sandboxes: dict[str, Sandbox | None] = dict(zip(ids, self._sandboxes.get_many(ids), strict=True))
        for state in states:
            state["sandbox"] = sandboxes[state["sandbox_id"]]
