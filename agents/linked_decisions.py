"""What a one-time link shows, and the decision that it takes: one of one action, in the name of the link's target.

The link is marked as used before its decision is taken. A process that is killed in between loses nothing: the same
decision can be repeated until the conversation's audit has it.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from agents.commands import Commands
from approvals.digests import action_digest, shown_arguments
from approvals.links import Link
from store import Store
from store.approvals.audit import Actor
from store.approvals.confirmations import Approvals
from store.approvals.decisions import Decision, StaleDecision
from store.approvals.link_uses import Use
from store.approvals.pending_actions import thought_of
from store.errors import ConversationNotFound, EventNotFound
from wire import Micros, parse_json, utc_time

#: entries at the end of an audit among which the decision of an action is sought
_MOST_SOUGHT = 1000

_DECIDED = {
    "approve": "approved",
    "reject": "rejected",
    "edit": "approved with other arguments",
    "deleted": "dropped",
    "unapproved": "carried out without a decision",
}


class LinkRefused(Exception):
    """A link shows nothing to decide; the text says why, for people."""


class LinkExpired(LinkRefused):
    """The link has expired, or the deadline of its action has passed."""


class LinkUsed(LinkRefused):
    """The link has taken its decision."""


class ActionDecided(LinkRefused):
    """The action does not wait, or is not the one that the link is about."""


class ConversationGone(LinkRefused):
    """The conversation was deleted."""


class Shown(NamedTuple):
    """A pending action as a person is shown it."""

    title: str | None
    tool: str
    arguments: Any
    summary: str
    thought: str
    risk: str
    since: str
    expires: Micros | None  #: the deadline of the action
    used_for: str  #: the decision that the link was used for, and that is not known to have been taken
    together: int  #: actions that the agent takes one decision for; 0: it takes a decision of this one alone


def show(store: Store, link: Link) -> Shown:
    """What a link is about. Raises a LinkRefused."""
    use = store.link_uses.find(link.identity, link.ends)
    if use is None:
        raise LinkExpired("This link has expired.")
    found = store.confirmations.read_approvals(link.conversation_id)
    if found.gone:
        raise ConversationGone("The conversation was deleted, and none of its actions waits any more.")
    if use.decision:
        _require_untaken(store, link, use)
    record = next((one for one in found.pending if one["id"] == link.action_id), None)
    if record is None:
        raise ActionDecided(_told(store, link))
    try:
        event = parse_json(store.events.get(link.conversation_id, link.action_id))
    except (ConversationNotFound, EventNotFound):
        raise ConversationGone("The conversation was deleted, and none of its actions waits any more.") from None
    tool, arguments = event.get("tool_name"), shown_arguments(event.get("action"))
    if action_digest(tool, arguments) != link.digest:
        raise ActionDecided("This action is another one than the link is about.")
    return Shown(
        title=found.title,
        tool=_text(tool),
        arguments=arguments,
        summary=_text(event.get("summary")),
        thought=thought_of(event),
        risk=_text(record.get("risk")) or "UNKNOWN",
        since=_text(record.get("since")),
        expires=Micros(int(record["expires"])) if record.get("expires") else None,
        used_for=use.decision,
        together=_together(found),
    )


def decide(commands: Commands, link: Link, verb: Literal["approve", "reject"], reason: str, address: str) -> None:
    """Take a link's decision, once. Raises a LinkRefused, ReasonTooLong."""
    store, decision = commands.store, Decision(link.action_id, verb, reason, digest=link.digest)
    store.confirmations.words(link.conversation_id, [decision])  # a reason that is too long uses no link
    outcome, use = store.link_uses.take(link.identity, link.ends, verb)
    if outcome == "past":
        raise LinkExpired("This link has expired. Nothing was decided by it.")
    if outcome != "first":
        _require_untaken(store, link, use)
    if outcome == "other":
        raise LinkUsed(
            f"At {utc_time(use.at)} this link was used for another decision: the action is to be "
            f"{_DECIDED[use.decision]}. That decision is not taken yet: open the link again and repeat it."
        )
    try:
        commands.of(Actor("link", link.target, address)).decide_each(link.conversation_id, [decision])
    except ConversationNotFound:
        raise ConversationGone("The conversation was deleted before. Nothing was decided by this link.") from None
    except StaleDecision as stale:
        problem = next((one["problem"] for one in stale.problems if one["action_id"] == link.action_id), "")
        if problem in ("", "decided_alike"):
            words = "Its agent takes one decision for all actions that wait: decide them together, in the inbox."
        elif problem == "expired":
            raise LinkExpired("The deadline of this action has passed: it is rejected.") from None
        else:
            words = _told(store, link)
        raise ActionDecided(f"{words} Nothing was decided by this link.") from None


def _require_untaken(store: Store, link: Link, use: Use) -> None:
    """Raises LinkUsed where the audit has the decision that a used link was used for."""
    for entry in _entries(store, link):
        if (entry["actor"]["kind"], entry["actor"]["name"]) == ("link", link.target):
            raise LinkUsed(f"This link was used at {utc_time(use.at)}: the action was {_DECIDED[use.decision]}.")


def _told(store: Store, link: Link) -> str:
    """Who decided the action of a link, and how, in words."""
    entry = next(_entries(store, link), None)
    if entry is None:
        return "This action does not wait for a decision."
    name = entry["actor"]["name"]
    who = {
        "key": f"with the key {name}",
        "link": f"by a link of {name}",
        "message": f"by a message that was sent with the key {name}",
        "run": f"by a run that was asked for with the key {name}",
        "rule": f"by the rule {name}",
        "expiry": "by its deadline",
        "agent": "by the agent itself, which went on unasked",
        "deletion": f"by the deletion of its conversation with the key {name}",
    }.get(entry["actor"]["kind"], "by the server")
    reason = f" The reason: {entry['reason']}" if entry["reason"] else ""
    return f"This action was {_DECIDED[entry['decision']]} at {entry['time']} {who}.{reason}"


def _entries(store: Store, link: Link) -> Iterator[dict[str, Any]]:
    """The entries of the audit about the action of a link, the last first."""
    number = store.confirmations.read_approvals(link.conversation_id).audited
    entries = store.audit.of(link.conversation_id, after=max(0, number - _MOST_SOUGHT), limit=_MOST_SOUGHT)
    for entry in map(json.loads, reversed(entries)):
        if link.action_id in entry["action_ids"]:
            yield entry


def _together(found: Approvals) -> int:
    return len(found.pending) if found.together and len(found.pending) > 1 else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
