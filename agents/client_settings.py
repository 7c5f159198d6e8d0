"""Settings that a key stores for its clients, and the completion of start requests.

Clients see a secret masked, or sealed for their key (`X-Expose-Secrets: encrypted`), and send it back unchanged. Only a
start opens it: references in a start request to profiles, sealed values and stored secrets are replaced by their values
before the request is sealed for its sandbox.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

from agents.provider_connections import is_broken, kept_form, link_of, links_in, runnable, shown_form
from core.bounds import MOST_SECRETS_BYTES
from core.masking import (
    MOST_PROFILES,
    MOST_STEPS,
    REDACTED,
    bears_credential,
    has_key,
    merged,
    unmasked,
    with_secrets,
    without_key,
)
from core.refused import RefusalKind
from settings.specs import Spec, model_of
from store.access.client_settings import ClientSettings, Entries
from store.errors import StoreError, TooManySecrets

#: Prefix of all values that Fernet has sealed.
SEALED = "gAAAAA"

#: Path of a key's secrets.
SECRETS_PATH = "/api/settings/secrets/"

#: Members of a start request that may contain sealed values.
_SEALED_MEMBERS = ("agent", "agent_settings", "secrets")

#: The agent profile that always exists.
_DEFAULT = "default"

_LLM, _AGENT, _SECRET = "llm ", "agent ", "secret "


#: Members of an agent's profile that are not settings of its agent server.
_OF_PROFILES = {
    *("id", "name", "revision", "schema_version", "llm_profile_ref", "mcp_server_refs", "secret_refs"),
    *("public_skills", "meta_profile_ref"),
}


class ProfileNotFound(StoreError):
    """The key has no profile with this name or id."""

    kind = RefusalKind.MISSING
    words = (
        "Profile not found. GET /api/profiles lists the profiles of models, and GET /api/agent-profiles those of agents"
    )


class ProfileInUse(StoreError):
    """Agent profiles use the model profile."""

    kind = RefusalKind.CONFLICT

    def __init__(self, name: str, agents: list[str]) -> None:
        super().__init__(f"The profile {name} is used by the agent profiles {', '.join(agents)}: change these first")


class ProfileExists(StoreError):
    """A profile with the new name exists."""

    kind = RefusalKind.CONFLICT
    words = "A profile with this name already exists: choose another name, or delete the profile first"


class TooManyProfiles(StoreError):
    """The maximum number of profiles is reached."""

    kind = RefusalKind.CONFLICT
    words = f"A key keeps at most {MOST_PROFILES} profiles of models and {MOST_PROFILES} of agents: delete one first"


class SecretNotKept(StoreError):
    """The key has no secret with this name."""

    kind = RefusalKind.MISSING
    words = "Secret not found. GET /api/settings/secrets lists those that are there"


class SealedElsewhere(StoreError):
    """Raised for a sealed value of another key or server, or that is over a day old."""

    kind = RefusalKind.MEMBER
    words = (
        "A sealed value cannot be opened: this server has not sealed it for this key, or longer ago than a day. Read "
        "the settings again with X-Expose-Secrets: encrypted"
    )


class ProfileUnusable(StoreError):
    """Raised if the agent profile names a missing model profile."""

    kind = RefusalKind.MEMBER
    member = "agent_profile_id"

    def __init__(self, name: str, llm: str) -> None:
        super().__init__(
            f"The agent profile {name} uses the model's profile {llm}, which does not exist: save it first"
        )


class Template(NamedTuple):
    """Defaults of a key's settings, from the spec of its agents."""

    model: str | None
    base_url: str | None
    has_key: bool
    waits: bool  #: actions wait for a decision
    rates: bool  #: only risky actions wait

    @classmethod
    def of(cls, spec: Spec) -> "Template":
        model, policy = model_of(spec), spec.conversation.get("confirmation_policy")
        kind = policy.get("kind") if isinstance(policy, dict) else None
        waits = kind not in (None, "NeverConfirm")
        return cls(model.model, model.base_url, bool(model.api_key), waits, kind == "ConfirmRisky")


