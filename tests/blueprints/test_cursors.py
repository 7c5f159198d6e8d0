"""Cursors over HTTP: a `next_page_id` belongs to one search and to one order. Source: docs/wire.md, 9."""

from uuid import uuid4

import pytest

CONVERSATIONS = "/api/conversations/search"
LISTED = "/api/v1/conversations/search"
APP_CONVERSATIONS = "/api/v1/app-conversations/search"
START_TASKS = "/api/v1/app-conversations/start-tasks/search"
SANDBOXES, SPECS = "/api/v1/sandboxes/search", "/api/v1/sandbox-specs/search"

TIMES = ("CREATED_AT", "CREATED_AT_DESC", "UPDATED_AT", "UPDATED_AT_DESC")
ORDERS = {
    CONVERSATIONS: TIMES,
    LISTED: (*TIMES, "TITLE", "TITLE_DESC"),
    APP_CONVERSATIONS: (*TIMES, "TITLE", "TITLE_DESC"),
    START_TASKS: TIMES,
}


@pytest.fixture(scope="module")
def listed(store):
    """Three conversations with titles, in a sandbox, and three starts."""
    sandbox = uuid4().hex
    for title in ("b", "a\u00e9", ""):
        store.conversations.create(str(uuid4()), title=title or None, sandbox_id=sandbox)
    store.sandboxes.beat(f"host-{sandbox}", "supervisor")
    for _ in range(3):
        store.start_tasks.create({}, echo={})


def search(client, path, **query):
    return client.get(path, query_string={"limit": 1, **query})


@pytest.mark.parametrize("path", ORDERS)
def test_a_cursor_continues_its_own_order_and_is_refused_in_another(client, listed, path):
    for own in ORDERS[path]:
        first = search(client, path, sort_order=own).get_json()

        response = search(client, path, sort_order=own, page_id=first["next_page_id"])
        assert response.status_code == 200, own
        assert response.get_json()["items"][0]["id"] != first["items"][0]["id"], own
        reverse = own.removesuffix("_DESC") if own.endswith("_DESC") else f"{own}_DESC"
        refused = search(client, path, sort_order=reverse, page_id=first["next_page_id"])
        assert refused.status_code == 422, own
        [fault] = refused.get_json()["detail"]
        assert (fault["loc"], fault["type"]) == (["query", "page_id"], "value_error")
        assert "sort_order" in fault["msg"]


@pytest.mark.parametrize("path", ORDERS)
def test_a_cursor_without_an_order_belongs_to_the_default_order(client, listed, path):
    default = "UPDATED_AT_DESC" if path == LISTED else "CREATED_AT_DESC"
    first = search(client, path).get_json()

    assert search(client, path, page_id=first["next_page_id"]).status_code == 200
    assert search(client, path, page_id=first["next_page_id"], sort_order=default).status_code == 200


@pytest.mark.parametrize("path", [*ORDERS, SANDBOXES, SPECS])
def test_an_invalid_cursor_and_one_of_another_listing_are_422(client, listed, path):
    other = search(client, CONVERSATIONS).get_json()["next_page_id"]
    foreign = "1763730000000000-some-sandbox" if path == CONVERSATIONS else other

    for cursor, order in ((foreign, "UPDATED_AT"), ("x", "CREATED_AT_DESC"), ("", "CREATED_AT_DESC")):
        ordered = {"sort_order": order} if path in ORDERS else {}
        response = search(client, path, page_id=cursor, **ordered)
        assert response.status_code == 422, cursor
        assert response.get_json()["detail"][0]["loc"] == ["query", "page_id"]
