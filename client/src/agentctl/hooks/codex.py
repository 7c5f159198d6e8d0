"""Codex's app server: a second client of a terminal's session, which may answer what the terminal asks.

Codex runs a hook before its own question and waits for it. So the hook ends at once without an answer. The process that
it leaves behind gets the question from the app server, asks the inbox, and answers. The first answer wins. The app
server is experimental: where it is missing, or does not know the session, `joined` returns None, and the hook waits.
"""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from agentctl.hooks.agents import Json

#: Seconds for the app server to answer.
_ANSWER = 3.0

#: Maximum number of bytes of a message.
_MESSAGE_BYTES = 64 << 20


class CodexSession:
    """A session of Codex that its app server shares: JSON-RPC in WebSocket frames on a Unix socket."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_ANSWER)
        self._socket.connect(path)
        key = "dGhlIHNhbXBsZSBub25jZQ=="
        head = f"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
        self._socket.sendall(f"GET / HTTP/1.1\r\n{head}Sec-WebSocket-Version: 13\r\n\r\n".encode())
        self._read = b""
        while b"\r\n\r\n" not in self._read:
            self._more(None)
        self._read = self._read.partition(b"\r\n\r\n")[2]

    def send(self, **message: Any) -> None:
        """Send a message."""
        self._frame(0x81, json.dumps(message).encode())

    def receive(self, deadline: float | None = None) -> dict[str, Any] | None:
        """Return the next message; None at the deadline of time.monotonic(). Raises OSError and ValueError."""
        text = b""
        while True:
            if not self._fill(2, deadline):
                return None
            first, size = self._read[0], self._read[1] & 127
            head = {126: 4, 127: 10}.get(size, 2)
            if not self._fill(head, deadline):
                return None
            size = int.from_bytes(self._read[2:head]) if head > 2 else size
            if size > _MESSAGE_BYTES:
                raise OSError("a message of the app server is too large")
            if not self._fill(head + size, deadline):
                return None
            data, self._read = self._read[head : head + size], self._read[head + size :]
            kind = first & 15
            if kind == 8:
                raise OSError("the app server has closed")
            if kind == 9:
                self._frame(0x8A, data)
            elif kind < 3:
                text += data
                if first & 128:
                    return dict(json.loads(text))

    def result(self, number: int, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its result; empty for an error and without an answer."""
        self.send(id=number, method=method, params=params)
        deadline = time.monotonic() + _ANSWER
        while message := self.receive(deadline):
            if message.get("id") == number and "method" not in message:
                return message.get("result") or {}
        return {}

    def _frame(self, first: int, data: bytes) -> None:
        size = len(data)
        length = bytes([128 | size]) if size < 126 else bytes([254]) + size.to_bytes(2)
        length = bytes([255]) + size.to_bytes(8) if size > 0xFFFF else length
        self._socket.sendall(bytes([first]) + length + bytes(4) + data)  # masked by zeros: it stays on this machine

    def _fill(self, size: int, deadline: float | None) -> bool:
        while len(self._read) < size:
            if not self._more(deadline):
                return False
        return True

    def _more(self, deadline: float | None) -> bool:
        self._socket.settimeout(None if deadline is None else max(0.01, deadline - time.monotonic()))
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            return False
        if not data:
            raise OSError("the app server has closed")
        self._read += data
        return True


def joined(event: Json) -> CodexSession | None:
    """Return the session of an event as the app server shares it, or None."""
    home = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    path = str((home / "app-server-control/app-server-control.sock").resolve())
    try:
        session = CodexSession(path)
        info = {"name": "agentctl", "title": "Inbox", "version": "1"}
        if not session.result(1, "initialize", clientInfo=info, capabilities={"experimentalApi": True}):
            return None
        session.send(method="initialized")
        loaded = session.result(2, "thread/loaded/list").get("data") or []
    except (OSError, ValueError):
        return None
    return session if event.get("session_id") in loaded else None
