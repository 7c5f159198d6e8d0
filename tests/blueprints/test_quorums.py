"""Actions that several people must approve. Source: docs/approvals.md, "Several people"."""

import json

import pytest

from admin import audit as verification
from store.approvals.quorums import Quorums
from tests.conftest import action
from tests.people import Team, by, proxied_app, through

ADA, BOB, EVE = (through(f"{name}@example.org") for name in ("ada", "bob", "eve"))


@pytest.fixture(scope="module")
def proxied(redis_url):
    return proxied_app(redis_url)


@pytest.fixture
def team(proxied):
    """Ada, Bob and Eve may approve everywhere, and ask."""
    found = Team(proxied)
    for name in ("ada", "bob", "eve"):
        found.grants("approve", person=f"{name}@example.org")
        found.grants("ask", person=f"{name}@example.org")
    yield found
    found.ends()


@pytest.fixture
def held(team, conversation):
    """A conversation that the admin's key has started, in which an action waits that two people must approve."""
    team.asks(quorum=2, arguments={"command": {"command": "rm *"}})
    team.starts(conversation)
    act = action(command="rm -r build")
    team.posts(conversation, act)
    return conversation, act["id"]


def test_an_action_is_approved_by_the_second_of_two_people_and_not_by_the_first(team, held):
    first = team.decides(*held, ADA)
    assert first.status_code == 200
    assert first.json["waiting"] == [{"action_id": held[1], "needed": 2, "approved_by": ["ada@example.org"]}]
    [item] = team.waiting(held[0], BOB)
    assert item["quorum"] == {"needed": 2, "approved_by": ["ada@example.org"], "own": False, "voted": False}
    assert "approve" in item["can"]

    second = team.decides(*held, BOB)
    assert (second.status_code, "waiting" in second.json) == (200, False)
    assert team.waiting(held[0]) == []
    assert team.decided(held[0]) == [("agree", "ada@example.org"), ("approve", "bob@example.org")]
    agreed, approved = team.audit(held[0])
    assert (agreed["needed"], agreed["agreed"], agreed["actor"]["kind"]) == (2, ["ada@example.org"], "person")
    assert approved["agreed"] == ["ada@example.org", "bob@example.org"]


@pytest.fixture
def followed(proxied):
    """Follow the inbox of a conversation as somebody; returns what reads its next events: name and data of each."""
    opened = []

    def follow(conversation, who):
        path = f"/api/v1/pending-actions/stream?conversation_id={conversation}"
        response = proxied.test_client().get(path, **who, buffered=False)
        opened.append(response)
        events = (one for piece in response.response for one in piece.decode().split("\n\n"))

        def until(name):
            for one in events:
                members = dict(line.split(": ", 1) for line in one.splitlines() if ": " in line)
                if members.get("event") == name:
                    return json.loads(members["data"])
            raise AssertionError(f"the stream ended before {name}")

        return until

    yield follow
    for one in opened:
        one.close()


def test_a_stream_and_the_list_show_each_person_the_same_rights(team, held, followed):
    ada, bob = followed(held[0], ADA), followed(held[0], BOB)
    for until, who in ((ada, ADA), (bob, BOB)):
        assert until("snapshot")["items"] == team.waiting(held[0], who)
        until("ready")

    team.decides(*held, ADA)
    assert ada("changed") == team.waiting(held[0], ADA)[0]
    seen_by_bob = bob("changed")
    assert seen_by_bob == team.waiting(held[0], BOB)[0]
    assert seen_by_bob["quorum"] == {"needed": 2, "approved_by": ["ada@example.org"], "own": False, "voted": False}

    team.decides(*held, BOB)
    assert bob("decided")["decision"] == "approve"


def test_a_stream_opens_what_several_people_must_approve_with_its_quorum(team, held, followed):
    until = followed(held[0], ADA)
    until("ready")
    other = action(command="rm -r dist")
    team.posts(held[0], other)
    opened = until("opened")
    assert (opened["action_id"], opened["quorum"]["needed"]) == (other["id"], 2)


def test_who_may_not_decide_is_offered_no_decision_by_the_stream(team, held, followed):
    team.grants("steer", person="mia@example.org")
    [item] = followed(held[0], through("mia@example.org"))("snapshot")["items"]
    assert item["can"] == []


def test_the_audit_of_several_people_verifies_as_every_other(team, held, tmp_path):
    team.decides(*held, ADA)
    team.decides(*held, BOB)
    exported = tmp_path / "audit.jsonl"
    exported.write_bytes(team.client.get(f"/api/v1/conversation/{held[0]}/audit?format=jsonl", **by()).data)
    assert verification.main(["verify", str(exported)]) == 0


