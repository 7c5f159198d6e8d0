"""An app conversation is deleted with its children and their start tasks, even if a process is killed in between."""

from uuid import uuid4

import pytest

from agents.commands import Commands
from agents.deletions import delete, delete_with_children
from store.errors import ConversationNotFound
from tests.agents import SPECS, agent_client


@pytest.fixture
def commands(store):
    return Commands(store, agent_client(2), SPECS)


@pytest.fixture
def family(store):
    """A parent, 103 children and a child of one of them, in a sandbox that is gone; their ids."""
    parent, *children = (str(uuid4()) for _ in range(104))
    box = str(uuid4())
    store.conversations.create(parent, sandbox_id=box, app={"start_id": "first"})
    for number, child in enumerate(children):
        app = {"parent_conversation_id": parent, "start_id": f"start {number}"}
        store.conversations.create(child, sandbox_id=box, app=app)
    grandchild = str(uuid4())
    store.conversations.create(grandchild, sandbox_id=box, app={"parent_conversation_id": children[0]})
    return parent, children, grandchild


@pytest.fixture
def forgotten(store, monkeypatch):
    """The ids of the start tasks that were removed."""
    forgotten = []
    monkeypatch.setattr(store.start_tasks, "forget", forgotten.append)
    return forgotten


def test_a_deletion_removes_every_child_and_every_start_task(store, commands, family, forgotten):
    parent, children, grandchild = family

    delete_with_children(commands, parent)

    assert not any(store.conversations.get_many([parent, *children]))
    assert forgotten == [*(f"start {number}" for number in range(103)), "first"]
    assert store.conversations.get(grandchild)


def test_the_repeat_of_a_deletion_that_was_killed_removes_the_rest(store, commands, family, forgotten, monkeypatch):
    parent, children, _ = family
    delete, left = store.conversations.delete, 50

    def delete_until_killed(conversation_id, actor):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        delete(conversation_id, actor)

    with monkeypatch.context() as killed:
        killed.setattr(store.conversations, "delete", delete_until_killed)
        with pytest.raises(KeyboardInterrupt):
            delete_with_children(commands, parent)
    assert sum(state is None for state in store.conversations.get_many([parent, *children])) == 50

    delete_with_children(commands, parent)

    assert not any(store.conversations.get_many([parent, *children]))
    assert set(forgotten) == {*(f"start {number}" for number in range(103)), "first"}


def test_a_detached_conversation_is_no_app_conversation_to_delete(store, commands, conversation):
    store.conversations.create(conversation)

    with pytest.raises(ConversationNotFound):
        delete_with_children(commands, conversation)

    assert store.conversations.get(conversation)


def test_a_conversation_that_its_start_has_half_made_is_gone_at_once_and_its_sandbox_is_left_to_the_end_of_the_start(
    store, commands, conversation
):
    store.sandboxes.beat("h", "supervisor")
    sandbox = store.sandboxes.start("reference-agent")
    start = store.start_tasks.create({"conversation_id": conversation, "sandbox_id": sandbox.id}, echo={})
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={"start_id": start.id})

    delete_with_children(commands, conversation)

    assert store.conversations.get_many([conversation]) == [None]
    assert store.start_tasks.get_many([start.id])[0].is_ended
    assert store.sandboxes.get(sandbox.id).wanted == "running"  # it was there before the start


def test_a_conversation_is_deleted_with_another_start_that_waits_for_its_id(store, commands, conversation):
    store.sandboxes.beat("h", "supervisor")
    sandbox = store.sandboxes.start("reference-agent")
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={"start_id": "first"})
    start = store.start_tasks.create({"conversation_id": conversation}, echo={})

    delete(commands, conversation)

    assert store.conversations.get_many([conversation]) == [None]
    assert store.start_tasks.get_many([start.id])[0].is_ended
    assert store.sandboxes.get_many([sandbox.id]) == [None]  # no host had it


def test_a_child_that_begins_while_its_parent_is_deleted_goes_with_it(store, commands, family, monkeypatch):
    parent, _, _ = family
    store.sandboxes.beat("h", "supervisor")
    late, end_of = [], store.start_tasks.end_of

    def end_before_another_begins(*args, **options):
        ended = end_of(*args, **options)
        if not late:
            late.append(store.start_tasks.create({"parent_conversation_id": parent}, echo={}))
        return ended

    monkeypatch.setattr(store.start_tasks, "end_of", end_before_another_begins)
    delete_with_children(commands, parent)

    assert store.start_tasks.get_many([late[0].id])[0].is_ended
