"""Latency of the slowest requests: compared with a bare view, and of a good client while the server is under siege.

`tails`: the bare views show the cost of the machine, gunicorn and Redis at that moment. Both sides are measured
alternately, in short parts, so that a disturbance of the machine affects both.

`besieged`: the waits of a good client, and the growth of the server's memory, while others take all that they can
without a key: half a head on thousands of connections, silent sockets, many followers, unrequested whole bodies, and
sandboxes that post with their hook keys as fast as the server accepts. The good client counts, reads a page and appends
an event in turn, at a steady rate, and reconnects regularly, as a new client would.
"""

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import chain, count, repeat
from multiprocessing.connection import Connection
from random import Random
from typing import NamedTuple
from uuid import uuid4

from redis import Redis

from app import create_app
from bench import corpus, load, servers
from bench.load import TIMEOUT, Received
from bench.measure import Effort, FigureRow
from bench.sockets import IdleListener, message
from core.wire import ConversationId
from settings.config import Config
from store import Store

_WORKERS = 2

_CONNECTIONS = (1, 4, 16, 64)

_PARTS = 4

#: Maximum ratios of p99 and of the longest request to the bare view's, and minimum ratio of a count's throughput.
_MOST_P99, _MOST_LONGEST, _LEAST_RATE = 2, 5, 0.7

#: Requests per second of the good client; events per second for the followers.
_RATE, _EVENTS = 50, 2

#: Seconds after which the good client ends, even with requests left.
_MOST_SECONDS = 60

#: Maximum growth factor of the good client's waits.
_MOST = 10

#: Runs in another process, and sends "open" once the crowd is there: (pipe, port, conversation, number).
_Crowd = Callable[[Connection, int, ConversationId, int], None]

_MIB = 1 << 20

#: The store's `maxmemory`, and the key that seals its sandboxes' keys.
_STORE_BYTES, _SECRET = 1024 * _MIB, "a key of the bench alone"

#: Maximum size of a connection in its worker besides a body, in bytes: greenlet, socket, parser, and a piece.
_CONNECTION_BYTES = 128 * 1024

#: Growth of a process without a fault, in bytes: the allocator's reserve, and the good client's events.
_SLACK = 16 * _MIB

#: Every request of the good client with this number opens a new connection.
_RENEWED = 10

#: Number of loopback addresses of the half heads; seconds that the server allows each, in which all closed ones
#: reconnect; poll interval for closed ones, in seconds.
_ADDRESSES, _LIFE, _POLL = 8, 20.0, 0.1

_BATCH = 100

_HOST = ("bench", "supervisor")


def tails(effort: Effort) -> list[FigureRow]:
    """Measure p99 and the longest request against the bare view, and the throughput of a count, in one run."""
    random = Random(16)
    counted, appended = corpus.conversation(random), corpus.conversation(random)
    with ExitStack() as stack:
        url = stack.enter_context(servers.redis_server())
        filled = list(corpus.agent_events(random, effort.small_log))
        corpus.fill(url, counted, filled)
        with Redis.from_url(url) as redis:
            servers.fill_bare(redis, counted, (event.raw for event in filled))
        ours = stack.enter_context(servers.gunicorn("app:create_app()", url, _WORKERS))
        bare = stack.enter_context(servers.bare(url, _WORKERS))
        load.create(ours, "/api/conversations", json.dumps({"conversation_id": appended}).encode())
        events = f"/api/conversations/{counted}/events"
        count, page = load.get(f"{events}/count"), load.get(f"{events}/search?limit=100")
        asked = {"a count": repeat(count), "a page of 100 events": repeat(page), "an append": _appends(appended)}
        rows = []
        for connections in _CONNECTIONS:
            number = f"{connections} connection{'s' * (connections > 1)}"
            for what, requests in asked.items():
                of_ours, of_bare = _taken((ours, bare), requests, connections, effort)
                rows += _tail_rows(f"{what}, {number}", of_ours, of_bare)
                if what == "a count":
                    rows.append(_throughput(number, of_ours, of_bare))
        return rows