def test_the_same_person_counts_once(team, held):
    team.decides(*held, ADA)
    again = team.decides(*held, ADA)
    assert (again.status_code, again.json["problems"][0]["problem"]) == (409, "voted")
    [item] = team.waiting(held[0], ADA)
    assert item["quorum"]["voted"]
    assert item["can"] == ["reject"]
    assert team.decided(held[0]) == [("agree", "ada@example.org")]


def test_two_names_that_differ_by_case_alone_count_once(team, held):
    team.grants("approve", person="ADA@example.org")
    team.decides(*held, ADA)
    assert team.decides(*held, through("ADA@example.org")).status_code == 409


def test_one_rejection_rejects(team, held):
    team.decides(*held, ADA)
    assert team.decides(*held, BOB, "reject", reason="Not now").status_code == 200
    assert team.waiting(held[0]) == []
    assert team.decided(held[0]) == [("agree", "ada@example.org"), ("reject", "bob@example.org")]


def keys(team, *names, **members):
    made = [{"name": name, "scopes": ["approve"], **members} for name in names]
    return [team.client.post("/api/v1/keys", json=one, **by()).json["key"] for one in made]


def test_two_keys_of_one_person_count_once_and_as_that_person(team, held):
    one, two = keys(team, "laptop", "phone", person="ada@example.org")
    assert team.decides(*held, by(one)).status_code == 200
    assert team.decides(*held, by(two)).status_code == 409
    assert team.decides(*held, ADA).status_code == 409
    assert team.decides(*held, BOB).status_code == 200
    assert team.decided(held[0]) == [("agree", "laptop"), ("approve", "bob@example.org")]


def test_a_key_that_belongs_to_nobody_counts_as_a_person_of_its_name(team, held):
    one, two, three = keys(team, "release", "release", "nightly")
    assert team.decides(*held, by(one)).status_code == 200
    assert team.decides(*held, by(two)).status_code == 409
    assert team.decides(*held, by(three)).status_code == 200
    assert team.waiting(held[0]) == []


def test_keys_that_a_person_makes_belong_to_that_person(team, held):
    team.grants("admin", person="eve@example.org")
    wanted = {"name": "somebody else", "scopes": ["approve"], "person": "bob@example.org"}
    made = team.client.post("/api/v1/keys", json=wanted, **EVE).json
    assert made["person"] == "eve@example.org"
    team.decides(*held, by(made["key"]))
    assert team.decides(*held, EVE).status_code == 409


def test_a_revoked_right_takes_its_approval_with_it(team, conversation):
    team.asks(quorum=2)
    mallory = team.grants("approve", person="mallory@example.org")
    team.starts(conversation)
    act = action(command="rm -r build")
    team.posts(conversation, act)
    team.decides(conversation, act["id"], through("mallory@example.org"))
    team.revokes(mallory)
    assert team.decides(conversation, act["id"], through("mallory@example.org")).status_code == 403
    assert team.decides(conversation, act["id"], ADA).json["waiting"][0]["approved_by"] == ["ada@example.org"]
    assert team.decides(conversation, act["id"], BOB).json.get("waiting") is None


def test_an_approval_that_takes_the_place_of_a_revoked_one_is_not_lost_to_one_at_the_same_moment(
    team, conversation, monkeypatch
):
    mallory = team.grants("approve", person="mallory@example.org")
    team.asks(quorum=3)
    team.starts(conversation)
    act = action("make")
    team.posts(conversation, act)
    for who in (through("mallory@example.org"), ADA):
        assert team.decides(conversation, act["id"], who).status_code == 200
    team.revokes(mallory)
    standing, others = Quorums._standing, [BOB]

    def standing_before_bob(*words):
        found = standing(*words)
        for who in [others.pop() for _ in others[:1]]:
            assert team.decides(conversation, act["id"], who).status_code == 200
        return found

    monkeypatch.setattr(Quorums, "_standing", standing_before_bob)
    team.decides(conversation, act["id"], EVE)

    assert team.decided(conversation)[-1] == ("approve", "eve@example.org")
    assert team.audit(conversation)[-1]["agreed"] == [f"{name}@example.org" for name in ("ada", "bob", "eve")]


