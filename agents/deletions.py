"""Deletes a conversation at its agent server and in the store, then its sandbox if that is empty."""

from collections.abc import Iterable, Mapping, Set
from contextlib import nullcontext, suppress
from typing import Any

from agents.client import AgentRefused, AgentUnreachable
from agents.commands import Commands
from agents.waking import NotReachable
from core.wire import ConversationId
from store import Store
from store.errors import ConversationNotFound, SandboxNotFound, SandboxRefuses
from store.sandboxes.sandboxes import SandboxId


def delete(commands: Commands, conversation_id: ConversationId) -> None:
    """Delete a conversation with its events and secrets, also at its agent server if that is reachable.

    A start, fork or import of it that is running ends and creates nothing. The last conversation in a sandbox takes the
    sandbox with it. Raises ConversationNotFound if none of these exists.
    """
    ended = commands.store.start_tasks.end_of(conversation_id)
    try:
        _delete(commands, conversation_id, ended)
    except ConversationNotFound:
        is_under_way = end_copies(commands, conversation_id) or bool(ended)
        with suppress(ConversationNotFound) if is_under_way else nullcontext():
            _delete(commands, conversation_id, ended)  # a copy may have finished in between


def end_copies(commands: Commands, conversation_id: ConversationId) -> bool:
    """End running copies to an id. Return whether there were any.

    Their writers have the agent's copy deleted. If they are killed, a tombstone excludes its events.
    """
    ended = commands.store.conversations.forks.end(conversation_id)
    for sandbox_id in filter(None, ended):
        commands.store.conversations.bury(conversation_id, sandbox_id)
        tell_agent(commands, conversation_id, SandboxId(sandbox_id))
    return bool(ended)


def _delete(commands: Commands, conversation_id: ConversationId, ended: Set[str]) -> None:
    """ended: start tasks whose sandboxes their drivers or a supervisor remove."""
    store = commands.store
    sandbox_id = store.conversations.sandbox_of(conversation_id)
    is_half_made = bool(ended) and store.conversations.get(conversation_id)["app"].get("start_id") in ended
    if sandbox_id:
        tell_agent(commands, conversation_id, SandboxId(sandbox_id))
    commands.delete(conversation_id)
    if sandbox_id and not is_half_made:
        _leave(store, conversation_id, SandboxId(sandbox_id))


def delete_unchanged(commands: Commands, state: Mapping[str, Any]) -> bool:
    """Delete a conversation, unless it has changed since its state was read. Return false if it stays.

    The store deletes first, because only it detects the change. The start task is forgotten too. Raises
    ConversationNotFound.
    """
    store, conversation_id = commands.store, ConversationId(state["id"])
    if not store.conversations.delete(conversation_id, revision=state["revision"]):
        return False
    if sandbox_id := state.get("sandbox_id"):
        tell_agent(commands, conversation_id, SandboxId(sandbox_id))
        _leave(store, conversation_id, SandboxId(sandbox_id))
    if start_id := state["app"].get("start_id"):
        store.start_tasks.forget(start_id)
    return True


def tell_agent(commands: Commands, conversation_id: ConversationId, sandbox_id: SandboxId) -> None:
    """Delete a conversation at the agent server of a sandbox, if that is reachable."""
    with suppress(NotReachable, AgentUnreachable, AgentRefused):  # the tombstone refuses its later events
        commands.agent_in(sandbox_id).delete(conversation_id)


def _leave(store: Store, conversation_id: ConversationId, sandbox_id: SandboxId) -> None:
    """Drop the queue of a deleted conversation, and its sandbox if that is empty."""
    store.conversations.queued_messages.drop(conversation_id)
    if not store.conversations.in_sandboxes.in_sandbox(sandbox_id):
        with suppress(SandboxNotFound, SandboxRefuses):
            store.sandboxes.ask(sandbox_id, "delete")


def delete_with_children(commands: Commands, conversation_id: ConversationId) -> None:
    """Delete an app conversation and its children, each as `delete` does, and their start tasks.

    The parent is deleted before its children are read for the last time, so that no start adds a child. If the worker
    is killed in between, the client's retry deletes the rest. Raises ConversationNotFound, also if it is detached.
    """
    store = commands.store
    ended = store.start_tasks.end_of(conversation_id, with_children=True)
    [parent] = store.conversations.get_many([conversation_id])
    are_copies = parent is None and end_copies(commands, conversation_id)
    if parent is None:  # a copy may have finished in between
        [parent] = store.conversations.get_many([conversation_id])
    if parent is not None and "sandbox_id" in parent:
        _delete_all(commands, (*store.conversations.in_sandboxes.children(conversation_id), parent), ended)
        ended |= store.start_tasks.end_of(conversation_id, with_children=True)
        _delete_all(commands, store.conversations.in_sandboxes.children(conversation_id), ended)
    elif not are_copies and not ended:
        raise ConversationNotFound


def _delete_all(commands: Commands, states: Iterable[Mapping[str, Any]], ended: Set[str]) -> None:
    for each in states:
        start_id = each["app"].get("start_id")
        if start_id and start_id not in ended:
            commands.store.start_tasks.forget(start_id)
        with suppress(ConversationNotFound):  # another request was faster
            _delete(commands, ConversationId(each["id"]), ended)