def _taken(ports: Sequence[int], requests: Iterator[bytes], connections: int, effort: Effort) -> list[Received]:
    """Return the latencies of each request at each server."""
    for port in ports:
        load.drive(port, requests, connections=connections, seconds=effort.seconds)  # warm-up: first use loads code
    runs: dict[int, list[load.Load]] = {port: [] for port in ports}
    for _ in range(_PARTS):
        for port, parts in runs.items():
            seconds = effort.tail_seconds / _PARTS
            parts.append(load.drive(port, requests, connections=connections, seconds=seconds))
    return [
        Received([one for part in parts for one in part.latencies], sum(part.seconds for part in parts))
        for parts in runs.values()
    ]


def _tail_rows(what: str, ours: Received, bare: Received) -> list[FigureRow]:
    words = f"{_words(ours)}; bare {_words(bare)}"
    shares = {"p99": (0.99, _MOST_P99), "the longest": (1.0, _MOST_LONGEST)}
    return [
        FigureRow(
            f"{what}: {name} against a bare Flask view",
            ours.percentile(share) / bare.percentile(share),
            " ×",
            words,
            most=most,
            raw={"ours": ours.latencies[-1000:], "bare": bare.latencies[-1000:], "unit": "s"},
        )
        for name, (share, most) in shares.items()
    ]


def _words(taken: Received) -> str:
    p50, p99, longest = (taken.percentile(share) for share in (0.5, 0.99, 1.0))
    return f"p50 {p50:.2f}, p99 {p99:.1f}, longest {longest:.0f} ms"


def _throughput(connections: str, ours: Received, bare: Received) -> FigureRow:
    ours_rate, bare_rate = ours.rate, bare.rate
    return FigureRow(
        f"a count, {connections}: throughput against a bare Flask view",
        ours_rate / bare_rate,
        " ×",
        f"{ours_rate:,.0f}/s against {bare_rate:,.0f}/s",
        least=_LEAST_RATE,
        raw={"ours": ours_rate, "bare": bare_rate, "unit": "requests/s"},
    )


class _Siege(NamedTuple):
    what: str
    crowd: _Crowd
    number: int
    workers_bytes: int  #: maximum growth of all workers, as the sum of the settings
    store_bytes: int = _SLACK


def besieged(effort: Effort) -> list[FigureRow]:
    """Measure the good client's p99 in each siege against its p99 before, and the growth of workers and store."""
    random, config = Random(23), Config()
    with ExitStack() as stack:
        url = stack.enter_context(servers.redis_server(most_bytes=_STORE_BYTES))
        store: Store = create_app(Config.of(redis_url=url, secret_key=_SECRET)).extensions["server"].store
        # Followers are not distributed evenly among workers.
        settings = {"SECRET_KEY": _SECRET, "MAX_FOLLOWERS_PER_KEY": str(2 * effort.crowd)}
        port = stack.enter_context(servers.gunicorn("app:create_app()", url, _WORKERS, **settings))
        redis = stack.enter_context(Redis.from_url(url))
        own, theirs = corpus.conversation(random), corpus.conversation(random)
        corpus.fill(url, own, corpus.agent_events(random, 1000))
        load.create(port, "/api/conversations", json.dumps({"conversation_id": theirs}).encode())
        posts = partial(_posts, [_hook(store, random) for _ in range(effort.sandboxes)])
        room = _WORKERS * (config.redis.max_followers + 1000)

        def grown(connections: int) -> int:
            return _WORKERS * _SLACK + connections * _CONNECTION_BYTES

        half, crowd, bodies, many = effort.half_heads, effort.crowd, effort.unread_bodies, effort.sandboxes
        followed = f"{2 * crowd:,} followers of one conversation, {_EVENTS} events/s"
        unread = f"{bodies} unread bodies of {config.http.max_body_bytes / _MIB:.0f} MiB"
        posting = f"{many} sandboxes that post as fast as they can"
        read = many * config.http.max_body_bytes
        sieges = [
            _Siege(
                f"{half:,} half heads, which come again when they are closed", _half_heads, half, grown(min(half, room))
            ),
            _Siege(f"{crowd:,} silent sockets", _silent_sockets, crowd, grown(crowd)),
            _Siege(followed, _followers, 2 * crowd, grown(2 * crowd)),
            _Siege(unread, partial(_unread_bodies, config.http.max_body_bytes), bodies, grown(bodies)),
            _Siege(posting, posts, many, grown(many) + read, _STORE_BYTES),
        ]
        return [row for siege in sieges for row in _besieged(siege, port, redis, (own, theirs), effort)]