def test_a_revoked_key_takes_its_approval_with_it(team, held):
    wanted = {"name": "leaver", "scopes": ["approve"]}
    made = team.client.post("/api/v1/keys", json=wanted, **by()).json
    team.decides(*held, by(made["key"]))
    team.client.delete(f"/api/v1/keys/{made['id']}", **by())
    assert team.decides(*held, ADA).json["waiting"][0]["approved_by"] == ["ada@example.org"]


def test_no_rule_approves_what_several_people_must(team, conversation):
    team.asks(quorum=2, arguments={"command": {"command": "rm *"}})
    team.rules(decision="approve", arguments={"command": {"any": True}})
    team.starts(conversation)
    held, free = action(command="ls; sudo rm -r build"), action(command="ls")
    team.posts(conversation, held, free)
    assert [one["action_id"] for one in team.waiting(conversation)] == [held["id"]]


def test_a_rule_that_rejects_wins_over_one_that_asks(team, conversation):
    team.asks(quorum=2)
    team.rules(decision="reject", arguments={"command": {"command": "rm *"}})
    team.starts(conversation)
    team.posts(conversation, action(command="rm -r build"))
    assert team.waiting(conversation) == []
    assert [one for one, _ in team.decided(conversation)] == ["reject"]


def test_a_rule_that_is_made_while_an_action_waits_holds_for_it(team, conversation):
    team.starts(conversation)
    act = action(command="rm -r build")
    team.posts(conversation, act)
    team.asks(quorum=2)
    assert team.decides(conversation, act["id"], ADA).json["waiting"]
    assert len(team.waiting(conversation)) == 1


def test_without_its_rule_one_person_approves(team, conversation):
    rule = team.asks(quorum=2)
    team.starts(conversation)
    act = action(command="rm -r build")
    team.posts(conversation, act)
    team.decides(conversation, act["id"], ADA)
    team.revokes(rule)
    assert team.decides(conversation, act["id"], ADA).json.get("waiting") is None
    assert team.waiting(conversation) == []


def test_no_edit_and_no_run_approves_what_several_people_must(team, held):
    edited = team.decides(*held, by(), "edit", arguments={"command": "ls"})
    assert edited.status_code == 409
    ran = team.client.post(f"/api/conversations/{held[0]}/run", **by())
    assert ran.status_code == 409
    assert "Several people" in ran.json["detail"]
    assert len(team.waiting(held[0])) == 1


def test_an_answer_to_all_that_waits_counts_once_for_each(team, held):
    free = action(command="ls")
    team.posts(held[0], free)
    path = f"/api/conversations/{held[0]}/events/respond_to_confirmation"
    assert team.client.post(path, json={"accept": True}, **ADA).json == {"success": True}
    assert [one["action_id"] for one in team.waiting(held[0])] == [held[1]]
    assert team.client.post(path, json={"accept": True}, **BOB).json == {"success": True}
    assert team.waiting(held[0]) == []


def test_nobody_approves_what_they_asked_for_where_the_rule_says_so(team, conversation):
    team.asks(not_by_asker=True)
    team.grants("steer", person="ada@example.org")
    team.starts(conversation)
    sent = team.client.post(f"/api/conversations/{conversation}/events", json=said("Clean up"), **ADA)
    assert sent.status_code == 200, sent.json
    act = action(command="rm -r build")
    team.posts(conversation, act)
    own = team.decides(conversation, act["id"], ADA)
    assert (own.status_code, own.json["problems"][0]["problem"]) == (409, "own")
    [item] = team.waiting(conversation, ADA)
    assert item["can"] == ["reject"]
    assert item["quorum"]["own"]
    assert team.decides(conversation, act["id"], BOB).status_code == 200
    assert team.waiting(conversation) == []


def said(text):
    return {"role": "user", "content": [{"type": "text", "text": text}], "run": True}


def test_nobody_approves_in_a_conversation_of_theirs_where_the_rule_says_so(team, conversation):
    team.asks(not_by_owner=True)
    team.starts(conversation, ADA)
    act = action(command="rm -r build")
    team.posts(conversation, act)
    assert team.decides(conversation, act["id"], ADA).json["problems"][0]["problem"] == "own"
    assert team.decides(conversation, act["id"], BOB).status_code == 200


def test_the_owner_has_asked_where_nobody_has_sent_a_message(team, conversation):
    team.asks(not_by_asker=True)
    team.starts(conversation, ADA)
    act = action(command="rm -r build")
    team.posts(conversation, act)
    assert team.decides(conversation, act["id"], ADA).json["problems"][0]["problem"] == "own"


