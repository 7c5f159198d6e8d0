"""When an agent repeats itself, and when it only looks like it."""

from itertools import count

import pytest

from reference_agent import events
from reference_agent.loops import HINT, loop_in

NUMBERS = count()


def step(command="ls", result="a", error=None, response=None):
    """The events of a response with one call."""
    number = next(NUMBERS)
    call = {"id": f"call-{number}", "name": "terminal", "arguments": "{}"}
    made = events.action(call, {"command": command, "kind": "TerminalAction"}, response or f"response-{number}")
    seen = {"content": events.parts(result), "is_error": False, "exit_code": 0}
    return [made, events.failure(made, error) if error else events.observation(made, seen)]


def log(*steps):
    return [events.message("user", events.parts("go")), *(event for each in steps for event in each)]


NUDGE = [events.message("environment", events.parts(HINT.format(words="the same call")))]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([step() for _ in range(4)], "the same call had the same result 4 times in a row"),
        ([step("x"), *[step() for _ in range(4)]], "the same call"),
        ([step(error="no such tool") for _ in range(3)], "3 calls in a row failed in the same way"),
        ([step(str(n), error="no such tool") for n in range(3)], "3 calls in a row failed"),
        ([step(error=f"fault {n}") for n in range(3)], "3 calls in a row failed"),
        ([step(name) for name in "ababab"], "the same two calls alternated with the same results 3 times"),
        ([step(result=f"x .outputs/{n}23456789abc.txt") for n in range(4)], "the same call"),
    ],
)
def test_a_loop_is_found_and_named(steps, words):
    found = loop_in(log(*steps))
    assert found is not None
    assert (found.words.startswith(words), found.is_told) == (True, False)


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [step() for _ in range(3)],
        [step(result=str(n)) for n in range(9)],
        [step(str(n)) for n in range(9)],
        [*[step() for _ in range(3)], step("x"), *[step() for _ in range(3)]],
        [step(error="one"), step("x", error="two"), step(error="one")],
        [*[step(error="one") for _ in range(2)], step()],
        [step(name) for name in "abcabcabc"],
    ],
)
def test_work_is_no_loop(steps):
    assert loop_in(log(*steps)) is None


def test_a_message_of_a_user_begins_anew():
    same = [step() for _ in range(3)]
    assert loop_in([*log(*same), *log(*[step() for _ in range(3)])]) is None
    assert loop_in(log(*same, step())) is not None


def test_another_message_of_the_agent_server_is_no_hint():
    failed = [events.message("environment", events.parts("The MCP server prices is not used: it ended."))]
    found = loop_in(log(step(), failed, *[step() for _ in range(3)]))
    assert found is not None
    assert not found.is_told


def test_the_model_is_told_once_and_its_next_step_decides():
    four = [step() for _ in range(4)]
    assert loop_in(log(*four, NUDGE)) is None
    again = loop_in(log(*four, NUDGE, step()))
    assert (again is not None, again and again.is_told) == (True, True)
    assert loop_in(log(*four, NUDGE, step("another"))) is None


def test_another_loop_later_is_told_again():
    four = [step() for _ in range(4)]
    later = loop_in(log(*four, NUDGE, *[step("y") for _ in range(4)]))
    assert (later is not None, later and later.is_told) == (True, False)


def test_the_same_calls_in_one_response_are_one_step():
    assert loop_in(log(*[step(response="one") for _ in range(6)])) is None