def _besieged(
    siege: _Siege, port: int, redis: Redis, conversations: tuple[ConversationId, ConversationId], effort: Effort
) -> list[FigureRow]:
    """conversations: the good client's, and the crowd's."""
    own, theirs = conversations
    alone = _good_client(port, own, effort)
    pids = [one.pid for one in servers.worker_processes()]
    for pid in pids:
        servers.forget_peak(pid)
    workers, store = 1024 * sum(map(servers.resident, pids)), redis.info("memory")["used_memory"]
    with load.beside(siege.crowd, port, theirs, siege.number):
        crowded = _good_client(port, own, effort)
        workers_peak = 1024 * sum(servers.resident(pid, "VmHWM") for pid in pids)
        store_after = redis.info("memory")["used_memory"]
    what = f"besieged by {siege.what}, {_WORKERS} workers"
    return [
        _waits(f"a good client {what}", alone, crowded),
        _growth(f"{what}: growth of the workers' memory", workers, workers_peak, siege.workers_bytes),
        _growth(f"{what}: growth of the store's memory", store, store_after, siege.store_bytes),
    ]


def _growth(what: str, before: int, after: int, allowed: int) -> FigureRow:
    return FigureRow(
        f"{what}, against what the settings add up to",
        max(0, after - before) / allowed,
        " ×",
        f"from {before / _MIB:.0f} to {after / _MIB:.0f} MiB, where {allowed / _MIB:.0f} MiB more are allowed",
        most=1,
        raw={"before": before, "after": after, "allowed": allowed, "unit": "bytes"},
    )


def _waits(what: str, alone: Received, crowded: Received) -> FigureRow:
    """Return the good client's p99 against its p99 alone."""
    return FigureRow(
        f"{what}: p99 against p99 alone",
        crowded.percentile(0.99) / alone.percentile(0.99),
        " ×",
        f"{crowded.percentile(0.99):.1f} ms against {alone.percentile(0.99):.1f} ms; "
        f"p50 {crowded.percentile(0.5):.1f} ms against {alone.percentile(0.5):.1f} ms",
        most=_MOST,
        raw={"beside": crowded.latencies, "alone": alone.latencies, "unit": "s"},
    )


def _good_client(port: int, conversation_id: ConversationId, effort: Effort) -> Received:
    """Return the seconds of each of its requests, including new connections.

    Raises RuntimeError and OSError if the server refuses a request or a connection.
    """
    events = f"/api/conversations/{conversation_id}/events"
    reads = repeat(load.get(f"{events}/count")), repeat(load.get(f"{events}/search?limit=20"))
    requests = chain.from_iterable(zip(*reads, _appends(conversation_id), strict=False))
    latencies: list[float] = []
    start = time.monotonic()
    connection = load.BenchConnection(port)
    try:
        for number in load.paced(range(effort.good_requests), _RATE):
            sent = time.perf_counter()
            if number % _RENEWED == 0:
                connection.close()
                connection = load.BenchConnection(port)
            connection.exchange(next(requests))
            latencies.append(time.perf_counter() - sent)
            if time.monotonic() - start > _MOST_SECONDS:
                break
    finally:
        connection.close()
    return Received(latencies, time.monotonic() - start)


def _appends(conversation_id: ConversationId) -> Iterator[bytes]:
    for number in count():
        event = message(number) | {"id": str(uuid4())}
        yield load.post(f"/api/v1/webhooks/events/{conversation_id}", json.dumps([event]).encode())


def _silent_sockets(pipe: Connection, port: int, conversation_id: ConversationId, number: int) -> None:
    sockets = [IdleListener(port, conversation_id, []) for _ in range(number)]
    pipe.send("open")
    time.sleep(TIMEOUT * len(sockets))


