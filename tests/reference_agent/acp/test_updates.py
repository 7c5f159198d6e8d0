"""Updates of an ACP agent become events, whatever their shape."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_agent.acp import updates
from reference_agent.acp.client import read_message
from reference_agent.acp.permissions import shown
from reference_agent.acp.updates import MOST_CALLS, MOST_OUTPUT, PromptTurn, prompt_of, stats_of


def chunk(text, kind="agent_message_chunk", **members):
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}, **members}


def read(*all_updates):
    turn = PromptTurn()
    return [event for one in all_updates for event in turn.read(one)[0]] + turn.flushed()


def said(event):
    return "".join(part["text"] for part in event["llm_message"]["content"])


def test_chunks_are_one_message_until_another_one_begins():
    first, second = read(chunk("Hel", messageId="a"), chunk("lo", messageId="a"), chunk("Again", messageId="b"))

    assert (said(first), said(second)) == ("Hello", "Again")


def test_a_thought_is_the_reasoning_of_the_message_after_it():
    [message] = read(chunk("Hm.", "agent_thought_chunk"), chunk("Yes."))

    assert (said(message), message["llm_message"]["reasoning_content"]) == ("Yes.", "Hm.")


def test_a_thought_before_an_action_is_the_reasoning_of_the_action():
    turn = PromptTurn()
    turn.read(chunk("Hm.", "agent_thought_chunk"))

    assert turn.take_thought() == ([], [], {"reasoning_content": "Hm."})


def test_the_number_of_calls_in_a_turn_is_limited():
    turn = PromptTurn()
    for number in range(MOST_CALLS + 10):
        turn.merge(str(number), {"title": "x"})

    assert len(turn.calls) == MOST_CALLS
    assert "0" not in turn.calls


@pytest.mark.parametrize(
    ("call", "output"),
    [
        ({"content": [{"type": "content", "content": {"type": "text", "text": "a"}}]}, "a"),
        ({"content": [{"type": "diff", "path": "/x", "oldText": None, "newText": "b"}]}, "/x now reads:\nb"),
        ({"rawOutput": {"output": "c", "metadata": {"exit": 0}}}, "c"),
        ({"rawOutput": "d"}, "d"),
        ({"rawOutput": {"other": 1}}, '{"other": 1}'),
        ({}, ""),
        ({"content": [None, {"type": "terminal", "terminalId": "t"}]}, ""),
    ],
)
def test_the_output_of_a_call_is_its_content_or_else_its_raw_output(call, output):
    assert updates.output_of(call) == output


def test_a_command_without_an_exit_code_has_the_member_that_the_published_web_client_reads():
    call = {"rawInput": {"command": "x"}, "rawOutput": "a", "status": "completed"}
    action = updates.proposal("1", shown(call, Path("/work")), "", {})

    seen = updates.result(action, call)["observation"]

    assert (seen["exit_code"], seen["metadata"]) == (None, {})


def test_a_long_output_keeps_its_begin_and_its_end():
    call = {"rawInput": {"command": "x"}, "rawOutput": "a" * 1_000_000 + "z", "status": "completed"}
    action = updates.proposal("1", shown(call, Path("/work")), "", {})

    [part] = updates.result(action, call)["observation"]["content"]

    assert len(part["text"]) <= MOST_OUTPUT
    assert part["text"].endswith("z")


def test_an_unasked_call_that_is_too_long_for_an_event_is_cut():
    call = {"kind": "edit", "rawInput": {"content": "x" * 2_000_000}}

    action = updates.proposal("1", shown(call, Path("/work")), updates.UNASKED, {})

    assert len(json.dumps(action)) < 1 << 20
    assert "characters are not shown" in action["action"]["data"]["cut"]


@pytest.mark.parametrize(
    ("ran", "names"),
    [
        ({"command": "ls"}, ""),
        ({"command": "ls", "cwd": "/work"}, ""),
        ({"command": "ls", "cwd": "/etc"}, "cwd"),
        ({"command": "rm", "more": 1}, "command, more"),
        (None, ""),
    ],
)
def test_arguments_that_differ_from_those_that_were_shown_are_named(ran, names):
    assert updates.other_arguments({"command": "ls"}, ran, Path("/work")) == names


@pytest.mark.parametrize("images", [True, False])
def test_a_prompt_has_images_for_agents_that_read_them(images):
    content = [{"type": "text", "text": "Look"}, {"type": "image", "image_urls": ["data:image/jpeg;base64,QUJD"]}]

    [text, image] = prompt_of(content, images=images)

    assert text == {"type": "text", "text": "Look"}
    if images:
        assert image == {"type": "image", "mimeType": "image/jpeg", "data": "QUJD"}
    else:
        assert "left out" in image["text"]


def test_files_and_images_elsewhere_are_links():
    content = [{"type": "file", "path": "/work/a.txt"}, {"type": "image", "image_urls": ["https://example.org/a.png"]}]

    assert [block["uri"] for block in prompt_of(content, images=True)] == [
        "file:///work/a.txt",
        "https://example.org/a.png",
    ]


def test_usage_is_counted_as_the_wire_has_it():
    update = {"used": 500, "size": 200_000, "cost": {"amount": 0.5, "currency": "USD"}}

    stats = stats_of({}, {"inputTokens": 10, "outputTokens": 3, "thoughtTokens": None}, update, "opencode")

    assert (stats["accumulated_cost"], stats["model_name"]) == (0.5, "opencode")
    usage = stats["accumulated_token_usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["context_window"]) == (10, 3, 200_000)


def test_the_usage_of_turns_is_added_and_the_cost_of_a_process_to_that_of_earlier_ones():
    cost = {"cost": {"amount": 0.5, "currency": "USD"}}
    first = stats_of({}, {"inputTokens": 10}, cost, "x")

    second = stats_of(first, {"inputTokens": 5}, cost, "x", earlier=0.5)

    assert (second["accumulated_token_usage"]["prompt_tokens"], second["accumulated_cost"]) == (15, 1.0)


def test_usage_without_numbers_changes_nothing():
    before = stats_of({}, {"inputTokens": 10}, {}, "x")

    assert stats_of(before, None, {}, "x") == before
    after = stats_of(before, {"inputTokens": -1}, {"cost": {"amount": "much", "currency": "USD"}}, "x")
    assert after["accumulated_token_usage"]["prompt_tokens"] == 10


ANY: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = ("content", "toolCallId", "title", "kind", "status", "rawInput", "rawOutput", "_meta", "entries", "messageId")
KINDS = ("agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan", "usage_update", "other")
UPDATES = st.builds(
    lambda kind, members: {**members, "sessionUpdate": kind},
    st.sampled_from(KINDS) | ANY,
    st.dictionaries(st.sampled_from(MEMBERS), ANY, max_size=6),
)


@given(st.lists(UPDATES, max_size=6), ANY)
def test_no_update_of_any_shape_fails(all_updates, usage):
    turn = PromptTurn()
    for update in all_updates:
        for event in turn.read(update)[0]:
            json.dumps(event).encode()
    for number, call in enumerate(turn.calls.values()):
        action = updates.proposal(str(number), shown(call, Path("/work")), updates.UNASKED, {})
        json.dumps(updates.result(action, call)).encode()
    stats_of({}, usage, turn.usage, "x")


@given(ANY)
def test_a_message_that_is_read_can_be_handled(value):
    message = read_message(json.dumps(value).encode())

    assert message is None or isinstance(message, dict)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"npm warn",
        b"[]",
        b"3",
        b"[" * 100_000,
        b'{"id": []}',
        b'{"method": 3}',
        b'{"id": true, "result": 1}',
        b"\xff",
    ],
)
def test_read_message_returns_none_for_any_other_line(line):
    assert read_message(line) is None


def test_an_error_without_a_message_is_still_an_error():
    assert read_message(b'{"id": 1, "error": null}')["error"]["code"] == -32603


def test_a_lone_surrogate_is_replaced():
    message = read_message(b'{"method": "x", "params": {"a": ["\\ud800"]}}')

    assert message["params"] == {"a": ["\N{REPLACEMENT CHARACTER}"]}
