"""What a device shows, and when it offers to decide."""

import json

import pytest

from core.incomplete import is_complete
from notifications.messages import Subject
from notifications.rings import ring_of, rings
from tests.notifications import entry

SINCE = "2026-11-20T20:37:22.528416Z"


def ring(kind="action.pending", shows="everything", token="a-token", risk="LOW", arguments=None, **subject):
    about = Subject(title="Tidy up", since=SINCE, arguments={"command": "rm -r build"}, **subject)
    about = about._replace(arguments=arguments or about.arguments)
    return json.loads(ring_of(entry(1, kind, risk=risk), about, shows=shows, token=token))


def test_what_waits_is_shown_in_a_line_and_can_be_decided():
    shown = ring()

    assert (shown["title"], shown["text"]) == ("Tidy up", "LOW · terminal · rm -r build")
    assert (shown["token"], shown["decides"], shown["quiet"]) == ("a-token", True, False)
    assert shown["place"] == "#/conversations/00000000-0000-4000-8000-000000000001?event=an-action"


def test_nothing_is_shown_where_the_owner_wants_so():
    shown = ring(shows="nothing")

    assert (shown["title"], shown["text"], shown["place"]) == ("Something waits for your decision", "", "#/inbox")
    assert "token" not in shown
    assert "Tidy" not in json.dumps(shown)


@pytest.mark.parametrize(
    ("why", "changed"),
    [
        ("its risk is high", {"risk": "HIGH"}),
        ("it is too long for the notification", {"arguments": {"command": "echo " + "x" * 300}}),
        ("it has several lines", {"arguments": {"command": "make\nrm -rf /"}}),
        ("it has what does not show as itself", {"arguments": {"command": "echo \u202egnp.exe"}}),
        ("a secret of it is hidden", {"arguments": {"command": "echo swordfish"}, "secrets": {"WORD": "swordfish"}}),
    ],
)
def test_an_action_is_decided_by_no_button_because(why, changed):
    shown = ring(**changed)

    assert shown["token"] == "a-token"
    assert not shown["decides"], why
    assert "swordfish" not in json.dumps(shown)


def test_an_action_that_runs_more_than_it_shows_is_decided_by_no_button():
    arguments = {"command": "make", "truncated": True}
    assert ring(arguments=arguments)["decides"] is is_complete(arguments)


def test_all_arguments_of_a_tool_are_shown_and_those_that_say_nothing_are_not_beside_a_command():
    assert ring(arguments={"command": "ls", "is_input": False})["text"].endswith(" ls")
    assert ring(arguments={"command": "ls", "cwd": "/"})["text"].endswith('{"command":"ls","cwd":"/"}')


@pytest.mark.parametrize(
    ("kind", "decision", "title"),
    [
        ("action.decided", "approve", "Approved"),
        ("action.decided", "reject", "Rejected"),
        ("action.expired", "reject", "Expired, and rejected"),
    ],
)
def test_an_end_takes_the_place_of_the_ring_quietly(kind, decision, title):
    waits, ended = (
        ring(),
        json.loads(ring_of(entry(1, kind, decision=decision), Subject(), shows="everything", token=None)),
    )

    assert ended["tag"] == waits["tag"]
    assert (ended["title"], ended["quiet"]) == (title, True)
    assert len(ended["tag"]) == 32


def test_a_destination_says_what_a_sandbox_asks_to_reach():
    one = entry(1, "destination.pending", sandbox_id="box", action_id=None, tool=None, risk=None)
    shown = json.loads(ring_of(one, Subject(destination="pypi.org:443", since=SINCE), shows="everything", token="t"))

    assert (shown["title"], shown["text"]) == ("A sandbox asks to reach a destination", "Connect to pypi.org:443")
    assert shown["decides"]


def test_a_ring_is_worth_nothing_after_the_deadline_of_its_action():
    assert ring(expires_at="2026-11-20T20:40:00Z")["until"] < ring()["until"]


def test_the_longest_ring_fits_into_a_message_of_a_push_service():
    assert len(json.dumps(ring(token="t" * 5000))) < 3600
    assert "token" not in ring(token="t" * 5000)


def test_no_ring_is_of_the_end_of_a_conversation():
    assert [kind for kind in ("action.pending", "conversation.finished", "sandbox.error") if rings(kind)] == [
        "action.pending"
    ]
