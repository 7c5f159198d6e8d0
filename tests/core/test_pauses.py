"""What computes for long gives the other greenlets turns: turns are counted, by a clock that every look moves on."""

import itertools
import json
import socket
from types import SimpleNamespace

import gevent
import httpcore
import httpx
import pytest
from gevent.socket import socketpair, wait_read
from gunicorn.config import Config
from gunicorn.http import get_parser
from redis import Redis
from redis.connection import ConnectionPool

from agents.client import AgentServer
from agents.previews import Exchange
from agents.tunnels import Tunnel
from blueprints.approval_links import _marked
from boot.http import RequestBody
from boot.worker import Worker, WorkerConnection
from core import pauses
from core.wire import ConversationId
from egress import proxy
from egress.resolver import Resolver
from net.connections import Backend
from net.transport import Transport
from schemas.events import read_batch
from store.conversations.events import _arguments
from store.link.connection import Parser
from store.log import text
from store.log.frames import compressed, originals
from tests.conftest import as_events, message

EVENTS = as_events([message(f"a message of number {number}") for number in range(40)])


@pytest.fixture
def clock(monkeypatch):
    """Starts a clock that moves on by so many seconds at every look; a wait is gevent's, or the one that is given."""

    def start(step: float, sleep=gevent.sleep) -> None:
        looks = itertools.count(start=1)
        monkeypatch.setattr(pauses, "time", SimpleNamespace(monotonic=lambda: next(looks) * step, sleep=sleep))
        for turned in ("_turned", "_paid"):
            monkeypatch.setattr(pauses, turned, 0.0)

    return start


def test_a_turn_is_taken_after_half_a_millisecond_and_not_before(clock):
    taken = []

    # Given 0.2 ms from look to look: every third one finds more than 0.5 ms since the look after the turn before
    clock(0.0002, taken.append)
    for _ in range(60):
        pauses.take_turns()
    assert len(taken) == 20

    clock(0.000001, taken.append)
    for _ in range(60):
        pauses.take_turns()
    assert len(taken) == 20


@pytest.fixture
def now(monkeypatch):
    """A clock that waits move on, and work."""
    now = SimpleNamespace(at=100.0)

    def sleep(seconds: float) -> None:
        now.at += seconds

    monkeypatch.setattr(pauses, "time", SimpleNamespace(monotonic=lambda: now.at, sleep=sleep))
    for name, value in {"_turned": 0.0, "_latest": 0, "_shared": float("-inf"), "_paid": 0.0}.items():
        monkeypatch.setattr(pauses, name, value)
    return now


@pytest.mark.parametrize("besides", [lambda: None, pauses.take_turns], ids=["", "and take turns besides"])
def test_greenlets_of_one_share_wait_for_each_other_and_those_of_another_do_not(now, besides):
    share, other = pauses.TurnShare(), pauses.TurnShare()

    # When the greenlets of one work a little longer than a turn, forty times, and another one works a little
    for _ in range(40):
        other.take_turns()
        now.at += 0.006
        besides()
        share.take_turns()

    # Then as much time as their turns are long was left to others
    assert 0.395 < now.at - 100 < 0.405

    # And the other one has its turn as soon as others had theirs
    now.at += 0.006
    before = now.at
    other.take_turns()
    assert now.at - before < 0.001


def test_a_share_waits_for_nobody_where_no_other_was_at_work_for_a_tenth_of_a_second(now):
    share = pauses.TurnShare()
    pauses.TurnShare().take_turns()
    share.take_turns()
    now.at += 0.11
    before = now.at

    for _ in range(40):
        now.at += 0.006
        share.take_turns()

    assert 0.24 <= now.at - before < 0.241


def test_what_has_arrived_at_a_socket_has_its_turn_at_the_next_one(clock):
    # Given greenlets that compute, and another one that waits for a socket
    clock(0.01)
    ours, theirs = socketpair()
    computed, waited = [], []

    def compute() -> None:
        while len(waited) < 10:
            computed.append(1)
            pauses.take_turns()

    def answer() -> None:
        while theirs.recv(1):
            theirs.sendall(b"x")

    def ask() -> None:
        for _ in range(10):
            before = len(computed)
            ours.sendall(b"x")
            ours.recv(1)
            waited.append(len(computed) - before)

    with ours, theirs:
        # When it asks and is answered, a switch each
        answering = gevent.spawn(answer)
        gevent.joinall([gevent.spawn(compute), gevent.spawn(compute), gevent.spawn(ask)], raise_error=True)
        answering.kill()

    # Then each of the others has computed once or twice until then, and not a hundred times
    assert max(waited) <= 8


def scan() -> None:
    records = b"".join(b"\xf7" + b"\xf8" * 11 + text.record(event) for event in EVENTS)
    assert text.count(records, b"number") == len(list(text.matches(records, b"number"))) == len(EVENTS)
    assert text.count(records, b"absent") == 0
    assert [position.at for position in text.matches(records, b"number 39")] == [EVENTS[39].at]


def read_from_a_client() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"x" * 40)
        request = SimpleNamespace(
            body=SimpleNamespace(reader=None), unreader=SimpleNamespace(), _expected_100_continue=False
        )
        body = RequestBody(request, ours, seconds=60, least_rate=1)
        assert b"".join(body.recv(1) for _ in range(40)) == b"x" * 40


