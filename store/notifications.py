"""Notifications: the outboxes that they come from, and the queues of their targets.

Three slots have an outbox: that of approvals, that of the listing and that of sandboxes. An entry is JSON: `id`
(`msg_…`, the same when its script is repeated), `type`, `time` (UTC text) or `at` (µs, as text), and as it applies
`conversation_id`, `action_id`, `sandbox_id`, `tool`, `risk`, `decision`, `actor` and `detail`.

A supervisor with targets moves entries to their queues: it queues an entry, which leaves a mark of its id, and then
takes the entry out. An entry of a supervisor that was killed between the two is queued again by the next one, and the
mark drops it.

A conversation or a sandbox pushes only while a supervisor has said within a day that it has targets. An outbox holds
MOST_OUTBOX entries (`scripts/_outbox.lua`); then the oldest is dropped and counted.

Each target has a queue; all queues lie in one slot. The id of an entry of a queue begins with the time of its queueing
by Redis' clock, ms: a message is given up so long after it. A body is sealed: it may hold a one-time link.

Guarantee: a message is sent at least once, in the order of its queue, with the same id and bytes in each try, until the
target takes it or its time is over. Limitation: a supervisor that is killed after the target took a message and before
that was noted sends it again; the receiver knows it by its id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from core.wire import Micros
from store.keys import OUTBOXES, NotifyKeys, outbox_dropped, outbox_wanted
from store.link.commands import Redis
from store.link.secrets import Sealer
from store.record import BESIDE, Record, pairs
from store.scripts import Scripts

#: seconds for which a supervisor's word counts that it has targets
_WANTED = 86_400


#: most messages of a queue, and ids that are remembered of those queued
MOST_QUEUED, MOST_MARKS = 10_000, 50_000

#: Maximum number of messages of a device's queue. A device is told what waits, so old messages are worth little.
MOST_RINGS = 100

#: seconds after which a message is given up
GIVEN_UP = 3 * 86_400.0


class OutboxState(NamedTuple):
    """An outbox as operators see it."""

    name: str  #: `approvals`, `conversations` or `sandboxes`
    waiting: int
    dropped: int  #: entries that were never queued, since the store began


class Outboxes:
    """What waits to be queued for the targets of notifications."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
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
            found = pipe.execute()
        return {name: entries for name, entries in zip(OUTBOXES, found, strict=True) if entries}

    def remove(self, name: str, entries: list[bytes]) -> None:
        """Take entries out that `read` returned. One round trip."""
        self._scripts.empty_outbox(OUTBOXES[name], entries=entries)

    def states(self) -> list[OutboxState]:
        """One round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            for outbox in OUTBOXES.values():
                pipe.llen(outbox)
                pipe.get(outbox_dropped(outbox))
            found = pipe.execute()
        pairs = zip(found[::2], found[1::2], strict=True)
        return [
            OutboxState(name, waiting, int(dropped or 0))
            for name, (waiting, dropped) in zip(OUTBOXES, pairs, strict=True)
        ]


class Try(NamedTuple):
    """A message that is to be sent now, and the lease of its target."""

    target_id: str
    token: str
    place: str  #: in the queue
    id: str
    sealed: bytes
    at: Micros  #: by Redis' clock
    failed: int  #: tries before this one, in a row
    trace: str  #: W3C traceparent of the batch that it tells of; empty where that was not traced


@dataclass(frozen=True, slots=True)
class TargetState(Record):
    """A target as operators see it. Times are µs by Redis' clock, None where there is none."""

    key = NotifyKeys.state("ID")
    id: str = field(metadata=BESIDE)
    name: str = field(metadata=BESIDE)
    queued: int = field(default=0, metadata=BESIDE)
    oldest: Micros | None = field(default=None, metadata=BESIDE)  #: when the oldest message was queued
    tries: int = 0  #: that failed in a row
    next_at: Micros | None = None
    sent: int = 0
    sent_at: Micros | None = None
    failed_at: Micros | None = None
    failure: str = ""
    given_up: int = 0
    dropped: int = 0  #: by a full queue
    disabled_at: Micros | None = None  #: when the target rejected further messages


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLease(Record):
    """Who sends to a target now."""

    key = TargetState.key
    token: str  #: of the supervisor
    lease: Micros  #: µs


