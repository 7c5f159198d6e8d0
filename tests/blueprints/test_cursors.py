"""Cursors: a `next_page_id` belongs to one search and to one order; any other is 422. Source: docs/wire.md, 9."""

from uuid import UUID, uuid4

import pytest

CONVERSATIONS = "/api/conversations/search"
APP_CONVERSATIONS = "/api/v1/app-conversations/search"
START_TASKS = "/api/v1/app-conversations/start-tasks/search"

ORDERS = {
    CONVERSATIONS: ("CREATED_AT", "CREATED_AT_DESC", "UPDATED_AT", "UPDATED_AT_DESC"),
    APP_CONVERSATIONS: ("CREATED_AT", "CREATED_AT_DESC", "UPDATED_AT", "UPDATED_AT_DESC", "TITLE", "TITLE_DESC"),
    START_TASKS: ("CREATED_AT", "CREATED_AT_DESC", "UPDATED_AT", "UPDATED_AT_DESC"),
}
HEX = "0f" * 16
PLAIN = f"1763730000000000-{HEX}"
PAIRS = [(path, own, other) for path, names in ORDERS.items() for own in names for other in names]


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


@pytest.mark.parametrize(("path", "own", "other"), PAIRS)
def test_a_cursor_continues_its_own_order_and_is_refused_in_any_other(client, listed, path, own, other):
    first = search(client, path, sort_order=own).get_json()

    response = search(client, path, sort_order=other, page_id=first["next_page_id"])

    if own == other:
        assert response.status_code == 200
        assert response.get_json()["items"][0]["id"] != first["items"][0]["id"]
    else:
        assert response.status_code == 422
        [fault] = response.get_json()["detail"]
        assert (fault["loc"], fault["type"]) == (["query", "page_id"], "value_error")
        assert "sort_order" in fault["msg"]


@pytest.mark.parametrize("path", ORDERS)
def test_a_cursor_without_an_order_belongs_to_the_default_order(client, listed, path):
    first = search(client, path).get_json()

    assert search(client, path, page_id=first["next_page_id"]).status_code == 200
    assert search(client, path, page_id=first["next_page_id"], sort_order="CREATED_AT_DESC").status_code == 200


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "x", "\u0661", HEX, str(UUID(HEX)), PLAIN, f"t61-{HEX}"),
        *(f"created.desc.{at}-{HEX}" for at in ("", "x", "-1", "1.5", "9" * 17, " 1", "\u0663")),
        *(f"created.desc.1-{identity}" for identity in ("", UUID(HEX), f"{HEX}0", HEX[1:], f"{HEX}\n")),
        *(f"{order}-{HEX}" for order in ("created.down.1", "seen.desc.1", "title.desc.1", "title.desc.ff")),
    ],
)
@pytest.mark.parametrize("path", [*ORDERS, "/api/v1/sandboxes/search", "/api/v1/sandbox-specs/search"])
@pytest.mark.parametrize("order", ["CREATED_AT_DESC", "TITLE_DESC"])
def test_an_invalid_cursor_of_a_search_is_422(client, path, cursor, order):
    sorts = {"sort_order": order} if order in ORDERS.get(path, ()) else {}

    response = search(client, path, page_id=cursor, **sorts)

    if path.endswith("sandboxes/search") and cursor == PLAIN:
        assert response.status_code == 200  # sandboxes have one order, and any id
    else:
        assert response.status_code == 422
        assert response.get_json()["detail"][0]["loc"] == ["query", "page_id"]


@pytest.mark.parametrize("path", [*ORDERS, "/api/v1/sandboxes/search", "/api/v1/sandbox-specs/search"])
def test_a_cursor_of_another_listing_is_422(client, listed, path):
    others = {CONVERSATIONS: "1763730000000000-some-sandbox"}
    cursor = others.get(path) or search(client, CONVERSATIONS).get_json()["next_page_id"]

    assert search(client, path, page_id=cursor, sort_order="UPDATED_AT").status_code == 422
