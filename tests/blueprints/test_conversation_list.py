"""The list of all conversations: what it shows, its filters, orders and pages."""

from itertools import product
from uuid import uuid4

import pytest

from store.conversations import lists
from tests.conftest import action, message, status
from tests.round_trips import counted

SEARCH = "/api/v1/conversations/search"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """A listing of this test's own: the other one has every test's conversations."""
    monkeypatch.setattr("store.keys.ListingKeys.root", f"conversations:{{{uuid4()}}}")


@pytest.fixture
def make(store):
    """Create a conversation; its id."""

    def make(title=None, **members):
        identity = str(uuid4())
        store.conversations.create(identity, title=title, **members)
        return identity

    return make


@pytest.fixture
def append(client):
    """Append events as the agent does."""
    return lambda one, *events: client.post(f"/api/v1/webhooks/events/{one}", json=list(events))


def search(client, query="", **members):
    response = client.get(SEARCH + query, query_string=members or None)
    assert response.status_code == 200, response.get_data(as_text=True)
    return response.get_json()


def found(client, query="", **members):
    """The ids of a search over all its pages."""
    page = search(client, query, **members)
    ids = [item["id"] for item in page["items"]]
    while page["next_page_id"]:
        page = search(client, **members, page_id=page["next_page_id"])
        ids += [item["id"] for item in page["items"]]
    return ids


def test_a_search_shows_what_a_list_needs_of_a_detached_conversation_and_of_one_in_a_sandbox(client, make, append):
    detached = make("Mine", tags={"team": "red"})
    append(detached, message("hello"), message("again"))
    app = make(sandbox_id="box", app={"llm_model": "m", "parent_conversation_id": detached})

    first, second = search(client)["items"]

    assert first | {"created_at": "", "updated_at": ""} == {
        "id": app,
        "title": None,
        "execution_status": "idle",
        "pending": 0,
        "events": 0,
        "tags": {},
        "sandbox_id": "box",
        "parent_conversation_id": detached,
        "llm_model": "m",
        "external": None,
        "owner": None,
        "created_at": "",
        "updated_at": "",
    }
    assert (second["id"], second["title"], second["tags"], second["events"]) == (detached, "Mine", {"team": "red"}, 2)
    assert (second["sandbox_id"], second["llm_model"], second["parent_conversation_id"]) == (None, None, None)
    assert second["created_at"] < second["updated_at"] <= first["created_at"]


def test_the_owner_is_the_one_to_whom_a_conversation_was_given_last(client, make):
    one = make(owner="grace")
    assert search(client)["items"][0]["owner"] == "grace"
    assert client.put(f"/api/v1/conversation/{one}/owner", json={"owner": "ada"}).status_code == 200
    assert search(client)["items"][0]["owner"] == "ada"


def test_pending_is_the_number_of_actions_that_wait_for_a_decision(client, make, append):
    one = make(confirmation_policy={"kind": "AlwaysConfirm"})
    first, second = action("one"), action("two")
    append(one, first, second)

    def pending():
        return search(client)["items"][0]["pending"]

    assert pending() == 2
    path = f"/api/v1/conversation/{one}/pending-actions/decisions"
    decision = {"action_id": first["id"], "decision": "reject"}
    assert client.post(path, json={"decisions": [decision]}).status_code == 200
    assert pending() == 1
    client.post(f"/api/conversations/{one}/run")
    assert pending() == 0


def test_the_last_changed_are_first_and_there_are_six_orders(client, make, append):
    b, a, c = make("Bravo"), make("alpha"), make("Charlie")
    append(b, message("hello"))

    assert found(client) == found(client, sort_order="UPDATED_AT_DESC") == [b, c, a]
    assert found(client, sort_order="UPDATED_AT") == [a, c, b]
    assert found(client, sort_order="CREATED_AT") == [b, a, c]
    assert found(client, sort_order="CREATED_AT_DESC") == [c, a, b]
    assert found(client, sort_order="TITLE") == [a, b, c]
    assert found(client, sort_order="TITLE_DESC") == [c, b, a]


def test_pages_have_every_conversation_once(client, make, monkeypatch):
    monkeypatch.setattr(lists, "READ", 3)
    ids = [make(f"No. {number}", tags={"x": "1"}) for number in range(8)]

    for order, query in product(("UPDATED_AT_DESC", "CREATED_AT", "TITLE"), ({}, {"tag": "x"}, {"text": "no"})):
        assert sorted(found(client, limit=2, sort_order=order, **query)) == sorted(ids), (order, query)


