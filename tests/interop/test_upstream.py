"""Upstream's own cases of a live server: what passes on the published agent server by URL passes on this one.

docs/compatibility.md says which cases of upstream's files these are, and which tests have the others.
"""

import pytest

pytestmark = pytest.mark.interop("runs the published agent server alone and in sandboxes")

#: what each case must see. Source: tests/interop/upstream.py
WANTED = {
    "health": {"/alive": {"status": "ok"}, "/health": {"status": "ok"}},
    "tools_of_the_server": {"terminal": True},
    "workspace_before_a_conversation": {
        "command": [0, False, ["Hello", "Line", "2", "8"]],
        "file": [True, True, "line 1\nline 2\n"],
    },
    "message_and_run": {"at_once": 1, "status": "finished", "state_update": True, "agent": True},
    "statistics": {"before": 0, "told": True, "member": True},
    "events_without_a_socket": {
        "over": True,
        "counts": {"ActionEvent": 2, "ObservationEvent": 2},
        "final": {"response": "done"},
        "unknown": 404,
    },
    "risks": {"found": [["terminal", "UNKNOWN"], ["finish", "UNKNOWN"]]},
    "hooks": {"status": "finished", "types": ["PostToolUse", "Stop"]},
    "sub_agents": {"status": 201},
    "skills": {"before": [], "after": ["converter"]},
    "pause": {"status": "paused"},
    "interrupt": {"begun": True, "status": 200, "paused": True, "events": 1},
    "settings": {
        "members": True,
        "model": "gpt-4o",
        "server": [201, "Documentation"],
        "gone": True,
        "secret": ["TEST_API_KEY", "A key", ["TEST_API_KEY"], False, [422, 422], True, []],
        "masked": [True, "**********"],
    },
}


def cases(side) -> dict[str, dict]:
    lines = side.played("cases", program="upstream")
    return {line.pop("step"): line for line in lines}


@pytest.fixture(scope="module")
def theirs(their_side):
    return cases(their_side)


@pytest.fixture(scope="module")
def ours(our_side):
    return cases(our_side)


@pytest.mark.parametrize("case", WANTED)
def test_a_case_passes_on_the_published_server_and_on_this_one(theirs, ours, case):
    assert theirs[case] == WANTED[case]
    assert ours[case] == WANTED[case]


def test_no_case_is_left_out(ours):
    assert [*ours] == [*WANTED]
