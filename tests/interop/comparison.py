"""Compares logs, and counts by every combination of filters."""

from collections.abc import Iterator
from datetime import datetime
from itertools import product
from typing import Any

import httpx

from tests.interop.sides import Side
from tests.servers import wait_until

Event = dict[str, Any]

#: texts of the talk, in another case, in none of its messages, and the one that every message has
BODIES = (None, "", "ECHO", "question", "nowhere")

SOURCES = (None, "agent", "user", "environment")


def combinations(events: list[Event]) -> Iterator[dict[str, str]]:
    """Queries by every kind, source, text and window of time of a log, none and both ends of a window included."""
    kinds = [None, "NoSuchEvent", *sorted({event["kind"] for event in events})]
    for kind, source, body, window in product(kinds, SOURCES, BODIES, windows(events)):
        query = {"kind": kind, "source": source, "body": body, **window}
        yield {name: value for name, value in query.items() if value is not None}


def windows(events: list[Event]) -> list[dict[str, str]]:
    """No window, a beginning, an end, a part, and one that holds nothing."""
    times = [event["timestamp"] for event in events]
    first, last = times[len(times) // 3], times[2 * len(times) // 3]
    ends = [(None, None), (first, None), (None, last), (first, last), (last, last)]
    return [
        {name: time for name, time in zip(("timestamp__gte", "timestamp__lt"), both, strict=True) if time}
        for both in ends
    ]


def without_usage(events: list[Event]) -> list[Event]:
    """The events without those about usage: how many there are, and where, is a matter of time in each run."""
    return [event for event in events if event.get("key") != "stats"]


def matches(event: Event, query: dict[str, str]) -> bool:
    """Whether an event that is not a message passes the filters."""
    time = datetime.fromisoformat(event["timestamp"])
    return (
        query.get("kind") in (None, event["kind"])
        and query.get("source") in (None, event["source"])
        and "body" not in query
        and time >= datetime.fromisoformat(query.get("timestamp__gte", "1970-01-01"))
        and time < datetime.fromisoformat(query.get("timestamp__lt", "2999-01-01"))
    )


def counts(side: Side, conversation_id: str) -> list[int]:
    """A server's count for every combination, less the events about usage."""
    events = side.events(conversation_id)
    usage = [event for event in events if event.get("key") == "stats"]
    with side.http as http:
        path = f"/api/conversations/{conversation_id}/events/count"
        return [
            http.get(path, params=query).json() - sum(matches(event, query) for event in usage)
            for query in combinations(without_usage(events))
        ]


def compare_with_agent(side: Side, conversation_id: str) -> None:
    """Our log of a conversation is that of the agent server in its sandbox, and so is each count.

    Events that this server made while the agent server was away are left out: only its own log has those.
    """
    with side.http as http:
        [app] = http.get("/api/v1/app-conversations", params={"ids": conversation_id}).json()
        url, key = app["conversation_url"], app["session_api_key"]
        with httpx.Client(headers={"X-Session-API-Key": key}, timeout=60) as agent:
            wait_until(lambda: log_of(agent, url) and not missing(side, agent, url, conversation_id), "our log")
            theirs, ours = log_of(agent, url), side.events(conversation_id)
            ids = {event["id"] for event in theirs}
            own = [event for event in ours if event["id"] not in ids]
            assert {event["kind"] for event in own} <= {"ConversationErrorEvent", "ConversationStateUpdateEvent"}
            assert [event["id"] for event in ours if event["id"] in ids] == [event["id"] for event in theirs]
            path = f"/api/conversations/{conversation_id}/events/count"
            different = [
                query
                for query in combinations(theirs)
                if http.get(path, params=query).json() - sum(matches(event, query) for event in own)
                != agent.get(f"{url}/events/count", params=query).json()
            ]
            assert different == []


def missing(side: Side, agent: httpx.Client, url: str, conversation_id: str) -> set[str]:
    """The ids that the agent's log has and ours lacks."""
    return {event["id"] for event in log_of(agent, url)} - {event["id"] for event in side.events(conversation_id)}


def log_of(agent: httpx.Client, url: str) -> list[Event]:
    """Every event of the agent server's own log."""
    found: list[Event] = []
    query = {"limit": "100"}
    while True:
        page = agent.get(f"{url}/events/search", params=query).json()
        found += page["items"]
        if not page["next_page_id"]:
            return found
        query["page_id"] = page["next_page_id"]
