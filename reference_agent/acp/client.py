"""The process of an ACP agent, and the messages over its standard input and output.

The package `agent-client-protocol` carries JSON-RPC. It is imported with the first process, because the import takes
half a second and 40 MB. Messages are parsed without the package's types: agents send members outside of the schema, and
a permission request must never end in an error.
"""

import asyncio
import ctypes
import json
import os
import re
import shutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from core.cuts import beginning
from reference_agent.acp.permissions import CANCELLED

#: Maximum length of a line, in bytes. A longer line ends the agent.
MOST_LINE = 32 << 20

#: Size of one read, in bytes.
_PIECE = 1 << 16

#: Number of the last lines of output that `AgentEnded` quotes, and their maximum length in characters. The lines are
#: from stderr, or are not messages.
_KEPT_LINES, _MOST_KEPT = 5, 300

#: Timeout of `initialize`, `session/new` and `session/load`, in seconds.
START_SECONDS = 90.0

#: Grace period between a cancellation and the end of the process, in seconds.
CANCEL_SECONDS = 10.0

#: Timeout of a turn without any message from the agent, in seconds. It does not apply while the agent waits for a
#: person.
SILENCE_SECONDS = 1800.0

#: Timeout for reading the last output of a process, in seconds.
_LINGER = 0.5

#: Interval for checking a turn, in seconds.
_POLL = 0.2

_PR_SET_PDEATHSIG = 1

_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")

#: Resolve before a process is started: imports are unsafe between fork and exec.
_prctl = ctypes.CDLL(None).prctl

PROTOCOL_VERSION = 1

_INITIALIZE = {
    "protocolVersion": PROTOCOL_VERSION,
    # No files and no terminals: the agent uses the sandbox's own.
    "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
    "clientInfo": {"name": "agent-server", "title": "Agent server", "version": "1"},
}

#: The response to a permission request. Source: ACP, RequestPermissionOutcome
Outcome = dict[str, str]


class AgentError(Exception):
    """The agent cannot do what was requested. The message tells a person why."""


class AgentEnded(AgentError):
    """The process ended or was ended. The message tells a person why."""


class AgentListener(Protocol):
    """Receiver of the agent's messages. Its methods run in the thread of the process, one at a time."""

    def on_update(self, update: dict[str, Any]) -> None:
        """Handle an update of the session."""

    def on_request(self, token: int, call: dict[str, Any], options: Any) -> Outcome | None:
        """Return the outcome of a permission request; None if `AcpProcess.answer` is called with it later."""


class AcpSession(NamedTuple):
    id: str
    response: dict[str, Any]  #: the response: `modes`, `configOptions`


