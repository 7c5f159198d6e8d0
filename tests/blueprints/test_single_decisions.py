"""Decisions of single actions over HTTP, all or none: bound to what was shown, some edited, some to hold always."""

import json

import pytest

from approvals.digests import action_digest
from tests.conftest import action

ALWAYS = {"kind": "AlwaysConfirm"}


@pytest.fixture
def group(client, conversation):
    """A conversation that waits for decisions about three actions of one response, and the actions."""
    client.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": ALWAYS})
    return [*propose(client, conversation, "one", "two", "three")]


def propose(client, conversation, *commands):
    found = [action(command, llm_response_id="one response") for command in commands]
    assert client.post(f"/api/v1/webhooks/events/{conversation}", json=found).status_code == 200
    return found


@pytest.fixture
def decide(client, conversation):
    """Decide actions by (event, decision, members …); the response."""

    def decide(*decisions):
        given = [{"action_id": event["id"], "decision": verb, **dict(*more)} for event, verb, *more in decisions]
        return client.post(f"/api/v1/conversation/{conversation}/pending-actions/decisions", json={"decisions": given})

    return decide


@pytest.fixture
def pending(client, conversation):
    return lambda: [one["id"] for one in client.get(f"/api/conversations/{conversation}/pending_actions").json]


@pytest.fixture
def status(client, conversation):
    return lambda: client.get(f"/api/conversations/{conversation}").json["execution_status"]


@pytest.fixture
def audit(client, conversation):
    """Decisions of the audit with the ids that each is about."""

    def read():
        items = client.get(f"/api/v1/conversation/{conversation}/audit").json["items"]
        return [(one["decision"], one["action_ids"]) for one in items]

    return read


def rejections(client, conversation):
    found = client.get(f"/api/conversations/{conversation}/events/search?kind=UserRejectObservation").json["items"]
    return [(one["action_id"], one["rejection_reason"]) for one in found]


def test_a_group_goes_on_when_its_last_action_is_decided(client, conversation, group, decide, pending, status, audit):
    one, two, three = group

    assert decide((one, "approve")).json == {"success": True, "rules": []}
    assert pending() == [two["id"], three["id"]]
    assert decide((two, "reject", {"reason": "too bold"})).status_code == 200
    assert status() == "waiting_for_confirmation"
    assert rejections(client, conversation) == [(two["id"], "too bold")]

    assert decide((three, "approve")).status_code == 200

    assert (pending(), status()) == ([], "running")
    assert audit() == [("approve", [one["id"]]), ("reject", [two["id"]]), ("approve", [three["id"]])]


def test_a_group_that_is_rejected_one_by_one_ends_idle(client, conversation, group, decide, status):
    for event in group:
        decide((event, "reject", {"reason": "no"}))

    assert status() == "idle"
    assert rejections(client, conversation) == [(event["id"], "no") for event in group]


def test_what_was_approved_stays_open_until_it_is_observed(client, conversation, group, decide):
    url = f"/api/v1/conversation/{conversation}/pending-actions/decisions"
    decide(*((event, "approve") for event in group))
    assert [one["action_id"] for one in client.get(url).json] == [event["id"] for event in group]

    client.post(f"/api/v1/webhooks/events/{conversation}", json=[observation(group[0])])

    assert [one["action_id"] for one in client.get(url).json] == [event["id"] for event in group[1:]]


def observation(event):
    about = {"tool_name": event["tool_name"], "tool_call_id": event["tool_call_id"], "action_id": event["id"]}
    head = {"id": f"observed {event['id']}", "timestamp": event["timestamp"], "source": "environment"}
    return {**head, **about, "observation": {"kind": "TerminalObservation"}, "kind": "ObservationEvent"}


def test_one_stale_decision_leaves_all_untaken_and_is_named(group, decide, pending, audit):
    one, two, three = group
    decide((one, "approve"))

    refused = decide((two, "approve"), (one, "reject"), (three, "approve", {"digest": "0" * 64}))

    assert refused.status_code == 409
    assert refused.json["problems"] == [
        {"action_id": one["id"], "problem": "not_pending"},
        {"action_id": three["id"], "problem": "changed"},
    ]
    assert one["id"] in refused.json["detail"]
    assert pending() == [two["id"], three["id"]]
    assert len(audit()) == 1


def test_a_digest_is_that_of_the_tool_and_the_arguments_that_were_shown(client, conversation, group, decide):
    [shown, *_] = client.get(f"/api/conversations/{conversation}/pending_actions").json
    digest = action_digest(shown["tool_name"], shown["arguments"])

    assert decide((group[0], "approve", {"digest": digest})).status_code == 200


