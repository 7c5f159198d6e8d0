"""Grants: the rights of people who come through a trusted proxy. Source: docs/access.md, "People"."""

from collections.abc import Mapping
from typing import Any

from flask import g, url_for
from werkzeug.exceptions import Forbidden

from blueprints import current_actor, current_store
from blueprints.api import Blueprint, needs
from core.people import Grant
from core.wire import ConversationId
from schemas.fields import Success
from schemas.people import GrantInfo, GrantRequest, OwnerInfo, OwnerRequest

#: Refusal of a change of tags, because grants depend on tags.
_TAGGER = "A person changes tags with the role admin alone: they say where grants hold. Leave tags out"

grants = Blueprint("Grants", __name__, url_prefix="/api/v1/grants")


@grants.post("")
@needs("admin")
@grants.replay(remade=True)
@grants.fails(409)
@grants.arguments(GrantRequest())
@grants.response(201, GrantInfo)
def make_grant(wanted: dict[str, Any]) -> tuple[Grant, int, dict[str, str]]:
    """Give a person, or everybody in a group, a role in the conversations with certain tags, or in all."""
    made = current_store.access.people.grant(Grant(**wanted, created_by=g.principal.name))
    return made, 201, {"Location": url_for(".get_grant", grant_id=made.id)}


@grants.get("")
@needs("admin")
@grants.fails()
@grants.response(200, GrantInfo(many=True))
def list_grants() -> list[Grant]:
    """List the grants that are in force, the newest first."""
    return current_store.access.people.all()


@grants.get("/<grant_id>")
@needs("admin")
@grants.fails()
@grants.response(200, GrantInfo)
def get_grant(grant_id: str) -> Grant:
    """Get a grant."""
    return current_store.access.people.get(grant_id)


@grants.delete("/<grant_id>")
@needs("admin")
@grants.fails()
@grants.response(200, Success)
def revoke_grant(grant_id: str) -> dict[str, bool]:
    """Revoke a grant. It permits no further request, and open streams of its people end."""
    current_store.access.people.revoke(grant_id)
    return {"success": True}


owners = Blueprint("Owners", __name__, url_prefix="/api/v1/conversation/<conversation_id:conversation_id>/owner")


@owners.get("")
@needs("read")
@owners.fails()
@owners.response(200, OwnerInfo)
def get_owner(conversation_id: ConversationId) -> dict[str, str | None]:
    """Get the owner of a conversation: who started it, or the person or key that received it."""
    return {"owner": current_store.conversations.owner(conversation_id) or None}


@owners.put("")
@needs("write")
@owners.fails(409)
@owners.arguments(OwnerRequest())
@owners.response(200, OwnerInfo)
def give_conversation(wanted: dict[str, str], conversation_id: ConversationId) -> dict[str, str | None]:
    """Give a conversation to another person or key. Only its owner and admins may, and the audit records it."""
    before = current_store.conversations.owner(conversation_id)
    if before != g.principal.name and not g.principal.may("admin"):
        raise Forbidden(f"{before or 'Nobody'} owns the conversation: only its owner and admins give it to another")
    current_store.conversations.give(conversation_id, wanted["owner"], before=before, actor=current_actor())
    return {"owner": wanted["owner"]}


def require_tagger(changes: Mapping[str, Any]) -> None:
    """Raise Forbidden for a person without `admin` who changes tags, because grants depend on tags."""
    if "tags" in changes and g.principal.person and not g.principal.may("admin"):
        raise Forbidden(_TAGGER)
