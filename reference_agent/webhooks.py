"""The webhook client of the reference agent."""

import queue
import sys
import threading
import time
from typing import Any

import httpx

from core.cuts import beginning


class Webhooks:
    """Posts events and changes in order, and retries each until the webhook takes it.

    Limitation: the queue is in memory. A server whose agent was killed reads the rest from GET …/events/search.
    """

    def __init__(self, base_url: str, headers: dict[str, str]) -> None:
        self._waiting: queue.Queue[tuple[str, Any, bool]] = queue.Queue()
        self._base_url = base_url
        self._client = httpx.Client(headers=headers, timeout=30, trust_env=False)
        if base_url:
            threading.Thread(target=self._send, daemon=True).start()

    def put(self, path: str, body: Any, *, is_kept: bool = True) -> None:
        """Post a body. is_kept: False for what is worth nothing later, which is posted once."""
        if self._base_url:
            self._waiting.put((path, body, is_kept))

    def flush(self, seconds: float) -> None:
        """Wait until the webhook has taken everything, at most so many seconds."""
        deadline = time.monotonic() + seconds
        while self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.01)

    def _send(self) -> None:
        while True:
            path, body, is_kept = self._waiting.get()
            pause = 0.1
            while not self._is_taken(path, body) and is_kept:
                time.sleep(pause)
                pause = min(2 * pause, 5.0)
            self._waiting.task_done()

    def _is_taken(self, path: str, body: Any) -> bool:
        """True if the webhook took the body, or refused it for good: then it is not posted again."""
        try:
            response = self._client.post(self._base_url + path, json=body)
        except httpx.HTTPError as error:
            print(f"webhook: {error}", file=sys.stderr)
            return False
        if not response.is_success:
            print(f"webhook: {path} {response.status_code} {beginning(response.text, 300)}", file=sys.stderr)
        return response.status_code < 500 and response.status_code not in (408, 429)
