"""Approval modes: what people choose instead of a confirmation policy. The one table of them. No store and no Flask.

Source: docs/approvals.md, "Modes". A mode is a confirmation policy, which the agent enforces, and what this server
decides by itself of the actions that then wait.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

ModeName = Literal["everything", "risky", "nothing"]


class Mode(NamedTuple):
    """One approval mode."""

    name: ModeName
    words: str  #: for a choice
    detail: str  #: what it means, in a sentence
    policy: Mapping[str, Any]
    needs_sandbox: bool = False  #: it is refused where nothing holds the agent


MODES: tuple[Mode, ...] = (
    Mode("everything", "Ask everything", "Every action waits for a decision.", {"kind": "AlwaysConfirm"}),
    Mode(
        "risky",
        "Ask what is risky",
        "Actions of medium, high or unknown risk wait for a decision. The agent rates the risk.",
        {"kind": "ConfirmRisky", "threshold": "MEDIUM", "confirm_unknown": True},
    ),
    Mode(
        "nothing",
        "Ask nothing",
        "The agent runs every action without asking. Only its sandbox holds it.",
        {"kind": "NeverConfirm"},
        needs_sandbox=True,
    ),
)

MODE_NAMES: tuple[ModeName, ...] = tuple(mode.name for mode in MODES)

_BY_NAME = {mode.name: mode for mode in MODES}


def mode_named(name: str) -> Mode:
    """The mode of a name. Raises KeyError."""
    return _BY_NAME[name]  # type: ignore[index]


def mode_of(policy: Mapping[str, Any] | None) -> ModeName | None:
    """The mode of a conversation by its policy; None for a policy that is none of the modes."""
    wanted = {"threshold": "HIGH", "confirm_unknown": True} if (policy or {}).get("kind") == "ConfirmRisky" else {}
    whole = {**wanted, **(policy or {"kind": "NeverConfirm"})}
    return next((mode.name for mode in MODES if dict(mode.policy) == whole), None)
