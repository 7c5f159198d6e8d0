"""Who decided, how, when and why, is read beside the action, by whoever may read the conversation."""

import io
import json
import zipfile

import pytest

from tests.approvals import ADMIN, DecidedConversation, decision, shown
from tests.conftest import action, as_events, observation, status

#: what an answer about a decision has: of its entry all but what is the administrators' alone
MEMBERS = {"action_ids", "actor", "decision", "reason", "seq", "time"}


@pytest.fixture
def decisions(house, conversation):
    """The decisions about actions, as a key with the scope `read` is told."""

    def read(*acts, conversation=conversation):
        query = {"action_id": [one["id"] for one in acts]}
        response = house.two.get(
            f"/api/v1/conversation/{conversation}/decisions", params=query, headers=shown(house.keys["read"])
        )
        assert response.status_code == 200, response.text
        return response.json()

    return read


def test_a_decision_is_read_by_the_id_of_its_action(held, decisions):
    approved, rejected = held.actions
    held.decides(decision(rejected, "reject", reason="It is needed."))

    waits, found = decisions(approved, rejected)
    (entry,) = held.entries
    assert waits is None
    assert found == {name: entry[name] for name in MEMBERS - {"actor"}} | {
        "actor": {"kind": "key", "name": "settings-1"}
    }


def test_a_page_of_events_has_the_decisions_about_its_actions(house, held):
    approved, rejected = held.actions
    held.decides(decision(approved), decision(rejected, "reject"))
    path = f"/api/v1/conversation/{held.id}/events/search"

    page = house.one.get(path, params={"decisions": "true"}).json()

    assert {name: one["decision"] for name, one in page["decisions"].items()} == {
        approved["id"]: "approve",
        rejected["id"]: "reject",
    }
    assert page["items"] == held.log
    assert "decisions" not in house.one.get(path).json()


def test_a_decision_tells_no_address(held, decisions):
    held.decides(*map(decision, held.actions))

    assert {"address"} <= held.entries[0]["actor"].keys()
    assert all(one.keys() == MEMBERS and one["actor"].keys() == {"kind", "name"} for one in decisions(*held.actions))


def test_what_is_asked_again_has_its_last_decision(house, conversation, decisions):
    held = DecidedConversation(house.one, conversation)
    act = action("make")
    held.appends(act)
    held.decides(decision(act))
    house.store.approvals.confirmations.reopen(conversation, as_events([act]))  # its agent began again
    held.appends(status("waiting_for_confirmation"))
    held.decides(decision(act, "reject"))

    assert [one["decision"] for one in decisions(act)] == ["reject"]


def test_a_rule_that_decides_is_named(house, conversation, decisions):
    tool = f"tool of {conversation}"
    made = house.one.post("/api/v1/approval-rules", json={"decision": "approve", "tool_name": tool}).json()
    held = DecidedConversation(house.one, conversation)
    act = action("make", tool_name=tool)
    held.appends(act)

    assert [one["actor"] for one in decisions(act)] == [{"kind": "rule", "name": made["id"]}]


def test_a_fork_has_none_of_its_source(house, held, decisions):
    held.decides(*map(decision, held.actions))
    held.appends(*map(observation, held.actions))
    fork = held.server.post(f"/api/conversations/{held.id}/fork", json={}).json()["id"]

    assert decisions(*held.actions, conversation=fork) == [None, None]


def test_the_zip_file_of_a_conversation_has_its_decisions(house, sandboxed):
    held = sandboxed
    path = f"/api/v1/conversation/{held.id}/pending-actions/decisions"
    house.one.post(path, json={"decisions": [decision(held.act, "reject")]})

    archive = house.one.get(f"/api/v1/app-conversations/{held.id}/download").content

    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        found = json.loads(files.read("decisions.json"))
    assert {name: one["decision"] for name, one in found.items()} == {held.act["id"]: "reject"}


def test_decisions_of_no_conversation_and_of_no_action_are_refused(house, held):
    path = "/api/v1/conversation/{}/decisions"
    unknown = house.one.get(path.format("00000000-0000-4000-8000-000000000000"), params={"action_id": "a"})
    none = house.one.get(path.format(held.id))

    assert unknown.status_code == 404
    assert (none.status_code, none.json()["detail"][0]["loc"]) == (422, ["query", "action_id"])


@pytest.mark.process("follows a stream of a real server")
def test_a_message_to_followers_names_ten_actions_at_most(servers, conversation):
    held = DecidedConversation(servers.one, conversation)
    acts = [action(f"step {number}") for number in range(12)]
    held.appends(*acts)
    path = f"/api/conversations/{held.id}/events/stream"
    with servers.two.stream("GET", path, headers=shown(ADMIN)) as response:
        lines = response.iter_lines()
        next(line for line in lines if acts[-1]["id"] in line)
        held.decides(*map(decision, acts))

        messages = (json.loads(next(lines).removeprefix("data: ")) for line in lines if line == "event: decision")
        told = [next(messages)["action_ids"] for _ in range(2)]
    assert told == [[one["id"] for one in acts[:10]], [one["id"] for one in acts[10:]]]


@pytest.mark.process("follows a stream of a real server")
def test_the_followers_of_a_conversation_are_told_of_a_decision(servers, conversation):
    held = DecidedConversation(servers.one, conversation)
    act = action("make")
    held.appends(act)
    path = f"/api/conversations/{held.id}/events/stream"
    with servers.two.stream("GET", path, headers=shown(ADMIN)) as response:
        lines = response.iter_lines()
        next(line for line in lines if act["id"] in line)
        held.decides(decision(act, reason="Go on."))

        name, data = next((line, next(lines)) for line in lines if line.startswith("event:"))
    told = json.loads(data.removeprefix("data: "))
    assert name == "event: decision"
    assert {key: told[key] for key in ("action_ids", "actor", "decision", "reason")} == {
        "action_ids": [act["id"]],
        "actor": {"kind": "key", "name": "settings-1"},
        "decision": "approve",
        "reason": "Go on.",
    }


@pytest.fixture
def edited(house, conversation):
    """An action that was approved with other arguments than it was shown with."""
    held = DecidedConversation(house.one, conversation)
    told = {"id": f"told {conversation}", "timestamp": "2026-01-01T00:00:00", "source": "environment"}
    held.appends(told | {"key": "capabilities", "value": ["edit"], "kind": "ConversationStateUpdateEvent"})
    act = action("rm -r build")
    held.appends(act)
    assert held.decides(decision(act, "edit", arguments={"command": "rm -r build/old"})).status_code == 200
    return held, act


def test_an_edit_says_in_words_what_was_approved(house, edited, decisions):
    held, act = edited
    became = [{"summary": None, "text": "rm -r build/old", "tool_name": "terminal"}]

    (entry,) = held.entries  # which verify
    assert (entry["shown"][0]["text"], entry["edited_shown"]) == ("rm -r build", became)
    assert decisions(act)[0]["edited_shown"] == became
    found = house.one.get("/api/v1/audit", params={"text": "build/old", "conversation_id": held.id}).json()["items"]
    assert [one["seq"] for one in found] == [entry["seq"]]


def test_an_export_has_each_decision_after_the_line_of_its_action(house, edited):
    held, act = edited
    lines = house.one.get(f"/api/conversations/{held.id}/export").text.splitlines()

    after = json.loads(lines[next(at for at, line in enumerate(lines) if f'"{act["id"]}"' in line) + 1])
    assert after["format"] == "agent-server-conversation-decision"
    assert (after["action_id"], after["decision"], after["actor"]["kind"]) == (act["id"], "edit", "key")
    assert "address" not in after["actor"]
