"""Sends notifications: one thread fills the queues from the outboxes, and one thread per target empties its queue.

Every supervisor with targets or devices fills the queues, without a lease: a queue accepts each message id once. The
body for each target is made once. So every attempt sends the same bytes, even if the subject has changed or is gone.

A target that hangs blocks only its own thread. The supervisors of all hosts share the queues, and the holder of a
target's lease sends. Failed messages are retried with exponential backoff until they are given up: counted, shown by
`GET /api/v1/notifications`, and logged.

Devices have queues too (`store/devices.py`). A few threads serve them all. Each takes the device whose message is due
and that has failed least, so that hanging endpoints delay only each other. A device is notified while its owner may use
the server. That is checked when a message is queued and again before it is sent.
"""

import json
import logging
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from core.approvals import ApprovalLinks, action_digest, shown_arguments
from core.effects import greater, seen
from core.pauses import Backoff
from core.scopes import NOWHERE
from core.wire import ConversationId, Micros, micros, parse_json, utc_time
from notifications.devices import DeviceStanding, OutOfTime, Rings
from notifications.messages import QuietRules, Subject, body_of
from notifications.rings import ring_of, rings, waits
from notifications.sending import NotDelivered, NotificationSender, SendingTarget, TargetGone
from store import Store
from store.conversations.cold import StillCold
from store.devices import Device, DevicesUnsealed
from store.errors import UNAVAILABLE, ConversationNotFound, EventsTooLong, SecretsRefused
from store.notifications import Try
from store.sandboxes.sandboxes import SandboxId
from supervisor.presence import renewed
from telemetry import traces

log = logging.getLogger("supervisor")

#: Number of entries of an outbox that a round moves.
_BATCH = 50


#: Longest delay between two retries after a failure of this program, in seconds.
_LONGEST_DELAY = 5.0

#: Lease of a target in seconds. It is renewed during an attempt.
_LEASE = 6.0

#: Intervals in seconds: between two polls of the outboxes, of an idle queue, and two announcements of targets.
_OUTBOX_POLL, _QUEUE_POLL, _WORD = 0.25, 1.0, 60.0

#: Shortest and longest delay of a message's retry, in seconds, and maximum jitter as a share of the delay.
_FIRST_RETRY, _LONGEST_RETRY, _JITTER = 1.0, 3600.0, 0.25

#: Number of attempts after which a bug of ours gives a message up: about four minutes, for which later messages wait.
_MOST_UNFORESEEN = 8

#: Number of threads for devices.
_RINGERS = 4

#: Maximum number of bodies in a call that fills the queues: a message has a body for each target and device.
_MOST_BODIES = 1000

#: Timeout in seconds for the threads to end.
_DRAIN_TIMEOUT = 2.0


