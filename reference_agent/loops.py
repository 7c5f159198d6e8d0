"""Detects an agent that repeats itself: the same step, two alternating steps, or the same error.

A step is the calls of one response with their results. The thresholds are those of the published agent; two of its
five patterns cannot happen here. Source: openhands-sdk 1.58, conversation/stuck_detector.py.
"""

import json
import re
from typing import NamedTuple

from reference_agent.events import RESULTS, Event, is_user, result_text, text_of

#: The hint to the model in a loop, sent once.
HINT = "You repeat yourself: {words}. Try another way, or finish and say what you need."
REPEATS, FAILURES, TURNS = 4, 3, 6  #: number of equal steps, of equal failures, and of alternating steps
_MOST_EVENTS = 500  #: maximum number of events that are searched
_FILE = re.compile(r"\.outputs/[0-9a-f]{12}\.txt")  #: file name of a whole output, different each time


class RepeatedSteps(NamedTuple):
    words: str  #: the repetition, as a clause
    is_told: bool  #: whether the model already got the hint


class _Step(NamedTuple):
    position: int  #: index of the first event
    calls: list[str]
    results: list[str]
    failures: list[bool]


def loop_in(so_far: list[Event]) -> RepeatedSteps | None:
    """Return the loop since the last user message. After a hint, a loop counts only after another step."""
    recent = so_far[-_MOST_EVENTS:]
    begin = next((index for index in reversed(range(len(recent))) if is_user(recent[index])), -1) + 1
    recent = recent[begin:]
    steps = _steps(recent)

    texts = {n: text_of(one["llm_message"]["content"]) for n, one in enumerate(recent) if one["kind"] == "MessageEvent"}
    hints = [index for index, text in texts.items() if text.startswith(HINT.partition("{")[0])]
    if not steps or (hints and hints[-1] > steps[-1].position):
        return None
    patterns = (
        (f"the same call had the same result {REPEATS} times in a row", REPEATS, _are_the_same),
        (f"{FAILURES} calls in a row failed in the same way", FAILURES, _fail_alike),
        (
            f"the same two calls alternated with the same results {TURNS // 2} times",
            TURNS,
            lambda steps: _are_the_same(steps[::2]) and _are_the_same(steps[1::2]),
        ),
    )
    for words, length, holds in patterns:
        last = steps[-length:]
        if len(last) == length and holds(last):
            return RepeatedSteps(words, any(index > last[0].position for index in hints))
    return None


def _steps(recent: list[Event]) -> list[_Step]:
    steps, of_call = dict[str, _Step](), dict[str, _Step]()
    for position, event in enumerate(recent):
        if event["kind"] == "ActionEvent":
            step = steps.setdefault(event["llm_response_id"], _Step(position, [], [], []))
            step.calls.append(json.dumps([event["tool_name"], event["action"] or event["tool_call"]["arguments"]]))
            of_call[event["tool_call_id"]] = step
        elif event["kind"] in RESULTS and (known := of_call.get(event["tool_call_id"])):
            known.results.append(_FILE.sub("", result_text(event)))
            known.failures.append(event["kind"] == "AgentErrorEvent")
    return list(steps.values())


def _are_the_same(steps: list[_Step]) -> bool:
    return all((step.calls, step.results) == (steps[0].calls, steps[0].results) for step in steps)


def _fail_alike(steps: list[_Step]) -> bool:
    if not all(step.failures and all(step.failures) for step in steps):
        return False
    first = steps[0]
    return all(step.calls == first.calls for step in steps) or all(step.results == first.results for step in steps)
