"""A rehearsal of a rule on all recorded decisions: its duration, and its effect on other requests.

The decisions are written without the scripts, a thousand at once. The audit and the logs are as the scripts write them,
except for the chain's hashes, which a rehearsal does not read. One in SHARE commands is new; the others have occurred
before.
"""

import hashlib
import json
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random

from redis import Redis

from bench import corpus, load, servers
from bench.load import Received
from bench.measure import Effort, FigureRow
from core.approvals import action_digest, shown_arguments
from core.wire import ConversationId, Micros, ReceivedEvent, event_time, utc_time
from store.approvals.audit import audit_member, shown
from store.keys import ApprovalKeys, ConversationKeys, audit_key

#: Number of decisions per conversation; one in how many commands is new.
_EACH, _SHARE = 100, 20

#: Number of the server's workers; requests per second of other clients meanwhile.
_WORKERS, _RATE = 2, 50

#: Timeout of a rehearsal, in seconds.
_LOST = 900.0

#: Maximum seconds of a rehearsal of a million decisions, and maximum ratio of other clients' p99 to their p99 alone.
_MOST_SECONDS, _MOST_RATIO = 30.0, 1.1

_DRAFT = {
    "decision": "approve",
    "tool_name": "terminal",
    "arguments": {"command": {"command": "git status *"}},
}
_LINES = Path(__file__).parent.parent / "tests" / "core" / "shell_lines.toml"


def rehearsal(effort: Effort) -> list[FigureRow]:
    """Measure the seconds of a rehearsal, and the p99 of requests meanwhile against their p99 alone."""
    with ExitStack() as stack:
        url = stack.enter_context(servers.redis_server())
        fill(url, effort.decisions)
        port = stack.enter_context(servers.gunicorn("app:create_app()", url, _WORKERS))
        own = corpus.conversation(Random(31))
        corpus.fill(url, own, corpus.agent_events(Random(32), 1000))
        others = _Others(port, own)
        others.measure(1.0)
        alone = others.measure(effort.rehearsal_seconds)
        began = time.monotonic()
        rehearsal_id = _start(port)
        beside: list[float] = []
        while (state := _get(port, rehearsal_id))["state"] == "running":
            if time.monotonic() - began > _LOST:
                raise RuntimeError(f"rehearsal: not done within {_LOST:g} s: {state}")
            beside += others.measure(min(1.0, effort.rehearsal_seconds)).latencies
        seconds = time.monotonic() - began
        after = others.measure(effort.rehearsal_seconds)
    if state["state"] != "done" or state["decided"] != effort.decisions:
        raise RuntimeError(f"rehearsal: {state['state']} with {state['decided']} decisions: {state['detail']}")
    meanwhile = Received(beside, seconds)
    alone = Received(alone.latencies + after.latencies, alone.seconds + after.seconds)
    what = f"a rehearsal on {effort.decisions:,} decisions, one in {_SHARE} commands new, {_WORKERS} workers"
    return [
        FigureRow(
            what,
            seconds,
            " s",
            f"{1e6 * seconds / effort.decisions:.1f} µs a decision; {state['answered']:,} answered, "
            f"{state['rejected']:,} of them rejected",
            most=_MOST_SECONDS,
        ),
        FigureRow(
            f"{what}: p99 of others, {_RATE} requests/s, against their p99 alone",
            meanwhile.percentile(0.99) / alone.percentile(0.99),
            " ×",
            f"{_words(meanwhile)} beside it; {_words(alone)} alone",
            most=_MOST_RATIO,
            raw={"beside": meanwhile.latencies, "alone": alone.latencies, "unit": "s"},
        ),
    ]


def _words(taken: Received) -> str:
    p50, p99, longest = (taken.percentile(share) for share in (0.5, 0.99, 1.0))
    return f"p50 {p50:.2f}, p99 {p99:.2f}, longest {longest:.1f} ms of {len(taken.latencies):,}"


