"""`/api/v1/approval-rules`: made, listed, revoked, and every bad member refused by name."""

import pytest
from marshmallow import ValidationError

from app import create_app
from core.approvals import MOST_MATCHED, MOST_STARS
from core.scopes import Origin
from core.shell.rules import MOST_PATTERN, MOST_WORDS
from core.wire import MOST_CALL_BYTES, MOST_NAME
from schemas.approvals import MOST_CONVERSATIONS, MOST_REASON, MOST_TAGS, Always
from settings.config import Config
from store.approvals import rules as rules_module
from tests.conftest import action
from tests.refusals import taken

URL = "/api/v1/approval-rules"
ADMIN = "an-admin-key-of-the-settings"
RULE = {"decision": "approve", "tool_name": "terminal", "arguments": {"command": {"pattern": "git status*"}}}


@pytest.fixture
def rules(client, store):
    """A client of a server that has no rules."""
    for key in store.approvals.rules._redis.scan_iter("{rules}*"):
        store.approvals.rules._redis.delete(key)
    return client


def test_a_rule_is_made_listed_and_revoked(rules, conversation):
    wanted = {
        **RULE,
        "max_risk": "LOW",
        "conversation_ids": [conversation],
        "key_id": "settings-1",
        "repository": "github.com/ada/shop",
        "folder": "/home/ada/shop",
        "machine": "laptop",
        "person": "ada",
        "agent": "claude-code",
        "tags": {"team": "web", "owner": None},
        "expires_at": "2999-01-01T00:00:00Z",
        "max_uses": 3,
        "reason": "Reads alone",
        "effects": ["writes_inside", "reads"],
    }
    response = rules.post(URL, json=wanted)
    made = response.get_json()

    assert response.status_code == 201
    assert made == {
        **wanted,
        "expires_at": "2999-01-01T00:00:00.000000Z",
        "id": made["id"],
        "created_at": made["created_at"],
        "created_by": "anyone",
        "quorum": 1,
        "not_by_owner": False,
        "not_by_asker": False,
        "uses": 0,
        "last_used_at": None,
        "ended_at": None,
        "ended_by": "",
    }
    assert response.headers["Location"].endswith(f"{URL}/{made['id']}")
    assert rules.get(response.headers["Location"]).get_json() == made
    assert rules.get(URL).get_json() == [made]
    assert rules.delete(f"{URL}/{made['id']}").get_json() == {"success": True}
    assert rules.get(URL).get_json() == []
    assert rules.get(f"{URL}/{made['id']}").status_code == 404
    assert rules.delete(f"{URL}/{made['id']}").status_code == 404


def test_a_rule_may_name_a_tool_alone(rules):
    made = rules.post(URL, json={"decision": "reject", "tool_name": "browser"}).get_json()
    names = ("arguments", "max_risk", "conversation_ids", "tags", "expires_at", "max_uses")
    names = (*names, *Origin._fields, "effects")
    assert [made[name] for name in names] == [None] * len(names)


def test_a_value_that_an_argument_must_equal_is_kept_as_it_came(rules):
    for value in (None, 1, 1.5, True, "git*", [], [{}], {"a": None}):
        wanted = {**RULE, "arguments": {"x": {"equals": value}, "y": {"any": True}}}
        assert rules.post(URL, json=wanted).get_json()["arguments"] == wanted["arguments"]