class AcpProcess:
    """One process of an agent. Its methods are thread-safe, block, and raise AgentError.

    `cancel`, `answer` and `end` neither block nor raise. An AgentListener must not call the blocking methods, because
    it runs in the thread of the process.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], listener: AgentListener
    ) -> None:
        self._command, self._folder, self._environment = list(command), folder, dict(environment)
        self._listener = listener
        self._loop = asyncio.new_event_loop()
        self._open: dict[int, asyncio.Future[Outcome]] = {}
        self._number = 0
        self._process: asyncio.subprocess.Process | None = None
        self._connection: Any = None
        self._waited = 0.0  # seconds spent waiting; the time of a frozen sandbox does not count
        self._last_message = 0.0  # `_waited` at the last message
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)
        self._fault = ""
        self._session_id = ""
        self._turn = 0
        self._cancelled_at: float | None = None
        self._is_prompting = False
        self._tasks = set[asyncio.Task[None]]()  # asyncio may collect a task without a reference
        self.initialized: dict[str, Any] = {}  #: the response to `initialize`
        self.has_ended = threading.Event()

    def is_there(self) -> bool:
        """Return whether the process is alive. A killed process whose exit was not read yet counts as ended."""
        if (process := self._process) is None or self.has_ended.is_set():
            return False
        with suppress(ChildProcessError):  # already reaped
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return True
        self.has_ended.wait(CANCEL_SECONDS)
        return False

    def start(self) -> None:
        ready: Future[None] = Future()
        threading.Thread(target=self._run, args=(ready,), daemon=True).start()
        try:
            ready.result()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise AgentEnded(f"{self._command[0]} cannot be started: {reason}") from None
        self.initialized = self._ask("initialize", _INITIALIZE, START_SECONDS)
        version = self.initialized.get("protocolVersion")
        if version != PROTOCOL_VERSION:
            self.end()
            raise AgentEnded(f"The agent speaks version {version} of ACP, this server version {PROTOCOL_VERSION}.")

    @property
    def can_load(self) -> bool:
        """Return whether the agent can load a session of an earlier process."""
        return _members(self.initialized, "agentCapabilities").get("loadSession") is True

    @property
    def reads_images(self) -> bool:
        return _members(_members(self.initialized, "agentCapabilities"), "promptCapabilities").get("image") is True

    @property
    def name(self) -> str:
        """Return the agent's name and version as it reports them; "" if it reports none."""
        info = _members(self.initialized, "agentInfo")
        words = [info[name] for name in ("name", "version") if isinstance(info.get(name), str)]
        return beginning(" ".join(words), 100)

    def begin(self, meta: Mapping[str, Any]) -> AcpSession:
        """Create a session. meta: `_meta` of the request."""
        response = self._ask("session/new", self._of_session(meta), START_SECONDS)
        if not isinstance(response.get("sessionId"), str):
            raise AgentError("The agent did not create a session: its response has no sessionId.")
        self._session_id = response["sessionId"]
        return AcpSession(response["sessionId"], response)

    def load(self, session_id: str, meta: Mapping[str, Any]) -> AcpSession:
        """Load a session of an earlier process. Ignore what the agent replays."""
        response = self._ask("session/load", {"sessionId": session_id, **self._of_session(meta)}, START_SECONDS)
        self._session_id = session_id
        return AcpSession(session_id, response)

    def _of_session(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        return {"cwd": str(self._folder), "mcpServers": [], **({"_meta": dict(meta)} if meta else {})}

    def set_mode(self, mode: str) -> None:
        self._ask("session/set_mode", {"sessionId": self._session_id, "modeId": mode}, START_SECONDS)

    def set_option(self, option: str, value: str) -> None:
        asked = {"sessionId": self._session_id, "configId": option, "value": value}
        self._ask("session/set_config_option", asked, START_SECONDS)

    def begin_turn(self) -> None:
        """Begin a turn. From now on `cancel` applies to it, even before `prompt` is called."""
        self._turn += 1
        self._cancelled_at = None

    def prompt(self, blocks: list[dict[str, Any]], is_waiting: Callable[[], bool]) -> dict[str, Any]:
        """Run a turn to its end, and return the response with a `stopReason`.

        is_waiting: whether the agent waits for a person. Meanwhile there is no timeout. An agent that ignores a
        cancellation is ended after CANCEL_SECONDS.
        """
        request = {"sessionId": self._session_id, "prompt": blocks}
        self._last_message = self._waited
        return self._awaited(self._submit(lambda: self._prompt(request)), lambda: self._is_late(is_waiting()))

    def cancel(self) -> None:
        """Ask the agent to end its turn, and reply `cancelled` to all its requests."""
        turn = self._turn
        self._soon(lambda: self._cancel(turn))

    def answer(self, token: int, outcome: Outcome) -> None:
        """Answer a permission request. Later answers are ignored."""
        self._soon(lambda: self._settle(token, outcome))

    def end(self, fault: str = "") -> None:
        """Kill the process group. fault: the message of the following AgentEnded; the first fault wins."""
        self._fault = self._fault or fault
        if (process := self._process) and process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    # The rest runs in the thread of the process, except `_ask`, `_awaited`, `_submit` and `_soon`.

    def _run(self, ready: "Future[None]") -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(ready))
        finally:
            self.has_ended.set()
            self._loop.close()

    async def _serve(self, ready: "Future[None]") -> None:
        from acp.connection import Connection

        pipe = asyncio.subprocess.PIPE
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._resolved(),
                cwd=self._folder,
                env=self._environment,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,  # `end` kills the group: a launcher may leave its program running
                preexec_fn=_end_with_parent,
            )
        except (OSError, ValueError) as error:
            ready.set_exception(error)
            return
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        lines = MessageLines(process.stdout, process.stdin, self._keep)
        self._connection = Connection(self._handle, lines)
        errors = asyncio.create_task(self._read_errors(process.stderr))
        ready.set_result(None)
        over, gone = asyncio.create_task(lines.over.wait()), asyncio.create_task(_exited(process))
        await asyncio.wait({over, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():  # the last read has a timeout, because an orphan may hold the pipe
            await asyncio.wait({over}, timeout=_LINGER)
        self._fault = self._fault or lines.fault
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = await gone
        await asyncio.wait({errors}, timeout=_LINGER)
        for task in (over, errors):
            task.cancel()
        self._fault = self._fault or _end_of(code, list(self._kept))
        await self._connection.close()
        await asyncio.sleep(0)  # let waiting callers get their responses

    def _resolved(self) -> list[str]:
        """Return the command with its program resolved on the PATH of its own environment."""
        program = shutil.which(self._command[0], path=self._environment.get("PATH"))
        return [program or self._command[0], *self._command[1:]]

    async def _read_errors(self, stream: asyncio.StreamReader) -> None:
        rest = b""
        while piece := await stream.read(_PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self._keep(line)
            rest = rest[-_MOST_KEPT:]

    def _keep(self, line: bytes) -> None:
        if text := beginning(line[: 4 * _MOST_KEPT].decode(errors="replace").strip(), _MOST_KEPT):
            self._kept.append(text)

    async def _handle(self, method: str, params: Any, is_notification: bool) -> Any:
        from acp.exceptions import RequestError

        self._last_message = self._waited
        members = params if isinstance(params, dict) else {}
        if method == "session/update":
            update = members.get("update")
            if isinstance(update, dict) and members.get("sessionId") == self._session_id:
                self._listener.on_update(update)
        elif method == "session/request_permission" and not is_notification:
            return {"outcome": await self._requested(members)}
        elif not is_notification:
            raise RequestError.method_not_found(method)
        return None

    async def _requested(self, params: dict[str, Any]) -> Outcome:
        call = params.get("toolCall")
        self._number += 1
        token, answer = self._number, self._loop.create_future()
        self._open[token] = answer
        try:
            outcome = self._listener.on_request(token, call if isinstance(call, dict) else {}, params.get("options"))
            return outcome if outcome is not None else await answer
        except Exception:  # some agents hang on an error response
            self.end("The agent server failed during a permission request. Its log has the reason.")
            raise
        finally:
            del self._open[token]

    def _settle(self, token: int, outcome: Outcome) -> None:
        if (answer := self._open.get(token)) and not answer.done():
            answer.set_result(outcome)
            self._last_message = self._waited

    async def _prompt(self, request: dict[str, Any]) -> Any:
        if self._cancelled_at is not None:
            return {"stopReason": "cancelled"}
        self._is_prompting = True
        try:
            return await self._connection.send_request("session/prompt", request)
        finally:
            self._is_prompting = False

    def _cancel(self, turn: int) -> None:
        if turn != self._turn:
            return  # the turn ended; a late cancellation would hit the next turn
        self._cancelled_at = self._waited
        for token in list(self._open):
            self._settle(token, CANCELLED)
        if not self._is_prompting:
            return
        sending = self._connection.send_notification("session/cancel", {"sessionId": self._session_id})
        self._tasks.add(task := self._loop.create_task(_quietly(sending)))
        task.add_done_callback(self._tasks.discard)

    def _is_late(self, is_waiting: bool) -> str:
        """Return why the turn must end now; "" if it may go on."""
        if self._cancelled_at is not None and self._waited - self._cancelled_at > CANCEL_SECONDS:
            return f"The agent did not stop within {CANCEL_SECONDS:g} s, and was ended."
        if not is_waiting and self._waited - self._last_message > SILENCE_SECONDS:
            return f"The agent reported nothing for {SILENCE_SECONDS:g} s, and was ended."
        return ""

    def _ask(self, method: str, params: dict[str, Any], seconds: float) -> dict[str, Any]:
        deadline = self._waited + seconds

        def late() -> str:
            is_over = self._waited > deadline
            return f"The agent did not answer {method} within {seconds:g} s, and was ended." if is_over else ""

        return self._awaited(self._submit(lambda: self._connection.send_request(method, params)), late)

    def _submit(self, request: Callable[[], Coroutine[Any, Any, Any]]) -> "Future[Any]":
        """Send a request in the thread of the process. `request` is called there, so no coroutine stays unawaited."""

        async def send() -> Any:
            return await request()

        if self.has_ended.is_set():
            raise AgentEnded(self._fault)
        sent = send()
        try:
            return asyncio.run_coroutine_threadsafe(sent, self._loop)
        except RuntimeError:  # the loop is closed
            sent.close()
            raise AgentEnded(self._fault) from None

    def _awaited(self, response: "Future[Any]", late: Callable[[], str]) -> dict[str, Any]:
        while True:
            try:
                result = response.result(_POLL)
                return result if isinstance(result, dict) else {}
            except Late:
                self._waited += _POLL
                if self.has_ended.is_set() and not response.done():
                    raise AgentEnded(self._fault) from None
                if fault := late():
                    self.end(fault)
            except (ConnectionError, asyncio.CancelledError):
                self.has_ended.wait(CANCEL_SECONDS)
                raise AgentEnded(self._fault or "The agent has ended.") from None
            except Exception as error:
                raise AgentError(_refusal(error)) from None

    def _soon(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process has ended
            self._loop.call_soon_threadsafe(callback)


class MessageLines:
    """The messages of a process, one per line. Other lines are skipped. A line that is too long ends the process."""

    def __init__(
        self, stdout: asyncio.StreamReader, stdin: asyncio.StreamWriter, keep: Callable[[bytes], None]
    ) -> None:
        """keep: receives the lines that are not messages."""
        self._stdout, self._stdin, self._keep = stdout, stdin, keep
        self._rest, self._lines = bytearray(), deque[bytes]()
        self.over = asyncio.Event()  #: set after the last message
        self.fault = ""  #: why reading stopped early, for people; "" if it did not

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        while True:
            while self._lines:
                line = self._lines.popleft()
                if message := read_message(line):
                    await asyncio.sleep(0)  # handle the previous message first, so that a flood does not pile up
                    return message
                self._keep(line)
            piece = await self._stdout.read(_PIECE)
            if not piece or self.fault:
                self.over.set()
                return None
            *lines, rest = piece.split(b"\n")
            for line in lines:
                self._lines.append(bytes(self._rest) + line)
                self._rest.clear()
            self._rest += rest
            if len(self._rest) > MOST_LINE:
                self.fault = f"The agent sent a line of more than {MOST_LINE >> 20} MiB, and was ended."
                self._rest.clear()
                self.over.set()
                return None

    async def send(self, message: dict[str, Any]) -> None:
        self._stdin.write(json.dumps(message).encode() + b"\n")
        await self._stdin.drain()

    async def close(self) -> None:
        self._stdin.close()


def read_message(line: bytes) -> dict[str, Any] | None:
    """Return the JSON-RPC message of a line; None for any other line.

    A message that the package cannot parse is None too: its id is neither text nor a number, or its error has no code.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("id"), int | str | None):
        return None
    if b"\\ud" in line.lower():
        message = {name: _encodable(value) for name, value in message.items()}
    if "method" in message:
        return message if isinstance(message["method"], str) else None
    if isinstance(message.get("id"), bool):
        return None
    if "result" not in message and not _is_error(message.get("error")):
        return {**message, "error": {"code": -32603, "message": "The agent refuses without a reason."}}
    return message


def _is_error(error: Any) -> bool:
    return isinstance(error, dict) and isinstance(error.get("code"), int) and isinstance(error.get("message"), str)


def _encodable(value: Any) -> Any:
    """Return a value whose text can be encoded as UTF-8."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return [_encodable(each) for each in value]
    if isinstance(value, dict):
        return {_encodable(name): _encodable(each) for name, each in value.items()}
    return value


def _members(parent: dict[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def _refusal(error: Exception) -> str:
    """Return an error response in words."""
    data = getattr(error, "data", None)
    details = data.get("details") if isinstance(data, dict) else data
    words = f"{error}: {details}" if isinstance(details, str) and details else str(error)
    return f"The agent refuses: {beginning(' '.join(words.split()), 500) or type(error).__name__}"


def _end_of(code: int, kept: list[str]) -> str:
    how = f"was killed by signal {-code}" if code < 0 else f"ended with the exit code {code}"
    output = beginning(" ".join(kept), 500)
    return f"The agent's program {how}." + (f" Its last output: {output}" if output else "")


def _end_with_parent() -> None:
    """Let the kernel end the process with the thread that started it. Otherwise an orphan would go on working."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def _exited(process: asyncio.subprocess.Process) -> int:
    """Wait for the process only. `process.wait` also waits for every process that holds its pipes."""
    while process.returncode is None:
        await asyncio.sleep(_POLL)
    return process.returncode


async def _quietly(sending: Any) -> None:
    with suppress(ConnectionError, OSError):
        await sending