#: Converts a secret for a response.
Show = Callable[[str], Any]


class OwnSettings:
    """The settings of a key. Every method raises the errors of `ClientSettings`."""

    def __init__(self, kept: ClientSettings, owner: str, template: Template) -> None:
        self._kept = kept
        self._owner = owner
        self._template = template

    def masked(self, _: str) -> str:
        """Return the mask that replaces a secret."""
        return REDACTED

    def sealed(self, secret: str) -> str:
        """Seal a secret, which a client of the key can send back."""
        return self._kept.shown(self._owner, secret)

    def info(self, show: Show) -> dict[str, Any]:
        """Return the settings, with defaults from the template."""
        return self._info(self._kept.of(self._owner), show)

    def update(self, given: dict[str, Any]) -> dict[str, Any]:
        """Change settings, and return them masked. Raises ProfileNotFound, ConnectionUnknown, LinkedModel."""

        def change(entries: Entries) -> dict[str, Any]:
            settings = entries.get("settings", {})
            if (name := given.get("active_profile")) is not None:
                settings["agent_settings"] = {**settings.get("agent_settings", {}), "llm": _llm_of(entries, name)}
            if (identity := given.get("active_agent_profile_id")) is not None:
                self._agent_of(entries, str(identity))
            for part in ("agent_settings", "conversation_settings", "misc_settings"):
                if (diff := given.get(f"{part}_diff")) is not None:
                    kept = settings.get(part, {})
                    settings[part] = merged(kept, self.unsealed(unmasked(diff, kept)))
            if (diff := given.get("agent_settings_diff")) is not None:
                names_link = "provider_connection_id" in (diff.get("llm") or {})
                settings["agent_settings"] = kept_form(
                    settings["agent_settings"], entries, "agent_settings_diff", names_link=names_link
                )
            for pointer in ("active_profile", "active_agent_profile_id"):
                if pointer in given:
                    settings[pointer] = None if given[pointer] is None else str(given[pointer])
            entries["settings"] = settings
            return self._info(entries, self.masked)

        return self._kept.change(self._owner, change)

    def _info(self, entries: Entries, show: Show) -> dict[str, Any]:
        settings, template = entries.get("settings", {}), self._template
        agent = self._agent_settings(entries)
        llm = agent["llm"]
        is_template = llm.get("model") == template.model and llm.get("base_url") == template.base_url
        begun = {
            "schema_version": 1,
            "max_iterations": MOST_STEPS,
            "confirmation_mode": template.waits,
            "security_analyzer": "llm" if template.rates else "none",
        }
        return {
            "agent_settings": with_secrets(agent, show),
            "conversation_settings": merged(begun, settings.get("conversation_settings", {})),
            "llm_api_key_is_set": has_key(llm) or (is_template and template.has_key),
            "active_profile": settings.get("active_profile"),
            "active_agent_profile_id": settings.get("active_agent_profile_id"),
            "misc_settings": settings.get("misc_settings", {}),
        }

    def _agent_settings(self, entries: Entries) -> dict[str, Any]:
        llm = {name: value for name in ("model", "base_url") if (value := getattr(self._template, name))}
        begun = {"schema_version": 9, "agent_kind": "openhands", "llm": llm, "mcp_config": {}}
        own = entries.get("settings", {}).get("agent_settings", {})
        if own.get("llm", {}).get("model", self._template.model) != self._template.model:
            begun["llm"] = {}  # the endpoint of the template's model is not another model's
        settings = merged(begun, own)
        settings["llm"] = shown_form(settings.get("llm", {}), entries)
        return settings

    def secrets(self) -> list[dict[str, Any]]:
        """Return names and descriptions, by name."""
        entries = self._kept.of(self._owner)
        names = _names(entries, _SECRET)
        return [{"name": name, "description": entries[_SECRET + name]["description"]} for name in names]

    def put_secret(self, name: str, value: str, description: str | None) -> None:
        """Store a secret, and overwrite a secret of that name."""
        self._kept.change(
            self._owner, lambda entries: entries.update({_SECRET + name: {"value": value, "description": description}})
        )

    def delete_secret(self, name: str) -> None:
        """Delete a secret. Raises SecretNotKept."""

        def change(entries: Entries) -> None:
            if entries.pop(_SECRET + name, None) is None:
                raise SecretNotKept

        self._kept.change(self._owner, change)

    def profiles(self) -> dict[str, Any]:
        """Return all model profiles by name, and the active one."""
        entries = self._kept.of(self._owner)
        found = [(name, entries[_LLM + name]) for name in _names(entries, _LLM)]
        return {
            "profiles": [
                {
                    "name": name,
                    "model": llm.get("model"),
                    "base_url": llm.get("base_url"),
                    "provider_connection_id": link_of(llm),
                    "provider_connection_broken": is_broken(llm, entries),
                    "api_key_set": has_key(shown_form(llm, entries)),
                }
                for name, llm in found
            ],
            "active_profile": entries.get("settings", {}).get("active_profile"),
        }

    def profile(self, name: str, show: Show) -> dict[str, Any]:
        """Return a model profile. Raises ProfileNotFound."""
        entries = self._kept.of(self._owner)
        llm = _llm_of(entries, name)
        is_set = has_key(shown_form(llm, entries))
        return {"name": name, "config": with_secrets(llm, show), "api_key_set": is_set}

    def save_profile(self, name: str, llm: dict[str, Any], *, include_secrets: bool) -> None:
        """Store a model under a name, and overwrite a profile of that name.

        Raises TooManyProfiles, ConnectionUnknown.
        """

        def change(entries: Entries) -> None:
            _require_room(entries, _LLM + name, _LLM)
            new = kept_form(self.unsealed(unmasked(llm, entries.get(_LLM + name))), entries, "llm")
            entries[_LLM + name] = new if include_secrets else without_key(new)

        self._kept.change(self._owner, change)

    def activate_profile(self, name: str) -> None:
        """Use a model for new conversations. Raises ProfileNotFound."""
        self.update({"active_profile": name})

    def rename_profile(self, name: str, new_name: str) -> None:
        """Rename a model profile. Raises ProfileNotFound, ProfileExists."""

        def change(entries: Entries) -> None:
            llm = _llm_of(entries, name)
            if new_name == name:
                return
            if _LLM + new_name in entries:
                raise ProfileExists
            del entries[_LLM + name]
            entries[_LLM + new_name] = llm
            for agent in _names(entries, _AGENT):
                if entries[_AGENT + agent].get("llm_profile_ref") == name:
                    entries[_AGENT + agent]["llm_profile_ref"] = new_name
            if entries.get("settings", {}).get("active_profile") == name:
                entries["settings"]["active_profile"] = new_name

        self._kept.change(self._owner, change)

    def delete_profile(self, name: str) -> None:
        """Delete a model profile, if it exists. Raises ProfileInUse."""

        def change(entries: Entries) -> None:
            users = [one for one in _names(entries, _AGENT) if entries[_AGENT + one].get("llm_profile_ref") == name]
            if users:
                raise ProfileInUse(name, users)
            entries.pop(_LLM + name, None)
            if entries.get("settings", {}).get("active_profile") == name:
                entries["settings"]["active_profile"] = None

        self._kept.change(self._owner, change)

    def agents(self) -> dict[str, Any]:
        """Return all agent profiles by name, with the default profile, and the active one."""
        entries = self._kept.of(self._owner)
        found = self._agents(entries)
        asked = entries.get("settings", {}).get("active_agent_profile_id")
        active = next((one["id"] for one in found if one["id"] == asked), found[0]["id"])
        return {"profiles": found, "active_agent_profile_id": active}

    def agent(self, name: str) -> dict[str, Any]:
        """Return an agent profile. Raises ProfileNotFound."""
        return self._named_agent(self._kept.of(self._owner), name)

    def save_agent(self, name: str, given: dict[str, Any]) -> None:
        """Store an agent under a name. An overwritten profile keeps its id. Raises TooManyProfiles."""

        def change(entries: Entries) -> None:
            _require_room(entries, _AGENT + name, _AGENT)
            known = entries.get(_AGENT + name) or (self._default(entries) if name == _DEFAULT else {})
            identity = known.get("id") or str(uuid4())
            revision = int(known.get("revision", -1)) + 1
            entries[_AGENT + name] = {**without_key(given), "id": identity, "name": name, "revision": revision}

        self._kept.change(self._owner, change)

    def activate_agent(self, identity: str) -> None:
        """Activate an agent profile. Raises ProfileNotFound."""
        self.update({"active_agent_profile_id": identity})

    def rename_agent(self, name: str, new_name: str) -> None:
        """Rename an agent profile. Raises ProfileNotFound, ProfileExists."""

        def change(entries: Entries) -> None:
            agent = self._named_agent(entries, name)
            if new_name != name and _AGENT + new_name in entries:
                raise ProfileExists
            entries.pop(_AGENT + name, None)
            entries[_AGENT + new_name] = {**agent, "name": new_name}

        self._kept.change(self._owner, change)

    def delete_agent(self, name: str) -> None:
        """Delete an agent profile, if it exists."""

        def change(entries: Entries) -> None:
            gone = entries.pop(_AGENT + name, None)
            if gone and entries.get("settings", {}).get("active_agent_profile_id") == gone["id"]:
                entries["settings"]["active_agent_profile_id"] = None

        self._kept.change(self._owner, change)

    def report_agent(self, name: str, draft: dict[str, Any] | None) -> dict[str, Any]:
        """Return what a start with an agent profile, or with a draft of it, would use. Raises ProfileNotFound."""
        entries = self._kept.of(self._owner)
        agent = self._named_agent(entries, name) if draft is None else draft
        llm, errors = self._llm_of_agent(entries, agent), []
        if llm is None and agent.get("agent_kind") != "acp":
            errors.append(f"The model's profile {agent.get('llm_profile_ref')} does not exist")
        elif llm is not None and is_broken(llm, entries):
            errors.append(f"The model's provider connection {link_of(llm)} does not exist")
        servers, wanted = self._agent_settings(entries)["mcp_config"], agent.get("mcp_server_refs")
        missing = [one for one in wanted or [] if one not in servers]
        errors += [f"The MCP server {one} does not exist" for one in missing]
        settings = None if errors else with_secrets(self._started(entries, agent), self.masked)
        return {
            "agent_kind": agent.get("agent_kind", "openhands"),
            "valid": not errors,
            "errors": errors,
            "llm_profile_ref": agent.get("llm_profile_ref"),
            "llm_profile_resolved": llm is not None,
            "llm_api_key_set": has_key(llm) or (llm == {} and self._template.has_key),
            "mcp_server_refs": wanted,
            "resolved_mcp_config_keys": [one for one in servers if wanted is None or one in wanted],
            "dangling_mcp_server_refs": missing,
            "secret_refs": agent.get("secret_refs"),
            "resolved_settings": settings,
        }

    def _agents(self, entries: Entries) -> list[dict[str, Any]]:
        kept = [entries[_AGENT + name] for name in _names(entries, _AGENT)]
        listed = kept if any(one["name"] == _DEFAULT for one in kept) else [self._default(entries), *kept]
        return [
            {
                "id": one["id"],
                "name": one["name"],
                "agent_kind": one.get("agent_kind", "openhands"),
                "revision": one["revision"],
                "llm_profile_ref": one.get("llm_profile_ref"),
                "mcp_server_refs": one.get("mcp_server_refs"),
            }
            for one in listed
        ]

    def _default(self, entries: Entries) -> dict[str, Any]:
        """Return the agent profile of the settings, with a fixed id."""
        active = entries.get("settings", {}).get("active_profile")
        return {
            "id": str(uuid5(NAMESPACE_URL, f"agent-profile:{self._owner}")),
            "name": _DEFAULT,
            "revision": 0,
            "agent_kind": "openhands",
            "llm_profile_ref": active or _DEFAULT,
            "mcp_server_refs": None,
            "secret_refs": None,
            "tools": None,
        }

    def _named_agent(self, entries: Entries, name: str) -> dict[str, Any]:
        agent: dict[str, Any] | None = entries.get(_AGENT + name)
        if agent is None and name == _DEFAULT:
            return self._default(entries)
        if agent is None:
            raise ProfileNotFound
        return agent

    def _agent_of(self, entries: Entries, identity: str) -> dict[str, Any]:
        for one in self._agents(entries):
            if one["id"] == identity:
                return self._named_agent(entries, one["name"])
        raise ProfileNotFound

    def _llm_of_agent(self, entries: Entries, agent: dict[str, Any]) -> dict[str, Any] | None:
        """Return the model of an agent; None if its profile does not exist."""
        name = agent.get("llm_profile_ref") or _DEFAULT
        if _LLM + name in entries:
            return shown_form(entries[_LLM + name], entries)
        if agent.get("id") == self._default(entries)["id"]:
            own: dict[str, Any] = self._agent_settings(entries)["llm"]
            return own
        return None

    def completed(self, body: dict[str, Any], host: str) -> dict[str, Any]:
        """Return the body of a start with references replaced by their values; the body itself without references.

        host: by which the client reaches this server. Raises ProfileUnusable, SealedElsewhere, SecretNotKept,
        ConnectionUnknown, TooManySecrets.
        """
        body = self._with_secrets(self._with_agent(body), host)
        if body.get("secrets_encrypted"):
            opened = {name: self._unsealed(body[name]) for name in _SEALED_MEMBERS if name in body}
            body = {**body, **opened, "secrets_encrypted": False}
        body = self._with_connections(body)
        if len(json.dumps(body.get("secrets"))) > MOST_SECRETS_BYTES:  # a stored secret may be referenced often
            raise TooManySecrets
        return body

    def llm_named(self, name: str) -> dict[str, Any] | None:
        """Return the model of a profile for an agent server; None if the key has no such profile."""
        entries = self._kept.of(self._owner)
        llm: dict[str, Any] | None = runnable(entries.get(_LLM + name), entries, "llm")
        return llm

    def opened(self, llm: dict[str, Any]) -> dict[str, Any]:
        """Return a client's model for an agent server. Raises SealedElsewhere, ConnectionUnknown."""
        opened: dict[str, Any] = self._with_connections({"llm": self._unsealed(llm)})["llm"]
        return opened

    def _with_connections(self, body: dict[str, Any]) -> dict[str, Any]:
        linked = [name for name in ("agent", "agent_settings", "llm") if links_in({name: body.get(name)})]
        if not linked:
            return body
        entries = self._kept.of(self._owner)
        return {**body, **{name: runnable(body[name], entries, name) for name in linked}}

    def _with_agent(self, body: dict[str, Any]) -> dict[str, Any]:
        identity = body.get("agent_profile_id")
        if not isinstance(identity, str) or any(body.get(source) for source in ("agent", "agent_settings")):
            return body
        entries = self._kept.of(self._owner)
        try:
            agent = self._agent_of(entries, str(UUID(identity)))
        except (ProfileNotFound, ValueError):
            return body  # the agent server in the sandbox may have its own profile of that id
        settings = self._started(entries, agent)
        allowed, secrets = agent.get("secret_refs"), body.get("secrets")
        kept = {name: value for name, value in body.items() if name != "agent_profile_id"}
        if allowed is not None and isinstance(secrets, dict):
            kept["secrets"] = {name: value for name, value in secrets.items() if name in allowed}
        return {**kept, "agent_settings": settings}

    def _started(self, entries: Entries, agent: dict[str, Any]) -> dict[str, Any]:
        """Return the agent server's settings of an agent. Raises ProfileUnusable."""
        base, llm = self._agent_settings(entries), self._llm_of_agent(entries, agent)
        if llm is None and agent.get("agent_kind") != "acp":
            raise ProfileUnusable(agent["name"], str(agent.get("llm_profile_ref")))
        wanted = agent.get("mcp_server_refs")
        own = {name: value for name, value in agent.items() if name not in _OF_PROFILES and value is not None}
        context: dict[str, Any] = {
            name: own.pop(name) for name in ("system_message_suffix", "disabled_skills") if name in own
        }
        servers = {name: one for name, one in base["mcp_config"].items() if wanted is None or name in wanted}
        return {
            **base,
            **own,
            **({"llm": llm} if llm is not None else {}),
            "mcp_config": servers,
            **({"agent_context": merged(base.get("agent_context"), context)} if context else {}),
        }

    def _with_secrets(self, body: dict[str, Any], host: str) -> dict[str, Any]:
        named = body.get("secrets")
        named = named if isinstance(named, dict) else {}
        looked_up = {name: kept for name, one in named.items() if (kept := _kept_here(one, host))}
        if not looked_up:
            return body
        entries = self._kept.of(self._owner)
        found = {}
        for name, kept in looked_up.items():
            if _SECRET + kept not in entries:
                raise SecretNotKept
            secret = entries[_SECRET + kept]
            found[name] = {"kind": "StaticSecret", "value": secret["value"], "description": secret["description"]}
        return {**body, "secrets": {**named, **found}}

    def unsealed(self, value: Any) -> Any:
        """Return a value of settings with its credentials unsealed. Raises SealedElsewhere."""
        return self._unsealed(with_secrets(value, self._meant), bears_credential)

    def _unsealed(self, value: Any, may_open: Callable[[str], bool] = lambda _: True) -> Any:
        if isinstance(value, dict):
            return {name: self._unsealed(inner, may_open) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._unsealed(inner, may_open) for inner in value]
        meant = self._meant(value) if isinstance(value, str) else value
        return meant if meant is value or may_open(meant) else value

    def _meant(self, text: str) -> str:
        if not text.startswith(SEALED):
            return text
        meant = self._kept.meant(self._owner, text)
        if meant is None:
            raise SealedElsewhere
        return meant


def _names(entries: Entries, prefix: str) -> list[str]:
    """Return the names of the entries with a prefix."""
    return sorted(name.removeprefix(prefix) for name in entries if name.startswith(prefix))


def _llm_of(entries: Entries, name: str) -> dict[str, Any]:
    llm: dict[str, Any] | None = entries.get(_LLM + name)
    if llm is None:
        raise ProfileNotFound
    return llm


def _require_room(entries: Entries, name: str, prefix: str) -> None:
    if name not in entries and len(_names(entries, prefix)) >= MOST_PROFILES:
        raise TooManyProfiles


def _kept_here(secret: Any, host: str) -> str:
    """Return the name of the stored secret that a start's secret references; empty if it references none."""
    if not isinstance(secret, dict) or secret.get("kind") != "LookupSecret" or not isinstance(secret.get("url"), str):
        return ""
    try:
        url = urlsplit(secret["url"])
    except ValueError:
        return ""
    if url.netloc not in ("", host) or not url.path.startswith(SECRETS_PATH):
        return ""
    return unquote(url.path.removeprefix(SECRETS_PATH))
