"""Pending actions over HTTP: what waits, who wins, and what the log says of it."""

import pytest

from tests.conftest import action, event, message, observation, status
from wire import event_time, micros

ALWAYS = {"kind": "AlwaysConfirm"}


@pytest.fixture
def agent(client, conversation):
    """A conversation under AlwaysConfirm, and short words for what tests do with it."""
    client.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": ALWAYS})
    return Agent(client, conversation)


class Agent:
    def __init__(self, client, conversation):
        self.client, self.url = client, f"/api/conversations/{conversation}"
        self.webhook = f"/api/v1/webhooks/events/{conversation}"

    def posts(self, *events):
        response = self.client.post(self.webhook, json=list(events))
        assert response.status_code == 200, response.get_data()

    def answer(self, accept, **members):
        response = self.client.post(f"{self.url}/events/respond_to_confirmation", json={"accept": accept, **members})
        assert response.status_code == 200, response.get_data()
        return response.get_json()["success"]

    def policy(self, **policy):
        return self.client.post(f"{self.url}/confirmation_policy", json={"policy": policy}).status_code

    @property
    def pending(self):
        return [one["id"] for one in self.client.get(f"{self.url}/pending_actions").get_json()]

    @property
    def status(self):
        return self.client.get(self.url).get_json()["execution_status"]

    @property
    def log(self):
        return self.client.get(f"{self.url}/events/search").get_json()["items"]

    @property
    def states(self):
        return [one["value"] for one in self.log if one.get("key") == "execution_status"]

    @property
    def rejections(self):
        return [one for one in self.log if one["kind"] == "UserRejectObservation"]


def test_an_action_that_the_policy_holds_waits_and_is_described(agent):
    held = action("rm -r build", summary="clean up", security_risk="HIGH")

    agent.posts(held)

    assert agent.status == "waiting_for_confirmation"
    [pending] = agent.client.get(f"{agent.url}/pending_actions").get_json()
    assert pending.pop("since").endswith("Z")
    assert pending == {
        "id": held["id"],
        "tool_name": "terminal",
        "tool_call_id": held["tool_call_id"],
        "summary": "clean up",
        "security_risk": "HIGH",
        "arguments": {"command": "rm -r build"},
    }


def test_accepting_runs_and_cannot_be_done_twice(agent):
    held = action()
    agent.posts(held)

    assert agent.answer(True) is True

    assert (agent.status, agent.pending) == ("running", [])
    before = agent.log
    assert agent.answer(True) is False
    assert agent.answer(False) is False
    assert agent.log == before
    assert agent.states == ["waiting_for_confirmation", "running"]


def test_rejecting_writes_idle_and_then_one_rejection_per_action_in_order(agent):
    held = [action(f"step {number}") for number in range(3)]
    agent.posts(*held)

    assert agent.answer(False, reason="Not now.") is True

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
    assert agent.answer(False) is False
    assert len(agent.rejections) == 3


@pytest.mark.parametrize("reason", ['"quoted" \\ /', "line\nbreak", "\x00", "😀 部署", ""])
def test_a_reason_comes_out_as_it_went_in(agent, reason):
    agent.posts(action(tool_name='odd "name"\n', tool_call_id="call\\1"))

    agent.answer(False, reason=reason)

    [rejection] = agent.rejections
    assert rejection["rejection_reason"] == reason
    assert (rejection["tool_name"], rejection["tool_call_id"]) == ('odd "name"\n', "call\\1")


def test_the_reason_has_a_default(agent):
    agent.posts(action())

    agent.answer(False)

    assert agent.rejections[0]["rejection_reason"] == "User rejected the action."


def test_an_answer_with_nothing_pending_changes_nothing(agent):
    agent.posts(message("hello"))

    for accept in (True, False):
        assert agent.answer(accept) is False

    assert (agent.status, len(agent.log)) == ("idle", 1)


@pytest.mark.parametrize(
    "body", [{}, *({"accept": wrong} for wrong in (None, "yes", "true", "", 1, 0, 1.0, [], {})), [], "x", 1, None]
)
def test_an_answer_must_be_a_boolean(agent, body):
    agent.posts(action())

    response = agent.client.post(f"{agent.url}/events/respond_to_confirmation", json=body)

    assert response.status_code == 422
    assert agent.status == "waiting_for_confirmation"


@pytest.mark.parametrize("reason", [None, 1, "\ud800", "x" * 32_769])
def test_a_reason_must_be_text(agent, reason):
    response = agent.client.post(f"{agent.url}/events/respond_to_confirmation", json={"accept": True, "reason": reason})

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"] == ["body", "reason"]


