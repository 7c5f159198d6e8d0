"""A client of MCP servers: programs that speak over their standard input and output, and servers over HTTP.

Only tools are used: a list at the first use of a server, and calls. HTTP goes by the way out of the sandbox.
Source: https://modelcontextprotocol.io/specification/2025-06-18. Why no library: docs/decisions.md.
Limitation: no OAuth, no resources, prompts or sampling, and a list of tools that changes is not read again.
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
from typing import Any, Protocol

import httpx

from core.cuts import beginning
from core.masking import credentials_in
from reference_agent.events import Event
from reference_agent.tools import MCP, Tool

VERSION = "2025-06-18"

#: seconds for the start of a server with the list of its tools, and for a call, unless the server's `timeout` says more
START_SECONDS, CALL_SECONDS = 30.0, 120.0

#: maximum number of tools of a server, length of a description in characters, and size of one message in bytes
MOST_TOOLS, MOST_DESCRIPTION, MOST_MESSAGE = 128, 2_000, 8 << 20

#: maximum length of what a server's program said before it failed, in characters
_MOST_LAST_WORDS = 500

Message = dict[str, Any]


class McpError(Exception):
    """The server does not do what it was asked; the message is a sentence."""


class Link(Protocol):
    """A connection to a server."""

    def ask(self, message: Message, seconds: float) -> Message:
        """The response to a request. Raises McpError."""

    def tell(self, message: Message) -> None:
        """Send a message that has no response. Raises McpError."""

    def close(self) -> None: ...


class Server:
    """One MCP server, which is started when it is first used. Not thread-safe, but for `close`."""

    def __init__(self, name: str, given: dict[str, Any], folder: Path) -> None:
        """given: as a start request's `mcp_config` has it."""
        self.name = name
        self._given, self._folder = given, folder
        self._link: Link | None = None
        self._number = 0

    def secrets(self) -> list[str]:
        """What nobody shall read: its headers, and credentials among its variables."""
        headers = [value.removeprefix("Bearer ") for value in _headers(self._given).values()]
        return [*headers, *credentials_in(_texts(self._given.get("env")))]

    def tools(self) -> dict[str, Tool]:
        """Its tools by name; a first use starts it. Raises McpError."""
        found: dict[str, Tool] = {}
        cursor: str | None = None
        while len(found) < MOST_TOOLS:
            page = self._ask("tools/list", {"cursor": cursor} if cursor else {}, START_SECONDS)
            for one in page.get("tools") or []:
                if isinstance(one, dict) and isinstance(one.get("name"), str):
                    found[one["name"]] = _tool(one)
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                break
        return found

    def call(self, tool: str, arguments: dict[str, Any]) -> tuple[list[Event], bool]:
        """What a tool answers, as content, and whether it is an error. A server that ended is started again.

        Raises McpError.
        """
        answer = self._ask("tools/call", {"name": tool, "arguments": arguments}, self._seconds(CALL_SECONDS))
        blocks = answer.get("content")
        content = [part for block in (blocks if isinstance(blocks, list) else []) for part in _parts(block)]
        if not content and "structuredContent" in answer:
            content = [{"type": "text", "text": json.dumps(answer["structuredContent"])}]
        return content, answer.get("isError") is True

    def close(self) -> None:
        link, self._link = self._link, None
        if link:
            link.close()

    def _seconds(self, least: float) -> float:
        given = self._given.get("timeout")
        return max(least, given) if isinstance(given, int | float) else least

    def _ask(self, method: str, params: Message, seconds: float) -> Message:
        try:
            if self._link is None:
                self._connect()
            return self._request(method, params, seconds)
        except McpError as error:
            if not isinstance(error, _Answered):
                self.close()
            raise

    def _connect(self) -> None:
        if not (self._given.get("url") or self._given.get("command")):
            raise McpError("its settings name no command and no URL, or were not kept when the agent server restarted")
        self._link = _Http(self._given) if self._given.get("url") else _Program(self._given, self._folder)
        client = {"name": "agent-server", "version": "1"}
        hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": client}
        self._request("initialize", hello, self._seconds(START_SECONDS))
        self._link.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _request(self, method: str, params: Message, seconds: float) -> Message:
        assert self._link is not None
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        response = self._link.ask(request, seconds)
        if isinstance(error := response.get("error"), dict):
            raise _Answered(beginning(str(error.get("message") or error), 1000))
        if not isinstance(response.get("result"), dict):
            raise McpError("it answers with no result")
        return dict(response["result"])


class _Answered(McpError):
    """The server answers with an error, and goes on."""


