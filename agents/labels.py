"""Titles and tags of conversations: the store takes them, then the agent is told.

Redis has a change first, and what is due at the agent beside it. An agent that does not run is not woken for a title:
it is told when its sandbox runs again, or with the next change. Until then its own reports of tags count for nothing.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from agents.commands import Commands
from agents.link import AgentRefused, AgentServer, AgentUnreachable
from agents.reach import NotReachable
from store import Store
from store.errors import ConversationNotFound
from store.sandboxes.sandbox_record import SandboxId
from wire import ConversationId

log = logging.getLogger(__name__)


def relabel(
    commands: Commands, conversation_id: ConversationId, app: Mapping[str, Any] | None = None, **labels: Any
) -> None:
    """Set labels (title, tags) or confirmation_seconds of a conversation, or members that only app conversations have;
    tell its agent the labels.

    Whatever becomes of the agent, the change has been made. Raises ConversationNotFound; given app, also of a detached
    conversation.
    """
    store = commands.store
    if app is None:
        is_due = store.conversations.update(conversation_id, **labels)
    else:
        is_due = store.app_conversations.update(conversation_id, app=app, **labels)
    if is_due:
        with suppress(ConversationNotFound, NotReachable, AgentUnreachable):
            state = store.conversations.get(conversation_id)
            tell(store, commands.agent_in(SandboxId(state["sandbox_id"])), state)


def tell(store: Store, agent: AgentServer, state: Mapping[str, Any]) -> None:
    """Tell an agent the title and tags that are due. They stay due where it refuses them. Raises AgentUnreachable."""
    if (due := state.get("labels_due")) is None:
        return
    identity = ConversationId(state["id"])
    title = (state["title"] or "").strip()
    try:
        agent.label(identity, {"tags": state["tags"]} | ({"title": title} if title else {}))
    except AgentRefused as refusal:
        log.warning("conversation %s: its agent does not take its title and tags: %s", identity, refusal)
    else:
        store.labels.settle(identity, due)
