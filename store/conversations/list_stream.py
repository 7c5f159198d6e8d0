"""A list as it changes: that of the conversations or that of the sandboxes, followed from any number of a change.

A change is one per item, whatever happened since: the item as it is when it is read, or that it is gone. So a client
that was away reads at most as many changes as there are items, and items that change all the time are read at most
every READ_SECONDS, for all streams of a process together.

| event     | data                                                                                    |
|-----------|-----------------------------------------------------------------------------------------|
| `reset`   | {reason}: what the client knew is void. `new`: it asked for no change; `dropped`: not   |
|           | all changes after the one that it asked for are held                                    |
| `ready`   | {}: after a reset; a list that the client reads from now on misses nothing of before    |
| `changed` | the item, also a new one                                                                |
| `deleted` | {id}                                                                                    |
"""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from store.approvals.inbox_stream import Sent
from store.change_keys import MOST_CHANGES, changed_channel
from store.errors import FellBehind
from store.keys import ListingKeys, SandboxKeys
from store.link.signals import MAYBE_MISSED
from store.log.feed import Entry, Feed, Follower
from store.log.followers import Followers
from store.scripts import Scripts
from wire import Seq

#: items that are read at once, and seconds from one reading to the next
PAGE, READ_SECONDS = 200, 0.25

#: reads items by id, None for each that is gone
Load = Callable[[Sequence[Any]], Sequence[Any | None]]

#: an item as clients see it
Show = Callable[[Any], Any]


class Change(Entry):
    """The newest change of an item; its bytes are the data of the event."""

    __slots__ = ("id", "name")

    def __init__(self, number: Seq, identity: str, shown: Any | None) -> None:
        super().__init__(number, json.dumps({"id": identity} if shown is None else shown).encode())
        self.id = identity
        self.name = "deleted" if shown is None else "changed"


class _Held(NamedTuple):
    """What the set of changes holds: how many ids, the number after which none is missing, and the last number."""

    size: int
    floor: Seq
    last: Seq

    def continues(self, after: Seq) -> bool:
        """Whether every change after a number is held. The number before the first change ever is 0."""
        return self.floor <= after <= self.last or (after == 0 and self.size < MOST_CHANGES)


def _read(scripts: Scripts, root: str, after: Seq, most: int) -> tuple[_Held, list[tuple[str, Seq]]]:
    """What is held, and the ids that changed after a number, with the number of each. One round trip."""
    size, floor, last, *found = scripts.read_list_changes([root], [after, most])
    changes = [(one.decode(), _number(at)) for one, at in zip(found[::2], found[1::2], strict=True)]
    return _Held(size, _number(floor), _number(last)), changes


def _number(stored: bytes) -> Seq:
    return Seq(int(float(stored)))


class ListFeed(Feed):
    """The one reader of a list's changes in this process."""

    def __init__(self, root: str, last: Seq, scripts: Scripts, load: Load, show: Show, ring_bytes: int) -> None:
        super().__init__(changed_channel(root), b"", last, ring_bytes)
        self._root = root
        self._scripts = scripts
        self._load = load
        self._show = show
        self._next_read = 0.0

    def page(self, after: Seq) -> tuple[Seq, list[Entry]]:
        """The number of the last change, and the next changes. Raises FellBehind where some are no longer held."""
        held, changes = _read(self._scripts, self._root, after, PAGE)
        if not held.continues(after):
            raise FellBehind
        items = self._load([identity for identity, _ in changes])
        return held.last, [
            Change(number, identity, None if item is None else self._show(item))
            for (identity, number), item in zip(changes, items, strict=True)
        ]

    def receive(self, signal: bytes) -> None:
        """Wake a follower to read, unless that change is read already."""
        if signal == MAYBE_MISSED or int(signal) > self.last:
            super().receive(signal)

    def read(self) -> None:
        """Fill the ring, READ_SECONDS after the last time or later. Raises one of UNAVAILABLE."""
        time.sleep(max(0.0, self._next_read - time.monotonic()))
        super().read()
        self._next_read = time.monotonic() + READ_SECONDS


class ListFollower:
    """The changes of a list, each item's newest one. Close it."""

    def __init__(self, follower: Follower, reset: str) -> None:
        """reset: why the client must read the list, "" where it need not."""
        self._follower = follower
        self._reset = reset

    @property
    def seq(self) -> str:
        """The number of the last change that was taken."""
        return str(self._follower.seq)

    @property
    def closed(self) -> bool:
        return self._follower.closed

    def close(self) -> None:
        """Stop following; a thread that waits in `next` returns."""
        self._follower.close()

    def pause(self) -> None:
        """Wait before a store that did not answer is asked again."""
        self._follower.pause()

    def next(self, timeout: float) -> list[Sent]:
        """The next changes as soon as there are any; none at the timeout, which is in seconds.

        Raises FellBehind, Stopping, or one of UNAVAILABLE: after one of UNAVAILABLE it may be called again.
        """
        if self._reset:
            reset, self._reset = json.dumps({"reason": self._reset}).encode(), ""
            return [Sent("reset", reset), Sent("ready", b"{}", self.seq)]
        changes = [change for change in self._follower.next(timeout) if isinstance(change, Change)]
        newest = {change.id: change.seq for change in changes}
        return [Sent(change.name, change.raw, str(change.seq)) for change in changes if newest[change.id] == change.seq]


class ListStream:
    """The streams of one list in this process."""

    def __init__(
        self, keys: type[ListingKeys] | type[SandboxKeys], scripts: Scripts, followers: Followers, load: Load
    ) -> None:
        self._keys = keys
        self._scripts = scripts
        self._followers = followers
        self._load = load

    def follow(self, after: int | None, show: Show) -> ListFollower:
        """Follow the list after the change of a number; None: from now on. Raises TooManyFollowers, Stopping.

        show: makes of an item what every client may see; that of the first follower serves all of the process.
        """
        reset = ""

        def begin() -> tuple[Feed, Seq]:
            nonlocal reset
            root = self._keys.root
            held, _ = _read(self._scripts, root, Seq(0), 0)
            reset = "new" if after is None else "" if held.continues(Seq(after)) else "dropped"
            feed = ListFeed(root, held.last, self._scripts, self._load, show, self._followers.ring_bytes)
            return feed, held.last if after is None or reset else Seq(after)

        return ListFollower(self._followers.join(begin), reset)
