"""Approval rules as they are made and revoked by people: each is recorded with who and when.

The record of the rules says who made each and who revoked it, for all rules. The audit says so too, with the rule in a
sentence: that of each conversation that the rule names, or that of the day. Limitation: record and audit are in
different slots, so a process that is killed between them leaves the entry of the audit out. The repeat of a request
that makes a rule writes it.
"""

from contextlib import suppress

from core.approvals import Rule
from store import Store
from store.approvals.audit import Actor
from store.approvals.rules import UsedRule
from store.errors import ConversationNotFound


def make_rule(store: Store, rule: Rule, actor: Actor, what: str = "rule") -> UsedRule:
    """Make a rule, once per request and `what`. Raises as `Rules.make`."""
    made = store.approvals.rules.make(rule, what)
    _note(store, made.rule, actor, "rule_made")
    return made


def revoke_rule(store: Store, rule_id: str, actor: Actor) -> None:
    """Revoke a rule: it decides no action that is appended after this returns. Raises RuleNotFound."""
    revoked = store.approvals.rules.get(rule_id).rule
    store.approvals.rules.revoke(rule_id, actor.name)
    _note(store, revoked, actor, "rule_revoked")


def _note(store: Store, rule: Rule, actor: Actor, what: str) -> None:
    if not rule.conversation_ids:
        store.destinations.note_rule(actor, what, rule)
    for conversation_id in rule.conversation_ids or ():
        with suppress(ConversationNotFound):  # a rule may name one that is deleted, or not made yet
            store.approvals.terminals.rule_changed(conversation_id, actor, what, rule)
