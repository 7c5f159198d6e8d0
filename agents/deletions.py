"""Deletions of conversations: the agent is told, the store forgets, and a sandbox that is empty then goes too."""

from contextlib import suppress

from agents.commands import Commands
from agents.link import AgentRefused, AgentUnreachable
from agents.reach import NotReachable
from store.errors import ConversationNotFound, SandboxNotFound, SandboxRefuses
from store.sandbox_record import SandboxId
from wire import ConversationId


def delete(commands: Commands, conversation_id: ConversationId) -> None:
    """Remove a conversation with its events and secrets, also from its agent if the agent can be reached.

    The last conversation in a sandbox takes the sandbox with it. Raises ConversationNotFound.
    """
    store = commands.store
    sandbox_id = store.conversations.sandbox_of(conversation_id)
    with suppress(NotReachable, AgentUnreachable, AgentRefused):  # the tombstone refuses its later events
        if sandbox_id:
            commands.agent_in(SandboxId(sandbox_id)).delete(conversation_id)
    commands.delete(conversation_id)
    if sandbox_id:
        store.queued_messages.drop(conversation_id)
    if sandbox_id and not store.app_conversations.in_sandbox(SandboxId(sandbox_id)):
        with suppress(SandboxNotFound, SandboxRefuses):
            store.sandboxes.ask(SandboxId(sandbox_id), "delete")


def delete_with_children(commands: Commands, conversation_id: ConversationId) -> None:
    """Remove an app conversation, its children and the start tasks of all, each conversation as `delete` does.

    The parent is removed last: if the worker is killed in between, the client's repeat removes the rest.
    Raises ConversationNotFound, also of a detached conversation.
    """
    store = commands.store
    parent = store.conversations.get(conversation_id)
    if "sandbox_id" not in parent:
        raise ConversationNotFound
    for each in (*store.app_conversations.children(conversation_id), parent):
        if start_id := each["app"].get("start_id"):
            store.start_tasks.forget(start_id)
        with suppress(ConversationNotFound):  # another request was faster
            delete(commands, ConversationId(each["id"]))
