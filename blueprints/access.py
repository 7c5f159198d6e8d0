"""Keys, tickets, the current user, secrets of sandboxes, and the configuration of web clients.

A ticket is for browsers, which cannot send a key with a socket or an event stream. There are no accounts: each key is
one user. Secrets are shown only to a caller with the session key of a sandbox, and only those that the sandbox has.
Sources: docs/access.md; the app-server wire.
"""

from datetime import UTC, datetime
from typing import Any

from flask import Response, g, jsonify, request
from werkzeug.exceptions import Forbidden, NotFound, Unauthorized

from agents.starts import of_sandbox
from blueprints import current_devices, current_server, current_specs, current_store
from blueprints.api import Blueprint, needs
from blueprints.rates import count_failure
from core.access import SCOPES
from core.people import Grant, Person
from schemas.access import (
    KeyInfo,
    KeyRequest,
    NewKey,
    SandboxSecrets,
    Ticket,
    TicketRequest,
    User,
    UserQuery,
    WebClientConfig,
)
from schemas.fields import Success
from schemas.sandboxes import is_sandbox_id
from settings.specs import Spec, model_of
from store.access.access_keys import TICKET_SECONDS, AccessKey
from store.errors import SandboxNotFound
from store.sandboxes.sandboxes import SandboxId

#: Notice in the response with a new key of an open server, and its addition if no key has the scope `admin`.
AFTER_A_KEY = "This server is open now. From its next start it asks for a key, because one is stored."
NO_ADMIN = "None that is stored is an admin's: make yourself a key with the scope `admin` before that."

keys = Blueprint("Keys", __name__, url_prefix="/api/v1")


_HEADER = "X-Session-API-Key"

_STARTED_AT = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@keys.post("/keys")
@needs("admin")
@keys.replay(has_key=True)
@keys.fails(409)
@keys.arguments(KeyRequest())
@keys.response(201, NewKey)
def make_key(wanted: dict[str, Any]) -> Response:
    """Make a key. Only this response shows it."""
    if g.principal.person or g.principal.belongs_to:
        # a person stays one voter, however many keys they make
        wanted["person"] = g.principal.person or g.principal.belongs_to
    made, key = current_store.access.keys.make(**wanted)
    return _only_now({**KeyInfo().dump(made), "key": key, "notice": _notice()})


def _notice() -> str | None:
    """Return how a stored key changes a server that is open now."""
    if current_server().guard.auth != "open_until_key":
        return None
    return AFTER_A_KEY if current_store.access.keys.of_admins() else f"{AFTER_A_KEY} {NO_ADMIN}"


@keys.get("/keys")
@needs("admin")
@keys.fails()
@keys.response(200, KeyInfo(many=True))
def list_keys() -> list[AccessKey]:
    """List the keys that admins made, the newest first, with expired ones. Keys in the settings are not listed."""
    return current_store.access.keys.all()


@keys.delete("/keys/<key_id>")
@needs("admin")
@keys.fails()
@keys.response(200, Success)
def revoke_key(key_id: str) -> dict[str, bool]:
    """Revoke a key.

    Within a second no host accepts it, its open streams end, and its settings and devices are deleted.
    """
    current_store.access.keys.revoke(key_id)
    current_store.access.settings.forget(key_id)
    current_devices.end_of(key_id)
    return {"success": True}


@keys.post("/tickets")
@needs("read")
@keys.replay(has_key=True)
@keys.fails()
@keys.arguments(TicketRequest())
@keys.response(201, Ticket)
def make_ticket(wanted: dict[str, Any]) -> Response:
    """Make a ticket, which opens a socket or stream of a conversation, or one stream of all, within 30 seconds."""
    scopes = wanted.get("scopes") or g.principal.scopes
    for scope in scopes:
        if not g.principal.may(scope):
            raise Forbidden(f"A ticket cannot have the scope {scope}, which your key lacks. Ask for fewer scopes")
    ticket = current_store.access.tickets.make(g.principal, wanted.get("conversation_id"), scopes)
    return _only_now({"ticket": ticket, "expires_in": TICKET_SECONDS})


def _only_now(made: dict[str, Any]) -> Response:
    """Return a response with a secret that no other response shows."""
    response = jsonify(made)
    response.status_code = 201
    return response


