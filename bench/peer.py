"""The published OpenHands agent server beside this one and a bare view: the same log, the same requests, in one run.

It needs what `make openhands` leaves, or the program that OPENHANDS_AGENT_SERVER names; without it there are no rows.
The log is that of the recorded conversation, as often as it takes, with ids of its own: this server gets it by its
store; the peer, which has one file for each event, finds it when it begins.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from random import Random
from uuid import UUID

from redis import Redis

from bench import baseline, corpus, load, servers
from bench.measure import Effort, Row, in_turn
from bench.sockets import Listener
from wire import ConversationId, Event, read_event

_ROOT = Path(__file__).parent.parent
_RECORDED = _ROOT / "tests" / "recorded" / "never_confirm.events.jsonl"

#: requests under way at once; conversations of the list; sockets, and messages that they wait for in one measurement
_CONNECTIONS, _LISTED, _SOCKETS, _MESSAGES = 8, 20, 10, 20

#: filters by their names, as both servers take them
_FILTERS = {
    "no filter": "",
    "kind": "?kind=ActionEvent",
    "source": "?source=agent",
    "time": "?timestamp__gte=2026-01-01T00:00:00",
    "body": "?body=python",
}


@dataclass(frozen=True)
class _Side:
    port: int
    log: str  #: path of the conversation with the recorded events
    other: str  #: id of a conversation that messages are sent to


def program() -> str | None:
    """The peer's program; None where it is not installed."""
    return shutil.which(
        os.environ.get("OPENHANDS_AGENT_SERVER") or str(_ROOT / ".venv-openhands" / "bin" / "agent-server")
    )


def version() -> str:
    """The peer's release, as the packages beside its program say; "not installed"."""
    found = Path(program() or "/nowhere").resolve().parent.parent.glob("lib/*/site-packages/openhands_agent_server-*")
    return next((one.name.split("-")[1].removesuffix(".dist") for one in found), "not installed")


