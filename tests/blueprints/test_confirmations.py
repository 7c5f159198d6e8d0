"""Pending actions over HTTP: which actions wait, and which observation ends their waiting."""

import pytest

from tests.conftest import action, event, observation, status


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
def test_an_observed_action_no_longer_waits(agent, close):
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


def test_a_new_policy_changes_no_pending_action_and_is_an_event(agent):
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
def test_an_unknown_policy_is_refused(agent, policy):
    response = agent.client.post(f"{agent.url}/confirmation_policy", json={"policy": policy})

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"][:2] == ["body", "policy"]
