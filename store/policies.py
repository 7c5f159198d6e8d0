"""Confirmation policies: which risks of an action are held back. Source: the agent-server wire."""

from typing import Any

#: from harmless to dangerous; an action of any other risk counts as UNKNOWN
RISKS = ("LOW", "MEDIUM", "HIGH")


def held_risks(policy: dict[str, Any]) -> str:
    """The risks that a policy holds back, joined by commas, as the scripts read them.

    Source: the agent-server wire. Raises ValueError for any other value.
    """
    match policy:
        case {"kind": "NeverConfirm"}:
            return ""
        case {"kind": "AlwaysConfirm"}:
            return ",".join((*RISKS, "UNKNOWN"))
        case {"kind": "ConfirmRisky"}:
            threshold, unknown = policy.get("threshold", "HIGH"), policy.get("confirm_unknown", True)
            if threshold in RISKS and isinstance(unknown, bool):
                held = RISKS[RISKS.index(threshold) :]
                return ",".join((*held, "UNKNOWN") if unknown else held)
    raise ValueError(f"not a confirmation policy: {policy!r}")
