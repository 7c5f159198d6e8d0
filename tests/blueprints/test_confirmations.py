"""Pending actions over HTTP: which actions wait, and which observation ends their waiting."""

import pytest

from tests.conftest import action, event, observation, status


def test_an_action_that_the_policy_holds_is_pending_and_described(agent):
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
def test_a_policy_holds_actions_by_risk(agent, policy, held):
    assert agent.policy(**policy) == 200

    waited = []
    for risk in ("LOW", "MEDIUM", "HIGH", "UNKNOWN", "odd"):
        agent.posts(status("running"))
        one = action(security_risk=risk)
        agent.posts(one)
        if agent.status == "waiting_for_confirmation":
            waited.append(risk)
            agent.decide(True)
        agent.posts(observation(one))

    assert waited == held


def test_a_risky_action_holds_its_whole_batch(agent):
    agent.policy(kind="ConfirmRisky", threshold="HIGH", confirm_unknown=False)
    batch = [action(security_risk="LOW"), action(security_risk="HIGH")]

    agent.posts(*batch)

    assert agent.pending == [one["id"] for one in batch]


@pytest.mark.parametrize("kind", ["FinishAction", "ThinkAction"])
def test_a_finish_or_think_is_pending_only_beside_another_action(agent, kind):
    alone = action(action={"kind": kind, "message": "done"})
    agent.posts(alone)
    assert agent.status == "idle"
    agent.posts(observation(alone))

    batch = [action(llm_response_id="r1"), action(llm_response_id="r1", action={"kind": kind})]
    agent.posts(*batch)
    assert agent.pending == [one["id"] for one in batch]


def test_two_finishes_of_one_response_are_held(agent):
    agent.posts(*(action(llm_response_id="r1", action={"kind": "FinishAction"}) for _ in range(2)))

    assert agent.status == "waiting_for_confirmation"


def test_an_action_that_cannot_be_executed_is_not_pending(agent):
    agent.posts(action(action=None))

    assert (agent.status, agent.pending) == ("idle", [])


def test_a_finish_is_pending_beside_an_action_of_a_later_batch(agent):
    finish, other = action(action={"kind": "FinishAction"}, llm_response_id="r1"), action(llm_response_id="r1")

    agent.posts(finish)
    assert agent.pending == []
    agent.posts(other)

    assert agent.pending == [finish["id"], other["id"]]


def test_a_finish_or_think_is_not_pending_beside_an_action_of_another_response(agent):
    for one in (action(action={"kind": "ThinkAction"}), action(action={"kind": "FinishAction"}, llm_response_id="")):
        agent.posts(one)

    assert (agent.status, agent.pending) == ("idle", [])


def test_pending_actions_are_in_log_order_whatever_their_times(agent):
    held = [action(timestamp=f"2026-11-20T10:00:0{second}") for second in (3, 1, 2)]
    agent.posts(*held)

    assert agent.pending == [one["id"] for one in held]
    agent.decide(False)
    assert [one["action_id"] for one in agent.rejections] == [one["id"] for one in held]


def test_an_action_with_few_members_is_listed_and_rejected(agent):
    bare = event("ActionEvent", "agent", action={})
    agent.posts(bare)

    [pending] = agent.client.get(f"{agent.url}/pending_actions").get_json()
    assert {**pending, "since": ""} == {
        **{"id": bare["id"], "tool_name": None, "tool_call_id": None, "summary": None},
        **{"security_risk": "UNKNOWN", "arguments": {}, "since": ""},
    }
    assert agent.decide(False) is True
    assert agent.rejections[0]["action_id"] == bare["id"]


def test_an_error_closes_every_action_of_its_tool_call(agent):
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
def test_an_observation_of_another_action_closes_nothing(agent, stray):
    held = action()
    agent.posts(held)

    agent.posts({**stray, "id": f"stray of {held['id']}"})

    assert agent.pending == [held["id"]]


@pytest.mark.parametrize("close", ["ObservationEvent", "UserRejectObservation", "AgentErrorEvent"])
def test_an_observed_action_is_no_longer_pending(agent, close):
    held, other = action(), action()
    agent.posts(held, other)
    reference = {"tool_call_id": held["tool_call_id"]} if close == "AgentErrorEvent" else {"action_id": held["id"]}

    agent.posts(event(close, "environment", **reference))

    assert agent.pending == [other["id"]]
    assert agent.decide(False) is True
    assert [one["action_id"] for one in agent.rejections if one.get("rejection_reason")] == [other["id"]]


def test_an_action_that_its_own_batch_observes_is_never_pending(agent):
    done = action()

    agent.posts(done, observation(done))

    assert (agent.status, agent.states) == ("idle", [])


def test_a_waiting_status_of_the_agent_is_not_repeated(agent):
    agent.posts(action(), status("waiting_for_confirmation"))

    assert agent.states == ["waiting_for_confirmation"]
    assert len(agent.pending) == 1


def test_a_running_agent_has_no_pending_actions(agent):
    agent.policy(kind="NeverConfirm")
    agent.posts(status("running"), action())

    assert (agent.pending, agent.decide(False)) == ([], False)


def test_open_actions_are_pending_when_the_agent_reports_that_it_waits(agent):
    agent.policy(kind="NeverConfirm")
    one = action()
    agent.posts(one)
    agent.posts(status("waiting_for_confirmation"))

    assert agent.pending == [one["id"]]
    assert agent.decide(True) is True


def test_a_new_policy_changes_no_pending_action_and_is_an_event(agent):
    held = action()
    agent.posts(held)

    for _ in range(2):
        assert agent.policy(kind="NeverConfirm") == 200

    assert agent.pending == [held["id"]]
    policies = [one["value"] for one in agent.log if one.get("key") == "confirmation_policy"]
    assert policies == [{"kind": "NeverConfirm"}]
    assert agent.decide(True) is True
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
def test_an_unknown_policy_is_refused(agent, policy):
    response = agent.client.post(f"{agent.url}/confirmation_policy", json={"policy": policy})

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"][:2] == ["body", "policy"]
