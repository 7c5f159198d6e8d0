"""Provider connections: a key and a base URL that several profiles share.

Source: the agent-server wire; docs/wire.md. No response has the key of a connection, neither in plain text nor sealed.
"""

from typing import Any

from flask import g

from agents.provider_connections import OwnConnections
from blueprints import current_store
from blueprints.api import Blueprint, needs
from blueprints.client_settings import own_settings
from schemas import provider_connections as schemas

provider_connections = Blueprint("Provider Connections", __name__, url_prefix="/api/llm/provider-connections")


def _own_connections() -> OwnConnections:
    return OwnConnections(current_store.access.settings, g.principal.owner, own_settings().unsealed)


@provider_connections.get("")
@needs("read")
@provider_connections.fails()
@provider_connections.response(200, schemas.ProviderConnectionInfo(many=True))
def list_provider_connections() -> list[dict[str, Any]]:
    """List the provider connections of the caller's key, the oldest first."""
    return _own_connections().all()


@provider_connections.post("")
@needs("write")
@provider_connections.fails(409)
@provider_connections.arguments(schemas.ProviderConnectionCreate())
@provider_connections.response(201, schemas.ProviderConnectionInfo)
def create_provider_connection(given: dict[str, Any]) -> dict[str, Any]:
    """Store a key and a base URL, sealed, for profiles that name the connection."""
    return _own_connections().create(given)


@provider_connections.patch("/<connection_id>")
@needs("write")
@provider_connections.fails(409)
@provider_connections.arguments(schemas.ProviderConnectionUpdate())
@provider_connections.response(200, schemas.ProviderConnectionInfo)
def update_provider_connection(given: dict[str, Any], connection_id: str) -> dict[str, Any]:
    """Change a connection. Later starts and activations use the new values; running agents keep the old ones."""
    return _own_connections().update(connection_id, given)


@provider_connections.delete("/<connection_id>")
@needs("write")
@provider_connections.fails(409)
@provider_connections.response(200, schemas.ProviderConnectionInfo)
def delete_provider_connection(connection_id: str) -> dict[str, Any]:
    """Delete a connection; 409 while profiles or the settings name it."""
    return _own_connections().delete(connection_id)