def rows(effort: Effort) -> list[Row]:
    """Counts, pages, one event, the list of conversations, a message, and its way to sockets."""
    if (peer := program()) is None:
        print("peer: skipped: the OpenHands agent server is not installed: make openhands", file=sys.stderr)
        return []
    random = Random(12)
    events = list(_recorded(random, effort.peer_log))
    listed = [corpus.conversation(random) for _ in range(_LISTED)]
    with ExitStack() as stack:
        url = stack.enter_context(servers.redis_server())
        ours = _Side(stack.enter_context(servers.gunicorn("app:create_app()", url)), _path(listed[0]), listed[1])
        bare = stack.enter_context(servers.gunicorn("bench.baseline:create_app()", url))
        for identity in listed:
            load.create(ours.port, "/api/conversations", json.dumps({"conversation_id": identity}).encode())
        corpus.fill(url, listed[0], events)
        with Redis.from_url(url) as redis:
            redis.zadd(baseline.sorted_set(listed[0]), {"0": 0})
        theirs = _Side(stack.enter_context(_agent_server(peer, listed, events)), _path(listed[0]), listed[1])
        return [*_reads(effort, ours, bare, theirs, events[len(events) // 2].id), *_writes(effort, ours, theirs)]


def _path(identity: ConversationId) -> str:
    return f"/api/conversations/{identity}/events"


def _recorded(random: Random, number: int) -> Iterator[Event]:
    """The recorded events again and again, each with an id of its own, a second apart."""
    lines = [json.loads(line) for line in _RECORDED.read_text().splitlines()]
    for at in range(number):
        fields = {**lines[at % len(lines)], "id": corpus.conversation(random)}
        fields.pop("parent_id", None)
        fields["timestamp"] = corpus.time_of(at)
        yield read_event(json.dumps(fields, ensure_ascii=False).encode())


@contextmanager
def _agent_server(peer: str, listed: list[ConversationId], events: list[Event]) -> Iterator[int]:
    """The peer with these conversations, the first of which has the events; yields its port."""
    with tempfile.TemporaryDirectory(prefix="bench-peer-") as name:
        folder = Path(name)
        with _started(peer, folder) as port:
            for identity in listed:
                load.create(port, "/api/conversations", json.dumps(_conversation(folder, identity)).encode())
        log = folder / "conversations" / UUID(listed[0]).hex / "events"
        log.mkdir(exist_ok=True)
        first = len(list(log.glob("event-*")))
        for at, event in enumerate(events, first):
            (log / f"event-{at:05d}-{event.id}.json").write_bytes(event.raw)
        for marker in log.glob(".eventlog-len-*"):
            marker.unlink()
        with _started(peer, folder) as port:
            yield port


@contextmanager
def _started(peer: str, folder: Path) -> Iterator[int]:
    port = servers.free_port()
    settings = {
        "HOME": str(folder),
        "TZ": "UTC",
        "OH_CONVERSATIONS_PATH": str(folder / "conversations"),
        "OH_WORKSPACE_PATH": str(folder / "work"),
        "OH_BASH_EVENTS_DIR": str(folder / "bash"),
        "OH_SECRET_KEY": "a key for the bench only",
        "OH_ENABLE_VSCODE": "0",
        "OH_PRELOAD_TOOLS": "0",
        "OH_LEASE_TTL_SECONDS": "0",
        "OPENHANDS_SUPPRESS_BANNER": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LOG_LEVEL": "WARNING",
    }
    command = [peer, "--host", "127.0.0.1", "--port", str(port)]
    with servers.process(command, folder, settings, lambda: servers.http_answers(port), seconds=300):
        yield port


def _conversation(folder: Path, identity: ConversationId) -> dict[str, object]:
    """A conversation whose agent never runs."""
    llm = {"model": "openai/none", "api_key": "none", "usage_id": "agent"}
    return {
        "conversation_id": identity,
        "agent": {"kind": "Agent", "llm": llm, "tools": []},
        "workspace": {"kind": "LocalWorkspace", "working_dir": str(folder / "work")},
        "autotitle": False,
    }


def _reads(effort: Effort, ours: _Side, bare: int, theirs: _Side, event_id: str) -> list[Row]:
    number = f"{effort.peer_log:,} recorded events"
    paths = {f"count, {name}, {number}": f"{ours.log}/count{query}" for name, query in _FILTERS.items()}
    for what, path in paths.items():
        found, known = (load.ask(side.port, load.get(path)) for side in (ours, theirs))
        if found != known:
            raise RuntimeError(f"{what}: {found!r}, and the peer says {known!r}")
    paths[f"a page of 100 of {number}"] = f"{ours.log}/search?limit=100"
    paths[f"one of {number}"] = f"{ours.log}/{event_id}"
    paths[f"a page of {_LISTED} conversations"] = f"/api/conversations/search?limit={_LISTED}"
    count = f"{ours.log}/count"
    return [
        _row(
            effort,
            what,
            [(ours.port, load.get(path)), (theirs.port, load.get(path)), (bare, load.get(count))],
        )
        for what, path in paths.items()
    ]


def _writes(effort: Effort, ours: _Side, theirs: _Side) -> list[Row]:
    body = {"role": "user", "content": [{"type": "text", "text": "x" * 300}], "run": False}
    message = load.post(_path(ConversationId(ours.other)), json.dumps(body).encode())
    sides = [(ours.port, message), (theirs.port, message)]
    return [_row(effort, "a message, appended", sides), _delivery(effort, ours, theirs)]


def _row(effort: Effort, what: str, sides: list[tuple[int, bytes]]) -> Row:
    """Throughput of ours, of the peer's and, where there is one, of the bare view."""

    def rate(port: int, request: bytes) -> float:
        return load.drive(port, repeat(request), connections=_CONNECTIONS, seconds=effort.seconds).rate

    rounds = in_turn(effort.curve_rounds, *[lambda side=side: rate(*side) for side in sides])
    found = rounds.medians
    sizes = [len(load.ask(*side)) for side in sides[:2]]
    bare = f", {found[2]:,.0f}/s of a bare view that counts" if len(sides) > 2 else ""
    return Row(
        f"{what}: throughput",
        found[0],
        "/s",
        f"{sizes[0]:,} bytes against {sizes[1]:,}{bare}",
        peer=(found[1], rounds.ratio(0, 1)),
        raw={**rounds.named("ours", "peer", "bare"), "unit": "requests/s"},
    )


def _delivery(effort: Effort, ours: _Side, theirs: _Side) -> Row:
    """From the request of a message to the last socket that has it."""

    def median_of(side: _Side) -> float:
        with ExitStack() as stack:
            listeners = [Listener(side.port, ConversationId(side.other), []) for _ in range(_SOCKETS)]
            for listener in listeners:
                stack.enter_context(closing(listener.socket))
            connection = stack.enter_context(closing(load.Connection(side.port)))
            spans = sorted(_seconds_to_all(connection, side, listeners, number) for number in range(_MESSAGES))
        return spans[len(spans) // 2]

    rounds = in_turn(effort.curve_rounds, lambda: median_of(ours), lambda: median_of(theirs))
    our_time, their_time = rounds.medians
    return Row(
        f"a message to {_SOCKETS} sockets: from its request to the last of them, median",
        1000 * our_time,
        " ms",
        f"{_MESSAGES} messages in each of {effort.curve_rounds} rounds, one after the other",
        peer=(1000 * their_time, rounds.ratio(1, 0)),
        raw={**rounds.named("ours", "peer"), "unit": "s"},
    )


def _seconds_to_all(connection: load.Connection, side: _Side, listeners: list[Listener], number: int) -> float:
    word = f"message {number} of {time.monotonic_ns()}"
    body = {"role": "user", "content": [{"type": "text", "text": word}], "run": False}
    start = time.perf_counter()
    connection.send_next(iter([load.post(_path(ConversationId(side.other)), json.dumps(body).encode())]))
    for listener in listeners:
        listener.wait_for(word.encode())
    elapsed = time.perf_counter() - start
    while connection.receive() is None:
        pass
    return elapsed
