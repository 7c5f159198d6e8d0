"""The listing of all conversations against a model in plain Python. Notes of a conversation may be late,
out of order or lost, as from workers that stall or are killed between a script and their note to the listing."""

from contextlib import contextmanager, suppress
from typing import NamedTuple
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from core import wire
from core.wire import micros, utc_time
from store import listing as module
from store.errors import ConversationNotFound, IllegalMove
from tests.conftest import as_events, status

ORDERS = [(by, descending) for by in ("created", "updated", "title") for descending in (False, True)]
BOX = "box"
STATUSES = ("idle", "running", "paused", "finished")


class Note(NamedTuple):
    """A note to the listing about a conversation; the status is "" when the conversation is gone."""

    id: str
    revision: int
    status: str
    created: int
    updated: int
    groups: str = ""
    title: str | None = None


def truth(store, conversation_id):
    """The current note of a conversation; None if there is no such conversation."""
    [state] = store.conversations.get_many([conversation_id])
    if state is None:
        return None
    times = (micros(state[name]) for name in ("created_at", "updated_at"))
    return Note(
        conversation_id, int(state["revision"]), state["execution_status"], *times, state["groups"], state["title"]
    )


def deliver(listing, note):
    if note.status:
        times = utc_time(note.created), utc_time(note.updated)
        listing.note(note.id, note.revision, note.status, *times, note.groups, note.title)
    else:
        listing.forget(note.id, note.revision)


@contextmanager
def undelivered(listing):
    """The notes of the block, which do not reach the listing."""
    notes = []
    listing.note = lambda *note: notes.append(Note(*note[:3], *map(micros, note[3:5]), *note[5:]))
    listing.forget = lambda *note: notes.append(Note(*note, "", 0, 0))
    try:
        yield notes
    finally:
        del listing.note, listing.forget


def searched(store, limit=100, status=None, group=None, by="created", descending=True):
    """The ids of a search, over all its pages."""
    found, start, filters = [], None, module.ListingFilter(statuses=(status,) if status else (), group=group)
    while True:
        items, start = store.conversations.page(filters, by=by, descending=descending, limit=limit, start=start)
        found += [item["id"] for item in items]
        if start is None:
            return found


