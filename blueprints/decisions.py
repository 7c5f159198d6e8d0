"""Decisions of single pending actions, each bound to what a person was shown. Source: docs/approvals.md."""

from typing import Any

from flask import g

from agents.standing_decisions import decide_each
from blueprints import current_commands, current_store
from blueprints.api import Blueprint, needs
from schemas.decisions import DecidedAction, DecisionsRequest, DecisionsResult
from store.approvals.decisions import Decision
from wire import ConversationId

decisions = Blueprint("Decisions", __name__, url_prefix="/api/v1/conversation/<conversation_id:conversation_id>")


@decisions.post("/pending-actions/decisions")
@needs("approve")
@decisions.fails(404, 409, 413, 415)
@decisions.arguments(DecisionsRequest())
@decisions.response(200, DecisionsResult)
def decide_pending_actions(given: dict[str, Any], conversation_id: ConversationId) -> dict[str, Any]:
    """Decide single pending actions, all or none; the first decision of an action wins."""
    wanted = [(one.pop("always"), Decision(**one)) for one in given["decisions"]]
    always = {decision.action_id: rule for rule, decision in wanted if rule is not None}
    decisions = [decision for _, decision in wanted]
    rules = decide_each(current_commands, conversation_id, decisions, always, g.principal.name)
    return {"success": True, "rules": rules}


@decisions.get("/pending-actions/decisions")
@needs("read")
@decisions.fails(404)
@decisions.response(200, DecidedAction(many=True))
def list_decided_actions(conversation_id: ConversationId) -> list[dict[str, Any]]:
    """List the actions that were approved and are not observed yet: what an agent may execute."""
    return current_store.confirmations.decided(conversation_id)
