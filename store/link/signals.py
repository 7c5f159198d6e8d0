"""Signals: publications of the scripts that wake the watchers of this process, and the supervisors.

A signal means that there may be something to read. A lost signal only delays an event: every POLL_SECONDS, and after
every new connection, all watchers get `MAYBE_MISSED` and read. Only the subscriber's own thread uses its connection;
other threads wake it through a channel of the process.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import uuid4

from redis.exceptions import ConnectionError

from store.errors import UNAVAILABLE, HostSilent
from store.keys import SandboxKeys, StartKeys, followers_channel
from store.link.commands import Redis, Subscription

#: Receives a signal, or `MAYBE_MISSED`, in the subscriber's thread.
Watcher = Callable[[bytes], None]

#: Passed to a watcher when signals may have been lost.
MAYBE_MISSED = b""

#: Seconds after which a watcher reads without a signal.
POLL_SECONDS = 2.0

#: Seconds of silence after which the connection counts as dead.
_SILENCE_TIMEOUT = 3 * POLL_SECONDS

#: Seconds before the connection is retried, and timeout for the confirmation of a subscription.
_RETRY_DELAY, _SUBSCRIBE_TIMEOUT = 0.2, 1.0

#: Seconds between two polls for a reply, and for which a reply is kept.
_POLL, _REPLY_KEPT = 0.02, 10

_log = logging.getLogger(__name__)


class Signals:
    """The watchers of this process. The subscriber's thread starts with the first watcher and ends with the process."""

    def __init__(self, commands: Redis, subscriber: Redis) -> None:
        self._commands = commands
        self._subscriber = subscriber
        self._control = followers_channel(uuid4().hex)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._watched: dict[str, Watcher] = {}
        self._confirmed: set[str] = set()  #: channels whose signals reach this process
        self._thread: threading.Thread | None = None
        self._lost = False

    def watch(self, channel: str, watcher: Watcher) -> None:
        """Pass every signal of a channel to `watcher`, and `MAYBE_MISSED` first. A channel has one watcher.

        Returns when Redis has confirmed the subscription, after which no signal is missed, or after a second.
        """
        with self._lock:
            known = self._watched.get(channel) == watcher
            self._watched[channel] = watcher
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
                self._thread.start()
        if not known:
            self._wake()
        with self._changed:
            self._changed.wait_for(lambda: channel in self._confirmed, _SUBSCRIBE_TIMEOUT)

    def unwatch(self, channel: str, watcher: Watcher) -> None:
        """Stop passing signals to `watcher`, unless another watcher has replaced it."""
        with self._lock:
            if self._watched.get(channel) == watcher:
                del self._watched[channel]

    def _wake(self) -> None:
        """Let the subscriber's thread compare its subscriptions with the watchers at once."""
        try:
            self._commands.publish(self._control, b"")
        except UNAVAILABLE:
            _log.debug("the subscriber is not reached; it wakes by itself within %s s", POLL_SECONDS)

    def _listen(self) -> None:
        while True:
            try:
                self._subscribe()
            except Exception as error:  # nothing restarts this thread
                if not self._lost:
                    _log.warning("signals are lost, polling: %s: %s", type(error).__name__, error)
                self._lost = True
                self._pass_to_all()
                time.sleep(_RETRY_DELAY)

    def _subscribe(self) -> None:
        """Receive signals until the connection fails."""
        pubsub = self._subscriber.pubsub()
        with self._lock:
            self._confirmed.clear()
        try:
            pubsub.subscribe(self._control)
            received = polled = time.monotonic()
            subscribed: set[str] = set()
            while True:
                with self._lock:
                    watched = set(self._watched)
                    self._confirmed &= watched
                if new := watched - subscribed:
                    pubsub.subscribe(*new)
                if old := subscribed - watched:
                    pubsub.unsubscribe(*old)
                subscribed = watched
                message = pubsub.get_message(timeout=POLL_SECONDS)
                now = time.monotonic()
                if message is not None:
                    received, self._lost = now, False
                    self._pass_on(message)
                elif now - received > _SILENCE_TIMEOUT:
                    raise ConnectionError("the subscriber's connection is silent")
                if now - polled >= POLL_SECONDS:
                    polled = now
                    self._pass_to_all()
                    self._wake()
        finally:
            pubsub.close()

    def _pass_on(self, message: dict[str, Any]) -> None:
        channel = message["channel"].decode()
        with self._changed:
            watcher = self._watched.get(channel)
            if message["type"] == "subscribe":
                self._confirmed.add(channel)
                self._changed.notify_all()
        if watcher is not None:
            if message["type"] == "message":
                watcher(message["data"])
            elif message["type"] == "subscribe":
                watcher(MAYBE_MISSED)

    def _pass_to_all(self) -> None:
        with self._lock:
            watchers = list(self._watched.values())
        for watcher in watchers:
            watcher(MAYBE_MISSED)


class SupervisorRequest(NamedTuple):
    """A request of a worker to the supervisor that has a sandbox: for its log, its files, or its archive."""

    verb: str
    sandbox_id: str
    details: dict[str, Any]


class Woken(NamedTuple):
    """The signals that one wait received."""

    requests: list[SupervisorRequest]
    sandboxes: set[str]  #: ids of sandboxes with processes whose desired state a client has changed
    others: bool  #: a sandbox is to start, or an unnamed one has changed


def ask_supervisors(redis: Redis, verb: str, sandbox_id: str, **details: Any) -> None:
    """Send a request to every supervisor. The supervisor that has the sandbox serves it.

    Lost requests are not retried.
    """
    redis.publish(SandboxKeys.signal, json.dumps(SupervisorRequest(verb, sandbox_id, details)))


def answered(redis: Redis, seconds: float, verb: str, sandbox_id: str, **details: object) -> bytes:
    """Return the reply of the supervisor that has a sandbox. Raises HostSilent on timeout, in seconds."""
    reply = SandboxKeys.reply(str(uuid4()))
    ask_supervisors(redis, verb, sandbox_id, reply=reply, **details)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = redis.lpop(reply)
        if found is not None:
            return bytes(found)
        time.sleep(_POLL)
    raise HostSilent(seconds)


def answer(redis: Redis, reply: str, data: bytes) -> None:
    """Reply to a worker that waits in `answered`."""
    transaction = redis.pipeline()
    transaction.delete(reply)  # a repeat adds nothing
    transaction.rpush(reply, data)
    transaction.expire(reply, _REPLY_KEPT)
    transaction.execute()


class Wakeups:
    """The subscription of one supervisor. Limitation: a lost signal delays its work until the next poll."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._subscription: Subscription | None = None

    def wait(self, seconds: float) -> Woken:
        """Wait for a signal until the timeout, in seconds. Start tasks and queued messages also send unnamed signals.

        Raises one of UNAVAILABLE; call `close` before the next wait then.
        """
        if self._subscription is None:
            subscription = self._redis.pubsub()
            subscription.subscribe(SandboxKeys.signal, StartKeys.signal)
            self._subscription = subscription
        woken, timeout = Woken([], set(), False), seconds
        while (message := self._subscription.get_message(timeout=timeout)) is not None:
            timeout = 0.0
            if message["type"] != "message" or message["channel"].decode() != SandboxKeys.signal:
                continue
            if message["data"].startswith(b"["):
                woken.requests.append(SupervisorRequest(*json.loads(message["data"])))
            elif message["data"]:
                woken.sandboxes.add(message["data"].decode())
            else:
                woken = woken._replace(others=True)
        return woken

    def close(self) -> None:
        """End the subscription. The next wait begins a new one."""
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            subscription.close()
