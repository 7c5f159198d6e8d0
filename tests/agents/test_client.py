"""A hostile agent server costs its caller bounded time and memory and forges no line of the log. Real sockets.

A run is started after the end of the one before, also where the agent server tells of that end too early.
"""

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import httpx
import pytest

from agents import client as client_module
from agents.client import AgentRefused, AgentServer, AgentUnreachable, ResponseTooLong
from core import wire
from core.wire import ConversationId
from net import connections
from net.connections import pulse
from net.transport import Transport
from tests.agents import agent_client

pytestmark = pytest.mark.process("waits for deadlines of agents on threads")

SOME = ConversationId("5f1c8a52-7d0e-4c39-9a41-000000000000")

#: seconds: the deadline of a call that must not reach it, and of one that must
LONG, SHORT = 60.0, 0.2


class Hostile:
    """Serves raw bytes: `serve` is called with each connection and the request's head."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self.heads: list[str] = []
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._respond, args=(connection,), daemon=True).start()

    def _respond(self, connection: socket.socket) -> None:
        with connection:
            self.heads.append(connection.recv(65536).decode())
            try:
                self._serve(connection)
            except OSError:
                return

    def close(self) -> None:
        self._listener.close()


@contextmanager
def hostile(serve: Callable[[socket.socket], None], seconds: float = LONG) -> Iterator[tuple[AgentServer, Hostile]]:
    """A server, and what calls it with that deadline."""
    server = Hostile(serve)
    try:
        yield AgentServer(agent_client(seconds), server.url, "the key"), server
    finally:
        server.close()


def replying(body: bytes, *headers: str, status: str = "200 OK") -> Callable[[socket.socket], None]:
    """A whole response, sent in one piece."""
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers])
    return lambda connection: connection.sendall(head.encode() + b"\r\n\r\n" + body)


def dripping(first: bytes, each: bytes, seconds: float) -> Callable[[socket.socket], None]:
    """Endless bytes, a few at a time."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(each)
            time.sleep(seconds)

    return serve


@pytest.fixture
def pass_deadlines(monkeypatch):
    """Lets the deadlines of all calls pass."""
    late = []
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + sum(late)))
    return lambda: late.append(LONG)


def test_the_client_requests_unencoded_responses():
    with hostile(replying(b"{}")) as (agent, server):
        agent.state(SOME)

    assert "accept-encoding: identity" in server.heads[0].lower()


@pytest.mark.parametrize("body", [b"-1", b"true", b"1.5", b'"1"', b"null", b"{}"])
def test_a_count_that_is_no_number_of_events_is_refused(body):
    with hostile(replying(body)) as (agent, _), pytest.raises(AgentUnreachable, match="not a number of events"):
        agent.count_events(SOME)


def test_an_encoded_response_is_refused_and_never_decoded():
    bomb = gzip.compress(b" " * (64 << 20) + b"{}", 1)
    for encoding in ("gzip", "deflate", "identity, gzip"):
        with (
            hostile(replying(bomb, f"Content-Encoding: {encoding}")) as (agent, _),
            pytest.raises(AgentUnreachable, match=f"encoded as {encoding}$"),
        ):
            agent.state(SOME)


def test_a_response_ends_at_the_bound_which_the_error_names(monkeypatch):
    monkeypatch.setattr(client_module, "MOST_BYTES", 1 << 20)
    sent = 0

    def serve(connection):
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n")
        while True:
            sent += connection.send(b"x" * 65536)

    with hostile(serve) as (agent, _), pytest.raises(AgentUnreachable, match=str(1 << 20)):
        agent.state(SOME)

    assert sent < 32 << 20  # the bound, and the buffers of the system


