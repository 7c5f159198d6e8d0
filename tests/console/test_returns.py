"""A return to an earlier event in the timeline: what it has left behind is folded."""

import pytest

from tests.console.logs import action, conversation, message, observation, time

pytestmark = pytest.mark.browser("shows the console in a browser")

RETURN = {"id": "back", "kind": "ConversationStateUpdateEvent", "source": "environment", "key": "returned_to"}

EVENTS = [
    message("asks", 0, text="First question"),
    action("acts", 1, command="make test"),
    observation("seen", "acts", 2),
    message("later", 3, text="Second question"),
    {**RETURN, "timestamp": time(4), "value": {"event_id": "asks", "left_event_id": "later"}},
    message("goes", 5, text="Another question"),
]


def test_what_a_return_has_left_behind_is_folded_and_can_be_read(browser, server):
    identity = conversation(server, *EVENTS, title="Returned")
    browser.open(f"conversations/{identity}")
    browser.find("event-goes")

    browser.gone("event-later")
    assert browser.text("left-behind") == "3 events left behind"
    assert browser.violations() == []
    browser.find("left-behind").click()

    browser.find("event-later")
    browser.find("event-acts")
    assert browser.violations() == []
    assert browser.all("undo-return") == []  # its agent is none that returns
    assert server.get(f"/api/conversations/{identity}/events/count").json() == len(EVENTS)
