"""What the sync and the async client share: when a request is tried again, and how a stream of events is read."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import httpx

from agent_server_client.calls import call_of, command_of
from agent_server_client.errors import AgentServerError, retry_after
from agent_server_client.models import Event

#: seconds of the first and the longest pause between two tries
_FIRST, _LONGEST = 0.25, 8.0

#: the statuses in which an agent does nothing until somebody asks it to
STOPPED = ("idle", "paused", "finished", "error", "stuck")

#: most bytes of an event on a stream
_MOST = 64 << 20

#: seconds after which a stream that sends not even a comment is cut off; the server comments every PING_SECONDS (25)
SILENCE = 90.0


#: seconds by which a Date may be behind the clock that it is of: its fraction of a second, and the way
_DATE_EXACT = 3.0

#: the faults of a connection after which no request has left
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)


class Entry(NamedTuple):
    """An entry of a conversation's log."""

    seq: int | None  #: its cursor; None for an event that no log keeps
    event: Event  #: the whole event, as the server sent it

    @property
    def id(self) -> str:
        """The id of the event."""
        return str(self.event.get("id") or "")

    @property
    def kind(self) -> str:
        """What it is: `MessageEvent`, `ActionEvent`, `ObservationEvent`, `ConversationStateUpdateEvent` or another."""
        return str(self.event["kind"]).rpartition(".")[2]

    @property
    def source(self) -> str:
        """Who wrote it: `user`, `agent` or `environment`."""
        return str(self.event.get("source") or "")

    @property
    def timestamp(self) -> datetime:
        """When it was written, with a time zone."""
        return moment(str(self.event["timestamp"]))

    @property
    def text(self) -> str:
        """What it says: a message, a call, an output, a reason, an error, the last words of an agent, or nothing."""
        return _text_of(self.kind, self.event)

    @property
    def tool(self) -> str:
        """The tool of an action or a result; empty for any other."""
        return str(self.event.get("tool_name") or "")

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of an action; empty for any other."""
        action = self.event.get("action")
        return {name: value for name, value in action.items() if name != "kind"} if isinstance(action, dict) else {}

    @property
    def command(self) -> str:
        """The shell command of an action; empty for any other."""
        return command_of(self.event.get("action")) or ""

    @property
    def is_finish(self) -> bool:
        """Whether the agent says here that its task is done; `text` has its last words."""
        action = self.event.get("action")
        return isinstance(action, dict) and action.get("kind") == "FinishAction"

    @property
    def exit_code(self) -> int | None:
        """The exit code of a command that has ended; None for any other."""
        code = (self.event.get("observation") or {}).get("exit_code")
        return code if isinstance(code, int) else None

    @property
    def status(self) -> str | None:
        """The status that the conversation has from here on; None where it does not change."""
        return status_of(self.event)


def moment(time: str) -> datetime:
    """A time of the wire, which is UTC where it names no zone."""
    parsed = datetime.fromisoformat(time)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _text_of(kind: str, event: Event) -> str:
    if kind == "MessageEvent":
        return _texts((event.get("llm_message") or {}).get("content"))
    if kind == "ActionEvent":
        action = event.get("action") or {}
        return str(action.get("message") or "") if action.get("kind") == "FinishAction" else call_of(action)
    if kind == "ObservationEvent":
        return _texts((event.get("observation") or {}).get("content"))
    names = ("rejection_reason", "error", "detail", "content", "text")
    return next((event[name] for name in names if isinstance(event.get(name), str)), "")


def _texts(content: Any) -> str:
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text"))


class Output(NamedTuple):
    """What a command printed, or a piece of it. The last piece has the command's exit code."""

    stdout: str
    stderr: str
    exit_code: int | None


@dataclass
class Patience:
    """How long the requests of one client are tried again, in seconds. `with` counts a request as open."""

    seconds: float
    first_seconds: float | None  #: while the server has never answered; None: as any other time
    on_retry: Callable[[AgentServerError, float, float], None] | None
    has_answered: bool = False
    open_requests: int = 0
    heard_at: float = 0.0  #: when the server last sent something, or the first of the open requests began

    def __enter__(self) -> None:
        if not self.open_requests:
            self.heard_at = time.monotonic()
        self.open_requests += 1

    def __exit__(self, *_: object) -> None:
        self.open_requests -= 1

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def hear(self) -> None:
        """Note that the server has sent something."""
        self.has_answered, self.heard_at = True, time.monotonic()