def _start(port: int) -> str:
    with closing(load.BenchConnection(port, any_status=True)) as connection:
        body = connection.exchange(load.post("/api/v1/approval-rules/rehearsals", json.dumps(_DRAFT).encode()))
    started: str = json.loads(body)["id"]
    return started


def _get(port: int, rehearsal_id: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(load.ask(port, load.get(f"/api/v1/approval-rules/rehearsals/{rehearsal_id}")))
    return found


class _Others:
    """Clients that alternately count, read a page and append, at a steady rate."""

    def __init__(self, port: int, own: ConversationId) -> None:
        self._port = port
        events = f"/api/conversations/{own}/events"
        self._requests = [load.get(f"{events}/count"), load.get(f"{events}/search?limit=20")]
        self._number = 0

    def measure(self, seconds: float) -> Received:
        latencies: list[float] = []
        start = time.monotonic()
        with closing(load.BenchConnection(self._port)) as connection:
            for _ in load.paced(range(round(seconds * _RATE)), _RATE):
                request = self._requests[self._number % len(self._requests)]
                self._number += 1
                sent = time.perf_counter()
                connection.exchange(request)
                latencies.append(time.perf_counter() - sent)
        return Received(latencies, time.monotonic() - start)


def fill(url: str, decisions: int) -> None:
    """Write a number of people's decisions, one in ten a rejection."""
    random, store = Random(30), corpus.open_store(url)
    lines = [text for family in tomllib.loads(_LINES.read_text())["lines"].values() for _, text in family]
    commands = [f"{lines[number % len(lines)]} {number}" for number in range(max(1, decisions // _SHARE))]
    with closing(Redis.from_url(url)) as redis:
        for first in range(0, decisions, _EACH):
            conversation_id = corpus.conversation(random)
            store.conversations.create(conversation_id)
            events = list(_actions(random, commands, first, min(_EACH, decisions - first)))
            store.events.append(conversation_id, events)
            _decide(redis, conversation_id, events, random)


def _actions(random: Random, commands: list[str], first: int, number: int) -> Iterator[ReceivedEvent]:
    for place in range(first, first + number):
        at = Micros(corpus.FIRST + place * corpus.STEP)
        command = commands[place] if place < len(commands) else random.choice(commands)
        head = {"id": corpus.conversation(random), "timestamp": event_time(at), "source": "agent"}
        fields = {**head, **corpus.action_fields(random, command), "kind": "ActionEvent"}
        yield ReceivedEvent(fields["id"], "ActionEvent", "agent", at, fields, json.dumps(fields).encode())


def _decide(redis: Redis, conversation_id: ConversationId, events: list[ReceivedEvent], random: Random) -> None:
    entries: list[str] = []
    places: dict[str, int] = {}
    for seq, event in enumerate(events, 1):
        arguments = shown_arguments(event.fields["action"])
        entry = {
            "action_ids": [event.id],
            "actor": {"address": "127.0.0.1", "kind": "key", "name": "ada"},
            "conversation_id": conversation_id,
            "conversation_title": "Mend the build",
            "decision": "reject" if random.random() < 0.1 else "approve",
            "digests": [action_digest("terminal", arguments)],
            "hash": hashlib.sha256(event.id.encode()).hexdigest(),
            "previous": hashlib.sha256(conversation_id.encode()).hexdigest(),
            "reason": "",
            "seq": seq,
            "shown": [json.loads(shown("terminal", None, arguments))],
            "time": utc_time(event.at),
        }
        entries.append(json.dumps(entry, separators=(",", ":"), ensure_ascii=False))
        places[audit_member(conversation_id, seq)] = event.at
    with redis.pipeline(transaction=False) as pipe:
        pipe.rpush(audit_key(ConversationKeys(conversation_id)), *entries)
        pipe.zadd(f"{ApprovalKeys.root}:audit", places)
        pipe.execute()
