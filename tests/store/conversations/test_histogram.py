"""Histograms against a model in plain Python, and against counts of the same windows."""

import itertools
from datetime import timedelta
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.conversations.histogram import MOST_SERIES, OTHER
from store.errors import ConversationNotFound
from tests.conftest import as_events, event, recorded
from tests.round_trips import counted
from wire import bare_kind, event_time, micros

TEN = micros("2026-11-20T10:00:00")

#: close together, a day away, and where scores are no longer exact
INSTANTS = [TEN + shift for shift in (0, 1, 2, 3, 59, 1000, 60_000_000, 86_400_000_000)] + [micros("1950-01-01")]
KINDS = ["MessageEvent", "ActionEvent", "odd:kind", "{x}", OTHER]

instants = st.sampled_from(INSTANTS)
events = st.builds(
    lambda at, kind, source: {**event(kind, source), "timestamp": event_time(at)},
    instants,
    st.sampled_from(KINDS),
    st.sampled_from(["user", "agent", "odd:source"]),
)
questions = st.fixed_dictionaries(
    {"by": st.sampled_from(["kind", "source"]), "buckets": st.integers(1, 200)},
    optional={"since": instants, "until": instants},
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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(events, max_size=40), st.lists(questions, min_size=1, max_size=6))
def test_every_event_of_the_window_is_in_one_bucket_and_the_sum_is_the_count(store, log, asked):
    conversation = str(uuid4())
    store.conversations.create(conversation)
    if log:
        store.events.append(conversation, as_events(log))

    for question in asked:
        found = store.histograms.of(conversation, **question)

        assert found.total == store.events.count(conversation, **window(question))
        assert all(len(numbers) == question["buckets"] and any(numbers) for numbers in found.series.values())
        if found.start is not None:
            assert found.series == model(log, found, question["by"], question["buckets"])
            for name, numbers in found.series.items():
                assert sum(numbers) == store.events.count(
                    conversation, **{question["by"]: name}, since=found.start, until=found.end
                )


@pytest.mark.parametrize("name", ["never_confirm", "pending"])
@pytest.mark.parametrize("by", ["kind", "source"])
@pytest.mark.parametrize("buckets", [1, 7, 200])
def test_each_bucket_of_a_recorded_log_has_the_count_of_its_span(store, conversation, name, by, buckets):
    log = recorded(name)
    store.events.append(conversation, as_events(log))

    found = store.histograms.of(conversation, by=by, buckets=buckets)

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

    found = store.histograms.of(conversation, by="kind", buckets=1)

    assert list(found.series.items()) == [("Frequent", [3]), ("Also", [1]), ("Rare", [1])]


@pytest.mark.parametrize("names", [MOST_SERIES, MOST_SERIES + 1, 100])
def test_an_agent_that_makes_up_names_gets_a_bounded_number_of_series(store, conversation, names):
    # Given one event of the kind K000, two of K001 …
    log = [event(f"K{number:03}") for number in range(names) for _ in range(1 + number % 40)]
    store.events.append(conversation, as_events(log))

    found = store.histograms.of(conversation, by="kind", buckets=3)

    assert len(found.series) == MOST_SERIES
    assert found.total == len(log)
    assert (list(found.series)[-1] == OTHER) is (names > MOST_SERIES)


def test_a_conversation_without_events_has_no_series_and_no_window(store, conversation):
    store.conversations.create(conversation)

    found = store.histograms.of(conversation, by="kind", buckets=60)

    assert (found.start, found.end, found.bucket_seconds, found.series, found.total) == (None, None, 0, {}, 0)


def test_a_window_that_ends_before_it_begins_is_empty(store, conversation):
    store.events.append(conversation, as_events([event()]))

    found = store.histograms.of(conversation, by="kind", buckets=60, since=micros("2030-01-01"))

    assert (found.start, found.end, found.series) == (micros("2030-01-01"), micros("2030-01-01"), {})


def test_buckets_that_are_narrower_than_a_microsecond_hold_each_event_once(store, conversation):
    # Given three events within two microseconds, and 200 buckets
    log = [{**event(), "timestamp": event_time(TEN + shift)} for shift in (0, 1, 1)]
    store.events.append(conversation, as_events(log))

    [numbers] = store.histograms.of(conversation, by="kind", buckets=200).series.values()

    assert {i: number for i, number in enumerate(numbers) if number} == {0: 1, 100: 2}


def test_times_beyond_exact_scores_are_counted_too(store, conversation):
    late = micros("9999-12-31T23:59:59.999999")
    log = [{**event(), "timestamp": event_time(late - shift)} for shift in (0, 1, 2, 400)]
    store.events.append(conversation, as_events(log))

    assert store.histograms.of(conversation, by="kind", buckets=60).total == len(log)


def test_an_unknown_conversation_has_no_histogram(store, conversation):
    with pytest.raises(ConversationNotFound):
        store.histograms.of(conversation, by="kind", buckets=60)


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
        store.histograms.of(each, by="kind", buckets=200)

    with counted() as trips:
        store.histograms.of(few, by="kind", buckets=200)
    assert trips.number == 1
    with counted() as trips:
        found = store.histograms.of(conversation, by="kind", buckets=200)

    assert trips.number == 2
    assert found.total == len(log)
    assert found.series["K00"] == [1] * 200
    assert found.series[OTHER] == [21] * 200
