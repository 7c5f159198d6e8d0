"""A client of MCP servers: programs that speak over their standard input and output, and servers over HTTP.

Only tools are used: a list at the first use of a server, and calls. HTTP goes by the way out of the sandbox.
Source: https://modelcontextprotocol.io/specification/2025-06-18. Why no library: docs/decisions.md.
Limitation: no OAuth, and a list of tools that changes is not read again.
"""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from core.cuts import beginning, head_and_tail
from core.masking import credentials_in
from reference_agent.events import Event, parts
from reference_agent.tools import MCP, Tool

VERSION = "2025-06-18"
#: seconds for the start of a server and the list of its tools, and the least for a call
START_SECONDS, CALL_SECONDS = 30.0, 120.0
#: maximum number of tools of a server, length of a description in characters, and size of one message in bytes
MOST_TOOLS, MOST_DESCRIPTION, MOST_MESSAGE = 128, 2_000, 8 << 20
#: maximum length of the text of a result and of an image, number of images, and length of an error, in characters
MOST_RESULT, MOST_IMAGES, _MOST_ERROR = 100_000, 4, 500
Message = dict[str, Any]


class McpError(Exception):
    """The server does not do what it was asked; the message is a sentence."""


class Server:
    """One MCP server, which is started when it is first used. Not thread-safe, but for `close`."""

    def __init__(self, name: str, given: dict[str, Any], folder: Path) -> None:
        self.name, self._given, self._folder = name, given, folder
        seconds = given.get("timeout")
        self._seconds = max(CALL_SECONDS, seconds) if isinstance(seconds, int | float) else CALL_SECONDS
        self._link: _Program | _Http | None = None
        self._number = 0
        #: what nobody shall read: its headers, and credentials among its variables and arguments
        self.secrets = [*(value.removeprefix("Bearer ") for value in _headers(given).values()), *credentials_in(given)]

    def tools(self) -> dict[str, Tool]:
        found = dict[str, Tool]()
        cursor: Message | None = {}
        while cursor is not None and len(found) < MOST_TOOLS:
            page = self._ask("tools/list", cursor, START_SECONDS)
            for one in page.get("tools") or []:
                found[str(one["name"])] = _tool(one)
            cursor = {"cursor": page["nextCursor"]} if page.get("nextCursor") else None
        return found

    def call(self, tool: str, arguments: dict[str, Any]) -> tuple[list[Event], bool]:
        """Return the content of a tool's answer, and whether it is an error. Raises McpError."""
        answer = self._ask("tools/call", {"name": tool, "arguments": arguments}, self._seconds)
        blocks = answer.get("content")
        content = [_part(block) for block in blocks if isinstance(block, dict)] if isinstance(blocks, list) else []
        text = head_and_tail("\n".join(part["text"] for part in content if "text" in part), MOST_RESULT)
        images = [part for part in content if "image_urls" in part][:MOST_IMAGES]
        return [*parts(text), *images], answer.get("isError") is True

    def close(self) -> None:
        link, self._link = self._link, None
        if link:
            link.close()

    def _connect(self) -> None:
        if self._given.get("url"):
            self._link = _Http(self._given)
        elif self._given.get("command"):
            self._link = _Program(self._given, self._folder)
        else:
            raise McpError("its settings name no command and no URL, or were not kept when the agent server restarted")
        hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "agent-server", "version": "1"}}
        self._ask("initialize", hello, START_SECONDS)
        self._link.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _ask(self, method: str, params: Message, seconds: float) -> Message:
        try:
            if self._link is None:
                self._connect()
            assert self._link is not None
            self._number += 1
            request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
            response = self._link.ask(request, seconds)
        except McpError:
            self.close()
            raise
        if not isinstance(result := response.get("result"), dict):
            error = response.get("error")
            raise McpError(beginning(str(error.get("message") if isinstance(error, dict) else error), _MOST_ERROR))
        return result


