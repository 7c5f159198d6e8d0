"""The HTTP client of a sandbox's agent server. Source: the agent-server wire.

An agent server is not trusted. A call has a single deadline. A response is unencoded, with at most MOST_BYTES. Its text
reaches errors and logs as a plain line. A state that is not a JSON object is refused.

An idempotent call is retried once if the connection fails. A message, a run and a decision are not retried, because the
client cannot know whether the agent received them.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx

from core.cuts import beginning
from core.pauses import take_turns
from core.refused import RefusalKind, Refused
from core.wire import (
    MOST_CALL_BYTES,
    MOST_EVENT_BYTES,
    MOST_NAME,
    MOST_VALUES,
    ConversationId,
    InvalidJson,
    ReceivedEvent,
    TooManyValues,
    one_line,
    parse_json,
    read_event,
)
from net.connections import deadline
from net.transport import Transport
from telemetry import traces

#: Maximum number of sentences about ignored parts of a start.
_MOST_IGNORED = 20

#: Timeouts in seconds: of a connection, of a health check, and of a change of labels, which can be postponed.
_CONNECT, _ALIVE, _LABEL = 2.0, 2.0, 2.0

#: Maximum size of a response, in bytes.
MOST_BYTES = 8 << 20

#: Maximum number of characters of an error's detail, and of text that is masked before it is truncated.
_DETAIL, _MOST_CLEANED = 500, 64 * 1024

#: Maximum idle time of an agent in seconds, 31 years. A larger number is not a duration.
_LONGEST_IDLE = 1e9


#: Body of a run. The run must not approve actions that the agent has not posted yet, because nobody saw them.
RUN = {"accepts": False}

#: Time in seconds in which an agent server ends a run that it reports as ended, and interval between two retries.
_ENDING, _POLL = 3.0, 0.05


class AgentUnreachable(Refused):
    """The agent server sent no usable response. The message is one line."""

    kind = RefusalKind.BAD_AGENT

    @property
    def has_ended(self) -> bool:
        """Return whether no process listens there any more. A restart may help."""
        return isinstance(self.__cause__, httpx.NetworkError | httpx.RemoteProtocolError)


class ResponseTooLong(AgentUnreachable):
    """Raised if the agent server's response is too long. The caller may request less."""

    def __init__(self, bound: str = "") -> None:
        super().__init__(f"The agent server's response is longer than {bound or f'{MOST_BYTES} bytes'}. Ask for less")


class AgentRefused(Exception):
    """Raised for an error status of the agent server. The message is a sentence of one line.

    shown: the detail for clients, with the same status: a text or the list of an HTTPValidationError. None unless the
    error is about the client's own request. detail: text of the agent server.
    """

    def __init__(self, status: int, detail: str = "", body: bytes = b"", *, shown: Any = None) -> None:
        super().__init__(f"The agent server answered {status}: {detail or 'no detail'}")
        self.status, self.detail, self.body, self.shown = status, detail, body, shown


