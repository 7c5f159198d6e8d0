"""The inbox and decisions of single actions over HTTP: filters, order, pages, count; bound to what was shown."""

import json
from uuid import uuid4

import pytest

from core.approvals import action_digest
from core.scopes import Origin
from tests.conftest import action, as_events, status

ALWAYS = {"kind": "AlwaysConfirm"}
URL = "/api/v1/pending-actions"


@pytest.fixture
def team():
    """A tag that the conversations of one test alone have."""
    return uuid4().hex


@pytest.fixture
def begin(store, team):
    """Begin a conversation of the team in which these actions wait; its id."""

    def do(*actions: dict, title: str | None = None, **tags: str) -> str:
        conversation = str(uuid4())
        store.conversations.create(conversation, confirmation_policy=ALWAYS, title=title, tags={"team": team, **tags})
        store.events.append(conversation, as_events(list(actions)))
        return conversation

    return do


@pytest.fixture
def inbox(client, team):
    """Ids of the actions of the team that pass other filters, over all pages."""

    def do(**query) -> list[str]:
        found, page_id = [], None
        while True:
            page = {} if page_id is None else {"page_id": page_id}
            response = client.get(URL, query_string={"tag": f"team={team}", **query, **page})
            assert response.status_code == 200, response.get_json()
            body = response.get_json()
            found += [one["action_id"] for one in body["items"]]
            page_id = body["next_page_id"]
            if page_id is None:
                return found

    return do


@pytest.fixture
def number(client, team):
    def do(**query) -> int:
        response = client.get(f"{URL}/count", query_string={"tag": f"team={team}", **query})
        assert response.status_code == 200, response.get_json()
        return response.get_json()

    return do


def test_an_item_has_the_members_of_the_design(client, begin, team):
    one = action("ls", summary="Lists", thought=[{"type": "text", "text": "Let me see."}], security_risk="LOW")
    conversation = begin(one, title="Files")

    [item] = client.get(URL, query_string={"conversation_id": conversation}).get_json()["items"]
    assert len(item.pop("digest")) == 64
    assert item.pop("since").endswith("Z")
    assert item == {
        "conversation_id": conversation,
        "conversation_title": "Files",
        "tags": {"team": team},
        "action_id": one["id"],
        "tool_name": "terminal",
        "summary": "Lists",
        "thought": "Let me see.",
        "security_risk": "LOW",
        "arguments": {"command": "ls"},
        "expires_at": None,
        "sandbox_id": None,
        "can": ["approve", "reject"],
        "decided_together": False,
        "complete": True,
        "risk": "LOW",
        "seen": {
            "risk": "LOW",
            "effects": [{"effect": "reads", "risk": "LOW", "words": "Reads", "because": "ls"}],
        },
        "like": {"command": {"command": "ls *"}},
        "folder": None,
        "repository": None,
        "asked_from": None,
    }


def test_an_item_says_what_a_rule_like_it_would_have_and_where_its_conversation_began(client, store, team):
    conversation = str(uuid4())
    began = Origin("", "github.com/ada/shop", "/home/ada/shop")
    store.conversations.create(conversation, confirmation_policy=ALWAYS, tags={"team": team}, origin=began)
    edit = {"command": "create", "path": "src/a.py", "file_text": "1", "kind": "FileEditorAction"}
    actions = [
        action("git status -s"),
        action("git push"),
        action("x", tool_name="file_editor", action=edit),
        action("ls", tool_name=None, action=["no", "object"]),
    ]
    store.events.append(conversation, as_events(actions))

    items = client.get(URL, query_string={"conversation_id": conversation}).get_json()["items"]
    assert [item["like"] for item in items] == [
        {"command": {"command": "git status *"}},
        None,
        {"path": {"path": "src/**"}, "file_text": {"any": True}, "command": {"equals": "create"}},
        None,
    ]
    assert {(item["folder"], item["repository"]) for item in items} == {("/home/ada/shop", "github.com/ada/shop")}


