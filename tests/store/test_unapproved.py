"""An agent that goes on without a decision of this server: said once for each action, shown, and logged."""

import json

import pytest

from store.approvals.audit import SERVER
from store.approvals.decisions import SUPERSEDED
from store.approvals.effects import message_claim
from tests.conftest import action, as_events, event, message, observation, status

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


def failure(of: dict, **members) -> dict:
    details = {"tool_name": "terminal", "tool_call_id": of["tool_call_id"], "error": "The agent ended.", **members}
    return event("AgentErrorEvent", "agent", **details)


def rejection(of: dict) -> dict:
    details = {"tool_name": "terminal", "rejection_reason": SUPERSEDED, "rejection_source": "user"}
    return event("UserRejectObservation", "environment", action_id=of["id"], **details)


@pytest.fixture
def entries(store, conversation):
    """The audit of the conversation."""
    return lambda: [json.loads(line) for line in store.approvals.audit.page(conversation, limit=100)[0]]


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


# an end that comes before its action: of an agent that was killed before it had posted the action


@pytest.mark.parametrize("end", [failure, observation])
@pytest.mark.parametrize("fetched", [True, False])
def test_an_action_whose_end_came_first_never_opens(store, conversation, post, told, entries, end, fetched):
    proposed = action()
    post(end(proposed))

    late = as_events([proposed, status(WAITS), status("paused")])
    store.events.append(conversation, late, sandbox_id=BOX, fetched=fetched)

    assert (told(), entries(), store.approvals.confirmations.open_ids(conversation)) == ([], [], [])


def test_an_action_that_uses_the_id_of_an_ended_call_again_waits(store, conversation, post):
    ended = action(timestamp="2026-11-20T20:00:00.000000")
    post(failure(ended, timestamp="2026-11-20T20:00:01.000000"))
    again = action(tool_call_id=ended["tool_call_id"], timestamp="2026-11-20T20:00:02.000000")

    post(again, ended, status(WAITS))

    assert store.approvals.confirmations.open_ids(conversation) == [again["id"]]


def test_the_ends_that_came_first_are_bounded(store, conversation, post):
    post(*(failure(action()) for _ in range(100)))
    assert len(json.loads(store.events._redis.hget(f"conv:{{{conversation}}}", "early_ends"))) == 64


# a message that was sent before the agent had posted the action that it waits for


@pytest.fixture
def send(store, conversation):
    """Expect the echo of a message of a person, as it is expected while the message is sent to the agent."""

    def do(text: str) -> None:
        content = [{"type": "text", "text": text}]
        claim = store.approvals.deliveries.open(conversation, BOX, 30)
        decision = {"reason": SUPERSEDED, "echo": message_claim(content)}
        store.approvals.deliveries.decide(claim, "overtake", actor=SERVER.by("message"), **decision)
        store.approvals.deliveries.close(claim)

    return do


@pytest.mark.parametrize("fetched", [True, False])
def test_a_message_that_overtook_an_action_has_rejected_it(store, conversation, post, told, entries, send, fetched):
    proposed = action()
    send("Something else.")
    post(proposed, status(WAITS))

    rest = [rejection(proposed), status("running"), message("Something else.")]
    store.events.append(conversation, as_events(rest), sandbox_id=BOX, fetched=fetched)

    [entry] = entries()
    assert (entry["decision"], entry["action_ids"]) == ("reject", [proposed["id"]])
    assert (entry["actor"]["kind"], entry["reason"]) == ("message", SUPERSEDED)
    assert told() == []
    assert json.loads(store.events.get(conversation, rest[0]["id"])) == rest[0]  # it is a person's


def test_a_message_whose_echo_has_come_rejects_nothing_more(post, told, entries, send):
    proposed = action()
    send("Something else.")
    post(message("Something else."), proposed, status(WAITS))

    post(rejection(proposed))

    assert told() == [proposed["id"]]
    assert [one["decision"] for one in entries()] == ["unapproved"]


def test_a_message_that_is_under_way_permits_nothing(post, told, send):
    proposed = action()
    send("Something else.")
    post(proposed, status(WAITS))

    post(status("running"), observation(proposed), message("Something else."))

    assert told() == [proposed["id"]]