class OutboxMover:
    """Moves entries from the outboxes to the queues. One thread per process uses it."""

    def __init__(
        self,
        store: Store,
        targets: Sequence[SendingTarget],
        rules: QuietRules,
        links: ApprovalLinks,
        standing: DeviceStanding,
        *,
        public_url: str,
    ) -> None:
        """links: makes the one-time links. standing: which devices are notified. public_url: of the server, for people;
        empty: messages have no links.
        """
        self._store = store
        self._targets = targets
        self._standing = standing
        self._devices: list[Device] = []  #: devices for the current batch
        self._rules = rules
        self._links = links
        self._public_url = public_url

    def move(self) -> int:
        """Move the oldest entries of each outbox, and return their number. Raises one of UNAVAILABLE."""
        found = self._store.notifications.outboxes.read(_BATCH)
        for name, entries in found.items():
            self.queue(entries)
            self._store.notifications.outboxes.remove(name, entries)
        return sum(map(len, found.values()))

    def queue(self, entries: Sequence[bytes]) -> None:
        """Queue the messages of the entries that no quiet rule suppresses."""
        self._devices = self._standing.live()
        step = max(1, _MOST_BODIES // (1 + len(self._targets) + len(self._devices)))
        for start in range(0, len(entries), step):
            self._queue(entries[start : start + step])

    def _queue(self, entries: Sequence[bytes]) -> None:
        traced: dict[str, str] = {}
        messages = [message for raw in entries if (message := self._message(raw, traced))]
        ids, device_ids = [target.id for target in self._targets], [device.id for device in self._devices]
        dropped = self._store.notifications.targets.add(ids, messages, traced, device_ids)
        for target in self._targets:
            if number := dropped.get(target.id):
                words = (target.name, number)
                log.warning("notifications: the queue of %s is full: its %d oldest messages are dropped", *words)

    def _message(self, raw: bytes, traced: dict[str, str]) -> tuple[str, list[str]] | None:
        """Return the id of an entry's message and its body for each target; None if the entry needs no notification.

        traced: gets message id → W3C traceparent, if the message's subject has one.
        """
        try:
            entry: dict[str, Any] = json.loads(raw)
            entry["time"] = utc_time(micros(entry["time"]) if "time" in entry else Micros(int(entry["at"])))
            if not self._rules.pass_entry(entry):
                return None
            if entry["type"].startswith(("destination.", "budget.")):
                return self._destination(entry)
            if "conversation_id" not in entry:
                return entry["id"], self._bodies(entry, self._sandbox(SandboxId(entry["sandbox_id"])))
            identity = ConversationId(entry["conversation_id"])
            [state] = self._store.conversations.get_many([identity])
            if not self._rules.pass_tags((state or {}).get("tags") or {}):
                return None
            subject = self._conversation(identity, entry, state) if state else Subject()
            if subject.seen:
                own = entry.get("risk")
                entry |= {"risk": greater(own, subject.seen), "security_risk": own}
            if not self._rules.pass_risk(entry):
                return None
            if subject.trace:
                traced[entry["id"]] = subject.trace
            return entry["id"], self._bodies(entry, subject)
        except UNAVAILABLE:
            raise
        except Exception:  # later entries must not wait
            log.exception("notifications: no message can be made of an entry of an outbox, which is dropped")
            return None

    def _destination(self, entry: dict[str, Any]) -> tuple[str, list[str]] | None:
        """Return the message about a sandbox's request; None if the tags of its only conversation do not match."""
        entry = {name: value for name, value in entry.items() if value}  # several conversations: none is named
        title, secrets = "", {}
        if "conversation_id" in entry:
            identity = ConversationId(entry["conversation_id"])
            [state] = self._store.conversations.get_many([identity])
            if not self._rules.pass_tags((state or {}).get("tags") or {}):
                return None
            if state:
                title, secrets = state.get("title") or "", self._store.conversations.secrets_of(identity)
        texts = {name: str(entry.get(name) or "") for name in ("since", "expires_at", "digest", "program")}
        if budget := entry.get("budget"):
            amounts = [f"${budget['dollars']:g}"] if budget.get("dollars") else []
            amounts += [f"{int(budget['tokens'])} tokens"] if budget.get("tokens") else []
            texts |= {"budget": budget["setting"], "more": ", ".join(amounts)}
        else:
            texts["destination"] = f"{entry['name']}:{int(entry['port'])}"
        subject = Subject(title=title, origin=NOWHERE, secrets=secrets, **texts)
        is_over = bool(self._devices) and waits(entry["type"]) and not self._waits_still(entry)
        return entry["id"], self._bodies(entry, subject, is_over=is_over)

    def _waits_still(self, entry: dict[str, Any]) -> bool:
        """Whether a destination or a budget still waits. One round trip."""
        waiting = self._store.destinations.waiting(entry["sandbox_id"])
        return any(one.digest == entry.get("digest") for one in waiting)

    def _sandbox(self, sandbox_id: SandboxId) -> Subject:
        [sandbox] = self._store.sandboxes.get_many([sandbox_id])
        # The first line is the reason; lines of a log follow.
        return Subject(detail=(sandbox.detail or "").partition("\n")[0]) if sandbox else Subject()

    def _conversation(self, identity: ConversationId, entry: dict[str, Any], state: dict[str, Any]) -> Subject:
        subject = Subject(title=state.get("title") or "", secrets=self._store.conversations.secrets_of(identity))
        if not (action_id := entry.get("action_id")):
            return subject
        try:
            [raw] = self._store.events.get_many(identity, [action_id])
        except (ConversationNotFound, EventsTooLong, StillCold):  # no entry waits for an object of cold storage
            return subject
        event = parse_json(raw) if raw else {}
        arguments = shown_arguments(event.get("action"))
        found = self._store.approvals.index.read_approvals(identity)
        record: dict[str, Any] = next((one for one in found.pending if one["id"] == action_id), {})
        expires = record.get("expires")
        return subject._replace(
            origin=found.origin,
            summary=str(event.get("summary") or ""),
            arguments=arguments,
            seen=seen(event.get("tool_name"), arguments, found.folder).risk if event else "",
            since=record.get("since") or "",
            trace=record.get("trace") or "",
            expires_at=utc_time(Micros(int(expires))) if expires else "",
            digest=record.get("digest") or (action_digest(event.get("tool_name"), arguments) if event else ""),
        )

    def _bodies(self, entry: dict[str, Any], subject: Subject, *, is_over: bool = False) -> list[str]:
        """The body for each target, then for each device. is_over: the subject no longer waits, so no device rings."""
        bodies = [
            body_of(entry, subject, public_url=self._public_url, approval_link=self._link(entry, subject, target))
            for target in self._targets
        ]
        return [*bodies, *("" if is_over else self._ring(entry, subject, device) for device in self._devices)]

    def _link(self, entry: dict[str, Any], subject: Subject, target: SendingTarget) -> str | None:
        """Return a target's one-time link to decide a pending action."""
        if not waits(entry["type"]) or not subject.since:
            return None
        about, (since, deadline) = _about(entry, subject), _times(subject)
        return self._links.make(*about, target.name, since=since, deadline=deadline)

    def _ring(self, entry: dict[str, Any], subject: Subject, device: Device) -> str:
        """Return the message for a device. Empty: nothing waits, or it was decided before the device was added."""
        if not rings(entry["type"]) or (waits(entry["type"]) and not subject.since):
            return ""
        if not waits(entry["type"]) and micros(entry["time"]) < (device.added_at or 0):
            return ""
        token, identity = None, entry.get("conversation_id")
        if waits(entry["type"]) and self._standing.may_decide(device, identity and ConversationId(identity)):
            name, about, (since, deadline) = _name(device), _about(entry, subject), _times(subject)
            token = self._links.token(
                *about, name, since=since, deadline=deadline, device=f"{device.id} {device.owner}"
            )
        return ring_of(entry, subject, shows=device.shows, token=token)


def _about(entry: dict[str, Any], subject: Subject) -> tuple[ConversationId, str, str]:
    """Return the conversation, the action and the digest for a link."""
    if at := subject.destination or (subject.budget and f"{subject.budget}:0"):
        return ConversationId(""), f"{entry['sandbox_id']} {at}", subject.digest
    return ConversationId(entry["conversation_id"]), entry["action_id"], subject.digest


def _times(subject: Subject) -> tuple[Micros, Micros | None]:
    """Return the start of the wait and its deadline, for a link."""
    return micros(subject.since), micros(subject.expires_at) if subject.expires_at else None


def _name(device: Device) -> str:
    """Return the name of a device for the audit."""
    return f"the device {device.label} of {device.name}"


class Notifier:
    """Sends to all targets of the settings, and to all devices. The lease of a killed thread expires."""

    def __init__(
        self,
        store: Store,
        targets: Sequence[SendingTarget],
        mover: OutboxMover,
        sender: NotificationSender,
        standing: DeviceStanding,
        ringer: Rings,
    ) -> None:
        self._store = store
        self._targets = targets
        self._mover = mover
        self._sender = sender
        self._standing = standing
        self._ringer = ringer
        self._rung = threading.Condition()
        self._has_devices = False  #: set by the thread that fills the queues
        self._stop = threading.Event()
        self._queued = {target.id: threading.Event() for target in targets}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Send until the block ends."""
        threads = [threading.Thread(target=self._move, name="outboxes", daemon=True)]
        for number in range(_RINGERS):
            threads.append(threading.Thread(target=self._ring_all, name=f"devices {number}", daemon=True))
        for target in self._targets:
            name = f"notifications {target.id}"
            threads.append(threading.Thread(target=self._send_all, args=(target,), name=name, daemon=True))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._wake()
            for thread in threads:
                thread.join(_DRAIN_TIMEOUT)

    def _wake(self) -> None:
        for event in self._queued.values():
            event.set()
        with self._rung:
            self._rung.notify_all()

    def _move(self) -> None:
        """Fill the queues until the end. Failures are retried."""
        announced: float | None = None
        failures = _Failures("moving entries of the outboxes")
        while not self._stop.is_set():
            found, delay = 0, _OUTBOX_POLL
            try:
                if announced is None or time.monotonic() - announced > _WORD:
                    self._announce(again=announced is None)
                    announced = time.monotonic()
                self._has_devices = self._store.devices.number() > 0
                if self._targets or self._has_devices:
                    found = self._mover.move()
                else:
                    delay = _QUEUE_POLL
                failures.end()
            except Exception as error:
                delay = failures.note(error)
            if found:
                self._wake()
            else:
                self._stop.wait(delay)

    def _announce(self, *, again: bool) -> None:
        """Announce the targets. again: also retry targets that refused further messages."""
        if self._standing.live() or self._targets:
            self._store.notifications.outboxes.want()
        if not self._targets:
            return
        names = {target.id: target.name for target in self._targets}
        for name, number in self._store.notifications.targets.open(names, again=again).items():
            log.warning("notifications: %s is not a target any more, and its %d messages are given up", name, number)

    def _send_all(self, target: SendingTarget) -> None:
        """Empty a target's queue whenever it has messages, until the end."""
        event, failures = self._queued[target.id], _Failures(f"sending to {target.name}")
        while not self._stop.is_set():
            sent = False
            try:
                sent = self.send_next(target)
                failures.end()
            except Exception as error:
                self._stop.wait(failures.note(error))
            if not sent:
                event.wait(_QUEUE_POLL)
                event.clear()

    def send_next(self, target: SendingTarget) -> bool:
        """Send the oldest message of a target, if it is due. Return true if the next message may follow at once."""
        one = self._store.notifications.targets.claim(target.id, uuid4().hex, _LEASE)
        if one is None:
            return False
        with (
            traces.continued(one.trace, "notification", {"agent_server.notification.target": target.name}),
            renewed(lambda: self._store.notifications.targets.renew(one, _LEASE), _LEASE),
        ):
            outcome, reason = self._try(target, one)
            if outcome != "sent":
                traces.fail(outcome)
        came = self._store.notifications.targets.close(one, outcome, reason, again_in=retry_delay(one.failed))
        if came == "given up":
            log.error("notifications: %s never got the message %s, which is given up: %s", target.name, one.id, reason)
        elif came == "gone":
            log.error("notifications: %s gets no more until a supervisor starts again: %s", target.name, reason)
        elif came == "failed" and one.failed == 0:
            log.warning("notifications: %s did not get the message %s yet: %s", target.name, one.id, reason)
        return came in ("sent", "given up")

    def _ring_all(self) -> None:
        """Notify devices with due messages, until the end."""
        failures = _Failures("ringing devices")
        while not self._stop.is_set():
            rung = False
            try:
                rung = self._has_devices and self.ring_next()
                failures.end()
            except Exception as error:
                self._stop.wait(failures.note(error))
            if not rung:
                with self._rung:
                    if not self._stop.is_set():
                        self._rung.wait(_QUEUE_POLL)

    def ring_next(self) -> bool:
        """Send a due message to its device. Return false if there is none."""
        one = self._store.devices.claim(uuid4().hex, _LEASE)
        if one is None:
            return False
        with (
            traces.continued(one.trace, "notification", {"agent_server.notification.target": "device"}),
            renewed(lambda: self._store.notifications.targets.renew(one, _LEASE), _LEASE),
        ):
            outcome, reason = self._try_ring(one)
            if outcome != "sent":
                traces.fail(outcome)
        if outcome == "gone":
            self._store.devices.end([one.target_id])
            log.info("notifications: the device %s ends: %s", one.target_id, reason)
        else:
            self._store.notifications.targets.close(one, outcome, reason, again_in=retry_delay(one.failed))
        return True

    def _try_ring(self, one: Try) -> tuple[str, str]:
        """Return the outcome of an attempt to notify a device, in the form of `_try`."""
        device = self._standing.find(one.target_id)
        if device is None:
            return "gone", "its owner may not use this server any more"
        try:
            self._ringer.send(device, self._store.notifications.targets.body_of(one), one.at)
        except (SecretsRefused, DevicesUnsealed):
            return "lost", "it is sealed with a SECRET_KEY that is not set"
        except TargetGone as error:
            return "gone", str(error)
        except OutOfTime as error:
            return "lost", str(error)
        except NotDelivered as error:
            return "failed", str(error)
        except Exception as error:  # a bug of ours; its text may contain the endpoint
            return "failed" if one.failed < _MOST_UNFORESEEN else "lost", f"unforeseen {type(error).__name__}"
        return "sent", ""

    def _try(self, target: SendingTarget, one: Try) -> tuple[str, str]:
        """Return the outcome of an attempt for `Targets.close`, and its reason."""
        try:
            self._sender.send(target, one.id, self._store.notifications.targets.body_of(one), one.at)
        except SecretsRefused:
            return "lost", "it is sealed with a SECRET_KEY that is not set"
        except TargetGone as error:
            return "gone", str(error)
        except NotDelivered as error:
            return "failed", str(error)
        except Exception as error:  # a bug of ours; its text may contain the URL
            return "failed" if one.failed < _MOST_UNFORESEEN else "lost", f"unforeseen {type(error).__name__}"
        return "sent", ""


def retry_delay(failed: int) -> float:
    """Return the delay of a message's next attempt in seconds. failed: number of failures before the last one."""
    delay: float = min(_LONGEST_RETRY, _FIRST_RETRY * 2 ** min(failed, 20))
    return delay * (1 + _JITTER * random.random())


class _Failures:
    """Failures of a repeated task. A failure that repeats is logged once, until a success."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last = ""
        self._backoff = Backoff(_OUTBOX_POLL, _LONGEST_DELAY)

    def note(self, error: Exception) -> float:
        """Log a failure unless it repeats. Return the delay of the next attempt in seconds."""
        last, self._last = self._last, f"{type(error).__name__}: {error}"
        if self._last != last:
            self._log(error)
        return self._backoff.delay()

    def end(self) -> None:
        self._last = ""
        self._backoff.reset()

    def _log(self, error: Exception) -> None:
        if isinstance(error, UNAVAILABLE):
            log.warning("the store does not answer: %s", error)
        elif isinstance(error, SecretsRefused):
            log.error("notifications wait: they are kept sealed, and the server has no SECRET_KEY")
        else:
            log.error("notifications: %s failed", self._what, exc_info=error)
