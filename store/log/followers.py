"""The followers of this process: one feed per log, opened and closed with its followers."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from meter import Meter
from store.bounds import PAGE_BYTES
from store.errors import BeyondTheEnd, Stopping, TooManyFollowers
from store.link.signals import Signals
from store.log.feed import PAGE, ConversationFeed, Feed, Follower, read_log
from store.log.matching import passes
from store.scripts import Scripts
from wire import ConversationId, Seq

#: events that one `read` filters: else a filter that no event passes would keep a worker busy
MOST_READ = 10_000


#: what holds while a client waits: it may end the wait by the call that it is given
Ending = Callable[[Callable[[], None]], AbstractContextManager[None]]


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
        """The events after a seq that pass the filters, and the seq to read after next.

        Reads MOST_READ events at most, and returns at most PAGE_BYTES; where no event follows that seq, it waits up to
        `wait` seconds for one. ending: holds for the wait, and may call what it is given to end it.
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