class AgentServer:
    """A sandbox's agent server. Every method raises AgentUnreachable and AgentRefused. Thread-safe."""

    def __init__(self, client: httpx.Client, url: str, session_api_key: str) -> None:
        self._client = client
        self._url = url
        self._headers = {"X-Session-API-Key": session_api_key, "Accept-Encoding": "identity"}

    def is_alive(self) -> bool:
        """Return whether the agent server responds to requests."""
        try:
            self._call("GET", "/alive", seconds=_ALIVE)
        except (AgentUnreachable, AgentRefused):
            return False
        return True

    def idle_seconds(self) -> float | None:
        """Return the reported idle time of the agent server in seconds; None if it is no duration."""
        idle = _object(self._call("GET", "/server_info", seconds=_ALIVE)).get("idle_time")
        if isinstance(idle, bool) or not isinstance(idle, int | float) or not 0 <= idle <= _LONGEST_IDLE:
            return None
        return float(idle)

    def start(self, request: dict[str, Any], seconds: float, headers: Mapping[str, str] | None = None) -> list[str]:
        """Start a conversation, once per id. Return the bundled agent's sentences about ignored parts of the request.

        Cost: many seconds while the agent loads its tools.
        """
        options = {"headers": {**(headers or {}), **self._headers}}
        raw = self._call("POST", "/api/conversations", json=request, repeatable=True, seconds=seconds, **options)
        try:
            response = _json(raw)
        except AgentUnreachable:  # the start has succeeded
            return []
        told = response.get("ignored") if isinstance(response, dict) else None
        sentences = told[:_MOST_IGNORED] if isinstance(told, list) else []
        return [beginning(one, _MOST_CLEANED) for one in sentences if isinstance(one, str)]

    def state(self, conversation_id: ConversationId) -> dict[str, Any]:
        """Return the agent server's description of a conversation."""
        return _object(self._call("GET", f"/api/conversations/{conversation_id}", repeatable=True))

    def conversations(self, *, limit: int, page_id: str | None = None) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of descriptions of conversations, the newest first, and the next page_id.

        Raises ResponseTooLong.
        """
        query = {"limit": str(limit), "sort_order": "CREATED_AT_DESC"} | ({"page_id": page_id} if page_id else {})
        page = _object(self._call("GET", "/api/conversations/search", params=query, repeatable=True))
        items, following = page.get("items"), page.get("next_page_id")
        if not isinstance(items, list) or not isinstance(following, str | None):
            raise AgentUnreachable("The agent server's response is not a page of conversations")
        return [item for item in items if isinstance(item, dict)], following or None

    def latest_action(self, conversation_id: ConversationId) -> str | None:
        """Return the id of the agent's latest action; None if there is none."""
        query = {"kind": "ActionEvent", "sort_order": "TIMESTAMP_DESC", "limit": 1}
        path = f"/api/conversations/{conversation_id}/events/search"
        items = _object(self._call("GET", path, params=query, repeatable=True)).get("items")
        if items == []:
            return None
        if not isinstance(items, list) or not isinstance(items[0], dict) or not isinstance(items[0].get("id"), str):
            raise AgentUnreachable("The agent server's response has no list of events with ids as its items")
        return str(items[0]["id"])

    def count_events(self, conversation_id: ConversationId, *, seconds: float | None = None) -> int:
        """Return the number of events in the agent's own log of a conversation.

        seconds: default: the client's timeout.
        """
        path = f"/api/conversations/{conversation_id}/events/count"
        number = _json(self._call("GET", path, repeatable=True, seconds=seconds))
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise AgentUnreachable("The agent server's response is not a number of events")
        return number

    def has_event(self, conversation_id: ConversationId, event_id: str) -> bool:
        """Return whether the agent's own log of a conversation has an event."""
        try:
            self._call(
                "GET", f"/api/conversations/{conversation_id}/events/{quote(event_id, safe='')}", repeatable=True
            )
        except AgentRefused as refusal:
            if refusal.status == 404:
                return False
            raise
        return True

    def events(
        self, conversation_id: ConversationId, *, limit: int, newest_first: bool = False, page_id: str | None = None
    ) -> tuple[list[ReceivedEvent], str | None]:
        """Return a page of the agent's own log of a conversation, and the next page_id.

        page_id: id of the first event. Events that no webhook would accept are left out. Raises ResponseTooLong.
        """
        query = {"limit": str(limit), "sort_order": "TIMESTAMP_DESC" if newest_first else "TIMESTAMP"}
        query |= {"page_id": page_id} if page_id else {}
        path = f"/api/conversations/{conversation_id}/events/search"
        page = _object(self._call("GET", path, params=query, repeatable=True))
        items, following = page.get("items"), page.get("next_page_id")
        if not isinstance(items, list) or not isinstance(following, str | None):
            raise AgentUnreachable("The agent server's response is not a page of events")
        return [event for event in map(_event, items) if event], following or None

    def send(self, conversation_id: ConversationId, content: list[dict[str, Any]], run: bool) -> None:
        """Send the agent a user's message."""
        body = {"role": "user", "content": content, "run": run}
        self._call("POST", f"/api/conversations/{conversation_id}/events", json=body)

    def decide(self, conversation_id: ConversationId, accept: bool, reason: str, decisions: Sequence[Any] = ()) -> None:
        """Send the agent a decision about its pending actions, and separate decisions if it supports them."""
        path = f"/api/conversations/{conversation_id}/events/respond_to_confirmation"
        each = {"decisions": list(decisions)} if decisions else {}
        self._call("POST", path, json={"accept": accept, "reason": reason, **each})

    def post(self, conversation_id: ConversationId, verb: str, body: dict[str, Any], *, repeatable: bool) -> None:
        """Send a command: `run`, `pause`, `interrupt`, or the name of a setting with its value."""
        self._call("POST", f"/api/conversations/{conversation_id}/{verb}", json=body, repeatable=repeatable)

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """Return the JSON of a response to a request that changes nothing. options: httpx's. Raises ResponseTooLong."""
        return _json(self._call(method, path, repeatable=True, **options))

    def execute(self, command: str, folder: str, seconds: int) -> dict[str, Any]:
        """Run a command in a folder of the sandbox, and wait for it: `exit_code`, `stdout`, `stderr`."""
        body = {"command": command, "cwd": folder, "timeout": seconds}
        path, longer = "/api/bash/execute_bash_command", seconds + _ALIVE
        return _object(self._call("POST", path, json=body, seconds=longer))

    def label(self, conversation_id: ConversationId, labels: dict[str, Any]) -> None:
        """Set the title and the tags of a conversation."""
        path = f"/api/conversations/{conversation_id}"
        self._call("PATCH", path, json=labels, repeatable=True, seconds=_LABEL)

    def delete(self, conversation_id: ConversationId) -> None:
        """Delete a conversation from the agent server."""
        self._call("DELETE", f"/api/conversations/{conversation_id}", repeatable=True)

    def _call(
        self, method: str, path: str, *, seconds: float | None = None, repeatable: bool = False, **options: Any
    ) -> bytes:
        """Return the body of a successful response.

        seconds: for both attempts together; default: the client's timeout.
        """
        seconds = seconds or self._client.timeout.read or _ALIVE
        if "json" in options:  # httpx would write it without escapes, and a lone surrogate has no UTF-8
            content = json.dumps(options.pop("json")).encode()
            headers = {**options.get("headers", self._headers), "Content-Type": "application/json"}
            options |= {"content": content, "headers": headers}
        options["timeout"] = httpx.Timeout(seconds, connect=_CONNECT)
        with deadline(seconds):
            for is_last in (not repeatable, True):
                try:
                    with traces.call(method) as carried:
                        headers = {**options.get("headers", self._headers), **carried}
                        return self._exchange(method, path, {**options, "headers": headers})
                except (httpx.TransportError, httpx.InvalidURL) as error:
                    if is_last or isinstance(error, httpx.PoolTimeout):  # a PoolTimeout is the whole deadline
                        raise AgentUnreachable(_reason(error, seconds)) from error
        raise AssertionError("the last try returns or raises")

    def _exchange(self, method: str, path: str, options: dict[str, Any]) -> bytes:
        """Make an attempt. Raises httpx.TransportError beside AgentUnreachable and AgentRefused."""
        with self._client.stream(method, self._url + path, **options) as response:
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding != "identity":
                raise AgentUnreachable(
                    f"The agent server's response is encoded as {beginning(one_line(encoding), _DETAIL)}"
                )
            body = bytearray()
            for part in response.iter_raw():
                take_turns()  # one read may contain thousands of small chunks
                body += part
                if len(body) > MOST_BYTES:
                    raise ResponseTooLong
        if not response.is_success:
            raise AgentRefused(response.status_code, detail_of(bytes(body)), bytes(body))
        return bytes(body)


