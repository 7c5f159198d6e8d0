"""Wake-ups of a supervisor: a client wants something of a sandbox, or a start task waits."""

import json
from typing import Any

from redis import Redis
from redis.client import PubSub

from store.keys import SandboxKeys, StartKeys


class Wakeups:
    """One process's subscription. A lost wake-up costs the time until the next poll, and nothing else."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis
        self._subscription: PubSub | None = None

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Wait for a wake-up, or so long; returns the requests for logs among them: {log: sandbox id, tail, reply}."""
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
        """End the subscription; the next wait subscribes again."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
