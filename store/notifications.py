"""Notifications: their outboxes, and the queues of their targets.

Three slots have an outbox: approvals, the listing and sandboxes. An entry is JSON: `id` (`msg_…`, the same when its
script is repeated), `type`, `time` (UTC text) or `at` (µs, as text), and where they apply `conversation_id`,
`action_id`, `sandbox_id`, `tool`, `risk`, `decision`, `actor` and `detail`.

A supervisor with targets moves entries to their queues: it queues an entry, which marks its id, and then removes it
from the outbox. If the supervisor is killed between the two, the next one queues the entry again, and the mark drops
it.

Conversations and sandboxes write to their outbox only if a supervisor has reported targets within a day. An outbox
holds MOST_OUTBOX entries (`scripts/_outbox.lua`). Beyond it the oldest is dropped and counted.

Each target has a queue, and all queues share a slot. The id of a queue's entry begins with the time of its queueing by
Redis' clock, in ms, from which its timeout is measured. A body is sealed, because it may contain a one-time link.

Guarantee: a message is sent at least once, in the order of its queue, with the same id and bytes in each attempt, until
the target accepts it or it times out. Limitation: a supervisor that is killed after the target accepted a message and
before that was recorded sends it again. The receiver recognises it by its id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from core.wire import Micros
from store.keys import OUTBOXES, NotifyKeys, outbox_dropped, outbox_wanted
from store.link.commands import Redis
from store.link.secrets import Sealer
from store.record import BESIDE, HashRecord, pairs
from store.scripts import Scripts

#: Seconds for which a supervisor's report of targets is valid.
_WANTED = 86_400


#: Maximum number of messages of a queue, and of remembered ids.
MOST_QUEUED, MOST_MARKS = 10_000, 50_000

#: Maximum number of messages of a device's queue. Old messages are of little use there.
MOST_RINGS = 100

#: Seconds after which a message is dropped.
GIVEN_UP = 3 * 86_400.0


class OutboxState(NamedTuple):
    """The state of an outbox, for operators."""

    name: str  #: `approvals`, `conversations` or `sandboxes`
    waiting: int
    dropped: int  #: entries that were dropped since the store began


class Outboxes:
    """Entries that wait to be queued for the targets of notifications."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def want(self) -> None:
        """Report that there are targets. One round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            for outbox in OUTBOXES.values():
                pipe.set(outbox_wanted(outbox), 1, ex=_WANTED)
            pipe.execute()

    def read(self, most: int) -> dict[str, list[bytes]]:
        """Return the oldest entries of each outbox that has any. One round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            for outbox in OUTBOXES.values():
                pipe.lrange(outbox, 0, most - 1)
            found = pipe.execute()
        return {name: entries for name, entries in zip(OUTBOXES, found, strict=True) if entries}

    def remove(self, name: str, entries: list[bytes]) -> None:
        """Remove entries that `read` returned. One round trip."""
        self._scripts.empty_outbox(OUTBOXES[name], entries=entries)

    def states(self) -> list[OutboxState]:
        """Return the states of all outboxes. One round trip."""
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
    """A message to send now, and the lease of its target."""

    target_id: str
    token: str
    place: str  #: id of the queue's entry
    id: str
    sealed: bytes
    at: Micros  #: by Redis' clock
    failed: int  #: consecutive failed attempts before this one
    trace: str  #: W3C traceparent of the batch that it reports; empty: not traced


@dataclass(frozen=True, slots=True)
class TargetState(HashRecord):
    """The state of a target, for operators. Times are µs by Redis' clock, or None."""

    key = NotifyKeys.state("ID")
    id: str = field(metadata=BESIDE)
    name: str = field(metadata=BESIDE)
    queued: int = field(default=0, metadata=BESIDE)
    oldest: Micros | None = field(default=None, metadata=BESIDE)
    tries: int = 0  #: consecutive failed attempts
    next_at: Micros | None = None
    sent: int = 0
    sent_at: Micros | None = None
    failed_at: Micros | None = None
    failure: str = ""
    given_up: int = 0
    dropped: int = 0  #: messages dropped by the full queue
    disabled_at: Micros | None = None  #: when the target refused further messages


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLease(HashRecord):
    """The lease of a target."""

    key = TargetState.key
    token: str  #: token of the supervisor
    lease: Micros  #: µs


class Targets:
    def __init__(
        self, redis: Redis, scripts: Scripts, sealer: Sealer, *, most: int = MOST_QUEUED, given_up: float = GIVEN_UP
    ) -> None:
        """most: messages of one queue. given_up: seconds after which a message is dropped."""
        self._redis = redis
        self._scripts = scripts
        self._sealer = sealer
        self._most = most
        self._given_up = round(given_up * 1000)

    def open(self, names: Mapping[str, str], *, again: bool) -> dict[str, int]:
        """Store the targets of a supervisor by id. again: retry those that refused further messages.

        Returns the names of targets that no supervisor has any more, with the number of dropped messages.
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
        """Queue messages for all targets and devices, each once.

        Each message has its id, its body for each target, then its body for each device ("": none). traced: W3C
        traceparents of traced messages, by id.

        Returns how many messages the full queues of targets dropped. Raises SecretsRefused if no key is set.
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
        """Return the body of a message. Raises SecretsRefused if its key is no longer set."""
        return self._sealer.open_bytes("notification", one.id, one.sealed).decode()

    def renew(self, one: Try, seconds: float) -> bool:
        """Renew the lease; False if it is another supervisor's."""
        return self._scripts.renew_notification(
            NotifyKeys.root, target=one.target_id, token=one.token, span=round(seconds * 1000)
        )

    def close(self, one: Try, outcome: str, reason: str = "", *, again_in: float = 0) -> str:
        """Record the outcome of an attempt: `sent`, `failed`, `gone` (410: refuses more) or `lost` (it cannot be sent).

        again_in: seconds until the next attempt. Returns the result of `close_notification.lua`.
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
        """Return every target that a supervisor has had, by id. One round trip."""
        found = self._scripts.read_targets(NotifyKeys.root)
        return {one.id: target_state(one.id, one.name, one.queued, one.oldest, one.state) for one in found}


def target_state(identity: str, name: str, queued: int, place: str | None, state: list[bytes]) -> TargetState:
    """Return the state of a target or a device. place: id of its oldest message."""
    oldest = Micros(int(place.partition("-")[0]) * 1000) if place else None
    return TargetState.read(pairs(state), id=identity, name=name, queued=queued, oldest=oldest)


class NotificationWing:
    def __init__(self, redis: Redis, scripts: Scripts, sealer: Sealer) -> None:
        self.outboxes = Outboxes(redis, scripts)
        self.targets = Targets(redis, scripts, sealer)