@pytest.mark.parametrize(
    ("policy", "held"),
    [
        ({"kind": "NeverConfirm"}, []),
        ({"kind": "AlwaysConfirm"}, ["LOW", "MEDIUM", "HIGH", "UNKNOWN", "odd"]),
        ({"kind": "ConfirmRisky"}, ["HIGH", "UNKNOWN", "odd"]),
        ({"kind": "ConfirmRisky", "threshold": "MEDIUM", "confirm_unknown": False}, ["MEDIUM", "HIGH"]),
        (
            {"kind": "ConfirmRisky", "threshold": "LOW", "confirm_unknown": True},
            ["LOW", "MEDIUM", "HIGH", "UNKNOWN", "odd"],
        ),
    ],
)
def test_policies_hold_by_risk(agent, policy, held):
    assert agent.policy(**policy) == 200

    waited = []
    for risk in ("LOW", "MEDIUM", "HIGH", "UNKNOWN", "odd"):
        agent.posts(status("running"))
        one = action(security_risk=risk)
        agent.posts(one)
        if agent.status == "waiting_for_confirmation":
            waited.append(risk)
            agent.answer(True)
        agent.posts(observation(one))

    assert waited == held


def test_one_risky_action_holds_its_whole_batch(agent):
    agent.policy(kind="ConfirmRisky", threshold="HIGH", confirm_unknown=False)
    batch = [action(security_risk="LOW"), action(security_risk="HIGH")]

    agent.posts(*batch)

    assert agent.pending == [one["id"] for one in batch]


@pytest.mark.parametrize("kind", ["FinishAction", "ThinkAction"])
def test_a_lone_finish_or_think_never_waits_but_in_company_it_does(agent, kind):
    alone = action(action={"kind": kind, "message": "done"})
    agent.posts(alone)
    assert agent.status == "idle"
    agent.posts(observation(alone))

    batch = [action(llm_response_id="r1"), action(llm_response_id="r1", action={"kind": kind})]
    agent.posts(*batch)
    assert agent.pending == [one["id"] for one in batch]


def test_two_finishes_of_one_response_keep_each_other_company(agent):
    agent.posts(*(action(llm_response_id="r1", action={"kind": "FinishAction"}) for _ in range(2)))

    assert agent.status == "waiting_for_confirmation"


def test_an_action_that_cannot_be_executed_does_not_wait(agent):
    agent.posts(action(action=None))

    assert (agent.status, agent.pending) == ("idle", [])


def test_the_company_of_a_finish_may_come_in_a_batch_of_its_own(agent):
    finish, other = action(action={"kind": "FinishAction"}, llm_response_id="r1"), action(llm_response_id="r1")

    agent.posts(finish)
    assert agent.pending == []
    agent.posts(other)

    assert agent.pending == [finish["id"], other["id"]]


def test_actions_of_other_responses_are_no_company(agent):
    for one in (action(action={"kind": "ThinkAction"}), action(action={"kind": "FinishAction"}, llm_response_id="")):
        agent.posts(one)

    assert (agent.status, agent.pending) == ("idle", [])


def test_pending_actions_stand_in_log_order_whatever_their_times(agent):
    held = [action(timestamp=f"2026-11-20T10:00:0{second}") for second in (3, 1, 2)]
    agent.posts(*held)

    assert agent.pending == [one["id"] for one in held]
    agent.answer(False)
    assert [one["action_id"] for one in agent.rejections] == [one["id"] for one in held]


def test_an_action_of_few_members_is_listed_and_rejected(agent):
    bare = event("ActionEvent", "agent", action={})
    agent.posts(bare)

    [pending] = agent.client.get(f"{agent.url}/pending_actions").get_json()
    assert {**pending, "since": ""} == {
        **{"id": bare["id"], "tool_name": None, "tool_call_id": None, "summary": None},
        **{"security_risk": "UNKNOWN", "arguments": {}, "since": ""},
    }
    assert agent.answer(False) is True
    assert agent.rejections[0]["action_id"] == bare["id"]


def test_an_action_sent_again_after_its_answer_does_not_wait_again(agent):
    held = action()
    agent.posts(held)
    agent.answer(True)

    agent.posts(held)

    assert (agent.status, agent.pending, len(agent.log)) == ("running", [], 3)


def test_what_was_accepted_is_not_answered_again_with_what_comes_next(agent):
    accepted, following = action(), action()
    agent.posts(accepted)
    agent.answer(True)

    agent.posts(following)

    assert agent.pending == [following["id"]]
    assert agent.answer(False) is True
    assert [one["action_id"] for one in agent.rejections] == [following["id"]]


def test_an_error_closes_every_action_that_bears_its_call(agent):
    twins = [action(tool_call_id="call_1") for _ in range(2)]
    agent.posts(*twins)

    agent.posts(event("AgentErrorEvent", "agent", tool_call_id="call_1"))

    assert agent.pending == []


@pytest.mark.parametrize(
    "stray",
    [
        event("ObservationEvent", "environment", action_id="another"),
        event("ObservationEvent", "environment"),
        event("ObservationEvent", "environment", action_id=["x"]),
        event("AgentErrorEvent", "agent", tool_call_id="another"),
        event("AgentErrorEvent", "agent"),
    ],
    ids=lambda stray: stray["kind"],
)
def test_an_observation_of_something_else_closes_nothing(agent, stray):
    held = action()
    agent.posts(held)

    agent.posts({**stray, "id": f"stray of {held['id']}"})

    assert agent.pending == [held["id"]]