def test_what_the_server_sees_is_a_filter_of_the_list_and_of_the_count(begin, inbox, number):
    removes, pushes, lists = action("rm a", security_risk="LOW"), action("git push"), action("ls", security_risk="HIGH")
    begin(removes, pushes, lists)

    assert inbox(risk="HIGH") == [removes["id"], lists["id"]]
    assert inbox(risk="MEDIUM") == [pushes["id"]]
    assert inbox(effect="network") == [pushes["id"]]
    assert inbox(effect="reads", risk="LOW") == []
    assert (number(risk="HIGH"), number(effect="deletes"), number(risk="LOW")) == (2, 1, 0)


@pytest.mark.parametrize("query", [{"risk": "UNKNOWN"}, {"risk": "low"}, {"effect": "rests"}, {"effect": ""}])
def test_a_risk_or_an_effect_that_there_is_not_is_refused(client, query):
    response = client.get(URL, query_string=query)
    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"] == ["query", *query]


def test_items_come_oldest_first_or_newest_first(begin, inbox):
    ids = []
    for _ in range(4):
        ids.append(action())
        begin(ids[-1])
    ids = [one["id"] for one in ids]

    assert inbox() == inbox(sort_order="TIMESTAMP") == ids
    assert inbox(sort_order="TIMESTAMP_DESC") == ids[::-1]


@pytest.mark.parametrize("order", ["TIMESTAMP", "TIMESTAMP_DESC"])
@pytest.mark.parametrize("limit", [1, 2, 7])
def test_pages_hold_every_action_once(begin, inbox, order, limit):
    groups = [[action() for _ in range(size)] for size in (3, 1, 4)]
    for group in groups:
        begin(*group)
    found = inbox(sort_order=order, limit=limit)
    assert sorted(found) == sorted(one["id"] for group in groups for one in group)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_pages_of_one_conversation_hold_every_action_once(begin, inbox, limit):
    actions = [action() for _ in range(5)]
    conversation = begin(*actions)
    begin(action())
    expected = [one["id"] for one in actions]
    assert inbox(conversation_id=conversation, limit=limit) == expected
    assert inbox(conversation_id=conversation, limit=limit, sort_order="TIMESTAMP_DESC") == expected[::-1]
    assert inbox(conversation_id=conversation.replace("-", "")) == expected


def test_a_cursor_stays_good_when_its_action_is_decided(client, store, begin, inbox):
    actions = [action() for _ in range(3)]
    conversations = [begin(one) for one in actions]
    page_id, found = None, []
    while not found:  # other tests' actions fill pages of none that pass
        query = {"tag": f"team={store.conversations.get(conversations[0])['tags']['team']}", "limit": 1}
        page = client.get(URL, query_string=query | ({"page_id": page_id} if page_id else {})).get_json()
        found, page_id = page["items"], page["next_page_id"]

    store.approvals.confirmations.decide(conversations[1], accept=True, reason="")
    assert inbox(limit=1, page_id=page_id) == [actions[2]["id"]]


def test_tool_risk_and_conversation_filter_and_are_counted(begin, inbox, number):
    low, high = action(security_risk="LOW"), action(security_risk="HIGH", tool_name="browser")
    odd = action(security_risk="EXTREME")
    conversation = begin(low, high)
    begin(odd)

    for query, expected in (
        ({"tool_name": "browser"}, [high]),
        ({"tool_name": "brow"}, []),
        ({"security_risk": "LOW"}, [low]),
        ({"security_risk": "UNKNOWN"}, [odd]),
        ({"conversation_id": conversation}, [low, high]),
        ({"conversation_id": str(uuid4())}, []),
        ({"conversation_id": conversation, "security_risk": "HIGH", "tool_name": "browser"}, [high]),
    ):
        assert sorted(inbox(**query)) == sorted(one["id"] for one in expected), query
        assert number(**query) == len(expected), query


