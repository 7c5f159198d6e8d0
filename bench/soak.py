"""Leaks of two workers during minutes of a mixed load: memory, files, threads, connections, and keys that never expire.

The load counts events with and without a text, reads pages, appends, follows with short-lived sockets and streams, and
creates conversations that are soon deleted. All figures should be flat after the second minute, when caches and pools
are full. The text cache has a smaller bound here, so that it fills in time.
"""

import json
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import count, islice
from multiprocessing.connection import Connection
from random import Random
from typing import NamedTuple

from redis import Redis

from bench import corpus, load, servers
from bench.load import TIMEOUT
from bench.measure import QUICK, Effort, FigureRow, write_section
from bench.sockets import IdleListener, message
from core.wire import ConversationId

_WORKERS, _CONNECTIONS, _MIB = 2, 8, 1 << 20

#: Size of each worker's text cache, in bytes.
_TEXT_BYTES = 4 * _MIB

#: Number of long-lived conversations, events until each is replaced, and turns until a conversation is deleted.
_LASTING, _EVENTS, _LAG = 5, 1_000, 60

#: Number of followers of each kind, and seconds until the oldest one is replaced.
_FOLLOWERS, _RENEWED = 10, 0.5

#: Minutes in which caches and pools fill.
_WARM = 2

#: Minutes between two rows of the table.
_SHOWN = 5

#: Maximum growth of each figure after these minutes, for the allocator's reserve and work in progress.
_MOST = {"RSS": 8, "files": 20, "threads": 4, "connections": 20, "keys": 60}


class _Minute(NamedTuple):
    """The figures at the end of a minute: of the larger worker, except the store's."""

    rss: float  #: MiB
    files: int
    threads: int
    connections: int
    keys: int  #: of the store, without an expiry


def soak(effort: Effort) -> list[FigureRow]:
    """Measure ten minutes, or an hour if LONG is set. Write every fifth minute into docs/performance.md."""
    followed = corpus.conversation(Random(46))
    settings = {"TEXT_CACHE_BYTES": str(_TEXT_BYTES)}
    with ExitStack() as stack:
        url = stack.enter_context(servers.redis_server())
        port = stack.enter_context(servers.gunicorn("app:create_app()", url, _WORKERS, **settings))
        redis = stack.enter_context(Redis.from_url(url))
        load.ask(port, _append(followed, 0))
        stack.enter_context(load.beside(_requests, port, followed, effort.soak_rate))
        stack.enter_context(load.beside(_followers, port, followed))
        began, minutes = time.monotonic(), list[_Minute]()
        for number in range(effort.soak_minutes):
            time.sleep(max(0.0, began + (number + 1) * effort.soak_minute - time.monotonic()))
            minutes.append(_figures(redis))
        requests = int(redis.info("stats")["total_commands_processed"])
    if effort is not QUICK:
        write_section("soak", _table(minutes))
    return [_row(name, minutes, requests) for name in _MOST]


def _figures(redis: Redis) -> _Minute:
    figures_of_workers = [
        (servers.resident(one.pid) / 1024, one.num_fds(), one.num_threads(), len(one.net_connections("all")))
        for one in servers.worker_processes()
    ]
    rss, files, threads, connections = map(max, zip(*figures_of_workers, strict=True))
    return _Minute(rss, files, threads, connections, _lasting_keys(redis))


def _lasting_keys(redis: Redis) -> int:
    number, left = 0, redis.scan_iter(count=1000)
    while names := list(islice(left, 1000)):
        with redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.ttl(name)
            number += sum(ttl == -1 for ttl in pipe.execute())
    return number


