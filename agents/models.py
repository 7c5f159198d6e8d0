"""The model that a spec gives to its agents: what of it a client may see, and what the sandbox has anyway."""

from typing import Any, NamedTuple

from specs import Spec

#: variables of an agent's environment. Source: the published agent server, and agents/reference
_VARIABLES = {"model": "LLM_MODEL", "base_url": "LLM_BASE_URL", "api_key": "LLM_API_KEY"}


class Model(NamedTuple):
    """A model; a member that the spec does not name is None."""

    model: str | None
    base_url: str | None
    api_key: str | None


def model_of(spec: Spec) -> Model:
    """The model of the spec's template, or that of its environment."""
    agent = spec.conversation.get("agent")
    template = agent.get("llm") if isinstance(agent, dict) else None
    environment = {**spec.initial_env, **spec.secret_env}

    def named(member: str) -> str | None:
        value: Any = template.get(member) if isinstance(template, dict) else environment.get(_VARIABLES[member])
        return value if isinstance(value, str) and value else None

    return Model(*(named(member) for member in Model._fields))
