"""The sandbox specs: read from a TOML file when the server starts, fully checked, never changed."""

import platform
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from marshmallow import RAISE, Schema, ValidationError, fields, post_load, pre_load, validate, validates_schema

from core.egress import PRESETS, AllowedHost
from core.masking import credentials_in
from core.refused import RefusalKind, Refused
from core.wire import MOST_CONFIRMATION_SECONDS, UNASKED, acts_unasked
from settings import ConfigError, variable
from settings.egress import (
    ALL_PRESETS,
    MOST_SERVICES,
    NAMED,
    NO_WAY,
    OPEN,
    Service,
    ServiceSchema,
    check_egress,
    environment_inside,
    model_service,
    read_hosts,
    read_services,
    template_inside,
)
from settings.host import HostSettings

#: Keys that loosen the hardening of a container, and keys of process sandboxes, with their defaults.
_OF_CONTAINERS: dict[str, Any] = {"capabilities": [], "new_privileges": False, "read_only": True}
_OF_PROCESSES: dict[str, Any] = {"isolation": "auto", "readable": []}

#: Minimum memory of a container, in MiB.
_LEAST_MEMORY_MB = 6


#: The specs that come with the server.
BUNDLED = Path(__file__).parent / "specs.toml"

#: Members of `secret_env` that responses may show: the model, its address and its price. Only a password in the address
#: is masked.
_TOLD = ("LLM_MODEL", "LLM_BASE_URL", "MODEL_PRICES")

#: `{env:NAME}` or `{env:NAME:-DEFAULT}`: a variable of the server. Allowed in members that no response shows.
_OF_SERVER = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")

#: Maximum number of restarts of a sandbox in ten minutes.
MOST_RESTARTS = 100

#: Maximum number of warm sandboxes of a spec.
MOST_WARM = 100

#: Default disk quota of a process sandbox, in MiB.
_DISK_MB = 10_240

#: Variables of an agent's environment. Source: the published agent server, and reference_agent.
_VARIABLES = {"model": "LLM_MODEL", "base_url": "LLM_BASE_URL", "api_key": "LLM_API_KEY"}

#: Notice at the start if the bundled agent has no model and there is no other agent.
NO_MODEL = (
    "No model is set: the agent only runs lines that begin with `run: `. To give it a model, start the server with "
    "LLM_MODEL=… LLM_API_KEY=…, and with LLM_BASE_URL=… if the model is not OpenAI's."
)

#: A command that runs the server with a model.
_SET_MODEL = "LLM_MODEL=gpt-5.5 LLM_API_KEY=sk-… make run"

#: Notice that other agents have a model, and notice that an agent has no key.
_OTHERS, _NO_KEY = (
    "The default agent has no model: it only runs lines that begin with `run: `. Others have their own: {others}. "
    "Choose one: agentctl run --agent {first} TEXT",
    "{title} has no key: {key} is not set, so its model is asked without one.",
)


def _check_container(spec: Mapping[str, Any]) -> None:
    folder, memory = spec["working_dir"], spec["limits"].get("memory_mb", _LEAST_MEMORY_MB)
    if not spec["image"]:
        raise ValidationError(f"Missing: the {spec['runtime']} runtime needs an image.", "image")
    if folder != "." and not (folder.startswith("/") and folder.strip("/")):
        raise ValidationError('Must be "." (the image\'s own) or an absolute path other than /.', "working_dir")
    for key, absent in _OF_PROCESSES.items():
        if spec[key] != absent:
            raise ValidationError("Only for the process runtime: a container is always isolated.", key)
    if spec["network"] in ("host", "none"):
        raise ValidationError(
            'Must be a network that publishes ports, neither host nor none. For no network, set egress = "none".',
            "network",
        )
    if spec["network"] == NAMED:
        raise ValidationError('Must be absent with egress = "named".', "network")
    if spec["network"] is not None and not re.fullmatch(r"[\w.-]+", spec["network"]):
        raise ValidationError("Must be the name of a network of the engine.", "network")
    if memory < _LEAST_MEMORY_MB:
        raise ValidationError({"memory_mb": [f"Must be at least {_LEAST_MEMORY_MB} for a container."]}, "limits")
    if spec["limits"].get("processes") == 0:
        raise ValidationError({"processes": ["Must be at least 1 for a container."]}, "limits")


