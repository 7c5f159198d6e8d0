"""The inbox: an index of the pending actions of all conversations, in a slot of its own, and a stream of its changes.

The conversation's slot decides what waits. One script updates the index for a conversation, and ignores an older
revision. The index, its stream, the index of the audit and the outbox thus change together, and each change is made
once. If one server has all keys, the script that changes a conversation also runs that script. Otherwise `refresh`
does. A worker that is killed before leaves a stale entry, which the next reader refreshes and the supervisors' sweep
finds.

| entry of `…:items`           | value                                                                       |
|------------------------------|-----------------------------------------------------------------------------|
| seq, since                   | seq of the action in its log, and when it began to wait, UTC text           |
| tool, risk, digest, expires  | as in the conversation's record; `expires` is µs as text, "" never          |
| size                         | bytes of its event; 0: unknown                                              |
| opened                       | id of the stream's entry that opened it                                     |

An entry of `…:stream` has `kind` (`opened`, `decided`, `expired`, or `closed`: it ended without an audit entry),
`conversation_id`, `action_id`, `seq`, `since`, `tool`, `risk`, `size`, and for a decided or expired action `entry`, its
audit entry. An entry of `…:outbox` is JSON: `id`, `type`, `time`, `conversation_id`, `action_id`, `tool`, `risk`, and
for a decided or expired action `decision`, `actor` and `detail`, the reason.
"""

import json
import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from core.approvals import Action, shown_arguments
from core.incomplete import is_complete
from core.refused import RefusalKind
from core.rehearsal import like_answer
from core.scopes import Origin
from core.wire import ConversationId, Micros, has_tag, parse_json, utc_time
from store.approvals.asked import asking_terminal
from store.approvals.decisions import MOST_ENTRIES, Approvals
from store.approvals.effects import held_risks
from store.approvals.seen import assessment
from store.errors import UNAVAILABLE, StoreError
from store.keys import REPORTED_FIELD, ApprovalKeys, ConversationKeys, audit_key
from store.link.commands import Redis
from store.listing import Listing, ListingFilter
from store.log.frames import PAGE_BYTES, original
from store.projections import Projections, Refresh
from store.record import HashRecord, pairs
from store.scripts import Scripts

_log = logging.getLogger(__name__)

#: Assumed size of an event if the index does not know it, in bytes.
_UNKNOWN_SIZE = 1024 * 1024


#: The cursor of a page: when its first action began to wait, "CONVERSATION ACTION", and its seq in its log.
Cursor = tuple[Micros, str, int]


_STATE = ["execution_status", "title", "tags", "sandbox_id", f"{REPORTED_FIELD}capabilities", "folder", "origin"]

#: Maximum number of entries that a script scans, 1,000 at most, and of scripts per page.
SCAN_CHUNK, MOST_CHUNKS = 1000, 5

#: Maximum number of characters of the arguments of an action for which a rule is proposed in lists.
_MOST_LIKE = 4096

#: Number of actions that are read at once, and maximum number that a count reads.
_READ, MOST_COUNTED = 100, 10_000

#: Maximum number of expiring conversations per batch, and of conversations that a part of the sweep compares, twice.
MOST_DUE, PART = 100, 500

#: µs between two parts of the sweep, whatever the number of supervisors.
_SWEEP_SPAN = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(HashRecord):
    """The cursor of the approvals' sweep in the listing."""

    key = ApprovalKeys.sweep
    at: Micros  #: time of the last part, µs
    created: int = 0  #: µs; empty: start over
    id: str = ""


class InboxEntry(NamedTuple):
    """An entry of the index of pending actions."""

    conversation_id: ConversationId
    action_id: str
    at: Micros  #: when it began to wait
    item: dict[str, Any]  #: see above

    @property
    def size(self) -> int:
        """Return the size of the action's event, in bytes."""
        return int(self.item["size"]) or _UNKNOWN_SIZE

    @property
    def cursor(self) -> Cursor:
        return self.at, f"{self.conversation_id} {self.action_id}", int(self.item["seq"])