def test_a_conversation_is_given_by_its_owner_or_an_admin_alone_and_the_audit_says_so(team, conversation):
    team.starts(conversation, ADA)
    path = f"/api/v1/conversation/{conversation}/owner"
    assert team.client.get(path, **BOB).json == {"owner": "ada@example.org"}
    team.grants("steer", person="bob@example.org")
    refused = team.client.put(path, json={"owner": "bob@example.org"}, **BOB)
    assert refused.status_code == 403
    assert "ada@example.org owns the conversation" in refused.json["detail"]
    assert team.client.put(path, json={"owner": "bob@example.org"}, **ADA).json == {"owner": "bob@example.org"}
    assert team.client.put(path, json={"owner": "ada@example.org"}, **by()).status_code == 200
    assert team.decided(conversation) == [("owner_changed", "ada@example.org"), ("owner_changed", "settings-1")]


def test_a_rule_that_asks_is_made_and_revoked_by_admins_alone(team):
    rule = team.asks(quorum=2)
    wanted = {"decision": "ask", "tool_name": "terminal", "quorum": 2}
    assert team.client.post("/api/v1/approval-rules", json=wanted, **ADA).status_code == 403
    assert team.client.delete(f"/api/v1/approval-rules/{rule}", **ADA).status_code == 403


@pytest.mark.parametrize(
    ("wrong", "member"),
    [
        ({"decision": "approve", "quorum": 2}, "quorum"),
        ({"decision": "reject", "not_by_owner": True}, "not_by_owner"),
        ({"decision": "approve", "not_by_asker": True}, "not_by_asker"),
        ({"decision": "ask", "quorum": 0}, "quorum"),
        ({"decision": "ask", "quorum": 11}, "quorum"),
        ({"decision": "ask", "quorum": "2"}, "quorum"),
        ({"decision": "ask", "max_uses": 3}, "max_uses"),
    ],
)
def test_a_member_of_a_rule_that_cannot_be_is_refused_by_name(team, wrong, member):
    refused = team.client.post("/api/v1/approval-rules", json={"tool_name": "terminal", **wrong}, **by())
    assert refused.status_code == 422
    assert member in refused.json["detail"][0]["loc"]


def test_a_person_acts_where_their_grants_hold_and_a_refusal_says_who_may(team, conversation):
    team.grants("approve", person="pam@example.org", tags={"team": "payments"})
    team.grants("steer", group="payments", tags={"team": "payments"})
    pam = through("pam@example.org", "payments")
    team.starts(conversation, tags={"team": "search"})
    act = action(command="ls")
    team.posts(conversation, act)
    refused = team.decides(conversation, act["id"], pam)
    assert refused.status_code == 403
    assert "ada@example.org, bob@example.org, eve@example.org" in refused.json["detail"]
    assert team.waiting(conversation, pam)[0]["can"] == []
    assert team.client.post(f"/api/conversations/{conversation}/pause", **pam).status_code == 403

    team.client.patch(f"/api/conversations/{conversation}", json={"tags": {"team": "payments"}}, **by())
    assert team.waiting(conversation, pam)[0]["can"] == ["approve", "reject", "edit"][:2]
    assert team.decides(conversation, act["id"], pam).status_code == 200


def test_a_person_who_steers_changes_no_tags_as_they_say_who_may_what(team, conversation):
    team.grants("steer", person="sam@example.org")
    team.starts(conversation, tags={"team": "search"})
    sam = through("sam@example.org")
    refused = team.client.patch(f"/api/conversations/{conversation}", json={"tags": {"team": "payments"}}, **sam)
    assert refused.status_code == 403
    assert team.client.patch(f"/api/conversations/{conversation}", json={"title": "Mine"}, **sam).status_code == 200


def test_who_may_ask_steers_their_own_conversations_alone(team, conversation):
    team.starts(conversation, ADA)
    assert team.client.post(f"/api/conversations/{conversation}/pause", **ADA).status_code == 200
    assert team.client.post(f"/api/conversations/{conversation}/pause", **BOB).status_code == 403


def test_a_rule_of_a_person_reaches_no_further_than_their_right(team, conversation):
    team.grants("approve", person="pam@example.org", tags={"team": "payments"})
    pam = through("pam@example.org")
    team.starts(conversation, tags={"team": "payments"})
    act = action(command="ls")
    team.posts(conversation, act)
    refused = team.decides(conversation, act["id"], pam, always={"conversation_ids": None})
    assert refused.status_code == 403
    assert team.decides(conversation, act["id"], pam, always=True).status_code == 200