def _reason(error: Exception, seconds: float) -> str:
    if isinstance(error, httpx.TimeoutException):
        return f"The agent server did not answer within {seconds:g} s"
    return f"The agent server does not answer: {beginning(one_line(str(error)), _DETAIL) or type(error).__name__}"


def _json(body: bytes) -> Any:
    """Parse a response. Raises AgentUnreachable, and ResponseTooLong for too many values."""
    try:
        return parse_json(body)
    except TooManyValues as error:
        raise ResponseTooLong(f"{MOST_VALUES} values") from error
    except InvalidJson as error:
        raise AgentUnreachable(f"The agent server's response is not a JSON object: {one_line(str(error))}") from error


def _object(body: bytes) -> dict[str, Any]:
    """Parse a response as a JSON object. Raises AgentUnreachable."""
    value = _json(body)
    if not isinstance(value, dict):
        raise AgentUnreachable("The agent server's response is not a JSON object")
    return value


def _event(item: Any) -> ReceivedEvent | None:
    """Return an event of the agent's log; None if a webhook would refuse its form."""
    names = ("id", "kind", "source", "timestamp", "tool_name", "tool_call_id", "llm_response_id")
    if not isinstance(item, dict) or not all(isinstance(item.get(name), str) for name in names[:4]):
        return None
    texts = [item[name].encode(errors="surrogatepass") for name in names if isinstance(item.get(name), str)]
    raw = json.dumps(item).encode()
    if len(raw) > MOST_EVENT_BYTES:  # as it was posted: without escapes
        raw = json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    if len(raw) > MOST_EVENT_BYTES or any(len(text) > MOST_CALL_BYTES for text in texts):
        return None
    try:
        event = read_event(raw)
        "".join(event[:3]).encode()
    except ValueError:  # no time, or a lone surrogate in a name
        return None
    return event if all(0 < len(name) <= MOST_NAME for name in event[:3]) else None