def test_times_filter_from_the_first_to_before_the_second(client, begin, inbox, number):
    ids = []
    for _ in range(4):
        ids.append(action())
        begin(ids[-1])
    ids = [one["id"] for one in ids]
    items = [item for one in ids for item in _items(client) if item["action_id"] == one]
    since, until = items[1]["since"], items[3]["since"]

    for order in ("TIMESTAMP", "TIMESTAMP_DESC"):
        found = inbox(since__gte=since, since__lt=until, sort_order=order, limit=1)
        assert found == (ids[1:3] if order == "TIMESTAMP" else ids[2:0:-1])
        assert inbox(since__gte=until, sort_order=order) == ids[3:]
        assert inbox(since__lt=since, sort_order=order) == ids[:1]
    assert number(since__gte=since, since__lt=until) == 2


def _items(client) -> list[dict]:
    found = client.get(URL, query_string={"sort_order": "TIMESTAMP_DESC"}).get_json()["items"]
    return found


def test_tags_filter_by_name_or_by_name_and_value(begin, inbox, client):
    one, other = action(), action()
    begin(one, stage="test")
    begin(other, stage="live=yes")
    assert inbox(tag="stage=test") == [one["id"]]
    assert inbox(tag="stage=live=yes") == [other["id"]]
    assert {one["id"], other["id"]} <= set(inbox(tag="stage"))
    assert inbox(tag="no such tag") == []


def test_text_is_found_whatever_its_case_in_everything_that_is_shown(begin, inbox, number):
    found = action(
        "cd gasse 7; ls straße",
        summary="Summed up",
        thought=[{"type": "text", "text": "I am THINKING."}],
    )
    begin(found, title="ümlaut")
    begin(action("pwd", tool_name="browser"))
    for text in ("STRASSE", "straße", "Gasse 7", "terminal", "summed", "thinking", "Ümlaut"):
        assert (inbox(text=text), number(text=text)) == ([found["id"]], 1), text


def test_text_that_stands_only_in_other_members_is_not_found(begin, inbox):
    begin(action(llm_response_id="a needle"))
    assert inbox(text="needle") == []


def test_what_was_decided_is_counted_no_longer(store, begin, number):
    conversation = begin(action(), action())
    assert number() == 2
    store.approvals.confirmations.decide(conversation, accept=True, reason="")
    assert number() == 0


def test_an_action_whose_id_is_no_uuid_has_a_cursor(begin, inbox):
    ids = ["a b/ü-1", "a b/ü-2", "a b/ü-3"]
    begin(*({**action(), "id": one} for one in ids))
    assert inbox(limit=1) == ids


def test_an_agent_that_says_what_it_understands_is_believed(client, store, team):
    conversation = str(uuid4())
    store.conversations.create(conversation, sandbox_id="box", app={})
    store.conversations.report(conversation, "box", told={"capabilities": ["edit", "decide_each"]})
    waiting = as_events([action(), status("waiting_for_confirmation")])
    store.events.append(conversation, waiting, sandbox_id="box")

    [item] = client.get(URL, query_string={"conversation_id": conversation}).get_json()["items"]
    assert (item["can"], item["decided_together"]) == (["approve", "reject", "edit"], False)
    assert item["sandbox_id"] == "box"


def test_a_query_that_is_wrong_is_refused_with_the_name_of_its_member(client):
    response = client.get(URL, query_string={"security_risk": "low"})

    assert response.status_code == 422
    [fault] = response.get_json()["detail"]
    assert fault["loc"] == ["query", "security_risk"]


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
def present_status(client, conversation):
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


