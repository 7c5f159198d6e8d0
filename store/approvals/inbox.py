"""The inbox: an index of the pending actions of all conversations, in a slot of its own, and a stream of its changes.

The conversation's slot decides what waits. `settle` brings the index up to date with one conversation, in one script
that ignores an older revision: so the index, its stream, the index of the audit and the outbox change together, and
each change once. A worker that was killed between the two leaves a wrong entry: whoever reads it settles it, and the
supervisors' sweep finds it.

| entry of `…:items`           | value                                                                       |
|------------------------------|-----------------------------------------------------------------------------|
| seq, since                   | of the action in its log, and when it began to wait, UTC text               |
| tool, risk, digest, expires  | as the conversation's record has them; `expires` is µs as text, "" never    |
| size                         | bytes of its event, 0 where they are not known                              |
| opened                       | id of the entry of the stream by which it was opened                        |

An entry of `…:stream` has `kind` (`opened`, `decided`, `expired`, or `closed`: it left without an audit
entry), `conversation_id`, `action_id`, `seq`, `since`, `tool`, `risk`, `size`, and of a decided or
expired action `entry`, that of the audit.
An entry of `…:outbox` is JSON: `id`, `type`, `time`, `conversation_id`, `action_id`, `tool`, `risk`, and of a
decided or expired action `decision`, `actor` and `detail`, the reason.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from redis import Redis

from store.approval_keys import ApprovalKeys
from store.approvals.confirmations import MOST_ENTRIES, Confirmations
from store.approvals.pending_actions import Cursor, Entry, PendingAction, fitting, load
from store.bounds import PAGE_BYTES
from store.errors import StoreError
from store.scripts import Scripts
from wire import ConversationId, Micros, micros

#: entries that the stream of changes keeps; beyond it the oldest are dropped
MOST_CHANGES = 100_000

#: entries that one script scans for those that pass the filters, 1,000 at most, and scripts of one page
SCAN_CHUNK, MOST_CHUNKS = 1000, 5

#: actions that are read at once, and that a count reads at most
_READ, MOST_COUNTED = 100, 10_000


class TooManyToCount(StoreError):
    """A count by tag or text would read more pending actions than it may."""

    def __init__(self, member: str) -> None:
        """member: the filter that the index cannot decide."""
        self.member = member
        super().__init__(
            f"A count by tag or text reads {MOST_COUNTED} pending actions at most, and more pass the other filters: "
            "narrow it by conversation_id, tool_name, security_risk or since"
        )


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of pending actions; each absent member lets all pass. The index decides all but `tag` and `text`."""

    conversation_id: ConversationId | None = None
    tool: str | None = None
    risk: str | None = None
    since: Micros | None = None
    until: Micros | None = None
    tag: tuple[str, str | None] | None = None  #: name and value of a tag of the conversation; None: any value
    text: str | None = None  #: a part of tool, summary, thought, arguments or title, whatever its case

    def words(self) -> list[Any]:
        """The filters of the index but the conversation, as `page_pending_actions.lua` takes them."""
        return ["" if value is None else value for value in (self.tool, self.risk, self.since, self.until)]

    @property
    def reads(self) -> bool:
        """Whether the index alone cannot decide."""
        return self.tag is not None or self.text is not None

    def passes(self, action: PendingAction) -> bool:
        """Whether an action passes `tag` and `text`."""
        if self.tag is not None:
            name, value = self.tag
            if name not in action.tags or value not in (None, action.tags[name]):
                return False
        if self.text is None:
            return True
        arguments = json.dumps(action.arguments, ensure_ascii=False)
        shown = (action.tool_name, action.summary, action.thought, arguments, action.conversation_title)
        return any(self.text.casefold() in str(one).casefold() for one in shown if one is not None)


