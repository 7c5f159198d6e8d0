"""Count and search against a model in plain Python, over random logs and all filters."""

import json
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import as_events, event, message
from wire import event_time, micros

# Few instants and few names, so that ties, repeats and empty results are the normal case.
INSTANTS = [micros(f"2026-11-20T10:00:0{n}.{n}00000") for n in range(5)] + [micros("1950-01-01"), micros("2250-12-31")]
TEXTS = ["", "Deploy", "STRASSE straße", "İstanbul", "a\x00b", "😀 emoji", "部署", "deploy the Deploy", "\udfff lone"]
NEEDLES = ["", "deploy", "STRASSE", "i̇stanbul", "b", "😀", "署", "absent", "\udfff", " "]
KINDS = ["MessageEvent", "ActionEvent", "my.module.MessageEvent", "odd:kind", "{x}"]
SOURCES = ["user", "agent", "odd:source", "*"]

instants = st.sampled_from(INSTANTS)


@st.composite
def logs(draw):
    """A few batches of events: any order in time, some ids repeated."""
    events = []
    for _ in range(draw(st.integers(0, 40))):
        at, source = event_time(draw(instants)), draw(st.sampled_from(SOURCES))
        kind = draw(st.sampled_from(KINDS))
        if kind == "MessageEvent":
            events.append({**message(draw(st.sampled_from(TEXTS)), source), "timestamp": at})
        else:
            events.append({**event(kind, source), "timestamp": at})
    repeats = draw(st.lists(st.sampled_from(events), max_size=3)) if events else []
    return [batch for batch in (events[:20], events[20:] + repeats) if batch]


filters = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["MessageEvent", "ActionEvent", "odd:kind", "nothing", ""]),
        "source": st.sampled_from([*SOURCES, "nobody"]),
        "body": st.sampled_from(NEEDLES),
        "since": instants,
        "until": instants,
    },
)


