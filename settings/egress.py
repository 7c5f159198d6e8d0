"""The egress settings of a spec: `egress`, `hosts`, `presets` and `[[spec.service]]`.

A service is a base URL that sandboxes reach at `{EGRESS}/NAME`; the proxy adds its headers outside of the sandbox. In a
header `{env:NAME}` is a variable of the server, and `{secrets.NAME}` a secret of the conversation. The model of the
variables LLM_MODEL, LLM_BASE_URL and LLM_API_KEY is a service, and so is each model in `[spec.conversation]`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from marshmallow import RAISE, Schema, ValidationError, fields, validate, validates

from core.egress import PRESETS, AllowedHost

#: Values of `egress`. The default is `open`, or `none` with `network = "none"`.
NAMED, OPEN, NO_WAY = "named", "open", "none"

#: Presets of a spec without `presets`.
ALL_PRESETS = tuple(PRESETS)

#: Placeholder in a sandbox for a key that the proxy adds.
PLACEHOLDER = "placeholder-the-key-is-put-in-outside"

#: The service of the variables LLM_…, and the maximum number of services of a spec.
MODEL_SERVICE, MOST_SERVICES = "model", 32

#: The service of a conversation template's model. A second model gets the suffix `-2`.
AGENT_MODEL_SERVICE = "agent-model"

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

#: A secret of the calling conversation, in a header of a service.
_OF_USER = re.compile(r"\{secrets\.([A-Za-z_][A-Za-z0-9_]{0,127})\}")

#: Headers that frame a request or concern a single connection.
_OF_CONNECTION = ("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect")


#: Base URLs of models with a provider and no URL. Source: LiteLLM's prefixes, and each provider's reference.
_PROVIDERS = {
    "": "https://api.openai.com/v1",
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "mistral": "https://api.mistral.ai/v1",
    "deepseek": "https://api.deepseek.com",
    "groq": "https://api.groq.com/openai/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "xai": "https://api.x.ai/v1",
}


@dataclass(frozen=True, slots=True)
class Service:
    """A base URL without a slash at the end, and the headers that the proxy adds.

    is_model: its calls are counted and limited by the budgets.
    """

    name: str
    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_model: bool = False

    @property
    def secret_names(self) -> frozenset[str]:
        """Return the names of conversation secrets in its headers."""
        return frozenset(name for text in self.headers.values() for name in _OF_USER.findall(text))

    def with_secrets(self, values: Mapping[str, str]) -> "Service":
        """Return the service with conversation secrets in its headers. Headers with a missing secret are left out."""
        known = {name: text for name, text in self.headers.items() if values.keys() >= set(_OF_USER.findall(text))}
        filled = {name: _OF_USER.sub(lambda found: values[found[1]], text) for name, text in known.items()}
        return replace(self, headers=filled)

    @property
    def credentials(self) -> list[str]:
        """Return the header values that are secrets of the server."""
        return [text for text in self.headers.values() if not _OF_USER.search(text)]


class ServiceSchema(Schema):
    """A table [[spec.service]]; `specs.toml` explains each key."""

    class Meta:
        unknown = RAISE

    name = fields.String(required=True, validate=validate.Regexp(re.compile(r"[a-z][a-z0-9-]{0,31}\Z")))
    base_url = fields.String(required=True)
    headers = fields.Dict(
        keys=fields.String(validate=validate.Regexp(re.compile(rf"{_HEADER.pattern}\Z"))),
        values=fields.String(validate=validate.Regexp(re.compile(r"[ -~]*\Z"), error="Must be printable ASCII.")),
        load_default=dict,
    )

    model = fields.Boolean(truthy={True}, falsy={False}, load_default=None)

    @validates("base_url")
    def _is_base(self, value: str, **_: Any) -> None:
        if not value.startswith("{env:"):  # checked after its variable is read
            check_base_url(value, may_be_plain=False)

    @validates("headers")
    def _are_of_requests(self, value: Mapping[str, str], **_: Any) -> None:
        if wrong := [name for name in value if name.lower() in _OF_CONNECTION]:
            raise ValidationError(f"{wrong[0]} is written by the proxy itself.")
        if wrong := [name for name, text in value.items() if "{secrets" in _OF_USER.sub("", text)]:
            raise ValidationError(f"{wrong[0]} must name a secret as {{secrets.NAME}}, by letters, digits and _.")


def check_base_url(url: str, *, may_be_plain: bool) -> None:
    """Raise ValidationError for an invalid base URL of a service.

    may_be_plain: allow http:// to any host. Otherwise it is only allowed to this machine or a private address.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise ValidationError("Must be a URL.") from None
    if parts.scheme not in ("https", "http") or not host or not url.isascii() or re.search(r"[\x00-\x20\x7f\\]", url):
        raise ValidationError("Must be an https:// URL.")
    if parts.query or parts.fragment or parts.username is not None:
        raise ValidationError("Must have no query, no fragment and no user.")
    if any(part in (".", "..") for part in parts.path.split("/")) or "%" in parts.path:
        raise ValidationError("Must have a plain path.")
    if parts.scheme == "http" and not may_be_plain and not _is_near(host):
        raise ValidationError("Must be https://: plain http:// shows the headers to the network, but of near machines.")


def _is_near(host: str) -> bool:
    """Return whether a host is this machine, a private address, or a name of one label, such as a container's."""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(".localhost")


def read_hosts(texts: list[str]) -> tuple[AllowedHost, ...]:
    """Parse the hosts of a spec. Raises ValidationError."""
    try:
        return tuple(map(AllowedHost.read, texts))
    except ValueError as error:
        raise ValidationError(f"{error}.", "hosts") from None