class _Program:
    def __init__(self, given: dict[str, Any], folder: Path) -> None:
        arguments = given.get("args")
        words = [str(given["command"]), *map(str, arguments if isinstance(arguments, list) else [])]
        self._responses: dict[Any, queue.SimpleQueue[Message | None]] = {}
        self._lock = threading.Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the program
        try:
            self._process = subprocess.Popen(
                words,
                cwd=given.get("cwd") or folder,
                env={**os.environ, **_texts(given.get("env"))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise McpError(f"{words[0]} cannot be started: {error}") from None
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, message: Message, seconds: float) -> Message:
        waiting = self._responses[message["id"]] = queue.SimpleQueue()
        try:
            self.tell(message)
            response = waiting.get(timeout=seconds)
        except queue.Empty:
            raise McpError(f"it does not answer within {seconds:g} s") from None
        finally:
            self._responses.pop(message["id"], None)
        if response is None:
            raise McpError(self._last_words())
        return response

    def tell(self, message: Message) -> None:
        assert self._process.stdin is not None
        try:
            with self._lock:
                self._process.stdin.write(json.dumps(message).encode() + b"\n")
                self._process.stdin.flush()
        except (OSError, ValueError):
            raise McpError(self._last_words()) from None

    def close(self) -> None:
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self._errors.seek(max(self._errors.seek(0, os.SEEK_END) - _MOST_ERROR, 0))
        said = " ".join(self._errors.read().decode(errors="replace").split())
        return f"its program ended with exit code {self._process.poll()}" + (f": {said}" if said else "")

    def _read(self) -> None:
        """Hand each response to whoever waits for it, until the program ends. A server's own request is refused."""
        assert self._process.stdout is not None
        while raw := self._process.stdout.readline(MOST_MESSAGE):
            with suppress(ValueError, RecursionError, McpError):
                match message := json.loads(raw):
                    case {"method": "ping", "id": number}:
                        self.tell({"jsonrpc": "2.0", "id": number, "result": {}})
                    case {"method": _, "id": number}:
                        error = {"code": -32601, "message": "Method not found"}
                        self.tell({"jsonrpc": "2.0", "id": number, "error": error})
                    case {"id": int(number)} if waiting := self._responses.get(number):
                        waiting.put(message)
        for waiting in [*self._responses.values()]:
            waiting.put(None)


class _Http:
    """A server over HTTP, by the "streamable HTTP" of the specification."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._url = str(given["url"])
        accepted = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": VERSION}
        self._client = httpx.Client(headers={**_headers(given), **accepted}, follow_redirects=True)

    def ask(self, message: Message, seconds: float) -> Message:
        for answer in self._post(message, seconds):
            if isinstance(answer, dict) and answer.get("id") == message["id"] and "method" not in answer:
                return answer
        raise McpError("its response has no answer")

    def tell(self, message: Message) -> None:
        for _ in self._post(message, START_SECONDS):
            pass

    def close(self) -> None:
        self._client.close()

    def _post(self, message: Message, seconds: float) -> Iterator[Any]:
        """The messages of the response to a POST: JSON, or the data of server-sent events."""
        try:
            with self._client.stream("POST", self._url, json=message, timeout=seconds) as response:
                if session := response.headers.get("mcp-session-id"):
                    self._client.headers["mcp-session-id"] = session
                if not response.is_success:
                    response.read()
                    raise McpError(f"status {response.status_code}: {beginning(response.text, _MOST_ERROR)}")
                is_stream, size, rest = "event-stream" in response.headers.get("content-type", ""), 0, ""
                for part in response.iter_text():
                    size += len(part)
                    if size > MOST_MESSAGE:
                        raise McpError(f"its response has more than {MOST_MESSAGE:,} characters")
                    *whole, rest = (rest + part).replace("\r\n", "\n").split("\n\n") if is_stream else (rest + part,)
                    yield from filter(None, map(_data, whole))
                if last := _data(rest) if is_stream else rest and json.loads(rest):
                    yield last
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, RuntimeError, ValueError) as error:
            raise McpError(f"{self._url}: {beginning(str(error) or type(error).__name__, _MOST_ERROR)}") from None


def _data(event: str) -> Any:
    data = "\n".join(line[5:] for line in event.split("\n") if line.startswith("data:")).strip()
    return json.loads(data) if data else None


def _tool(one: dict[str, Any]) -> Tool:
    schema = one["inputSchema"] if isinstance(one.get("inputSchema"), dict) else {}
    described = beginning(str(one.get("description") or one["name"]), MOST_DESCRIPTION)
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    return Tool(MCP, described, dict(properties), tuple(map(str, required)), schema=schema)


def _part(block: dict[str, Any]) -> Event:
    match block:
        case {"type": "image", "data": str(data), "mimeType": str(kind)} if len(data) <= MOST_RESULT:
            return {"type": "image", "image_urls": [f"data:{kind};base64,{data}"]}
        case {"text": str(text)} | {"resource": {"text": str(text)}} | {"type": "resource_link", "uri": str(text)}:
            return {"type": "text", "text": text}
    return {"type": "text", "text": f"({block.get('type')}, which is not shown)"}


def _headers(given: dict[str, Any]) -> dict[str, str]:
    """The headers of a server, and the one that its `auth` stands for."""
    headers = _texts(given.get("headers"))
    match given.get("auth"):
        case {"strategy": "header", "headers": dict(more)}:
            return {**headers, **_texts(more)}
        case {"strategy": "api_key", "value": str(value), "header_name": str(name)} if name:
            return {**headers, name: value}
        case {"strategy": "bearer" | "api_key", "value": str(value)} | str(value) if value not in ("", "oauth"):
            return {**headers, "Authorization": f"Bearer {value}"}
    return headers


def _texts(given: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}