@pytest.mark.parametrize(
    ("first", "each"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Endless: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"X-One: more\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["body", "chunks", "header", "headers", "informational"],
)
def test_a_call_has_a_deadline_in_all_however_slowly_bytes_come(first, each):
    """Without one it would not end: no read takes as long as the deadline."""
    with (
        hostile(dripping(first, each, SHORT / 5), SHORT) as (agent, _),
        pytest.raises(AgentUnreachable, match=f"not answer within {SHORT} s"),
    ):
        agent.state(SOME)


@pytest.mark.parametrize(
    "interim",
    [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.0 102 more\n\n", b"HTTP/1.1 103 hints\r\nLink: x\r\n\r\n"],
)
def test_interim_responses_without_end_are_refused_long_before_the_deadline(interim):
    def serve(connection):
        while True:
            connection.sendall(interim * 1000)

    with (
        hostile(serve) as (agent, _),
        pytest.raises(AgentUnreachable, match="more than 100 interim responses"),
    ):
        agent.state(SOME)


@pytest.mark.parametrize("size", [1, 7, 65536])
def test_the_response_after_a_hundred_interim_ones_is_read_however_the_bytes_are_cut(size):
    sent = b"HTTP/1.1 102 Processing\r\n\r\n" * 100 + b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'

    def serve(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(sent), size):
            connection.sendall(sent[at : at + size])

    with hostile(serve) as (agent, _):
        assert agent.state(SOME) == {"a": 1}


@pytest.mark.parametrize(
    "each", [b"HTTP/1.1 100 Continue\r\n\r\n", b"H"], ids=["an interim response", "a byte of a head"]
)
def test_a_pulse_beats_also_while_bytes_come(each, monkeypatch):
    class GoneAgent(Exception):
        pass

    def beat() -> None:
        raise GoneAgent

    monkeypatch.setattr(connections, "_BEAT", SHORT)
    with (
        hostile(dripping(b"", each, SHORT / 5)) as (_, server),
        httpx.Client(timeout=httpx.Timeout(LONG), transport=Transport(httpx.Limits())) as client,
        pytest.raises(GoneAgent),
        pulse(beat),
    ):
        client.get(server.url)


def test_the_deadline_includes_the_time_to_send(pass_deadlines):
    def serve(connection):
        pass_deadlines()  # in the middle of a request that is larger than all buffers
        while connection.recv(65536):
            pass

    with hostile(serve) as (agent, _), pytest.raises(AgentUnreachable, match="not answer within") as late:
        agent.send(SOME, [{"type": "text", "text": "x" * (32 << 20)}], run=True)
    assert isinstance(late.value.__cause__, httpx.WriteTimeout)


def test_a_start_may_take_longer_than_other_calls():
    def serve(connection):
        time.sleep(SHORT * 1.5)
        replying(b"{}")(connection)

    with hostile(serve, SHORT) as (agent, _):
        agent.start({}, LONG)


def test_a_retry_shares_the_deadline_of_its_call(pass_deadlines):
    with (
        hostile(lambda _: pass_deadlines()) as (agent, server),
        pytest.raises(AgentUnreachable, match="not answer within"),
    ):
        agent.state(SOME)

    assert len(server.heads) == 1


def test_a_wait_for_a_free_connection_is_part_of_the_deadline(monkeypatch):
    hung, released, tries = threading.Event(), threading.Event(), []
    with (
        hostile(lambda _: hung.set() or released.wait(LONG)) as (_, server),
        httpx.Client(timeout=httpx.Timeout(SHORT), transport=Transport(httpx.Limits(max_connections=1))) as client,
    ):
        agent = AgentServer(client, server.url, "the key")
        first = threading.Thread(target=_swallow, args=(agent.start, {}, LONG), daemon=True)
        first.start()
        assert hung.wait(LONG)
        stream = client.stream
        monkeypatch.setattr(client, "stream", lambda *args, **options: tries.append(args) or stream(*args, **options))
        with pytest.raises(AgentUnreachable, match=f"not answer within {SHORT} s"):
            agent.state(SOME)
        assert len(tries) == 1
        released.set()
        first.join()


def _swallow(call, *args):
    with suppress(AgentUnreachable):
        call(*args)


@pytest.mark.parametrize("header", ["X-Long: " + "x" * 200_000, "\r\n".join(f"X-{n}: x" for n in range(20_000))])
def test_a_flood_of_headers_is_refused(header):
    with hostile(replying(b"{}", header)) as (agent, _), pytest.raises(AgentUnreachable):
        agent.state(SOME)


NO_STATES = [
    b"",
    b"hello",
    b"\xff\xfe",
    b"[]",
    b"null",
    b"{" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    b'{"idle_time": ' + b"9" * 10_000 + b"}",
]


def test_a_response_other_than_a_json_object_is_an_error_and_never_a_state():
    for body in NO_STATES:
        with hostile(replying(body)) as (agent, _), pytest.raises(AgentUnreachable, match="JSON object"):
            agent.state(SOME)


def test_a_response_of_too_many_values_is_too_long():
    many = b"[" + b"[]," * wire.MOST_VALUES + b"[]]"
    with hostile(replying(many)) as (agent, _), pytest.raises(ResponseTooLong, match=f"{wire.MOST_VALUES} values"):
        agent.state(SOME)


def test_a_list_of_another_shape_names_no_action():
    for items in ("x", [1], [{}], [{"id": 7}], {"0": {"id": "a"}}, [None]):
        with (
            hostile(replying(json.dumps({"items": items}).encode())) as (agent, _),
            pytest.raises(AgentUnreachable, match="items"),
        ):
            agent.latest_action(SOME)


def test_an_empty_list_has_no_action():
    with hostile(replying(b'{"items": []}')) as (agent, _):
        assert agent.latest_action(SOME) is None


IDLE = [
    ("12.5", 12.5),
    ("0", 0.0),
    ("-1", None),
    ("-0.001", None),
    ("true", None),
    ("null", None),
    ('"5"', None),
    ("[5]", None),
    ("1e300", None),
    ("1e999", None),
    ("9" * 400, None),
]


def test_idle_time_is_a_number_of_seconds_or_unknown():
    for said, idle in IDLE:
        with hostile(replying(f'{{"idle_time": {said}}}'.encode())) as (agent, _):
            assert agent.idle_seconds() == idle, said


@pytest.mark.parametrize("said", ["NaN", "Infinity", "-Infinity"])
def test_idle_time_that_is_not_json_is_an_error_of_the_agent(said):
    with hostile(replying(f'{{"idle_time": {said}}}'.encode())) as (agent, _), pytest.raises(AgentUnreachable):
        agent.idle_seconds()


@pytest.mark.parametrize("as_json", [True, False])
def test_an_errors_detail_is_one_line_of_plain_text(as_json):
    said = "no\r\n[1] [supervisor] forged \x1b[31mred\x1b[0m \x1b]0;title\x07\x00\x9b31m\u2028end" + "x" * 10_000
    body = json.dumps({"detail": said}).encode() if as_json else said.encode()

    with hostile(replying(body, status="400 Bad Request")) as (agent, _), pytest.raises(AgentRefused) as refused:
        agent.state(SOME)

    text = str(refused.value)
    assert text.startswith("The agent server answered 400: no [1] [supervisor] forged red end")
    assert text.isprintable()
    assert len(text) < 600


def test_a_detail_that_is_nested_deep_is_text_like_any_other():
    body = b'{"detail": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with hostile(replying(body, status="500 Oh no")) as (agent, _), pytest.raises(AgentRefused, match="500"):
        agent.state(SOME)


def test_a_response_other_than_http_is_an_error_of_one_line():
    with (
        hostile(lambda connection: connection.sendall(b"\x1b[31mSSH-2.0\r\nforged\r\n\r\n")) as (agent, _),
        pytest.raises(AgentUnreachable) as unreachable,
    ):
        agent.send(SOME, [], run=False)

    assert str(unreachable.value).isprintable()


def test_a_redirect_is_not_followed():
    with hostile(replying(b"{}")) as (_, other):
        redirect = replying(b"", f"Location: {other.url}/", status="307 Temporary Redirect")
        with hostile(redirect) as (agent, _), pytest.raises(AgentRefused, match="307"):
            agent.state(SOME)

        assert other.heads == []


def test_an_agent_whose_response_breaks_off_is_unreachable():
    def serve(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

    with hostile(serve) as (agent, server), pytest.raises(AgentUnreachable):
        agent.state(SOME)
    assert len(server.heads) == 2  # idempotent calls are tried twice


@pytest.fixture
def linked(store, conversation, sandbox):
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    return conversation


@pytest.mark.parametrize("status", ["idle", "finished", "paused", "error"])
def test_a_run_is_retried_while_the_agent_ends_the_last_one(commands, linked, agent, status):
    agent.state = {"execution_status": status}
    agent.statuses = [409, 200, 409, 200]  # of runs, and of the question after each refusal

    commands.change_status(linked, "run")

    assert agent.count("/run") == 3


@pytest.mark.parametrize("status", ["running", "waiting_for_confirmation"])
def test_the_refusal_of_an_agent_that_runs_or_waits_is_final(commands, linked, agent, status):
    agent.state = {"execution_status": status}
    agent.statuses = [409]

    with pytest.raises(AgentRefused, match="409"):
        commands.change_status(linked, "run")
    assert agent.count("/run") == 1


def test_an_agent_that_never_ends_its_run_is_refused_in_the_end(commands, linked, agent, monkeypatch):
    monkeypatch.setattr(client_module, "_ENDING", 0.1)
    agent.state = {"execution_status": "idle"}
    agent.status_of = lambda path: 409 if path.endswith("/run") else 200

    with pytest.raises(AgentRefused, match="409"):
        commands.change_status(linked, "run")


@pytest.mark.parametrize("status", [422, 429, 500])
def test_any_other_refusal_of_a_run_is_final(commands, linked, agent, status):
    agent.state = {"execution_status": "idle"}
    agent.statuses = [status]

    with pytest.raises(AgentRefused, match=str(status)):
        commands.change_status(linked, "run")
    assert agent.count("/run") == 1