def detail_of(body: bytes, clean: Callable[[str], str] = str) -> str:
    """Return the `detail` of an error response, or its text, as one short line.

    clean: masks secrets before truncation.
    """
    try:
        text = said_by(_object(body)["detail"])
    except (AgentUnreachable, KeyError):
        text = ""
    text = clean(beginning(text or body.decode(errors="replace"), _MOST_CLEANED))
    return beginning(one_line(beginning(text, 4 * _DETAIL)), _DETAIL)


def said_by(detail: Any) -> str:
    """Return the sentences of a `detail`: a text, or the faults of a 422; empty for other shapes."""
    faults = detail if isinstance(detail, list) else [{"msg": detail}]
    said = [fault.get("msg") for fault in faults if isinstance(fault, dict)]
    return "; ".join(each for each in said if isinstance(each, str))


def http_client(seconds: float) -> httpx.Client:
    """Make the client of a process for all agent servers. seconds: the default deadline of a call."""
    limits = httpx.Limits(max_connections=200, max_keepalive_connections=50, keepalive_expiry=4)
    # Ignore proxies of the environment between a server and its sandboxes.
    timeout = httpx.Timeout(seconds, connect=_CONNECT)
    return httpx.Client(timeout=timeout, transport=Transport(limits), trust_env=False)


def start_run(agent: AgentServer, conversation_id: ConversationId) -> None:
    """Start a run. If the last run is about to end (409), start it after that.

    Otherwise a client that got the 409 would wait for a run that nobody starts. The 409 is final if the agent runs or
    waits: a retry could start a second run, or accept an action. Source: `run` of the published agent server. Raises
    AgentUnreachable and AgentRefused.

    The run must not approve actions that this server has not seen. The bundled agent refuses a run while an action
    waits; the published agent server ignores `accepts`, and approves the action.
    """
    deadline = time.monotonic() + _ENDING
    while True:
        try:
            agent.post(conversation_id, "run", RUN, repeatable=False)
        except AgentRefused as refusal:
            if refusal.status != 409 or time.monotonic() > deadline:
                raise
            if agent.state(conversation_id).get("execution_status") in ("running", "waiting_for_confirmation"):
                raise
        else:
            return
        time.sleep(_POLL)
