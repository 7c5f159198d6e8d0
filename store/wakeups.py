"""What wakes a supervisor: word that something is wanted of a sandbox, or that a start waits."""

import json
from typing import Any

from redis import Redis
from redis.client import PubSub

from store.keys import SandboxKeys, StartKeys


class Wakeups:
    """One process's ear. A word that is lost costs time and nothing else."""

    def __init__(self, redis: "Redis") -> None:
        self._redis = redis
        self._subscription: PubSub | None = None

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Wait for word, or so long; the requests for logs among it: {log: sandbox id, tail, reply}."""
        if self._subscription is None:
            subscription = self._redis.pubsub()
            subscription.subscribe(SandboxKeys.signal, StartKeys.signal)
            self._subscription = subscription
        requests, patience = [], seconds
        while (message := self._subscription.get_message(timeout=patience)) is not None:
            patience = 0.0
            if message["type"] == "message" and message["data"].startswith(b"{"):
                requests.append(json.loads(message["data"]))
        return requests

    def close(self) -> None:
        """Hear no more until the next wait."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
