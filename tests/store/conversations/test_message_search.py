"""The search for messages in all conversations: order, filters, bounds, cursors, deletions."""

import json
from contextlib import suppress
from uuid import uuid4

import pytest

from core.wire import event_time, micros
from store.conversations import message_search
from store.conversations.message_search import Query
from store.errors import ConversationNotFound
from store.log.frames import PAGE_BYTES
from tests.conftest import as_events, event, message
from tests.round_trips import counted

TEN = micros("2026-11-20T10:00:00")

pytestmark = pytest.mark.usefixtures("alone")  # a search goes through all conversations


@pytest.fixture
def word():
    """A text that only this test's messages have."""
    return f"Straße {uuid4().hex}"


@pytest.fixture
def begin(store):
    """Begin a conversation with these events; its id."""

    def do(*events: dict, title: str | None = None) -> str:
        identity = str(uuid4())
        assert store.conversations.create(identity, title=title)
        store.events.append(identity, as_events(list(events)))
        return identity

    return do


def walk(store, query: Query, *, limit: int = 100) -> list[list[tuple[str, str]]]:
    """Conversation and event of each message, page by page, to the end."""
    pages, start = [], None
    while True:
        found, start = store.conversations.message_search.page(query, limit=limit, start=start)
        assert len(found) <= limit
        pages.append([(one.conversation_id, json.loads(one.event)["id"]) for one in found])
        if start is None:
            return pages


def flat(pages: list[list]) -> list:
    return [one for page in pages for one in page]


def test_messages_come_with_the_newest_conversation_first_and_each_in_the_order_of_its_log(store, begin, word):
    logs = [[message(f"{number} {word} here") for number in range(3)] for _ in range(3)]
    ids = [begin(*log, message("something else"), event()) for log in logs]

    newest_first = list(zip(ids, logs, strict=True))[::-1]
    for limit in (1, 2, 3, 100):
        found = flat(walk(store, Query(word), limit=limit))
        assert found == [(conversation, one["id"]) for conversation, log in newest_first for one in log]


def test_a_message_is_found_as_a_search_by_body_finds_it(store, begin, word):
    log = [message(word.upper()), message("other", extended_content=[{"type": "text", "text": word}])]
    conversation = begin(*log, event("ActionEvent", "agent", summary=word), title="Über alles")

    found, _ = store.conversations.message_search.page(Query(word.casefold()), limit=100, start=None)

    assert [json.loads(one.event) for one in found] == log
    assert store.events.count(conversation, body=word) == 2
    assert {(one.conversation_id, one.title) for one in found} == {(conversation, "Über alles")}


def test_messages_pass_every_filter(store, begin, word):
    log = [
        {**message(word, "agent" if number % 2 else "user"), "timestamp": event_time(TEN + number)}
        for number in range(4)
    ]
    begin(*log)

    for query, numbers in (
        ({"source": "user"}, [0, 2]),
        ({"source": "nobody"}, []),
        ({"since": TEN + 1}, [1, 2, 3]),
        ({"until": TEN + 1}, [0]),
        ({"since": TEN + 1, "until": TEN + 3, "source": "agent"}, [1]),
    ):
        assert [one for _, one in flat(walk(store, Query(word, **query)))] == [log[number]["id"] for number in numbers]


def test_a_page_ends_early_after_so_many_conversations_and_the_next_one_goes_on(store, begin, word, monkeypatch):
    monkeypatch.setattr(message_search, "MOST_CONVERSATIONS", 2)
    first = begin(message(word))
    for _ in range(5):
        begin(message("nothing"))

    pages = walk(store, Query(word))

    assert pages[:3] == [[], [], [(first, pages[2][0][1])]]
    assert flat(pages[3:]) == []


def test_a_page_ends_early_after_so_much_text_and_the_next_one_goes_on_within_the_conversation(
    store, begin, word, monkeypatch
):
    # Given a conversation whose text has two chunks, and a page that may scan one
    padding = "x" * 900_000
    log = [message(f"{word} {number} {padding}") for number in range(11)]
    conversation = begin(log[0])
    for one in log[1:]:
        store.events.append(conversation, as_events([one]))
    older = flat(walk(store, Query(word)))
    monkeypatch.setattr(message_search, "MOST_TEXT_BYTES", 1)

    pages = walk(store, Query(f"{word} 10"))

    assert older == [(conversation, one["id"]) for one in log]
    assert pages[:2] == [[], [(conversation, log[10]["id"])]]


def test_a_page_holds_a_bounded_number_of_bytes(store, begin, word):
    padding = "x" * 1_000_000
    log = [message(f"{word} {padding}") for _ in range(9)]
    conversation = begin(*log)

    pages = walk(store, Query(word))

    assert [len(page) for page in pages if page] == [4, 4, 1]
    assert flat(pages) == [(conversation, one["id"]) for one in log]
    assert 5 * len(json.dumps(log[0])) > PAGE_BYTES


def test_a_conversation_that_is_deleted_between_two_pages_ends_no_search(store, begin, word):
    older, deleted, newer = (begin(message(word), message(word)) for _ in range(3))
    [*_, last], start = store.conversations.message_search.page(Query(word), limit=3, start=None)
    assert last.conversation_id == deleted
    assert start.conversation_id == deleted

    store.conversations.delete(deleted)
    found, _ = store.conversations.message_search.page(Query(word), limit=100, start=start)

    assert [one.conversation_id for one in found] == [older, older]
    assert newer not in [one.conversation_id for one in found]


def test_a_conversation_that_is_deleted_while_a_page_is_read_is_left_out(store, begin, word, monkeypatch):
    older, deleted = begin(message(word)), begin(message(word))
    titles = store.conversations.message_search._titles

    def delete_first(found):
        with suppress(ConversationNotFound):  # from the second page on
            store.conversations.delete(deleted)
        return titles(found)

    monkeypatch.setattr(store.conversations.message_search, "_titles", delete_first)

    assert [conversation for conversation, _ in flat(walk(store, Query(word)))] == [older]


def test_messages_that_are_appended_between_two_pages_change_no_earlier_position(store, begin, word):
    conversation = begin(message(f"{word} 1"), message(f"{word} 2"))
    [first], start = store.conversations.message_search.page(Query(word), limit=1, start=None)
    store.events.append(conversation, as_events([message(f"{word} 3")]))
    begin(message(f"{word} of a newer conversation"))

    found, _ = store.conversations.message_search.page(Query(word), limit=100, start=start)

    assert [one.conversation_id for one in (first, *found)] == [conversation] * 3


def test_a_page_costs_a_round_trip_for_each_conversation_that_it_scans_or_shows(store, begin, word, monkeypatch):
    monkeypatch.setattr(message_search, "MOST_CONVERSATIONS", 10)
    for number in range(10):
        begin(message(word if number < 3 else "nothing"))
    store.conversations.message_search.page(Query(word), limit=100, start=None)

    with counted() as trips:
        found, _ = store.conversations.message_search.page(Query(word), limit=100, start=None)

    assert len(found) == 3
    assert trips.number == 1 + 10 + 1 + 3
