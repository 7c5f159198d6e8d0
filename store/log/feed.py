"""The feed of one log in this process, and its followers: each gets every event once, in seq order.

A follower pulls: it reads old events from the log a page at a time until it has caught up, then takes new events
from a ring that all followers of the log share, and that one of them fills from Redis for all. The ring
holds the events that the slowest follower has not taken, within a bound. A follower is ended when the ring
no longer reaches back to its cursor; its client resumes from the log.

There are two kinds of logs: the events of a conversation, and the changes of the inbox (`inbox_stream.py`).
"""

import json
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from core.wire import ConversationId, Seq
from store.errors import BeyondTheEnd, ConversationNotFound, FellBehind, Stopping, StoreError, TooManyFollowers
from store.keys import MOST_CHANGES, ConversationKeys
from store.link.signals import MAYBE_MISSED, Signals
from store.log.frames import PAGE_BYTES, originals
from store.log.text import passes
from store.scripts import Scripts
from telemetry.meter import Meter

#: most events, and most bytes, of one page
PAGE, _PAGE_BYTES = 100, 256 * 1024

#: followers that are woken at once; each wakes the next, so that requests have a turn between them
_WOKEN_AT_ONCE = 16

#: seconds before a store that did not answer is asked again
_RETRY_SECONDS = 0.5

#: bytes that an entry of a ring costs beside its event
_ENTRY_COST = 160

Shared = TypeVar("Shared")


#: events that one `read` filters: else a filter that no event passes would keep a worker busy
MOST_READ = 10_000


class Entry:
    """One event of a feed. Its seq is 0 when the log does not keep it; its bytes are empty when a run has ended without
    an event."""

    __slots__ = ("_fields", "raw", "seq")

    def __init__(self, seq: Seq, raw: bytes) -> None:
        self.seq = seq
        self.raw = raw
        self._fields: dict[str, object] | None = None

    @property
    def cost(self) -> int:
        """Bytes that the entry costs its ring."""
        return _ENTRY_COST + len(self.raw)

    @property
    def fields(self) -> dict[str, Any]:
        """The event's members, parsed once for all followers."""
        if self._fields is None:
            self._fields = json.loads(self.raw)
        return self._fields


