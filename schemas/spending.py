"""What sandboxes spend on models, and the budgets. Source: docs/egress.md, "Budgets"."""

from datetime import datetime
from typing import Any

from marshmallow import fields
from marshmallow.utils import get_value

from core.prices import SPENT_DAYS
from schemas.fields import BaseSchema, refusal


class _Day(fields.String):
    """A day in UTC, as in 2026-11-26."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return datetime.strptime(value, "%Y-%m-%d").date()
        except ValueError:
            raise refusal("Input should be a day, such as 2026-11-26", "value_error") from None


class DaySearch(BaseSchema):
    day = _Day(
        load_default=None,
        metadata={"format": "date", "description": f"In UTC; absent: today. A day is kept for {SPENT_DAYS} days."},
    )


class Spending(BaseSchema):
    """What was spent on models through the way out, as the models' responses say it."""

    calls = fields.Integer(required=True)
    refused = fields.Integer(required=True, metadata={"description": "Calls that a budget refused."})
    estimated = fields.Integer(
        required=True, metadata={"description": "Calls whose response did not say what it used, or broke off before."}
    )
    input_tokens = fields.Integer(
        required=True, attribute="input", metadata={"description": "Neither read from a cache nor written to one."}
    )
    output_tokens = fields.Integer(required=True, attribute="output")
    cached_tokens = fields.Integer(required=True, attribute="cached", metadata={"description": "Read from a cache."})
    written_tokens = fields.Integer(required=True, attribute="written", metadata={"description": "Written to a cache."})
    tokens = fields.Integer(required=True, metadata={"description": "Of all four kinds."})
    dollars = fields.Function(
        lambda spending: get_value(spending, "nanos") / 1e9,
        metadata={"type": "number", "description": "By the prices of models, in US dollars."},
    )
    unpriced_tokens = fields.Integer(
        required=True,
        attribute="unpriced",
        metadata={"description": "Of models whose price is not known: `dollars` lacks what they cost."},
    )
    allowed_dollars = fields.Function(
        lambda spending: get_value(spending, "allowed_nanos") / 1e9,
        metadata={"type": "number", "description": "What people have allowed beyond the budget, in US dollars."},
    )
    allowed_tokens = fields.Integer(required=True, metadata={"description": "The same in tokens."})


class Budget(BaseSchema):
    """The most that may be spent."""

    dollars = fields.Function(
        lambda budget: None if budget.nanos is None else budget.nanos / 1e9,
        metadata={"type": ["number", "null"], "description": "Null: no bound."},
    )
    tokens = fields.Integer(required=True, allow_none=True, metadata={"description": "Null: no bound."})


class SandboxSpending(Spending):
    """What one sandbox has spent so far."""

    budget = fields.Nested(Budget, required=True, metadata={"description": "MODEL_BUDGET_CONVERSATION"})


class KeySpending(Spending):
    """What the sandboxes of one key have spent on a day."""

    key_id = fields.String(required=True, metadata={"description": "Of the key that started them; empty: nobody's."})


class DaySpending(BaseSchema):
    """What was spent on a day in UTC."""

    day = fields.String(required=True, metadata={"format": "date"})
    all = fields.Nested(Spending, required=True)
    keys = fields.List(fields.Nested(KeySpending), required=True, metadata={"description": "The most expensive first."})
    budget = fields.Nested(Budget, required=True, metadata={"description": "Of all in a day: MODEL_BUDGET_DAY"})
    budget_of_key = fields.Nested(
        Budget, required=True, metadata={"description": "Of each key in a day: MODEL_BUDGET_KEY"}
    )
