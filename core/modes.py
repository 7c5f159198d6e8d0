"""Approval modes: what people choose instead of a confirmation policy. The one table of them. No store and no Flask.

Source: docs/approvals.md, "Modes". A mode is a confirmation policy, which the agent enforces, and what this server
decides by itself of the actions that then wait.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

ModeName = Literal["everything", "risky", "outside", "nothing"]


class Mode(NamedTuple):
    """One approval mode."""

    name: ModeName
    words: str  #: for a choice
    detail: str  #: what it means, in a sentence
    policy: Mapping[str, Any]
    needs_sandbox: bool = False  #: it is refused where nothing holds the agent
    approves_inside: bool = False  #: the server approves what waits and stays inside the folder: `core/inside.py`


MODES: tuple[Mode, ...] = (
    Mode("everything", "Ask everything", "Every action waits for a decision.", {"kind": "AlwaysConfirm"}),
    Mode(
        "risky",
        "Ask what is risky",
        "Actions of medium, high or unknown risk wait for a decision. The agent rates the risk.",
        {"kind": "ConfirmRisky", "threshold": "MEDIUM", "confirm_unknown": True},
    ),
    Mode(
        "outside",
        "Ask what leaves the folder",
        "Reads, and writes inside the folder, pass. Files that other programs obey, the network, deletions, scripts,"
        " secrets and all that is not known wait for a decision.",
        {"kind": "AlwaysConfirm"},
        approves_inside=True,
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


def mode_of(policy: Mapping[str, Any] | None, approves_inside: bool | None = None) -> ModeName | None:
    """The mode of a conversation by its policy; None for a policy that is none of the modes.

    approves_inside: as its record has it; it counts beside the policy of that mode alone.
    """
    wanted = {"threshold": "HIGH", "confirm_unknown": True} if (policy or {}).get("kind") == "ConfirmRisky" else {}
    whole = {**wanted, **(policy or {"kind": "NeverConfirm"})}
    found = [mode for mode in MODES if dict(mode.policy) == whole]
    return next((mode.name for mode in found if len(found) == 1 or mode.approves_inside == bool(approves_inside)), None)


def policy_words(policy: Mapping[str, Any] | None, approves_inside: bool | None = None) -> str:
    """A policy in words: those of its mode, or the policy's own name where it is none of the modes."""
    name = mode_of(policy, approves_inside)
    return f"“{mode_named(name).words}”" if name else f"The policy {(policy or {}).get('kind')}"
