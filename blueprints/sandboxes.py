"""Sandboxes: start, list, pause, resume, delete, read their logs, archive. Source: the app-server wire."""

from typing import Any

from flask import Response, jsonify, request

from agents.room import with_room
from blueprints import current_specs, current_store
from blueprints.api import Blueprint, InvalidInput, array_with_holes, needs, repeated, repeated_parameter
from blueprints.archives import MEDIA_TYPES, ArchiveBody, start_from_archive
from schemas.confirmations import Success
from schemas.fields import Fault
from schemas.sandboxes import (
    DeleteSandbox,
    LogTail,
    SandboxInfo,
    SandboxLog,
    SandboxPage,
    SandboxSearch,
    StartSandbox,
    is_sandbox_id,
    read_names,
)
from store.errors import SandboxNotFound, SandboxRefuses
from store.sandboxes.sandbox_record import Sandbox, SandboxId

sandboxes = Blueprint("Sandboxes", __name__, url_prefix="/api/v1/sandboxes")

_DONE = {"success": True}

_ARCHIVE_BODY = {
    "description": "With `from=archive` alone: the archive.",
    "required": False,
    "content": {name: {"schema": {"type": "string", "format": "binary"}} for name in MEDIA_TYPES},
}

#: seconds in which a pause or a deletion must be done; one that takes longer is 503 and goes on
DONE_TIMEOUT = 8.0


@sandboxes.get("/search")
@needs("read")
@sandboxes.fails()
@sandboxes.arguments(SandboxSearch(), location="query")
@sandboxes.response(200, SandboxPage)
def search_sandboxes(search: dict[str, Any]) -> dict[str, Any]:
    """List sandboxes, newest first, a page at a time."""
    items, following = current_store.sandboxes.search(**search)
    return {"items": items, "next_page_id": following and f"{following[0]}-{following[1]}"}


@sandboxes.get("")
@needs("read")
@sandboxes.fails(414)
@sandboxes.doc(parameters=[repeated_parameter("id", "the sandboxes")])
@sandboxes.response(200, array_with_holes("SandboxInfo"))
def batch_get_sandboxes() -> Response:
    """Get sandboxes by id, in that order, null for an unknown one."""
    ids = [SandboxId(one) if is_sandbox_id(one) else SandboxId("-") for one in repeated("id", read_names)]
    found = current_store.sandboxes.get_many(ids)
    return jsonify([sandbox and SandboxInfo().dump(sandbox) for sandbox in found])


@sandboxes.post("")
@needs("admin")
@sandboxes.starts
@sandboxes.replay(remade=True, has_key=True)
@sandboxes.fails(400, 404, 409, 413, 415, 429)
@sandboxes.arguments(StartSandbox(), location="query")
@sandboxes.doc(requestBody=_ARCHIVE_BODY)
@sandboxes.response(200, SandboxInfo)
def start_sandbox(query: dict[str, str]) -> Sandbox:
    """Start a sandbox, which is STARTING until its agent server answers; without files, or with those of another."""
    source, spec_id = query.get("source"), query.get("sandbox_spec_id")
    if source is None:
        spec = current_specs.get(spec_id)
        return with_room(current_store, lambda: current_store.sandboxes.start(spec.id))
    if source == "archive":
        return start_from_archive(current_specs.get(spec_id).id)
    copied = current_store.sandboxes.get(_checked(source))
    spec = current_specs.get(spec_id or copied.spec_id)
    if spec.runtime != current_specs.get(copied.spec_id).runtime:
        fault = Fault(f"A copy needs the runtime of its source, whose spec is {copied.spec_id}", "value_error")
        raise InvalidInput("query", {"sandbox_spec_id": [fault]})
    if not copied.host or copied.wanted == "deleted":
        raise SandboxRefuses("copy", "being deleted" if copied.host else copied.status)
    origin = {"sandbox": copied.id}
    return with_room(current_store, lambda: current_store.sandboxes.start(spec.id, source=origin, host=copied.host))


@sandboxes.post("/<sandbox_id>/pause")
@needs("admin")
@sandboxes.fails(404, 409)
@sandboxes.response(200, Success)
def pause_sandbox(sandbox_id: str) -> dict[str, bool]:
    """Freeze every process of a sandbox; a paused sandbox stays as it is."""
    current_store.sandboxes.ask(_checked(sandbox_id), "pause", wait=DONE_TIMEOUT)
    return _DONE


@sandboxes.post("/<sandbox_id>/resume")
@needs("admin")
@sandboxes.starts
@sandboxes.fails(404, 409, 429)
@sandboxes.response(200, Success)
def resume_sandbox(sandbox_id: str) -> dict[str, bool]:
    """Resume a paused sandbox, which is STARTING until its agent server answers; a running one stays as it is."""
    with_room(current_store, lambda: current_store.sandboxes.ask(_checked(sandbox_id), "resume"))
    return _DONE


@sandboxes.delete("/<sandbox_id>")
@needs("admin")
@sandboxes.fails(404)
@sandboxes.arguments(DeleteSandbox(), location="query")
@sandboxes.response(200, Success)
def delete_sandbox(query: dict[str, str | None], sandbox_id: str) -> dict[str, bool]:
    """End a sandbox and remove everything of it from its host. Its conversations stay readable."""
    if query["sandbox_id"] not in (None, sandbox_id):
        fault = Fault(f"sandbox_id must be that of the path, {sandbox_id}, or absent", "value_error")
        raise InvalidInput("query", {"sandbox_id": [fault]})
    current_store.sandboxes.ask(_checked(sandbox_id), "delete", wait=DONE_TIMEOUT)
    return _DONE


@sandboxes.get("/<sandbox_id>/logs")
@needs("admin")
@sandboxes.fails(404)
@sandboxes.arguments(LogTail(), location="query")
@sandboxes.response(200, SandboxLog)
def get_sandbox_log(query: dict[str, int], sandbox_id: str) -> dict[str, str]:
    """Read the last lines that a sandbox printed."""
    return {"log": current_store.sandboxes.log(_checked(sandbox_id), **query)}


@sandboxes.get("/<sandbox_id>/archive")
@needs("admin")
@sandboxes.fails(404, 409)
@sandboxes.response(200, {"type": "string", "format": "binary"}, content_type="application/zstd")
def get_sandbox_archive(sandbox_id: str) -> Response:
    """Download a sandbox's files as `.tar.zst`; a download that fails breaks off and has no proper end."""
    sandbox = current_store.sandboxes.get(_checked(sandbox_id))
    if not sandbox.host:
        raise SandboxRefuses("archive", sandbox.status)
    body = ArchiveBody(current_store.archives.of_sandbox(sandbox.id))
    if request.method == "HEAD":
        body.close()
    response = Response(body, mimetype="application/zstd")
    response.headers.set("Content-Disposition", "attachment", filename=f"{sandbox.id}.tar.zst")
    response.headers.set("Cache-Control", "no-store")
    return response


def _checked(sandbox_id: str) -> SandboxId:
    if not is_sandbox_id(sandbox_id):
        raise SandboxNotFound
    return SandboxId(sandbox_id)
