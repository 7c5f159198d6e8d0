"""Pending actions over HTTP: which actions wait, the decision that wins, and the events that it causes."""

import pytest

from core.wire import event_time, micros
from tests.agents import propose, running_sandbox
from tests.conftest import action, event, message, observation, status
from tests.supervisor.test_queued_messages import claimed


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
        "risk": "HIGH",
        "seen": {
            "risk": "HIGH",
            "effects": [{"effect": "deletes", "risk": "HIGH", "words": "Deletes", "because": "rm -r build"}],
        },
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


@pytest.mark.parametrize("body", [b'{"accept": false, "accept": true}', b'{"accept": true, "reason": "x", "n": 1e999}'])
def test_a_decision_that_two_readers_may_read_differently_is_422_and_decides_nothing(agent, body):
    agent.posts(action("rm -r build"))

    response = agent.client.post(
        f"{agent.url}/events/respond_to_confirmation", data=body, content_type="application/json"
    )

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["type"] == "json_invalid"
    assert agent.status == "waiting_for_confirmation"


def test_a_risky_action_holds_its_whole_batch(agent):
    agent.policy(kind="ConfirmRisky", threshold="HIGH", confirm_unknown=False)
    batch = [action(security_risk="LOW"), action(security_risk="HIGH")]

    agent.posts(*batch)

    assert agent.pending == [one["id"] for one in batch]


@pytest.mark.parametrize("kind", ["FinishAction", "ThinkAction", "TaskTrackerAction"])
def test_a_finish_a_thought_or_a_task_list_is_pending_only_beside_another_action(agent, kind):
    alone = action(action={"kind": kind, "message": "done"})
    agent.posts(alone)
    assert agent.status == "idle"
    agent.posts(observation(alone))

    batch = [action(llm_response_id="r1"), action(llm_response_id="r1", action={"kind": kind})]
    agent.posts(*batch)
    assert agent.pending == [one["id"] for one in batch]


def test_a_lone_wait_for_the_output_of_a_command_is_not_pending_and_typing_is(agent):
    wait = {"kind": "TerminalAction", "command": "", "is_input": True, "reset": False}
    agent.posts(action(action=wait))
    assert agent.pending == []

    for other in ({"command": "C-c"}, {"reset": True}):
        agent.posts(typed := action(action={**wait, **other}))
        assert agent.pending[-1] == typed["id"]


def test_a_lone_task_list_is_pending_where_its_agent_waits_for_a_decision(agent):
    plan = action(action={"kind": "TaskTrackerAction", "command": "plan", "task_list": []})

    agent.posts(plan)
    assert agent.pending == []
    agent.posts(status("waiting_for_confirmation"))

    assert (agent.status, agent.pending) == ("waiting_for_confirmation", [plan["id"]])


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
        **{"security_risk": "UNKNOWN", "arguments": {}, "since": "", "risk": "MEDIUM", "seen": pending["seen"]},
    }
    assert [one["because"] for one in pending["seen"]["effects"]] == ["a tool without a name"]
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


def test_an_unknown_policy_is_refused(agent):
    for body, loc in (({"policy": {"kind": "Sometimes"}}, ["policy", "kind"]), ({"policy": None}, ["policy"])):
        response = agent.client.post(f"{agent.url}/confirmation_policy", json=body)

        assert response.status_code == 422
        assert response.get_json()["detail"][0]["loc"] == ["body", *loc]


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


@pytest.mark.parametrize(("given", "audited"), [({}, ""), ({"reason": "Looks right"}, "Looks right")])
def test_an_approval_is_audited_without_the_reason_of_a_rejection(client, conversation, agent, given, audited):
    agent.posts(action())

    agent.decide(True, **given)

    [entry] = client.get(f"/api/v1/conversation/{conversation}/audit").json["items"]
    assert (entry["decision"], entry["reason"]) == ("approve", audited)


