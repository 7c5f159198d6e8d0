"""Decisions of single actions, with their "always" rules."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agents.commands import Commands
from agents.rules import make_rule
from core.approvals import Rule, rule_of
from core.refused import RefusalKind
from core.wire import ConversationId
from store.approvals.decisions import Decision, StaleDecision
from store.errors import EventNotFound, StoreError


class RuleRefused(StoreError):
    """Raised if no rule can be made from a decision with `always`."""

    kind = RefusalKind.MEMBER
    member = "always"


def decide_each(
    commands: Commands,
    conversation_id: ConversationId,
    decisions: Sequence[Decision],
    always: Mapping[str, Any],
    created_by: str,
) -> list[dict[str, Any]]:
    """Decide pending actions, all or none, then make the rules.

    always: by action id, the input of `core.approvals.rule_of`. Return {action_id, rule_id, detail} for each; detail
    is the reason if a rule could not be made, without effect on the decisions. Raises RuleRefused before anything is
    decided, and the errors of `Commands.decide_each`.
    """
    rules = _rules_of(commands, conversation_id, decisions, always, created_by)
    commands.decide_each(conversation_id, decisions)
    made = []
    for action_id, rule in rules.items():
        try:
            rule_id, detail = make_rule(commands.store, rule, commands.actor, f"rule {action_id}").rule.id, None
        except StoreError as error:
            rule_id, detail = None, str(error)
        made.append({"action_id": action_id, "rule_id": rule_id, "detail": detail})
    return made


def _rules_of(
    commands: Commands,
    conversation_id: ConversationId,
    decisions: Sequence[Decision],
    always: Mapping[str, Any],
    created_by: str,
) -> dict[str, Rule]:
    verbs = {one.action_id: one.verb for one in decisions}
    rules = {}
    folder = commands.store.approvals.confirmations.folder(conversation_id) if always else None
    for action_id, wanted in always.items():
        try:
            event = json.loads(commands.store.events.get(conversation_id, action_id))
        except EventNotFound:
            raise StaleDecision([{"action_id": action_id, "problem": "not_pending"}]) from None
        verb = verbs[action_id]
        if verb == "edit" or verb == "withdraw" or not isinstance(event.get("action"), dict):
            raise RuleRefused("A rule cannot be made from an edit or from an action without arguments")
        try:
            rules[action_id] = rule_of(wanted, event, conversation_id, verb, created_by, folder)
        except ValueError as error:
            raise RuleRefused(str(error)) from None
    return rules
