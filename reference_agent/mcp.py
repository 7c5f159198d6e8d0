"""A client of MCP servers, using the published library: programs in the sandbox, and servers over HTTP.

HTTP uses the sandbox's egress proxy. Only tools are used: a list at the first use of a server, and calls. The library
is imported with the first server: one second and 29 MB. It is asynchronous, so the servers of a process share a thread
with an event loop. Limitation: no OAuth, and changes of the list of tools are ignored.
"""

import asyncio
import os
import tempfile
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from anyio import fail_after
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT, Implementation, PaginatedRequestParams

from core.cuts import beginning, head_and_tail
from reference_agent.events import Event, parts
from reference_agent.toolbox import headers_of, texts_of
from reference_agent.tools import MCP, AgentTool, ToolRefused

#: Timeouts in seconds: start of a server with its list of tools, minimum for a call, end of a program.
START_SECONDS, CALL_SECONDS, END_SECONDS = 30.0, 120.0, 5.0
#: Maximum number of tools of a server, and length of a description in characters.
MOST_TOOLS, MOST_DESCRIPTION = 128, 2_000
#: Maximum length of a result's text and of an image, number of images, and length of an error. Lengths in characters.
MOST_RESULT, MOST_IMAGES, _MOST_ERROR = 100_000, 4, 500
_loop = asyncio.new_event_loop()
threading.Thread(target=_loop.run_forever, daemon=True).start()


class McpConnection:
    """One MCP server, started on first use. Not thread-safe, except `close`."""

    def __init__(self, name: str, given: dict[str, Any], folder: Path) -> None:
        """given: its member of a start request's `mcp_config`."""
        self.name, self._given, self._folder = name, given, folder
        seconds = given.get("timeout")
        self._seconds = max(CALL_SECONDS, seconds) if isinstance(seconds, int | float) else CALL_SECONDS
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - what a program prints to its standard error
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._session: ClientSession | None = None

    def tools(self) -> dict[str, AgentTool]:
        """Return its tools by name. Raises ToolRefused."""
        found, params = dict[str, AgentTool](), PaginatedRequestParams()
        while len(found) < MOST_TOOLS:
            page = self._ask(partial(ClientSession.list_tools, params=params), START_SECONDS)
            found |= {one.name: _tool(one.model_dump(by_alias=True)) for one in page.tools}
            if not page.next_cursor:
                break
            params = PaginatedRequestParams(cursor=page.next_cursor)
        return found

    def call(self, tool: str, arguments: dict[str, Any]) -> tuple[list[Event], bool]:
        """Return the content of a tool's response, and whether it is an error. Raises ToolRefused."""
        answer = self._ask(lambda session: session.call_tool(tool, arguments), self._seconds)
        content = [_part(block.model_dump(by_alias=True, mode="json")) for block in answer.content]
        text = head_and_tail("\n".join(part["text"] for part in content if "text" in part), MOST_RESULT)
        images = [part for part in content if "image_urls" in part][:MOST_IMAGES]
        return [*parts(text), *images], answer.is_error is True

    def close(self) -> None:
        """End its program, or the session over HTTP. The next use starts it again."""
        over, task, self._session = self._over, self._task, None
        if task:
            _loop.call_soon_threadsafe(over.set)
            asyncio.run_coroutine_threadsafe(asyncio.wait([task], timeout=END_SECONDS), _loop).result()

    def _ask(self, request: Callable[[ClientSession], Awaitable[Any]], seconds: float) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(self._asked(request, seconds), _loop).result()
        except Exception as error:
            text = self._words(error, seconds)
            if not _is_answer(error):
                self.close()
            raise ToolRefused(text) from None

    async def _asked(self, request: Callable[[ClientSession], Awaitable[Any]], seconds: float) -> Any:
        if self._session is None:
            ready: asyncio.Future[Any] = _loop.create_future()
            self._over = asyncio.Event()
            self._task = asyncio.create_task(self._live(ready, self._over))
            self._session = await ready
        return await asyncio.wait_for(request(self._session), seconds)

    async def _live(self, ready: asyncio.Future[Any], over: asyncio.Event) -> None:
        """Keep a session with the server until `over` is set."""
        try:
            async with AsyncExitStack() as stack:
                reads, writes = await self._streams(stack)
                client = Implementation(name="agent-server", version="1")
                session = await stack.enter_async_context(ClientSession(reads, writes, client_info=client))
                with fail_after(START_SECONDS):
                    await session.initialize()
                ready.set_result(session)
                await over.wait()
        except BaseException as error:  # also an exception group, or a cancellation by the library
            if not ready.done():
                ready.set_exception(_first(error))

    async def _streams(self, stack: AsyncExitStack) -> Any:
        given, headers = self._given, headers_of(self._given)
        if given.get("url") and given.get("transport") == "sse":
            return await stack.enter_async_context(sse_client(str(given["url"]), headers=headers))
        if given.get("url"):
            client = await stack.enter_async_context(create_mcp_http_client(headers=headers))
            return await stack.enter_async_context(streamable_http_client(str(given["url"]), http_client=client))
        if not given.get("command"):
            raise ToolRefused(
                "its settings name no command and no URL, or were not kept when the agent server restarted"
            )
        arguments = given.get("args")
        program = StdioServerParameters(
            command=str(given["command"]),
            args=[*map(str, arguments if isinstance(arguments, list) else [])],
            env={**os.environ, **texts_of(given.get("env"))},
            cwd=given.get("cwd") or self._folder,
        )
        return await stack.enter_async_context(stdio_client(program, errlog=self._errors))

    def _words(self, error: Exception, seconds: float) -> str:
        """Return why a request failed, with the last output of an ended program."""
        if isinstance(error, TimeoutError):
            return f"it does not answer within {seconds:g} s"
        text = beginning(str(error) or type(error).__name__, _MOST_ERROR)
        if not self._given.get("command") or _is_answer(error) or isinstance(error, ToolRefused | OSError):
            return text
        size = os.fstat(self._errors.fileno()).st_size
        output = os.pread(self._errors.fileno(), _MOST_ERROR, max(size - _MOST_ERROR, 0)).decode(errors="replace")
        return ": ".join(filter(None, ("its program has ended", " ".join(output.split()))))


def _is_answer(error: Exception) -> bool:
    """Return whether the server itself refused a request. Then its session goes on."""
    return isinstance(error, MCPError) and error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT)


def _first(error: BaseException) -> Exception:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else ConnectionError("the connection ended")


def _tool(one: dict[str, Any]) -> AgentTool:
    schema = one["inputSchema"] if isinstance(one.get("inputSchema"), dict) else {}
    described = beginning(str(one.get("description") or one["name"]), MOST_DESCRIPTION)
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    return AgentTool(MCP, described, dict(properties), tuple(map(str, required)), schema=schema)


def _part(block: dict[str, Any]) -> Event:
    match block:
        case {"type": "image", "data": str(data), "mimeType": str(kind)} if len(data) <= MOST_RESULT:
            return {"type": "image", "image_urls": [f"data:{kind};base64,{data}"]}
        case {"text": str(text)} | {"resource": {"text": str(text)}} | {"type": "resource_link", "uri": str(text)}:
            return {"type": "text", "text": text}
    return {"type": "text", "text": f"({block.get('type')}, not shown)"}