@dataclass(frozen=True, slots=True)
class InboxAction:
    """An action that waits for a decision, with what a person needs to decide."""

    conversation_id: ConversationId
    conversation_title: str | None
    tags: dict[str, str]
    action_id: str
    seq: int  #: seq of its event in the conversation's log
    tool_name: str
    summary: str | None
    thought: str
    security_risk: str
    arguments: object
    since: str
    expires_at: str | None
    digest: str
    sandbox_id: str | None
    can: list[str]  #: decisions that its agent understands
    decided_together: bool  #: its agent takes one decision for all pending actions of the conversation
    risk: str  #: the greater of `security_risk` and the server's own assessment
    seen: dict[str, Any]  #: the server's own assessment
    like: dict[str, Any] | None  #: arguments of a proposed rule for similar actions; None: none is proposed
    folder: str | None  #: folder in the start request of its conversation
    repository: str | None  #: repository in the start request, HOST/OWNER/NAME
    opened: str  #: id of the stream's entry that opened it
    asked_from: dict[str, Any] | None = None  #: terminal in which its agent asks

    @property
    def complete(self) -> bool:
        """Return whether the arguments are all that the tool gets."""
        return is_complete(self.arguments)


def fitting(entries: Sequence[InboxEntry], room: int = PAGE_BYTES) -> int:
    """Return how many of the first entries fit into `room`, in bytes of their events."""
    for number, entry in enumerate(entries):
        room -= entry.size
        if room < 0:
            return number
    return len(entries)


def load(redis: Redis, entries: Sequence[InboxEntry]) -> list[InboxAction | None]:
    """Return the pending actions of entries, in order, None for each that its conversation does not confirm.

    One round trip, whatever the number of conversations. The caller limits the bytes with `fitting`.
    """
    if not entries:
        return []
    of = list(dict.fromkeys(entry.conversation_id for entry in entries))
    with redis.pipeline(transaction=False) as pipe:
        for conversation_id in of:
            pipe.hmget(ConversationKeys(conversation_id).root, _STATE)
        for entry in entries:
            pipe.hget(ConversationKeys(entry.conversation_id).pending, entry.action_id)
            pipe.lindex(ConversationKeys(entry.conversation_id).log, entry.item["seq"] - 1)
        replies = pipe.execute()
    states = dict(zip(of, replies, strict=False))
    found = zip(*[iter(replies[len(of) :])] * 2, strict=True)
    return [
        _read(entry, states[entry.conversation_id], record, event)
        for entry, (record, event) in zip(entries, found, strict=True)
    ]


def _like(tool_name: object, arguments: str) -> str | None:
    """Return the arguments of a rule for similar actions, as JSON; None for long ones, or if no rule is proposed."""
    return _known_like(tool_name, arguments) if isinstance(tool_name, str) and len(arguments) <= _MOST_LIKE else None


@lru_cache(maxsize=4096)
def _known_like(tool_name: str, arguments: str) -> str | None:
    answer = like_answer(Action(tool_name, json.loads(arguments), "UNKNOWN"))
    return None if answer is None else json.dumps(answer.rule.arguments)


def _read(entry: InboxEntry, state: list[Any], stored: bytes | None, kept: bytes | None) -> InboxAction | None:
    """Return the pending action of an entry; None if the conversation contradicts."""
    status, title, tags, sandbox, reported, folder, origin = state
    if status != b"waiting_for_confirmation" or stored is None or kept is None:
        return None
    record, event = json.loads(stored), parse_json(original(kept))
    is_same = (record["seq"], record["since"]) == (entry.item["seq"], entry.item["since"])
    if "decided" in record or not is_same or event["id"] != entry.action_id:
        return None
    capabilities, sandbox_id = json.loads(reported or b"[]"), sandbox.decode() if sandbox else None
    expires = record.get("expires")
    tool_name, arguments = json.loads(record["tool"]), shown_arguments(event.get("action"))
    like, began = _like(tool_name, json.dumps(arguments)), Origin.of(json.loads(origin or b"{}"))
    asked_from = asking_terminal(record, began)
    can = [] if asked_from and asked_from["in_terminal"] else ["approve", "reject"]
    return InboxAction(
        conversation_id=entry.conversation_id,
        conversation_title=json.loads(title),
        tags=json.loads(tags),
        action_id=entry.action_id,
        seq=record["seq"],
        tool_name=tool_name,
        summary=event.get("summary"),
        thought=thought_of(event),
        security_risk=record["risk"],
        arguments=arguments,
        since=record["since"],
        expires_at=utc_time(Micros(int(expires))) if expires else None,
        digest=record["digest"],
        sandbox_id=sandbox_id,
        can=[*can, *(["edit"] if can and "edit" in capabilities else [])],
        decided_together=sandbox_id is not None and "decide_each" not in capabilities,
        **assessment(tool_name, arguments, folder and folder.decode(), record["risk"]),
        like=None if like is None else json.loads(like),
        folder=began.folder or None,
        repository=began.repository or None,
        opened=entry.item["opened"],
        asked_from=asked_from,
    )


