"""An app conversation is deleted with its children and their start tasks, even if a process is killed in between."""

from uuid import uuid4

import pytest

from agents.commands import Commands
from agents.deletions import delete_with_children
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
