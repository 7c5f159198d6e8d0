"""Who made and who revoked a rule: the record of the rules, and the audit of the conversations that a rule names."""

import json

import pytest

from admin.audit import main
from tests.blueprints.test_rule_scopes import ADMIN, LS, RULES, ScopesHouse, app_with_an_admin


@pytest.fixture
def house(redis_url):
    house = ScopesHouse(app_with_an_admin(redis_url))
    for key in house.store.approvals.rules._redis.scan_iter("{rules}*"):
        house.store.approvals.rules._redis.delete(key)
    return house


def audit(house, conversation):
    return house.ask("GET", f"/api/v1/conversation/{conversation}/audit")["items"]


def test_a_revoked_rule_is_listed_with_who_made_it_who_revoked_it_and_how_often_it_was_used(house):
    ada, bob = house.key("ada", "approve", "write"), house.key("bob", "approve", "write")
    made = house.ask("POST", RULES, ada["key"], 201, json=LS)
    assert not house.waits(house.starts(ADMIN))
    house.ask("DELETE", f"{RULES}/{made['id']}", bob["key"])

    assert house.ask("GET", RULES) == []
    [ended] = house.ask("GET", f"{RULES}?ended=true")
    assert (ended["id"], ended["created_by"], ended["ended_by"], ended["uses"]) == (made["id"], "ada", "bob", 1)
    assert ended["arguments"] == LS["arguments"]
    assert made["created_at"] < ended["ended_at"]
    assert (made["ended_at"], made["ended_by"]) == (None, "")


def test_an_ended_rule_decides_nothing_and_is_revoked_once(house):
    made = house.rules()
    house.ask("DELETE", f"{RULES}/{made['id']}")
    assert house.waits(house.starts(ADMIN))
    house.ask("DELETE", f"{RULES}/{made['id']}", status=404)
    assert len(house.ask("GET", f"{RULES}?ended=true")) == 1


def test_a_rule_of_one_conversation_is_in_its_audit_and_the_audit_verifies(house, tmp_path):
    ada = house.key("ada", "approve", "write")
    one, other = house.starts(ADMIN), house.starts(ADMIN)
    made = house.ask("POST", RULES, ada["key"], 201, json={**LS, "conversation_ids": [one], "max_uses": 3})
    assert not house.waits(one)
    house.ask("DELETE", f"{RULES}/{made['id']}")

    first, used, last = audit(house, one)
    sentence = f"Rule {made['id']}. Approves `terminal`: `command` like `ls *`; in this conversation; at most 3 uses."
    assert (first["decision"], first["actor"]["name"], first["reason"]) == ("rule_made", "ada", sentence)
    assert used["actor"] == {"kind": "rule", "name": made["id"], "address": ""}
    assert (last["decision"], last["actor"]["name"], last["reason"]) == ("rule_revoked", "settings-1", sentence)
    assert audit(house, other) == []

    export = tmp_path / "audit.jsonl"
    headers = {"Authorization": f"Bearer {ADMIN}"}
    export.write_bytes(house.client.get(f"/api/v1/conversation/{one}/audit?format=jsonl", headers=headers).data)
    assert main(["verify", str(export)]) == 0
    export.write_bytes(export.read_bytes().replace(b"ls *", b"rm *", 1))
    assert main(["verify", str(export)]) == 1


def test_a_decision_with_always_is_in_the_audit_with_the_rule_that_it_makes(house):
    conversation = house.starts(ADMIN)
    house.decides(conversation, house.acts(conversation), always=True)
    decided, made = audit(house, conversation)
    assert (decided["decision"], made["decision"]) == ("approve", "rule_made")
    assert made["reason"].endswith("Approves `terminal`: `command` exactly `ls -la`; in this conversation.") or (
        "risk at most" in made["reason"]
    )


@pytest.mark.parametrize("where", [{}, {"folder": "/home/ada/shop"}])
def test_a_rule_that_names_no_conversation_is_in_the_audit_of_the_day_which_verifies(house, tmp_path, where):
    ada = house.key("ada", "approve")
    made = house.ask("POST", RULES, ada["key"], 201, json={**LS, **where})
    house.ask("DELETE", f"{RULES}/{made['id']}")

    found = house.ask("GET", "/api/v1/audit?sort_order=TIME")["items"]
    entries = [one for one in found if one.get("rule_id") == made["id"]]
    assert [(one["decision"], one["actor"]["name"]) for one in entries] == [
        ("rule_made", "ada"),
        ("rule_revoked", "settings-1"),
    ]
    assert {one["conversation_id"] for one in entries} == {None}
    assert "`command` like `ls *`" in entries[0]["reason"]
    assert entries[0]["reason"] == entries[1]["reason"]
    export, headers = tmp_path / "audit.jsonl", {"Authorization": f"Bearer {ADMIN}"}
    url = f"/api/v1/audit?chain={entries[0]['chain']}&format=jsonl"
    export.write_bytes(house.client.get(url, headers=headers).data)
    assert main(["verify", str(export)]) == 0


def test_a_repeated_request_makes_one_rule_and_one_entry_also_where_it_names_no_conversation(house):
    headers = {"Authorization": f"Bearer {ADMIN}", "Idempotency-Key": "once-and-only-once-for-this-wide-rule"}
    [made, again] = [house.client.post(RULES, json=LS, headers=headers).get_json() for _ in range(2)]
    found = house.ask("GET", "/api/v1/audit?decision=rule_made")["items"]
    assert made["id"] == again["id"]
    assert len([one for one in found if one.get("rule_id") == made["id"]]) == 1


def test_a_repeated_request_makes_one_rule_and_one_entry(house):
    conversation = house.starts(ADMIN)
    headers = {"Authorization": f"Bearer {ADMIN}", "Idempotency-Key": "once-and-only-once-for-this-rule"}
    body = {**LS, "conversation_ids": [conversation]}
    for _ in range(2):
        assert house.client.post(RULES, json=body, headers=headers).status_code == 201
    assert [one["decision"] for one in audit(house, conversation)] == ["rule_made"]


def test_a_rule_that_names_a_conversation_that_is_not_there_is_made(house):
    gone = house.starts(ADMIN)
    house.ask("DELETE", f"/api/conversations/{gone}")
    house.rules(conversation_ids=[gone])


def test_the_record_keeps_the_latest_rules_that_ended(house):
    redis = house.store.approvals.rules._redis
    for number in range(1000):
        redis.lpush("{rules}:ended", json.dumps({"number": number}))
    made = house.rules()
    house.ask("DELETE", f"{RULES}/{made['id']}")
    assert redis.llen("{rules}:ended") == 1000
    assert json.loads(redis.lindex("{rules}:ended", 0))["rule"]["id"] == made["id"]
