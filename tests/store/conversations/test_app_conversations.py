"""App conversations in the store: order by title, filters that the index decides, batches, and the cost of each."""

from uuid import uuid4

import pytest

from core.wire import micros
from store import listing as module
from store.conversations.conversations import app_filter
from tests.conftest import as_events, event
from tests.round_trips import counted

ORDERS = [(by, descending) for by in ("created", "updated", "title") for descending in (False, True)]
ODD_TITLES = ["", "b", "B!", "a", "a b", "ä", "ß", "SS", "\ud7ff", "\uffff", "😀", "a\nb", "a\n", "x" * 200]


pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture
def make(store):
    """Create app conversations with the titles that are given; their ids."""

    def make(*titles, sandbox_id="box", **app):
        ids = [str(uuid4()) for _ in titles]
        for one, title in zip(ids, titles, strict=True):
            store.conversations.create(one, title=title, sandbox_id=sandbox_id, app=app)
        return ids

    return make


def searched(store, by="created", descending=False, limit=100, **filters):
    """The ids of a search over all its pages."""
    found, start = [], None
    while True:
        items, start = store.conversations.in_sandboxes.search(
            app_filter(**filters), by=by, descending=descending, limit=limit, start=start
        )
        assert len(items) <= limit
        found += [item["id"] for item in items]
        if start is None:
            assert store.conversations.in_sandboxes.count(app_filter(**filters)) == len(found)
            return found


def in_order(store, ids):
    """Ids by title without regard to case, then by id."""
    states = store.conversations.get_many(ids)
    return [state["id"] for state in sorted(states, key=lambda one: (one["title"].casefold(), one["id"]))]


def test_titles_are_in_the_order_of_their_code_points_whatever_their_case(store, make):
    expected = in_order(store, make(*ODD_TITLES, "b", "B"))

    for limit in (1, 3, 100):
        assert searched(store, by="title", limit=limit) == expected
        assert searched(store, by="title", descending=True, limit=limit) == expected[::-1]


@pytest.mark.parametrize("unfit", ["\x00", "\ud800"])
def test_a_character_that_no_index_holds_counts_as_the_replacement_character(store, make, unfit):
    odd, replaced, plain = make(f"a{unfit}b", "a\ufffdb", "ab")

    found = searched(store, by="title", limit=1)
    assert found[0] == plain
    assert set(found[1:]) == {odd, replaced}
    assert searched(store, title=f"A{unfit}") == searched(store, title="a\ufffd") == [odd, replaced]
    assert searched(store, title="ab") == [plain]
    assert store.conversations.get(odd)["title"] == f"a{unfit}b"


def test_a_conversation_without_a_title_is_the_first_by_title_and_passes_an_empty_part_alone(store, make):
    named, nameless = make("a", None)

    assert searched(store, by="title") == [nameless, named]
    assert searched(store, title="") == [named, nameless]
    assert searched(store, title="a") == [named]


def test_a_part_of_a_title_selects_in_every_order(store, make):
    made = make(*ODD_TITLES, "Straße", "STRASSE", "strass")
    titles = {state["id"]: state["title"] for state in store.conversations.get_many(made)}

    for part in ("a", "STRASSE", "ß", "😀", "\n", "nowhere", "x" * 200, "x" * 201):
        expected = {one for one, title in titles.items() if part.casefold() in title.casefold()}
        for by, descending in ORDERS:
            assert set(searched(store, by=by, descending=descending, limit=2, title=part)) == expected


def test_a_changed_title_moves_its_conversation(store, make):
    first, second = make("a", "b")

    store.conversations.update(first, title="C")
    assert searched(store, by="title") == [second, first]
    assert (searched(store, title="a"), searched(store, title="c")) == ([], [first])

    store.conversations.delete(first)
    assert searched(store, by="title") == [second]


def test_a_title_from_an_agents_event_is_cut_with_a_mark_at_200_characters_and_moves_its_conversation(store, make):
    first, second = make("a", "b")
    titled = event("ConversationStateUpdateEvent", "agent", key="title", value="C" * 300)

    store.events.append(first, as_events([titled]), sandbox_id="box")

    assert store.conversations.get(first)["title"] == "C" * 199 + "…"
    assert searched(store, by="title") == [second, first]
    assert searched(store, title="c" * 199) == [first]


def test_pages_by_title_go_on_when_the_cursors_conversation_is_renamed_or_deleted(store, make):
    made = dict(zip("abcdef", make(*"abcdef"), strict=True))
    page = {"by": "title", "descending": False, "limit": 2}
    _, start = store.conversations.in_sandboxes.search(app_filter(), **page, start=None)
    assert start == ("c", made["c"])

    store.conversations.update(made["c"], title="z")
    store.conversations.delete(made["d"])

    items, start = store.conversations.in_sandboxes.search(app_filter(), **page, start=start)
    assert [item["id"] for item in items] == [made["e"], made["f"]]
    items, start = store.conversations.in_sandboxes.search(app_filter(), **page, start=start)
    assert ([item["id"] for item in items], start) == ([made["c"]], None)


