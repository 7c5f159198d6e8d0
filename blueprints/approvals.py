"""Approvals: the inbox (pending actions of all conversations) as pages and as a stream, decisions, and rules.

A stream begins with a snapshot, unless the client resumes after an event that is still stored. A decision is bound to
the action that the person saw. Source: docs/approvals.md.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from flask import Response, g, jsonify, url_for
from marshmallow import ValidationError
from werkzeug.exceptions import Forbidden

from agents.decisions import decide_each
from agents.rules import make_rule, revoke_rule
from blueprints import current_actor, current_commands, current_server, current_store
from blueprints.api import Blueprint, array_with_holes, json_response, needs, repeated, repeated_parameter
from blueprints.following import ended_stream, event_lines, last_event_id, streamed
from core.access import ANYONE
from core.approvals import Rule
from core.people import Person
from core.scopes import LASTS
from core.wire import ConversationId
from schemas.approvals import (
    CHANGE_ID,
    ApprovalRule,
    ApprovalRuleRequest,
    BackgroundRehearsal,
    ChangeId,
    DecidedAction,
    DecisionsRequest,
    DecisionsResult,
    InboxStreamQuery,
    PendingActionFilter,
    PendingActionSearch,
    ProposalSearch,
    ProposedRules,
    ReadyAnswers,
    RehearsalResult,
    RehearsalSearch,
    RuleSearch,
    WaitingActionPage,
    page_id,
)
from schemas.audit import place_id
from schemas.events import read_some_ids
from schemas.fields import Success
from store.approvals.audit import AuditPosition
from store.approvals.background import RehearsalProgress
from store.approvals.decisions import Decision
from store.approvals.inbox import InboxFilter
from store.approvals.inbox_stream import InboxStreamEvent
from store.approvals.rehearsals import Tried
from store.approvals.rules import UsedRule, is_short
from store.errors import ConversationNotFound, Stopping

pending_actions = Blueprint("Pending Actions", __name__, url_prefix="/api/v1/pending-actions")


_EVENTS = (
    "Events: `reset` (discard the known state: a snapshot follows), `snapshot`, `ready`, "
    "then `opened`, `changed`, `decided`, `expired`, `closed`. A reconnecting client sends "
    "`id:` as Last-Event-ID"
)


@pending_actions.get("")
@needs("read")
@pending_actions.fails()
@pending_actions.arguments(PendingActionSearch(), location="query")
@pending_actions.response(200, WaitingActionPage)
def list_pending_actions(search: dict[str, Any]) -> dict[str, Any]:
    """List the pending actions of all conversations. A page may be shorter than its limit and not be the last."""
    page = {name: search.pop(name) for name in ("descending", "limit", "start")}
    found, following = current_store.approvals.inbox.page(InboxFilter(**search), **page)
    items = current_store.approvals.quorums.shown(found, current_actor())
    return {"items": items, "next_page_id": page_id(page["descending"], following)}


@pending_actions.get("/count")
@needs("read")
@pending_actions.fails()
@pending_actions.arguments(PendingActionFilter(), location="query")
@pending_actions.response(200, {"type": "integer", "minimum": 0}, description="The number of pending actions")
def count_pending_actions(filters: dict[str, Any]) -> Response:
    """Count the pending actions, with the filters of the list."""
    return json_response(b"%d" % current_store.approvals.inbox.count(InboxFilter(**filters)))


inbox_stream = Blueprint("Inbox Stream", __name__, url_prefix="/api/v1/pending-actions")


@inbox_stream.get("/stream")
@needs("read", ticket=True)
@inbox_stream.fails(429)
@inbox_stream.doc(
    parameters=[
        {
            "in": "header",
            "name": "Last-Event-ID",
            "schema": {"type": "string", "pattern": CHANGE_ID},
            "description": "Sent by a reconnecting browser; last_event_id is then ignored.",
        }
    ]
)
@inbox_stream.arguments(InboxStreamQuery(), location="query")
@inbox_stream.response(200, {"type": "string"}, content_type="text/event-stream", description=_EVENTS)
def stream_pending_actions(query: dict[str, Any]) -> Response:
    """Follow all pending actions: a snapshot, unless the client resumes, then each change once."""
    after = last_event_id(ChangeId(), query.pop("last_event_id", None))
    if query["destinations"] and (conversation_id := query.get("conversation_id")):
        with suppress(ConversationNotFound):  # the conversation may not exist yet: follow its actions
            query["sandbox_id"] = current_store.conversations.sandbox_of(conversation_id)
    try:
        return streamed(current_store.streams.inbox.follow(after, InboxFilter(**query), current_actor()), _lines)
    except Stopping:
        return ended_stream()


def _lines(sent: InboxStreamEvent) -> bytes:
    return event_lines(sent.raw, sent.id, sent.name)


decisions = Blueprint("Decisions", __name__, url_prefix="/api/v1/conversation/<conversation_id:conversation_id>")


@decisions.post("/pending-actions/decisions")
@needs("approve")
@decisions.fails(409)
@decisions.arguments(DecisionsRequest())
@decisions.response(200, DecisionsResult)
def decide_pending_actions(given: dict[str, Any], conversation_id: ConversationId) -> dict[str, Any]:
    """Decide pending actions of a conversation, all or none. The first decision of an action wins."""
    wanted = [(one.pop("always"), Decision(**one)) for one in given["decisions"]]
    always = {decision.action_id: rule for rule, decision in wanted if rule is not None}
    decisions = [decision for _, decision in wanted]
    _check_reach(always, conversation_id)
    rules = decide_each(current_commands, conversation_id, decisions, always, g.principal.name)
    approved = [one.action_id for one in decisions if one.verb == "approve"]
    waiting = current_store.approvals.quorums.waiting(conversation_id, approved)
    return {"success": True, "rules": rules} | ({"waiting": waiting} if waiting else {})


def _check_reach(always: Mapping[str, Any], conversation_id: ConversationId) -> None:
    """Raise Forbidden if a person's rule would cover more than their right to approve."""
    person = Person(g.principal.person, g.principal.groups)
    if not always or not person.name or current_store.access.people.may_everywhere(person, "approve"):
        return
    for wanted in always.values():
        if wanted is not True and wanted.get("conversation_ids", (conversation_id,)) != (conversation_id,):
            raise Forbidden(
                f"{person.name} may approve in some conversations: a rule of theirs holds for this one alone"
            )


