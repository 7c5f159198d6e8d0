"""Approval rules that people make and revoke, with a record of who and when.

The record of rules names who made and revoked each rule. So does the audit, with the rule in a sentence: in each
conversation that the rule names, or else in the day's audit. Limitation: record and audit are in different slots, so a
kill between them omits the audit entry. A repeated request that makes a rule writes it.
"""

from contextlib import suppress

from core.approvals import Rule
from store import Store
from store.approvals.audit import DecisionActor
from store.approvals.rules import UsedRule
from store.errors import ConversationNotFound


def make_rule(store: Store, rule: Rule, actor: DecisionActor, what: str = "rule") -> UsedRule:
    """Make a rule, once per request and `what`. Raises the errors of `Rules.make`."""
    made = store.approvals.rules.make(rule, what)
    _note(store, made.rule, actor, "rule_made")
    return made


def revoke_rule(store: Store, rule_id: str, actor: DecisionActor) -> None:
    """Revoke a rule. It decides no action after this returns. Raises RuleNotFound."""
    revoked = store.approvals.rules.get(rule_id).rule
    store.approvals.rules.revoke(rule_id, actor.name)
    _note(store, revoked, actor, "rule_revoked")


def _note(store: Store, rule: Rule, actor: DecisionActor, what: str) -> None:
    if not rule.conversation_ids:
        store.destinations.note_rule(actor, what, rule)
    for conversation_id in rule.conversation_ids or ():
        with suppress(ConversationNotFound):  # a rule may name a deleted or future conversation
            store.approvals.terminals.rule_changed(conversation_id, actor, what, rule)
