"""Sandbox specs: list and get. Source: the app-server wire."""

from typing import Any

from flask import Response, jsonify

from blueprints import current_specs
from blueprints.api import Blueprint, InvalidInput, array_with_holes, needs, repeated, repeated_parameter
from schemas.fields import Fault
from schemas.sandboxes import SandboxSpecInfo, SandboxSpecPage, SpecSearch, read_names
from specs import SpecNotFound

specs = Blueprint("Sandbox Specs", __name__, url_prefix="/api/v1/sandbox-specs")


@specs.get("/search")
@needs("read")
@specs.fails()
@specs.arguments(SpecSearch(), location="query")
@specs.response(200, SandboxSpecPage)
def search_sandbox_specs(search: dict[str, Any]) -> dict[str, Any]:
    """List the templates of sandboxes, the default one first, a page at a time."""
    try:
        items, following = current_specs.page(**search)
    except SpecNotFound:
        fault = Fault("Unknown cursor: page_id must be a next_page_id of this search", "value_error")
        raise InvalidInput("query", {"page_id": [fault]}) from None
    return {"items": items, "next_page_id": following}


@specs.get("")
@needs("read")
@specs.fails(414)
@specs.doc(parameters=[repeated_parameter("id", "the specs")])
@specs.response(200, array_with_holes("SandboxSpecInfo"))
def batch_get_sandbox_specs() -> Response:
    """Get specs by id, in that order, null for an unknown one."""
    found = [current_specs.find(one) for one in repeated("id", read_names)]
    return jsonify([spec and SandboxSpecInfo().dump(spec) for spec in found])