@decisions.get("/pending-actions/decisions")
@needs("read")
@decisions.fails()
@decisions.response(200, DecidedAction(many=True))
def list_decided_actions(conversation_id: ConversationId) -> list[dict[str, Any]]:
    """List the actions that are approved and not yet observed: the agent may execute them."""
    return current_store.approvals.confirmations.decided(conversation_id)


@decisions.get("/decisions")
@needs("read")
@decisions.fails(414)
@decisions.doc(parameters=[repeated_parameter("action_id", "the actions")])
@decisions.response(200, array_with_holes("ActionDecision"))
def batch_get_decisions(conversation_id: ConversationId) -> Response:
    """Get who decided actions, how, when and why, in the order of the ids. An undecided action is null."""
    ids = repeated("action_id", read_some_ids)
    found = current_store.approvals.audit.decisions(conversation_id, ids)
    return jsonify([found.get(action_id) for action_id in ids])


@decisions.get("/pending-actions/<action_id>/answers")
@needs("read")
@decisions.fails()
@decisions.response(200, ReadyAnswers)
def list_ready_answers(conversation_id: ConversationId, action_id: str) -> dict[str, Any]:
    """List rules that would decide a pending action, and how many recent decisions each would have made."""
    found = current_store.approvals.rehearsals.answers(conversation_id, action_id, _name_of_key)
    return {
        "items": [item for one in found.tried if (item := _ready_answer(one))],
        "scopes": [{"scope": name, "words": words, "members": members} for name, words, members in found.scopes],
        "lasts": [{"name": name, "words": words, "seconds": seconds} for name, words, seconds in LASTS],
    }


def _ready_answer(tried: Tried) -> dict[str, Any] | None:
    """Return a ready answer with its scopes; None if the request for its rule would be refused."""
    scopes = {
        scoped.scope.name: {
            "scope": scoped.scope.name,
            "sentence": scoped.sentence,
            "rule": body,
            "answered": answered,
        }
        for scoped, answered in zip(tried.ready.scoped, tried.answered, strict=True)
        if (body := _body_of(scoped.rule))
    }
    if not scopes:
        return None
    narrowest, proposed = next(iter(scopes.values())), tried.ready.first.scope.name
    return {
        **narrowest,
        "kind": tried.ready.answer.kind,
        "of": tried.of,
        "proposed": proposed if proposed in scopes else narrowest["scope"],
        "scopes": list(scopes.values()),
    }


def _name_of_key(key_id: str) -> str:
    """Return the display name of a key; empty without a key, because a rule should not name an anonymous client."""
    if key_id == ANYONE.owner:
        return ""
    return next((one.name for one in current_store.access.keys.all() if one.id == key_id), key_id)


def _body_of(rule: Rule) -> dict[str, Any] | None:
    """Return the body of a request that makes a rule; None if the request would be refused."""
    schema = ApprovalRuleRequest()
    defaults = {one.name: one.default for one in fields(Rule)}
    body = {name: value for name in schema.fields if (value := getattr(rule, name)) != defaults[name]}
    try:
        made = Rule(**schema.load(body), created_by=rule.created_by)
    except ValidationError:
        return None
    # A lost member would make the rule wider than its sentence.
    return body if made == rule and is_short(replace(made, created_by=g.principal.name)) else None


approval_rules = Blueprint("Approval Rules", __name__, url_prefix="/api/v1/approval-rules")


