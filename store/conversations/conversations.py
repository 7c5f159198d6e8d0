"""Conversations: create once, read, list, change, run and pause, delete.

Round trips are those to Redis. A change takes one more in a cluster, where it is listed after its script.

App conversations are those in a sandbox, with members of their own. Source: the app-server wire.
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
from store.approvals.audit import SERVER, DecisionActor, canonical_text
from store.approvals.decisions import MOST_READ, ReadQuorum
from store.approvals.effects import encodable, held_risks, message_claim
from store.conversation import Conversation, State, info_fields, read_state, title_fields
from store.conversations.lists import DamagedConversation, readable
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

#: Changes that agents know by name, which become events of the log. Source: the agent-server wire.
_ANNOUNCED = ("tags", "security_analyzer")

#: Maximum number of tombstones of a sandbox, 100 bytes each. Beyond it the oldest are deleted.
MOST_TOMBSTONES = 10_000

#: Maximum number of children in a conversation's state, the oldest first.
MOST_CHILDREN = 100

#: Model of an agent without one, because clients of the wire require a name.
_NO_MODEL = "none"

#: Number of conversations that are read at once.
_PAGE = 100


def _own_fields(
    confirmation_seconds: int | None, origin: Origin, approves_inside: bool, external: Mapping[str, Any] | None
) -> dict[str, str]:
    values: dict[str, Any] = {
        "confirmation_seconds": confirmation_seconds,
        "origin": origin.stored or None,
        "approves_inside": approves_inside or None,
        "external": external,
        "told": external and {"capabilities": ["decide_each", *(["edit"] if external["can_edit"] else [])]},
    }
    return Conversation.fields_of(**{name: value for name, value in values.items() if value is not None})


def _groups_of(sandbox_id: str, app: Mapping[str, object]) -> str:
    """Return the groups in which an app conversation is listed, besides its status; see `store/keys.toml`."""
    parent = app.get("parent_conversation_id")
    return ",".join(["app", f"in-{sandbox_id}", f"of-{parent}" if parent else "top"])


def in_sandbox(sandbox_id: str, app: Mapping[str, object], incarnation: str) -> dict[str, str]:
    """Return the fields of a conversation in a sandbox. Secrets of other conversations there are masked in it, too."""
    groups = _groups_of(sandbox_id, app)
    return Conversation.fields_of(sandbox_id=sandbox_id, secrets_version=incarnation, groups=groups, app=app)


class Conversations:
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
        """quorum: reads which actions several people must approve."""
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
        """Create a conversation unless the id exists; True if this call, or an earlier attempt at it, created it.

        confirmation_policy: see docs/wire.md, 4. initial_message: content of a first user message, which starts a run;
        a sandbox's agent gets it with its start, and is expected to post it. app: members of an app conversation, which
        is one with a sandbox. start_body: see `sandboxes/start_tasks.py`. origin: `core/scopes.py`. approves_inside:
        `core/modes.py`. right_tags: for grants, if they differ from its tags. external: `agents/asking.py`. One round
        trip, in a sandbox two. Raises SecretsRefused, TooManyConversations, StoreFull, and ConversationNotFound if the
        start task in `app` has ended.
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
        if took and sandbox_id and not is_new:  # the id belongs to a conversation of another sandbox, or of none
            self._places.leave(sandbox_id, conversation_id, made=True)
        if sandbox_id and (sealed or start_body):
            self._renew_masks(conversation_id, sandbox_id)
        return is_new

    def _adopt_child(self, conversation_id: ConversationId, sandbox_id: str, parent_id: ConversationId | None) -> None:
        """Create a child that the agent of its parent has started, unless it exists.

        Raises TooManyConversations, and NotStartedHere if its parent is not in that sandbox, or if the sandbox has a
        tombstone of the child: a late webhook must not create a deleted conversation again.
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
        """Return the state of a conversation. Raises ConversationNotFound."""
        [state] = self.get_many([conversation_id])
        if state is None:
            raise ConversationNotFound
        return state

    def get_many(self, conversation_ids: Sequence[ConversationId]) -> list[State | None]:
        """Return states in the order of the ids, None for an unknown id. One round trip."""
        return [read_state(stored, names) if stored else None for stored, names in self._stored(conversation_ids)]

    def get_each(self, conversation_ids: Sequence[ConversationId]) -> list[State | DamagedConversation | None]:
        """Return states as `get_many`, with DamagedConversation for corrupt ones, which are logged."""
        return [
            readable(one, read_state, *stored) if stored[0] else None
            for one, stored in zip(conversation_ids, self._stored(conversation_ids), strict=True)
        ]

    def _stored(self, conversation_ids: Sequence[ConversationId]) -> list[tuple[dict[bytes, bytes], list[bytes]]]:
        """Return the hash of each conversation, empty for an unknown id, and the names of its secrets.

        One round trip.
        """
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
        """Return a page of the conversations that pass, and the next cursor. Cost: `Listing.page`, and one read.

        Each wrong entry of the listing on the page is corrected, with one round trip. Corrupt conversations are logged
        and omitted.
        """
        entries, following = self._listing.page(filters, by=by, descending=descending, limit=limit, start=start)
        found = []
        for entry, state in zip(entries, self.get_each([entry.id for entry in entries]), strict=True):
            if isinstance(state, DamagedConversation):
                continue
            self._listing.correct(entry, state)
            if state is not None and filters.passes(state):
                found.append(state)
        return found, following

    def count(self, *, status: str | None = None) -> int:
        """Return the number of conversations, with a status or in all. One round trip."""
        return self._listing.count(ListingFilter(statuses=_statuses(status)))

    def sandbox_of(self, conversation_id: ConversationId) -> str | None:
        """Return the sandbox of a conversation; None if it is detached. One round trip. Raises ConversationNotFound."""
        stored = self._redis.hmget(ConversationKeys(conversation_id).root, ["id", "sandbox_id"])
        if stored[0] is None:
            raise ConversationNotFound
        return stored[1].decode() if stored[1] else None

    def update(self, conversation_id: ConversationId, *, app: Mapping[str, Any] | None = None, **fields: Any) -> bool:
        """Set a title, tags, a security analyzer, confirmation_seconds, or `app` members. Others stay.

        Returns whether its agent must receive a new title or tags. One round trip. Raises ConversationNotFound.
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
        """Return the tags for grants: those of clients, without an agent's reports. One round trip."""
        stored = self._redis.hget(ConversationKeys(conversation_id).root, "right_tags")
        found: dict[str, str] = json.loads(stored or b"{}")
        return found

    def owner(self, conversation_id: ConversationId) -> str:
        """Return the owner of a conversation; empty if unknown. Raises ConversationNotFound."""
        known, owner = self._redis.hmget(ConversationKeys(conversation_id).root, ["id", "owner"])
        if known is None:
            raise ConversationNotFound
        return (owner or b"").decode()

    def own(self, conversation_id: ConversationId, name: str) -> None:
        """Set the owner of a copy without an owner. One round trip."""
        self._scripts.name_owner(ConversationKeys(conversation_id).root, owner=name)

    def give(self, conversation_id: ConversationId, owner: str, *, before: str, actor: DecisionActor) -> None:
        """Change the owner of a conversation, with an entry in its audit.

        before: the owner that the actor has seen. Raises ConversationNotFound, OwnerChanged, RightsChanged.
        """
        stamp = Stamp.now()
        reply = self._scripts.set_owner(
            ConversationKeys(conversation_id).root,
            id_prefix=stamp.id_prefix,
            time=stamp.utc_time,
            actor=actor.json,
            reason=canonical_text(f"From {before or 'nobody'} to {owner}."),
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
        """Store an agent server's report. Creates an unknown child of a conversation in its sandbox.

        Members that the report lacks stay, an existing title stays, tags are merged. One round trip. Raises
        NotItsSandbox, NotStartedHere, TooManyConversations.
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

    def change_status(self, conversation_id: ConversationId, verb: str, *, actor: DecisionActor = SERVER) -> None:
        """Run, pause or interrupt, as defined in `_status.lua`.

        actor: may need the right to decide the pending actions. Raises ConversationNotFound, NobodyRuns, IllegalMove,
        NeedsApproval, HeldByQuorum, RightsChanged.
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
        """Store secrets, sealed. No response contains them. They are masked in all conversations of the sandbox.

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
        """Invalidate the masks of the other conversations in a sandbox. One round trip, and one for each of them."""
        others, _ = self._places.known(SandboxId(sandbox_id))
        for other in others - {conversation_id}:
            root = ConversationKeys(ConversationId(other)).root
            self._scripts.keep_fields(root, fields=Conversation.fields_of(secrets_version=str(uuid4())))

    def secrets_of(self, conversation_id: ConversationId) -> dict[str, object]:
        """Return the unsealed secrets of a conversation, for its agent alone. One round trip. Raises SecretsRefused."""
        sealed = self._redis.hgetall(ConversationKeys(conversation_id).secrets)
        return self._sealer.open(conversation_id, {name.decode(): value for name, value in sealed.items()})

    def secrets_in(self, sandbox_id: SandboxId) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
        """Return the secrets of each conversation in a sandbox, for its egress proxy alone. Two round trips.

        First those of conversations that the sandbox's owner, or an unknown key, started; then those of other keys'.
        Without an owner, all are of the first kind. Raises SecretsRefused.
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
        """Record that a conversation's agent server ended. A run is paused, and recorded as interrupted.

        stamp: with an id prefix of this end, so that a repeat appends nothing. error: members of a
        ConversationErrorEvent; empty: no event. One round trip. Raises ConversationNotFound, NotItsSandbox.
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
        """Store the state of the recovery, see `Conversation`. Ignores an unknown conversation."""
        fields = Conversation.fields_of(agent_log=agent_log, interrupted=interrupted)
        self._scripts.keep_fields(ConversationKeys(conversation_id).root, fields=fields)

    def settle_labels(self, conversation_id: ConversationId, due: str) -> None:
        """Record that the agent has the due title and tags. due: `labels_due` of the state. Later changes stay due."""
        self._scripts.settle_labels(ConversationKeys(conversation_id).root, due=due)

    def delete(self, conversation_id: ConversationId, actor: DecisionActor = SERVER, *, revision: str = "") -> bool:
        """Delete a conversation with its events and secrets, but not its audit. Three round trips, in a sandbox four.

        The tombstone is written first: after a kill in between, the conversation still exists. revision: required
        revision; if it differs, nothing changes, and the result is False. Raises ConversationNotFound.
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
        if sandbox_id and revision:  # only now: a conversation that stays needs its place
            self.bury(conversation_id, sandbox_id.decode())
        self._listing.forget(conversation_id, reply.revision)
        if reply.is_audited:
            self._projections.refresh(conversation_id)
        if isinstance(
            reply, DeleteConversation.Gone
        ):  # its worker may have been killed before it removed the conversation from the list
            raise ConversationNotFound
        return True

    def bury(self, conversation_id: ConversationId, sandbox_id: str) -> None:
        """Write a tombstone of a conversation in a sandbox, and free its place. One round trip."""
        self._scripts.bury_conversation(
            SandboxKeys.root, sandbox=sandbox_id, conversation=conversation_id, most=MOST_TOMBSTONES
        )


class _FirstMessage(TypedDict):
    """A first user message for `create_conversation.lua`: an event, or its expected echo."""

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


def _statuses(status: str | None) -> tuple[str, ...]:
    return () if status is None else (status,)


def app_filter(*, sandbox_id: str | None = None, with_children: bool = False, **others: Any) -> ListingFilter:
    """Return the filter for app conversations. others: title and times of `ListingFilter`."""
    if sandbox_id is not None:
        return ListingFilter(group=f"in-{sandbox_id}", top=not with_children, **others)
    return ListingFilter(group="app" if with_children else "top", **others)


class AppConversations:
    """All app conversations, which are those in a sandbox."""

    def __init__(self, conversations: Conversations, listing: Listing, sandboxes: Sandboxes) -> None:
        self._conversations = conversations
        self._listing = listing
        self._sandboxes = sandboxes

    def get_many(self, ids: list[ConversationId]) -> list[State | None]:
        """Return states in the order of the ids, with the sandbox and at most MOST_CHILDREN ids of children.

        None for an unknown or detached id. Two round trips, and one read of sandboxes, whatever the number.
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
        """Return a state as `get_many`. Raises ConversationNotFound."""
        [state] = self.get_many([conversation_id])
        if state is None:
            raise ConversationNotFound
        return state

    def children(self, conversation_id: ConversationId) -> Iterator[State]:
        """Yield every child's state, the oldest first, page by page, so that children may be deleted meanwhile."""
        return self._each(f"of-{conversation_id}")

    def each_in(self, sandbox_id: SandboxId) -> Iterator[State]:
        """Yield the state of every conversation in a sandbox, the oldest first, page by page as `children`."""
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
        """Return a page by `created`, `updated` or `title`, without children's ids, and the next cursor.

        A page may be shorter than the limit without being the last, see `Listing.page`. Cost: `Conversations.page` and
        one read of sandboxes.
        """
        states, following = self._conversations.page(filters, by=by, descending=descending, limit=limit, start=start)
        found = [{**state, "sub_conversation_ids": []} for state in states]
        self._add_sandboxes(found)
        return found, following

    def count(self, filters: ListingFilter) -> int:
        """Return the number of app conversations that pass. Cost: `Listing.count`."""
        return self._listing.count(filters)

    def report(self, sandbox_id: SandboxId, conversation_id: ConversationId, reported: Mapping[str, Any]) -> None:
        """Store an agent server's report, as `Conversations.report`: title, tags, stats, agent and REPORTED_MEMBERS.

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

        Raises ConversationNotFound, also for a detached conversation.
        """
        if self._conversations.sandbox_of(conversation_id) is None:
            raise ConversationNotFound
        return self._conversations.update(conversation_id, app=app, **fields)

    def in_sandbox(self, sandbox_id: SandboxId) -> int:
        """Return the number of conversations in a sandbox. One round trip."""
        return self._listing.count(ListingFilter(group=f"in-{sandbox_id}"))

    def runs_in(self, sandbox_id: SandboxId) -> bool:
        """Return whether an agent runs one of the MOST_SCANNED conversations of a sandbox that changed last."""
        return bool(self._with_status(sandbox_id, "running"))

    def work_in(self, sandbox_id: SandboxId) -> str:
        """Return what the agents of a sandbox do, in the MOST_SCANNED conversations that changed last.

        "runs"; "asks": actions wait for a decision; "rests"; "": it has no conversation.
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
