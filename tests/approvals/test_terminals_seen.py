"""What people and their rules see of agents in terminals: machine, person, agent, and the key behind them."""

import aais
import pytest

from docs.examples.aais_envelopes import requested, resolved
from tests.approvals import ADMIN, shown
from tests.approvals.terminals import AskedTerminal, TerminalInbox, ask_key

ITEMS = "/api/v1/pending-actions"


@pytest.fixture(scope="module")
def house(request):
    return request.getfixturevalue("apps")


@pytest.fixture
def inbox(house):
    return TerminalInbox(house)


@pytest.fixture
def rules(house):
    """Makes rules, which end with the test."""
    made = []

    def make(**members):
        body = {"decision": "approve", "tool_name": "Bash", **members}
        response = house.one.post("/api/v1/approval-rules", json=body, headers=shown(ADMIN))
        assert response.status_code == 201, response.text
        made.append(response.json())
        return made[-1]

    yield make
    for one in made:
        house.one.delete(f"/api/v1/approval-rules/{one['id']}", headers=shown(ADMIN))


@pytest.mark.parametrize("member", ["machine", "person", "agent"])
def test_a_rule_for_a_machine_a_person_or_an_agent_answers_its_requests_at_once(house, rules, member):
    there = {"machine": "box-7", "person": "grace", "agent": "claude-code"}
    rules(**{member: there[member]}, arguments={"command": {"equals": f"make {member}"}})
    mine, other = AskedTerminal(house, host="box-7", user="grace"), AskedTerminal(house, host="box-8", user="eve")

    assert mine.asks(f"make {member}").state == "approved"
    if member != "agent":
        assert other.asks(f"make {member}").state == "pending"


def test_a_rule_that_names_the_key_answers_no_other_key_that_claims_its_machine(house, rules, inbox):
    mine, thief = AskedTerminal(house), AskedTerminal(house, key=ask_key(house, "another machine's"))
    asked = mine.asks("make build")
    path = f"/api/v1/conversation/{asked.conversation_id}/pending-actions/{asked.action_id}/answers"
    answers = house.one.get(path, headers=shown(ADMIN)).json()

    [exactly] = [one for one in answers["items"] if one["kind"] == "exactly"]
    assert exactly["proposed"] == "key"
    [of_machine] = [one for one in exactly["scopes"] if one["scope"] == "machine"]
    assert of_machine["rule"]["machine"] == "laptop"
    assert "on the machine `laptop` that the key `ask key` starts" in of_machine["sentence"]
    rules(**of_machine["rule"])
    assert AskedTerminal(house).asks("make build").state == "approved"
    assert thief.asks("make build").state == "pending"


def test_the_inbox_is_filtered_by_machine_and_by_agent(house):
    here, there = AskedTerminal(house, host="m-1").asks("ls a"), AskedTerminal(house, host="m-2").asks("ls b")

    def found(**filters):
        items = house.one.get(ITEMS, params=filters).json()["items"]
        assert house.one.get(f"{ITEMS}/count", params=filters).json() == len(items)
        return {one["action_id"] for one in items}

    assert found(machine="m-1") == {here.action_id}
    assert found(machine="m-2", agent="claude-code") == {there.action_id}
    assert found(machine="m-1", agent="codex") == set()
    assert {here.action_id, there.action_id} <= found(agent="claude-code")


def test_the_list_of_conversations_marks_those_of_terminals(house):
    asked = AskedTerminal(house, host="m-3").asks("ls")
    items = house.one.get("/api/v1/conversations/search", params={"text": "claude-code"}).json()["items"]
    [mine] = [one for one in items if one["id"] == asked.conversation_id]
    assert (mine["external"]["machine"], mine["external"]["agent"]) == ("m-3", "claude-code")


def test_a_withdrawn_request_is_cancelled_and_its_terminal_is_a_human_in_aais(house, inbox):
    terminal = AskedTerminal(house)
    asked, left = terminal.asks("make a"), terminal.asks("make b")
    requests = [aais.validate(requested(item, 1)) for item in inbox.items(asked.conversation_id)]
    terminal.tells(asked, "allowed")
    terminal.tells(left, "withdrawn")
    audit = house.one.get(f"/api/v1/conversation/{asked.conversation_id}/audit").json()["items"]

    [(decided, outcome), (cancelled,)] = [
        [aais.validate(one) for one in resolved(request, entry, 7)]
        for request, entry in zip(requests, sorted(audit, key=lambda one: one["seq"]), strict=True)
    ]
    assert (decided["decision"]["actor"]["type"], outcome["resolution"]["outcome"]) == ("human", "approved")
    assert cancelled["resolution"]["outcome"] == "cancelled"
