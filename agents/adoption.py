"""Adopts a conversation that a client began at a sandbox's own agent server: from then on it is here like any other.

The store has it first. Then its webhooks are taken, and a supervisor fetches from the agent's own log what was never
posted (`supervisor/agent_log.py`). What the log says of people from before is not borne out by this server, and is
stored as `store/approvals/effects.py` has it.
"""

from contextlib import suppress
from typing import Any

from agents.client import AgentRefused
from agents.commands import Commands
from core.cuts import beginning
from core.refused import Kind
from core.wire import MOST_TITLE, ConversationId, as_unicode, conversation_id_of
from settings.specs import Specs
from store.approvals.effects import held_risks
from store.errors import ConversationNotFound, IdInUse, SandboxRefuses
from store.sandboxes.sandboxes import Sandbox


class WasDeleted(IdInUse):
    """The conversation was deleted here, but its agent server still has it."""

    kind = Kind.CONFLICT
    words = "The conversation was deleted here and is not adopted: its sandbox's supervisor has its agent delete it"


def title_of(info: dict[str, Any]) -> str | None:
    """The title that an agent server reports of a conversation, as far as one may be long; None if it has none."""
    title = info.get("title")
    return beginning(as_unicode(title), MOST_TITLE) if isinstance(title, str) else None


def adopt(commands: Commands, specs: Specs, sandbox: Sandbox, conversation_id: ConversationId) -> dict[str, Any] | None:
    """Create a conversation of a sandbox's agent server here; its description there, which the caller keeps; None if
    it is here with a description.

    A repeat creates nothing, and does what is missing after a first call that was cut off. Raises SandboxRefuses unless
    the sandbox runs, IdInUse of an id that is another one's here, ConversationNotFound of one that the agent server
    does not have, TooManyConversations, and as `Commands` does.
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
        # Another call has adopted it and a client has deleted it, both since the tombstones were read above.
        with suppress(ConversationNotFound):
            store.conversations.delete(conversation_id)
        raise WasDeleted
    store.sandboxes.checks.require(sandbox.id)
    return info


def _here(commands: Commands, sandbox: Sandbox, conversation_id: ConversationId) -> dict[str, Any] | None:
    """The conversation, if it is in that sandbox. Raises IdInUse of one that is elsewhere here."""
    [state] = commands.store.conversations.get_many([conversation_id])
    if state is not None and state.get("sandbox_id") != sandbox.id:
        raise IdInUse(f"A conversation of the id {conversation_id} is here already, and not in this sandbox")
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
    """The agent's own policy, where it is one."""
    try:
        held_risks(policy)
    except ValueError:
        return None
    return {name: policy[name] for name in ("kind", "threshold", "confirm_unknown") if name in policy}
