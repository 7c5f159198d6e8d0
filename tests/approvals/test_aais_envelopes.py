"""Pending actions and decisions of a server as AAIS envelopes: the published package validates them."""

import json
import os
import subprocess
import sys

import aais
import pytest

from core.wire import micros, now
from docs.examples.aais_envelopes import EXTENSION, identity, requested, resolved
from tests.approvals import ADMIN, DecidedConversation, decision, digest_of
from tests.conftest import action, event, observation
from tests.servers import PROJECT


def items_of(held) -> list[dict]:
    found = held.server.get("/api/v1/pending-actions", params={"conversation_id": held.id})
    assert found.status_code == 200, found.text
    return found.json()["items"]


def requests_of(held) -> list[dict]:
    """The valid requests of what waits, in the order of the log: the inbox has no order within one moment."""
    found = {item["action_id"]: item for item in items_of(held)}
    return [aais.validate(requested(found[one], number)) for number, one in enumerate(held.pending, 1)]


def told(held, request, place=-1) -> list[dict]:
    """The valid envelopes of an entry of the audit about a request."""
    return [aais.validate(one) for one in resolved(request, held.entries[place], 7)]


def test_a_pending_action_is_a_valid_request(held):
    first, second = requests_of(held)

    assert [one["request"]["id"] for one in (first, second)] == [one["id"] for one in held.actions]
    assert first["request"]["action"]["arguments"] == {"command": "rm -r build"}
    assert first["request"]["extensions"][EXTENSION]["digest"] == digest_of(held.actions[0])
    assert "expires_at" not in first["request"]


@pytest.mark.parametrize(
    ("verb", "outcome"),
    [("approve", ("approve", "approved")), ("reject", ("deny", "denied"))],
    ids=lambda one: str(one),
)
def test_a_decision_is_a_valid_decision_and_its_outcome(held, verb, outcome):
    first, second = requests_of(held)
    assert held.decides(*(decision(one, verb, reason="because") for one in held.actions)).status_code == 200

    for request in (first, second):
        decided, outcomed = told(held, request)
        assert (decided["decision"]["decision"], outcomed["resolution"]["outcome"]) == outcome
        assert decided["decision"]["action_digest"] == request["request"]["action_digest"]
        assert decided["decision"]["actor"]["type"] == "human"
        assert outcomed["resolution"]["decision_id"] == decided["decision"]["id"]
        assert outcomed["extensions"][EXTENSION]["reason"] == "because"


def test_the_published_store_takes_the_request_with_the_decision_and_comes_to_the_same_outcome(held):
    request = requests_of(held)[0]
    store = aais.ApprovalStore()
    store.add(request)
    held.decides(decision(held.actions[0]))
    decided, outcomed = told(held, request)

    assert store.decide(decided)["resolution"]["outcome"] == outcomed["resolution"]["outcome"] == "approved"


def test_an_edit_is_no_approval_of_what_was_requested(house, conversation):
    held = DecidedConversation(house.one, conversation)
    act = action("rm -r build")
    held.appends(event("ConversationStateUpdateEvent", "environment", key="capabilities", value=["edit"]), act)
    [request] = requests_of(held)
    assert held.decides(decision(act, "edit", arguments={"command": "ls"})).status_code == 200

    [outcomed] = told(held, request)
    assert outcomed["resolution"]["outcome"] == "stale"
    edited = digest_of({**act, "action": {"command": "ls"}})
    assert (
        outcomed["extensions"][EXTENSION]["edited"] == edited != request["request"]["extensions"][EXTENSION]["digest"]
    )


def test_an_expiry_is_an_outcome_without_a_decision(house, conversation):
    held = DecidedConversation(house.one, conversation, confirmation_seconds=1)
    act = action()
    held.appends(act)
    [request] = requests_of(held)
    assert micros(request["request"]["expires_at"]) <= now() + 2_000_000
    house.lapse(held, act)
    held.server.post(f"/api/conversations/{conversation}/events/respond_to_confirmation", json={"accept": True})

    [outcomed] = told(held, request)
    assert (outcomed["type"], outcomed["resolution"]["outcome"]) == ("approval.resolved", "expired")


def test_a_superseding_message_cancels_and_a_deletion_cancels_without_a_decision(house, held):
    first = requests_of(held)[0]
    body = {"role": "user", "content": [{"type": "text", "text": "Something else."}]}
    held.server.post(f"/api/conversations/{held.id}/events", json=body)
    assert [one.get("decision", one.get("resolution"))["request_id"] for one in told(held, first)] == [
        first["request"]["id"]
    ] * 2
    assert told(held, first)[0]["decision"]["decision"] == "cancel"

    held.appends(action())
    [last] = requests_of(held)
    held.server.delete(f"/api/conversations/{held.id}")
    [outcomed] = told(held, last)
    assert outcomed["resolution"]["outcome"] == "cancelled"


def test_an_agent_that_went_on_unasked_is_no_approval(sandboxed):
    [request] = requests_of(sandboxed)
    sandboxed.agent(observation(sandboxed.act))

    [outcomed] = told(sandboxed, request)
    assert outcomed["resolution"]["outcome"] == "invalid"


@pytest.mark.parametrize(
    "odd",
    [
        {"id": 'an id / with ünusual "characters"'},
        {"tool_name": "a tool with blanks"},
        {"tool_name": None, "summary": None, "thought": []},
        {"action": ["no", "object"]},
        {"summary": "x" * 5000},
        {"summary": {"not": "text"}},
        {"security_risk": "odd"},
    ],
    ids=str,
)
def test_whatever_an_agent_proposes_is_a_valid_request(house, conversation, odd):
    held = DecidedConversation(house.one, conversation)
    act = action(**odd)
    held.appends(act)

    [request] = requests_of(held)
    assert request["request"]["id"] == identity(act["id"])
    assert request["request"]["extensions"][EXTENSION]["action_id"] == act["id"]


@pytest.mark.parametrize(
    ("command", "own", "level"),
    [("rm -rf build", "LOW", "high"), ("npm test", "LOW", "medium"), ("ls", "LOW", "low"), ("ls", "UNKNOWN", "high")],
)
def test_the_level_is_the_greater_of_the_agents_word_and_of_what_the_server_sees(
    house, conversation, command, own, level
):
    held = DecidedConversation(house.one, conversation)
    held.appends(action(command, security_risk=own))
    [request] = requests_of(held)
    assert request["request"]["risk"]["level"] == level


@pytest.mark.process("runs a program against a real server")
def test_the_command_prints_what_was_decided_and_what_waits(servers, conversation):
    held = DecidedConversation(servers.one, conversation)
    held.actions = [action("rm -r build"), action("make")]
    held.appends(*held.actions)
    held.decides(decision(held.actions[0]))
    command = [sys.executable, "docs/examples/aais_envelopes.py", held.id, str(servers.one.base_url).rstrip("/")]
    ran = subprocess.run(
        command, cwd=PROJECT, env={**os.environ, "SESSION_API_KEY": ADMIN}, capture_output=True, text=True, check=True
    )

    envelopes = [aais.validate(json.loads(line)) for line in ran.stdout.splitlines()]
    assert [one["type"].removeprefix("approval.") for one in envelopes] == [
        "requested",
        "decided",
        "resolved",
        "requested",
    ]
    assert [one["sequence"] for one in envelopes] == [1, 2, 3, 4]
