"""Which actions a confirmation policy holds back until a person has decided. Source: the agent-server wire."""

from typing import Any

from agents.reference.events import Event
from agents.reference.tools import RISKS


def holds(policy: dict[str, Any], actions: list[Event]) -> bool:
    """Whether the actions of one response wait, all together. A lone finish never does."""
    if not actions or [action["action"]["kind"] for action in actions] == ["FinishAction"]:
        return False
    match policy.get("kind"):
        case "NeverConfirm":
            return False
        case "ConfirmRisky":
            return any(_is_risky(policy, action["security_risk"]) for action in actions)
    return True


def _is_risky(policy: dict[str, Any], risk: str) -> bool:
    if risk not in RISKS:
        return policy.get("confirm_unknown") is not False
    threshold = policy.get("threshold", "HIGH")
    return threshold not in RISKS or RISKS.index(risk) >= RISKS.index(threshold)
