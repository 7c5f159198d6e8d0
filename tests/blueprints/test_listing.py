"""Conversations listed: search with its orders and pages, count, batch get."""

from uuid import UUID, uuid4

import pytest

from core import wire
from core.wire import EXECUTION_STATUSES
from tests.conftest import action, message, status

API = "/api/conversations"
ORDERS = ("CREATED_AT", "CREATED_AT_DESC", "UPDATED_AT", "UPDATED_AT_DESC")


@pytest.fixture
def alone(monkeypatch):
    """A listing of this test's own: the other one has every test's conversations."""
    monkeypatch.setattr("store.keys.ListingKeys.root", f"conversations:{{{uuid4()}}}")


@pytest.fixture
def one_instant(monkeypatch):
    """A stopped clock: all changes have the same microsecond, as on concurrent workers."""
    instant = wire.now()
    monkeypatch.setattr("core.wire.now", lambda: instant)


@pytest.fixture
def make(client):
    """Create conversations, one after the other; their ids."""

    def make(number):
        return [client.post(API).get_json()["id"] for _ in range(number)]

    return make


@pytest.fixture
def post_events(client):
    """Append events as the agent does."""
    return lambda one, *events: client.post(f"/api/v1/webhooks/events/{one}", json=list(events))


def search(client, **query):
    response = client.get(f"{API}/search", query_string=query)
    assert response.status_code == 200, response.get_data(as_text=True)
    return response.get_json()


def found(client, **query):
    """The ids of a search, from one page."""
    page = search(client, **query)
    assert page["next_page_id"] is None
    return [item["id"] for item in page["items"]]


def pages(client, **query):
    """The ids of a search page by page, each with the id of the next cursor's conversation."""
    page = search(client, **query)
    while True:
        following = page["next_page_id"]
        yield [item["id"] for item in page["items"]], following and str(UUID(following.partition("-")[2]))
        if following is None:
            return
        page = search(client, **query, page_id=following)


def paged(client, **query):
    return [one for page, _ in pages(client, **query) for one in page]


def count(client, **query):
    return client.get(f"{API}/count", query_string=query).get_json()


def test_a_search_has_four_orders_and_the_newest_are_first_by_default(client, alone, make):
    # Given three conversations, the first of which has changed since
    first, second, third = make(3)
    client.patch(f"{API}/{first}", json={"title": "Changed"})

    assert found(client) == [third, second, first]
    assert found(client, sort_order="CREATED_AT_DESC") == [third, second, first]
    assert found(client, sort_order="CREATED_AT") == [first, second, third]
    assert found(client, sort_order="UPDATED_AT") == [second, third, first]
    assert found(client, sort_order="UPDATED_AT_DESC") == [first, third, second]


def test_an_item_is_the_same_as_by_get_and_a_count_is_a_bare_number(client, alone, make):
    assert search(client) == {"items": [], "next_page_id": None}
    assert count(client) == 0

    [one] = make(1)

    assert search(client)["items"] == [client.get(f"{API}/{one}").get_json()]
    assert client.get(f"{API}/count").get_data() == b"1"