def thought_of(event: dict[str, object]) -> str:
    """Return the text of the agent's thought about an action; empty if there is none."""
    parts = event.get("thought")
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "\n".join(text for text in texts if isinstance(text, str))


class TooManyToCount(StoreError):
    """Too many actions are pending to count them by tag, text, risk, effect, machine or agent."""

    kind = RefusalKind.MEMBER
    place = "query"

    def __init__(self, member: str) -> None:
        """member: the filter that the index cannot apply."""
        self.member = member
        super().__init__(
            f"A count by tag, text, risk, effect, machine or agent reads {MOST_COUNTED} pending actions at most. More "
            "pass the other filters: narrow it by conversation_id, tool_name, security_risk, since__gte or since__lt"
        )


@dataclass(frozen=True, slots=True)
class InboxFilter:
    """A filter of pending actions. Absent members let all pass. The index applies all but those of `reads`."""

    conversation_id: ConversationId | None = None
    tool: str | None = None
    risk: str | None = None
    since: Micros | None = None
    until: Micros | None = None
    tag: tuple[str, str | None] | None = None  #: name and value of a tag of the conversation; None: any value
    destinations: bool = False  #: of a stream: also send requests of sandboxes for destinations
    sandbox_id: str | None = None  #: of a stream of one conversation: its sandbox, which others may share
    shown_risk: str | None = None  #: the greater of the agent's risk and the server's own assessment
    effect: str | None = None  #: effect in the server's own assessment
    machine: str | None = None  #: machine of an agent outside of sandboxes
    agent: str | None = None  #: name of an agent outside of sandboxes
    text: str | None = None  #: case-insensitive substring of tool, summary, thought, arguments or title

    def passes_destination(self, conversation_id: str | None, sandbox_id: str) -> bool:
        """Return whether a sandbox's request for a destination passes.

        conversation_id: None if it has none or several.
        """
        if not self.destinations or self.conversation_id is None:
            return self.destinations
        if conversation_id:
            return conversation_id == self.conversation_id
        return sandbox_id == self.sandbox_id

    @property
    def selects(self) -> bool:
        """Return whether the filter excludes entries of the index other than by their conversation."""
        return any(value is not None for value in (self.tool, self.risk, self.since, self.until))

    @property
    def unindexed(self) -> list[str]:
        """Return the names of the filters that the index cannot apply, as clients know them."""
        of = {"tag": self.tag, "text": self.text, "risk": self.shown_risk, "effect": self.effect}
        of |= {"machine": self.machine, "agent": self.agent}
        return [name for name, value in of.items() if value is not None]

    @property
    def reads(self) -> bool:
        """Return whether the index alone cannot decide."""
        return bool(self.unindexed)

    def passes(self, action: InboxAction) -> bool:
        """Return whether an action passes the filters that the index cannot apply."""
        if self.tag is not None and not has_tag(action.tags, *self.tag):
            return False
        if self.shown_risk not in (None, action.risk):
            return False
        asked_from = action.asked_from or {}
        if self.machine not in (None, asked_from.get("machine")) or self.agent not in (None, asked_from.get("agent")):
            return False
        if self.effect is not None and all(one["effect"] != self.effect for one in action.seen["effects"]):
            return False
        if self.text is None:
            return True
        arguments = json.dumps(action.arguments, ensure_ascii=False)
        shown = (action.tool_name, action.summary, action.thought, arguments, action.conversation_title)
        return any(self.text.casefold() in str(one).casefold() for one in shown if one is not None)


