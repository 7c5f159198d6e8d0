"""A real HTTP server that takes notifications, and does with each what a test says."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook

from core.access import SettingsKeys
from notifications.devices import DeviceStanding
from store.keys import OUTBOXES
from tests.quick import serve

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@dataclass
class WebhookReceiver:
    """A webhook. `does` has what it does with the next requests: a status, `hang`, `half` or `drip`."""

    port: int
    does: list[int | str] = field(default_factory=list)
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)  #: every request, taken or not
    taken: list[dict] = field(default_factory=list)  #: verified payloads of the requests that it answered with 200
    ids: list[str] = field(default_factory=list)  #: their ids
    ends: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/a-path-that-is-secret"

    @property
    def setting(self) -> str:
        return f"{self.url}|{SECRET}"

    def take(self, headers: dict[str, str], body: bytes) -> None:
        self.taken.append(Webhook(SECRET).verify(body, headers))
        self.ids.append(headers["webhook-id"])


class _WebhookHandler(BaseHTTPRequestHandler):
    receiver: WebhookReceiver
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        one = self.receiver
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers["content-length"]))
        one.received.append((headers, body))
        does = one.does.pop(0) if one.does else 200
        self.close_connection = True
        if isinstance(does, int):
            if does == 200:
                one.take(headers, body)
            self.send_response(does)
            self.send_header("Location", f"http://127.0.0.1:{one.port}/elsewhere")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")
        elif does == "hang":
            one.ends.wait(60)
        elif does == "half":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok")
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        elif does == "drip":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
            with contextlib.suppress(OSError):
                while not one.ends.wait(0.02):
                    self.wfile.write(b".")
                    self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


class _WebhookServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        pass  # the other side gave up, as the tests want


@contextlib.contextmanager
def receiver(
    port: int = 0, context: ssl.SSLContext | None = None, kind: type[WebhookReceiver] = WebhookReceiver
) -> Iterator[WebhookReceiver]:
    """A webhook, or another kind of receiver, on a real socket. context: of its TLS."""
    handler = type("Handler", (_WebhookHandler,), {})
    server = _WebhookServer(("127.0.0.1", port), handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    one = handler.receiver = kind(server.server_address[1])
    thread = serve(server)
    try:
        yield one
    finally:
        one.ends.set()
        server.shutdown()
        server.server_close()
        thread.join()


def forget_notifications(store) -> None:
    """Empty all queues and outboxes; nothing is pushed until a supervisor says that it has targets."""
    redis = store.notifications.targets._redis
    for pattern in ("{notify}*", "*:outbox*"):
        for key in redis.scan_iter(pattern):
            redis.delete(key)


def push(store, outbox: str, *entries: dict) -> None:
    """Push entries as a script does."""
    for entry in entries:
        store.notifications.outboxes._redis.rpush(OUTBOXES[outbox], json.dumps(entry))


def entry(number: int, kind: str = "action.decided", **members) -> dict:
    """An entry of an outbox, of a conversation that is gone."""
    identity = f"00000000-0000-4000-8000-{number:012}"
    return {
        "id": f"msg_{identity}",
        "type": kind,
        "time": "2026-11-20T20:37:22.528416Z",
        "conversation_id": identity,
        "action_id": "an-action",
        "tool": "terminal",
        "risk": "HIGH",
        **members,
    }


def standing_of(store) -> DeviceStanding:
    """Which devices ring, of a server that needs no key."""
    return DeviceStanding(store, SettingsKeys(()), lambda: True)