#: requests that change a conversation: method, path and body
CHANGES = {
    "run": ("POST", f"{API}/{{}}/run", {}),
    "pause": ("POST", f"{API}/{{}}/pause", {}),
    "message": ("POST", f"{API}/{{}}/events", {}),
    "event": ("POST", "/api/v1/webhooks/events/{}", [message("text", "agent")]),
    "status": ("POST", "/api/v1/webhooks/events/{}", [status("error")]),
    "title": ("PATCH", f"{API}/{{}}", {"title": "New"}),
    "tags": ("PATCH", f"{API}/{{}}", {"tags": {"a": "b"}}),
    "analyzer": ("POST", f"{API}/{{}}/security_analyzer", {"security_analyzer": {"kind": "X"}}),
    "policy": ("POST", f"{API}/{{}}/confirmation_policy", {"policy": {"kind": "AlwaysConfirm"}}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_moves_a_conversation_to_the_end_of_the_order_by_last_change(client, alone, make, change):
    changed, other = make(2)
    method, path, body = CHANGES[change]

    assert client.open(path.format(changed), method=method, json=body).status_code == 200

    assert found(client, sort_order="UPDATED_AT") == [other, changed]
    assert found(client, sort_order="CREATED_AT") == [changed, other]
    now = client.get(f"{API}/{changed}").get_json()["execution_status"]
    assert changed in found(client, status=now, sort_order="UPDATED_AT")


def test_a_decision_moves_a_conversation_from_waiting_to_running(client, alone, make, post_events):
    waiting, other = make(2)
    client.post(f"{API}/{waiting}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}})
    post_events(waiting, action())
    client.patch(f"{API}/{other}", json={"title": "Later"})
    assert found(client, status="waiting_for_confirmation") == [waiting]

    client.post(f"{API}/{waiting}/events/respond_to_confirmation", json={"accept": True})

    assert found(client, status="waiting_for_confirmation") == []
    assert found(client, status="running") == [waiting]
    assert found(client, sort_order="UPDATED_AT") == [other, waiting]


def test_a_search_filters_by_status(client, alone, make, post_events):
    # Given two conversations in each status
    expected = {value: make(2) for value in EXECUTION_STATUSES}
    for value, ids in expected.items():
        for one in ids:
            post_events(one, status(value))

    # Then a search and a count of a status return its conversations alone, in the requested order
    for value, ids in expected.items():
        for order in ORDERS:
            assert found(client, status=value, sort_order=order) == (ids[::-1] if order.endswith("DESC") else ids)
        assert count(client, status=value) == 2
    assert count(client) == 2 * len(EXECUTION_STATUSES)

    # And a conversation that changes its status moves from one search to the other
    moved = expected["paused"][0]
    client.post(f"{API}/{moved}/run")
    for order in ORDERS:
        assert moved not in found(client, status="paused", sort_order=order)
        assert moved in found(client, status="running", sort_order=order)
    assert (count(client, status="paused"), count(client, status="running")) == (1, 3)


@pytest.mark.parametrize("order", ORDERS)
def test_pages_have_every_conversation_once_in_order(client, alone, make, order):
    made = make(5)

    for limit in (1, 2, 4, 5, 100):
        listed = list(pages(client, sort_order=order, limit=limit))
        assert [one for page, _ in listed for one in page] == (made[::-1] if order.endswith("DESC") else made)
        assert [len(page) for page, _ in listed] == [min(limit, 5 - start) for start in range(0, 5, limit)]


def test_pages_have_every_conversation_of_one_instant_once(client, alone, one_instant, make):
    made = make(7)

    for order in ORDERS:
        for limit in (1, 2, 3):
            listed = paged(client, sort_order=order, limit=limit)
            assert listed == sorted(made, reverse=order.endswith("DESC"))


def test_a_page_may_have_another_length_than_the_previous_page(client, alone, make):
    made = make(5)
    page_id = search(client, sort_order="CREATED_AT", limit=2)["next_page_id"]

    for limit in (1, 2, 3):
        page = search(client, sort_order="CREATED_AT", limit=limit, page_id=page_id)
        assert [item["id"] for item in page["items"]] == made[2 : 2 + limit]


@pytest.fixture(params=["in turn", "at one instant"])
def seven(request, make):
    """Seven conversations, created one after the other or at the same microsecond."""
    if request.param == "at one instant":
        request.getfixturevalue("one_instant")
    return make(7)


@pytest.mark.parametrize("order", ["CREATED_AT", "CREATED_AT_DESC"])
def test_pages_have_every_conversation_once_when_the_cursors_one_is_deleted_meanwhile(client, alone, seven, order):
    # Given pages, between which the conversation of the next cursor is deleted
    listed, gone = [], []
    for page, following in pages(client, sort_order=order, limit=2):
        listed += page
        if following:
            client.delete(f"{API}/{following}")
            gone.append(following)

    # Then no other conversation is missed, and none is listed twice
    assert sorted(listed) == sorted(set(seven) - set(gone))
    assert len(gone) >= 2


@pytest.mark.parametrize("order", ["CREATED_AT", "CREATED_AT_DESC"])
def test_pages_have_every_conversation_once_when_those_of_earlier_pages_are_deleted_meanwhile(
    client, alone, seven, order
):
    listed = []
    for page, _ in pages(client, sort_order=order, limit=2):
        listed += page
        client.delete(f"{API}/{page[-1]}")

    assert sorted(listed) == sorted(seven)


@pytest.mark.parametrize("order", ["CREATED_AT", "CREATED_AT_DESC"])
def test_pages_by_creation_have_every_conversation_once_when_all_change_meanwhile(client, alone, seven, order):
    listed = []
    for page, _ in pages(client, sort_order=order, limit=2):
        listed += page
        for one in seven:
            client.patch(f"{API}/{one}", json={"title": f"Seen {len(listed)}"})
            client.post(f"{API}/{one}/run")

    assert sorted(listed) == sorted(seven)


@pytest.mark.parametrize("order", ["CREATED_AT", "CREATED_AT_DESC"])
def test_pages_of_a_status_have_every_conversation_that_keeps_it_once(client, alone, seven, order):
    # Given pages of idle conversations, between which the conversation of the next cursor runs
    listed, gone = [], []
    for page, following in pages(client, sort_order=order, status="idle", limit=2):
        listed += page
        if following:
            client.post(f"{API}/{following}/run")
            gone.append(following)

    # Then no other conversation is missed, and none is listed twice
    assert sorted(listed) == sorted(set(seven) - set(gone))


def test_a_conversation_that_is_created_meanwhile_is_on_the_last_page_or_on_none(client, alone, make):
    made = make(4)
    for order, expected in (("CREATED_AT", made), ("CREATED_AT_DESC", made[::-1])):
        listed, new = [], []
        for page, _ in pages(client, sort_order=order, limit=3):
            listed += page
            new = new or make(1)
        assert listed == [*expected, *(new if order == "CREATED_AT" else [])]
        client.delete(f"{API}/{new[0]}")


@pytest.mark.parametrize("order", ["UPDATED_AT", "UPDATED_AT_DESC"])
def test_pages_by_last_change_have_every_unchanged_conversation_once(client, alone, make, order):
    made = make(7)
    listed, changed = [], set()
    for page, following in pages(client, sort_order=order, limit=2):
        listed += page
        if following and len(changed) < 2:
            client.post(f"{API}/{following}/run")
            changed.add(following)

    quiet = [one for one in made if one not in changed]
    assert [one for one in listed if one in quiet] == (quiet[::-1] if order.endswith("DESC") else quiet)


def test_pages_of_all_conversations_have_each_once(client, make):
    # Given the listing of all tests
    made = make(3)

    for order in ORDERS:
        listed = paged(client, sort_order=order, limit=50)
        assert [one for one in listed if one in made] == (made[::-1] if order.endswith("DESC") else made)
        assert len(listed) == len(set(listed))


def test_a_deleted_conversation_is_not_listed_until_its_id_is_started_again(client, alone, make):
    first, second = make(2)

    client.delete(f"{API}/{first}")
    assert (found(client), found(client, status="idle"), count(client)) == ([second], [second], 1)

    client.post(API, json={"conversation_id": first})
    assert found(client) == [first, second]
    assert found(client, sort_order="UPDATED_AT") == [second, first]
    assert (count(client), count(client, status="idle")) == (2, 2)


def test_a_conversation_from_a_webhook_and_a_fork_are_listed_too(client, alone, post_events, conversation):
    post_events(conversation, message("text"))

    copied = client.post(f"{API}/{conversation}/fork").get_json()["id"]

    assert found(client, sort_order="CREATED_AT") == [conversation, copied]
    assert found(client, sort_order="UPDATED_AT", status="idle") == [conversation, copied]
    assert count(client) == 2


def test_a_repeated_start_is_counted_once(client, alone, conversation):
    for _ in range(2):
        client.post(API, json={"conversation_id": conversation})

    assert (found(client), count(client)) == ([conversation], 1)


def test_a_limit_outside_1_to_100_is_refused(client):
    for limit in ("0", "101", "-1", "x", "1.5", "", "1e1", "9" * 30):
        response = client.get(f"{API}/search", query_string={"limit": limit})

        assert response.status_code == 422, limit
        assert response.get_json()["detail"][0]["loc"] == ["query", "limit"]


@pytest.mark.parametrize("limit", [1, 100])
def test_the_bounds_of_a_limit_are_valid_limits(client, alone, make, limit):
    make(1)

    assert len(found(client, limit=limit)) == 1


UNKNOWN = [
    ("search", "status", "sleeping"),
    ("search", "status", "IDLE"),
    ("search", "status", ""),
    ("count", "status", "sleeping"),
    ("search", "sort_order", "TIMESTAMP"),
    ("search", "sort_order", "created_at"),
]


def test_an_unknown_value_is_refused_with_a_list_of_the_known_values(client):
    for path, name, value in UNKNOWN:
        response = client.get(f"{API}/{path}", query_string={name: value})

        assert response.status_code == 422, (path, name, value)
        [fault] = response.get_json()["detail"]
        assert fault["loc"] == ["query", name]
        assert ("idle" if name == "status" else "UPDATED_AT_DESC") in fault["msg"]


HEX = "0f" * 16


@pytest.mark.parametrize(("at", "whole"), [("0", True), ("9" * 16, False)])
def test_a_page_id_is_valid_without_a_conversation_of_that_id(client, alone, make, at, whole):
    made = make(2)

    assert found(client, sort_order="CREATED_AT", page_id=f"created.asc.{at}-{HEX}") == (made if whole else [])
    assert found(client, page_id=f"created.desc.{at}-{HEX}") == ([] if whole else made[::-1])


def test_a_batch_is_in_the_order_of_its_ids_with_null_for_an_unknown_one(client, make):
    first, second = make(2)
    ids = [second, str(uuid4()), UUID(first).hex, second.upper()]

    response = client.get(API, query_string={"ids": ids})

    assert response.status_code == 200
    listed = {one: client.get(f"{API}/{one}").get_json() for one in (first, second)}
    assert response.get_json() == [listed[second], None, listed[first], listed[second]]


def test_a_batch_has_at_most_100_ids_and_at_least_one(client, make):
    [one] = make(1)

    assert len(client.get(API, query_string={"ids": [one] * 100}).get_json()) == 100
    for ids in ([], [one] * 101):
        response = client.get(API, query_string={"ids": ids})
        assert response.status_code == 422
        assert response.get_json()["detail"][0]["loc"] == ["query", "ids"]


def test_each_malformed_id_of_a_batch_is_named_by_its_index(client, make):
    [one] = make(1)

    response = client.get(API, query_string={"ids": ["x", one, "", one[:-1]]})

    assert response.status_code == 422
    assert [fault["loc"] for fault in response.get_json()["detail"]] == [["query", "ids", n] for n in (0, 2, 3)]
