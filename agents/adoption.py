"""Adopts a conversation that a client began at a sandbox's own agent server, so that it behaves like any other.

The store has it first. Then its webhooks are accepted, and a supervisor fetches the unposted events from the agent's
own log (`supervisor/agent_log.py`). This server cannot confirm the people that the log names before the adoption;
`store/approvals/effects.py` describes how it is stored.
"""

from contextlib import suppress
from typing import Any

from agents.client import AgentRefused
from agents.commands import Commands
from core.cuts import beginning
from core.refused import RefusalKind
from core.wire import MOST_TITLE, ConversationId, as_unicode, conversation_id_of
from settings.specs import Specs
from store.approvals.effects import held_risks
from store.errors import ConversationNotFound, IdInUse, SandboxRefuses
from store.sandboxes.sandboxes import Sandbox


class WasDeleted(IdInUse):
    """The conversation was deleted here, but its agent server still has it."""

    kind = RefusalKind.CONFLICT
    words = "The conversation was deleted here and is not adopted: its sandbox's supervisor has its agent delete it"


def title_of(info: dict[str, Any]) -> str | None:
    """Return the title of a conversation at its agent server, truncated to the maximum; None if it has none."""
    title = info.get("title")
    return beginning(as_unicode(title), MOST_TITLE) if isinstance(title, str) else None


def adopt(commands: Commands, specs: Specs, sandbox: Sandbox, conversation_id: ConversationId) -> dict[str, Any] | None:
    """Create a conversation of a sandbox's agent server here, and return its description, which the caller stores.

    Return None if the conversation is here with a description. A repeat creates nothing, and completes a first call
    that was interrupted. Raises SandboxRefuses unless the sandbox runs, IdInUse if another conversation has the id,
    ConversationNotFound if the agent server does not have it, TooManyConversations, and the errors of `Commands`.
    """
    store = commands.store
    state = _here(commands, sandbox, conversation_id)
    if state and state["info"]:
        store.sandboxes.checks.require(
            sandbox.id
        )  # its agent may have posted its description before the first call did
        return None
    if sandbox.wanted == "deleted" or sandbox.status != "RUNNING":
        status = "being deleted" if sandbox.wanted == "deleted" else f"{sandbox.status}, and has to run for that"
        raise SandboxRefuses("adopt", status)
    present, deleted = store.sandboxes.places.known(sandbox.id)
    if conversation_id in deleted:
        raise WasDeleted
    info = _described(commands, sandbox, conversation_id)
    parent_id = conversation_id_of(info.get("parent_conversation_id"))
    spec = specs.find(sandbox.spec_id)
    created = store.conversations.create(
        conversation_id,
        title=title_of(info) or f"Conversation {conversation_id[:5]}",
        confirmation_policy=_policy(info.get("confirmation_policy")),
        confirmation_seconds=spec.confirmation_seconds if spec else None,
        sandbox_id=sandbox.id,
        app={"parent_conversation_id": parent_id} if parent_id in present else {},
    )
    if not created and not _here(commands, sandbox, conversation_id):
        raise IdInUse
    if created and store.sandboxes.places.is_deleted(sandbox.id, conversation_id):
        # Since the tombstones were read above, another call adopted it and a client deleted it.
        with suppress(ConversationNotFound):
            store.conversations.delete(conversation_id)
        raise WasDeleted
    store.sandboxes.checks.require(sandbox.id)
    return info


def _here(commands: Commands, sandbox: Sandbox, conversation_id: ConversationId) -> dict[str, Any] | None:
    """Return the conversation, if it is in this sandbox. Raises IdInUse if it is elsewhere."""
    [state] = commands.store.conversations.get_many([conversation_id])
    if state is not None and state.get("sandbox_id") != sandbox.id:
        raise IdInUse(f"A conversation of the id {conversation_id} already exists, but not in this sandbox")
    return state


def _described(commands: Commands, sandbox: Sandbox, conversation_id: ConversationId) -> dict[str, Any]:
    missing = ConversationNotFound(
        f"Conversation not found: the agent server of the sandbox has none of the id {conversation_id}"
    )
    try:
        info = commands.agent_in(sandbox.id).state(conversation_id)
    except AgentRefused as refusal:
        if refusal.status == 404:
            raise missing from None
        raise
    if info.get("execution_status") == "deleting":
        raise missing
    return info


def _policy(policy: Any) -> dict[str, Any] | None:
    """Return the agent's own policy, if it is valid."""
    try:
        held_risks(policy)
    except ValueError:
        return None
    return {name: policy[name] for name in ("kind", "threshold", "confirm_unknown") if name in policy}
