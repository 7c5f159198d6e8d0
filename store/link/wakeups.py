"""The signals that wake a supervisor: a client wants to change a sandbox or to read from it, a start task waits."""

import json
from typing import Any, NamedTuple

from redis import Redis
from redis.client import PubSub

from store.keys import SandboxKeys, StartKeys


class Request(NamedTuple):
    """What a worker asks the supervisor that has a sandbox: its log, its files, or its archive."""

    verb: str
    sandbox_id: str
    details: dict[str, Any]


class Woken(NamedTuple):
    """What the signals of one wait were about."""

    requests: list[Request]
    sandboxes: set[str]  #: ids of those with processes whose desired state a client has changed
    others: bool  #: a sandbox is to start, or one that is not named has changed


def ask_supervisors(redis: "Redis", verb: str, sandbox_id: str, **details: Any) -> None:
    """Send a request to every supervisor; the one that has the sandbox serves it. A lost one is not sent again."""
    redis.publish(SandboxKeys.signal, json.dumps(Request(verb, sandbox_id, details)))


class Wakeups:
    """The subscription of one supervisor. Limitation: a lost signal delays its work until the next poll."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis
        self._subscription: PubSub | None = None

    def wait(self, seconds: float) -> Woken:
        """Wait for a signal, at most so long; for a start task or a queue of messages too, which it does not name.

        Raises one of UNAVAILABLE; then `close` before the next wait.
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
                woken.requests.append(Request(*json.loads(message["data"])))
            elif message["data"]:
                woken.sandboxes.add(message["data"].decode())
            else:
                woken = woken._replace(others=True)
        return woken

    def close(self) -> None:
        """End the subscription; the next wait begins a new one."""
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            subscription.close()
