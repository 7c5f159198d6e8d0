"""Who decided an action, beside it in a log: the log has no decisions, the server tells them when they are taken."""

import contextlib
from collections.abc import Iterator
from itertools import islice
from typing import Any

from rich.text import Text

from agent_server_client._sync import Conversation
from agent_server_client.errors import AgentServerError
from agent_server_client.models import ActionDecision, Event
from agent_server_client.visible import in_line, visible
from agent_server_client.wire import Entry

#: entries that are read before their decisions are asked for
_AT_ONCE = 100

#: a decision in words, and their colour
_WORDS = {
    "approve": ("approved", "green"),
    "edit": ("edited", "green"),
    "reject": ("rejected", "red"),
    "unapproved": ("unasked", "bold red"),
    "deleted": ("deleted", "dim"),
    "mode_changed": ("mode set", "cyan"),
    "withdrawn": ("withdrawn", "dim"),
}

#: kinds of actors whose name says less than their kind
_KINDS = {
    **{"expiry": "its deadline", "agent": "the agent", "server": "the server", "deletion": "a deletion"},
    "lease": "the silence of its agent",
}


def whole_log(conversation: Conversation, after: int, *, follows: bool) -> Iterator[Entry]:
    """The log of a conversation from the event after a seq on, each action with the decision about it.

    follows: it goes on with what comes, and with each decision when it is taken.
    """
    entries = iter(conversation.log(after))
    while some := list(islice(entries, _AT_ONCE)):
        after = max([after, *(one.seq or 0 for one in some)])
        yield from _with_decisions(conversation, some)
    if follows:
        yield from conversation.events(after)


def _with_decisions(conversation: Conversation, known: list[Entry]) -> Iterator[Entry]:
    """Entries, and after each action or change of the mode its decision. At a server that tells none there are none."""
    ids = [one.event["id"] for one in known if _is_decided(one.event)]
    decisions: dict[str, ActionDecision] = {}
    with contextlib.suppress(AgentServerError):
        decisions = conversation.decisions(ids)
    for one in known:
        yield one
        if _is_decided(one.event) and (decision := decisions.get(one.event["id"])):
            yield Entry(None, _event_of(decision))


def _is_decided(event: Event) -> bool:
    """Whether people decide what an event is about: an action, or the approval mode."""
    kind = str(event["kind"]).rpartition(".")[2]
    return kind == "ActionEvent" or (kind == "ConversationStateUpdateEvent" and event.get("key") == "approval_mode")


def _event_of(decision: ActionDecision) -> Any:
    """A decision as the server tells it when it is taken."""
    at = decision["time"].removesuffix("Z")
    return {
        **decision,
        "id": f"decision-{decision['seq']}-1",
        "source": "environment",
        "timestamp": at,
        "kind": "DecisionEvent",
    }


def decision_words(event: Event) -> tuple[str, str, Text]:
    """The word, its colour and the text for a decision: who took it, and what an edit made of the action."""
    word, colour = _WORDS.get(str(event.get("decision")), ("decided", ""))
    actor, reason = event.get("actor") or {}, str(event.get("reason") or "")
    # What ran unasked is the word of its terminal, and nobody's decision.
    is_told = (event.get("decision"), actor.get("kind")) == ("unapproved", "terminal")
    said = [] if is_told and reason else [f"by {decider(actor)}"]
    if edited := event.get("edited_shown"):
        said.append(f"to {in_line(str(edited[0]['text']))}")
    if reason and event.get("decision") != "reject":  # which the agent's log says too
        said.append(visible(reason, prose=True))
    return word, colour, Text(": ".join(said))


def decider(actor: Any) -> str:
    """Who decides, in words."""
    kind, name = str(actor.get("kind") or ""), in_line(str(actor.get("name") or ""))
    if kind == "rule":
        return f"rule {name}"
    if kind == "terminal":
        return f"{name}, at the terminal"
    return _KINDS.get(kind) or name or "somebody"