class Index:
    """The index of pending actions, and the consequences of its changes."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def refresh(self, conversation_id: ConversationId) -> None:
        """Update the index for a conversation. Three round trips.

        Concurrent calls for a conversation may run in any order: the newest revision wins.
        """
        while self._note(conversation_id):
            pass

    def read_approvals(self, conversation_id: ConversationId, audited: int = 0) -> Approvals:
        """Return the pending actions, and MOST_ENTRIES audit entries after a seq. One round trip."""
        reply = self._scripts.read_approvals(ConversationKeys(conversation_id).root, after=audited, most=MOST_ENTRIES)
        records = ((one.id, json.loads(one.record)) for one in reply.pending)
        return Approvals(
            reply.there == "gone",
            reply.there == "left",
            reply.revision,
            json.loads(reply.title),
            json.loads(reply.tags),
            reply.sandbox or None,
            json.loads(reply.capabilities),
            reply.audited,
            reply.audit,
            reply.folder or None,
            Origin.of(json.loads(reply.origin)),
            reply.inside and reply.held == held_risks({"kind": "AlwaysConfirm"}),
            [{**record, "id": name, "tool": json.loads(record["tool"])} for name, record in records],
        )

    def _note(self, conversation_id: ConversationId) -> bool:
        """Index the current state of a conversation.

        True if more audit entries follow, and nobody else has indexed a later state, which includes them.
        """
        stored = self._redis.hget(ApprovalKeys.noted, conversation_id)
        audited = int(stored.split()[1]) if stored else 0
        root = ConversationKeys(conversation_id).root
        found = self._scripts.read_unindexed(root, after=audited, most=MOST_ENTRIES)
        outcome = self._scripts.note_approvals(
            ApprovalKeys.root,
            conversation=conversation_id,
            revision=found.revision,
            part=found.part,
            number=found.audited,
            pending=found.pending,
            entries=found.entries,
        )
        return outcome == "noted" and found.part == "part"


class Inbox:
    def __init__(self, redis: Redis, scripts: Scripts, approvals: Refresh) -> None:
        """approvals: refreshes a conversation whose entries are stale."""
        self._redis = redis
        self._scripts = scripts
        self._approvals = approvals

    def page(
        self, filters: InboxFilter, *, descending: bool, limit: int, start: Cursor | None
    ) -> tuple[list[InboxAction], Cursor | None]:
        """Return a page of pending actions, ordered by when they began to wait, and the next cursor.

        Actions of a batch are in log order. Each action is read from its conversation. Two round trips, and with
        filters at most 2 * MOST_CHUNKS. A stale entry is omitted and its conversation refreshed. Filters and PAGE_BYTES
        of events may end a page before its limit: the last page is the one without a cursor.
        """
        found: list[InboxAction] = []
        room = PAGE_BYTES
        for _ in range(MOST_CHUNKS):
            most = _READ if filters.reads else limit - len(found)
            entries, start = self._entries(filters, descending, most, start)
            number = fitting(entries, room) or int(room == PAGE_BYTES)
            for entry, action in zip(entries, self._load(entries[:number]), strict=False):
                if len(found) == limit:
                    return found, entry.cursor
                if action is not None and filters.passes(action):
                    found.append(action)
                room -= entry.size
            if number < len(entries):
                return found, entries[number].cursor
            if start is None or len(found) == limit:
                break
        return found, start

    def count(self, filters: InboxFilter) -> int:
        """Return the number of pending actions that pass. Raises TooManyToCount.

        The index answers in one round trip, or one per SCAN_CHUNK with filters other than the time. Limitation: it may
        be stale for a moment. Filters that the index cannot apply read every action.
        """
        if filters.reads:
            entries = self._each_entry(filters)
            number = 0
            for _ in range(MOST_COUNTED // _READ):
                if not (chunk := list(islice(entries, _READ))):
                    return number
                number += sum(map(filters.passes, self._read(chunk)))
            if next(entries, None):
                raise TooManyToCount(filters.unindexed[0])
            return number
        if (filters.conversation_id, filters.tool, filters.risk) != (None, None, None):
            return sum(1 for _ in self._each_entry(filters))
        least = "-inf" if filters.since is None else filters.since
        most = "+inf" if filters.until is None else f"({filters.until}"
        return self._redis.zcount(ApprovalKeys.waiting, least, most)

    def _read(self, entries: list[InboxEntry]) -> Iterator[InboxAction]:
        """Yield the pending actions of entries, with PAGE_BYTES per read."""
        while entries:
            number = fitting(entries) or 1
            yield from filter(None, self._load(entries[:number]))
            entries = entries[number:]

    def _load(self, entries: list[InboxEntry]) -> list[InboxAction | None]:
        """Return the actions of entries, None for each stale entry, whose conversation is refreshed."""
        found = load(self._redis, entries)
        # A worker was killed before it refreshed them, or is about to.
        for conversation_id in {
            entry.conversation_id for entry, one in zip(entries, found, strict=True) if one is None
        }:
            self._approvals.refresh(conversation_id)
        return found

    def _each_entry(self, filters: InboxFilter) -> Iterator[InboxEntry]:
        start: Cursor | None = None
        while True:
            entries, start = self._entries(filters, False, SCAN_CHUNK, start)
            yield from entries
            if start is None:
                return

    def _entries(
        self, filters: InboxFilter, descending: bool, most: int, start: Cursor | None
    ) -> tuple[list[InboxEntry], Cursor | None]:
        """Return the entries that one script finds, and the cursor of the next one."""
        at, member, seq = start or (None, "", None)
        page = self._scripts.page_pending_actions(
            ApprovalKeys.root,
            conversation=filters.conversation_id or "",
            order="desc" if descending else "asc",
            most=most,
            scan=SCAN_CHUNK if filters.selects else min(most + 1, SCAN_CHUNK),
            cursor=at,
            cursor_member=member,
            cursor_seq=seq,
            tool=filters.tool or "",
            risk=filters.risk or "",
            since=filters.since,
            before=filters.until,
        )
        entries = [InboxEntry(*_member(one.member), one.at, json.loads(one.item)) for one in page.items]
        return entries, page.following[0] if page.following else None


def _member(stored: str) -> tuple[ConversationId, str]:
    conversation_id, _, action_id = stored.partition(" ")
    return ConversationId(conversation_id), action_id


class ApprovalChecks:
    """The checks of all supervisors, without leases: each step is decided by a script, and may be repeated."""

    def __init__(
        self, redis: Redis, scripts: Scripts, listing: Listing, projections: Projections, *, audit_days: int
    ) -> None:
        """audit_days: after which an audit entry leaves the index."""
        self._redis = redis
        self._scripts = scripts
        self._listing = listing
        self._projections = projections
        self._kept = audit_days * 86_400 * 1_000_000

    def due(self) -> list[ConversationId]:
        """Return conversations with an expired action by Redis' clock, in random order. One round trip.

        The order lets supervisors begin with different ones, and keeps one that fails from delaying the others.
        """
        found = self._scripts.due_approvals(ApprovalKeys.root, most=MOST_DUE, random=str(random.random()))
        ids = [ConversationId(one) for one in found]
        random.shuffle(ids)
        return ids

    def sweep(self) -> None:
        """Compare the next conversations with the index, and refresh those that differ.

        A part takes PART conversations of the listing and PART of the index, even if they are deleted. All supervisors
        together take a part per second, so that a stale one of N conversations is found within N / PART seconds.
        Guarantee: what a killed worker did not index is indexed after that. Five round trips if nothing differs.
        """
        part = self._scripts.claim_sweep(ApprovalKeys.root, span=_SWEEP_SPAN, most=PART, kept=self._kept)
        if part is None:
            return
        sweep = Sweep.read(pairs(part.sweep))
        start = (Micros(sweep.created), ConversationId(sweep.id)) if sweep.created else None
        entries, following = self._listing.page(
            ListingFilter(), by="created", descending=False, limit=PART, start=start
        )
        for conversation_id in self._wrong({*map(ConversationId, part.conversations), *(one.id for one in entries)}):
            try:
                self._projections.refresh(conversation_id)
            except UNAVAILABLE:
                raise
            except Exception:  # the sweep must go on with the others
                _log.exception("the index of what waits in conversation %s cannot be refreshed", conversation_id)
        created, identity = following or ("", "")
        self._redis.hset(ApprovalKeys.sweep, mapping=Sweep.fields_of(created=created, id=identity))

    def _wrong(self, ids: set[ConversationId]) -> list[ConversationId]:
        """Return the conversations that differ from the index. Two round trips, three if nothing is pending in some."""
        if not ids:
            return []
        among = list(ids)
        noted = self._redis.hmget(ApprovalKeys.noted, among)  # first, so that later changes count as differences
        replies = self._pipelined(
            command
            for keys in map(ConversationKeys, among)
            for command in (("HMGET", keys.root, "id", "approvals"), ("LLEN", audit_key(keys)))
        )
        wrong, idle = [], []
        for one, known, (identity, revision), audited in zip(among, noted, replies[::2], replies[1::2], strict=True):
            if _differs(known, identity, revision, audited):
                wrong.append(one)
            elif known and not revision:
                idle.append(one)
        numbers = self._pipelined(("SCARD", ApprovalKeys.of(one)) for one in idle)
        return wrong + [one for one, number in zip(idle, numbers, strict=True) if number]

    def _pipelined(self, commands: Iterable[tuple[str, ...]]) -> list[Any]:
        with self._redis.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            replies = pipe.execute()
        return replies


def _differs(noted: bytes | None, identity: bytes | None, revision: bytes | None, audited: int) -> bool:
    """Return whether the indexed state of a conversation is outdated."""
    known, entries = (int(word) for word in (noted or b"0 0").split())
    if identity is None and audited == 0:  # its audit has expired: the index drops it
        return noted is not None
    return entries != audited or known < int(revision or 0)