def test_text_is_a_part_of_the_title_whatever_its_case(client, make):
    mine, app, _ = make("Fix the Straße"), make("STRASSE", sandbox_id="box", app={}), make("other")

    assert found(client, text="strasse") == [app, mine]
    assert found(client, text="Straße", sort_order="TITLE") == [mine, app]
    assert found(client, text="nowhere") == []


def test_statuses_are_repeated_for_each_of_several(client, make, append):
    idle, running, paused = make("c"), make("b"), make("a")
    append(running, status("running"))
    append(paused, status("paused"))

    assert found(client, "?status=running") == [running]
    assert sorted(found(client, "?status=running&status=paused")) == sorted([running, paused])
    assert found(client, "?status=idle&sort_order=TITLE") == [idle]
    assert found(client, "?status=idle&status=paused&sort_order=TITLE") == [paused, idle]


def test_a_tag_is_a_name_or_a_name_with_a_value(client, make):
    red, blue, _ = make(tags={"team": "red"}), make(tags={"team": "blue"}), make(tags={"other": "red"})

    assert found(client, tag="team") == [blue, red]
    assert found(client, tag="team=red") == [red]
    assert found(client, tag="team=") == []


def test_a_page_by_tag_reads_a_bounded_number_and_goes_on(client, make, monkeypatch):
    monkeypatch.setattr(lists, "READ", 1)
    one = make(tags={"x": "1"})
    for _ in range(7):
        make()

    page = search(client, tag="x")

    assert (page["items"], page["next_page_id"] is None) == ([], False)
    assert [item["id"] for item in search(client, tag="x", page_id=page["next_page_id"])["items"]] == [one]


def test_a_search_of_a_sandbox_has_its_conversations_alone(client, make, append):
    here, also = make(sandbox_id="box-1", app={}), make(sandbox_id="box-1", app={"parent_conversation_id": "x"})
    make(sandbox_id="box-2", app={})

    assert found(client, sandbox_id="box-1") == [also, here]
    assert found(client, "?sandbox_id=box-1&status=running") == []


def test_a_search_by_time_of_the_last_change(client, make):
    for _ in range(3):
        make()
    first, second, third = search(client, sort_order="UPDATED_AT")["items"]

    assert found(client, updated__gte=second["updated_at"]) == [third["id"], second["id"]]
    assert found(client, updated__lt=second["updated_at"]) == [first["id"]]
    between = {"updated__gte": second["updated_at"], "updated__lt": third["updated_at"]}
    assert found(client, **between, sort_order="TITLE") == [second["id"]]


def test_a_deleted_conversation_is_not_listed(client, make):
    gone, other = make("a"), make("b")

    client.delete(f"/api/conversations/{gone}")

    assert found(client) == found(client, sort_order="TITLE") == [other]


BAD = [
    ("?status=asleep", "status"),
    ("?status=idle&status=asleep", "status"),
    ("?tag==x", "tag"),
    ("?sandbox_id=a,b", "sandbox_id"),
    ("?updated__gte=yesterday", "updated__gte"),
    ("?sort_order=SIZE", "sort_order"),
    ("?limit=101", "limit"),
    ("?page_id=x", "page_id"),
    (f"?text={'x' * 201}", "text"),
]


def test_a_bad_filter_is_refused_by_name(client):
    for query, name in BAD:
        refused = client.get(SEARCH + query)

        assert refused.status_code == 422, query
        assert {tuple(one["loc"][:2]) for one in refused.get_json()["detail"]} == {("query", name)}


def test_a_page_costs_two_round_trips_one_where_all_was_shown_before_and_three_where_actions_wait(client, make, append):
    for number in range(100):
        make(f"No. {number}", tags={"x": "1"}, sandbox_id="box" if number % 2 else None, app={})

    def cost(**query):
        with counted() as trips:
            search(client, **query)
        return trips.number

    assert [cost(limit=limit) for limit in (10, 100, 10, 100)] == [2, 2, 1, 1]
    assert {cost(limit=limit, text="no", tag="x") for limit in (1, 10, 100)} == {2}
    for _ in range(20):
        append(make(confirmation_policy={"kind": "AlwaysConfirm"}), action(), action())
    assert [cost(limit=100), cost(limit=100)] == [3, 1]