def test_times_select_in_every_order(store, make):
    made = make(*"cabde")
    store.conversations.update(made[1], title="changed")
    states = store.conversations.get_many(made)
    created = [micros(state["created_at"]) for state in states]
    changed = micros(states[1]["updated_at"])

    def found(**times):
        [one] = {frozenset(searched(store, by=by, descending=down, limit=2, **times)) for by, down in ORDERS}
        return one

    assert found(created_since=created[2]) == set(made[2:])
    assert found(created_until=created[2]) == set(made[:2])
    assert found(created_since=created[1], created_until=created[3]) == set(made[1:3])
    assert found(updated_since=changed) == {made[1]}
    assert found(updated_until=changed) == set(made) - {made[1]}
    assert found(created_until=created[2], updated_until=changed) == {made[0]}
    assert found(created_since=created[4] + 1) == found(created_until=created[0]) == set()


def test_a_sandbox_selects_with_children_or_without(store, make):
    [parent] = make("parent")
    [child] = make("child", parent_conversation_id=parent)
    [other] = make("other", sandbox_id="another")

    assert searched(store) == [parent, other]
    assert searched(store, with_children=True) == [parent, child, other]
    assert searched(store, sandbox_id="box") == [parent]
    assert searched(store, sandbox_id="box", with_children=True) == [parent, child]
    assert searched(store, sandbox_id="box", title="child") == []


# costs


def test_a_page_by_title_makes_as_many_round_trips_among_many_as_among_few(store, make):
    def trips():
        with counted() as trips:
            store.conversations.in_sandboxes.search(app_filter(), by="title", descending=False, limit=5, start=None)
        return trips.number

    make(*"abcdef")
    trips()
    few = trips()
    make(*(f"title {number}" for number in range(300)))

    assert trips() == few <= 4


def test_a_search_for_a_title_examines_a_bounded_number_of_entries_and_reads_no_other_conversation(
    store, make, monkeypatch
):
    # Given more conversations than one request examines, the oldest of which matches
    monkeypatch.setattr(module, "SCAN_CHUNK", 10)
    monkeypatch.setattr(module, "MOST_SCANNED", 50)
    [match] = make("needle")
    make(*(f"hay {number}" for number in range(120)))
    searched(store, descending=True, title="needle")

    # Then a page without a match is short and has a successor, which continues after it
    pages, start = [], None
    while not pages or start:
        with counted() as trips:
            items, start = store.conversations.in_sandboxes.search(
                app_filter(title="needle"), by="created", descending=True, limit=5, start=start
            )
        assert trips.number <= 5 + 2
        pages.append([item["id"] for item in items])
    assert pages == [[], [], [match]]

    # And a count asks for all of the index, and reads no conversation
    with counted() as trips:
        assert store.conversations.in_sandboxes.count(app_filter(title="needle")) == 1
    assert trips.number <= 121 // 9 + 1


def test_counts_of_a_group_and_of_one_range_of_time_are_one_round_trip(store, make):
    made = make(*(str(number) for number in range(30)))
    since = micros(store.conversations.get(made[10])["created_at"])
    for filters, number in (({}, 30), ({"created_since": since}, 20), ({"updated_until": since}, 10)):
        with counted() as trips:
            assert store.conversations.in_sandboxes.count(app_filter(**filters)) == number
        assert trips.number == 1


def test_a_batch_is_read_in_a_constant_number_of_round_trips_whatever_the_number_of_children(store, make):
    parents = make(*"abcdefghij")
    children = {one: make("x", "y", parent_conversation_id=one) for one in parents[:5]}
    store.conversations.in_sandboxes.get_many(parents)

    costs = []
    for ids in (parents[:1], parents):
        with counted() as trips:
            found = store.conversations.in_sandboxes.get_many(ids)
        costs.append(trips.number)
        assert [state["sub_conversation_ids"] for state in found] == [children.get(one, []) for one in ids]
    assert costs[0] == costs[1] <= 4


def test_the_oldest_100_children_are_named_in_order(store, make):
    [parent] = make("parent")
    children = make(*(str(number) for number in range(103)), parent_conversation_id=parent)

    assert store.conversations.in_sandboxes.get(parent)["sub_conversation_ids"] == children[:100]


@pytest.mark.parametrize("number", [1, 30])
def test_the_query_whether_an_agent_runs_in_a_sandbox_has_a_constant_cost(store, make, number):
    made = make(*(str(one) for one in range(number)))
    assert not store.conversations.in_sandboxes.runs_in("box")
    store.conversations.change_status(made[0], "run")

    with counted() as trips:
        assert store.conversations.in_sandboxes.runs_in("box")
    assert trips.number <= 2
