"""What clients keep of settings: how a change is laid over it, and how it is shown. Source: the agent-server wire."""

from typing import Any

from core.redaction import REDACTED, with_secrets

#: most profiles of models that a key keeps, and most of agents
MOST_PROFILES = 50

#: most steps of a run where nobody has set them. Source: the agent-server wire
MOST_STEPS = 500


def merged(kept: Any, diff: dict[str, Any]) -> dict[str, Any]:
    """What is kept with a diff laid over it: null removes a member, an object goes into an object. Source: RFC 7386."""
    result = dict(kept) if isinstance(kept, dict) else {}
    for name, value in diff.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name), value)
        else:
            result[name] = value
    return result


def unmasked(value: Any, kept: Any) -> Any:
    """A value that a client sends back, where each mask stands for what is kept; without such the member is absent."""
    if isinstance(value, dict):
        before = kept if isinstance(kept, dict) else {}
        return {
            name: unmasked(inner, before.get(name))
            for name, inner in value.items()
            if inner != REDACTED or before.get(name) is not None
        }
    if isinstance(value, list):
        items = kept if isinstance(kept, list) else []
        return [unmasked(inner, items[at] if at < len(items) else None) for at, inner in enumerate(value)]
    return kept if value == REDACTED else value


def has_key(llm: Any) -> bool:
    """Whether a model has a key of its own."""
    return isinstance(llm, dict) and bool(str(llm.get("api_key") or "").strip())


def without_key(llm: dict[str, Any]) -> dict[str, Any]:
    """A model without its secrets."""
    return {name: value for name, value in llm.items() if with_secrets({name: value}, lambda _: "") == {name: value}}