def _followers(pipe: Connection, port: int, conversation_id: ConversationId, number: int) -> None:
    """Open sockets that read everything, and send events at a steady rate."""
    sockets = [IdleListener(port, conversation_id, []) for _ in range(number)]
    selector = selectors.DefaultSelector()
    for one in sockets:
        selector.register(one.socket, selectors.EVENT_READ, one.socket)
    requests = _appends(conversation_id)
    pipe.send("open")
    following = time.monotonic()
    with closing(load.BenchConnection(port)) as connection:
        while True:
            if time.monotonic() >= following:
                following += 1 / _EVENTS
                connection.exchange(next(requests))
            for key, _ in selector.select(min(TIMEOUT, max(0.0, following - time.monotonic()))):
                key.fileobj.recv(65536)  # type: ignore[union-attr]


def _half_heads(pipe: Connection, port: int, _conversation: ConversationId, number: int) -> None:
    """Send half a request line on each connection, and wait. Reopen closed connections at an even rate."""
    selector, missing = selectors.DefaultSelector(), list(range(number))
    share, is_told = number, False
    while True:
        missing, now = missing[share:], missing[:share]
        for at in now:
            try:
                source = (f"127.0.0.{2 + at % _ADDRESSES}", 0)
                one = socket.create_connection(("127.0.0.1", port), TIMEOUT, source)
                one.sendall(b"GET /api/conversations/sea")
                selector.register(one, selectors.EVENT_READ, at)
            except OSError:  # the server has too many of them to accept another
                missing.append(at)
        if not is_told:
            pipe.send("open")
            share, is_told = max(1, round(number * _POLL / _LIFE)), True
        time.sleep(_POLL)
        for key, _ in selector.select(0):
            selector.unregister(key.fileobj)
            key.fileobj.close()  # type: ignore[union-attr]
            missing.append(key.data)


def _unread_bodies(size: int, pipe: Connection, port: int, _conversation: ConversationId, number: int) -> None:
    """Send bodies without their last byte to a link that does not exist. Start again when the connection is closed."""
    head = (
        "POST /approvals/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Idempotency-Key: besieged\r\nContent-Length: {size}\r\n\r\n"
    ).encode()
    begun, body = threading.Semaphore(0), b" " * (size - 1)

    def post() -> None:
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), TIMEOUT) as connection:
                connection.sendall(head)
                begun.release()
                connection.sendall(body)
                while connection.recv(65536):
                    pass

    for _ in range(number):
        threading.Thread(target=post, daemon=True).start()
    for _ in range(number):
        begun.acquire()
    pipe.send("open")
    time.sleep(TIMEOUT * number)


def _hook(store: Store, random: Random) -> tuple[str, ConversationId]:
    """Return the hook key of a new sandbox, which the crowd represents, and its conversation."""
    conversation_id, sandboxes = corpus.conversation(random), store.sandboxes
    sandboxes.beat(*_HOST)
    sandbox = sandboxes.start("reference-agent")
    sandboxes.claim(_HOST[0])
    key = sandboxes.begin(sandbox.id, *_HOST, "process")
    if key is None:
        raise RuntimeError(f"the sandbox {sandbox.id} did not start")
    sandboxes.report(sandbox.id, *_HOST, "RUNNING", agent_url="http://127.0.0.1:9", urls=[], handle={})
    store.conversations.create(conversation_id, sandbox_id=sandbox.id, app={})
    return key, conversation_id


def _posts(
    hooks: list[tuple[str, ConversationId]], pipe: Connection, port: int, _conversation: ConversationId, _number: int
) -> None:
    """Post batch after batch for each sandbox, whatever the server responds."""
    selector, queues = selectors.DefaultSelector(), {}
    with ExitStack() as stack:
        for hook in hooks:
            connection = stack.enter_context(closing(load.BenchConnection(port, any_status=True)))
            queues[connection.number] = (connection, _sandbox_batches(*hook))
            selector.register(connection.number, selectors.EVENT_READ)
            connection.send_next(queues[connection.number][1])
        pipe.send("open")
        while True:
            for key, _ in selector.select(TIMEOUT):
                connection, requests = queues[key.fd]
                if connection.receive() is not None:
                    connection.send_next(requests)


def _sandbox_batches(key: str, conversation_id: ConversationId) -> Iterator[bytes]:
    path = f"/api/v1/webhooks/events/{conversation_id}"
    for number in count():
        batch = [message(number * _BATCH + at) | {"id": str(uuid4())} for at in range(_BATCH)]
        yield load.post(path, json.dumps(batch).encode(), f"Authorization: Bearer {key}")
