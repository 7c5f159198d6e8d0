"""The stream of the inbox: a snapshot of the pending actions, then each change once. It can be resumed at any change.

All streams of a process share one reader of the changes (`ApprovalKeys.stream`), which loads the item of an opened
action for all. A stream remembers its position in the changes before it reads the snapshot. An action of the snapshot
has the id of the change that opened it: this change, and earlier ones of the action, are not sent. When the stream has
passed all such changes, it sends `ready`, which is the first event with an id. A client that is disconnected before has
no id to resume after, and gets another snapshot.

| event      | data                                                                                    |
|------------|-----------------------------------------------------------------------------------------|
| `reset`    | {reason}: a snapshot follows, and the client's state is void. `new`: it named no        |
|            | change; `dropped`: changes after the named one are no longer stored                     |
| `snapshot` | {items}: some of the pending actions                                                    |
| `ready`    | {}: the client knows all pending actions                                                |
| `opened`   | the item; {conversation_id, action_id, since} if it is no longer pending                |
| `changed`  | the same, after an approval that is not the last one of several people                  |
| `decided`  | {conversation_id, action_id, decision, actor, reason, time}                             |
| `expired`  | the same                                                                                |
| `closed`   | {conversation_id, action_id}: it is no longer pending, without a decision               |

An item is rendered for the client's person or key (`Quorums.shown`). The reader of the process checks the version of
the rules once per page. A follower reads more only if a rule requires several people, or for a person's rights.

A client can also request the sandboxes' requests for destinations: after the snapshot of the actions `destinations`
{items}, then `destination_opened`, `destination_decided`, `destination_expired` and `destination_closed`, as
`store/destinations.py` publishes them. Requests that were opened while the snapshot was read are sent twice.

The id "MS-N" of a change is the number MS * 2^64 + N here, so that changes are followed like the log of a conversation.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from core.wire import ConversationId, Seq, micros
from store.approvals.audit import SERVER, DecisionActor
from store.approvals.inbox import Cursor, Inbox, InboxAction, InboxEntry, InboxFilter, load
from store.approvals.quorums import Quorums
from store.destinations import Destinations
from store.errors import FellBehind
from store.keys import ApprovalKeys
from store.link.commands import Redis
from store.log.feed import PAGE, Feed, FeedEntry, Follower, Followers, Reading, StoredChanges
from store.scripts import Scripts

#: Maximum size of a page of changes, and of the events whose items a page loads, in bytes.
_PAGE_BYTES, _ITEM_BYTES = 256 * 1024, 1024 * 1024

#: Maximum number of items of a `snapshot`.
_SNAPSHOT = 100

#: Members of a pending action that clients do not see.
_INTERNAL = {"seq", "opened"}

#: Changes whose event has the item.
_WITH_ITEM = ("opened", "changed")

#: A conversation and one of its actions.
Key = tuple[ConversationId, str]

#: `Quorums.shown` for one client.
Show = Callable[..., list[dict[str, Any]]]


def place_of(change_id: str) -> Seq:
    """Return the position of a change, from its id "MS-N"."""
    milliseconds, number = change_id.split("-")
    return Seq(int(milliseconds) << 64 | int(number))


def id_of(place: Seq) -> str:
    """Return the id at a position."""
    return f"{place >> 64}-{place & (1 << 64) - 1}"


class InboxChange(FeedEntry):
    """A change of the inbox.

    action: opened or changed action; None for other changes, or if it is no longer pending.
    """

    __slots__ = ("action", "is_destination", "key", "name", "risk", "sandbox_id", "tool")

    def __init__(self, place: Seq, found: dict[str, str], action: InboxAction | None) -> None:
        self.is_destination = found["kind"].startswith("destination_")
        data = (
            found["entry"] if self.is_destination else json.dumps(_item(asdict(action)) if action else _members(found))
        )
        self.sandbox_id = str(json.loads(data)["sandbox_id"]) if self.is_destination else ""
        super().__init__(place, data.encode())
        self.key = _key(found)
        self.name = found["kind"]
        self.tool, self.risk = found["tool"], found["risk"]
        self.action = action

    def passes(self, filters: InboxFilter) -> bool:
        """Return whether a client wants it. By tag, risk and effect, the end of an action always passes.

        The tags may have changed since the opening, and the end does not contain the server's assessment.
        """
        if self.is_destination:
            return filters.passes_destination(self.key[0] or None, self.sandbox_id)
        return (
            filters.conversation_id in (None, self.key[0])
            and filters.tool in (None, self.tool)
            and filters.risk in (None, self.risk)
            and (
                not filters.reads
                or self.name not in _WITH_ITEM
                or (self.action is not None and filters.passes(self.action))
            )
        )


def _item(members: dict[str, Any]) -> dict[str, Any]:
    """Return an item as `GET /api/v1/pending-actions` shows it."""
    return {name: value for name, value in members.items() if name not in _INTERNAL}


def _members(found: dict[str, str]) -> dict[str, object]:
    members: dict[str, object] = {name: found[name] for name in ("conversation_id", "action_id")}
    if found["kind"] in _WITH_ITEM:
        return {**members, "since": found["since"]}
    if found["kind"] == "closed":
        return members
    entry = json.loads(found["entry"])
    actor = {name: entry["actor"][name] for name in ("kind", "name")}
    return {**members, "actor": actor, **{name: entry[name] for name in ("decision", "reason", "time")}}


def _key(found: dict[str, str]) -> Key:
    return ConversationId(found["conversation_id"]), found["action_id"]


def _read(scripts: Scripts, after: Seq, most: int) -> tuple[StoredChanges, list[tuple[Seq, dict[str, str]]]]:
    """Return which changes are stored, and the changes after a position that fit into a page. One round trip."""
    page = scripts.read_changes(ApprovalKeys.root, after=id_of(after), most=most, most_bytes=_PAGE_BYTES)
    held = StoredChanges(page.held, *(place_of(one) if one else Seq(0) for one in (page.first, page.last)))
    return held, [(place_of(one.id), _fields(one.fields)) for one in page.changes]


def _fields(words: list[bytes]) -> dict[str, str]:
    texts = [word.decode() for word in words]
    return dict(zip(texts[::2], texts[1::2], strict=True))


class InboxFeed(Feed):
    """The only reader of the changes in this process."""

    def __init__(self, last: Seq, redis: Redis, scripts: Scripts, ring_bytes: int, quorums: Quorums) -> None:
        super().__init__(ApprovalKeys.signal, "", last, ring_bytes)
        self._redis = redis
        self._scripts = scripts
        self._quorums = quorums

    def page(self, after: Seq) -> tuple[Seq, list[FeedEntry]]:
        """Return the position of the last change, and the next changes. Raises FellBehind if some are no longer stored.

        Unlike other readers it refreshes no conversation, because an error would end the streams of all clients.
        """
        held, found = _read(self._scripts, after, PAGE)
        if not held.continues(after):
            raise FellBehind
        size = 0
        fitting: list[tuple[Seq, dict[str, str]]] = []
        for place, one in found:
            size += int(one["size"]) if one["kind"] in _WITH_ITEM else 0
            if fitting and size > _ITEM_BYTES:
                break
            fitting.append((place, one))
        entries = [_indexed(place, one) for place, one in fitting if one["kind"] in _WITH_ITEM]
        if entries:
            self._quorums.refresh_rules()
        opened = {action.opened: action for action in load(self._redis, entries) if action is not None}
        return held.last, [InboxChange(place, one, opened.get(id_of(place))) for place, one in fitting]


def _indexed(place: Seq, found: dict[str, str]) -> InboxEntry:
    """Return the index entry by which the action of a change is read."""
    item = {"seq": int(found["seq"]), "since": found["since"], "size": int(found["size"]), "opened": id_of(place)}
    return InboxEntry(*_key(found), micros(found["since"]), item)


class InboxStreamEvent(NamedTuple):
    """An event for a client. The id is "" if no client may resume after it."""

    name: str
    raw: bytes
    id: str = ""


class InboxFollower(Reading):
    """A snapshot of the pending actions if the client needs one, then every change once. Close it."""

    def __init__(
        self, follower: Follower, inbox: Inbox, destinations: Destinations, filters: InboxFilter, reset: str, show: Show
    ) -> None:
        """reset: why the client gets a snapshot; "": it gets none."""
        super().__init__(follower)
        self._show = show
        self._taken: list[InboxChange] = []  #: changes to send
        self._destinations = destinations
        self._inbox = inbox
        self._filters = filters
        self._reset = reset
        self._in_snapshot = self._is_catching_up = bool(reset)
        self._cursor: Cursor | None = None
        self._shown: dict[Key, Seq] = {}  #: actions of the snapshot: changes that opened them and are yet to come

    @property
    def seq(self) -> str:
        """Return the id of the last change that was taken."""
        return id_of(self._follower.seq)

    def next(self, timeout: float) -> list[InboxStreamEvent]:
        """Return the next part of the snapshot, or the next changes when there are any; none on timeout, in seconds.

        Raises FellBehind, Stopping, or one of UNAVAILABLE. After the latter it may be called again.
        """
        sent = self._next_page() if self._in_snapshot else self._next_changes(timeout)
        if self._is_catching_up and not self._in_snapshot:
            self._is_catching_up = self._follower.seq < max(self._shown.values(), default=0)
            if not self._is_catching_up:
                self._shown = {}
                sent.append(InboxStreamEvent("ready", b"{}", self.seq))
        return sent

    def _next_page(self) -> list[InboxStreamEvent]:
        if (ended := self._follower.feed.ended) is not None:
            raise ended
        reset, start = InboxStreamEvent("reset", json.dumps({"reason": self._reset}).encode()), self._cursor
        actions, following = self._inbox.page(self._filters, descending=False, limit=_SNAPSHOT, start=start)
        shown = [_item(one) for one in self._show(actions)]
        self._cursor, self._in_snapshot = following, following is not None
        for action in actions:
            if (opened := place_of(action.opened)) > self._follower.seq:
                self._shown[action.conversation_id, action.action_id] = opened
        items = InboxStreamEvent("snapshot", json.dumps({"items": shown}).encode())
        asked = [] if self._in_snapshot or not self._filters.destinations else list(self._open_destinations())
        return [*([] if start else [reset]), *([items] if actions else []), *asked]

    def _open_destinations(self) -> Iterator[InboxStreamEvent]:
        """Yield the sandboxes' open requests for destinations that the client wants."""
        cursor: Any = None
        while True:
            found, cursor = self._destinations.page(limit=_SNAPSHOT, start=cursor)
            items = [
                one.shown for one in found if self._filters.passes_destination(one.conversation_id, one.sandbox_id)
            ]
            if items:
                yield InboxStreamEvent("destinations", json.dumps({"items": items}).encode())
            if cursor is None:
                return

    def _next_changes(self, timeout: float) -> list[InboxStreamEvent]:
        if not self._taken:
            self._taken = [
                change
                for change in self._follower.next(timeout)
                if isinstance(change, InboxChange)
                and change.seq > self._shown.get(change.key, 0)
                and change.passes(self._filters)
            ]
        changes = self._taken
        items = iter(self._show([change.action for change in changes if change.action is not None], fresh=False))
        self._taken = []  # only now: after an error above, the caller tries again
        return [
            InboxStreamEvent(
                change.name,
                change.raw if change.action is None else json.dumps(_item(next(items))).encode(),
                "" if self._is_catching_up else id_of(change.seq),
            )
            for change in changes
        ]


class InboxStream:
    def __init__(
        self,
        redis: Redis,
        scripts: Scripts,
        followers: Followers,
        inbox: Inbox,
        destinations: Destinations,
        quorums: Quorums,
    ) -> None:
        self._destinations = destinations
        self._quorums = quorums
        self._redis = redis
        self._scripts = scripts
        self._followers = followers
        self._inbox = inbox

    def follow(self, after: str | None, filters: InboxFilter, actor: DecisionActor = SERVER) -> InboxFollower:
        """Follow the inbox after a change; None: from a snapshot. Raises TooManyFollowers, Stopping.

        filters: without `since`, `until` and `text`. actor: for whom the items are rendered.
        """
        follower, reset = self._followers.follow_changes(
            None if after is None else place_of(after),
            lambda: _read(self._scripts, Seq(0), 0)[0],
            lambda last: InboxFeed(last, self._redis, self._scripts, self._followers.ring_bytes, self._quorums),
        )
        show: Show = partial(self._quorums.shown, actor=actor)
        return InboxFollower(follower, self._inbox, self._destinations, filters, reset, show)