def _check_pod(spec: Mapping[str, Any]) -> None:
    _check_container(spec)
    if spec["network"] is not None:
        raise ValidationError("Only for the other runtimes: NetworkPolicies limit the network of a pod.", "network")
    if "processes" in spec["limits"]:
        raise ValidationError(
            {"processes": ["Only for the other runtimes: podPidsLimit of the kubelet limits a pod."]},
            "limits",
        )


def _check_process(spec: Mapping[str, Any]) -> None:
    for key, absent in _OF_CONTAINERS.items():
        if spec[key] != absent:
            raise ValidationError("Only for the docker and kubernetes runtimes.", key)
    if spec["network"] not in (None, "internet", "none"):
        raise ValidationError('Must be "internet" or "none" for the process runtime.', "network")
    if spec["isolation"] == "none" and spec["network"] == "none":
        raise ValidationError(
            'Must be absent with isolation = "none": the sandbox has the machine\'s network.', "network"
        )


#: Runtime → check that raises marshmallow's ValidationError for an impossible sandbox of the runtime.
CHECKS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "process": _check_process,
    "docker": _check_container,
    "kubernetes": _check_pod,
}


def unsupported(runtime: str) -> str:
    """Return why this system cannot run sandboxes of a runtime, in a sentence; empty if it can."""
    if runtime == "process" and platform.system() != "Linux":
        return f"Sandboxes of the runtime `process` need Linux, this system is {platform.system()}: use `docker`."
    return ""


@dataclass(frozen=True, slots=True)
class AgentOfSpec:
    """The agent of a spec's sandboxes."""

    name: str
    title: str  #: display name
    version: str = ""
    asks: bool = True  #: False: it never asks for permission
    key: str = ""  #: name of the variable with the API key of its model
    holds: str = ""  #: for people: which actions wait for a decision
    passes: str = ""  #: for people: which actions it runs without asking; only the egress proxy restricts them


class Missing(NamedTuple):
    """What the agent of a spec lacks to call a model."""

    what: str  #: "model" or "key"
    words: str  #: explanation for people
    command: str  #: command that starts the server with it


@dataclass(frozen=True, slots=True)
class Spec:
    """A template. Times are in seconds, 0 for never. A limit of None is the runtime's default, and 0 is no limit."""

    id: str
    command: tuple[str, ...]
    created_at: datetime
    initial_env: Mapping[str, str] = field(repr=False)
    secret_env: Mapping[str, str] = field(repr=False)
    working_dir: str
    runtime: str
    image: str | None
    ports: Mapping[str, int]
    isolation: str
    readable: tuple[str, ...]
    network: str | None
    capabilities: tuple[str, ...]
    new_privileges: bool
    read_only: bool
    idle_pause_seconds: float
    idle_stop_seconds: float
    max_seconds: float
    restarts: int
    resume_runs: bool | None  #: None: runs of the policy NeverConfirm resume
    disk_bytes: int | None
    memory_bytes: int | None
    cpus: float | None
    processes: int | None
    conversation: Mapping[str, Any] = field(repr=False)
    own_agents: bool = False
    confirmation_seconds: int | None = None
    warm: int = 0
    egress: str = OPEN
    hosts: tuple[AllowedHost, ...] = ()
    presets: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()  #: including the service of the model, if the variables name a model
    agent: AgentOfSpec | None = None  #: None: the spec names no agent

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of the spec's sandboxes, without variables of the server and keys of services."""
        whole = {**self.initial_env, **self.secret_env}
        return environment_inside(whole) if self.egress == NAMED else whole

    @property
    def missing(self) -> Missing | None:
        """Return what the agent lacks to call a model; None if nothing is known to be missing."""
        if lacks_model(self):
            return Missing("model", "No model is set: the agent only runs lines that begin with `run: `.", _SET_MODEL)
        agent = self.agent
        if agent and agent.key and model_of(self).model and not variable(agent.key):
            return Missing("key", _NO_KEY.format(title=agent.title, key=agent.key), f"{agent.key}=… make run")
        return None

    @property
    def allowed_hosts(self) -> tuple[AllowedHost, ...]:
        """Return the destinations that need no decision."""
        return (*self.hosts, *(host for preset in self.presets for host in PRESETS[preset]))

    @property
    def secret_texts(self) -> list[str]:
        """Return the values that are masked in events and logs of its sandboxes."""
        of_services = [text for service in self.services for text in service.credentials]
        kept = [text for name, text in self.secret_env.items() if name not in _TOLD]
        named = [*kept, *of_services, *(text.rpartition(" ")[2] for text in of_services)]
        told = {name: self.secret_env.get(name, "") for name in _TOLD}
        return [*named, *credentials_in([told, self.initial_env, self.conversation])]

    @property
    def version(self) -> str:
        """Return a hash of the spec without `warm`. Sandboxes of other versions are not used any more."""
        values = [getattr(self, each.name) for each in fields_of(self) if each.name != "warm"]
        return sha256(repr(values).encode()).hexdigest()[:16]


