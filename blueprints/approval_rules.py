"""Approval rules: make, list, get, revoke."""

from typing import Any

from flask import g, url_for

from blueprints import current_store
from blueprints.api import Blueprint, needs
from core.approvals import Rule
from schemas.approval_rules import ApprovalRule, ApprovalRuleRequest
from schemas.confirmations import Success
from store.approvals.rules import UsedRule

approval_rules = Blueprint("Approval Rules", __name__, url_prefix="/api/v1/approval-rules")


@approval_rules.post("")
@needs("approve")
@approval_rules.replay(remade=True)
@approval_rules.fails(409, 413, 415)
@approval_rules.arguments(ApprovalRuleRequest())
@approval_rules.response(201, ApprovalRule)
def make_approval_rule(wanted: dict[str, Any]) -> tuple[UsedRule, int, dict[str, str]]:
    """Make a rule, which decides the actions that it matches; a rule that rejects wins over rules that approve."""
    made = current_store.approvals.rules.make(Rule(**wanted, created_by=g.principal.name))
    return made, 201, {"Location": url_for(".get_approval_rule", rule_id=made.rule.id)}


@approval_rules.get("")
@needs("read")
@approval_rules.fails()
@approval_rules.response(200, ApprovalRule(many=True))
def list_approval_rules() -> list[UsedRule]:
    """List the rules with their uses, the newest first; expired and used up ones too, and none that was revoked."""
    return current_store.approvals.rules.all()


@approval_rules.get("/<rule_id>")
@needs("read")
@approval_rules.fails(404)
@approval_rules.response(200, ApprovalRule)
def get_approval_rule(rule_id: str) -> UsedRule:
    """Get a rule with its uses."""
    return current_store.approvals.rules.get(rule_id)


@approval_rules.delete("/<rule_id>")
@needs("approve")
@approval_rules.fails(404)
@approval_rules.response(200, Success)
def revoke_approval_rule(rule_id: str) -> dict[str, bool]:
    """Revoke a rule: it decides no action that is appended after this response."""
    current_store.approvals.rules.revoke(rule_id)
    return {"success": True}