@pytest.mark.parametrize("close", ["ObservationEvent", "UserRejectObservation", "AgentErrorEvent"])
def test_what_has_been_observed_no_longer_waits(agent, close):
    held, other = action(), action()
    agent.posts(held, other)
    reference = {"tool_call_id": held["tool_call_id"]} if close == "AgentErrorEvent" else {"action_id": held["id"]}

    agent.posts(event(close, "environment", **reference))

    assert agent.pending == [other["id"]]
    assert agent.answer(False) is True
    assert [one["action_id"] for one in agent.rejections if one.get("rejection_reason")] == [other["id"]]


def test_an_action_observed_in_its_own_batch_never_waits(agent):
    done = action()

    agent.posts(done, observation(done))

    assert (agent.status, agent.states) == ("idle", [])


def test_an_agent_that_says_itself_that_it_waits_is_not_echoed(agent):
    agent.posts(action(), status("waiting_for_confirmation"))

    assert agent.states == ["waiting_for_confirmation"]
    assert len(agent.pending) == 1


def test_an_agent_that_runs_has_nothing_pending(agent):
    agent.policy(kind="NeverConfirm")
    agent.posts(status("running"), action())

    assert (agent.pending, agent.answer(False)) == ([], False)


def test_open_actions_wait_once_the_agent_says_so(agent):
    agent.policy(kind="NeverConfirm")
    one = action()
    agent.posts(one)
    agent.posts(status("waiting_for_confirmation"))

    assert agent.pending == [one["id"]]
    assert agent.answer(True) is True


@pytest.mark.parametrize("run", [False, True])
def test_a_message_rejects_what_waits_and_never_approves(agent, run):
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
    assert agent.answer(True) is False


def test_a_new_policy_leaves_waiting_what_waits_and_is_an_event(agent):
    held = action()
    agent.posts(held)

    for _ in range(2):
        assert agent.policy(kind="NeverConfirm") == 200

    assert agent.pending == [held["id"]]
    policies = [one["value"] for one in agent.log if one.get("key") == "confirmation_policy"]
    assert policies == [{"kind": "NeverConfirm"}]
    assert agent.answer(True) is True
    agent.posts(action())
    assert agent.status == "running"


@pytest.mark.parametrize(
    "policy",
    [
        *({}, {"kind": "Sometimes"}, {"kind": None}, {"kind": []}, "NeverConfirm", None, []),
        *({"kind": "ConfirmRisky", "threshold": threshold} for threshold in ("UNKNOWN", "high", "", None, 3)),
        *({"kind": "ConfirmRisky", "confirm_unknown": wrong} for wrong in ("yes", 1, None)),
    ],
)
def test_a_policy_must_be_one_that_there_is(agent, policy):
    response = agent.client.post(f"{agent.url}/confirmation_policy", json={"policy": policy})

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"][:2] == ["body", "policy"]


def test_our_events_never_precede_the_action_that_they_are_about(agent):
    # Given an agent whose clock is years ahead
    agent.posts(action(timestamp="2099-01-01T00:00:00"))

    agent.answer(False)

    assert [one["kind"] for one in agent.log] == [
        "ActionEvent",
        "ConversationStateUpdateEvent",
        "ConversationStateUpdateEvent",
        "UserRejectObservation",
    ]


def test_a_message_is_counted_by_the_time_that_it_bears(agent):
    # Given an action of an agent whose clock is years ahead, and a message that supersedes it
    agent.posts(action(timestamp="2099-01-01T00:00:00"))
    agent.client.post(f"{agent.url}/events", json={"content": [{"type": "text", "text": "hello"}]})
    [sent] = agent.client.get(f"{agent.url}/events/search?kind=MessageEvent").get_json()["items"]

    # Then the filters by time find it where its own timestamp says, whatever else is asked for
    moment = {"timestamp__gte": sent["timestamp"], "timestamp__lt": event_time(micros(sent["timestamp"]) + 1)}
    for filters in ({"kind": "MessageEvent"}, {"body": ""}, {"body": "hello"}):
        found = agent.client.get(f"{agent.url}/events/count", query_string={**filters, **moment})
        assert found.get_json() == 1, filters


def test_a_message_that_supersedes_comes_after_the_rejections(agent):
    # Given an action of an agent whose clock is years ahead
    agent.posts(action(timestamp="2099-01-01T00:00:00"))

    # When a message supersedes it
    agent.client.post(f"{agent.url}/events", json={"run": True})

    # Then it is told of after what it caused
    assert [one["kind"] for one in agent.log][-3:] == [
        "UserRejectObservation",
        "MessageEvent",
        "ConversationStateUpdateEvent",
    ]


def test_an_odd_id_of_an_action_comes_back_in_its_rejection(agent):
    odd = 'a "quoted"\nid \x00 😀'
    agent.posts({**action(), "id": odd})

    assert agent.pending == [odd]
    agent.answer(False)
    assert agent.rejections[0]["action_id"] == odd