class Tries:
    """Tries of one request, within a number of seconds."""

    def __init__(self, seconds: float, patience: Patience | None = None) -> None:
        self._seconds, self._patience = seconds, patience or Patience(seconds, None, None)
        self.begin()

    def begin(self) -> None:
        """Count from here: something has come."""
        self._deadline, self._number = time.monotonic() + self._seconds, 0

    @property
    def spent(self) -> float:
        """Seconds since the count began."""
        return self._seconds - self.left

    @property
    def left(self) -> float:
        return self._deadline - time.monotonic()

    @property
    def are_over(self) -> bool:
        """Whether no time is left."""
        return self.left <= 0

    @property
    def asked_by_silence(self) -> float | None:
        """What `passing` says of a refusal, of a server that does not answer."""
        most = None if self._patience.has_answered else self._patience.first_seconds
        return None if most is not None and self.spent >= most else 0.0

    def pause(self, asked: float = 0.0, refusal: AgentServerError | None = None) -> float | None:
        """Seconds until the next try, at least as many as the server asked for; None where no time is left.

        refusal: of which `on_retry` is told.
        """
        pause: float = max(asked, min(_LONGEST, _FIRST * 2**self._number) * random.uniform(0.5, 1.0))
        self._number += 1
        if pause >= self.left:
            return None
        if refusal and self._patience.on_retry:
            self._patience.on_retry(refusal, self.spent, self.left)
        return pause


def passing(response: httpx.Response) -> float | None:
    """Seconds after which a refused request is to be sent again; None where that would change nothing.

    Such are 503, 429 and 409 with a Retry-After.
    """
    return retry_after(response) if response.status_code in (409, 429, 503) else None


def clock_ahead(response: httpx.Response, before: float) -> float:
    """Seconds by which the server's clock is ahead of this machine's; 0 where they agree. before: without a Date."""
    try:
        sent = parsedate_to_datetime(response.headers["Date"]).timestamp()
    except (KeyError, ValueError):
        return before
    ahead = sent - time.time()
    return 0.0 if -_DATE_EXACT < ahead <= 0 else ahead


def status_of(event: Event) -> str | None:
    """The status of the conversation that an event tells, None for any other event."""
    is_status = event["kind"] == "ConversationStateUpdateEvent" and event.get("key") == "execution_status"
    return str(event.get("value")) if is_status else None


def goes_on(event: Event, before: bool) -> bool:
    """Whether a run goes on by itself after a crash of its agent, once this event has come. before: until then."""
    if event["kind"] == "ConversationErrorEvent" and event.get("code") != "ActionInterrupted":
        return event.get("goes_on") is True
    return before and status_of(event) != "running"


class Sent(NamedTuple):
    """An event of a stream of server-sent events."""

    name: str  #: "message" where it bears none
    id: str  #: "" where it bears none
    data: str


class EventStreamLines:
    """Parses a stream of server-sent events. Bytes that end in the middle of an event make none of it."""

    def __init__(self) -> None:
        self._rest = b""
        self._name, self._id, self._data = "", "", list[str]()

    def feed(self, piece: bytes) -> Iterator[Sent]:
        """The events that end in a piece. Raises ValueError for one that has no end within 64 MiB."""
        # Lines end here, and not where str.splitlines would end them: JSON may have a U+2028 in it.
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _MOST:
            raise ValueError("An event of the stream is too long")
        for line in lines:
            name, _, value = line.rstrip(b"\r").decode(errors="replace").partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data.append(value)
            elif name == "id":
                self._id = value
            elif name == "event":
                self._name = value
            elif not name and not value and self._data:
                sent = Sent(self._name or "message", self._id, "\n".join(self._data))
                self._name, self._id, self._data = "", "", []
                yield sent
