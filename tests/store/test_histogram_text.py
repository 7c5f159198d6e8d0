"""Histograms of the messages that contain a text, against counts of the same windows."""

import itertools
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.wire import event_time
from store.errors import ConversationNotFound
from tests.conftest import as_events, event
from tests.store.conversations.test_events import INSTANTS, edges_of, questions, window

TEXTS = ["The Straße", "strasse", "of the other", "none"]
SOURCES = ["user", "agent", "odd:source", "\u00e9"]


def message(text: str, source: str, at: int, kind: str = "MessageEvent") -> dict:
    said = {"role": "user", "content": [{"type": "text", "text": text}]}
    return {**event(kind, source), "timestamp": event_time(at), "llm_message": said}


messages = st.builds(
    message,
    st.sampled_from(TEXTS),
    st.sampled_from(SOURCES),
    st.sampled_from(INSTANTS),
    st.sampled_from(["MessageEvent", "MessageEvent", "ActionEvent"]),
)


def test_each_bucket_has_the_count_of_its_span_with_the_same_text(store, examples):
    texts = st.sampled_from(["STRASSE", "e", ""])

    @settings(max_examples=examples(15), deadline=None)
    @given(st.lists(messages, max_size=30), st.lists(questions, min_size=1, max_size=4), texts)
    def agrees(log, asked, body):
        conversation = str(uuid4())
        store.conversations.create(conversation)
        if log:
            store.events.append(conversation, as_events(log))

        for question in asked:
            found = store.events.histograms.of(conversation, body=body, **question)

            assert found.total == store.events.count(conversation, body=body, **window(question))
            if found.start is None:
                continue
            spans = list(itertools.pairwise(edges_of(found, question["buckets"])))
            for name, numbers in found.series.items():
                of = {question["by"]: name, "body": body}
                for (since, until), number in zip(spans, numbers, strict=True):
                    if number:
                        assert store.events.count(conversation, since=since, until=until, **of) == number

    agrees()


def test_a_text_leaves_the_window_as_it_is(store, conversation):
    first, second, *_, last = sorted(INSTANTS)
    log = [message("early", "user", first), message("the needle", "agent", second), message("late", "user", last)]
    store.events.append(conversation, as_events(log))

    whole = store.events.histograms.of(conversation, by="source", buckets=10)
    found = store.events.histograms.of(conversation, by="source", buckets=10, body="NEEDLE")

    assert (found.start, found.end) == (whole.start, whole.end)
    assert {name: sum(numbers) for name, numbers in found.series.items()} == {"agent": 1}


def test_a_text_that_no_message_has_leaves_no_series(store, conversation):
    store.events.append(conversation, as_events([event()]))

    assert store.events.histograms.of(conversation, by="kind", buckets=3, body="needle").series == {}


def test_a_histogram_by_text_of_an_unknown_conversation_is_not_found(store):
    with pytest.raises(ConversationNotFound):
        store.events.histograms.of(str(uuid4()), by="kind", buckets=3, body="needle")
