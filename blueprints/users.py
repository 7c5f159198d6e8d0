"""Who asks, and what a sandbox of theirs may know: its model and its secrets. Source: the app-server wire.

There are no accounts here: a key is its one user. Nothing secret is told but to one who shows the session key of a
sandbox, and then only what that sandbox has already.
"""

from typing import Any

from flask import Response, g, request
from werkzeug.exceptions import Forbidden, NotFound, Unauthorized

from access import SCOPES
from agents.models import model_of
from blueprints import current_specs, current_store
from blueprints.api import Blueprint, needs
from blueprints.rates import count_failure
from schemas.sandboxes import is_sandbox_id
from schemas.users import SandboxSecrets, User, UserQuery
from specs import Spec
from store.errors import SandboxNotFound
from store.sandboxes.sandbox_record import SandboxId

users = Blueprint("Users", __name__, url_prefix="/api/v1/users")
sandbox_settings = Blueprint("Sandbox Settings", __name__, url_prefix="/api/v1/sandboxes")

_HEADER = "X-Session-API-Key"


@users.get("/me")
@needs("read", session=True)
@users.fails()
@users.arguments(UserQuery(), location="query")
@users.response(200, User)
def get_current_user(query: dict[str, bool]) -> dict[str, Any]:
    """Tell who asks, what they may do, and the model of their agents; with `expose_secrets` also its key."""
    spec = _shown_spec() if query["expose_secrets"] else current_specs.get(None)
    model = model_of(spec) if spec else None
    return {
        "id": g.principal.key_id or g.principal.name,
        "name": g.principal.name,
        "scopes": [scope for scope in SCOPES if g.principal.may(scope)],
        "llm_model": model and model.model,
        "llm_base_url": model and model.base_url,
        "llm_api_key": model.api_key if model and query["expose_secrets"] else None,
    }


@sandbox_settings.get("/<sandbox_id>/settings/secrets")
@needs("approve", session=True)
@sandbox_settings.fails(404)
@sandbox_settings.response(200, SandboxSecrets)
def list_sandbox_secrets(sandbox_id: str) -> dict[str, Any]:
    """List the names of a sandbox's secrets, for one who shows its session key."""
    return {"secrets": [{"name": name} for name in _secrets_of(sandbox_id)]}


@sandbox_settings.get("/<sandbox_id>/settings/secrets/<secret_name>")
@needs("approve", session=True)
@sandbox_settings.fails(404)
@sandbox_settings.response(200, {"type": "string"}, content_type="text/plain")
def get_sandbox_secret(sandbox_id: str, secret_name: str) -> Response:
    """Get the value of a sandbox's secret, for one who shows its session key."""
    value = _secrets_of(sandbox_id).get(secret_name)
    if not value:
        raise NotFound("Secret not found")
    return Response(value, mimetype="text/plain")


def _secrets_of(sandbox_id: str) -> dict[str, str]:
    """What the environment of a sandbox has secretly. Raises SandboxNotFound, Unauthorized and Forbidden."""
    if not is_sandbox_id(sandbox_id):
        raise SandboxNotFound
    sandbox, shown = current_store.sandboxes.get(SandboxId(sandbox_id)), _shown_sandbox()
    if shown is None or sandbox.status != "RUNNING":
        count_failure()
        raise Unauthorized(f"{_HEADER} must be the session key of the sandbox, which must run")
    if shown != sandbox.id:
        raise Forbidden(f"{_HEADER} is the session key of another sandbox")
    spec = current_specs.find(sandbox.spec_id)
    return dict(spec.secret_env) if spec else {}


def _shown_sandbox() -> SandboxId | None:
    """The sandbox whose session key the request shows; None: it shows none."""
    key = request.headers.get(_HEADER, "")
    return current_store.sandboxes.of_session_key(key) if key else None


def _shown_spec() -> Spec | None:
    """The spec of the sandbox whose session key the request shows. Raises Unauthorized."""
    shown = _shown_sandbox()
    sandbox = shown and current_store.sandboxes.get_many([shown])[0]
    if not sandbox or sandbox.status != "RUNNING":
        count_failure()
        raise Unauthorized(f"expose_secrets needs {_HEADER}: the session key of a sandbox that runs")
    return current_specs.find(sandbox.spec_id)