def test_a_group_goes_on_when_its_last_action_is_decided(
    client, conversation, group, decide, pending, present_status, audit
):
    one, two, three = group

    assert decide((one, "approve")).json == {"success": True, "rules": []}
    assert pending() == [two["id"], three["id"]]
    assert decide((two, "reject", {"reason": "too bold"})).status_code == 200
    assert present_status() == "waiting_for_confirmation"
    assert rejections(client, conversation) == [(two["id"], "too bold")]

    assert decide((three, "approve")).status_code == 200

    assert (pending(), present_status()) == ([], "running")
    assert audit() == [("approve", [one["id"]]), ("reject", [two["id"]]), ("approve", [three["id"]])]


def test_a_group_that_is_rejected_one_by_one_ends_idle(client, conversation, group, decide, present_status):
    for event in group:
        decide((event, "reject", {"reason": "no"}))

    assert present_status() == "idle"
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
    client, conversation, group, decide, present_status, pending
):
    decide((group[0], "approve"))

    client.post(f"/api/conversations/{conversation}/events", json={"content": [{"type": "text", "text": "stop"}]})

    assert (pending(), present_status()) == ([], "idle")
    assert [action_id for action_id, _ in rejections(client, conversation)] == [event["id"] for event in group]
    assert client.get(f"/api/v1/conversation/{conversation}/pending-actions/decisions").json == []


def test_a_run_approves_what_waits_and_leaves_what_was_rejected(
    client, conversation, group, decide, present_status, audit
):
    decide((group[0], "reject", {"reason": "no"}))

    assert client.post(f"/api/conversations/{conversation}/run").status_code == 200

    assert present_status() == "running"
    assert [action_id for action_id, _ in rejections(client, conversation)] == [group[0]["id"]]
    assert audit()[-1] == ("approve", [event["id"] for event in group[1:]])


def test_a_decision_that_holds_always_decides_the_next_action_like_it(
    client, conversation, decide, present_status, pending, audit
):
    client.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": ALWAYS})
    [first] = propose(client, conversation, "make test")
    [made] = decide((first, "approve", {"always": True})).json["rules"]
    assert made["detail"] is None

    client.post(f"/api/v1/webhooks/events/{conversation}", json=[observation(first)])
    [second] = propose(client, conversation, "make test")

    assert (pending(), present_status()) == ([], "running")
    [ruled, entry] = client.get(f"/api/v1/conversation/{conversation}/audit").json["items"][1:]
    assert (ruled["decision"], made["rule_id"] in ruled["reason"]) == ("rule_made", True)
    assert entry["actor"]["kind"] == "rule"
    assert entry["actor"]["name"] == made["rule_id"]
    assert entry["action_ids"] == [second["id"]]
    client.delete(f"/api/v1/approval-rules/{made['rule_id']}")
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[observation(second)])
    assert [event["id"] for event in propose(client, conversation, "make test")] == pending()


WRONG = [
    ({"decision": "allow"}, "decision"),
    ({"decision": "approve", "digest": "short"}, "digest"),
    ({"decision": "approve", "arguments": {}}, "arguments"),
    ({"decision": "edit"}, "arguments"),
    ({"decision": "edit", "arguments": "text"}, "arguments"),
    ({"decision": "edit", "arguments": {}, "always": True}, "always"),
    ({"decision": "approve", "always": {"max_uses": 0}}, "always"),
    ({"decision": "approve", "approved_by": "me"}, "approved_by"),
]


def test_a_member_that_is_wrong_is_named_and_nothing_is_decided(client, conversation, group, pending):
    for decision, member in WRONG:
        given = {"decisions": [{"action_id": group[0]["id"], **decision}]}

        refused = client.post(f"/api/v1/conversation/{conversation}/pending-actions/decisions", json=given)

        assert refused.status_code == 422, decision
        assert member in json.dumps(refused.json["detail"][0]["loc"])
    assert len(pending()) == 3


def test_an_action_that_is_named_twice_is_refused(group, decide, pending):
    assert decide((group[0], "approve"), (group[0], "reject")).status_code == 422
    assert len(pending()) == 3
