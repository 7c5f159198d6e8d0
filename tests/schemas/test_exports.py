"""An export proves itself: what an import reads of a damaged one is what was exported, or nothing."""

import io
import json
from uuid import uuid4

import pytest

from schemas.exports import BadLine, event_line, export, read_export
from tests.chance import damaged, often
from tests.conftest import action, as_events, event, message

STATE = {
    "id": str(uuid4()),
    "incarnation": "an incarnation",
    "execution_status": "idle",
    "confirmation_policy": {"kind": "NeverConfirm"},
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-02T00:00:00Z",
    "title": "Kept",
    "tags": {},
    "stats": {},
    "info": {},
    "secret_names": [],
}
EVENTS = [one.raw for one in as_events([event(), message("Straße"), event(text="a\nb"), message("bye", "agent")])]
EVENTS.append(json.dumps(event(), indent=1).encode())


def made(events: list[bytes]) -> bytes:
    return b"".join(export({**STATE, "seq": len(events)}, [events[:2], events[2:]] if events else []))


def read(content: bytes) -> tuple[dict, list[bytes]] | None:
    """The head and the events of an export; None: it is refused."""
    try:
        head, events = read_export(io.BytesIO(content))
        return head, [one.raw for one in events]
    except BadLine:
        return None


CONTENT = made(EVENTS)


@pytest.mark.parametrize("events", [EVENTS, EVENTS[:1], []], ids=["events", "one", "none"])
def test_what_was_exported_is_read(events):
    head, found = read(made(events))
    assert found == events
    assert (head["title"], head["version"]) == ("Kept", 2)
    assert read(made(events).removesuffix(b"\n")) == (head, events)


def test_the_line_of_a_decision_follows_that_of_its_action_and_is_read_over():
    acts = [action("ls", id="one"), event(), action("rm x", id="two"), action("who", id="three")]
    events = [one.raw for one in as_events(acts)]
    decided = {"one": {"decision": "approve", "actor": {"kind": "key", "name": "ada"}}, "two": {"decision": "reject"}}
    head = {**STATE, "seq": len(events)}
    content = b"".join(
        export(head, [events[:1], events[1:]], lambda ids: {one: decided[one] for one in ids if one in decided})
    )

    lines = [json.loads(one) for one in content.splitlines()]
    assert [one.get("id") or one.get("action_id") for one in lines[1:-1]] == [
        "one",
        "one",
        acts[1]["id"],
        "two",
        "two",
        "three",
    ]
    assert lines[2] == {"format": "agent-server-conversation-decision", "action_id": "one", **decided["one"]}
    assert read(content)[1] == events
    assert read(content.replace(b'"ada"', b'"eve"')) is None


def test_an_event_that_looks_like_a_line_of_the_export_itself_is_read_as_it_was():
    for what in ("decision", "end"):
        raw = json.dumps({"format": f"agent-server-conversation-{what}", **event()}, separators=(",", ":")).encode()
        assert read(made([raw]))[1] == [raw]


def test_an_event_of_a_whole_mebibyte_that_an_earlier_release_took_is_read():
    events = [json.dumps(event(text="x" * (1024 * 1024 - len(json.dumps(event(text="")))))).encode()]

    assert len(events[0]) == 1024 * 1024
    assert read(made(events))[1] == events


CHANGED = [
    (lambda lines: lines[:-1], "is missing"),
    (lambda lines: [*lines, lines[-1]], "more lines follow"),
    (lambda lines: [*lines[:2], *lines[3:]], "announces 5 events, and the export ends after 4"),
    (lambda lines: [*lines[:-2], event_line(b'"{}"').strip(), lines[-1]], "Missing data for required field"),
    (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], "the export was changed"),
    (lambda lines: [line.replace(b"Kept", b"Kept!") for line in lines], "the export was changed"),
]


def test_a_changed_export_is_refused_and_says_why():
    for change, words in CHANGED:
        _, events = read_export(io.BytesIO(b"\n".join(change(CONTENT.splitlines()))))
        with pytest.raises(BadLine) as refusal:
            list(events)
        assert words in str([str(one) for one in _leaves(refusal.value.messages)])


def _leaves(messages):
    """The texts of messages, however deep."""
    if isinstance(messages, dict):
        return [leaf for one in messages.values() for leaf in _leaves(one)]
    return [leaf for one in messages for leaf in _leaves(one)] if isinstance(messages, list) else [messages]


@pytest.mark.faults("reads a damaged export 500 times")
def test_no_random_damage_makes_another_export_of_it():
    expected = read(CONTENT)
    for seed in range(often(500, 10_000)):
        found = read(damaged(CONTENT, seed))
        assert found in (None, expected), seed
