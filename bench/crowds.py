"""What a good client waits while others misuse the server: slow heads, silent sockets, many followers, a flood.

The good client is one keep-alive connection that counts, reads a page and appends an event in turn, at a steady rate.
"""

import json
import math
import multiprocessing
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import chain, count, repeat
from multiprocessing.connection import Connection
from random import Random
from uuid import uuid4

from bench import corpus, load, servers
from bench.measure import Effort, Row
from bench.received import TIMEOUT, Received
from bench.sockets import Listener, message
from wire import ConversationId

_WORKERS = 2

#: requests a second of the good client; connections of the flood; events a second for the followers
_RATE, _FLOOD, _EVENTS = 50, 8, 2

#: seconds between two bytes of a slow head
_SLOWNESS = 0.5

#: the good client's waits may grow by this factor at most
_MOST = 10

#: runs in a process of its own, and sends "open" once the crowd is there: (pipe, port, conversation, number)
Crowd = Callable[[Connection, int, ConversationId, int], None]


def rows(effort: Effort) -> list[Row]:
    """The good client's p99 beside each crowd, against its p99 alone just before."""
    random = Random(15)
    crowds: list[tuple[str, Crowd, int]] = [
        (f"{effort.crowd:,} connections that send a head byte by byte", _slow_heads, effort.crowd),
        (f"{effort.crowd:,} silent sockets", silent_sockets, effort.crowd),
        (f"{2 * effort.crowd:,} followers of one conversation, {_EVENTS} events/s", followers, 2 * effort.crowd),
        (f"{_FLOOD} connections that append to one conversation as fast as they can", _flood, _FLOOD),
    ]
    room = {"MAX_FOLLOWERS_PER_KEY": str(2 * effort.crowd)}  # workers do not get exactly as many each
    with servers.redis_server() as url, servers.gunicorn("app:create_app()", url, _WORKERS, **room) as port:
        own, theirs = corpus.conversation(random), corpus.conversation(random)
        corpus.fill(url, own, corpus.agent_events(random, 1000))
        load.create(port, "/api/conversations", json.dumps({"conversation_id": theirs}).encode())
        found = []
        for what, crowd, number in crowds:
            alone = _good_client(port, own, effort)
            with beside(crowd, port, theirs, number):
                found.append((what, alone, _good_client(port, own, effort)))
    return [_row(*one) for one in found]


def _row(what: str, alone: Received, crowded: Received) -> Row:
    return Row(
        f"a good client beside {what}, {_WORKERS} workers: p99 against p99 alone",
        crowded.percentile(0.99) / alone.percentile(0.99),
        " ×",
        f"{crowded.percentile(0.99):.1f} ms against {alone.percentile(0.99):.1f} ms; "
        f"p50 {crowded.percentile(0.5):.1f} ms against {alone.percentile(0.5):.1f} ms",
        most=_MOST,
        raw={"beside": crowded.latencies, "alone": alone.latencies, "unit": "s"},
    )


def _good_client(port: int, conversation_id: ConversationId, effort: Effort) -> Received:
    """The seconds that each of its requests took."""
    events = f"/api/conversations/{conversation_id}/events"
    reads = repeat(load.get(f"{events}/count")), repeat(load.get(f"{events}/search?limit=20"))
    requests = chain.from_iterable(zip(*reads, _appends(conversation_id), strict=False))
    latencies: list[float] = []
    start = time.monotonic()
    with closing(load.Connection(port)) as connection:
        for number in range(effort.good_requests):
            time.sleep(max(0.0, start + number / _RATE - time.monotonic()))
            sent = time.perf_counter()
            connection.send_next(requests)
            while connection.receive() is None:
                pass
            latencies.append(time.perf_counter() - sent)
    return Received(latencies, time.monotonic() - start)


def _appends(conversation_id: ConversationId) -> Iterator[bytes]:
    """Requests that append an event each."""
    for number in count():
        event = message(number) | {"id": str(uuid4())}
        yield load.post(f"/api/v1/webhooks/events/{conversation_id}", json.dumps([event]).encode())


@contextmanager
def beside(crowd: Crowd, port: int, conversation_id: ConversationId, number: int) -> Iterator[None]:
    """A crowd in a process of its own, until the block ends. Raises RuntimeError where it ended before."""
    ours, theirs = multiprocessing.Pipe()
    arguments = (theirs, port, conversation_id, number)
    process = multiprocessing.get_context("fork").Process(target=_run, args=(crowd, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(TIMEOUT) or ours.recv() != "open":
            raise RuntimeError(f"the crowd of {crowd} did not come")
        yield
        if not process.is_alive():
            raise RuntimeError(f"the crowd of {crowd} left early")
    finally:
        process.terminate()
        process.join()


def _run(crowd: Crowd, arguments: tuple[Connection, int, ConversationId, int]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    crowd(*arguments)


def _slow_heads(pipe: Connection, port: int, _conversation: ConversationId, number: int) -> None:
    """Each sends a byte of an endless head now and then; one that the server closes comes again."""
    head = b"GET /api/conversations/search HTTP/1.1\r\nX-Slow: "
    opened = [_slow(port, head) for _ in range(number)]
    pipe.send("open")
    while True:
        time.sleep(_SLOWNESS)
        for at, one in enumerate(opened):
            try:
                one.sendall(b"a")
            except OSError:
                one.close()
                opened[at] = _slow(port, head)


def _slow(port: int, head: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), TIMEOUT)
    connection.sendall(head)
    return connection


def silent_sockets(pipe: Connection, port: int, conversation_id: ConversationId, number: int) -> None:
    """Sockets that neither read nor write."""
    sockets = [Listener(port, conversation_id, []) for _ in range(number)]
    pipe.send("open")
    time.sleep(TIMEOUT * len(sockets))


def followers(pipe: Connection, port: int, conversation_id: ConversationId, number: int, rate: float = _EVENTS) -> None:
    """Sockets that read all, while so many events a second come."""
    sockets = [Listener(port, conversation_id, []) for _ in range(number)]
    selector = selectors.DefaultSelector()
    for one in sockets:
        selector.register(one.socket, selectors.EVENT_READ, one.socket)
    requests = _appends(conversation_id)
    pipe.send("open")
    following = time.monotonic() if rate else math.inf
    with closing(load.Connection(port)) as connection:
        while True:
            if time.monotonic() >= following:
                following += 1 / rate
                connection.send_next(requests)
                while connection.receive() is None:
                    pass
            for key, _ in selector.select(min(TIMEOUT, max(0.0, following - time.monotonic()))):
                key.fileobj.recv(65536)  # type: ignore[union-attr]


def _flood(pipe: Connection, port: int, conversation_id: ConversationId, number: int) -> None:
    pipe.send("open")
    load.drive(port, _appends(conversation_id), connections=number)