def check_egress(spec: Mapping[str, Any]) -> None:
    """Raise ValidationError for an egress that a sandbox of the spec cannot have."""
    if spec["egress"] in (NAMED, NO_WAY):
        if spec["isolation"] == "none":
            raise ValidationError(
                'Must be "open" with isolation = "none", which does not confine the sandbox.', "egress"
            )
        if spec["network"] is not None:
            raise ValidationError("Must be absent where `egress` says what is reached.", "network")
    if spec["egress"] != NAMED:
        for key in ("hosts", "presets", "service"):
            if spec[key] is not None:
                raise ValidationError('Only with egress = "named": remove this, or set egress.', key)
    names = [service["name"] for service in spec["service"] or []]
    if len(names) != len(set(names)):
        raise ValidationError("The name is not unique.", "service")


def read_services(
    tables: list[Mapping[str, Any]], resolved: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> tuple[Service, ...]:
    """Return the services of a spec, without those whose base URL names an unset variable. Raises ValidationError.

    resolved: replaces `{env:NAME}` in the values of a mapping, and drops members whose variable is unset.
    """
    found = []
    for table in map(resolved, tables):
        if "base_url" in table:
            check_base_url(table["base_url"], may_be_plain=False)
            is_model = table["name"] == MODEL_SERVICE if table["model"] is None else table["model"]
            found.append(Service(table["name"], table["base_url"].rstrip("/"), table.get("headers", {}), is_model))
    return tuple(found)


def model_service(environment: Mapping[str, str]) -> Service | None:
    """Return the service of the variables LLM_…; None without a model. Raises ValidationError.

    environment: complete environment of a spec.
    """
    model, url, key = (environment.get(name, "") for name in ("LLM_MODEL", "LLM_BASE_URL", "LLM_API_KEY"))
    return _model_at(MODEL_SERVICE, model, url, key, "LLM_MODEL", "LLM_BASE_URL") if model else None


def _model_at(name: str, model: str, url: str, key: str, model_in: str, url_in: str) -> Service:
    """Return the service of a model.

    model_in, url_in: names of the model and of its URL in errors. Raises ValidationError.
    """
    provider = model.partition("/")[0] if "/" in model else ""
    if not (url := url or _PROVIDERS.get(provider, "")):
        raise ValidationError(f"{model_in} names the provider {provider}: set {url_in} to its address.", "egress")
    check_base_url(url, may_be_plain=True)  # it may be in the operator's network
    headers = {"x-api-key": key} if provider == "anthropic" else {"Authorization": f"Bearer {key}"}
    return Service(name, url.rstrip("/"), headers if key else {}, is_model=True)


def template_inside(conversation: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[Service, ...]]:
    """Return a conversation's start request for its sandbox, and the services of its models. Raises ValidationError.

    Each member `llm` with a model, at any depth of the agent, gets the address of a service and a placeholder for its
    key.
    """
    services: list[Service] = []

    def inside(value: Any, of: str = "") -> Any:
        if isinstance(value, list):
            return [inside(one) for one in value]
        if not isinstance(value, dict):
            return value
        members = {name: inside(one, name) for name, one in value.items()}
        if of == "llm" and isinstance(model := value.get("model"), str) and model:
            url, key = (one if isinstance(one := value.get(name), str) else "" for name in ("base_url", "api_key"))
            found = _model_at("", model, url, key, "llm.model", "llm.base_url")
            known = next((one for one in services if replace(one, name="") == found), None)
            if known is None:
                name = AGENT_MODEL_SERVICE + (f"-{len(services) + 1}" if services else "")
                services.append(known := replace(found, name=name))
            members |= {"base_url": f"{{EGRESS}}/{known.name}", "api_key": PLACEHOLDER}
        return members

    return inside(dict(conversation)), tuple(services)


def static_value(secret: Any) -> str | None:
    """Return the value of a conversation's secret; None if its agent looks it up."""
    value = secret.get("value") if isinstance(secret, dict) and "url" not in secret else secret
    return value if isinstance(value, str) else None


class UnusableSecret(Exception):
    """Raised for a conversation's secret that cannot be in a header. The message does not contain its value."""


def header_values(kept: list[dict[str, Any]], names: Set[str]) -> dict[str, str]:
    """Return the values of the names in the secrets of conversations. Raises UnusableSecret."""
    values: dict[str, str] = {}
    for secrets in kept:
        for name in names & secrets.keys():
            if (value := static_value(secrets[name])) is None:
                continue
            if not re.fullmatch(r"[ -~]*", value := value.strip()):
                raise UnusableSecret(f"The secret {name} has characters that a header cannot have")
            if values.setdefault(name, value) != value:
                raise UnusableSecret(f"The conversations of this sandbox have different secrets {name}")
    return values


def secrets_inside(secrets: Any, services: Iterable[Service]) -> Any:
    """Return a conversation's secrets for its agent, with a placeholder for each secret of a service.

    A secret that the agent looks up is unchanged, because the server has no value for the header.
    """
    names = {name for service in services for name in service.secret_names}
    if not names or not isinstance(secrets, dict):
        return secrets
    return {
        name: PLACEHOLDER if name in names and static_value(secret) is not None else secret
        for name, secret in secrets.items()
    }


def environment_inside(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a sandbox with named egress: the model is a service, and its key a placeholder."""
    if not environment.get("LLM_MODEL"):
        return {name: value for name, value in environment.items() if name != "LLM_API_KEY"}
    return {**environment, "LLM_BASE_URL": f"{{EGRESS}}/{MODEL_SERVICE}", "LLM_API_KEY": PLACEHOLDER}