class _Program:
    """A server that is a program in the sandbox."""

    def __init__(self, given: dict[str, Any], folder: Path) -> None:
        arguments = given.get("args")
        words = [str(given.get("command")), *map(str, arguments if isinstance(arguments, list) else [])]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the program
        self._responses: dict[Any, queue.SimpleQueue[Message | None]] = {}
        self._lock = threading.Lock()
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
            self._errors.close()
            raise McpError(f"{words[0]} cannot be started: {error}") from None
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, message: Message, seconds: float) -> Message:
        waiting = queue.SimpleQueue[Message | None]()
        self._responses[message["id"]] = waiting
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
        with suppress(ValueError):
            self._errors.seek(max(self._errors.seek(0, os.SEEK_END) - _MOST_LAST_WORDS, 0))
            said = " ".join(self._errors.read().decode(errors="replace").split())
            return f"its program ended with exit code {self._process.poll()}" + (f": {said}" if said else "")
        return "its program ended"

    def _read(self) -> None:
        """Hand each response to whoever waits for it, until the program ends; a request of the server is refused."""
        assert self._process.stdout is not None
        while raw := self._process.stdout.readline(MOST_MESSAGE):
            with suppress(ValueError, RecursionError, McpError):
                message = json.loads(raw)
                if refused := _refusal(message):
                    self.tell(refused)
                elif isinstance(message, dict) and (waiting := self._responses.get(message.get("id"))):
                    waiting.put(message)
        for waiting in [*self._responses.values()]:
            waiting.put(None)


class _Http:
    """A server over HTTP, by the "streamable HTTP" of the specification."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._url = str(given["url"])
        accepts = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": VERSION}
        self._client = httpx.Client(headers={**_headers(given), **accepts}, follow_redirects=True)

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
        """The messages of the response to a POST."""
        try:
            with self._client.stream("POST", self._url, json=message, timeout=seconds) as response:
                if session := response.headers.get("mcp-session-id"):
                    self._client.headers["mcp-session-id"] = session
                if not response.is_success:
                    response.read()
                    raise McpError(f"status {response.status_code}: {beginning(response.text, 300)}")
                yield from _messages(response)
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, RuntimeError, ValueError) as error:
            raise McpError(f"{self._url}: {beginning(str(error) or type(error).__name__, 300)}") from None


def _messages(response: httpx.Response) -> Iterator[Any]:
    """The messages of a body: JSON, or the data of server-sent events."""
    is_stream = "event-stream" in response.headers.get("content-type", "")
    rest, size, data = "", 0, list[str]()
    for part in response.iter_text():
        size += len(part)
        if size > MOST_MESSAGE:
            raise McpError(f"its response has more than {MOST_MESSAGE:,} characters")
        *lines, rest = (rest + part).split("\n") if is_stream else (rest + part,)
        for line in (one.removesuffix("\r") for one in lines):
            if line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif not line and data:
                yield json.loads("\n".join(data))
                data = []
    if last := "\n".join(data) if is_stream else rest.strip():
        yield json.loads(last)


def _refusal(message: Any) -> Message | None:
    """The answer to a server's own request: an empty one to a ping, else that there is no such method."""
    if not (isinstance(message, dict) and "method" in message and "id" in message):
        return None
    head = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "ping":
        return {**head, "result": {}}
    return {**head, "error": {"code": -32601, "message": "Method not found"}}


def _tool(one: dict[str, Any]) -> Tool:
    schema = one["inputSchema"] if isinstance(one.get("inputSchema"), dict) else {}
    properties, required = schema.get("properties"), schema.get("required")
    return Tool(
        MCP,
        beginning(str(one.get("description") or one["name"]), MOST_DESCRIPTION),
        properties if isinstance(properties, dict) else {},
        tuple(map(str, required)) if isinstance(required, list) else (),
        schema=schema,
    )


def _parts(block: Any) -> list[Event]:
    match block:
        case {"type": "text", "text": str(text)}:
            return [{"type": "text", "text": text}]
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            return [{"type": "image", "image_urls": [f"data:{kind};base64,{data}"]}]
        case {"type": "resource", "resource": {"text": str(text)}}:
            return [{"type": "text", "text": text}]
        case {"type": "resource_link", "uri": str(uri)}:
            return [{"type": "text", "text": uri}]
        case {"type": str(kind)}:
            return [{"type": "text", "text": f"({kind}, which is not shown)"}]
    return []


def _headers(given: dict[str, Any]) -> dict[str, str]:
    """The headers of a server, and the one that its `auth` stands for."""
    headers, auth = _texts(given.get("headers")), given.get("auth")
    match auth:
        case str() if auth not in ("", "oauth"):
            headers["Authorization"] = f"Bearer {auth}"
        case {"strategy": "bearer", "value": str(value)}:
            headers["Authorization"] = f"Bearer {value}"
        case {"strategy": "api_key", "value": str(value)}:
            name = auth.get("header_name")
            headers |= {name: value} if isinstance(name, str) and name else {"Authorization": f"Bearer {value}"}
        case {"strategy": "header", "headers": dict(more)}:
            headers |= _texts(more)
    return headers


def _texts(given: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}
