"""The milliseconds from a request that makes an action wait to the first byte of its notification at a webhook."""

import json
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median, quantiles
from typing import Any
from uuid import uuid4

import httpx

from bench import servers
from bench.measure import Effort, Row

#: seconds until a notification counts as lost, and between two actions, so that polls are met at any phase
_TIMEOUT, _PAUSE = 30.0, 0.13


class _Webhook(BaseHTTPRequestHandler):
    arrived: dict[str, float]  #: action id → when its notification came

    def do_POST(self) -> None:
        at = time.perf_counter()
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.arrived.setdefault(payload["data"]["action_id"], at)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def rows(effort: Effort) -> list[Row]:
    """Let actions wait one after the other, on a server with one worker, a supervisor and one webhook."""
    arrived: dict[str, float] = {}
    webhook = ThreadingHTTPServer(("127.0.0.1", 0), type("Webhook", (_Webhook,), {"arrived": arrived}))
    threading.Thread(target=webhook.serve_forever, daemon=True).start()
    settings = {
        "SUPERVISOR": "1",
        "NOTIFY_WEBHOOKS": f"http://127.0.0.1:{webhook.server_address[1]}/|whsec_{'A' * 32}",
        "NOTIFY_EVENTS": "action.pending",
        "NOTIFY_PRIVATE": "1",
    }
    try:
        with (
            tempfile.TemporaryDirectory(prefix="bench-notifications-") as folder,
            servers.redis_server() as url,
            servers.gunicorn("app:create_app()", url, 1, DATA_DIR=folder, **settings) as port,
            httpx.Client(base_url=f"http://127.0.0.1:{port}/api", timeout=30) as client,
        ):
            _first_try(client, arrived)  # the supervisor is there, everything is loaded
            seconds = [_first_try(client, arrived) for _ in range(effort.notifications)]
    finally:
        webhook.shutdown()
        webhook.server_close()
    p99 = quantiles(seconds, n=100)[98] if len(seconds) > 1 else seconds[0]
    return [
        Row(
            "a notification: request that makes an action wait to its first try at a webhook, p99",
            1000 * p99,
            " ms",
            f"median {1000 * median(seconds):.0f} ms, largest {1000 * max(seconds):.0f} ms of {len(seconds)}",
            most=1000,
            raw={"ours": seconds, "unit": "s"},
        )
    ]


def _first_try(client: httpx.Client, arrived: dict[str, float]) -> float:
    """Seconds from a request to the notification of its action. Raises RuntimeError if that never comes."""
    identity = client.post("/conversations", json={}).raise_for_status().json()["id"]
    policy = {"policy": {"kind": "AlwaysConfirm"}}
    client.post(f"/conversations/{identity}/confirmation_policy", json=policy).raise_for_status()
    action = {
        "id": str(uuid4()),
        "timestamp": "2026-11-20T20:37:22.528416",
        "source": "agent",
        "kind": "ActionEvent",
        "action": {"command": "ls", "kind": "TerminalAction"},
        "tool_name": "terminal",
        "tool_call_id": "call",
        "llm_response_id": str(uuid4()),
    }
    time.sleep(_PAUSE)
    start = time.perf_counter()
    client.post(f"/v1/webhooks/events/{identity}", json=[action]).raise_for_status()
    while action["id"] not in arrived:
        if time.perf_counter() - start > _TIMEOUT:
            raise RuntimeError("notifications: one did not arrive in time")
        time.sleep(0.001)
    return arrived[str(action["id"])] - start
