"""Decisions by a one-time link.

A link is marked as used before its decision is made. After a kill in between nothing is lost: the same decision can be
repeated until the conversation's audit contains it.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar

from agents.commands import Commands
from core.approvals import Link, action_digest, shown_arguments
from core.effects import WORDS_OF, greater, seen
from core.incomplete import is_complete
from core.wire import Micros, micros, parse_json, utc_time
from store import Store
from store.approvals.audit import DecisionActor
from store.approvals.decisions import Approvals, Decision, LinkUse, StaleDecision
from store.approvals.inbox import thought_of
from store.destinations import AskedDestination
from store.errors import ConversationNotFound, EventNotFound, StoreError

#: Number of entries at the end of an audit that are searched for an action's decision.
_MOST_SOUGHT = 1000

Found = TypeVar("Found")

_DECIDED = {
    "approve": "approved",
    "reject": "rejected",
    "edit": "approved with other arguments",
    "deleted": "dropped",
    "unapproved": "carried out without a decision",
    "withdrawn": "withdrawn by the agent that asked",
}


class LinkRefused(Exception):
    """A link has nothing to decide. The text has the reason, for people."""


class LinkExpired(LinkRefused):
    """The link has expired, or the deadline of its action has passed."""


class LinkUsed(LinkRefused):
    """The link has made its decision."""


class ActionDecided(LinkRefused):
    """The action is not pending, or is not the link's action."""


class ConversationGone(LinkRefused):
    """The conversation was deleted."""


class DeviceEnded(LinkRefused):
    """The link's device has an owner who may no longer decide."""


class ShownItem(NamedTuple):
    """A pending action or destination, as it is shown to a person."""

    arguments: Any
    since: str
    expires: Micros | None  #: the deadline of the action
    used_for: str  #: the decision for which the link was used, if it is not in the audit
    title: str | None = None
    asker: str = ""  #: agent, person, machine and folder of a request from outside of this server, by its own account
    tool: str = ""
    summary: str = ""
    thought: str = ""
    risk: str = ""  #: the greater of the agent's rating and the server's rating
    named_risk: str = ""  #: the agent's own rating
    effects: tuple[str, ...] = ()  #: the effects that the server detects, in words
    is_complete: bool = True  #: False: more may run than the arguments show
    together: int = 0  #: number of actions that the agent has decided together; 0: it has this action decided alone
    is_destination: bool = False  #: a destination of a sandbox, in `arguments`; all members of an agent are ""


def show_link(store: Store, link: Link) -> ShownItem:
    """Return what a link is about. Raises a LinkRefused."""
    use = store.approvals.link_uses.find(link.identity, link.ends)
    if use is None:
        raise LinkExpired("This link has expired.")
    if link.destination is not None:
        return _show_destination(_pending_destination(store, link, use), use)
    found = store.approvals.index.read_approvals(link.conversation_id)
    if found.gone:
        raise ConversationGone("The conversation was deleted, and none of its actions waits any more.")
    _require_untaken(store, link, use)
    record = next((one for one in found.pending if one["id"] == link.action_id), None)
    if record is None:
        raise ActionDecided(_decision_sentence(store, link))
    _require_same_wait(link, found)
    try:
        event = parse_json(store.events.get(link.conversation_id, link.action_id))
    except (ConversationNotFound, EventNotFound):
        raise ConversationGone("The conversation was deleted, and none of its actions waits any more.") from None
    tool, arguments = event.get("tool_name"), shown_arguments(event.get("action"))
    if action_digest(tool, arguments) != link.digest:
        raise ActionDecided("This is not the action that the link was made for.")
    found_effects = seen(tool, arguments, found.folder)
    return ShownItem(
        title=found.title,
        asker=found.origin.asker,
        tool=_text(tool),
        arguments=arguments,
        summary=_text(event.get("summary")),
        thought=thought_of(event),
        risk=greater(record.get("risk"), found_effects.risk),
        named_risk=_text(record.get("risk")) or "UNKNOWN",
        effects=tuple(WORDS_OF[one.effect] for one in found_effects.effects),
        is_complete=is_complete(arguments),
        since=_text(record.get("since")),
        expires=Micros(int(record["expires"])) if record.get("expires") else None,
        used_for=use.decision,
        together=_together(found),
    )


def decide_by_link(
    commands: Commands, link: Link, verb: Literal["approve", "reject"], reason: str, address: str
) -> None:
    """Make a link's decision, once. Raises a LinkRefused, ReasonTooLong."""
    if link.destination is not None:
        _decide_destination(commands.store, link, verb, reason, address)
        return
    store, decision = commands.store, Decision(link.action_id, verb, reason, digest=link.digest)
    store.approvals.confirmations.encode_decisions(
        link.conversation_id, [decision]
    )  # before the link is used: the reason may be too long
    _require_same_wait(link, store.approvals.index.read_approvals(link.conversation_id))
    _use(store, link, verb, "the action", lambda use: _require_untaken(store, link, use))
    try:
        commands.of(DecisionActor("link", link.target, address)).decide_each(link.conversation_id, [decision])
    except ConversationNotFound:
        raise ConversationGone("The conversation was deleted before. Nothing was decided by this link.") from None
    except StaleDecision as stale:
        problem = next((one["problem"] for one in stale.problems if one["action_id"] == link.action_id), "")
        if problem in ("", "decided_alike"):
            words = "Its agent takes one decision for all actions that wait: decide them together, in the inbox."
        elif problem == "needs_people":
            words = "Several people must approve this action, each by name: approve it in the inbox."
        elif problem == "in_terminal":
            words = "Its agent asks in its terminal now, and only the terminal can answer."
        elif problem == "expired":
            raise LinkExpired("The deadline of this action has passed: it is rejected.") from None
        else:
            words = _decision_sentence(store, link)
        raise ActionDecided(f"{words} Nothing was decided by this link.") from None