class Inbox:
    """The pending actions of all conversations."""

    def __init__(self, redis: "Redis", scripts: Scripts, confirmations: Confirmations, *, audit_days: int) -> None:
        """audit_days: for which an audit entry is indexed."""
        self._redis = redis
        self._scripts = scripts
        self._confirmations = confirmations
        self._args = [audit_days * 86_400 * 1_000_000, MOST_CHANGES]
        #: applies the approval rules to a conversation that waits
        self.apply_rules: Callable[[ConversationId], None] | None = None

    def settle(self, conversation_id: ConversationId) -> None:
        """Apply the approval rules to a conversation, and bring the index up to date with it.

        Four round trips where no rule matters, the first of them of the rules. Any number of callers may settle a
        conversation at once, and in any order: the newest revision stays.
        """
        if self.apply_rules is not None:
            self.apply_rules(conversation_id)
        while self._note(conversation_id):
            pass

    def page(
        self, filters: Filter, *, descending: bool, limit: int, start: Cursor | None
    ) -> tuple[list[PendingAction], Cursor | None]:
        """Pending actions by when they began to wait, those of a batch as in its log, and the next page's cursor.
        Each is what its conversation says.

        Two round trips, whatever the number of pending actions; with filters 2 * MOST_CHUNKS at most. A wrong entry is
        left out and its conversation settled. Filters and PAGE_BYTES of events may end a page before its limit: it is
        the last where no cursor follows.
        """
        found: list[PendingAction] = []
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

    def count(self, filters: Filter) -> int:
        """The number of pending actions that pass. Raises TooManyToCount.

        By the index alone, in one round trip for all or those of a time, and one per SCAN_CHUNK with other filters.
        Limitation: the index may have a wrong entry for a moment. By tag or text every action is read.
        """
        if filters.reads:
            entries = self._each_entry(filters)
            number = 0
            for _ in range(MOST_COUNTED // _READ):
                if not (chunk := list(islice(entries, _READ))):
                    return number
                number += sum(map(filters.passes, self._read(chunk)))
            if next(entries, None):
                raise TooManyToCount("tag" if filters.text is None else "text")
            return number
        if (filters.conversation_id, filters.tool, filters.risk) != (None, None, None):
            return sum(1 for _ in self._each_entry(filters))
        least = "-inf" if filters.since is None else filters.since
        most = "+inf" if filters.until is None else f"({filters.until}"
        return int(self._redis.zcount(ApprovalKeys.waiting, least, most))

    def _read(self, entries: list[Entry]) -> Iterator[PendingAction]:
        """The pending actions of entries, read PAGE_BYTES at a time."""
        while entries:
            number = fitting(entries) or 1
            yield from filter(None, self._load(entries[:number]))
            entries = entries[number:]

    def _load(self, entries: list[Entry]) -> list[PendingAction | None]:
        """The actions of entries, None for each that is wrong, whose conversation is settled then."""
        found = load(self._redis, entries)
        # A worker was killed before it settled them, or is about to settle them.
        for conversation_id in {
            entry.conversation_id for entry, one in zip(entries, found, strict=True) if one is None
        }:
            self.settle(conversation_id)
        return found

    def _each_entry(self, filters: Filter) -> Iterator[Entry]:
        start: Cursor | None = None
        while True:
            entries, start = self._entries(filters, False, SCAN_CHUNK, start)
            yield from entries
            if start is None:
                return

    def _entries(
        self, filters: Filter, descending: bool, most: int, start: Cursor | None
    ) -> tuple[list[Entry], Cursor | None]:
        """The entries that one script finds, and the cursor of the next one."""
        scan = SCAN_CHUNK if any(word != "" for word in filters.words()) else most + 1
        order = "desc" if descending else "asc"
        args = [filters.conversation_id or "", order, most, min(scan, SCAN_CHUNK), *(start or ("", "", ""))]
        following, page = self._scripts.page_pending_actions([ApprovalKeys.root], [*args, *filters.words()])
        entries = [
            Entry(*_member(member), Micros(int(at)), json.loads(item))
            for member, at, item in zip(page[::3], page[1::3], page[2::3], strict=True)
        ]
        if not following:
            return entries, None
        at, member, seq = following
        return entries, (Micros(int(at)), member.decode(), int(seq))

    def _note(self, conversation_id: ConversationId) -> bool:
        """Note what a conversation has come to; True if more audit entries follow, and nobody has noted a later state,
        who goes on with them."""
        stored: Any = self._redis.hget(ApprovalKeys.noted, conversation_id)
        audited = int(stored.split()[1]) if stored else 0
        found = self._confirmations.read_approvals(conversation_id, audited)
        if found.audited < audited:  # the audit of a former life of the id has expired, and another has begun
            found = self._confirmations.read_approvals(conversation_id, 0)
        is_whole = len(found.audit) < MOST_ENTRIES
        part = "part" if not is_whole else "gone" if found.gone and not found.audited else "due" if found.left else ""
        args = [conversation_id, found.revision, part, found.audited, *self._args, len(found.pending)]
        args += [word for record in found.pending for word in _item(record)]
        args += [word for entry in found.audit for word in _entry(entry)]
        outcome = self._scripts.note_approvals([ApprovalKeys.root], args)
        return outcome == ("noted",) and not is_whole


def _member(stored: bytes) -> tuple[ConversationId, str]:
    conversation_id, _, action_id = stored.decode().partition(" ")
    return ConversationId(conversation_id), action_id


def _item(record: dict[str, Any]) -> tuple[Any, ...]:
    """A pending action as `note_approvals.lua` takes it."""
    expires = str(record.get("expires") or "")
    item = {name: record.get(name) for name in ("seq", "since", "tool", "risk", "digest")}
    item |= {"expires": expires, "size": record.get("size", 0)}
    return record["id"], micros(record["since"]), expires, _fit(item)


def _entry(raw: bytes) -> tuple[Any, ...]:
    """An audit entry as `note_approvals.lua` takes it."""
    entry = json.loads(raw)
    has_expired = entry["actor"]["kind"] == "expiry"
    notice = {
        "type": "action.expired" if has_expired else "action.decided",
        "time": entry["time"],
        "decision": entry["decision"],
        "actor": {name: entry["actor"][name] for name in ("kind", "name")},
        "detail": entry["reason"],
    }
    kind = "expired" if has_expired else "decided"
    return entry["seq"], micros(entry["time"]), kind, json.dumps(entry["action_ids"]), _fit(notice), raw


def _fit(value: Any) -> bytes:
    """JSON that cjson reads: it refuses a lone surrogate, so each becomes a question mark."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
