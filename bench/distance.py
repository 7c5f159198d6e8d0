"""Waits of a client while Redis is far away, in round trips to it.

The server reaches its Redis through a relay that delays each piece by half a round trip in either direction. The other
side of each ratio is a PING through that relay. So a ratio is the number of round trips that the client waits for, plus
the server's own computing.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import httpx
from redis import Redis

from bench import corpus, servers
from bench.load import TIMEOUT
from bench.measure import Effort, FigureRow, interleaved, timed
from core.wire import event_time, now

#: Duration of a round trip, in seconds.
_AWAY = 0.025

_CALLS = 4

#: Maximum round trips that a client waits for.
_TARGETS = {
    "append an event": 1.5,
    "append an action that waits": 1.5,
    "decide it": 2.5,
    "list the conversations": 1.5,
}


class _Held(asyncio.Protocol):
    """One direction of a connection. Data leaves half a round trip after it arrived."""

    def __init__(self, other: "_Held | None" = None) -> None:
        self.other = other
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        asyncio.get_running_loop().call_later(_AWAY / 2, self._pass, data)

    def _pass(self, data: bytes) -> None:
        if self.other and self.other.transport:
            self.other.transport.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.other and self.other.transport:
            self.other.transport.close()


@contextmanager
def _far(url: str) -> Iterator[str]:
    """Yield the URL of a relay that makes the Redis at a socket seem far away."""
    loop, tasks = asyncio.new_event_loop(), set[asyncio.Task[object]]()

    def accepted() -> _Held:
        near, far = _Held(), _Held()
        near.other, far.other = far, near
        tasks.add(task := loop.create_task(loop.create_unix_connection(lambda: far, url.removeprefix("unix://"))))
        task.add_done_callback(tasks.discard)
        return near

    server = loop.run_until_complete(loop.create_server(accepted, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def distance(effort: Effort) -> list[FigureRow]:
    """Compare the time of an append, a decision and a list with one round trip."""
    with (
        servers.redis_server() as near,
        _far(near) as url,
        servers.gunicorn("app:create_app()", url) as port,
        Redis.from_url(url) as redis,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT) as client,
    ):
        ping = timed(redis.ping, _CALLS)
        rounds = {name: interleaved(effort.rounds, call, ping) for name, call in _measured(client).items()}
    what = f"Redis {_AWAY * 1000:.0f} ms away, round trips to"
    return [measured.row(f"{what} {name}", "s", most=_TARGETS[name]) for name, measured in rounds.items()]


def _measured(client: httpx.Client) -> dict[str, Callable[[], float]]:
    """Return a timer for each call, in seconds."""
    random = Random(1)
    plain, held = (corpus.conversation(random) for _ in range(2))
    for identity in (plain, held):
        _send(client, "POST", "/conversations", {"conversation_id": identity})
    policy = {"policy": {"kind": "AlwaysConfirm"}}
    _send(client, "POST", f"/conversations/{held}/confirmation_policy", policy)

    def append(identity: str, **fields: object) -> None:
        event = {"id": corpus.conversation(random), "timestamp": event_time(now()), "source": "agent", **fields}
        _send(client, "POST", f"/v1/webhooks/events/{identity}", [event])

    def act() -> None:
        action = {"kind": "TerminalAction", "command": "git status"}
        append(held, kind="ActionEvent", tool_name="terminal", action=action, tool_call_id="c")

    def decide() -> None:
        answer = {"accept": False, "reason": "no"}
        _send(client, "POST", f"/conversations/{held}/events/respond_to_confirmation", answer)

    def decision() -> float:
        act()
        return timed(decide, 1)()

    return {
        "append an event": timed(lambda: append(plain, kind="PauseEvent"), _CALLS),
        "append an action that waits": timed(act, _CALLS),
        "decide it": decision,
        "list the conversations": timed(lambda: _send(client, "GET", "/conversations/search"), _CALLS),
    }


def _send(client: httpx.Client, method: str, path: str, body: object = None) -> None:
    client.request(method, f"/api{path}", json=body).raise_for_status()
