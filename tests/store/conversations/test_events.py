"""Count and search against a model in plain Python, over random logs and all filters."""

import itertools
import json
from datetime import timedelta
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.wire import bare_kind, event_time, micros
from store.conversations.events import MOST_SERIES, OTHER
from store.errors import ConversationNotFound
from store.log.text import MessageText, count
from tests.conftest import as_events, event, message, recorded
from tests.round_trips import counted

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


def test_count_and_every_page_agree_with_the_model(store, examples):
    @settings(max_examples=examples(30), deadline=None)
    @given(logs(), st.lists(filters, min_size=1, max_size=6), st.integers(1, 7))
    def agree(batches, questions, limit):
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

    agree()


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


def test_a_page_may_begin_at_any_event_of_the_conversation(store, examples):
    @settings(max_examples=examples(20), deadline=None)
    @given(logs(), st.integers(0, 39), filters, st.booleans())
    def begins(batches, index, question, descending):
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

        page = {"page_id": cursor["id"], "descending": descending, "limit": 100}
        events, _ = store.events.search(conversation, **question, **page)

        assert [json.loads(raw)["id"] for raw in events] == [e["id"] for e in following if passes(e, **question)]

    begins()


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
        text._cache_bytes = 3000
        for _ in range(3):
            other = str(uuid4())
            store.events.append(other, as_events([message("y" * 600)]))
            assert store.events.count(other, body="yy") == 1
        assert text._size <= 3000
        assert text._size == sum(chunk.cost for chunk in text._cached.values())
        assert len(text._cached) == 2
    finally:
        text._cache_bytes = bound


def test_conversations_without_a_text_cost_the_cache_something_too(store):
    text = MessageText(store.events._redis, 5000)
    for _ in range(20):
        other = str(uuid4())
        store.events.append(other, as_events([event()]))
        assert list(text.pieces(other)) == []

    assert len(text._cached) < 10


