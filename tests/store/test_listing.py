"""The listing of all conversations, driven against a model in plain Python; words about a conversation may come late,
in disorder or not at all, as from workers that stall or are killed between a script and its word to the listing."""

from contextlib import contextmanager, suppress
from typing import NamedTuple
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import wire
from store.errors import IllegalMove
from store.keys import ConversationKeys
from tests.conftest import as_events, event, status
from wire import EXECUTION_STATUSES, micros

ORDERS = [(by, descending) for by in ("created", "updated") for descending in (False, True)]
STATUSES = st.sampled_from([None, *EXECUTION_STATUSES[:4]])


@pytest.fixture
def listing(store, monkeypatch):
    """A listing of this test's own: the other one has every test's conversations."""
    monkeypatch.setattr("store.listing.LISTING", f"conversations:{{{uuid4()}}}")
    return store.conversations._listing


class Word(NamedTuple):
    """What the listing hears about a conversation; status "" when it is gone."""

    id: str
    revision: int
    status: str
    created: int
    updated: int


def truth(store, conversation_id):
    """The word that a conversation deserves; None if there is none."""
    [state] = store.conversations.get_many([conversation_id])
    if state is None:
        return None
    times = (micros(state[name]) for name in ("created_at", "updated_at"))
    return Word(conversation_id, int(state["revision"]), state["execution_status"], *times)


@contextmanager
def unheard(listing, words):
    """What is said to the listing meanwhile is not heard but collected."""
    said = listing._scripts

    class Collecting:
        def note_conversation(self, keys, args):
            words.append(Word(args[0], int(args[1]), args[2], int(args[3]), int(args[4])))

    listing._scripts = Collecting()
    try:
        yield
    finally:
        listing._scripts = said


def hear(listing, word):
    listing._scripts.note_conversation([listing_root()], list(word))


def listing_root():
    import store.listing

    return store.listing.LISTING


def searched(store, **query):
    """The ids of a search over all its pages."""
    found, start = [], None
    while True:
        items, start = store.conversations.search(**query, start=start)
        found += [item["id"] for item in items]
        if start is None:
            return found
