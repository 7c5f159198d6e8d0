"""A model that needs no model: an OpenAI-compatible endpoint on a real socket, which streams what a test says.

Each request takes the next reply of `script`; with the script at its end the model calls `finish`. Where `react` is set
it makes the reply from the request instead.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

from tests.quick import serve
from tests.servers import TIMEOUT

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 10,
    "total_tokens": 110,
    "prompt_tokens_details": {"cached_tokens": 40},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


@dataclass
class ScriptedReply:
    """A response. An Event among the parts stands for a wait until the test sets it."""

    parts: list[bytes | threading.Event] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/event-stream"})
    is_cut: bool = False  #: the connection ends in the middle


class ScriptedModel(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ScriptedModelHandler)
        self.script: list[ScriptedReply] = []
        self.react: Callable[[dict[str, Any]], ScriptedReply] | None = None
        self.asked: list[dict[str, Any]] = []  #: the bodies of the requests
        self.keys: list[str] = []
        serve(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def told(self, role: str) -> list[str]:
        """The texts of that role in the last request."""
        return [message["content"] for message in self.asked[-1]["messages"] if message["role"] == role]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that hangs up: tests kill it."""


class ScriptedModelHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.keys.append(self.headers["Authorization"])
        self.server.asked.append(body)
        if self.server.react:
            reply = self.server.react(body)
        else:
            reply = self.server.script.pop(0) if self.server.script else calls(finish())
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in reply.parts:
            if isinstance(part, threading.Event):
                part.wait(TIMEOUT)
            else:
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        if reply.is_cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def scripted_model() -> Iterator[ScriptedModel]:
    model = ScriptedModel()
    try:
        yield model
    finally:
        model.shutdown()
        model.server_close()


def sse(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def chunk(delta: dict[str, Any], identity: str = "", **choice: Any) -> bytes:
    head = {"id": identity, "object": "chat.completion.chunk", "created": int(time.time()), "model": "scripted"}
    return sse({**head, "choices": [{"index": 0, "delta": delta, **choice}]})


def ending(reason: str, usage: dict[str, Any] | None = USAGE) -> list[bytes]:
    last = [sse({"id": "", "choices": [], "usage": usage})] if usage else []
    return [chunk({}, finish_reason=reason), *last, sse(b"[DONE]")]


def text(said: str, *, usage: dict[str, Any] | None = USAGE, reasoning: str = "") -> ScriptedReply:
    """A message, word by word."""
    identity = f"chatcmpl-{uuid4().hex}"
    thought = [chunk({"role": "assistant", "reasoning_content": reasoning}, identity)] if reasoning else []
    words = [chunk({"content": word}, identity) for word in said.split(" ") if word]
    spaced = [word for each in words for word in (each, chunk({"content": " "}, identity))][:-1]
    return ScriptedReply([*thought, *spaced, *ending("stop", usage)])


def calls(*made: tuple[str, Any], said: str = "", usage: dict[str, Any] | None = USAGE) -> ScriptedReply:
    """Calls of tools, by name and arguments; text instead of arguments is sent as it is, in two parts."""
    identity = f"chatcmpl-{uuid4().hex}"
    parts = [chunk({"role": "assistant", "content": said}, identity)]
    for index, (name, arguments) in enumerate(made):
        words = arguments if isinstance(arguments, str) else json.dumps(arguments)
        head = {"index": index, "id": f"call_{uuid4().hex[:8]}", "type": "function"}
        half = len(words) // 2
        parts.append(chunk({"tool_calls": [{**head, "function": {"name": name, "arguments": words[:half]}}]}, identity))
        parts.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": words[half:]}}]}, identity))
    return ScriptedReply([*parts, *ending("tool_calls", usage)])


def run(command: str, risk: str = "LOW", **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "terminal", {"command": command, "security_risk": risk, "summary": f"run {command}", **arguments}


def edit(command: str, path: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    rating = {"security_risk": "LOW", "summary": f"{command} {path}"}
    return "file_editor", {"command": command, "path": path, **arguments, **rating}


def finish(message: str = "done") -> tuple[str, dict[str, Any]]:
    return "finish", {"message": message}


def refusal(status: int, message: str, code: str | None = None, **headers: str) -> ScriptedReply:
    body = json.dumps({"error": {"message": message, "type": "error", "code": code}}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ScriptedReply([body], status, {"Content-Type": "application/json", **named})


def completion(message: dict[str, Any]) -> ScriptedReply:
    """A completion that is not streamed, though a stream was asked for."""
    body = {"id": uuid4().hex, "object": "chat.completion", "choices": [{"index": 0, "message": message}]}
    return ScriptedReply([json.dumps({**body, "usage": USAGE}).encode()], headers={"Content-Type": "application/json"})