def test_a_text_that_grows_is_not_copied_as_a_whole(store, conversation):
    text = MessageText(store.events._redis, 10_000_000)
    store.events.append(conversation, as_events([message("x" * 300_000) for _ in range(3)]))
    before = list(text.pieces(conversation))

    for _ in range(3):
        store.events.append(conversation, as_events([message("y" * 1000)]))
        grown = list(text.pieces(conversation))

    assert [len(piece) // 300_000 for piece in grown] == [1, 1, 1, 0]
    assert all(one is other for one, other in zip(grown, before, strict=False))
    assert sum(count(piece, b"yy") for piece in grown) == 3


def spoken(text: str, at: int, source: str = "agent") -> dict:
    return {**message(text, source), "timestamp": event_time(at)}


def finished(text: str, at: int, source: str = "agent") -> dict:
    details = {"kind": "FinishAction", "message": text}
    return {**event("ActionEvent", source, action=details), "timestamp": event_time(at)}


word = st.tuples(st.sampled_from([spoken, finished]), instants, st.sampled_from(["agent", "user"]))


def test_the_final_response_is_the_agents_last_message_by_time_then_by_appending(store, examples):
    @settings(max_examples=examples(20), deadline=None)
    @given(st.lists(word, min_size=1, max_size=12), st.integers(1, 4))
    def agrees(spoken_words, size):
        conversation = str(uuid4())
        log = [make(str(number), at, source) for number, (make, at, source) in enumerate(spoken_words)]
        for start in range(0, len(log), size):
            store.events.append(conversation, as_events(log[start : start + size]))
        agents = [(at, number) for number, (_, at, source) in enumerate(spoken_words) if source == "agent"]

        assert store.events.final_response(conversation) == (str(max(agents)[1]) if agents else "")
        assert store.events.final_response(store.conversations.forks.fork(conversation)) == store.events.final_response(
            conversation
        )

    agrees()


def test_the_final_response_of_a_copy_up_to_an_event_is_that_of_the_log_up_to_there(store, conversation):
    first, second = finished("first", INSTANTS[0]), finished("second", INSTANTS[1])
    store.events.append(conversation, as_events([first, second]))

    assert (
        store.events.final_response(store.conversations.forks.fork(conversation, from_event_id=first["id"])) == "first"
    )


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


TEN = micros("2026-11-20T10:00:00")

#: close together, a day away, and where scores are no longer exact
MOMENTS = [TEN + shift for shift in (0, 1, 2, 3, 59, 1000, 60_000_000, 86_400_000_000)] + [micros("1950-01-01")]
KINDS_IN_TIME = ["MessageEvent", "ActionEvent", "odd:kind", "{x}", OTHER]

moments = st.sampled_from(MOMENTS)
events = st.builds(
    lambda at, kind, source: {**event(kind, source), "timestamp": event_time(at)},
    moments,
    st.sampled_from(KINDS_IN_TIME),
    st.sampled_from(["user", "agent", "odd:source"]),
)
questions = st.fixed_dictionaries(
    {"by": st.sampled_from(["kind", "source"]), "buckets": st.integers(1, 200)},
    optional={"since": moments, "until": moments},
)


def window(question: dict) -> dict:
    return {name: question[name] for name in ("since", "until") if name in question}


def edges_of(found, buckets: int) -> list[int]:
    """The first time of each bucket, in whole microseconds."""
    span = found.end - found.start
    return [found.start + -(-number * span // buckets) for number in range(buckets + 1)]


def model(log: list[dict], found, by: str, buckets: int) -> dict[str, list[int]]:
    edges, series = edges_of(found, buckets), {}
    for one in log:
        at = micros(one["timestamp"])
        if found.start <= at < found.end:
            [number] = [i for i in range(buckets) if edges[i] <= at < edges[i + 1]]
            series.setdefault(one[by], [0] * buckets)[number] += 1
    return series


def test_every_event_of_the_window_is_in_one_bucket_and_the_sum_is_the_count(store, examples):
    @settings(max_examples=examples(16), deadline=None)
    @given(st.lists(events, max_size=40), st.lists(questions, min_size=1, max_size=6))
    def agrees(log, asked):
        conversation = str(uuid4())
        store.conversations.create(conversation)
        if log:
            store.events.append(conversation, as_events(log))

        for question in asked:
            found = store.events.histograms.of(conversation, **question)

            assert found.total == store.events.count(conversation, **window(question))
            assert all(len(numbers) == question["buckets"] and any(numbers) for numbers in found.series.values())
            if found.start is not None:
                assert found.series == model(log, found, question["by"], question["buckets"])
                for name, numbers in found.series.items():
                    assert sum(numbers) == store.events.count(
                        conversation, **{question["by"]: name}, since=found.start, until=found.end
                    )

    agrees()


@pytest.mark.parametrize("name", ["never_confirm", "pending"])
@pytest.mark.parametrize(("by", "buckets"), [("kind", 1), ("source", 7), ("kind", 200)])
def test_each_bucket_of_a_recorded_log_has_the_count_of_its_span(store, conversation, name, by, buckets):
    log = recorded(name)
    store.events.append(conversation, as_events(log))

    found = store.events.histograms.of(conversation, by=by, buckets=buckets)

    assert found.total == len(log)
    assert found.start == min(micros(one["timestamp"]) for one in log)
    assert found.end == max(micros(one["timestamp"]) for one in log) + 1
    assert found.bucket_seconds == pytest.approx((found.end - found.start) / 1e6 / buckets)
    assert set(found.series) == {bare_kind(one[by]) for one in log}
    edges = edges_of(found, buckets)
    for series, numbers in found.series.items():
        counts = [
            store.events.count(conversation, **{by: series}, since=since, until=until)
            for since, until in itertools.pairwise(edges)
        ]
        assert numbers == counts


def test_the_most_frequent_name_comes_first(store, conversation):
    log = [event("Rare"), *(event("Frequent") for _ in range(3)), event("Also")]
    store.events.append(conversation, as_events(log))

    found = store.events.histograms.of(conversation, by="kind", buckets=1)

    assert list(found.series.items()) == [("Frequent", [3]), ("Also", [1]), ("Rare", [1])]


@pytest.mark.parametrize("names", [MOST_SERIES, MOST_SERIES + 1, 100])
def test_an_agent_that_makes_up_names_gets_a_bounded_number_of_series(store, conversation, names):
    # Given one event of the kind K000, two of K001 …
    log = [event(f"K{number:03}") for number in range(names) for _ in range(1 + number % 40)]
    store.events.append(conversation, as_events(log))

    found = store.events.histograms.of(conversation, by="kind", buckets=3)

    assert len(found.series) == MOST_SERIES
    assert found.total == len(log)
    assert (list(found.series)[-1] == OTHER) is (names > MOST_SERIES)


def test_a_conversation_without_events_has_no_series_and_no_window(store, conversation):
    store.conversations.create(conversation)

    found = store.events.histograms.of(conversation, by="kind", buckets=60)

    assert (found.start, found.end, found.bucket_seconds, found.series, found.total) == (None, None, 0, {}, 0)


def test_a_window_that_ends_before_it_begins_is_empty(store, conversation):
    store.events.append(conversation, as_events([event()]))

    found = store.events.histograms.of(conversation, by="kind", buckets=60, since=micros("2030-01-01"))

    assert (found.start, found.end, found.series) == (micros("2030-01-01"), micros("2030-01-01"), {})


def test_buckets_that_are_narrower_than_a_microsecond_hold_each_event_once(store, conversation):
    # Given three events within two microseconds, and 200 buckets
    log = [{**event(), "timestamp": event_time(TEN + shift)} for shift in (0, 1, 1)]
    store.events.append(conversation, as_events(log))

    [numbers] = store.events.histograms.of(conversation, by="kind", buckets=200).series.values()

    assert {i: number for i, number in enumerate(numbers) if number} == {0: 1, 100: 2}


def test_times_beyond_exact_scores_are_counted_too(store, conversation):
    late = micros("9999-12-31T23:59:59.999999")
    log = [{**event(), "timestamp": event_time(late - shift)} for shift in (0, 1, 2, 400)]
    store.events.append(conversation, as_events(log))

    assert store.events.histograms.of(conversation, by="kind", buckets=60).total == len(log)


def test_an_unknown_conversation_has_no_histogram(store, conversation):
    with pytest.raises(ConversationNotFound):
        store.events.histograms.of(conversation, by="kind", buckets=60)


def test_the_usual_kinds_cost_one_round_trip_and_very_many_a_few_bounded_ones(store, conversation):
    # Given 40 pairs that have an event in each of 200 buckets: nearly 8,000 counts
    start = micros("2026-11-20")
    second = timedelta(seconds=1) // timedelta(microseconds=1)
    log = [{**event(f"K{k:02}"), "timestamp": event_time(start + i * second)} for i in range(200) for k in range(40)]
    for first in range(0, len(log), 500):
        store.events.append(conversation, as_events(log[first : first + 500]))
    few = str(uuid4())
    store.events.append(few, as_events([one for one in log if one["kind"] < "K12"][:500]))
    for each in (few, conversation):
        store.events.histograms.of(each, by="kind", buckets=200)

    with counted() as trips:
        store.events.histograms.of(few, by="kind", buckets=200)
    assert trips.number == 1
    with counted() as trips:
        found = store.events.histograms.of(conversation, by="kind", buckets=200)

    assert trips.number == 2
    assert found.total == len(log)
    assert found.series["K00"] == [1] * 200
    assert found.series[OTHER] == [21] * 200
