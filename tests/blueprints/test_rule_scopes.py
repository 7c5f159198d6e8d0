"""Scopes of approval rules over HTTP: a conversation, a folder, a repository, a key, all; and the numbers of each."""

import functools
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import create_app
from core.scopes import Origin
from core.wire import ConversationId
from settings.config import Config
from tests.blueprints.test_approval_rules import ADMIN
from tests.conftest import action

RULES = "/api/v1/approval-rules"
ALWAYS = {"kind": "AlwaysConfirm"}
LS = {"decision": "approve", "tool_name": "terminal", "arguments": {"command": {"command": "ls *"}}}


@functools.cache
def app_with_an_admin(redis_url):
    """The app that the tests of a process share: to make one takes longer than most of them."""
    return create_app(Config.of(redis_url=redis_url, secret_key="a key for tests only", api_keys=(ADMIN,)))


class ScopesHouse:
    """A server that needs keys: an admin, and keys that may write."""

    def __init__(self, app):
        self.app = app
        self.client, self.store = self.app.test_client(), self.app.extensions["server"].store
        self.made: dict[str, str] = {}  #: names of keys, by the keys

    def ask(self, method, path, key=ADMIN, status=200, **members):
        response = self.client.open(path, method=method, headers={"Authorization": f"Bearer {key}"}, **members)
        assert response.status_code == status, response.text
        return response.get_json()

    def key(self, name, *scopes) -> dict:
        """A key: its secret as `key`, and its `id`."""
        return self.ask("POST", "/api/v1/keys", status=201, json={"name": name, "scopes": list(scopes or ("write",))})

    def starts(self, key, folder=None, **members) -> str:
        workspace = {"workspace": {"working_dir": folder}} if folder else {}
        body = {"conversation_id": str(uuid4()), "confirmation_policy": ALWAYS, **workspace, **members}
        return self.ask("POST", "/api/conversations", key, 201, json=body)["id"]

    def acts(self, conversation, command="ls -la") -> str:
        one = action(command)
        self.ask("POST", f"/api/v1/webhooks/events/{conversation}", json=[one])
        return one["id"]

    def waits(self, conversation, command="ls -la") -> bool:
        """Whether a new action waits for a person; then it is rejected."""
        action_id = self.acts(conversation, command)
        found = self.ask("GET", f"/api/v1/pending-actions?conversation_id={conversation}")["items"]
        is_waiting = action_id in [one["action_id"] for one in found]
        if is_waiting:
            self.decides(conversation, action_id, "reject")
        return is_waiting

    def decides(self, conversation, action_id, verb="approve", **members):
        decision = {"decisions": [{"action_id": action_id, "decision": verb, **members}]}
        return self.ask("POST", f"/api/v1/conversation/{conversation}/pending-actions/decisions", json=decision)

    def rules(self, **members) -> dict:
        return self.ask("POST", RULES, status=201, json={**LS, **members})

    def answers(self, conversation, action_id) -> dict:
        return self.ask("GET", f"/api/v1/conversation/{conversation}/pending-actions/{action_id}/answers")


@pytest.fixture
def house(redis_url):
    house = ScopesHouse(app_with_an_admin(redis_url))
    redis = house.store.approvals.rules._redis
    for pattern in ("{rules}*", "{approvals}*"):
        for key in redis.scan_iter(pattern):
            redis.delete(key)
    return house


@pytest.mark.parametrize(
    ("folder", "is_asked"),
    [
        ("/home/ada/shop", False),
        ("/home/ada/shop/api", False),
        ("/home/ada/shop/./api//", False),
        ("/home/ada/shopping", True),
        ("/home/ada", True),
        ("/home/ada/Shop", True),
        ("/home/ada/shop/../other", True),
        ("home/ada/shop", True),
        (None, True),
    ],
)
def test_a_rule_for_a_folder_answers_in_it_and_below_it_and_in_no_other(house, folder, is_asked):
    house.rules(folder="/home/ada/shop")
    assert house.waits(house.starts(ADMIN, folder)) is is_asked


def test_a_rule_that_rejects_in_a_folder_holds_whatever_the_case_of_its_path(house):
    house.rules(decision="reject", folder="/home/ada/shop")
    assert not house.waits(house.starts(ADMIN, "/Home/ada/SHOP/api"))
    assert house.waits(house.starts(ADMIN, "/home/ada/shopping"))


