"""The events that the bench stores and counts: like those of agents, and equal in every run.

Recorded conversations are copied with other ids, times and call ids, in both spacings of JSON. On these `python -m
bench.corpus NUMBER` trains a dictionary for `store/log/frames.py`. A released dictionary is never overwritten, because
stored data needs it.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from zstandard import train_dictionary

from app import create_app
from core.wire import ConversationId, Micros, ReceivedEvent, event_time
from settings.config import Config
from store import Store

#: 2026-01-01T00:00:00Z in µs, and one second between events.
FIRST, STEP = 1_767_225_600_000_000, 1_000_000

#: (kind, source) of ten consecutive events of a typical log
TEN = (
    ("MessageEvent", "user"),
    *(("ActionEvent", "agent"), ("ObservationEvent", "environment")) * 3,
    ("ConversationStateUpdateEvent", "environment"),
    ("MessageEvent", "agent"),
    ("ConversationStateUpdateEvent", "environment"),
)

#: Number of events in one call of the store while a log is filled: the maximum of a request.
_BATCH = 500

_SENTENCE = (
    "The file src/app.py has Been changed; tests pass on Python 3.12 and the error in line 40 "
    "comes from a missing import größer naïve 设置 — please run it again with --verbose to See why it fails there"
)
_WORDS = _SENTENCE.split(" ")


_PROJECT = Path(__file__).parent.parent
_SHIPPED = _PROJECT / "store" / "log" / "dictionaries"
_RECORDED = _PROJECT / "tests" / "recorded"

#: Size of a dictionary in bytes, and number of samples from each recorded event.
_SIZE, _TIMES = 8 * 1024, 20

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CALL = re.compile(r"call_[0-9a-f]{8}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}")


def open_store(redis_url: str) -> Store:
    """Return the store as the server creates it."""
    store: Store = create_app(Config.of(redis_url=redis_url)).extensions["server"].store
    return store


def conversation(random: Random) -> ConversationId:
    return ConversationId(_uuid(random))


def fill(redis_url: str, conversation_id: ConversationId, events: Iterable[ReceivedEvent]) -> None:
    """Append events in large batches."""
    store, left = open_store(redis_url), iter(events)
    while batch := list(islice(left, _BATCH)):
        store.events.append(conversation_id, batch)


def small_events(random: Random, number: int) -> Iterator[ReceivedEvent]:
    """Yield events of the usual kinds without content."""
    for i in range(number):
        kind, source = TEN[i % len(TEN)]
        yield ReceivedEvent(_uuid(random), kind, source, Micros(FIRST + i * STEP), {}, b"{}")


def messages(random: Random, number: int, rare: str, common: str) -> Iterator[ReceivedEvent]:
    """Yield messages of about 200 bytes of text. All have the common needle, one in a thousand has the rare one."""
    for i in range(number):
        words = [*random.choices(_WORDS, k=36), common]
        if i % 1000 == 500:
            words[7] = rare
        fields = _message("user", " ".join(words))
        yield ReceivedEvent(_uuid(random), "MessageEvent", "user", Micros(FIRST + i * STEP), fields, b"{}")


def agent_events(random: Random, number: int) -> Iterator[ReceivedEvent]:
    """Yield whole events of about 485 bytes of JSON: messages, actions and observations."""
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
        yield ReceivedEvent(fields["id"], kind, source, at, fields, json.dumps(fields, ensure_ascii=False).encode())


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


def recorded() -> list[str]:
    return [line for file in sorted(_RECORDED.glob("*.jsonl")) for line in file.read_text().splitlines()]


def varied(events: list[str], copies: int, seed: int) -> Iterator[bytes]:
    """Yield copies of these events. Each copy has its own ids and times, alternately spaced and compact."""
    random = Random(seed)
    for number in range(copies):
        ids: dict[str, str] = {}
        for text in events:
            for one in _UUID.findall(text):
                ids.setdefault(one, str(UUID(int=random.getrandbits(128), version=4)))
            text = _UUID.sub(partial(_other, ids), text)
            text = _CALL.sub(lambda _: f"call_{random.getrandbits(32):08x}", text)
            text = _TIME.sub(lambda _: _time(random), text)
            fields = json.loads(text)
            yield json.dumps(fields, ensure_ascii=False, separators=(",", ":") if number % 2 else None).encode()


def _other(ids: dict[str, str], match: re.Match[str]) -> str:
    return ids[match[0]]


def _time(random: Random) -> str:
    def two(least: int, most: int) -> str:
        return f"{random.randint(least, most):02}"

    day, clock = f"2026-{two(1, 12)}-{two(1, 28)}", f"{two(0, 23)}:{two(0, 59)}:{two(0, 59)}"
    return f"{day}T{clock}.{random.randint(0, 999_999):06}"


def main() -> int:
    """Write the dictionary. Exit status 1 if that number exists."""
    options = argparse.ArgumentParser(prog="python -m bench.corpus", description="Train a dictionary of events.")
    options.add_argument("number", type=int, choices=range(1, 256), metavar="NUMBER", help="1 to 255")
    number = options.parse_args().number
    file = _SHIPPED / f"{number}.zdict"
    if file.exists():
        print(f"{file} exists, and stored events may need it: choose another number", file=sys.stderr)
        return 1
    samples: list[bytes | bytearray | memoryview[int]] = list(varied(recorded(), _TIMES, seed=number))
    file.write_bytes(train_dictionary(_SIZE, samples, dict_id=number, level=3).as_bytes())
    print(f"{file}: {file.stat().st_size:,} bytes of {len(samples):,} samples")
    return 0


if __name__ == "__main__":
    sys.exit(main())