def _row(name: str, minutes: list[_Minute], commands: int) -> FigureRow:
    series = [float(one[list(_MOST).index(name)]) for one in minutes]
    before, after = series[min(_WARM, len(series)) - 1], max(series[_WARM:], default=series[-1])
    unit = " MiB" if name == "RSS" else ""
    what = {"RSS": "memory of the larger worker", "keys": "keys without an expiry"}.get(name, f"{name} of a worker")
    return FigureRow(
        f"a mixed load of {len(minutes)} minutes on {_WORKERS} workers: growth of the {what} after minute {_WARM}",
        max(0.0, after - before),
        unit,
        f"from {before:,.0f} to at most {after:,.0f}{unit}; {commands:,} commands of Redis",
        most=_MOST[name],
        raw={"minutes": series, "unit": unit.strip() or "number"},
    )


def _table(minutes: list[_Minute]) -> str:
    rows = [
        f"| {number} | {one.rss:.1f} | {one.files} | {one.threads} | {one.connections} | {one.keys} |"
        for number, one in enumerate(minutes, 1)
        if number == 1 or number % _SHOWN == 0
    ]
    head = "| minute | memory, MiB | files | threads | connections | keys without an expiry |"
    return "\n".join([head, "|---:|---:|---:|---:|---:|---:|", *rows, ""])


def _requests(pipe: Connection, port: int, followed: ConversationId, rate: float) -> None:
    pipe.send("open")
    load.drive(port, load.paced(_mixed(followed), rate), connections=_CONNECTIONS, seconds=float("inf"))


def _mixed(followed: ConversationId) -> Iterator[bytes]:
    """Yield requests of every kind, in turn. A conversation is deleted _LAG turns after its last use."""
    random = Random(47)
    gone = deque[tuple[int, ConversationId]]()
    lasting = [corpus.conversation(random) for _ in range(_LASTING)]
    yield from (_append(one, 0) for one in lasting)
    yield from _until_ended()
    for number in count(1):
        place, brief = number % _LASTING, corpus.conversation(random)
        if number % _EVENTS == 0:
            at = number // _EVENTS % _LASTING
            gone.append((number, lasting[at]))
            lasting[at] = corpus.conversation(random)
            yield _append(lasting[at], 0)
            yield from _until_ended()
        events = f"/api/conversations/{lasting[place]}/events"
        yield _append(lasting[place], number)
        yield _append(brief, number)
        yield load.get(f"{events}/count")
        yield load.get(f"{events}/count?body=xxx")
        yield load.get(f"{events}/search?limit=20&sort_order=TIMESTAMP_DESC")
        yield load.get("/api/conversations/count")
        if number % 10 == 0:
            yield _append(followed, number)
        gone.append((number, brief))
        while gone and number - gone[0][0] > _LAG:
            _, one = gone.popleft()
            yield load.get(f"/api/conversations/{gone[_LAG // 2][1]}/events/count?body=xxx")
            yield b"DELETE" + load.get(f"/api/conversations/{one}").removeprefix(b"GET")


def _until_ended() -> Iterator[bytes]:
    """Yield requests until the earlier ones end on the other connections."""
    yield from (load.get("/api/conversations/count") for _ in range(4 * _CONNECTIONS))


def _append(conversation_id: ConversationId, number: int) -> bytes:
    event = message(number) | {"id": f"{conversation_id}-{number}"}
    return load.post(f"/api/v1/webhooks/events/{conversation_id}", json.dumps([event]).encode())


def _followers(pipe: Connection, port: int, followed: ConversationId) -> None:
    """Read from sockets and streams, and repeatedly replace the oldest."""
    opened = deque[socket.socket]()
    pipe.send("open")
    while True:
        for one in (IdleListener(port, followed, []).socket, _stream(port, followed)):
            one.setblocking(False)
            opened.append(one)
        while len(opened) > 2 * _FOLLOWERS:
            opened.popleft().close()
        for one in opened:
            with suppress(BlockingIOError):
                while one.recv(65536):
                    pass
        time.sleep(_RENEWED)


def _stream(port: int, followed: ConversationId) -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), TIMEOUT)
    one.sendall(load.get(f"/api/conversations/{followed}/events/stream"))
    return one