class Targets:
    """The queues of all targets."""

    def __init__(
        self, redis: Redis, scripts: Scripts, sealer: Sealer, *, most: int = MOST_QUEUED, given_up: float = GIVEN_UP
    ) -> None:
        """most: messages of one queue. given_up: seconds after which a message is."""
        self._redis = redis
        self._scripts = scripts
        self._sealer = sealer
        self._most = most
        self._given_up = round(given_up * 1000)

    def open(self, names: Mapping[str, str], *, again: bool) -> dict[str, int]:
        """Note the targets of a supervisor by id. again: those that wanted no more are tried again.

        Returns the names of targets that no supervisor has any more, with the number of messages that are given up.
        """
        return dict(
            self._scripts.open_targets(NotifyKeys.root, kept=self._given_up, again=again, targets=names.items())
        )

    def add(
        self,
        target_ids: Sequence[str],
        messages: Sequence[tuple[str, Sequence[str]]],
        traced: Mapping[str, str] | None = None,
        device_ids: Sequence[str] = (),
    ) -> dict[str, int]:
        """Queue messages for all targets, each its id and its body for each target, then for each device ("": it does
        not ring). A message that was queued before is not queued again.

        traced: the W3C traceparent of those messages, by their ids, that tell of what was traced.

        Returns how many messages the full queues of targets dropped. Raises SecretsRefused when no key is set.
        """
        if not messages:
            return {}
        words: list[str | bytes] = []
        for one, bodies in messages:
            words += (one, (traced or {}).get(one, ""))
            words += (body and self._sealer.seal_bytes("notification", one, body.encode()) for body in bodies)
        dropped = self._scripts.queue_notifications(
            NotifyKeys.root,
            most=self._most,
            most_marks=MOST_MARKS,
            names=",".join(target_ids),
            devices=",".join(device_ids),
            most_rings=MOST_RINGS,
            words=words,
        )
        return {one: number for one, number in zip(target_ids, dropped, strict=True) if number}

    def claim(self, target_id: str, token: str, seconds: float) -> Try | None:
        """Take the lease of a target whose oldest message is due. One round trip."""
        reply = self._scripts.claim_notification(
            NotifyKeys.root, target=target_id, token=token, span=round(seconds * 1000)
        )
        return None if reply is None else Try(target_id, token, *reply)

    def body_of(self, one: Try) -> str:
        """The body of a message. Raises SecretsRefused where its key is no longer set."""
        return self._sealer.open_bytes("notification", one.id, one.sealed).decode()

    def renew(self, one: Try, seconds: float) -> bool:
        """Renew the lease; False if it is another supervisor's."""
        return self._scripts.renew_notification(
            NotifyKeys.root, target=one.target_id, token=one.token, span=round(seconds * 1000)
        )

    def close(self, one: Try, outcome: str, reason: str = "", *, again_in: float = 0) -> str:
        """Note the outcome of a try: `sent`, `failed`, `gone` (410: it rejects more) or `lost` (it cannot be sent).

        again_in: seconds until the next try. Returns the result, as `close_notification.lua` has it.
        """
        return self._scripts.close_notification(
            NotifyKeys.root,
            target=one.target_id,
            token=one.token,
            place=one.place,
            outcome=outcome,
            reason=reason,
            again=round(again_in * 1000),
            kept=self._given_up,
        )

    def hurry(self, target_id: str) -> None:
        """Make the oldest message of a target due at once."""
        self._redis.hdel(NotifyKeys.state(target_id), "next_at")

    def states(self) -> dict[str, TargetState]:
        """Every target that a supervisor has had, by id. One round trip."""
        found = self._scripts.read_targets(NotifyKeys.root)
        return {one.id: target_state(one.id, one.name, one.queued, one.oldest, one.state) for one in found}


def target_state(identity: str, name: str, queued: int, place: str | None, state: list[bytes]) -> TargetState:
    """The state of a target or a device. place: of its oldest message."""
    oldest = Micros(int(place.partition("-")[0]) * 1000) if place else None
    return TargetState.read(pairs(state), id=identity, name=name, queued=queued, oldest=oldest)


class NotificationWing:
    """What is to be notified of, and who is."""

    def __init__(self, redis: Redis, scripts: Scripts, sealer: Sealer) -> None:
        self.outboxes = Outboxes(redis, scripts)
        self.targets = Targets(redis, scripts, sealer)