@approval_rules.post("")
@needs("approve")
@approval_rules.replay(remade=True)
@approval_rules.fails(409)
@approval_rules.arguments(ApprovalRuleRequest())
@approval_rules.response(201, ApprovalRule)
def make_approval_rule(wanted: dict[str, Any]) -> tuple[UsedRule, int, dict[str, str]]:
    """Make a rule, which decides matching actions. Rules that reject or ask win over rules that approve.

    A rule that asks needs the scope `admin`, because it binds those who approve.
    """
    _require_admin_of(wanted["decision"])
    made = make_rule(current_store, Rule(**wanted, created_by=g.principal.name), current_actor())
    return made, 201, {"Location": url_for(".get_approval_rule", rule_id=made.rule.id)}


@approval_rules.get("")
@needs("read")
@approval_rules.fails()
@approval_rules.arguments(RuleSearch(), location="query")
@approval_rules.response(200, ApprovalRule(many=True))
def list_approval_rules(search: dict[str, bool]) -> list[UsedRule]:
    """List the rules with their uses, the newest first, including expired and used up rules.

    `ended` appends the latest 1,000 revoked rules, with who revoked them and when.
    """
    rules = current_store.approvals.rules
    return rules.all() + (rules.ended() if search["ended"] else [])


@approval_rules.post("/rehearse")
@needs("read")
@approval_rules.replay(remade=True)
@approval_rules.fails()
@approval_rules.arguments(RehearsalSearch(), location="query")
@approval_rules.arguments(ApprovalRuleRequest())
@approval_rules.response(200, RehearsalResult)
def rehearse_approval_rule(search: dict[str, Any], draft: dict[str, Any]) -> dict[str, Any]:
    """Try a rule on recorded decisions of people, the newest first. It makes no rule and decides nothing."""
    start = None if search["start"] is None else AuditPosition(*search["start"])
    found = current_store.approvals.rehearsals.rehearse(Rule(**draft), limit=search["limit"], start=start)
    return {**found._asdict(), "next_page_id": place_id(True, found.following)}


@approval_rules.post("/rehearsals")
@needs("read")
@approval_rules.replay(remade=True)
@approval_rules.fails(429)
@approval_rules.arguments(ApprovalRuleRequest())
@approval_rules.response(202, BackgroundRehearsal)
def start_rehearsal(draft: dict[str, Any]) -> tuple[RehearsalProgress, int, dict[str, str]]:
    """Try a rule on all recorded decisions, in the background. `GET` of its id returns the sums so far."""
    rehearsals = current_store.approvals.background
    rehearsal_id, runner = rehearsals.open(Rule(**draft))
    if runner:
        current_server().runners.start(rehearsal_id, runner)
    location = url_for(".get_rehearsal", rehearsal_id=rehearsal_id)
    return rehearsals.get(rehearsal_id), 202, {"Location": location}


@approval_rules.get("/rehearsals/<rehearsal_id>")
@needs("read")
@approval_rules.fails()
@approval_rules.response(200, BackgroundRehearsal)
def get_rehearsal(rehearsal_id: str) -> RehearsalProgress:
    """Get a rehearsal. It is kept for an hour after its end."""
    rehearsals = current_store.approvals.background
    found = rehearsals.get(rehearsal_id)
    if found.state == "running" and (runner := rehearsals.take_up(rehearsal_id)):
        current_server().runners.start(rehearsal_id, runner)
    return found


@approval_rules.get("/proposals")
@needs("read")
@approval_rules.fails()
@approval_rules.arguments(ProposalSearch(), location="query")
@approval_rules.response(200, ProposedRules)
def list_proposed_rules(search: dict[str, Any]) -> dict[str, Any]:
    """List rules for actions that people recently approved repeatedly and never rejected, the most frequent first."""
    proposals, decided, unread = current_store.approvals.rehearsals.proposals(search["least"])
    items = (
        {
            "rule": body,
            "sentence": one.answer.sentence,
            "approved": len(one.evidence),
            "last_at": one.evidence[0].time,
            "examples": one.examples,
        }
        for one in proposals
        if (body := _body_of(one.answer.rule))
    )
    return {"items": list(items), "decided": decided, "unread": unread}


@approval_rules.get("/<rule_id>")
@needs("read")
@approval_rules.fails()
@approval_rules.response(200, ApprovalRule)
def get_approval_rule(rule_id: str) -> UsedRule:
    """Get a rule with its uses."""
    return current_store.approvals.rules.get(rule_id)


@approval_rules.delete("/<rule_id>")
@needs("approve")
@approval_rules.fails()
@approval_rules.response(200, Success)
def revoke_approval_rule(rule_id: str) -> dict[str, bool]:
    """Revoke a rule. It decides no action after this response. A rule that asks needs the scope `admin`."""
    if not g.principal.may("admin"):
        _require_admin_of(current_store.approvals.rules.get(rule_id).rule.decision)
    revoke_rule(current_store, rule_id, current_actor())
    return {"success": True}


def _require_admin_of(decision: str) -> None:
    """Raise Forbidden for a rule that asks, because a caller who only approves must not end it."""
    if decision == "ask" and not g.principal.may("admin"):
        raise Forbidden("A rule that asks binds those who approve: making and revoking it needs the scope admin")
