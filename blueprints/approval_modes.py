"""Approval modes: the list, and the mode of a conversation. Source: docs/approvals.md, "Modes"."""

from typing import Any

from agents.modes import set_mode
from blueprints import current_commands, current_specs
from blueprints.api import Blueprint, needs
from core.modes import MODES, Mode
from core.wire import ConversationId
from schemas.approval_modes import ApprovalMode, SetApprovalMode
from schemas.fields import Success

approval_modes = Blueprint("Approval Modes", __name__, url_prefix="/api/v1")


@approval_modes.get("/approval-modes")
@needs("read")
@approval_modes.fails()
@approval_modes.response(200, ApprovalMode(many=True))
def list_approval_modes() -> list[Mode]:
    """List the approval modes, the strictest first."""
    return list(MODES)


@approval_modes.post("/conversation/<conversation_id:conversation_id>/approval-mode")
@needs("approve")
@approval_modes.fails(409, 410, 429, 502)
@approval_modes.arguments(SetApprovalMode())
@approval_modes.response(200, Success)
def set_approval_mode(wanted: dict[str, Any], conversation_id: ConversationId) -> dict[str, bool]:
    """Set the approval mode of a conversation: which actions wait for a decision from now on."""
    set_mode(current_commands, current_specs, conversation_id, wanted["mode"])
    return {"success": True}
