"""The feed of a log in this process, and its followers. Each follower gets every event once, in seq order.

A follower pulls. It reads old events from the log page by page until it has caught up. Then it takes new events from
the feed's ring, which one of the followers fills. The ring holds the events that the slowest follower has not taken,
within a limit. If the ring no longer reaches back to a follower's cursor, the follower is ended, and its client resumes
from the log.

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

#: Maximum number of events, and of bytes, of a page.
PAGE, _PAGE_BYTES = 100, 256 * 1024

#: Number of followers that are woken at once. Each wakes the next, so that requests run between them.
_WOKEN_AT_ONCE = 16

#: Delay before a failed read of the store is retried, in seconds.
_RETRY_SECONDS = 0.5

#: Overhead of an entry in a ring, in bytes.
_ENTRY_COST = 160

Shared = TypeVar("Shared")


#: Maximum number of events that one `read` filters. Otherwise a filter without matches would keep a worker busy.
MOST_READ = 10_000


class FeedEntry:
    """An event of a feed.

    seq: 0 if the log does not store it. raw: empty if a run has ended without an event.
    """

    __slots__ = ("_fields", "raw", "seq")

    def __init__(self, seq: Seq, raw: bytes) -> None:
        self.seq = seq
        self.raw = raw
        self._fields: dict[str, object] | None = None

    @property
    def cost(self) -> int:
        """Return the size of the entry in its ring, in bytes."""
        return _ENTRY_COST + len(self.raw)

    @property
    def fields(self) -> dict[str, Any]:
        """Return the event's members, parsed once for all followers."""
        if self._fields is None:
            self._fields = json.loads(self.raw)
        return self._fields


class Feed(ABC):
    """The ring of a log, shared by its followers in this process."""

    def __init__(self, channel: str, incarnation: str, last: Seq, ring_bytes: int) -> None:
        """channel: of the log's signals. incarnation: of the log. last: seq of its last event."""
        self.channel = channel
        self.incarnation = incarnation
        self.changed = threading.Condition()
        self.ended: StoreError | None = None
        self.followers: set[Follower] = set()
        self.ring: deque[FeedEntry] = deque()
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
    def page(self, after: Seq) -> tuple[Seq, list[FeedEntry]]:
        """Return the seq of the log's last event, and the next events after a seq.

        Raises a StoreError if the log does not continue at that seq, or one of UNAVAILABLE.
        """

    def receive(self, _signal: bytes) -> None:
        """Receive a published message, and wake a follower to read."""
        with self.changed:
            self.stale = True
            self._received += 1
            self.changed.notify()

    def end(self, reason: StoreError) -> None:
        with self.changed:
            self.ended = reason
            self.changed.notify_all()

    def take_reading(self) -> bool:
        """Return whether the caller, which holds `changed`, must read the log for all followers."""
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

    def _enter(self, entries: list[FeedEntry]) -> None:
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
        """Wait for a change while holding `changed`; False on timeout, in seconds.

        A caller that returns wakes one that waited before the last entries arrived: callers wait in a queue.
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
        """Return the index of the first entry after a seq; None if the ring does not reach back to that seq."""
        if seq < self.dropped:
            return None
        return next((index for index, entry in enumerate(self.ring, self.first) if entry.seq > seq), self.end_index)

    @property
    def end_index(self) -> int:
        return self.first + len(self.ring)

    def share(self, index: int, load: Callable[[], Shared]) -> Shared:
        """Return the result of `load`, called once for all followers at this index of the ring."""
        with self._sharing:
            if self._shared[0] != index:
                self._shared = (index, load())
            shared: Shared = self._shared[1]
            return shared


class ConversationFeed(Feed):
    def __init__(
        self, conversation_id: ConversationId, incarnation: str, last: Seq, scripts: Scripts, ring_bytes: int
    ) -> None:
        super().__init__(ConversationKeys(conversation_id).signal, incarnation, last, ring_bytes)
        self._id = conversation_id
        self._scripts = scripts

    def page(self, after: Seq) -> tuple[Seq, list[FeedEntry]]:
        """Return the last seq, and the next events. Raises ConversationNotFound."""
        incarnation, last, events = read_log(self._scripts, self._id, after, PAGE)
        if incarnation != self.incarnation:
            raise ConversationNotFound
        return last, [FeedEntry(Seq(seq), raw) for seq, raw in enumerate(events, after + 1)]

    def receive(self, signal: bytes) -> None:
        """Receive a published message: wake a follower to read, or enter an event that the log does not store."""
        if signal.startswith(b"{") or signal == b"state":
            with self.changed:
                self._enter([FeedEntry(Seq(0), b"" if signal == b"state" else signal)])
        elif signal in (MAYBE_MISSED, b"0") or int(signal) > self.last:
            super().receive(signal)


class Follower:
    """A cursor in a log that advances as it is read. Close it, or use it in a `with`."""

    def __init__(
        self, feed: Feed, after: Seq, closed: Callable[["Follower"], None], fell_behind: Callable[[], None]
    ) -> None:
        self.seq = after  #: seq of the last event that was taken
        self.index: int | None = None  #: index of the ring's entry to take next; None until the follower has caught up
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
        """Stop following. A thread that waits in `next` returns."""
        self._closed(self)

    def next(self, timeout: float) -> list[FeedEntry]:
        """Return the next events, in order, as soon as there are any; none after `close` or on timeout, in seconds.

        Raises FellBehind, Stopping, errors of the feed's `page`, or one of UNAVAILABLE. After the latter it may be
        called again.
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
        """Wait before a failed read of the store is retried."""
        time.sleep(_RETRY_SECONDS)

    def share(self, load: Callable[[], Shared]) -> Shared:
        """Return the result of `load`, called once for all followers at this index."""
        return load() if self.index is None else self.feed.share(self.index, load)

    def _take(self, index: int) -> list[FeedEntry]:
        taken: list[FeedEntry] = []
        size = 0
        if index < self.feed.first:
            self._fell_behind()
            raise FellBehind
        for entry in islice(self.feed.ring, index - self.feed.first, None):
            if len(taken) == PAGE or size >= _PAGE_BYTES:
                break
            index += 1
            if 0 < entry.seq <= self.seq:
                continue  # already read from the log: the ring lagged
            taken.append(entry)
            size += len(entry.raw)
            self.seq = entry.seq or self.seq
        self.index = index
        return taken

    def _replay(self) -> list[FeedEntry]:
        _, entries = self.feed.page(self.seq)
        self.seq = entries[-1].seq if entries else self.seq
        return entries