def passes(event: dict, *, kind=None, source=None, body=None, since=None, until=None) -> bool:
    bare = event["kind"].rpartition(".")[2]
    texts = [part["text"] for part in event.get("llm_message", {}).get("content", [])]
    at = micros(event["timestamp"])
    return (
        (kind is None or bare == kind)
        and (source is None or event["source"] == source)
        and (body is None or (bare == "MessageEvent" and body.casefold() in " ".join(texts).casefold()))
        and (since is None or at >= since)
        and (until is None or at < until)
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(logs(), st.lists(filters, min_size=1, max_size=6), st.integers(1, 7))
def test_count_and_every_page_agree_with_the_model(store, batches, questions, limit):
    conversation = str(uuid4())
    store.conversations.create(conversation)
    log: list[dict] = []
    for batch in batches:
        appended, seq = store.events.append(conversation, as_events(batch))
        new = [event for index, event in enumerate(batch) if event not in log and event not in batch[:index]]
        log += new
        assert (appended, seq) == (len(new), len(log))

    for question in questions:
        expected = [event for event in log if passes(event, **question)]
        expected.sort(key=lambda event: micros(event["timestamp"]))  # stable: ties keep the order of appending
        ids = [event["id"] for event in expected]

        assert store.events.count(conversation, **question) == len(ids)
        assert walk(store, conversation, question, limit, descending=False) == ids
        assert walk(store, conversation, question, limit, descending=True) == ids[::-1]


def walk(store, conversation, question, limit, *, descending) -> list[str]:
    """The ids of all pages, one after the other; each but the last is full."""
    ids: list[str] = []
    page_id = None
    while True:
        events, following = store.events.search(
            conversation, **question, limit=limit, page_id=page_id, descending=descending
        )
        ids += [json.loads(raw)["id"] for raw in events]
        if following is None:
            return ids
        assert len(events) == limit
        page_id = following


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(logs(), st.integers(0, 39), filters, st.booleans())
def test_a_page_may_begin_at_any_event_of_the_conversation(store, batches, index, question, descending):
    log = [event for batch in batches for event in batch]
    if not log:
        return
    conversation = str(uuid4())
    store.events.append(conversation, as_events(log))
    order = sorted({event["id"]: event for event in log}.values(), key=lambda event: micros(event["timestamp"]))
    cursor = log[index % len(log)]
    if descending:
        order.reverse()
        # A reversed stable sort would reverse ties twice: equal times are in reverse order of appending.
    following = order[order.index(cursor) :]

    events, _ = store.events.search(conversation, **question, page_id=cursor["id"], descending=descending, limit=100)

    assert [json.loads(raw)["id"] for raw in events] == [e["id"] for e in following if passes(e, **question)]


@pytest.mark.parametrize("filters", [{}, {"body": "far"}])
def test_times_beyond_exact_scores_still_page_without_loss(store, conversation, filters):
    # Given events a microsecond apart, where a score is exact to 64 µs only
    late = micros("9999-12-31T23:59:59.999")
    events = [{**message(f"far {number}"), "timestamp": event_time(late + number)} for number in range(9)]
    store.events.append(conversation, as_events(events))

    # Then events of equal scores keep the order of appending, and every page begins at its cursor
    expected = [event["id"] for event in events]
    assert walk(store, conversation, filters, 2, descending=False) == expected
    assert walk(store, conversation, filters, 2, descending=True) == expected[::-1]
    assert store.events.count(conversation, until=micros("9999-12-31"), **filters) == 0


def test_text_that_outgrows_a_chunk_is_still_found_once_each(store, conversation):
    # Given messages of a MiB each, so that the ninth lies in the second chunk
    padding = "x" * 900_000
    for number in range(11):
        store.events.append(conversation, as_events([message(f"needle {number} {padding}")]))

    # Then each is found, warm and cold, and only once
    for _ in range(2):
        assert store.events.count(conversation, body="NEEDLE") == 11
        assert store.events.count(conversation, body="needle 10 ") == 1


def test_the_text_of_a_deleted_conversation_is_not_found_in_its_successor(store, conversation):
    store.events.append(conversation, as_events([message("old words")]))
    assert store.events.count(conversation, body="old") == 1

    store.conversations.delete(conversation)
    store.events.append(conversation, as_events([message("new words, and more than before")]))

    assert store.events.count(conversation, body="old") == 0
    assert store.events.count(conversation, body="words") == 1


def test_the_text_kept_by_a_worker_stays_within_its_bound(store):
    text = store.events._text
    bound = text._cache_bytes
    try:
        text._cache_bytes = 1000
        for _ in range(3):
            other = str(uuid4())
            store.events.append(other, as_events([message("y" * 600)]))
            assert store.events.count(other, body="yy") == 1
        assert text._size <= 1000
        assert text._size == sum(len(chunk) for _, chunk in text._cached.values())
    finally:
        text._cache_bytes = bound


def spoken(text: str, at: int, source: str = "agent") -> dict:
    return {**message(text, source), "timestamp": event_time(at)}


def finished(text: str, at: int, source: str = "agent") -> dict:
    details = {"kind": "FinishAction", "message": text}
    return {**event("ActionEvent", source, action=details), "timestamp": event_time(at)}


word = st.tuples(st.sampled_from([spoken, finished]), instants, st.sampled_from(["agent", "user"]))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(word, min_size=1, max_size=12), st.integers(1, 4))
def test_the_final_response_is_the_agents_last_message_by_time_then_by_appending(store, spoken_words, size):
    conversation = str(uuid4())
    log = [make(str(number), at, source) for number, (make, at, source) in enumerate(spoken_words)]
    for start in range(0, len(log), size):
        store.events.append(conversation, as_events(log[start : start + size]))
    agents = [(at, number) for number, (_, at, source) in enumerate(spoken_words) if source == "agent"]

    assert store.events.final_response(conversation) == (str(max(agents)[1]) if agents else "")
    assert store.events.final_response(store.forks.fork(conversation)) == store.events.final_response(conversation)


def test_the_final_response_of_a_copy_up_to_an_event_is_that_of_the_log_up_to_there(store, conversation):
    first, second = finished("first", INSTANTS[0]), finished("second", INSTANTS[1])
    store.events.append(conversation, as_events([first, second]))

    assert store.events.final_response(store.forks.fork(conversation, from_event_id=first["id"])) == "first"


@pytest.mark.parametrize("direction", [1, -1, 0], ids=["ascending", "descending", "disorder"])
def test_the_cursor_before_a_time_lies_less_than_a_thousand_events_before_the_first_of_that_time(
    store, conversation, direction
):
    # Given 3,500 events, a second apart or in disorder
    seconds = [n * direction if direction else n * 7919 % 3500 for n in range(3500)]
    times = [micros("2026-11-20T10:00") + second * 1_000_000 for second in seconds]
    log = [event(timestamp=event_time(at)) for at in times]
    for start in range(0, len(log), 500):
        store.events.append(conversation, as_events(log[start : start + 500]))

    # Then every time up to that of the last event has a cursor
    for since in (min(times) - 1, *times[::250], *(at + 1 for at in times[::250])):
        first = next((seq for seq, at in enumerate(times, 1) if at >= since), None)
        cursor = store.events.cursor_before(conversation, since)
        assert cursor is None if first is None else 0 <= first - 1 - cursor < 1000
    assert store.events.cursor_before(conversation, max(times) + 1) is None
