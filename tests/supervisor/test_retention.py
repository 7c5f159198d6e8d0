"""Retention: what has rested for long enough is deleted, and nothing that runs, waits or has changed."""

import json
import logging
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from agents.commands import Commands
from core import wire
from settings import ConfigError
from settings.config import Config
from store.approvals.audit import DecisionActor
from store.keys import ConversationKeys
from supervisor import keeping
from supervisor.keeping import Retention
from tests.agents import SPECS, agent_client, running_sandbox, scripted_agent
from tests.conftest import action, as_events, event
from tests.refusals import taken

HEAD = {
    "execution_status": "idle",
    "title": "Old",
    "tags": {},
    "stats": {},
    "info": {},
    "confirmation_policy": {"kind": "NeverConfirm"},
    "confirmation_seconds": None,
    "security_analyzer": None,
    "unapproved_resumes": 0,
}


@pytest.fixture
def sweep(store, monkeypatch):
    """Sweep the whole list, as if it were so many days later; the settings are given."""

    def swept(days_later: float = 0, **settings) -> None:
        present = wire.now()
        monkeypatch.setattr(
            store.link.health, "clock", lambda: wire.Micros(present + round(days_later * 86_400_000_000))
        )
        commands = Commands(store, agent_client(2), SPECS)
        retention = Retention(store, commands, Config.of(redis_url="redis://unused", **settings).keeping)
        for _ in range(1 + store.conversations.count() // keeping.RETENTION_PART):
            retention.sweep()
            if retention._start is None:
                return

    return swept


@pytest.fixture
def made(store):
    """Make a conversation, with a tag that no other test has: other tests' conversations are older."""

    def make(**members) -> str:
        identity = str(uuid4())
        store.conversations.create(identity, **members)
        return identity

    return make


def left(store, *ids: str) -> list[bool]:
    return [state is not None for state in store.conversations.get_many(list(ids))]


def tag() -> str:
    return uuid4().hex


def test_what_has_rested_for_long_enough_is_deleted_and_logged(store, sweep, made, caplog):
    mine = tag()
    old = made(tags={mine: ""})
    store.events.append(old, as_events([event()]))

    sweep(29, retention_tags=(f"{mine}:30",))
    assert left(store, old) == [True]

    with caplog.at_level(logging.INFO, "supervisor"):
        sweep(31, retention_tags=(f"{mine}:30",))
    assert left(store, old) == [False]
    assert f"conversation {old} was deleted: at rest since " in caplog.text
    assert "kept for 30 days" in caplog.text


def test_a_conversation_that_cannot_be_deleted_holds_up_no_other(store, sweep, made, caplog, monkeypatch):
    mine = tag()
    first, second = made(tags={mine: ""}), made(tags={mine: ""})
    delete = keeping.delete_unchanged

    def failing(commands, state):
        if state["id"] == first:
            raise RuntimeError("a fault")
        return delete(commands, state)

    monkeypatch.setattr(keeping, "delete_unchanged", failing)
    sweep(31, retention_tags=(f"{mine}:30",))

    assert left(store, first, second) == [True, False]
    assert f"the conversation {first} cannot be deleted" in caplog.text


def test_tags_say_otherwise_and_the_longest_counts(store, sweep, made):
    mine, kept = tag(), tag()
    short = made(tags={mine: "x"})
    longer = made(tags={mine: "alpha"})
    for_ever = made(tags={mine: "x", kept: ""})

    sweep(10, retention_tags=(f"{mine}:7", f"{mine}=alpha:30", f"{kept}:0"))

    assert left(store, short, longer, for_ever) == [False, True, True]


@pytest.mark.parametrize(
    ("tags", "days"),
    [
        ({}, 30),
        ({"trial": ""}, 7),
        ({"trial": "", "p": "a"}, 365),
        ({"keep": "", "p": "a"}, 0),
        ({"p": "b"}, 30),
    ],
)
def test_the_days_of_a_conversation_follow_from_the_settings(tags, days):
    settings = Config.of(
        redis_url="redis://unused", retention_days=30, retention_tags=("trial:7", "p=a:365", "keep:0")
    ).keeping

    assert settings.retention_of(tags) == days
    assert settings.shortest_retention == 7


def test_without_a_setting_nothing_is_asked_and_nothing_deleted(store, made, monkeypatch):
    old = made()
    monkeypatch.setattr(store.conversations, "page", None)

    Retention(store, Commands(store, agent_client(2), SPECS), Config.of(redis_url="redis://unused").keeping).sweep()

    assert left(store, old) == [True]


def test_nothing_that_runs_or_waits_for_a_decision_is_deleted(store, sweep, made):
    mine = tag()
    waits = made(tags={mine: ""}, confirmation_policy={"kind": "AlwaysConfirm"})
    store.events.append(waits, as_events([action()]))
    runs, rests = made(tags={mine: ""}), made(tags={mine: ""})
    store.conversations.change_status(runs, "run")

    sweep(100, retention_tags=(f"{mine}:1",))

    assert left(store, waits, runs, rests) == [True, True, False]
    assert store.approvals.confirmations.pending(waits)


def test_a_parent_stays_until_its_children_are_gone(store, sweep, made):
    mine, box = tag(), str(uuid4())
    parent = made(sandbox_id=box, tags={mine: ""})
    child = made(sandbox_id=box, app={"parent_conversation_id": parent}, tags={mine: "young"})

    sweep(10, retention_tags=(f"{mine}:1", f"{mine}=young:30"))
    assert left(store, parent, child) == [True, True]

    sweep(40, retention_tags=(f"{mine}:1", f"{mine}=young:30"))
    sweep(40, retention_tags=(f"{mine}:1", f"{mine}=young:30"))
    assert left(store, parent, child) == [False, False]


def test_a_conversation_that_a_message_waits_for_stays(store, sweep, made):
    mine = tag()
    old = made(sandbox_id=str(uuid4()), tags={mine: ""})
    store.conversations.queued_messages.put(
        old, content=[{"type": "text", "text": "x"}], actor=DecisionActor("key", "k")
    )

    sweep(10, retention_tags=(f"{mine}:1",))
    assert left(store, old) == [True]

    store.conversations.queued_messages.drop(old)
    sweep(10, retention_tags=(f"{mine}:1",))
    assert left(store, old) == [False]


def test_what_changes_after_its_age_was_read_stays_whole_and_keeps_its_place(store, sweep, made, monkeypatch):
    mine, box = tag(), str(uuid4())
    old = made(sandbox_id=box, tags={mine: ""})
    deletes = store.conversations.delete

    def changed_meanwhile(conversation_id, **options):
        store.events.append(old, as_events([event()]), sandbox_id=box)
        return deletes(conversation_id, **options)

    with monkeypatch.context() as patched:
        patched.setattr(store.conversations, "delete", changed_meanwhile)
        sweep(10, retention_tags=(f"{mine}:1",))

    assert left(store, old) == [True]
    assert store.events.count(old) == 1


def test_its_agent_is_told_and_its_sandbox_goes_with_the_last_conversation(store, sweep):
    mine = tag()
    with scripted_agent() as agent, running_sandbox(store, agent.url) as sandbox:
        first, last = str(uuid4()), str(uuid4())
        for one, label in ((first, "a"), (last, "b")):
            store.conversations.create(one, sandbox_id=sandbox.id, tags={mine: label})

        sweep(10, retention_tags=(f"{mine}=a:1",))
        assert left(store, first, last) == [False, True]
        assert store.sandboxes.get(sandbox.id).wanted != "deleted"

        sweep(10, retention_tags=(f"{mine}:1",))
        assert left(store, first, last) == [False, False]
        assert store.sandboxes.get_many([sandbox.id])[0].wanted == "deleted"
        told = [path for path, _ in agent.requests if path.startswith("DELETE")]
        assert told == [f"DELETE /api/conversations/{one}" for one in (first, last)]


def test_the_age_of_an_import_begins_with_the_import(store, sweep):
    mine, identity = tag(), str(uuid4())
    year_ago = wire.micros((datetime.now(UTC) - timedelta(days=365)).isoformat())
    head = {**HEAD, "tags": {mine: ""}, "created_at": year_ago, "updated_at": year_ago}
    assert store.conversations.exports.load(identity, json.loads(json.dumps(head)), iter(as_events([event()])))

    sweep(29, retention_tags=(f"{mine}:30",))
    assert left(store, identity) == [True]

    sweep(31, retention_tags=(f"{mine}:30",))
    assert left(store, identity) == [False]


def test_a_sweep_looks_at_a_part_and_the_next_one_goes_on(store, made, monkeypatch):
    mine = tag()
    ids = [made(tags={mine: ""}) for _ in range(5)]
    present = wire.now()
    monkeypatch.setattr(store.link.health, "clock", lambda: wire.Micros(present + 10 * 86_400_000_000))
    monkeypatch.setattr(keeping, "RETENTION_PART", 2)
    settings = Config.of(redis_url="redis://unused", retention_tags=(f"{mine}:1",)).keeping
    retention = Retention(store, Commands(store, agent_client(2), SPECS), settings)

    first = store.conversations.get(ids[0])
    retention._start = (wire.micros(first["updated_at"]), ids[0])  # other tests' conversations are older

    remaining = []
    while retention._start is not None and len(remaining) < 5:
        retention.sweep()
        remaining.append(sum(left(store, *ids)))

    assert remaining[:3] == [3, 1, 0]


def test_a_wrong_term_is_refused_and_named():
    def configured(term: str) -> Config:
        return Config.of(redis_url="redis://unused", retention_tags=(term,))

    terms = ("trial", "trial:", "Trial:7", "a b:7", "trial:x", "trial:-1", "trial:36501", ":7")
    assert taken(terms, configured, ConfigError, "RETENTION_TAGS must be NAME:DAYS") == []


@pytest.mark.parametrize(("field", "value"), [("tags", "{"), ("info", "[]"), ("title", b"\xff"), ("revision", "x")])
def test_a_conversation_that_cannot_be_read_keeps_none_of_the_others_and_is_named(
    store, sweep, made, caplog, field, value
):
    mine = tag()
    broken, due = made(tags={mine: ""}), made(tags={mine: ""})
    root = ConversationKeys(broken).root
    [right] = store.events._redis.hmget(root, field)
    store.events._redis.hset(root, field, value)

    sweep(31, retention_tags=(f"{mine}:30",))

    store.events._redis.hset(root, field, right)
    assert left(store, broken, due) == [True, False]
    assert f"the conversation {broken} cannot be read" in caplog.text