def test_an_edit_is_refused_where_no_agent_has_said_that_it_understands_edits(group, decide, pending):
    refused = decide((group[0], "edit", {"arguments": {"command": "true"}}))

    assert refused.status_code == 409
    assert refused.json["problems"] == [{"action_id": group[0]["id"], "problem": "edit_not_understood"}]
    assert group[0]["id"] in pending()


def test_an_edit_is_what_the_agent_gets_and_what_the_log_and_the_audit_tell(client, conversation, decide):
    client.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": ALWAYS})
    told = {"id": "told", "timestamp": "2026-01-01T00:00:00", "source": "environment", "key": "capabilities"}
    told |= {"value": ["edit"], "kind": "ConversationStateUpdateEvent"}
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[told])
    [event] = propose(client, conversation, "rm -r /")

    assert decide((event, "edit", {"arguments": {"command": "ls /"}, "reason": "look first"})).status_code == 200

    url = f"/api/v1/conversation/{conversation}/pending-actions/decisions"
    edited = {"action_id": event["id"], "decision": "edit", "arguments": {"command": "ls /"}}
    assert client.get(url).json == [edited]
    items = client.get(f"/api/conversations/{conversation}/events/search?limit=100").json["items"]
    [said] = [one["value"] for one in items if one.get("key") == "edited_action"]
    assert said == {"action_id": event["id"], "arguments": {"command": "ls /"}}
    [entry] = client.get(f"/api/v1/conversation/{conversation}/audit").json["items"]
    assert entry["edited"] == [action_digest(event["tool_name"], {"command": "ls /"})]
    assert (entry["decision"], entry["reason"]) == ("edit", "look first")


def test_a_message_overtakes_also_what_was_approved_and_not_gone_on_with(
    client, conversation, group, decide, status, pending
):
    decide((group[0], "approve"))

    client.post(f"/api/conversations/{conversation}/events", json={"content": [{"type": "text", "text": "stop"}]})

    assert (pending(), status()) == ([], "idle")
    assert [action_id for action_id, _ in rejections(client, conversation)] == [event["id"] for event in group]
    assert client.get(f"/api/v1/conversation/{conversation}/pending-actions/decisions").json == []


def test_a_run_approves_what_waits_and_leaves_what_was_rejected(client, conversation, group, decide, status, audit):
    decide((group[0], "reject", {"reason": "no"}))

    assert client.post(f"/api/conversations/{conversation}/run").status_code == 200

    assert status() == "running"
    assert [action_id for action_id, _ in rejections(client, conversation)] == [group[0]["id"]]
    assert audit()[-1] == ("approve", [event["id"] for event in group[1:]])


def test_a_decision_that_holds_always_decides_the_next_action_like_it(
    client, conversation, decide, status, pending, audit
):
    client.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": ALWAYS})
    [first] = propose(client, conversation, "make test")
    [made] = decide((first, "approve", {"always": True})).json["rules"]
    assert made["detail"] is None

    client.post(f"/api/v1/webhooks/events/{conversation}", json=[observation(first)])
    [second] = propose(client, conversation, "make test")

    assert (pending(), status()) == ([], "running")
    [entry] = client.get(f"/api/v1/conversation/{conversation}/audit").json["items"][1:]
    assert entry["actor"]["kind"] == "rule"
    assert entry["actor"]["name"] == made["rule_id"]
    assert entry["action_ids"] == [second["id"]]
    client.delete(f"/api/v1/approval-rules/{made['rule_id']}")
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[observation(second)])
    assert [event["id"] for event in propose(client, conversation, "make test")] == pending()


@pytest.mark.parametrize(
    ("decision", "member"),
    [
        ({"decision": "allow"}, "decision"),
        ({"decision": "approve", "digest": "short"}, "digest"),
        ({"decision": "approve", "arguments": {}}, "arguments"),
        ({"decision": "edit"}, "arguments"),
        ({"decision": "edit", "arguments": "text"}, "arguments"),
        ({"decision": "edit", "arguments": {}, "always": True}, "always"),
        ({"decision": "approve", "always": {"max_uses": 0}}, "always"),
        ({"decision": "approve", "approved_by": "me"}, "approved_by"),
    ],
)
def test_a_member_that_is_wrong_is_named_and_nothing_is_decided(client, conversation, group, pending, decision, member):
    given = {"decisions": [{"action_id": group[0]["id"], **decision}]}

    refused = client.post(f"/api/v1/conversation/{conversation}/pending-actions/decisions", json=given)

    assert refused.status_code == 422
    assert member in json.dumps(refused.json["detail"][0]["loc"])
    assert len(pending()) == 3


def test_an_action_that_is_named_twice_is_refused(group, decide, pending):
    assert decide((group[0], "approve"), (group[0], "reject")).status_code == 422
    assert len(pending()) == 3
