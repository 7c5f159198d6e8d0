"""What sandboxes spend on models, by sandbox and by day. Source: docs/egress.md, "Budgets"."""

from dataclasses import asdict
from typing import Any

from flask import current_app

from blueprints import current_store
from blueprints.api import Blueprint, needs
from schemas.spending import DaySearch, DaySpending, SandboxSpending
from store.sandboxes.sandboxes import SandboxId

spending = Blueprint("Spending", __name__, url_prefix="/api/v1")


@spending.get("/sandboxes/<sandbox_id>/spending")
@needs("read")
@spending.fails(404)
@spending.response(200, SandboxSpending)
def get_sandbox_spending(sandbox_id: str) -> dict[str, Any]:
    """Get what a sandbox has spent on models, as their responses say it, and its budget."""
    found = current_store.spending.of_sandbox(current_store.sandboxes.get(SandboxId(sandbox_id)).id)
    return {**asdict(found), "budget": current_app.config["MODEL_BUDGETS"].conversation}


@spending.get("/spending")
@needs("admin")
@spending.fails()
@spending.arguments(DaySearch(), location="query")
@spending.response(200, DaySpending)
def get_day_spending(search: dict[str, Any]) -> dict[str, Any]:
    """Get what all sandboxes have spent on models on a day, in all and by key, and the budgets."""
    found, budgets = current_store.spending.of_day(search["day"]), current_app.config["MODEL_BUDGETS"]
    return {
        "day": found.day.isoformat(),
        "all": found.all,
        "keys": [{**asdict(one), "key_id": owner} for owner, one in found.keys],
        "budget": budgets.day,
        "budget_of_key": budgets.key,
    }
