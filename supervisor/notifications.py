"""Sends notifications: one thread fills the queues from the outboxes, and one thread per target empties its queue.

A target that hangs or is dead holds its own thread alone. The supervisors of all hosts share the queues: the one that
has the lease of a target sends. What a target does not take is tried again, the delay twice the one before, until the
message is given up: counted, shown by `GET /api/v1/notifications`, and logged.
"""

import logging
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

from notifications.failures import NotDelivered, TargetGone
from notifications.sending import Sender
from notifications.targets import Target
from store import Store
from store.errors import UNAVAILABLE, SecretsRefused
from store.link import traces
from store.notifications.targets import Try
from supervisor.outbox import OutboxMover
from supervisor.renewal import renewed

log = logging.getLogger("supervisor")

#: seconds of the lease of a target, which is renewed while a try goes on
_LEASE = 6.0

#: seconds between two polls of the outboxes, of a queue that nothing wakes, and two words that there are targets
_OUTBOX_POLL, _QUEUE_POLL, _WORD = 0.25, 1.0, 60.0

#: seconds before a message is tried again: the first time, and at most; the share of it that chance adds
_FIRST_RETRY, _LONGEST_RETRY, _JITTER = 1.0, 3600.0, 0.25

#: seconds that the threads get to end
_DRAIN_TIMEOUT = 2.0


class Notifier:
    """Sends to all targets of the settings. A thread that is killed leaves a lease, which ends by itself."""

    def __init__(self, store: Store, targets: Sequence[Target], mover: OutboxMover, sender: Sender) -> None:
        self._store = store
        self._targets = targets
        self._mover = mover
        self._sender = sender
        self._stop = threading.Event()
        self._queued = {target.id: threading.Event() for target in targets}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send until the block ends. Without targets this does nothing."""
        threads = [threading.Thread(target=self._move, name="outboxes", daemon=True)] if self._targets else []
        for target in self._targets:
            name = f"notifications {target.id}"
            threads.append(threading.Thread(target=self._send_all, args=(target,), name=name, daemon=True))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for event in self._queued.values():
                event.set()
            for thread in threads:
                thread.join(_DRAIN_TIMEOUT)

    def _move(self) -> None:
        """Fill the queues until the end; what fails is tried again after a poll."""
        announced: float | None = None
        while not self._stop.is_set():
            found = 0
            try:
                if announced is None or time.monotonic() - announced > _WORD:
                    self._announce(again=announced is None)
                    announced = time.monotonic()
                found = self._mover.move()
            except Exception as error:
                _log_failure("moving entries of the outboxes", error)
            if found:
                for event in self._queued.values():
                    event.set()
            else:
                self._stop.wait(_OUTBOX_POLL)

    def _announce(self, *, again: bool) -> None:
        """Say that there are targets, and which. again: those that wanted no more are tried again."""
        self._store.outboxes.want()
        names = {target.id: target.name for target in self._targets}
        for name, number in self._store.targets.open(names, again=again).items():
            log.warning("notifications: %s is no target any more, and its %d messages are given up", name, number)

    def _send_all(self, target: Target) -> None:
        """Empty the queue of a target whenever it has something, until the end."""
        event = self._queued[target.id]
        while not self._stop.is_set():
            sent = False
            try:
                sent = self.send_next(target)
            except Exception as error:
                _log_failure(f"sending to {target.name}", error)
            if not sent:
                event.wait(_QUEUE_POLL)
                event.clear()

    def send_next(self, target: Target) -> bool:
        """Try the oldest message of a target, if it is due; True if the next one may follow at once."""
        one = self._store.targets.claim(target.id, uuid4().hex, _LEASE)
        if one is None:
            return False
        with (
            traces.continued(one.trace, "notification", {"agent_server.notification.target": target.name}),
            renewed(lambda: self._store.targets.renew(one, _LEASE), _LEASE),
        ):
            outcome, reason = self._try(target, one)
            if outcome != "sent":
                traces.fail(outcome)
        came = self._store.targets.close(one, outcome, reason, again_in=retry_delay(one.failed))
        if came == "given up":
            log.error("notifications: %s never got the message %s, which is given up: %s", target.name, one.id, reason)
        elif came == "gone":
            log.error("notifications: %s gets no more until a supervisor starts again: %s", target.name, reason)
        elif came == "failed" and one.failed == 0:
            log.warning("notifications: %s did not get the message %s yet: %s", target.name, one.id, reason)
        return came in ("sent", "given up")

    def _try(self, target: Target, one: Try) -> tuple[str, str]:
        """What came of a try, as `Targets.close` takes it, and why."""
        try:
            self._sender.send(target, one.id, self._store.targets.body_of(one), one.at)
        except SecretsRefused:
            return "lost", "it is sealed with a SECRET_KEY that is not set"
        except TargetGone as error:
            return "gone", str(error)
        except NotDelivered as error:
            return "failed", str(error)
        except Exception as error:  # a fault of ours; its text may show the URL
            return "failed", f"unforeseen {type(error).__name__}"
        return "sent", ""


def retry_delay(failed: int) -> float:
    """Seconds before the next try of a message, after so many failed tries before the last one."""
    delay: float = min(_LONGEST_RETRY, _FIRST_RETRY * 2 ** min(failed, 20))
    return delay * (1 + _JITTER * random.random())


def _log_failure(what: str, error: Exception) -> None:
    if isinstance(error, UNAVAILABLE):
        log.warning("the store does not answer: %s", error)
    else:
        log.error("notifications: %s failed", what, exc_info=error)