class _StrictSpec(Schema):
    class Meta:
        unknown = RAISE


class _Limits(_StrictSpec):
    memory_mb = fields.Integer(strict=True, validate=validate.Range(min=0))
    cpus = fields.Float(validate=validate.Range(min=0.01))
    processes = fields.Integer(strict=True, validate=validate.Range(min=0))
    disk_mb = fields.Integer(strict=True, validate=validate.Range(min=0))


class _Agent(_StrictSpec):
    name = fields.String(required=True, validate=validate.Regexp(re.compile(r"[a-z][a-z0-9-]{0,63}\Z")))
    title = fields.String(required=True, validate=validate.Length(min=1, max=100))
    version = fields.String(load_default="", validate=validate.Length(max=100))
    asks = fields.Boolean(truthy={True}, falsy={False}, load_default=True)
    key = fields.String(load_default="", validate=validate.Length(max=100))
    holds = fields.String(load_default="", validate=validate.Length(max=500))
    passes = fields.String(load_default="", validate=validate.Length(max=500))

    @post_load
    def _make(self, members: dict[str, Any], **_: Any) -> AgentOfSpec:
        return AgentOfSpec(**members)


class _Spec(_StrictSpec):
    """The schema of a spec in the file; `specs.toml` explains each key."""

    id = fields.String(required=True, validate=validate.Regexp(re.compile(r"[\w./:-]{1,128}\Z")))
    command = fields.List(fields.String(), required=True, validate=validate.Length(min=1))
    created_at = fields.Raw(required=True)
    runtime = fields.String(load_default="process", validate=validate.OneOf(list(CHECKS)))
    image = fields.String(load_default=None)
    working_dir = fields.String(load_default=".", validate=validate.Length(min=1))
    initial_env = fields.Dict(keys=fields.String(), values=fields.String(), load_default=dict)
    secret_env = fields.Dict(keys=fields.String(), values=fields.String(), load_default=dict)
    ports = fields.Dict(
        keys=fields.String(validate=validate.Regexp(r"[A-Z][A-Z0-9_]*\Z")),
        values=fields.Integer(strict=True, validate=validate.Range(min=1, max=65535)),
        load_default=lambda: {"AGENT_SERVER": 8000},
    )
    isolation = fields.String(load_default="auto", validate=validate.OneOf(["auto", "required", "none"]))
    readable = fields.List(
        fields.String(validate=validate.Regexp(r"/.", error="Must be an absolute path other than /.")),
        load_default=list,
    )
    network = fields.String(load_default=None)
    capabilities = fields.List(
        fields.String(
            validate=validate.Regexp(r"[A-Z][A-Z_]*\Z", error="Must be the name of a capability, such as NET_RAW.")
        ),
        load_default=list,
    )
    new_privileges = fields.Boolean(truthy={True}, falsy={False}, load_default=False)
    read_only = fields.Boolean(truthy={True}, falsy={False}, load_default=True)
    idle_pause_seconds = fields.Float(load_default=0.0, validate=validate.Range(min=0))
    idle_stop_seconds = fields.Float(load_default=0.0, validate=validate.Range(min=0))
    max_seconds = fields.Float(load_default=0.0, validate=validate.Range(min=0))
    restarts = fields.Integer(strict=True, load_default=3, validate=validate.Range(min=0, max=MOST_RESTARTS))
    confirmation_seconds = fields.Integer(
        strict=True, load_default=None, validate=validate.Range(min=0, max=MOST_CONFIRMATION_SECONDS)
    )
    resume_runs = fields.Boolean(truthy={True}, falsy={False}, load_default=None)
    limits = fields.Nested(_Limits, load_default=dict)
    conversation = fields.Dict(keys=fields.String(), load_default=dict)
    warm = fields.Integer(strict=True, load_default=0, validate=validate.Range(min=0, max=MOST_WARM))
    own_agents = fields.Boolean(truthy={True}, falsy={False}, load_default=False)
    egress = fields.String(load_default=None, validate=validate.OneOf([NAMED, OPEN, NO_WAY]))
    hosts = fields.List(fields.String(), load_default=None)
    presets = fields.List(fields.String(validate=validate.OneOf(ALL_PRESETS)), load_default=None)
    service = fields.List(fields.Nested(ServiceSchema), load_default=None, validate=validate.Length(max=MOST_SERVICES))
    agent = fields.Nested(_Agent, load_default=None)

    @pre_load
    def _known_names(self, spec: dict[str, Any], **_: Any) -> dict[str, Any]:
        if "isolated" in spec:
            raise ValidationError('Replaced by isolation = "auto", "required" or "none".', "isolated")
        return spec

    @validates_schema
    def _consistent(self, spec: dict[str, Any], **_: Any) -> None:
        if not isinstance(spec["created_at"], datetime) or spec["created_at"].tzinfo is None:
            raise ValidationError("Must be a date and time with a zone, unquoted.", "created_at")
        CHECKS[spec["runtime"]](spec)
        check_egress(spec)
        policy = spec["conversation"].get("confirmation_policy")
        agents = (spec["conversation"].get("agent"), spec["conversation"].get("agent_settings"))
        if policy not in (None, {"kind": "NeverConfirm"}) and any(map(acts_unasked, agents)):
            raise ValidationError(f"{UNASKED}.", "conversation")
        if both := sorted(spec["initial_env"].keys() & spec["secret_env"].keys()):
            raise ValidationError(f"initial_env has {both[0]} too: remove one of them.", "secret_env")
        if "AGENT_SERVER" not in spec["ports"]:
            raise ValidationError("AGENT_SERVER is missing: the server needs the port of the agent server.", "ports")

    @post_load
    def _make(self, spec: dict[str, Any], **_: Any) -> Spec:
        limits, created_at = spec.pop("limits"), spec.pop("created_at").astimezone(UTC)
        lists = {name: tuple(spec[name]) for name in ("command", "capabilities", "readable")}
        memory = limits.get("memory_mb")
        disk = limits.get("disk_mb", _DISK_MB if spec["runtime"] == "process" else 0)
        hidden = {name: _from_environment(spec[name]) for name in ("secret_env", "conversation")}
        way_out = _way_out(spec, {**spec["initial_env"], **hidden["secret_env"]}, hidden.pop("conversation"))
        return Spec(
            **{**spec, **lists, **hidden, **way_out},
            created_at=created_at,
            memory_bytes=memory and memory * 1024 * 1024,
            disk_bytes=disk * 1024 * 1024 or None,
            cpus=limits.get("cpus"),
            processes=limits.get("processes"),
        )


