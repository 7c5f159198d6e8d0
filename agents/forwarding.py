"""Calls of clients that the agent server of a sandbox serves: which sandbox, and the exchange, streamed both ways.

Guarantee: this process never holds more of a body than a few pieces of it, because each side is read only as fast as
the other one takes. A call lasts for as long as bytes move; it ends after so many seconds of silence, when its client
hangs up, and when the agent server does.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

import httpx

from agents.crossing import head_of, headers_of, query_of
from agents.link import AgentUnreachable
from agents.reach import wake
from agents.transport import Transport, pulse
from store import Store
from store.errors import UNAVAILABLE, KeyUnreadable
from store.link import traces
from store.sandboxes.sandbox_record import SandboxId
from wire import ConversationId, one_line

#: seconds in which a byte must come or go: a command may run for that long and say nothing. The SDK waits as long
SILENCE = 600.0

#: seconds that a connection may take, and that a call waits for others to end
_CONNECT, _ROOM = 2.0, 2.0

#: calls that a process forwards at once
_MOST = 100

#: seconds between two notes that a sandbox is in use while a call goes on
_USE = 10.0


class Detached(Exception):
    """A call needs the agent server of a conversation that has no sandbox."""

    def __init__(self) -> None:
        super().__init__("The conversation has no sandbox: only one that was started with an agent can do this")


class SandboxNotNamed(Exception):
    """A call names no sandbox, and there is not exactly one that runs."""

    def __init__(self, number: str) -> None:
        super().__init__(
            f"{number} sandboxes run, and this call names none: give the conversation as ?cid=ID, or call "
            "/api/conversations/ID/…, or show the sandbox's session_api_key as X-Session-API-Key"
        )


class TooManyForwarded(Exception):
    """This process forwards as many calls as it may."""

    def __init__(self) -> None:
        super().__init__(f"{_MOST} calls are forwarded to sandboxes here, which is the most: try again shortly")


class ClientGone(Exception):
    """The client has ended its connection: nobody waits for the response."""


class Call(NamedTuple):
    """What a client wants of an agent server."""

    method: str
    path: str  #: at the agent server
    query: bytes  #: as it came
    header: Callable[[str], str | None]  #: the value of a header, None for one that was not sent
    content: bytes | Iterator[bytes] | None = None
    length: int | None = None  #: of a content that is an iterator; None: unknown
    mapped: Callable[[str], str] = str  #: the path in the sandbox for a path of the client's
    require_client: Callable[[], None] = lambda: None  #: raises ClientGone


class Forwarding:
    """Forwards calls. Any thread may use it."""

    def __init__(self, store: Store, *, wake_seconds: float, silence: float = SILENCE) -> None:
        """wake_seconds: how long a call waits for a sandbox that is paused or starting. silence: in seconds."""
        self._store = store
        self._wake_seconds = wake_seconds
        self._silence = silence
        # A connection that was kept could end while a request is sent, and nobody would know whether it was received.
        limits = httpx.Limits(max_connections=_MOST, max_keepalive_connections=0)
        timeout = httpx.Timeout(silence, connect=_CONNECT, pool=_ROOM)
        self._client = httpx.Client(timeout=timeout, transport=Transport(limits), trust_env=False)

    def sandbox_of(self, conversation_id: ConversationId) -> SandboxId:
        """The sandbox of a conversation. Raises ConversationNotFound, Detached."""
        sandbox_id = self._store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            raise Detached
        return SandboxId(sandbox_id)

    def only_sandbox(self) -> SandboxId:
        """The one sandbox that runs. Raises SandboxNotNamed."""
        running, following = self._store.sandboxes.search(status="RUNNING", spec_id=None, limit=2, start=None)
        if len(running) != 1:
            raise SandboxNotNamed("More than two" if following else ("No", "", "Two")[len(running)])
        return running[0].id

    def awake(self, sandbox_id: SandboxId) -> tuple[str, str]:
        """URL and key of the agent server of a sandbox, which is woken if it is paused.

        Raises NotReachable, TooManySandboxes, AgentUnreachable.
        """
        sandbox = wake(self._store, sandbox_id, self._wake_seconds)
        try:
            return sandbox.agent_url, sandbox.session_api_key
        except KeyUnreadable as error:
            raise AgentUnreachable(str(error)) from None

    def open(self, sandbox_id: SandboxId, call: Call) -> "Answer":
        """Send a call, and return the response when its head is there; the sandbox is woken first if it is paused.

        Raises NotReachable, TooManySandboxes, AgentUnreachable, TooManyForwarded, ClientGone, and what the content
        raises.
        """
        agent_url, session_api_key = self.awake(sandbox_id)
        headers = headers_of(call.header, session_api_key)
        if call.length is not None:
            headers["Content-Length"] = str(call.length)
        query = query_of(call.query, call.mapped)
        url = agent_url + call.path + (f"?{query}" if query else "")
        beat = _Beat(self._store, sandbox_id, call.require_client)
        try:
            with pulse(beat), traces.call(call.method) as carried:
                request = self._client.build_request(
                    call.method, url, headers={**headers, **carried}, content=call.content
                )
                response = self._client.send(request, stream=True)
        except httpx.PoolTimeout:
            raise TooManyForwarded from None
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise AgentUnreachable(_reason(error, self._silence)) from error
        return Answer(response, beat, self._silence)


class Answer:
    """The response of an agent server; iterate over its body, then close it.

    A class, because a generator that was never started is not closed.
    """

    def __init__(self, response: httpx.Response, beat: "_Beat", silence: float) -> None:
        """Raises AgentUnreachable of a response that no client gets."""
        self._response, self._beat, self._silence = response, beat, silence
        self._pieces = response.iter_raw()
        try:
            self.status, self.headers = head_of(response.status_code, response.headers.raw)
        except AgentUnreachable:
            response.close()
            raise

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """A piece of the body. Raises AgentUnreachable: the response breaks off, so that its client notices."""
        self._beat.note_use()
        try:
            with pulse(self._beat):
                return next(self._pieces)
        except httpx.TransportError as error:
            raise AgentUnreachable(_reason(error, self._silence)) from error

    def close(self) -> None:
        """End the exchange, also before the end of the body."""
        self._response.close()


class _Beat:
    """What a call does while it waits: it looks whether its client is there, and notes that its sandbox is in use."""

    def __init__(self, store: Store, sandbox_id: SandboxId, require_client: Callable[[], None]) -> None:
        self._store, self._sandbox_id, self._require_client = store, sandbox_id, require_client
        self._used_at = time.monotonic()

    def __call__(self) -> None:
        self._require_client()
        self.note_use()

    def note_use(self) -> None:
        if time.monotonic() - self._used_at > _USE:
            self._used_at = time.monotonic()
            with suppress(*UNAVAILABLE):
                self._store.sandboxes.use(self._sandbox_id)


def _reason(error: Exception, silence: float) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return f"The agent server did not take a connection within {_CONNECT:g} s"
    if isinstance(error, httpx.TimeoutException):
        return f"The agent server was silent for {silence:g} s"
    return f"The agent server does not answer: {one_line(str(error))[:500] or type(error).__name__}"
