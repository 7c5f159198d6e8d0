"""A page of events ends at 4 MiB, however many events were asked for."""

import json
from itertools import chain
from uuid import uuid4

import pytest

from store.errors import EventsTooLong
from store.log.frames import PAGE_BYTES
from tests.conftest import as_events, event, message

#: an event of a megabyte, nearly the longest one
LONG = "x" * 1_000_000


@pytest.fixture
def long_log(store, conversation):
    """Twelve events: every fourth one short, the others of a megabyte; their ids, in the order of time and of seq."""
    events = [message("short" if number % 4 == 3 else LONG) for number in range(12)]
    for number, one in enumerate(events):
        one["timestamp"] = f"2026-11-20T10:00:{number:02}"
        store.events.append(conversation, as_events([one]))
    return [one["id"] for one in events]


def pages(store, conversation, **query):
    """The ids of every page of a search."""
    page_id = None
    while True:
        events, page_id = store.events.search(conversation, **query, page_id=page_id)
        assert sum(map(len, events)) <= PAGE_BYTES
        yield [json.loads(one)["id"] for one in events]
        if page_id is None:
            return


def test_a_search_ends_its_page_early_and_continues_from_there(store, conversation, long_log):
    for query in ({}, {"body": ""}, {"kind": "MessageEvent"}):
        found = list(pages(store, conversation, **query, limit=100))
        assert list(chain(*found)) == long_log
        assert [len(page) for page in found] == [5, 5, 2]

        found = list(pages(store, conversation, **query, descending=True, limit=100))
        assert list(chain(*found)) == long_log[::-1]
        assert [len(page) for page in found] == [6, 5, 1]


def test_a_search_by_text_ends_its_page_early_too(store, conversation, long_log):
    found = list(pages(store, conversation, body="xxx", limit=100))

    assert list(chain(*found)) == [one for number, one in enumerate(long_log) if number % 4 != 3]
    assert [len(page) for page in found] == [4, 4, 1]


def test_events_far_apart_make_a_page(store, conversation):
    # Given matching events with fifty others between any two of them
    wanted = [event("Rare") for _ in range(20)]
    for one in wanted:
        store.events.append(conversation, as_events([one, *(event() for _ in range(50))]))

    found, following = store.events.search(conversation, kind="Rare", limit=100)

    assert [json.loads(one)["id"] for one in found] == [one["id"] for one in wanted]
    assert following is None


def test_a_read_after_a_seq_ends_its_page_early(store, conversation, long_log):
    found, seq = store.streams.events.read(conversation, 0, wait=0, limit=100)
    rest, last = store.streams.events.read(conversation, seq, wait=0, limit=100)

    assert [json.loads(one)["id"] for one in [*found, *rest]] == long_log[:10]
    assert (seq, last) == (5, 10)
    assert sum(map(len, found)) <= PAGE_BYTES


def test_a_batch_of_ids_whose_events_are_too_long_together_is_refused(store, conversation, long_log):
    few = [*long_log[:4], str(uuid4())]

    assert [one and json.loads(one)["id"] for one in store.events.get_many(conversation, few)] == [*few[:4], None]
    with pytest.raises(EventsTooLong, match=str(PAGE_BYTES)):
        store.events.get_many(conversation, long_log[:6])