users = Blueprint("Users", __name__, url_prefix="/api/v1/users")
sandbox_settings = Blueprint("Sandbox Settings", __name__, url_prefix="/api/v1/sandboxes")


@users.get("/me")
@needs("read", session=True)
@users.fails()
@users.arguments(UserQuery(), location="query")
@users.response(200, User)
def get_current_user(query: dict[str, bool]) -> dict[str, Any]:
    """Describe the caller, their rights and the model of their agents. `expose_secrets` adds the model's key."""
    spec = _shown_spec() if query["expose_secrets"] else current_specs.get(None)
    model = model_of(spec) if spec else None
    return {
        "id": g.principal.owner,
        "name": g.principal.name,
        "scopes": [scope for scope in SCOPES if g.principal.may(scope)],
        "person": g.principal.person or None,
        "groups": list(g.principal.groups),
        "grants": _own_grants(),
        "llm_model": model and model.model,
        "llm_base_url": model and model.base_url,
        "llm_api_key": model.api_key if model and query["expose_secrets"] else None,
    }


def _own_grants() -> list[Grant]:
    """Return the rights of a person, the newest first; empty for a key, which has scopes instead."""
    person = Person(g.principal.person, g.principal.groups)
    return [grant for grant in current_store.access.people.all() if grant.is_of(person)] if person.name else []


@sandbox_settings.get("/<sandbox_id>/settings/secrets")
@needs("approve", session=True)
@sandbox_settings.fails()
@sandbox_settings.response(200, SandboxSecrets)
def list_sandbox_secrets(sandbox_id: str) -> dict[str, Any]:
    """List the names of a sandbox's secrets. The caller must send its session key."""
    return {"secrets": [{"name": name} for name in _secrets_of(sandbox_id)]}


@sandbox_settings.get("/<sandbox_id>/settings/secrets/<secret_name>")
@needs("approve", session=True)
@sandbox_settings.fails()
@sandbox_settings.response(200, {"type": "string"}, content_type="text/plain")
def get_sandbox_secret(sandbox_id: str, secret_name: str) -> Response:
    """Get the value of a sandbox's secret. The caller must send its session key."""
    value = _secrets_of(sandbox_id).get(secret_name)
    if not value:
        raise NotFound("Secret not found")
    return Response(value, mimetype="text/plain")


def _secrets_of(sandbox_id: str) -> dict[str, str]:
    """Return the secret environment of a sandbox. Raises SandboxNotFound, Unauthorized and Forbidden."""
    if not is_sandbox_id(sandbox_id):
        raise SandboxNotFound
    sandbox, shown = current_store.sandboxes.get(SandboxId(sandbox_id)), _shown_sandbox()
    if shown is None or sandbox.status != "RUNNING":
        count_failure()
        raise Unauthorized(f"{_HEADER} must be the session key of the sandbox, which must run")
    if shown != sandbox.id:
        raise Forbidden(f"{_HEADER} is the session key of another sandbox: send this sandbox's key")
    spec = current_specs.find(sandbox.spec_id)
    if spec is None:
        return {}
    inside = {name: of_sandbox(value, sandbox) for name, value in spec.environment.items()}
    return {name: inside[name] for name in spec.secret_env if name in inside}


def _shown_sandbox() -> SandboxId | None:
    """Return the sandbox of the session key in the request; None if there is no such key."""
    key = request.headers.get(_HEADER, "")
    return current_store.sandboxes.of_session_key(key) if key else None


def _shown_spec() -> Spec | None:
    """Return the spec of the sandbox of the session key in the request. Raises Unauthorized."""
    shown = _shown_sandbox()
    sandbox = shown and current_store.sandboxes.get_many([shown])[0]
    if not sandbox or sandbox.status != "RUNNING":
        count_failure()
        raise Unauthorized(f"expose_secrets needs {_HEADER}: the session key of a sandbox that runs")
    return current_specs.find(sandbox.spec_id)


web_client = Blueprint("Web Client", __name__, url_prefix="/api/v1/web-client")


@web_client.get("/config")
@needs("open")
@web_client.response(200, WebClientConfig)
def get_web_client_config() -> dict[str, str]:
    """Get the features that a web client shows or hides. It needs no key and contains no data."""
    return {"updated_at": _STARTED_AT}