def read_heads(*, size: int) -> None:
    """Read the heads of requests that have all arrived; size: bytes that each read brings."""
    ours, theirs = socket.socketpair()
    connection = WorkerConnection(theirs.family, theirs.type, theirs.proto, fileno=theirs.detach())
    worker = Worker.__new__(Worker)
    worker._served = SimpleNamespace(client=connection, network="", is_new=True)
    worker._waiting, worker.cfg = {}, Config()
    with ours, connection:
        ours.sendall(b"GET /alive HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40)
        requests = get_parser(worker.cfg, connection, ("127.0.0.1", 1))
        requests.unreader.mxchunk = size
        for _ in range(40):
            with worker.timeout_ctx():
                assert next(requests).path == "/alive"


def ask_an_agent(*pieces: bytes) -> None:
    """Ask an agent server for a state; pieces: what each read of its response brings."""
    backend = Backend()
    backend._backend = httpcore.MockBackend(list(pieces))
    with httpx.Client(transport=Transport(httpx.Limits(), backend)) as client:
        state = AgentServer(client, "http://agent", "its key").state(ConversationId("some"))
    assert state == {"said": "x" * 40}


def carry_a_body_out() -> None:
    """Read the body of a sandbox's request that has arrived at the way out, in chunks of a byte."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        head = b"POST http://some.example/ HTTP/1.1\r\nHost: some.example\r\nTransfer-Encoding: chunked\r\n\r\n"
        ours.sendall(head + CHUNKS)
        talk = proxy._SandboxConnection(theirs)
        assert talk.request() is not None
        assert b"".join(talk.body(proxy._Count())) == STATE


def carry_a_tunnel() -> None:
    """Carry what has arrived at a tunnel, a byte at a time, to a server that takes it at once."""
    ends = [socket.socketpair() for _ in range(2)]
    (ours, client), (server, theirs) = ends
    with ours, client, server, theirs, pytest.MonkeyPatch.context() as patched:
        patched.setattr(proxy, "PIECE", 1)
        ours.sendall(STATE)
        for each in (ours, theirs):
            each.shutdown(socket.SHUT_WR)
        proxy._splice(client, server, proxy._Count(), pauses.TurnShare())
        assert theirs.recv(1000) == STATE


def ask_by_name(*pieces: bytes) -> None:
    """Ask a server by name, as the way out does; pieces: what each read of its response brings."""
    backend = Resolver(look_up=lambda _: ["192.0.2.1"], is_open=lambda *_: True, own=tuple).backend()
    backend._backend = httpcore.MockBackend(list(pieces))
    with httpcore.ConnectionPool(network_backend=backend) as pool:
        response = pool.handle_request(
            httpcore.Request("GET", "http://some.example/", headers={"Host": "some.example"})
        )
        assert b"".join(proxy._pieces(response, pauses.TurnShare())) == STATE
        response.close()


def show_a_preview() -> None:
    """Read the response of a program in a sandbox that has arrived, in chunks of a byte."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(CHUNKED + CHUNKS)
        exchange = Exchange(Tunnel(ours, b""), 8000, 1e9, lambda: None)
        assert exchange.ask("GET", "/", [("Host", "some")], []).status == 200
        assert b"".join(exchange) == STATE


STATE = json.dumps({"said": "x" * 40}).encode()
CHUNKS = b"".join(b"1\r\n%c\r\n" % byte for byte in STATE) + b"0\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(STATE)

WORK = {
    "reading a batch": lambda: read_batch(json.dumps([event.fields for event in EVENTS]).encode()),
    "preparing a batch for the store": lambda: [_arguments(event, (), True, False) for event in EVENTS],
    "reading a page of frames": lambda: originals([compressed(event.raw) for event in EVENTS] * 10),
    "scanning text": scan,
    "a body that has arrived": read_from_a_client,
    "an action on the page of a link": lambda: _marked("a\u202e" * 40),
    "requests of a client that waits for no response": lambda: read_heads(size=8192),
    "a head in crumbs that have arrived": lambda: read_heads(size=1),
    "small chunks of an agent server": lambda: ask_an_agent(CHUNKED + CHUNKS),
    "a request of a sandbox to the way out": carry_a_body_out,
    "a tunnel of the way out": carry_a_tunnel,
    "small chunks from a server by name": lambda: ask_by_name(CHUNKED + CHUNKS),
    "interim responses of a server by name": lambda: ask_by_name(*[INTERIM] * 40, CHUNKED + CHUNKS),
    "small chunks of a preview": show_a_preview,
    "a response of an agent server that has arrived": lambda: ask_an_agent(SIZED, *(bytes([one]) for one in STATE)),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_long_work_takes_turns(clock, monkeypatch, work):
    monkeypatch.setattr(text, "_PIECE", 200)
    taken = []

    clock(0.002, taken.append)
    work()

    assert len(taken) >= 5


def test_a_greenlet_whose_data_are_always_there_gives_the_others_turns(redis_url, clock):
    # Given a clock that moves on by 0.1 ms at each look, and another greenlet that waits for a socket
    clock(0.0001)
    ours, theirs = socketpair()
    received = []

    def other() -> None:
        ours.sendall(b"x")
        while True:
            wait_read(theirs.fileno())  # also where there is something to read it waits for gevent's loop to look
            received.append(1)

    # When a greenlet makes 60 round trips and waits at none of them: its own sockets are not gevent's
    pool = ConnectionPool.from_url(redis_url, parser_class=Parser, max_connections=1)
    with ours, theirs, Redis(connection_pool=pool) as client:
        beside = gevent.spawn(other)
        gevent.spawn(lambda: [client.ping() for _ in range(60)]).get()
        beside.kill()

    # Then the other one ran in between, every 0.5 ms or so
    assert len(received) >= 8
