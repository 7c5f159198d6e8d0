"""The table of ACP agents, `agents.toml`, and the agent that the environment chooses."""

import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

#: provider prefix of a model's name, which the provider's own endpoint does not accept
_PROVIDER = re.compile(r"^(openai|anthropic|gemini|litellm_proxy)/")

#: placeholders for the model's settings
_VALUE = re.compile(r"\{(?:MODEL|LLM_BASE_URL|LLM_API_KEY)\}")

_TABLE = Path(__file__).with_name("agents.toml")


class AcpAgent(NamedTuple):
    """An agent: a row of the table."""

    name: str
    title: str
    command: tuple[str, ...] = ()  #: (): an agent server itself, which speaks no ACP
    mode: str = ""  #: the mode in which it asks, set after each new or loaded session; "": no modes
    asks: bool = True  #: False: it never asks for permission, so no policy can hold it
    holds: str = ""  #: what it asks about, for people
    version: str = ""  #: of its program or package, for people
    wire: str = ""  #: the API that its model's endpoint has to speak
    npm: tuple[str, ...] = ()  #: packages of the npm registry, with versions
    pip: tuple[str, ...] = ()  #: packages of PyPI, with versions
    path: tuple[str, ...] = ()  #: folders of its programs below `node_modules`, besides `.bin`
    node: int = 0  #: minimum version of Node; 0: none is needed
    python: str = ""  #: minimum version of Python; "": none is needed
    environment: Mapping[str, str] = {}  #: of its program; see `with_model`
    meta: Mapping[str, Any] = {}  #: `_meta` of the requests that create or load a session
    traps: tuple[str, ...] = ()  #: pitfalls for people, in sentences
    passes: str = ""  #: what it does without asking, held only by the egress proxy, for people
    key: str = ""  #: the server's variable that has the key of its model
    model: str = ""  #: its model, if the install names none
    service: Mapping[str, Any] = {}  #: its model's service, as a [[spec.service]]; {}: `make agent` does not install it
    by: str = ""  #: the command line that installs it, if the packages alone do not

    @property
    def speaks_acp(self) -> bool:
        """Return whether the agent runs as a program. False: it is an agent server itself."""
        return bool(self.command)

    @property
    def is_installed_by_make(self) -> bool:
        return bool(self.service or self.by)

    @property
    def needs_model(self) -> bool:
        """Return whether the program needs a model that `with_model` has not set."""
        return any("{MODEL}" in text for text in (*self.command, *self.environment.values()))

    def with_model(self, model: str, base_url: str, api_key: str) -> "AcpAgent":
        """Return the agent with a model in its command and environment. model: the name in LiteLLM."""
        values = {"{MODEL}": _PROVIDER.sub("", model), "{LLM_BASE_URL}": base_url, "{LLM_API_KEY}": api_key}

        def filled(text: str) -> str:
            return _VALUE.sub(lambda found: json.dumps(values[found[0]])[1:-1], text)  # some values are inside JSON

        environment = {name: filled(text) for name, text in self.environment.items()}
        return self._replace(command=tuple(map(filled, self.command)), environment=environment)


@cache
def table() -> dict[str, AcpAgent]:
    read = tomllib.loads(_TABLE.read_text())
    return {name: _agent(name, members) for name, members in read.items()}


def acp_names() -> list[str]:
    return [name for name, agent in table().items() if agent.speaks_acp]


def chosen(environment: Mapping[str, str]) -> AcpAgent | None:
    """Return the agent that ACP_AGENT and ACP_COMMAND name; None if both are unset.

    ACP_AGENT: a name of the table. ACP_COMMAND: a command line that overrides the table's. ACP_MODE: overrides the mode
    in which the agent asks. Raises ValueError with a sentence.
    """
    name, line = environment.get("ACP_AGENT", ""), environment.get("ACP_COMMAND", "")
    if not name and not line:
        return None
    known = table().get(name)
    if known and not known.speaks_acp:
        known = None
    if name and known is None and not line:
        raise ValueError(f"ACP_AGENT {json.dumps(name)} is unknown. The agents are: {', '.join(acp_names())}.")
    words = tuple(shlex.split(line))
    if line and not words:
        raise ValueError("ACP_COMMAND has no command.")
    agent = known or AcpAgent(name or Path(words[0]).name, name or Path(words[0]).name, words)
    mode = environment.get("ACP_MODE") or agent.mode
    return agent._replace(command=words or agent.command, mode=mode)


def refusal(agent: AcpAgent, policy: Mapping[str, Any]) -> str:
    """Return why an agent must not run under a policy, as a sentence; "" if it may."""
    if agent.asks or policy.get("kind") == "NeverConfirm":
        return ""
    return (
        f"{agent.title} never asks for permission, so no policy can hold its actions. Start it with NeverConfirm: "
        'then only the way out of its sandbox holds it (egress = "named").'
    )


def _agent(name: str, members: dict[str, Any]) -> AcpAgent:
    listed = {"command", "npm", "pip", "path", "traps"}
    read: dict[str, Any] = {key: tuple(value) if key in listed else value for key, value in members.items()}
    return AcpAgent(name, **read)
