"""The signals that wake a supervisor: a client wants to change a sandbox, or a start task waits for a driver."""

import json
from typing import Any

from redis import Redis
from redis.client import PubSub

from store.keys import SandboxKeys, StartKeys


class Wakeups:
    """The subscription of one supervisor. Limitation: a lost signal delays its work until the next poll."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis
        self._subscription: PubSub | None = None

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Wait for a signal, at most so long. Returns the requests for logs: {log: sandbox id, tail, reply}.

        Raises one of UNAVAILABLE; then `close` before the next wait.
        """
        if self._subscription is None:
            subscription = self._redis.pubsub()
            subscription.subscribe(SandboxKeys.signal, StartKeys.signal)
            self._subscription = subscription
        requests, timeout = [], seconds
        while (message := self._subscription.get_message(timeout=timeout)) is not None:
            timeout = 0.0
            if message["type"] == "message" and message["data"].startswith(b"{"):
                requests.append(json.loads(message["data"]))
        return requests

    def close(self) -> None:
        """End the subscription; the next wait begins a new one."""
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            subscription.close()