class Reading:
    """A reader with a follower of its own, which ends with it. Close it, or use it in a `with`."""

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
        self._follower.close()

    def pause(self) -> None:
        self._follower.pause()


def read_log(scripts: Scripts, conversation_id: ConversationId, after: Seq, most: int) -> tuple[str, Seq, list[bytes]]:
    """Return a conversation's incarnation, the seq of its last event, and the events after a seq that fit into a page.

    Raises ConversationNotFound.
    """
    root = ConversationKeys(conversation_id).root
    reply = scripts.read_log(root, seq=after, most=most, most_bytes=_PAGE_BYTES)
    if reply is None:
        raise ConversationNotFound
    return reply.incarnation, Seq(reply.last), originals(reply.events)


#: Context in which a client waits. It receives a function that ends the wait.
Ending = Callable[[Callable[[], None]], AbstractContextManager[None]]


class StoredChanges(NamedTuple):
    """The stored changes of a list or the inbox: number of changes, first and last number.

    A list stores the last change of each id. Its first number is the one after which none is missing.
    """

    size: int
    first: Seq
    last: Seq

    def continues(self, after: Seq) -> bool:
        """Return whether every change after a number is stored. The number before the first change ever is 0."""
        return self.first <= after <= self.last or (after == 0 and self.size < MOST_CHANGES)


class Followers:
    def __init__(
        self, scripts: Scripts, signals: Signals, meter: Meter, *, ring_bytes: int, most_followers: int
    ) -> None:
        self._scripts = scripts
        self._signals = signals
        self._meter = meter
        self.ring_bytes = ring_bytes
        self._most = most_followers
        self._lock = threading.Lock()
        self._feeds: dict[str, Feed] = {}  #: channel → feed that its signals wake
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
        """Follow the feed that `begin` returns, after the seq that it returns.

        An existing feed of the same log in this process is used instead. Raises errors of `begin`, TooManyFollowers,
        Stopping.
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
        self, after: Seq | None, held: Callable[[], StoredChanges], feed: Callable[[Seq], Feed]
    ) -> tuple[Follower, str]:
        """Follow changes after a number, None: from now on.

        Returns the follower, and why the client's state is void, or "". held: reads which changes are stored. feed:
        makes the feed, from a number. Raises as `join`.
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
        """Count a follower that joins or leaves. The caller holds the lock."""
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
        """Return the events after a seq that pass the filters, and the seq to continue after.

        Reads at most MOST_READ events, and returns at most PAGE_BYTES. If no event follows that seq, it waits up to
        `wait` seconds for one. ending: the context of the wait, with the function that ends it. Raises as `follow`,
        except Stopping: a process that stops returns no events.
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
        """Return whether an event arrived after a seq before the deadline."""
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return False
        try:
            with self.follow(conversation_id, seq) as follower, ending(follower.close):
                return bool(follower.next(remaining))
        except Stopping:
            return False

    def stop(self) -> None:
        """End every follower, and refuse new ones, because this process stops."""
        with self._lock:
            self._stopping = True
            feeds = list(self._feeds.values())
        for feed in feeds:
            feed.end(Stopping())
