"""One subscriber per process: hears what the scripts publish and passes it to whoever watches.

A signal only means that there is something to read. One that is lost costs a moment, never an event: every
POLL_SECONDS, and whenever the connection is new, all watchers are told that they may have missed something.
Only the subscriber's own thread touches its connection; others reach it through a channel of the process.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from redis import Redis
from redis.exceptions import ConnectionError, RedisError

from store.keys import followers_channel

#: takes what was published, or `MAYBE_MISSED`
Hearer = Callable[[bytes], None]

#: told to a watcher when signals may have been lost
MAYBE_MISSED = b""

#: seconds between two looks at what nobody signalled
POLL_SECONDS = 2.0

#: seconds of silence after which the connection counts as dead, and before the next one is tried
_SILENCE, _PAUSE = 3 * POLL_SECONDS, 0.2

_log = logging.getLogger(__name__)


class Signals:
    """What this process watches; the thread starts with the first watcher."""

    def __init__(self, commands: "Redis", subscriber: "Redis") -> None:
        self._commands = commands
        self._subscriber = subscriber
        self._control = followers_channel(uuid4().hex)
        self._lock = threading.Lock()
        self._watched: dict[str, Hearer] = {}
        self._thread: threading.Thread | None = None

    def watch(self, channel: str, hear: Hearer) -> None:
        """Pass everything that is published there to `hear`, beginning with `MAYBE_MISSED`. One watcher a channel."""
        with self._lock:
            known = self._watched.get(channel) == hear
            self._watched[channel] = hear
            if self._thread is None:
                self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
                self._thread.start()
        if not known:
            self._nudge()

    def unwatch(self, channel: str, hear: Hearer) -> None:
        """Stop passing on to `hear`."""
        with self._lock:
            if self._watched.get(channel) == hear:
                del self._watched[channel]

    def _nudge(self) -> None:
        try:
            self._commands.publish(self._control, b"")
        except RedisError:
            _log.debug("the subscriber is not reached; it looks by itself in %s s", POLL_SECONDS)

    def _listen(self) -> None:
        while True:
            try:
                self._subscribe()
            except (RedisError, OSError) as error:
                _log.warning("signals are lost, polling: %s: %s", type(error).__name__, error)
                self._tell_all()
                time.sleep(_PAUSE)

    def _subscribe(self) -> None:
        """Hear until the connection fails."""
        pubsub = self._subscriber.pubsub()
        try:
            pubsub.subscribe(self._control)
            heard = polled = time.monotonic()
            subscribed: set[str] = set()
            while True:
                with self._lock:
                    watched = set(self._watched)
                if new := watched - subscribed:
                    pubsub.subscribe(*new)
                if old := subscribed - watched:
                    pubsub.unsubscribe(*old)
                subscribed = watched
                message = pubsub.get_message(timeout=POLL_SECONDS)
                now = time.monotonic()
                if message is not None:
                    heard = now
                    self._pass_on(message)
                elif now - heard > _SILENCE:
                    raise ConnectionError("the subscriber's connection is silent")
                if now - polled >= POLL_SECONDS:
                    polled = now
                    self._tell_all()
                    self._nudge()
        finally:
            pubsub.close()

    def _pass_on(self, message: dict[str, Any]) -> None:
        with self._lock:
            hear = self._watched.get(message["channel"].decode())
        if hear is not None:
            if message["type"] == "message":
                hear(message["data"])
            elif message["type"] == "subscribe":
                hear(MAYBE_MISSED)

    def _tell_all(self) -> None:
        with self._lock:
            hearers = list(self._watched.values())
        for hear in hearers:
            hear(MAYBE_MISSED)
