"""Keys of access: make, list, revoke; and tickets, for browsers, whose sockets and streams cannot show a key."""

from typing import Any

from flask import Response, g, jsonify
from werkzeug.exceptions import Forbidden

from blueprints import current_store
from blueprints.api import Blueprint, needs
from schemas.fields import Success
from schemas.keys import KeyInfo, KeyRequest, NewKey, Ticket, TicketRequest
from store.access.access_keys import TICKET_SECONDS, AccessKey

keys = Blueprint("Keys", __name__, url_prefix="/api/v1")


@keys.post("/keys")
@needs("admin")
@keys.replay(has_key=True)
@keys.fails(409, 413, 415)
@keys.arguments(KeyRequest())
@keys.response(201, NewKey)
def make_key(wanted: dict[str, Any]) -> Response:
    """Make a key; this response alone shows it."""
    made, key = current_store.access.keys.make(**wanted)
    return _only_now({**KeyInfo().dump(made), "key": key})


@keys.get("/keys")
@needs("admin")
@keys.fails()
@keys.response(200, KeyInfo(many=True))
def list_keys() -> list[AccessKey]:
    """List the keys that admins made, the newest first, expired ones too; those of the settings are not listed."""
    return current_store.access.keys.all()


@keys.delete("/keys/<key_id>")
@needs("admin")
@keys.fails(404)
@keys.response(200, Success)
def revoke_key(key_id: str) -> dict[str, bool]:
    """Revoke a key: within a second it opens nothing on any host; what was open under it and what it kept ends."""
    current_store.access.keys.revoke(key_id)
    current_store.access.settings.forget(key_id)
    return {"success": True}


@keys.post("/tickets")
@needs("read")
@keys.replay(has_key=True)
@keys.fails(413, 415)
@keys.arguments(TicketRequest())
@keys.response(201, Ticket)
def make_ticket(wanted: dict[str, Any]) -> Response:
    """Make a ticket: it opens one socket or stream of a conversation, or one stream of all, within 30 seconds."""
    scopes = wanted.get("scopes") or g.principal.scopes
    for scope in scopes:
        if not g.principal.may(scope):
            raise Forbidden(f"A ticket has no scope that its asker lacks: {scope}")
    ticket = current_store.access.tickets.make(g.principal, wanted.get("conversation_id"), scopes)
    return _only_now({"ticket": ticket, "expires_in": TICKET_SECONDS})


def _only_now(made: dict[str, Any]) -> Response:
    """The response that shows what nothing shows again."""
    response = jsonify(made)
    response.status_code = 201
    response.headers["Cache-Control"] = "no-store"
    return response
