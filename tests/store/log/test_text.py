"""The searchable text of a message, as a search finds it in the log and a stream in one event."""

import pytest

from store.log.text import count, fold, has_text, matches, passes, record, texts_of
from tests.conftest import as_events, event


def _content(*parts) -> dict:
    return {"llm_message": {"content": list(parts)}}


#: members of a message, what is searched for, and whether it is found
TEXTS = [
    ({"extended_content": [{"text": "x"}], "llm_message": {"content": [], "reasoning_content": "y"}}, "x y", True),
    (_content({"type": "text", "text": "ﬁne ΣΊΣΥΦΟΣ"}), "FINE σίσυφος", True),
    (_content({"type": "text", "text": "a.b"}), "a?b", False),
    ({"kind": "openhands.sdk.event.MessageEvent", **_content({"text": "deploy"})}, "deploy", True),
    (_content({"type": "text", "text": "one"}, {"type": "text", "text": "two"}), "ONE TWO", True),
    ({**_content({"type": "text", "text": "a"}), "extended_content": [{"text": "b"}]}, "a b", True),
    ({"llm_message": {"content": [], "reasoning_content": "because"}}, "because", True),
    (_content({"type": "image", "image_urls": ["deploy"]}), "deploy", False),
    (_content({"type": "text", "text": "Straße"}), "STRASSE", True),
    (_content({"type": "text", "text": "İstanbul"}), "istanbul", False),
    ({"llm_message": {"content": "plain text"}}, "plain", True),
    ({"llm_message": None}, "x", False),
    (_content(1, None, {"text": 5}), "5", False),
    ({"thought": [{"text": "deploy"}]}, "deploy", False),
]


def test_the_text_of_a_message_is_what_is_said_in_it_whatever_its_case():
    wrong = []
    for members, body, is_found in TEXTS:
        fields = {**event("MessageEvent", "agent"), **members}
        chunk = b"\xf7" + b"\xf8" * 11 + record(*as_events([fields]))
        seen = (passes(fields, body=body), count(chunk, fold(body)) == 1, len(list(matches(chunk, fold(body)))) == 1)
        if seen != (is_found,) * 3:
            wrong.append((members, body, seen))

    assert wrong == []


#: kinds with members, and the texts of the event
EVENT_TEXTS = [
    ("MessageEvent", _content({"type": "text", "text": "said"}), ["said"]),
    (
        "m.ActionEvent",
        {
            "thought": [{"type": "text", "text": "because"}],
            "tool_name": "terminal",
            "summary": "Run it",
            "action": {"kind": "TerminalAction", "command": "python3 x.py", "timeout": 5, "env": {"A": ["b", "c"]}},
            "tool_call": {"arguments": "not twice"},
        },
        ["because", "terminal", "Run it", "python3 x.py", "b", "c"],
    ),
    ("ActionEvent", {"action": None, "tool_call": {"name": "t", "arguments": '{"a": 1}'}}, ["t", '{"a": 1}']),
    ("ActionEvent", {"action": {"kind": "FinishAction", "message": "All done"}}, ["All done"]),
    ("ActionEvent", {"action": {"kind": "ThinkAction", "thought": "Hm"}}, ["Hm"]),
    (
        "ObservationEvent",
        {"observation": {"kind": "T", "content": [{"type": "text", "text": "out"}, {"image_urls": ["data:"]}]}},
        ["out"],
    ),
    ("ObservationEvent", {"observation": {"output": "printed", "exit_code": 1}, "tool_name": "t"}, ["printed"]),
    ("UserRejectObservation", {"rejection_reason": "Too risky"}, ["Too risky"]),
    ("AgentErrorEvent", {"error": "No such tool"}, ["No such tool"]),
    ("ConversationErrorEvent", {"code": "Quota", "detail": "used up"}, ["Quota", "used up"]),
    ("ConversationStateUpdateEvent", {"key": "title", "value": "x"}, []),
    ("ActionEvent", {"action": "odd", "thought": None}, ["odd"]),
    ("ObservationEvent", {"observation": None}, []),
]


@pytest.mark.parametrize(("kind", "members", "expected"), EVENT_TEXTS)
def test_the_texts_of_an_event_are_what_was_said_asked_for_and_printed(kind, members, expected):
    assert texts_of({**event(kind, "agent"), **members}) == expected


def test_a_text_is_found_across_the_slices_in_which_it_is_read_whatever_its_case(monkeypatch):
    monkeypatch.setattr("store.log.text._SLICE", 4)
    fields = {**event("AgentErrorEvent", "agent"), "error": "the long Straße to x"}

    assert all(has_text(fields, fold(text)) for text in ("x", "LONG STRASSE", "the long straße to x", "ße t"))
    assert not any(has_text(fields, fold(text)) for text in ("y", "longstrasse", "the long straße to x "))
    assert passes(fields, text="STRASSE", kind="AgentErrorEvent")
    assert passes(fields, text="")
    assert not passes(fields, text="STRASSE", body="strasse")
