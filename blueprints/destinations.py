"""Destinations that sandboxes ask for: pending ones, decisions, connections and rules.

Source: docs/approvals.md, "Asking".
"""

from typing import Any

from blueprints import current_actor, current_store
from blueprints.api import Blueprint, needs
from schemas.destinations import (
    AskedDestinationPage,
    DestinationDecided,
    DestinationDecision,
    DestinationRuleInfo,
    DestinationRuleRequest,
    DestinationSearch,
    ReachedDestinationInfo,
    page_id,
)
from schemas.fields import Success
from store.destinations import DestinationChanged, DestinationNotFound, DestinationRule, ReachedDestination
from store.sandboxes.sandboxes import SandboxId

destinations = Blueprint("Destinations", __name__, url_prefix="/api/v1")


@destinations.get("/destinations")
@needs("read")
@destinations.fails()
@destinations.arguments(DestinationSearch(), location="query")
@destinations.response(200, AskedDestinationPage)
def list_asked_destinations(search: dict[str, Any]) -> dict[str, Any]:
    """List the destinations and budgets that wait for a decision, of one sandbox or of all, the longest wait first."""
    items, following = current_store.destinations.page(**search)
    return {"items": items, "next_page_id": page_id(following)}


@destinations.post("/destinations/decisions")
@needs("approve")
@destinations.fails(404, 409)
@destinations.arguments(DestinationDecision())
@destinations.response(200, DestinationDecided)
def decide_destination(given: dict[str, Any]) -> dict[str, Any]:
    """Decide a destination or a budget, as it was shown. The first decision wins."""
    waiting = current_store.destinations.waiting(given["sandbox_id"])
    wanted = (given.get("budget"), given.get("name"), given.get("port"))
    shown = next((one for one in waiting if (one.budget and one.budget.setting, one.name, one.port) == wanted), None)
    if shown is None:
        raise DestinationNotFound
    if shown.digest != given["digest"]:
        raise DestinationChanged
    said = (given["decision"], given["scope"], current_actor(), given["reason"])
    rule = current_store.destinations.decide(shown, *said)
    return {"success": True, "rule_id": rule.id if rule else None}


@destinations.get("/sandboxes/<sandbox_id>/destinations")
@needs("read")
@destinations.fails()
@destinations.response(200, ReachedDestinationInfo(many=True))
def list_reached_destinations(sandbox_id: str) -> list[ReachedDestination]:
    """List the destinations that a sandbox reached or was refused, the latest first."""
    return current_store.destinations.reached(current_store.sandboxes.get(SandboxId(sandbox_id)).id)


@destinations.post("/destination-rules")
@needs("approve")
@destinations.replay(remade=True)
@destinations.fails(409)
@destinations.arguments(DestinationRuleRequest())
@destinations.response(201, DestinationRuleInfo)
def make_destination_rule(wanted: dict[str, Any]) -> tuple[DestinationRule, int]:
    """Make a rule about a name, or all names below a suffix, at one port. Rules that reject win."""
    return current_store.destinations.make_rule(**wanted, actor=current_actor()), 201


@destinations.get("/destination-rules")
@needs("read")
@destinations.fails()
@destinations.response(200, DestinationRuleInfo(many=True))
def list_destination_rules() -> list[DestinationRule]:
    """List the rules for destinations with their uses, the newest first."""
    return current_store.destinations.rules()


@destinations.delete("/destination-rules/<rule_id>")
@needs("approve")
@destinations.fails()
@destinations.response(200, Success)
def revoke_destination_rule(rule_id: str) -> dict[str, bool]:
    """Revoke a rule. It decides no connection after this response."""
    current_store.destinations.revoke(rule_id, current_actor())
    return {"success": True}
