"""Approval modes. `core/modes.py` defines them. Source: docs/approvals.md, "Modes"."""

from collections.abc import Callable, Mapping
from typing import Any

from marshmallow import RAISE, fields

from core.modes import MODE_NAMES, mode_of
from core.wire import acts_unasked
from schemas.fields import BaseSchema, Choice


def mode_choice(description: str = "GET /api/v1/approval-modes describes the modes.", **kwargs: Any) -> Choice:
    """Return the field of a mode's name in a request."""
    return Choice(*MODE_NAMES, metadata={"description": description}, **kwargs)


def shown_mode(start: Callable[[Any], Mapping[str, Any]] = lambda state: state) -> fields.Function:
    """Return the field of a conversation's mode in a response. start: returns the conversation's state."""
    return fields.Function(
        lambda shown: _mode_of(start(shown)),
        metadata={
            "type": ["string", "null"],
            "enum": [*MODE_NAMES, None],
            "description": "Which actions wait for a decision; null: a policy that matches no mode.",
        },
    )


def _mode_of(state: Mapping[str, Any]) -> str | None:
    return (
        "nothing"
        if acts_unasked(state.get("agent"))
        else mode_of(state.get("confirmation_policy"), state.get("approves_inside"))
    )


class ApprovalMode(BaseSchema):
    """An approval mode."""

    name = fields.String(required=True, metadata={"enum": list(MODE_NAMES)})
    words = fields.String(required=True, metadata={"description": "Label for people, such as `Ask everything`."})
    detail = fields.String(required=True, metadata={"description": "Meaning, in a sentence."})
    policy = fields.Dict(required=True, metadata={"description": "The confirmation policy of the agent."})
    needs_sandbox = fields.Boolean(
        required=True, metadata={"description": "Whether it is refused without a sandbox that contains the agent."}
    )
    approves_inside = fields.Boolean(
        required=True,
        metadata={"description": "Whether the server approves actions that stay inside the folder."},
    )


class SetApprovalMode(BaseSchema):
    class Meta:
        unknown = RAISE

    mode = mode_choice(required=True)