class Feed(ABC):
    """One log's ring, shared by its followers in this process."""

    def __init__(self, channel: str, incarnation: str, last: Seq, ring_bytes: int) -> None:
        """channel: of the log's signals. incarnation: which life of the log it is. last: the seq of its last event."""
        self.channel = channel
        self.incarnation = incarnation
        self.changed = threading.Condition()
        self.ended: StoreError | None = None
        self.followers: set[Follower] = set()
        self.ring: deque[Entry] = deque()
        self.first = 0  #: index of the ring's first entry; the feed's first entry had 0
        self.dropped = last  #: the ring has every event after this seq, up to `last`
        self.last = last
        self.stale = False
        self._reading = False
        self._received = 0
        self._waiting = self._to_wake = 0
        self._size = 0
        self._ring_bytes = ring_bytes
        self._shared: tuple[int, Any] = (-1, None)
        self._sharing = threading.Lock()

    @abstractmethod
    def page(self, after: Seq) -> tuple[Seq, list[Entry]]:
        """The seq of the log's last event, and the next events after a seq.

        Raises a StoreError where the log does not continue from that seq, or one of UNAVAILABLE.
        """

    def receive(self, _signal: bytes) -> None:
        """Take a published message: wake a follower to read."""
        with self.changed:
            self.stale = True
            self._received += 1
            self.changed.notify()

    def end(self, reason: StoreError) -> None:
        """End every follower."""
        with self.changed:
            self.ended = reason
            self.changed.notify_all()

    def take_reading(self) -> bool:
        """Whether the caller, which holds `changed`, must read the log for all followers."""
        if not self.stale or self._reading:
            return False
        self._reading = True
        return True

    def read(self) -> None:
        """Fill the ring from the log. Raises one of UNAVAILABLE."""
        with self.changed:
            received = self._received
        try:
            end, entries = self.page(self.last)
        except StoreError as reason:
            return self.end(reason)
        except BaseException:
            with self.changed:
                self._reading = False
            raise
        with self.changed:
            self._reading = False
            self.last = entries[-1].seq if entries else self.last
            self.stale = bool(entries and self.last < end) or self._received != received
            self._enter(entries)

    def _enter(self, entries: list[Entry]) -> None:
        lowest = min((one.index for one in self.followers if one.index is not None), default=self.first)
        self.ring.extend(entries)
        self._size += sum(entry.cost for entry in entries)
        while len(self.ring) > len(entries) and (self.first < lowest or self._size > self._ring_bytes):
            gone = self.ring.popleft()
            self.first += 1
            self._size -= gone.cost
            self.dropped = gone.seq or self.dropped
        self.changed.notify(_WOKEN_AT_ONCE)
        self._to_wake = self._waiting - _WOKEN_AT_ONCE

    def wait(self, timeout: float) -> bool:
        """Wait for a change, as one that holds `changed`; False at the timeout, which is in seconds.

        A caller that returns wakes one that waited before the last entries came: callers wait in a queue.
        """
        self._waiting += 1
        try:
            return self.changed.wait(timeout)
        finally:
            self._waiting -= 1
            if self._to_wake > 0:
                self._to_wake -= 1
                self.changed.notify()

    def index_after(self, seq: Seq) -> int | None:
        """Index of the first entry after a seq; None while the ring does not reach back to that seq."""
        if seq < self.dropped:
            return None
        return next((index for index, entry in enumerate(self.ring, self.first) if entry.seq > seq), self.end_index)

    @property
    def end_index(self) -> int:
        return self.first + len(self.ring)

    def share(self, index: int, load: Callable[[], Shared]) -> Shared:
        """The result of `load`, called once for all followers at this index of the ring."""
        with self._sharing:
            if self._shared[0] != index:
                self._shared = (index, load())
            shared: Shared = self._shared[1]
            return shared


class ConversationFeed(Feed):
    """The feed of one conversation's log."""

    def __init__(
        self, conversation_id: ConversationId, incarnation: str, last: Seq, scripts: Scripts, ring_bytes: int
    ) -> None:
        super().__init__(ConversationKeys(conversation_id).signal, incarnation, last, ring_bytes)
        self._id = conversation_id
        self._scripts = scripts

    def page(self, after: Seq) -> tuple[Seq, list[Entry]]:
        """The last seq, and the next events. Raises ConversationNotFound."""
        incarnation, last, events = read_log(self._scripts, self._id, after, PAGE)
        if incarnation != self.incarnation:
            raise ConversationNotFound
        return last, [Entry(Seq(seq), raw) for seq, raw in enumerate(events, after + 1)]

    def receive(self, signal: bytes) -> None:
        """Take a published message: wake a follower to read, or enter an event that the log does not keep."""
        if signal.startswith(b"{") or signal == b"state":
            with self.changed:
                self._enter([Entry(Seq(0), b"" if signal == b"state" else signal)])
        elif signal in (MAYBE_MISSED, b"0") or int(signal) > self.last:
            super().receive(signal)