NO_RULES = [
    ({"decision": None}, "decision"),
    ({"decision": "edit"}, "decision"),
    ({"tool_name": None}, "tool_name"),
    ({"tool_name": ""}, "tool_name"),
    ({"tool_name": 1}, "tool_name"),
    ({"tool_name": "x" * (MOST_CALL_BYTES + 1)}, "tool_name"),
    ({"key_id": ""}, "key_id"),
    ({"repository": "ada/shop"}, "repository"),
    ({"repository": "https://github.com/ada/shop"}, "repository"),
    ({"repository": "github.com/ada/.."}, "repository"),
    ({"folder": "home/ada"}, "folder"),
    ({"folder": "/"}, "folder"),
    ({"folder": "/home/ada/"}, "folder"),
    ({"folder": "/home/../etc"}, "folder"),
    ({"arguments": []}, "arguments"),
    ({"arguments": {"x": "git*"}}, "arguments"),
    ({"arguments": {"x": {}}}, "arguments"),
    ({"arguments": {"x": None}}, "arguments"),
    ({"arguments": {"x": {"regex": ".*"}}}, "arguments"),
    ({"arguments": {"x": {"any": False}}}, "arguments"),
    ({"arguments": {"x": {"any": 1}}}, "arguments"),
    ({"arguments": {"x": {"equals": 1, "any": True}}}, "arguments"),
    ({"arguments": {"x": {"pattern": 1}}}, "arguments"),
    ({"arguments": {"x": {"pattern": ""}}}, "arguments"),
    ({"arguments": {"x": {"pattern": "\ud800"}}}, "arguments"),
    ({"arguments": {"x": {"equals": "\ud800"}}}, "arguments"),
    ({"arguments": {"x": {"pattern": "x" * (MOST_MATCHED + 1)}}}, "arguments"),
    ({"arguments": {"x": {"pattern": "*" * (MOST_STARS + 1)}}}, "arguments"),
    ({"arguments": {"x": {"pattern": "echo $*"}}}, "arguments"),
    ({"arguments": {"x": {"command": 1}}}, "arguments"),
    ({"arguments": {"x": {"command": ""}}}, "arguments"),
    ({"arguments": {"x": {"command": " "}}}, "arguments"),
    ({"arguments": {"x": {"command": "git status; ls"}}}, "arguments"),
    ({"arguments": {"x": {"command": "git 'status'"}}}, "arguments"),
    ({"arguments": {"x": {"command": "A=1"}}}, "arguments"),
    ({"arguments": {"x": {"command": "git >"}}}, "arguments"),
    ({"arguments": {"x": {"command": "git\nls"}}}, "arguments"),
    ({"arguments": {"x": {"command": "*"}}}, "arguments"),
    ({"arguments": {"x": {"command": "sudo *"}}}, "arguments"),
    ({"arguments": {"x": {"command": "git " + "* " * (MOST_STARS + 1)}}}, "arguments"),
    ({"arguments": {"x": {"command": "x" * (MOST_PATTERN + 1)}}}, "arguments"),
    ({"arguments": {"x": {"command": "x " * (MOST_WORDS + 1)}}}, "arguments"),
    ({"arguments": {"x": {"path": ""}}}, "arguments"),
    ({"arguments": {"x": {"path": "src/../x"}}}, "arguments"),
    ({"arguments": {"x": {"path": "src//x"}}}, "arguments"),
    ({"arguments": {"x": {"path": "src\\x"}}}, "arguments"),
    ({"arguments": {"x": {"path": "src/", "any": True}}}, "arguments"),
    ({"arguments": {"x" * (MOST_NAME + 1): {"any": True}}}, "arguments"),
    ({"max_risk": "UNKNOWN"}, "max_risk"),
    ({"max_risk": "low"}, "max_risk"),
    ({"conversation_ids": []}, "conversation_ids"),
    ({"conversation_ids": ["x"]}, "conversation_ids"),
    ({"conversation_ids": ["5f1c0000-0000-4000-8000-000000000000"] * (MOST_CONVERSATIONS + 1)}, "conversation_ids"),
    ({"tags": {}}, "tags"),
    ({"tags": {"Team": "web"}}, "tags"),
    ({"tags": {"team\n": "web"}}, "tags"),
    ({"tags": {"team": 1}}, "tags"),
    ({"tags": {f"t{number}": None for number in range(MOST_TAGS + 1)}}, "tags"),
    ({"expires_at": "soon"}, "expires_at"),
    ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
    ({"effects": []}, "effects"),
    ({"effects": "reads"}, "effects"),
    ({"effects": ["reads", "rests"]}, "effects"),
    ({"effects": [None]}, "effects"),
    ({"max_uses": 0}, "max_uses"),
    ({"max_uses": 1.5}, "max_uses"),
    ({"max_uses": True}, "max_uses"),
    ({"max_uses": 10**10}, "max_uses"),
    ({"reason": "x" * (MOST_REASON + 1)}, "reason"),
    ({"reason": None}, "reason"),
    ({"id": "mine"}, "id"),
    ({"uses": 0}, "uses"),
]


def test_a_rule_that_cannot_be_made_is_422_and_names_the_member(rules):
    for members, place in NO_RULES:
        response = rules.post(URL, json={**RULE, **members})
        assert response.status_code == 422, members
        assert response.get_json()["detail"][0]["loc"][:2] == ["body", place], members
    assert rules.get(URL).get_json() == []


