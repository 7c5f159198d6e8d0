"""What an agent's models have used, as the app-server wire has it."""

from typing import Any

_SUMS = ("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


def combined(stats: dict[str, Any]) -> dict[str, Any] | None:
    """The use of all models of an agent together; None until the agent reports any.

    The first model names itself and its response. Source: `TokenUsage.__add__` of the published SDK.
    """
    each = [one for one in (stats.get("usage_to_metrics") or {}).values() if isinstance(one, dict)]
    if not each:
        return None
    tokens = [usage for one in each if isinstance(usage := one.get("accumulated_token_usage"), dict)]
    first = tokens[0] if tokens else {}
    return {
        "model_name": each[0].get("model_name", "default"),
        "accumulated_cost": sum(_number(one, "accumulated_cost") for one in each),
        "max_budget_per_task": each[0].get("max_budget_per_task"),
        "accumulated_token_usage": {
            "model": str(first.get("model") or ""),
            **{name: sum(_number(usage, name) for usage in tokens) for name in _SUMS},
            "context_window": max((_number(usage, "context_window") for usage in tokens), default=0),
            "per_turn_token": _number(tokens[-1], "per_turn_token") if tokens else 0,
            "response_id": str(first.get("response_id") or ""),
        },
    }


def _number(usage: dict[str, Any], name: str) -> float:
    """A member that an agent reported; 0 where it is no number."""
    value = usage.get(name)
    return value if isinstance(value, int | float) else 0
