"""The events that the bench stores and counts: like those of agents, and the same in every run."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from random import Random
from typing import Any
from uuid import UUID

from app import create_app
from core.wire import ConversationId, Event, Micros, event_time
from settings.config import Config
from store import Store

#: 2026-01-01T00:00:00Z in µs; events follow a second apart
FIRST, STEP = 1_767_225_600_000_000, 1_000_000

#: (kind, source) of ten consecutive events of a typical log
TEN = (
    ("MessageEvent", "user"),
    *(("ActionEvent", "agent"), ("ObservationEvent", "environment")) * 3,
    ("ConversationStateUpdateEvent", "environment"),
    ("MessageEvent", "agent"),
    ("ConversationStateUpdateEvent", "environment"),
)

#: events in one call of the store when a log is filled: the most that a request may have
_BATCH = 500

_SENTENCE = (
    "The file src/app.py has Been changed; tests pass on Python 3.12 and the error in line 40 "
    "comes from a missing import größer naïve 设置 — please run it again with --verbose to See why it fails there"
)
_WORDS = _SENTENCE.split(" ")


def open_store(redis_url: str) -> Store:
    """The store as the server wires it."""
    store: Store = create_app(Config(redis_url=redis_url)).extensions["store"]
    return store


def conversation(random: Random) -> ConversationId:
    """A new conversation's id."""
    return ConversationId(_uuid(random))


def fill(redis_url: str, conversation_id: ConversationId, events: Iterable[Event]) -> None:
    """Append events in large batches."""
    store, left = open_store(redis_url), iter(events)
    while batch := list(islice(left, _BATCH)):
        store.events.append(conversation_id, batch)


def small_events(random: Random, number: int) -> Iterator[Event]:
    """Events of the usual kinds without content."""
    for i in range(number):
        kind, source = TEN[i % len(TEN)]
        yield Event(_uuid(random), kind, source, Micros(FIRST + i * STEP), {}, b"{}")


def messages(random: Random, number: int, rare: str, common: str) -> Iterator[Event]:
    """Messages of about 200 bytes of text; every one has the common needle, one in a thousand the rare one."""
    for i in range(number):
        words = [*random.choices(_WORDS, k=36), common]
        if i % 1000 == 500:
            words[7] = rare
        fields = _message("user", " ".join(words))
        yield Event(_uuid(random), "MessageEvent", "user", Micros(FIRST + i * STEP), fields, b"{}")


def agent_events(random: Random, number: int) -> Iterator[Event]:
    """Whole events of about 485 bytes of JSON: messages, actions and observations."""
    action: dict[str, Any] = {}
    for i in range(number):
        kind, source = TEN[i % 7]
        at = Micros(FIRST + i * STEP)
        head = {"id": _uuid(random), "timestamp": event_time(at), "source": source, "parent_id": _uuid(random)}
        text = " ".join(random.choices(_WORDS, k=20))
        if kind == "MessageEvent":
            body = _message(source, text)
        elif kind == "ActionEvent":
            body = action = {"id": head["id"], **action_fields(random, text[:16])}
        else:
            body = _observation(action, text[:36])
        fields = {**head, **body, "kind": kind}
        yield Event(fields["id"], kind, source, at, fields, json.dumps(fields, ensure_ascii=False).encode())


def _message(role: str, text: str) -> dict[str, Any]:
    content = [{"cache_prompt": False, "type": "text", "text": text}]
    message = {"role": role, "content": content, "thinking_blocks": []}
    return {"llm_message": message, "activated_skills": [], "extended_content": []}


def action_fields(random: Random, command: str) -> dict[str, Any]:
    call = f"call_{random.getrandbits(32):08x}"
    return {
        "thought": [],
        "action": {"command": command, "is_input": False, "kind": "TerminalAction"},
        "tool_name": "terminal",
        "tool_call_id": call,
        "tool_call": {"id": call, "name": "terminal", "arguments": json.dumps({"command": command})},
        "llm_response_id": f"{random.getrandbits(48):x}",
        "security_risk": "LOW",
    }


def _observation(action: dict[str, Any], text: str) -> dict[str, Any]:
    content = [{"cache_prompt": False, "type": "text", "text": text}]
    return {
        "tool_name": "terminal",
        "tool_call_id": action["tool_call_id"],
        "action_id": action["id"],
        "observation": {"content": content, "is_error": False, "kind": "TerminalObservation"},
    }


def _uuid(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))