def test_a_rule_for_a_key_answers_in_the_conversations_that_this_key_starts_and_in_no_other(house):
    ada, bob = house.key("ada"), house.key("bob")
    house.rules(key_id=ada["id"])
    assert not house.waits(house.starts(ada["key"]))
    assert house.waits(house.starts(bob["key"]))
    assert house.waits(house.starts(ADMIN))


def test_no_request_of_a_key_that_writes_makes_a_conversation_that_of_another_key(house):
    ada, bob = house.key("ada"), house.key("bob")
    house.rules(key_id=ada["id"])
    named = {
        **{"origin": {"key_id": ada["id"]}, "key_id": ada["id"], "user_id": ada["id"], "started_by": ada["id"]},
        **{"app": {"started_by": ada["id"]}, "tags": {"key": "ada"}, "created_by_user_id": ada["id"]},
    }
    mine = house.starts(bob["key"], **named)
    house.ask("PATCH", f"/api/conversations/{mine}", bob["key"], json={"tags": {"keyid": ada["id"]}})
    update = {"id": str(uuid4()), "kind": "ConversationStateUpdateEvent", "source": "environment", "key": "origin"}
    update |= {"timestamp": "2026-11-28T00:00:00", "value": {"key_id": ada["id"]}}
    house.ask("POST", f"/api/v1/webhooks/events/{mine}", bob["key"], json=[update])
    assert house.waits(mine)

    theirs = house.starts(ada["key"])
    copy = house.ask("POST", f"/api/conversations/{theirs}/fork", bob["key"], 201, json={})["id"]
    assert not house.waits(theirs)
    assert house.waits(copy)
    assert not house.waits(house.ask("POST", f"/api/conversations/{mine}/fork", ada["key"], 201, json={})["id"])


def test_a_copy_is_in_the_folder_of_its_source_and_an_import_in_none(house):
    house.rules(folder="/home/ada/shop")
    source = house.starts(ADMIN, "/home/ada/shop")
    copy = house.ask("POST", f"/api/conversations/{source}/fork", status=201, json={})["id"]
    assert not house.waits(copy)
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/x-ndjson"}
    exported = house.client.get(f"/api/conversations/{source}/export", headers=headers).data
    house.ask("DELETE", f"/api/conversations/{source}")
    made = house.client.post("/api/conversations/import", data=exported, headers=headers)
    assert made.status_code == 201, made.text
    assert house.waits(source)


def in_repository(house, repository) -> str:
    identity = ConversationId(str(uuid4()))
    house.store.conversations.create(
        identity, confirmation_policy=ALWAYS, origin=Origin("settings-1", repository=repository)
    )
    return identity


def test_a_rule_for_a_repository_answers_in_conversations_about_it_alone(house):
    house.rules(repository="github.com/ada/shop")
    assert not house.waits(in_repository(house, "github.com/ada/shop"))
    for other in ("github.com/ada/shop2", "gitlab.com/ada/shop", "github.com/Ada/shop", ""):
        assert house.waits(in_repository(house, other)), other


LAPTOP = Origin("key-1", "", "/home/ada/shop", "laptop", "ada", "claude-code")


def at_a_terminal(house, **members) -> str:
    identity = ConversationId(str(uuid4()))
    house.store.conversations.create(identity, confirmation_policy=ALWAYS, origin=LAPTOP._replace(**members))
    return identity


@pytest.mark.parametrize("member", ["machine", "person", "agent"])
def test_a_rule_for_a_machine_a_person_or_an_agent_answers_what_says_so_and_nothing_else(house, member):
    house.rules(**{member: getattr(LAPTOP, member)})
    assert not house.waits(at_a_terminal(house))
    assert house.waits(at_a_terminal(house, **{member: "other"}))
    assert house.waits(house.starts(ADMIN, "/home/ada/shop"))


def test_a_rule_for_a_machine_and_its_key_answers_no_other_key_that_claims_the_machine(house):
    house.rules(machine="laptop", key_id="key-1")
    assert not house.waits(at_a_terminal(house))
    assert house.waits(at_a_terminal(house, key_id="key-2"))