class Follower:
    """A cursor in one log that advances as it is read. Close it, or use it in a `with`."""

    def __init__(
        self, feed: Feed, after: Seq, closed: Callable[["Follower"], None], fell_behind: Callable[[], None]
    ) -> None:
        self.seq = after  #: of the last event that was taken
        self.index: int | None = None  #: of the ring's entry to take next; None until the follower has caught up
        self.feed = feed
        self._closed = closed
        self._fell_behind = fell_behind

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self not in self.feed.followers

    def close(self) -> None:
        """Stop following; a thread that waits in `next` returns."""
        self._closed(self)

    def next(self, timeout: float) -> list[Entry]:
        """The next events, in order, as soon as there are any; none after `close` or at the timeout.

        timeout is in seconds. Raises FellBehind, Stopping, what the feed's `page` raises, or one of UNAVAILABLE:
        after one of UNAVAILABLE it may be called again.
        """
        deadline = time.monotonic() + timeout
        feed = self.feed
        while True:
            with feed.changed:
                while True:
                    if feed.ended is not None:
                        raise feed.ended
                    if self.closed:
                        return []
                    if self.index is None:
                        self.index = feed.index_after(self.seq)
                    if self.index is None:
                        break
                    if taken := self._take(self.index):
                        return taken
                    if feed.take_reading():
                        break
                    if not feed.wait(max(0.0, deadline - time.monotonic())):
                        return []
            if self.index is None:
                return self._replay()
            feed.read()

    def pause(self) -> None:
        """Wait before asking a store again that did not answer."""
        time.sleep(_RETRY_SECONDS)

    def share(self, load: Callable[[], Shared]) -> Shared:
        """The result of `load`, called once for all followers at this index."""
        return load() if self.index is None else self.feed.share(self.index, load)

    def _take(self, index: int) -> list[Entry]:
        taken: list[Entry] = []
        size = 0
        if index < self.feed.first:
            self._fell_behind()
            raise FellBehind
        for entry in islice(self.feed.ring, index - self.feed.first, None):
            if len(taken) == PAGE or size >= _PAGE_BYTES:
                break
            index += 1
            if 0 < entry.seq <= self.seq:
                continue  # read from the log already: the ring lagged
            taken.append(entry)
            size += len(entry.raw)
            self.seq = entry.seq or self.seq
        self.index = index
        return taken

    def _replay(self) -> list[Entry]:
        _, entries = self.feed.page(self.seq)
        self.seq = entries[-1].seq if entries else self.seq
        return entries