def machine(store, monkeypatch):
    listing = store.conversations._listing

    class Listed(RuleBasedStateMachine):
        """The model has the standing note of each conversation, and the notes that are not delivered yet."""

        def __init__(self):
            super().__init__()
            self.now = wire.now()
            monkeypatch.setattr(module.ListingKeys, "root", f"conversations:{{{uuid4()}}}")
            monkeypatch.setattr("core.wire.now", lambda: self.now)
            self.ids = [str(uuid4()) for _ in range(3)]
            self.lived, self.standing, self.late, self.complete = set(), {}, [], True
            self.gone = {}  #: id → creation and revision of the conversation that left the listing last

        @contextmanager
        def change(self, conversation_id, late, tie):
            """A request that changes a conversation, at the same instant as the last one or later."""
            if not tie or (conversation_id in self.lived and not truth(store, conversation_id)):
                self.now += 1_000_000
            with undelivered(listing) as notes, suppress(ConversationNotFound, IllegalMove):
                yield
            if notes and notes[-1].status:
                assert notes[-1] == truth(store, conversation_id)
                self.lived.add(conversation_id)
            if late:
                self.late += notes
            else:
                for note in notes:
                    self.deliver(note)

        def deliver(self, note):
            deliver(listing, note)
            standing = self.standing.get(note.id)
            if standing and standing.revision > note.revision:
                return
            created, last = self.gone.get(note.id, (None, None))
            if note.status and created == note.created and note.revision <= last:
                return
            self.standing.pop(note.id, None)
            if note.status:
                self.standing[note.id] = note
            elif standing:
                self.gone[note.id] = standing.created, note.revision

        @rule(number=st.integers(0, 2), late=st.booleans(), tie=st.booleans())
        def create(self, number, late, tie):
            with self.change(self.ids[number], late, tie):
                store.conversations.create(self.ids[number], sandbox_id=BOX)

        @rule(number=st.integers(0, 2), late=st.booleans(), tie=st.booleans(), value=st.sampled_from(STATUSES))
        def append(self, number, late, tie, value):
            with self.change(self.ids[number], late, tie):
                store.events.append(self.ids[number], as_events([status(value)]), sandbox_id=BOX)

        @rule(number=st.integers(0, 2), late=st.booleans(), tie=st.booleans(), title=st.sampled_from("aB\0ß"))
        def rename(self, number, late, tie, title):
            with self.change(self.ids[number], late, tie):
                store.conversations.update(self.ids[number], title=title)

        @rule(number=st.integers(0, 2), late=st.booleans(), tie=st.booleans(), verb=st.sampled_from(["run", "pause"]))
        def change_status(self, number, late, tie, verb):
            with self.change(self.ids[number], late, tie):
                store.conversations.change_status(self.ids[number], verb)

        @rule(number=st.integers(0, 2), late=st.booleans())
        def delete(self, number, late):
            with self.change(self.ids[number], late, tie=True):
                store.conversations.delete(self.ids[number])

        @precondition(lambda self: self.late)
        @rule(number=st.integers(0, 9))
        def deliver_late(self, number):
            self.deliver(self.late.pop(number % len(self.late)))

        @precondition(lambda self: self.late)
        @rule(number=st.integers(0, 9))
        def lose(self, number):
            self.late.pop(number % len(self.late))
            self.complete = False

        @rule(order=st.sampled_from(ORDERS), wanted=st.sampled_from([None, *STATUSES]), limit=st.integers(1, 3))
        def search(self, order, wanted, limit):
            by, descending = order
            notes = [note for note in self.standing.values() if wanted in (None, note.status)]
            sort_key = (lambda note: module.folded(note.title)) if by == "title" else (lambda note: getattr(note, by))
            notes.sort(key=lambda note: (sort_key(note), note.id), reverse=descending)
            now = {note.id: truth(store, note.id) for note in notes}

            found = searched(store, status=wanted, by=by, descending=descending, limit=limit)

            # an entry that is corrected while the pages are read may be at its new position too, also by `created`: its
            # conversation may have been deleted and created again
            found = list(dict.fromkeys(found))
            assert found == [note.id for note in notes if now[note.id] and wanted in (None, now[note.id].status)]
            for note in notes:
                self.put_right(note, now[note.id], wanted)

        def put_right(self, note, now, wanted):
            """Correct an entry as a search does that read it: a deleted conversation, or one of another status."""
            if now is None:
                left = self.standing.pop(note.id)
                self.gone[note.id] = left.created, left.revision
            elif wanted not in (None, now.status) or self.is_entered(now):
                self.standing[note.id] = now

        def is_entered(self, note):
            entries, _ = listing.page(module.ListingFilter(), by="created", descending=False, limit=10, start=None)
            return (note.id, note.revision) in [(entry.id, entry.revision) for entry in entries]

        @invariant()
        def counts_agree_with_the_standing_notes(self):
            for value in (None, *STATUSES):
                expected = sum(value in (None, note.status) for note in self.standing.values())
                assert store.conversations.count(status=value) == expected

        def teardown(self):
            # When all late notes are delivered, the newest first, and everything is read once
            while self.late:
                self.deliver(self.late.pop())
            self.search(("created", False), None, 3)

            # Then, if no note was lost, the listing is as if every note had been delivered in time
            expected = [now for now in (truth(store, one) for one in self.ids) if now]
            if self.complete:
                assert sorted(self.standing.values()) == sorted(expected)
            for order in ORDERS:
                self.search(order, None, 2)

    return Listed


