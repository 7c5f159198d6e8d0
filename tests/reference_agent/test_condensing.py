"""What a summary takes the place of: which events, where it stands, and when it is time for one."""

import pytest

from reference_agent import condensing, events
from reference_agent.condensing import condensation, is_full, older, request, size, tokens
from reference_agent.events import RESULTS, messages, view


def turn(number, result="r" * 400, calls=1):
    """The events of a response with calls and their results."""
    made = []
    for each in range(calls):
        call = {"id": f"call-{number}-{each}", "name": "terminal", "arguments": '{"command": "ls"}'}
        action = events.action(call, {"command": "ls", "kind": "TerminalAction"}, f"response-{number}")
        seen = {"content": events.parts(result), "is_error": False, "exit_code": 0}
        made.append((action, events.observation(action, seen)))
    return [action for action, _ in made] + [result for _, result in made]


def said(text, source="user"):
    return events.message(source, events.parts(text))


def start():
    prompt = {"type": "text", "text": "You are an agent."}
    return [events.event("SystemPromptEvent", "agent", system_prompt=prompt, tools=[]), said("the task")]


def condensed(log, window=1000, summary="what was done"):
    old = older(log, [], window)
    return [*log, condensation(log, old, summary, "none")] if old else log


def test_the_prompt_the_requests_and_the_newest_steps_stay_word_for_word():
    log = [*start(), *[one for n in range(20) for one in turn(n)], said("and this"), *turn(20), *turn(21)]

    told = messages(condensed(log), [])

    texts = [message["content"] for message in told if message["role"] == "user"]
    assert texts[0] == "the task"
    assert texts[1].endswith("what was done")
    assert texts[2] == "and this"
    assert told[0]["role"] == "system"
    assert told[-1]["content"] == "r" * 400
    assert size(told) < size(messages(log, [])) / 3


@pytest.mark.parametrize("window", [100, 700, 1500, 4000])
def test_no_cut_separates_a_call_from_its_result(window):
    log = start()
    for number in range(30):
        log += turn(number, calls=1 + number % 4)
        if number % 7 == 6:
            log.append(said(f"request {number}"))
        if number % 10 == 9:
            log = condensed(log, window)
    assert any(event["kind"] == "Condensation" for event in log)

    open_calls = set()
    for message in messages(log, []):
        if message["role"] == "assistant":
            assert not open_calls
            open_calls = {call["id"] for call in message.get("tool_calls") or []}
        elif message["role"] == "tool":
            open_calls.remove(message["tool_call_id"])
            assert message["content"] != "This call has no result."
    assert not open_calls
    seen = view(log)
    assert {one["tool_call_id"] for one in seen if one["kind"] == "ActionEvent"} == {
        one["tool_call_id"] for one in seen if one["kind"] in RESULTS
    }


def test_a_later_summary_takes_the_place_of_the_first_one():
    log = condensed([*start(), *[one for n in range(20) for one in turn(n)]], summary="first summary")
    log = condensed([*log, *[one for n in range(20, 40) for one in turn(n)]], summary="second summary")

    texts = [message["content"] for message in messages(log, []) if message["role"] == "user"]
    assert [text.rpartition("\n")[2] for text in texts] == ["the task", "second summary"]
    first, second = [event for event in log if event["kind"] == "Condensation"]
    assert f"{first['id']}-summary" in second["forgotten_event_ids"]
    assert first["summary_offset"] == second["summary_offset"] == 2


def test_the_request_for_a_summary_has_the_calls_and_results_and_fits_into_its_part_of_the_window():
    log = [*start(), *[one for n in range(50) for one in turn(n, f"result {n} " + "x" * 20_000)]]
    asked = request(older(log, [], 10_000), 10_000)
    assert len(asked) < 10_000 * 4 * 0.6
    assert "terminal {" in asked
    assert "result 0 " in asked


def test_a_request_that_is_larger_than_its_room_is_summarized_too():
    log = [*start()[:1], said("x" * 50_000), *[one for n in range(20) for one in turn(n)]]
    assert size(messages(condensed(log), [])) < 8000


def test_what_is_little_is_not_worth_a_summary():
    assert older([*start(), *turn(0)], [], 100) == []
    assert older([*start(), *turn(0, "x" * 9000)], [], 1000) == []


def test_tokens_are_counted_from_what_the_endpoint_has_counted_last():
    log = [*start(), *turn(0)]
    told = messages(log, [])
    stats = {"accumulated_token_usage": {"response_id": "response-0", "per_turn_token": 5000}}
    assert tokens(log, told, [], {}) == (size(told) + len("[]")) // 4
    assert tokens(log, told, [], stats) == 5000 + 100
    assert tokens([*log, said("x" * 4000)], told, [], stats) == 5000 + 1100


def test_an_endpoint_that_cuts_a_request_off_is_not_believed():
    log = [*start(), *turn(0, "x" * 30_000), *turn(1, "y")]
    stats = {"accumulated_token_usage": {"response_id": "response-1", "per_turn_token": 100}}
    assert tokens(log, messages(log, []), [], stats) > 30_000 // 4 // 2


def test_an_image_counts_as_one_whatever_its_bytes_are():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "x" * 1_000_000}}
    assert size([{"role": "user", "content": [{"type": "text", "text": "see"}, image]}]) < 10_000


def test_a_window_that_is_not_named_is_taken_for_a_usual_one():
    assert (is_full(95_000, 0), is_full(97_000, 0), is_full(95_000, 200_000)) == (False, True, False)
    assert is_full(7_000, 8_192)
    assert condensing.WINDOW == 128_000


def test_steps_that_were_left_out_without_a_summary_leave_one_line():
    log = [*start(), *[one for n in range(9) for one in turn(n)]]
    log = condensed(log, summary="")
    texts = [message["content"] for message in messages(log, []) if message["role"] == "user"]
    assert (texts[0], "left out" in texts[1], len(texts)) == ("the task", True, 2)