class Reading:
    """What is read by a follower of its own, and ends with it. Close it, or use it in a `with`."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        return self._follower.closed

    def close(self) -> None:
        """Stop following; a thread that waits in `next` returns."""
        self._follower.close()

    def pause(self) -> None:
        """Wait before asking a store again that did not answer."""
        self._follower.pause()


def read_log(scripts: Scripts, conversation_id: ConversationId, after: Seq, most: int) -> tuple[str, Seq, list[bytes]]:
    """A conversation's incarnation, the seq of its last event, and the events after a seq, as many as fit.

    Raises ConversationNotFound.
    """
    root = ConversationKeys(conversation_id).root
    reply = scripts.read_log(root, seq=after, most=most, most_bytes=_PAGE_BYTES)
    if reply is None:
        raise ConversationNotFound
    return reply.incarnation, Seq(reply.last), originals(reply.events)


#: a context in which a client waits: it is given a function that ends the wait
Ending = Callable[[Callable[[], None]], AbstractContextManager[None]]


class Held(NamedTuple):
    """What is held of the changes of a list or of the inbox: how many, and the first and the last number.

    Of a list's, which come once per id, the first is the number after which none is missing.
    """

    size: int
    first: Seq
    last: Seq

    def continues(self, after: Seq) -> bool:
        """Whether every change after a number is held. The number before the first change ever is 0."""
        return self.first <= after <= self.last or (after == 0 and self.size < MOST_CHANGES)


class Followers:
    """All followers of this process."""

    def __init__(
        self, scripts: Scripts, signals: Signals, meter: Meter, *, ring_bytes: int, most_followers: int
    ) -> None:
        self._scripts = scripts
        self._signals = signals
        self._meter = meter
        self.ring_bytes = ring_bytes
        self._most = most_followers
        self._lock = threading.Lock()
        self._feeds: dict[str, Feed] = {}  #: channel → the feed that its signals wake
        self._followers = 0
        self._stopping = False

    def follow(self, conversation_id: ConversationId, after: Seq | None) -> Follower:
        """Follow a conversation after a seq: 0 is its beginning, None is now.

        Raises ConversationNotFound, BeyondTheEnd, TooManyFollowers, Stopping.
        """

        def begin() -> tuple[Feed, Seq]:
            incarnation, last, _ = read_log(self._scripts, conversation_id, Seq(0), 0)
            if after is not None and after > last:
                raise BeyondTheEnd(last)
            feed = ConversationFeed(conversation_id, incarnation, last, self._scripts, self.ring_bytes)
            return feed, last if after is None else after

        return self.join(begin)

    def join(self, begin: Callable[[], tuple[Feed, Seq]]) -> Follower:
        """Follow what `begin` returns: a feed that begins now, and the seq to follow it after.

        The feed that this process has of the same log is used in its place. Raises what `begin` raises,
        TooManyFollowers, Stopping.
        """
        with self._lock:
            if self._stopping:
                raise Stopping
            if self._followers >= self._most:
                raise TooManyFollowers
            self._count(1)
        try:
            return self._join(*begin())
        except BaseException:
            with self._lock:
                self._count(-1)
            raise

    def _join(self, begun: Feed, after: Seq) -> Follower:
        with self._lock:
            feed = self._feeds.get(begun.channel)
            if feed is None or feed.incarnation != begun.incarnation or feed.ended is not None:
                feed = self._feeds[begun.channel] = begun
            follower = Follower(feed, after, self._leave, self._meter.count_dropped_follower)
            with feed.changed:
                feed.followers.add(follower)
                feed.stale = feed.stale or begun.last > feed.last
        self._signals.watch(feed.channel, feed.receive)
        return follower

    def follow_changes(
        self, after: Seq | None, held: Callable[[], Held], feed: Callable[[Seq], Feed]
    ) -> tuple[Follower, str]:
        """Follow changes after a number, None: from now on; and why the client's knowledge is void, "" where it is not.

        held: reads what is held. feed: makes the feed, from a number. Raises as `join`.
        """
        reset = ""

        def begin() -> tuple[Feed, Seq]:
            nonlocal reset
            found = held()
            reset = "new" if after is None else "" if found.continues(after) else "dropped"
            return feed(found.last), found.last if after is None or reset else after

        return self.join(begin), reset

    def _leave(self, follower: Follower) -> None:
        feed = follower.feed
        with self._lock:
            with feed.changed:
                if follower not in feed.followers:
                    return
                feed.followers.remove(follower)
                feed.changed.notify_all()
            self._count(-1)
            if not feed.followers:
                self._signals.unwatch(feed.channel, feed.receive)
                if self._feeds.get(feed.channel) is feed:
                    del self._feeds[feed.channel]

    def _count(self, change: int) -> None:
        """Count a follower that joins or leaves; the caller holds the lock."""
        self._followers += change
        self._meter.note_followers(self._followers)

    def read(
        self,
        conversation_id: ConversationId,
        after: Seq,
        *,
        wait: float,
        limit: int,
        ending: Ending = lambda _: nullcontext(),
        **filters: Any,
    ) -> tuple[list[bytes], Seq]:
        """The events after a seq that pass the filters, and the seq to continue after.

        Reads MOST_READ events at most, and returns at most PAGE_BYTES; where no event follows that seq, it waits up to
        `wait` seconds for one. ending: the context of the wait, with the function that ends it.
        Raises as `follow`, except Stopping: a process that stops returns no events.
        """
        found: list[bytes] = []
        size = 0
        seq, deadline = after, time.monotonic() + wait
        while True:
            _, last, events = read_log(self._scripts, conversation_id, seq, PAGE)
            if after > last:
                raise BeyondTheEnd(last)
            for raw in events:
                if passes(json.loads(raw), **filters):
                    size += len(raw)
                    if size > PAGE_BYTES:
                        return found, seq
                    found.append(raw)
                seq = Seq(seq + 1)
                if len(found) == limit or seq - after == MOST_READ:
                    return found, seq
            if seq >= last and (found or not self._await_event(conversation_id, seq, deadline, ending)):
                return found, seq

    def _await_event(self, conversation_id: ConversationId, seq: Seq, deadline: float, ending: Ending) -> bool:
        """Whether an event came after a seq before the deadline."""
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        try:
            with self.follow(conversation_id, seq) as follower, ending(follower.close):
                return bool(follower.next(remaining))
        except Stopping:
            return False

    def stop(self) -> None:
        """End every follower, and refuse new ones: this process stops."""
        with self._lock:
            self._stopping = True
            feeds = list(self._feeds.values())
        for feed in feeds:
            feed.end(Stopping())