def _use(
    store: Store, link: Link, verb: Literal["approve", "reject"], what: str, look: Callable[[LinkUse], Found]
) -> Found:
    """Use a link, once, and return what `look` finds by an earlier use.

    what: the subject of the decision, in sentences. Raises LinkExpired, LinkUsed and the errors of `look`.
    """
    outcome, use = store.approvals.link_uses.take(link.identity, link.ends, verb)
    if outcome == "past":
        raise LinkExpired("This link has expired. Nothing was decided by it.")
    found = look(use if outcome != "first" else LinkUse())
    if outcome == "other":
        raise LinkUsed(
            f"At {utc_time(use.at)} this link was used for another decision: {what} should be "
            f"{_DECIDED[use.decision]}. That decision has not taken effect yet: open the link again and repeat it."
        )
    return found


def _pending_destination(store: Store, link: Link, use: LinkUse) -> AskedDestination:
    """Return the pending destination of a link. Raises LinkUsed, ActionDecided."""
    assert link.destination is not None
    waiting = store.destinations.waiting(link.destination[0])
    found = next((one for one in waiting if one.digest == link.digest), None)
    if found is not None:
        return found
    if use.decision:
        raise LinkUsed(f"This link was used at {utc_time(use.at)}: it was {_DECIDED[use.decision]}.")
    what = "destination" if link.destination[2] else "budget"
    raise ActionDecided(f"This {what} does not wait: it was decided, has expired, or its sandbox has ended.")


def _show_destination(asked: AskedDestination, use: LinkUse) -> ShownItem:
    shown = asked.shown
    told = {name: shown[name] for name in ("name", "port", "program", "sandbox_id", "tries")} | (shown["budget"] or {})
    told = {name: value for name, value in told.items() if value is not None}
    return ShownItem(told, shown["since"], asked.expires_at, use.decision, is_destination=True)


def _decide_destination(
    store: Store, link: Link, verb: Literal["approve", "reject"], reason: str, address: str
) -> None:
    """Decide a link's destination, once. An approval is for one connection, a rejection for the sandbox."""
    asked = _use(store, link, verb, "it", lambda use: _pending_destination(store, link, use))
    scope: Literal["once", "conversation"] = "once" if verb == "approve" else "conversation"
    try:
        store.destinations.decide(asked, verb, scope, DecisionActor("link", link.target, address), reason)
    except StoreError as error:
        raise ActionDecided(f"{error}. Nothing was decided by this link.") from None


def _require_untaken(store: Store, link: Link, use: LinkUse) -> None:
    """Raise LinkUsed if the audit has the decision of a used link."""
    if not use.decision:
        return
    for entry in _entries(store, link):
        if (entry["actor"]["kind"], entry["actor"]["name"]) == ("link", link.target):
            raise LinkUsed(f"This link was used at {utc_time(use.at)}: the action was {_DECIDED[use.decision]}.")


def _require_same_wait(link: Link, found: Approvals) -> None:
    """Raise ActionDecided if the action is pending again, in a conversation that was deleted and created again."""
    since = next((_text(one.get("since")) for one in found.pending if one["id"] == link.action_id), "")
    if link.since and since and micros(since) != link.since:
        raise ActionDecided(
            f"The link is about an earlier wait of this action, which waits again since {since}. Nothing was decided "
            "by this link: decide in the inbox, or open the link of the newer notification."
        )


def _decision_sentence(store: Store, link: Link) -> str:
    """Return who decided the action of a link, and how, in words."""
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
        "terminal": f"by {name}, at the terminal of the agent",
        "lease": "because its agent has gone",
        "agent": "by the agent itself, which went on unasked",
        "deletion": f"by the deletion of its conversation with the key {name}",
    }.get(entry["actor"]["kind"], "by the server")
    reason = f" The reason: {entry['reason']}" if entry["reason"] else ""
    return f"This action was {_DECIDED[entry['decision']]} at {entry['time']} {who}.{reason}"


def _entries(store: Store, link: Link) -> Iterator[dict[str, Any]]:
    """Yield the audit entries about the action of a link, the latest first."""
    number = store.approvals.index.read_approvals(link.conversation_id).audited
    entries = store.approvals.audit.of(link.conversation_id, after=max(0, number - _MOST_SOUGHT), limit=_MOST_SOUGHT)
    for entry in map(json.loads, reversed(entries)):
        if link.action_id in entry["action_ids"]:
            yield entry


def _together(found: Approvals) -> int:
    return len(found.pending) if found.together and len(found.pending) > 1 else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
