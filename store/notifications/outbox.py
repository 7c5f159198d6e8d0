"""The outboxes: what is to be notified of, pushed by the script that makes it so, in the slot of its subject.

Three slots have one: that of approvals, that of the listing and that of sandboxes. An entry is JSON: `id` (`msg_…`, the
same when its script is repeated), `type`, `time` (UTC text) or `at` (µs, as text), and as it applies `conversation_id`,
`action_id`, `sandbox_id`, `tool`, `risk`, `decision`, `actor` and `detail`.

A supervisor with targets moves entries to their queues: it queues an entry, which leaves a mark of its id, and then
takes the entry out. An entry of a supervisor that was killed between the two is queued again by the next one, and the
mark drops it.

A conversation or a sandbox pushes only while a supervisor has said within a day that it has targets. An outbox holds
MOST_OUTBOX entries (`scripts/_outbox.lua`); then the oldest is dropped and counted.
"""

from typing import Any, NamedTuple

from redis import Redis

from store.approval_keys import OUTBOXES, outbox_dropped, outbox_wanted
from store.scripts import Scripts

#: seconds for which a supervisor's word counts that it has targets
_WANTED = 86_400


class OutboxState(NamedTuple):
    """An outbox as operators see it."""

    name: str  #: `approvals`, `conversations` or `sandboxes`
    waiting: int
    dropped: int  #: entries that were never queued, since the store began


class Outboxes:
    """All outboxes."""

    def __init__(self, redis: "Redis", scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def want(self) -> None:
        """Say that there are targets. One round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            for outbox in OUTBOXES.values():
                pipe.set(outbox_wanted(outbox), 1, ex=_WANTED)
            pipe.execute()

    def read(self, most: int) -> dict[str, list[bytes]]:
        """The oldest entries of each outbox that has any. One round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            for outbox in OUTBOXES.values():
                pipe.lrange(outbox, 0, most - 1)
            found: list[Any] = pipe.execute()
        return {name: entries for name, entries in zip(OUTBOXES, found, strict=True) if entries}

    def remove(self, name: str, entries: list[bytes]) -> None:
        """Take entries out that `read` returned. One round trip."""
        self._scripts.empty_outbox([OUTBOXES[name]], entries)

    def states(self) -> list[OutboxState]:
        """One round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            for outbox in OUTBOXES.values():
                pipe.llen(outbox)
                pipe.get(outbox_dropped(outbox))
            found: list[Any] = pipe.execute()
        pairs = zip(found[::2], found[1::2], strict=True)
        return [
            OutboxState(name, waiting, int(dropped or 0))
            for name, (waiting, dropped) in zip(OUTBOXES, pairs, strict=True)
        ]