def test_a_command_and_a_path_are_kept_as_they_came(rules):
    for test in ({"command": "CI=1 git status * > build.log"}, {"path": "/work/**/*.py"}):
        wanted = {**RULE, "arguments": {"x": test}}
        assert rules.post(URL, json=wanted).get_json()["arguments"] == wanted["arguments"]


def test_a_rule_that_rejects_may_name_a_wrapper_alone(rules):
    wanted = {**RULE, "decision": "reject", "arguments": {"command": {"command": "sudo *"}}}
    assert rules.post(URL, json=wanted).status_code == 201


def test_a_rule_that_is_too_long_is_422_and_says_how_long_it_may_be(rules):
    body = {**RULE, "arguments": {"x": {"equals": "a" * rules_module.MOST_RULE_BYTES}}}
    response = rules.post(URL, json=body)
    assert response.status_code == 422
    assert "MOST_RULE_BYTES" in response.get_json()["detail"][0]["msg"]


def test_a_rule_beyond_the_bound_is_409_and_names_the_bound(rules, monkeypatch):
    monkeypatch.setattr(rules_module, "MOST_RULES", 0)
    response = rules.post(URL, json=RULE)
    assert response.status_code == 409
    assert "MOST_RULES" in response.get_json()["detail"]


def test_a_repeat_of_a_request_gets_the_rule_that_it_made(rules):
    headers = {"Idempotency-Key": "once"}
    made = rules.post(URL, json=RULE, headers=headers).get_json()
    assert rules.post(URL, json=RULE, headers=headers).get_json() == made
    assert rules.get(URL).get_json() == [made]


def test_a_rule_names_the_key_that_made_it_and_a_write_key_makes_none(redis_url):
    client = create_app(
        Config.of(redis_url=redis_url, secret_key="a key for tests only", api_keys=(ADMIN,))
    ).test_client()
    admin = {"Authorization": f"Bearer {ADMIN}"}

    def headers(scope: str) -> dict[str, str]:
        made = client.post("/api/v1/keys", json={"name": f"The {scope} key", "scopes": [scope]}, headers=admin)
        return {"Authorization": f"Bearer {made.get_json()['key']}"}

    read, write, approve = headers("read"), headers("write"), headers("approve")
    made = client.post(URL, json=RULE, headers=approve).get_json()
    path = f"{URL}/{made['id']}"
    assert made["created_by"] == "The approve key"
    assert client.post(URL, json=RULE, headers=write).status_code == 403
    assert client.delete(path, headers=write).status_code == client.delete(path, headers=read).status_code == 403
    assert client.get(path, headers=read).get_json() == made
    assert client.delete(path, headers=approve).status_code == 200


def test_an_action_that_is_posted_after_its_rule_was_made_does_not_wait_and_after_the_revocation_does(
    rules, conversation
):
    start = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    assert rules.post("/api/conversations", json=start).status_code == 201
    path = f"{URL}/{rules.post(URL, json=RULE).get_json()['id']}"

    def inbox_after(command: str) -> list[str]:
        posted = rules.post(f"/api/v1/webhooks/events/{conversation}", json=[action(command)])
        assert posted.status_code == 200
        query = {"conversation_id": conversation}
        items = rules.get("/api/v1/pending-actions", query_string=query).get_json()["items"]
        return [one["arguments"]["command"] for one in items]

    assert inbox_after("git status -s") == []
    assert rules.get(path).get_json()["uses"] == 1
    assert rules.delete(path).status_code == 200
    assert inbox_after("git status -b") == ["git status -b"]


# `always` of a decision


def test_always_is_loaded_as_true_or_as_members_of_a_rule(conversation):
    always = Always()
    assert always.deserialize(True) is True
    assert always.deserialize(False) is None
    assert always.deserialize(None) is None
    assert always.deserialize({}) == {}
    wanted = {"arguments": {"x": {"any": True}}, "conversation_ids": None, "max_uses": 1}
    assert always.deserialize(wanted) == wanted
    assert always.deserialize({"conversation_ids": [conversation] * 2}) == {"conversation_ids": (conversation,)}


def test_always_refuses_what_is_no_member_of_a_rule():
    values = ["true", 1, [], {"decision": "approve"}, {"tool_name": "x"}, {"max_uses": 0}]
    assert taken(values, Always().deserialize, ValidationError) == []