def _way_out(spec: dict[str, Any], environment: Mapping[str, str], conversation: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec's members for egress, and its conversation template. Raises ValidationError."""
    presets, tables = spec.pop("presets"), spec.pop("service") or []
    egress = spec["egress"] or (NO_WAY if spec["network"] == "none" else OPEN)
    if egress != NAMED:
        return {"egress": egress, "hosts": (), "presets": (), "services": (), "conversation": conversation}
    services = read_services(tables, _from_environment)
    model = model_service(environment)
    conversation, of_template = template_inside(conversation)
    known = {service.name for service in services}
    services += tuple(one for one in ((model,) if model else ()) + of_template if one.name not in known)
    named = ALL_PRESETS if presets is None else tuple(presets)
    hosts = read_hosts(spec["hosts"] or [])
    return {"egress": egress, "hosts": hosts, "presets": named, "services": services, "conversation": conversation}


def _from_environment(members: Mapping[str, Any]) -> dict[str, Any]:
    """Replace each `{env:NAME}` in members. Drop a member if the variable is unset or empty.

    `{env:NAME:-DEFAULT}` uses the default instead.
    """
    found: dict[str, Any] = {}
    for name, value in members.items():
        if isinstance(value, dict):
            found[name] = _from_environment(value)
        elif not isinstance(value, str):
            found[name] = value
        elif all(variable(one) or default for one, default in _OF_SERVER.findall(value)):
            found[name] = _OF_SERVER.sub(lambda match: variable(match[1]) or match[2], value)
    return found


class SpecNotFound(Refused):
    """The sandbox spec does not exist."""

    kind = RefusalKind.MISSING
    words = "Sandbox spec not found. GET /api/v1/sandbox-specs/search lists the specs"


class Specs:
    """All specs, in the file's order. The first is the default."""

    def __init__(self, specs: list[Spec]) -> None:
        self.all = specs
        self._by_id = {spec.id: spec for spec in specs}

    def find(self, spec_id: str) -> Spec | None:
        return self._by_id.get(spec_id)

    def get(self, spec_id: str | None) -> Spec:
        """Return the spec of an id, or the default spec. Raises SpecNotFound."""
        spec = self.all[0] if spec_id is None else self.find(spec_id)
        if spec is None:
            raise SpecNotFound
        return spec

    @property
    def of_own_agents(self) -> Spec:
        """Return the spec for agents of clients: the first with `own_agents`, else the default."""
        return next((spec for spec in self.all if spec.own_agents), self.all[0])

    def page(self, *, limit: int, start: str | None = None) -> tuple[list[Spec], str | None]:
        """Return specs in the file's order from an id on, and the first id of the next page. Raises SpecNotFound."""
        first = self.all.index(self.get(start))
        following = first + limit
        return self.all[first:following], self.all[following].id if following < len(self.all) else None

    @classmethod
    def load(cls, path: str) -> "Specs":
        """Read a file; an empty path means the bundled file. Raises ConfigError that names file, key and reason."""
        return cls(_read(Path(path) if path else BUNDLED))

    @classmethod
    def of(cls, host: HostSettings) -> "Specs":
        """Read the file of the settings, and then the specs of agents that `make agent` installed.

        A spec of the file replaces an installed agent's spec of the same id. Raises ConfigError as `load` does.
        """
        specs = cls.load(host.sandbox_specs)
        installed = [spec for file in sorted(host.agents_folder.glob("*/spec.toml")) for spec in _read(file)]
        return cls([*specs.all, *(spec for spec in installed if not specs.find(spec.id))])


def _read(file: Path) -> list[Spec]:
    """Read the specs of a file. Raises ConfigError."""
    try:
        document = tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(f"SANDBOX_SPECS {file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    found = document.pop("spec", None)
    if document or not isinstance(found, list) or not found or not all(isinstance(one, dict) for one in found):
        wrong = next(iter(document), "spec")
        raise ConfigError(f"{file}: {wrong}: the file must only have tables [[spec]], at least one")
    specs: list[Spec] = []
    for number, entry in enumerate(found, 1):
        name = f"{file}: spec {number}" + (f" ({entry['id']})" if isinstance(entry.get("id"), str) else "")
        try:
            spec: Spec = _Spec().load(entry)
        except ValidationError as fault:
            raise ConfigError(f"{name}: {_sentence(fault.normalized_messages())}") from None
        if spec.id in (other.id for other in specs):
            raise ConfigError(f"{name}: id: another spec has the same id")
        specs.append(spec)
    return specs


def _sentence(messages: Any) -> str:
    """Return the first error of a validation: the path of the key, and the reason."""
    path = []
    while isinstance(messages, dict):
        key, messages = next(iter(messages.items()))
        path.append(str(key))
    reason = messages[0] if isinstance(messages, list) else messages
    return f"{'.'.join(path)}: {reason}"


class SpecModel(NamedTuple):
    """The model of a spec's agents. Members that the spec does not name are None."""

    model: str | None
    base_url: str | None
    api_key: str | None


def is_bundled(spec: Spec) -> bool:
    """Return whether a spec runs the bundled agent itself, not another agent through it."""
    return "reference_agent" in spec.command and not spec.initial_env.keys() & {"ACP_AGENT", "ACP_COMMAND"}


def lacks_model(spec: Spec) -> bool:
    """Return whether a spec runs the bundled agent without a model. The agent then only runs lines `run: CMD`."""
    return is_bundled(spec) and not model_of(spec).model


def model_notices(specs: "Specs") -> list[str]:
    """Return the notices about missing models and keys that the operator reads at the start."""
    others = [spec for spec in specs.all if spec.agent and spec.agent.key and model_of(spec).model]
    found = [missing.words for one in others if (missing := one.missing)]
    if not lacks_model(specs.get(None)):
        return found
    names = ", ".join(one.id for one in others)
    return [_OTHERS.format(others=names, first=others[0].id) if others else NO_MODEL, *found]


def model_of(spec: Spec) -> SpecModel:
    """Return the model of the spec's template, or of its environment."""
    agent = spec.conversation.get("agent")
    template = agent.get("llm") if isinstance(agent, dict) else None
    environment = spec.environment

    def named(member: str) -> str | None:
        value: Any = template.get(member) if isinstance(template, dict) else environment.get(_VARIABLES[member])
        if spec.egress == NAMED and member == "base_url":  # only the sandbox can use the address of a service
            return None
        return value if isinstance(value, str) and value else None

    return SpecModel(*(named(member) for member in SpecModel._fields))
