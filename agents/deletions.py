"""Deletes a conversation at its agent server and in the store, then its sandbox if that is empty."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from agents.client import AgentRefused, AgentUnreachable
from agents.commands import Commands
from agents.waking import NotReachable
from core.wire import ConversationId
from store import Store
from store.errors import ConversationNotFound, SandboxNotFound, SandboxRefuses
from store.sandboxes.sandboxes import SandboxId


def delete(commands: Commands, conversation_id: ConversationId) -> None:
    """Remove a conversation with its events and secrets, also from its agent if the agent can be reached.

    The last conversation in a sandbox takes the sandbox with it. Raises ConversationNotFound.
    """
    sandbox_id = commands.store.conversations.sandbox_of(conversation_id)
    if sandbox_id:
        _tell_agent(commands, conversation_id, SandboxId(sandbox_id))
    commands.delete(conversation_id)
    if sandbox_id:
        _leave(commands.store, conversation_id, SandboxId(sandbox_id))


def delete_unchanged(commands: Commands, state: Mapping[str, Any]) -> bool:
    """Do the same if nothing has changed in a conversation since its state was read; False if it stays.

    The store forgets first, as it alone can tell: the agent keeps its conversation while the one here stays. Its start
    task is forgotten too. Raises ConversationNotFound.
    """
    store, conversation_id = commands.store, ConversationId(state["id"])
    if not store.conversations.delete(conversation_id, revision=state["revision"]):
        return False
    if sandbox_id := state.get("sandbox_id"):
        _tell_agent(commands, conversation_id, SandboxId(sandbox_id))
        _leave(store, conversation_id, SandboxId(sandbox_id))
    if start_id := state["app"].get("start_id"):
        store.start_tasks.forget(start_id)
    return True


def _tell_agent(commands: Commands, conversation_id: ConversationId, sandbox_id: SandboxId) -> None:
    with suppress(NotReachable, AgentUnreachable, AgentRefused):  # the tombstone refuses its later events
        commands.agent_in(sandbox_id).delete(conversation_id)


def _leave(store: Store, conversation_id: ConversationId, sandbox_id: SandboxId) -> None:
    """Drop what waits for a conversation that is gone, and its sandbox if that has no other."""
    store.conversations.queued_messages.drop(conversation_id)
    if not store.conversations.in_sandboxes.in_sandbox(sandbox_id):
        with suppress(SandboxNotFound, SandboxRefuses):
            store.sandboxes.ask(sandbox_id, "delete")


def delete_with_children(commands: Commands, conversation_id: ConversationId) -> None:
    """Remove an app conversation, its children and the start tasks of all, each conversation as `delete` does.

    The parent is removed last: if the worker is killed in between, the client's repeat removes the rest.
    Raises ConversationNotFound, also of a detached conversation.
    """
    store = commands.store
    parent = store.conversations.get(conversation_id)
    if "sandbox_id" not in parent:
        raise ConversationNotFound
    for each in (*store.conversations.in_sandboxes.children(conversation_id), parent):
        if start_id := each["app"].get("start_id"):
            store.start_tasks.forget(start_id)
        with suppress(ConversationNotFound):  # another request was faster
            delete(commands, ConversationId(each["id"]))
