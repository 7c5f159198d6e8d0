"""The inbox over HTTP: filters, order, pages, count."""

from uuid import uuid4

import pytest

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


def test_an_item_has_the_members_of_the_design(client, begin):
    one = action("ls", summary="Lists", thought=[{"type": "text", "text": "Let me see."}], security_risk="LOW")
    conversation = begin(one, title="Files")

    [item] = client.get(URL, query_string={"conversation_id": conversation}).get_json()["items"]
    assert len(item.pop("digest")) == 64
    assert item.pop("since").endswith("Z")
    assert item == {
        "conversation_id": conversation,
        "conversation_title": "Files",
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
    }


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

    store.confirmations.decide(conversations[1], accept=True, reason="")
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


@pytest.mark.parametrize("text", ["STRASSE", "straße", "Gasse 7", "terminal", "summed", "thinking", "Ümlaut"])
def test_text_is_found_whatever_its_case_in_everything_that_is_shown(begin, inbox, number, text):
    found = action(
        "cd gasse 7; ls straße",
        summary="Summed up",
        thought=[{"type": "text", "text": "I am THINKING."}],
    )
    begin(found, title="ümlaut")
    begin(action("pwd", tool_name="browser"))
    assert inbox(text=text) == [found["id"]]
    assert number(text=text) == 1


def test_text_that_stands_only_in_other_members_is_not_found(begin, inbox):
    begin(action(llm_response_id="a needle"))
    assert inbox(text="needle") == []


def test_what_was_decided_is_counted_no_longer(store, begin, number):
    conversation = begin(action(), action())
    assert number() == 2
    store.confirmations.decide(conversation, accept=True, reason="")
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


@pytest.mark.parametrize(
    ("query", "member"),
    [
        ({"conversation_id": "x"}, "conversation_id"),
        ({"security_risk": "low"}, "security_risk"),
        ({"tag": ""}, "tag"),
        ({"tag": "=x"}, "tag"),
        ({"since__gte": "yesterday"}, "since__gte"),
        ({"since__lt": "1"}, "since__lt"),
        ({"text": "x" * 257}, "text"),
        ({"tool_name": "x" * 257}, "tool_name"),
        ({"sort_order": "newest"}, "sort_order"),
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"page_id": "x"}, "page_id"),
        ({"page_id": f"since.asc.1-{'0' * 32}-1-ff"}, "page_id"),
        ({"page_id": f"since.desc.1-{'0' * 32}-1-61"}, "page_id"),
    ],
)
def test_a_query_that_is_wrong_is_refused_with_the_name_of_its_member(client, query, member):
    response = client.get(URL, query_string=query)
    assert response.status_code == 422
    [fault] = response.get_json()["detail"]
    assert fault["loc"] == ["query", member]
