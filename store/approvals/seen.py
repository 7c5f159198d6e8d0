"""The server's own assessment of an action for clients: its effects, and the greater risk."""

from typing import Any

from core.effects import WORDS_OF, Seen, greater, seen


def assessment(tool_name: object, arguments: object, folder: str | None, risk: object) -> dict[str, Any]:
    """Return the members `risk` and `seen` of a pending action. risk: as reported by the agent."""
    found = seen(tool_name, arguments, folder)
    return {"risk": greater(risk, found.risk), "seen": _seen_members(found)}


def _seen_members(found: Seen) -> dict[str, Any]:
    effects = [
        {"effect": one.effect, "risk": one.risk, "words": WORDS_OF[one.effect], "because": one.because}
        for one in found.effects
    ]
    return {"risk": found.risk, "effects": effects}
