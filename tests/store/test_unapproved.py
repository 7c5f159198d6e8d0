"""An agent that goes on without a decision of this server: said once for each action, shown, and logged."""

import json

import pytest

from store.approvals.audit import SERVER
from tests.conftest import action, as_events, event, observation, status

BOX = "a-sandbox"
WAITS = "waiting_for_confirmation"


@pytest.fixture
def post(store, conversation):
    """Post events as the agent of a conversation in a sandbox."""
    store.conversations.create(conversation, sandbox_id=BOX, app={}, confirmation_policy={"kind": "AlwaysConfirm"})
    return lambda *events: store.events.append(conversation, as_events(list(events)), sandbox_id=BOX)


@pytest.fixture
def told(store, conversation):
    """The ids that the events about an unapproved resume name, as text."""

    def read() -> list[str]:
        raws, _ = store.events.search(conversation, kind="ConversationErrorEvent")
        found = [json.loads(raw) for raw in raws]
        assert {(one["code"], one["source"]) for one in found} <= {("unapproved_resume", "environment")}
        assert len(found) == int(store.conversations.get(conversation).get("unapproved_resumes", 0))
        return [one["detail"].rpartition("the action ")[2] for one in found]

    return read


@pytest.fixture
def decide(store, conversation):
    def decide(accept):
        claim = store.approvals.deliveries.open(conversation, BOX, 30)
        delivery = store.approvals.deliveries.decide(
            claim, "approve" if accept else "reject", actor=SERVER, reason="no"
        )[1]
        store.approvals.deliveries.close(claim)
        return delivery is not None and claim.is_of(delivery)

    return decide


@pytest.mark.parametrize("to", ["running", "idle", "finished", "paused", "error"])
def test_an_agent_that_stops_to_wait_by_itself_is_told_once(post, told, to):
    proposed = action()
    post(proposed, status(WAITS))
    left = status(to)

    post(left)
    post(left)  # the agent had no response
    post(observation(proposed), status("finished"))

    assert told() == [proposed["id"]]


def test_an_observation_of_a_pending_action_is_told_once(post, told):
    proposed = action()
    post(proposed, status(WAITS))
    post(observation(proposed))
    post(status("running"), status("finished"))
    assert told() == [proposed["id"]]


def test_a_whole_run_in_one_batch_is_told_once_with_every_action(post, told):
    first, second = action(), action()
    post(first, second, status(WAITS), observation(first), status("running"), observation(second))
    assert told() == [f"{first['id']}, {second['id']}"]


def test_a_full_state_that_waits_no_longer_is_told(post, told):
    proposed = action()
    post(proposed, status(WAITS))
    post(event("ConversationStateUpdateEvent", "environment", key="full_state", value={"execution_status": "running"}))
    assert told() == [proposed["id"]]


@pytest.mark.parametrize("accept", [True, False])
def test_a_decision_that_is_being_delivered_is_no_unapproved_resume(post, told, decide, accept):
    proposed = action()
    post(proposed, status(WAITS))
    assert decide(accept)

    post(status("running"), observation(proposed), status("finished"))

    assert told() == []


def test_nobody_can_decide_what_the_agent_has_resumed(post, told, decide):
    proposed = action()
    post(proposed, status(WAITS))
    post(status("running"))
    assert not decide(True)
    assert told() == [proposed["id"]]


def test_each_wait_is_told_on_its_own(post, told):
    ids = []
    for _ in range(3):
        proposed = action()
        post(status("running"), proposed, status(WAITS))
        post(status("running"), observation(proposed))
        ids.append(proposed["id"])
    assert told() == ids


def test_an_agent_that_asks_nobody_is_told_nothing(post, told):
    proposed = action()
    post(status("running"), proposed, observation(proposed), status("finished"))
    assert told() == []


def test_an_event_of_this_server_is_no_unapproved_resume(store, conversation, post, told):
    post(action(), status(WAITS))
    store.events.append(conversation, as_events([status("paused")]), sandbox_id=BOX, made_here=True)
    assert told() == []


def test_ten_actions_are_named_and_the_others_counted(post, told):
    actions = [action() for _ in range(12)]
    post(*actions, status(WAITS))
    post(status("running"))
    assert told() == [", ".join(one["id"] for one in actions[:10]) + " and 2 more"]


def test_the_log_of_the_server_has_one_line(post, caplog, conversation):
    proposed = action()
    post(proposed, status(WAITS))
    post(status("running"))

    [line] = [json.loads(record.message) for record in caplog.records if record.name == "request_log"]
    expected = {"event": "unapproved_resume", "conversation_id": conversation, "sandbox_id": BOX}
    assert line == {**expected, "ids": [proposed["id"]]}


def test_the_event_is_not_earlier_than_the_action_that_it_names(store, conversation, post):
    proposed = action(timestamp="2999-01-01T00:00:00.000000")
    post(proposed, status(WAITS))
    post(status("running"))
    raws, _ = store.events.search(conversation, kind="ConversationErrorEvent")
    assert json.loads(raws[0])["timestamp"] == proposed["timestamp"]
