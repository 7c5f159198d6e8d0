"""Decisions on pending actions over HTTP: the one that wins, and the events that it causes."""

import pytest

from tests.conftest import action, message
from wire import event_time, micros


def test_an_accepted_conversation_runs_and_is_not_accepted_twice(agent):
    held = action()
    agent.posts(held)

    assert agent.decide(True) is True

    assert (agent.status, agent.pending) == ("running", [])
    before = agent.log
    assert agent.decide(True) is False
    assert agent.decide(False) is False
    assert agent.log == before
    assert agent.states == ["waiting_for_confirmation", "running"]


def test_a_rejection_writes_idle_and_then_one_observation_per_action_in_order(agent):
    held = [action(f"step {number}") for number in range(3)]
    agent.posts(*held)

    assert agent.decide(False, reason="Not now.") is True

    assert agent.status == "idle"
    written = agent.log[-4:]
    assert (written[0]["key"], written[0]["value"]) == ("execution_status", "idle")
    assert [one["action_id"] for one in written[1:]] == [one["id"] for one in held]
    for one, of in zip(written[1:], held, strict=True):
        assert one == {
            "id": one["id"],
            "timestamp": one["timestamp"],
            "source": "environment",
            "tool_name": "terminal",
            "tool_call_id": of["tool_call_id"],
            "action_id": of["id"],
            "rejection_reason": "Not now.",
            "rejection_source": "user",
            "kind": "UserRejectObservation",
        }
    assert agent.decide(False) is False
    assert len(agent.rejections) == 3


@pytest.mark.parametrize("reason", ['"quoted" \\ /', "line\nbreak", "\x00", "😀 部署", ""])
def test_a_reason_is_returned_unchanged(agent, reason):
    agent.posts(action(tool_name='odd "name"\n', tool_call_id="call\\1"))

    agent.decide(False, reason=reason)

    [rejection] = agent.rejections
    assert rejection["rejection_reason"] == reason
    assert (rejection["tool_name"], rejection["tool_call_id"]) == ('odd "name"\n', "call\\1")


def test_the_reason_has_a_default(agent):
    agent.posts(action())

    agent.decide(False)

    assert agent.rejections[0]["rejection_reason"] == "User rejected the action."


def test_a_decision_without_pending_actions_changes_nothing(agent):
    agent.posts(message("hello"))

    for accept in (True, False):
        assert agent.decide(accept) is False

    assert (agent.status, len(agent.log)) == ("idle", 1)


@pytest.mark.parametrize(
    "body", [{}, *({"accept": wrong} for wrong in (None, "yes", "true", "", 1, 0, 1.0, [], {})), [], "x", 1, None]
)
def test_a_decision_must_be_a_boolean(agent, body):
    agent.posts(action())

    response = agent.client.post(f"{agent.url}/events/respond_to_confirmation", json=body)

    assert response.status_code == 422
    assert agent.status == "waiting_for_confirmation"


@pytest.mark.parametrize("reason", [None, 1, "\ud800", "x" * 32_769])
def test_a_reason_must_be_text(agent, reason):
    response = agent.client.post(f"{agent.url}/events/respond_to_confirmation", json={"accept": True, "reason": reason})

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"] == ["body", "reason"]


def test_an_action_that_is_sent_again_after_its_decision_is_not_pending_again(agent):
    held = action()
    agent.posts(held)
    agent.decide(True)

    agent.posts(held)

    assert (agent.status, agent.pending, len(agent.log)) == ("running", [], 3)


def test_an_accepted_action_is_not_decided_again_with_a_later_one(agent):
    accepted, following = action(), action()
    agent.posts(accepted)
    agent.decide(True)

    agent.posts(following)

    assert agent.pending == [following["id"]]
    assert agent.decide(False) is True
    assert [one["action_id"] for one in agent.rejections] == [following["id"]]


@pytest.mark.parametrize("run", [False, True])
def test_a_message_rejects_pending_actions_and_never_approves(agent, run):
    held = action()
    agent.posts(held)

    sent = agent.client.post(f"{agent.url}/events", json={"content": [{"type": "text", "text": "wait"}], "run": run})

    assert sent.get_json() == {"success": True}
    assert [one["kind"] for one in agent.log[2:5]] == [
        "ConversationStateUpdateEvent",
        "UserRejectObservation",
        "MessageEvent",
    ]
    assert agent.rejections[0]["rejection_reason"] == "Superseded by a new user message."
    assert agent.status == ("running" if run else "idle")
    assert agent.states == ["waiting_for_confirmation", "idle", *(["running"] if run else [])]
    assert agent.decide(True) is False


def test_events_of_the_server_are_never_earlier_than_their_action(agent):
    # Given an agent whose clock is years ahead
    agent.posts(action(timestamp="2099-01-01T00:00:00"))

    agent.decide(False)

    assert [one["kind"] for one in agent.log] == [
        "ActionEvent",
        "ConversationStateUpdateEvent",
        "ConversationStateUpdateEvent",
        "UserRejectObservation",
    ]


def test_a_message_is_counted_by_its_own_timestamp(agent):
    # Given an action of an agent whose clock is years ahead, and a message that supersedes it
    agent.posts(action(timestamp="2099-01-01T00:00:00"))
    agent.client.post(f"{agent.url}/events", json={"content": [{"type": "text", "text": "hello"}]})
    [sent] = agent.client.get(f"{agent.url}/events/search?kind=MessageEvent").get_json()["items"]

    # Then the filters by time find the message by its own timestamp, alone and with other filters
    moment = {"timestamp__gte": sent["timestamp"], "timestamp__lt": event_time(micros(sent["timestamp"]) + 1)}
    for filters in ({"kind": "MessageEvent"}, {"body": ""}, {"body": "hello"}):
        found = agent.client.get(f"{agent.url}/events/count", query_string={**filters, **moment})
        assert found.get_json() == 1, filters


def test_a_message_is_logged_after_the_rejections_that_it_causes(agent):
    # Given an action of an agent whose clock is years ahead
    agent.posts(action(timestamp="2099-01-01T00:00:00"))

    # When a message supersedes it
    agent.client.post(f"{agent.url}/events", json={"run": True})

    # Then the log has the message after the rejection that it caused
    assert [one["kind"] for one in agent.log][-3:] == [
        "UserRejectObservation",
        "MessageEvent",
        "ConversationStateUpdateEvent",
    ]


def test_a_rejection_names_an_action_with_an_odd_id(agent):
    odd = 'a "quoted"\nid \x00 😀'
    agent.posts({**action(), "id": odd})

    assert agent.pending == [odd]
    agent.decide(False)
    assert agent.rejections[0]["action_id"] == odd