def test_a_scope_and_a_conversation_narrow_a_rule_together(house):
    one = house.starts(ADMIN, "/home/ada/shop")
    house.rules(folder="/home/ada/shop", conversation_ids=[one])
    assert not house.waits(one)
    assert house.waits(house.starts(ADMIN, "/home/ada/shop"))


def test_answers_offer_each_scope_of_the_conversation_and_propose_the_narrowest_useful_one(house):
    ada = house.key("ada")
    conversation = house.starts(ada["key"], "/home/ada/shop")
    found = house.answers(conversation, house.acts(conversation))

    by_kind = {one["kind"]: one for one in found["items"]}
    scopes = ["conversation", "folder", "key", "everywhere"]
    assert [one["scope"] for one in by_kind["like"]["scopes"]] == [one["scope"] for one in found["scopes"]] == scopes
    assert [one["scope"] for one in by_kind["tool"]["scopes"]] == ["conversation"]
    assert (by_kind["like"]["scope"], by_kind["like"]["proposed"]) == ("conversation", "folder")
    assert by_kind["like"]["scopes"][1]["rule"] == {**LS, "folder": "/home/ada/shop"}
    assert [one["sentence"] for one in by_kind["like"]["scopes"]] == [
        "Allows `ls` with any words after it, in this conversation.",
        "Allows `ls` with any words after it, in every conversation in the folder `/home/ada/shop`.",
        "Allows `ls` with any words after it, in every conversation that the key `ada` starts.",
        "Allows `ls` with any words after it, in every conversation.",
    ]
    assert found["scopes"][2]["members"] == {"key_id": ada["id"]}
    assert [one["seconds"] for one in found["lasts"]] == [None, 86400, 3600]


def test_no_rule_is_proposed_for_a_key_where_none_is_needed(client, conversation):
    start = {"conversation_id": conversation, "confirmation_policy": ALWAYS}
    assert client.post("/api/conversations", json=start).status_code == 201
    one = action("ls")
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[one])
    found = client.get(f"/api/v1/conversation/{conversation}/pending-actions/{one['id']}/answers").get_json()
    assert [one["scope"] for one in found["scopes"]] == ["conversation", "everywhere"]


def test_a_decision_with_always_makes_a_rule_in_a_scope(house):
    ada = house.key("ada")
    conversation = house.starts(ada["key"], "/home/ada/shop")
    waiting = house.acts(conversation)
    answers = {one["kind"]: one for one in house.answers(conversation, waiting)["items"]}
    [answer] = [one for one in answers["like"]["scopes"] if one["scope"] == answers["like"]["proposed"]]
    names = ("arguments", "max_risk", "conversation_ids", "key_id", "repository", "folder")
    house.decides(conversation, waiting, always={name: answer["rule"].get(name) for name in names})

    assert not house.waits(house.starts(ada["key"], "/home/ada/shop"))
    assert house.waits(house.starts(ada["key"], "/home/ada/other"))


COMMANDS = st.sampled_from(["ls", "ls -la", "ls /tmp", "git status", "git push", "ls && git status", "rm x"])


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    decided=st.lists(st.tuples(st.integers(0, 3), COMMANDS, st.booleans()), max_size=8),
    asked=st.tuples(st.integers(0, 3), COMMANDS),
)
def test_the_number_that_an_answer_promises_is_what_its_rule_then_does_in_that_scope(house, decided, asked):
    ada, bob = house.key("ada"), house.key("bob")
    folders = ("/w/shop", "/w/shop/api", "/w/other", None)
    held = [house.starts(key["key"], folder) for key, folder in zip((ada, bob, ada, bob), folders, strict=True)]
    for key in house.store.approvals.rules._redis.scan_iter("{approvals}*"):
        house.store.approvals.rules._redis.delete(key)
    for place, command, is_approved in decided:
        house.decides(held[place], house.acts(held[place], command), "approve" if is_approved else "reject")
    place, command = asked
    waiting = house.acts(held[place], command)
    found = house.answers(held[place], waiting)
    house.decides(held[place], waiting, "reject")

    for answer in found["items"]:
        assert answer["of"] == len(decided)
        for scoped in answer["scopes"]:
            rule = house.ask("POST", RULES, status=201, json=scoped["rule"])
            answered = sum(not house.waits(held[place], command) for place, command, _ in decided)
            house.ask("DELETE", f"{RULES}/{rule['id']}")
            assert answered == scoped["answered"], (answer["kind"], scoped["scope"])