def test_the_listing_agrees_with_the_model(store, in_parts, monkeypatch, examples):
    run_state_machine_as_test(
        machine(store, monkeypatch),
        settings=settings(
            max_examples=examples(12), stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.fixture
def listing(store, alone, in_parts):
    return store.conversations._listing


@pytest.fixture
def make(store, listing):
    """Create conversations, one after the other; their ids."""

    def make(number):
        ids = [str(uuid4()) for _ in range(number)]
        for one in ids:
            store.conversations.create(one)
        return ids

    return make


def counts(store):
    return {value: number for value in STATUSES if (number := store.conversations.count(status=value))}


def test_a_late_note_never_wins(store, listing, make):
    # Given a conversation that has run and paused since it began
    [one] = make(1)
    notes = [truth(store, one)]
    for verb in ("run", "pause"):
        store.conversations.change_status(one, verb)
        notes.append(truth(store, one))

    # When older notes are delivered again, also a note of the deletion
    for late in (notes[1], notes[0], Note(one, notes[1].revision, "", 0, 0)):
        deliver(listing, late)

    # Then the entry is unchanged
    assert counts(store) == {"paused": 1}
    assert searched(store, status="paused", by="updated") == [one]
    [entry], _ = listing.page(module.ListingFilter(), by="updated", descending=True, limit=9, start=None)
    assert (entry.id, entry.at, entry.revision) == (one, notes[2].updated, notes[2].revision)


def test_a_repeated_note_changes_nothing(store, listing, make):
    first, second = make(2)
    for note in (truth(store, first), truth(store, first)):
        deliver(listing, note)

    assert searched(store, by="created", descending=False) == [first, second]
    assert counts(store) == {"idle": 2}
    store.conversations.delete(first)
    for _ in range(2):
        listing.forget(first, 1 << 60)
    assert searched(store) == [second]
    assert counts(store) == {"idle": 1}


@pytest.mark.parametrize("query", [{}, {"status": "idle"}, {"by": "updated", "descending": False}])
def test_a_search_drops_the_entry_of_a_deleted_conversation(store, listing, make, query):
    # Given a conversation whose worker was killed after its deletion
    gone, other = make(2)
    with undelivered(listing):
        store.conversations.delete(gone)
    assert store.conversations.count() == 2

    assert searched(store, **query) == [other]

    assert store.conversations.count() == 1
    assert counts(store) == {"idle": 1}


def test_a_page_with_a_deleted_conversation_is_shorter_and_not_the_last(store, listing, make):
    gone, *others = make(3)
    with undelivered(listing):
        store.conversations.delete(gone)

    items, (_, following) = store.conversations.page(
        module.ListingFilter(), by="created", descending=False, limit=1, start=None
    )

    assert (items, following) == ([], others[0])
    assert searched(store, by="created", descending=False, limit=1) == others


@pytest.mark.parametrize("by", ["created", "updated"])
def test_a_search_for_a_status_corrects_a_stale_one(store, listing, make, by):
    # Given a conversation whose worker was killed after a run
    stale, _ = make(2)
    with undelivered(listing):
        store.conversations.change_status(stale, "run")
    assert stale not in searched(store, status="running", by=by)

    assert stale not in searched(store, status="idle", by=by)

    assert searched(store, status="running", by=by) == [stale]
    assert counts(store) == {"idle": 1, "running": 1}


@pytest.mark.parametrize("by", ["created", "updated"])
def test_any_search_corrects_a_stale_status_that_it_reads(store, listing, make, by):
    stale, _ = make(2)
    with undelivered(listing):
        store.conversations.change_status(stale, "run")

    assert stale in searched(store, by=by)

    assert searched(store, status="running", by=by) == [stale]
    assert counts(store) == {"idle": 1, "running": 1}


def test_a_retry_of_the_client_lists_a_change_that_was_not_acknowledged(store, listing):
    one = str(uuid4())
    with undelivered(listing):
        store.conversations.create(one)
    assert searched(store) == []

    assert store.conversations.create(one) is False
    assert searched(store) == [one]

    with undelivered(listing):
        store.conversations.change_status(one, "run")
    with pytest.raises(IllegalMove):
        store.conversations.change_status(one, "run")
    assert searched(store, status="running") == [one]


@pytest.mark.parametrize("value", ["idle", "paused"])
def test_an_id_that_is_started_again_has_its_new_position_whether_its_deletion_was_stored_or_not(
    store, listing, make, value
):
    # Given a deleted conversation, whose note reaches the listing late
    again, other = make(2)
    with undelivered(listing) as notes:
        store.conversations.delete(again)

    # When a conversation of its id begins, of the same status or another, and then the note is delivered
    store.events.append(again, as_events([status(value)]))
    deliver(listing, *notes)

    # Then it is listed after the older conversation, in either order
    for by in ("created", "updated"):
        assert searched(store, by=by, descending=False) == [other, again]
        assert searched(store, by=by, status=value)[0] == again
    [*_, entry], _ = listing.page(
        module.ListingFilter(statuses=(value,)), by="created", descending=False, limit=9, start=None
    )
    assert entry.at == truth(store, again).created


def test_a_write_that_is_noted_after_the_deletion_beside_it_brings_no_conversation_back(store, listing, alone):
    """A webhook and a DELETE of one moment: what counts conversations decides whether their sandbox ends."""
    one, box = str(uuid4()), "a-sandbox"
    store.conversations.create(one, sandbox_id=box, app={})
    former = truth(store, one)
    store.conversations.delete(one)

    deliver(listing, former)

    assert (store.conversations.in_sandboxes.in_sandbox(box), store.conversations.count(), counts(store)) == (0, 0, {})
    store.conversations.create(one, sandbox_id=box, app={})
    assert searched(store) == [one]
    assert store.conversations.in_sandboxes.in_sandbox(box) == 1
    store.conversations.delete(one)


def test_a_late_note_of_a_deleted_conversation_does_not_touch_a_new_one_of_its_id(store, listing, make):
    [one] = make(1)
    former = truth(store, one)
    store.conversations.delete(one)
    store.conversations.create(one)
    store.conversations.change_status(one, "run")

    for late in (former, Note(one, former.revision, "", 0, 0)):
        deliver(listing, late)

    assert searched(store, status="running") == [one]
    assert counts(store) == {"running": 1}
