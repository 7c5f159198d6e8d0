"""Entries as the deciding scripts write them: canonical, chained, and in the order of their times."""

import json
from dataclasses import replace

import pytest

from admin.audit import verify
from store.approvals.audit import DecisionActor
from store.approvals.decisions import Decision
from store.link.attempts import Stamp
from tests.conftest import action, as_events

ADA = DecisionActor("key", "ada", "127.0.0.1")


@pytest.fixture
def waits(store, conversation):
    """Append an action that waits."""
    store.conversations.create(conversation, confirmation_policy={"kind": "AlwaysConfirm"})

    def waits(**members):
        one = action(**members)
        store.events.append(conversation, as_events([one]))
        return one["id"]

    return waits


@pytest.fixture
def entries(store, conversation):
    """The entries of the conversation, once they verify."""

    def read() -> list[dict]:
        lines, _ = store.approvals.audit.page(conversation, limit=100)
        assert verify(line + b"\n" for line in lines)[1] == len(lines)
        return [json.loads(line) for line in lines]

    return read


#: what people and agents write
WRITTEN = [
    *("", '"', "\\", "\x00\x1f\x7f", "ü", "\u2028\u2029", "😀", "\ufeff"),
    *("}{[],", '","hash":"00"', '","time":"9"}', "%d %s"),
]


def test_an_entry_is_canonical_whatever_people_and_agents_write(store, conversation, waits, entries):
    for text in WRITTEN:
        identifier = waits(id=text + "id", tool_name=text)
        store.approvals.confirmations.decide_each(
            conversation, [Decision(identifier, "reject", text)], DecisionActor("key", text, text)
        )

    found = entries()
    assert [one["action_ids"] for one in found] == [[text + "id"] for text in WRITTEN]
    assert [one["actor"] for one in found] == [{"kind": "key", "name": text, "address": text} for text in WRITTEN]
    assert [one["reason"] for one in found] == WRITTEN
    assert [one["previous"] for one in found[1:]] == [one["hash"] for one in found[:-1]]


def test_an_entry_says_what_was_decided_in_the_words_of_a_person(store, conversation, waits, entries):
    store.conversations.update(conversation, title="Mend the build")
    waits(action={"kind": "TerminalAction", "command": "rm -r build", "reset": False}, summary="Remove the build")
    store.approvals.confirmations.decide(conversation, accept=False, reason="", actor=ADA)
    waits(action={"kind": "FileEditorAction", "command": "view", "path": "src/a.py"}, tool_name="file_editor")
    store.approvals.confirmations.decide(conversation, accept=False, reason="", actor=ADA)
    waits(action={"kind": "OtherAction", "number": 1}, tool_name="other", summary=7)
    store.approvals.confirmations.decide(conversation, accept=False, reason="", actor=ADA)

    found = entries()
    assert {one["conversation_title"] for one in found} == {"Mend the build"}
    assert [one["shown"] for one in found] == [
        [{"tool_name": "terminal", "text": "rm -r build", "summary": "Remove the build"}],
        [{"tool_name": "file_editor", "text": "view src/a.py", "summary": None}],
        [{"tool_name": "other", "text": '{"number":1}', "summary": None}],
    ]


def test_an_entry_about_many_actions_describes_the_first_ones(store, conversation, waits, entries):
    for number in range(25):
        waits(action={"kind": "TerminalAction", "command": f"{number} {'x' * 400}"})
    store.approvals.confirmations.decide(conversation, accept=True, reason="", actor=ADA)

    (entry,) = entries()
    assert (len(entry["action_ids"]), len(entry["shown"])) == (25, 20)
    assert [len(one["text"]) for one in entry["shown"]] == [300] * 20
    assert entry["shown"][19]["text"].startswith("19 x")


def test_a_title_is_canonical_in_an_entry_whatever_it_says(store, conversation, waits, entries):
    for text in WRITTEN:
        store.conversations.update(conversation, title=text)
        waits()
        store.approvals.confirmations.decide(conversation, accept=False, reason="", actor=ADA)

    assert [one["conversation_title"] for one in entries()] == WRITTEN


def test_an_entry_is_never_before_the_one_that_it_follows(store, conversation, waits, entries, monkeypatch):
    store.approvals.confirmations.decide_each(conversation, [Decision(waits(), "approve")], ADA)
    late, hour = Stamp.now, 3_600_000_000
    monkeypatch.setattr(Stamp, "now", classmethod(lambda _: behind(late(), hour)))
    store.approvals.confirmations.decide_each(conversation, [Decision(waits(), "reject")], ADA)

    first, second = entries()
    assert second["time"] >= first["time"]


def behind(stamp, by):
    """A stamp of a worker whose clock is late."""
    return replace(stamp, at=stamp.at - by)


def test_the_audit_of_a_deleted_conversation_goes_on_with_the_next_of_its_id(store, conversation, waits, entries):
    waits()
    store.conversations.delete(conversation)
    redis, key = store.conversations._redis, f"conv:{{{conversation}}}:audit"
    assert redis.ttl(key) > 0

    store.conversations.create(conversation, confirmation_policy={"kind": "AlwaysConfirm"})
    one = action()
    store.events.append(conversation, as_events([one]))
    store.approvals.confirmations.decide_each(conversation, [Decision(one["id"], "approve")], ADA)

    assert [entry["decision"] for entry in entries()] == ["deleted", "approve"]
    assert redis.ttl(key) == -1