def test_a_decision_without_pending_actions_changes_nothing(agent):
    agent.posts(message("hello"))

    for accept in (True, False):
        assert agent.decide(accept) is False

    assert (agent.status, len(agent.log)) == ("idle", 1)


def test_a_decision_must_be_a_boolean_and_its_reason_text(agent):
    agent.posts(action())
    wrong = [
        ({}, ["accept"]),
        ({"accept": "true"}, ["accept"]),
        ([], []),
        (None, []),  # no body at all
        ({"accept": True, "reason": 1}, ["reason"]),
        ({"accept": True, "reason": "x" * 32_769}, ["reason"]),
    ]

    for body, place in wrong:
        response = agent.client.post(f"{agent.url}/events/respond_to_confirmation", json=body)
        assert (response.status_code, response.get_json()["detail"][0]["loc"]) == (422, ["body", *place])
    assert agent.status == "waiting_for_confirmation"


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


def test_a_message_that_is_to_reject_nothing_is_refused_while_an_action_waits(agent):
    """A client that saw none says so: one that came meanwhile was never shown to anybody."""
    said = {"content": [{"type": "text", "text": "hello"}], "run": False}
    assert agent.client.post(f"{agent.url}/events", json={**said, "rejects": False}).status_code == 200
    held = action()
    agent.posts(held)
    before = agent.client.get(f"{agent.url}/events/count").get_json()

    refused = agent.client.post(f"{agent.url}/events", json={**said, "rejects": False})

    assert refused.status_code == 409
    assert "an action waits for a decision" in refused.get_json()["detail"]
    assert agent.pending == [held["id"]]
    assert agent.client.get(f"{agent.url}/events/count").get_json() == before
    assert agent.client.post(f"{agent.url}/events", json=said).status_code == 200
    assert agent.pending == []


def test_a_run_that_is_to_accept_nothing_is_refused_while_an_action_waits(agent):
    held = action()
    agent.posts(held)

    refused = agent.client.post(f"{agent.url}/run?accepts=false")

    assert refused.status_code == 409
    assert "an action waits for a decision" in refused.get_json()["detail"]
    assert agent.pending == [held["id"]]
    agent.decide(False)
    assert agent.client.post(f"{agent.url}/run?accepts=false").status_code == 200
    assert agent.client.get(agent.url).get_json()["execution_status"] == "running"


@pytest.mark.parametrize("door", ["/api/conversations/{}/events", "/api/v1/app-conversations/{}/send-message"])
def test_a_message_to_an_agent_in_a_sandbox_that_is_to_reject_nothing_is_refused_too(client, store, conversation, door):
    with running_sandbox(store, "http://127.0.0.1:1") as box:
        held = propose(store, conversation, box.id)

        refused = client.post(
            door.format(conversation), json={"content": [{"type": "text", "text": "hello"}], "rejects": False}
        )
        waits = client.get(f"/api/conversations/{conversation}/pending_actions").get_json()

    assert refused.status_code == 409
    assert "an action waits for a decision" in refused.get_json()["detail"]
    assert [one["id"] for one in waits] == [held["id"]]


def test_a_queued_message_that_is_to_reject_nothing_waits_for_the_decision(client, store, conversation):
    store.conversations.create(conversation, sandbox_id="none", app={})
    queued = client.post(
        f"/api/v1/conversations/{conversation}/pending-messages",
        json={"content": [{"type": "text", "text": "hello"}], "rejects": False},
    )

    assert queued.status_code == 201
    assert claimed(store, conversation).may_decide is False


@pytest.mark.parametrize("rejects", ["no", 0, None])
def test_whether_a_message_rejects_is_true_or_false(agent, rejects):
    refused = agent.client.post(f"{agent.url}/events", json={"content": [], "rejects": rejects})

    assert refused.status_code == 422
    assert refused.get_json()["detail"][0]["loc"] == ["body", "rejects"]
