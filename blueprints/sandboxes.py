"""Sandboxes and their specs: start, list, pause, resume, delete, logs and archives; and their spending on models.

Sources: the app-server wire; for spending docs/egress.md, "Budgets".
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from flask import Response, g, jsonify, request
from werkzeug.exceptions import UnsupportedMediaType

from agents.adoption import adopt
from agents.joins import join, require_own, require_revealing
from agents.places import after_making_room, after_those_that_wait
from blueprints import current_commands, current_joiner, current_server, current_specs, current_store
from blueprints.api import Blueprint, InvalidInput, array_with_holes, needs, repeated, repeated_parameter
from blueprints.following import caller_required
from blueprints.webhooks import keep_report
from boot.http import body_of
from core.wire import ConversationId
from schemas.app_conversations import AppConversation
from schemas.fields import FieldFault, Success
from schemas.sandboxes import (
    DaySearch,
    DaySpending,
    DeleteSandbox,
    LogTail,
    SandboxInfo,
    SandboxLog,
    SandboxPage,
    SandboxSearch,
    SandboxSpecInfo,
    SandboxSpecPage,
    SandboxSpending,
    SpecSearch,
    StartSandboxQuery,
    is_sandbox_id,
    read_names,
)
from settings.specs import SpecNotFound
from store.errors import UNAVAILABLE, NotDoneYet, SandboxNotFound, SandboxRefuses
from store.link.attempts import minted
from store.sandboxes.files import StreamOutcome, StreamReceiver, StreamSender
from store.sandboxes.sandboxes import Sandbox, SandboxId

sandboxes = Blueprint("Sandboxes", __name__, url_prefix="/api/v1/sandboxes")
specs = Blueprint("Sandbox Specs", __name__, url_prefix="/api/v1/sandbox-specs")

#: Media types of archives, which are tar streams, and their compression.
ARCHIVE_TYPES = {"application/zstd": "zstd", "application/x-tar": "none"}

#: Timeouts in seconds: for unpacking an upload, and for deleting the sandbox of a refused archive.
_UNPACK_TIMEOUT, _END_TIMEOUT = 60.0, 8.0

#: Size of a chunk of a body, in bytes: small enough to arrive at the minimum rate before the receiver times out.
_PIECE = 16 * 1024

_DONE = {"success": True}

_ARCHIVE_BODY = {
    "description": "Only with `from=archive`: the archive.",
    "required": False,
    "content": {name: {"schema": {"type": "string", "format": "binary"}} for name in ARCHIVE_TYPES},
}

#: Timeout of a pause or a deletion, in seconds. A slower one gets 503 and continues.
DONE_TIMEOUT = 8.0


@sandboxes.get("/search")
@needs("read")
@sandboxes.fails()
@sandboxes.arguments(SandboxSearch(), location="query")
@sandboxes.response(200, SandboxPage)
def search_sandboxes(search: dict[str, Any]) -> dict[str, Any]:
    """List sandboxes, the newest first, a page at a time."""
    items, following = current_store.sandboxes.search(**search)
    return {"items": items, "next_page_id": following and f"{following[0]}-{following[1]}"}


@sandboxes.get("")
@needs("read")
@sandboxes.fails(414)
@sandboxes.doc(parameters=[repeated_parameter("id", "the sandboxes")])
@sandboxes.response(200, array_with_holes("SandboxInfo"))
def batch_get_sandboxes() -> Response:
    """Get sandboxes by id, in the order of the ids, with null for an unknown id."""
    ids = repeated("id", read_names)
    read = current_store.sandboxes.get_many([SandboxId(one) for one in ids if is_sandbox_id(one)])
    found = {sandbox.id: SandboxInfo().dump(sandbox) for sandbox in read if sandbox}
    return jsonify([found.get(SandboxId(one)) for one in ids])


@sandboxes.post("")
@needs("write")
@sandboxes.starts
@sandboxes.replay(remade=True, has_key=True)
@sandboxes.fails(400, 404, 409, 413, 415, 429)
@sandboxes.arguments(StartSandboxQuery(), location="query")
@sandboxes.doc(requestBody=_ARCHIVE_BODY)
@sandboxes.response(200, SandboxInfo)
def start_sandbox(query: dict[str, str]) -> Sandbox:
    """Start a sandbox, empty or with the files of an archive or of another sandbox.

    It is STARTING until its agent server responds. Files need the scopes `write` and `approve`. Files of a sandbox also
    need the key that started it, or the scope `admin`.
    """
    source, spec_id, owner = query.get("source"), query.get("sandbox_spec_id"), g.principal.owner
    if source is None:
        spec = current_specs.get(spec_id)
        return after_those_that_wait(current_store, lambda: current_store.sandboxes.start(spec.id, owner=owner))
    if source == "archive":
        require_revealing(current_joiner(), "from")
        return start_from_archive(current_specs.get(spec_id).id, owner)
    copied = current_store.sandboxes.get(_own(source, "from", reveals=True))
    spec = current_specs.get(spec_id or copied.spec_id)
    if spec.runtime != current_specs.get(copied.spec_id).runtime:
        fault = FieldFault(f"A copy needs the runtime of its source, whose spec is {copied.spec_id}", "value_error")
        raise InvalidInput("query", {"sandbox_spec_id": [fault]})
    if not copied.host or copied.wanted == "deleted":
        raise SandboxRefuses("copy", "being deleted" if copied.host else copied.status)
    origin = {"sandbox": copied.id}
    return after_those_that_wait(
        current_store,
        lambda: current_store.sandboxes.start(spec.id, source=origin, host=copied.host, owner=owner),
    )


@sandboxes.post("/<sandbox_id>/pause")
@needs("write")
@sandboxes.fails(409)
@sandboxes.response(200, Success)
def pause_sandbox(sandbox_id: str) -> dict[str, bool]:
    """Freeze all processes of a sandbox. A paused sandbox is unchanged.

    Needs the key that started the sandbox, or the scope `admin`.
    """
    current_store.sandboxes.ask(_own(sandbox_id, "pause"), "pause", wait=DONE_TIMEOUT)
    return _DONE


@sandboxes.post("/<sandbox_id>/resume")
@needs("write")
@sandboxes.starts
@sandboxes.fails(409, 429)
@sandboxes.response(200, Success)
def resume_sandbox(sandbox_id: str) -> dict[str, bool]:
    """Resume a paused sandbox, which is STARTING until its agent server responds. A running sandbox is unchanged.

    Needs the key that started the sandbox, or the scope `admin`.
    """
    own = _own(sandbox_id, "resume")
    after_making_room(current_store, lambda: current_store.sandboxes.ask(own, "resume"))
    return _DONE


@sandboxes.delete("/<sandbox_id>")
@needs("admin")
@sandboxes.fails()
@sandboxes.arguments(DeleteSandbox(), location="query")
@sandboxes.response(200, Success)
def delete_sandbox(query: dict[str, str | None], sandbox_id: str) -> dict[str, bool]:
    """End a sandbox and delete its data from its host. Its conversations stay readable."""
    if query["sandbox_id"] not in (None, sandbox_id):
        fault = FieldFault(f"sandbox_id must be the id in the path, {sandbox_id}, or absent", "value_error")
        raise InvalidInput("query", {"sandbox_id": [fault]})
    current_store.sandboxes.ask(_checked(sandbox_id), "delete", wait=DONE_TIMEOUT)
    return _DONE


@sandboxes.post("/<sandbox_id>/conversations/<conversation_id:conversation_id>/adopt")
@needs("write")
@sandboxes.fails(409, 410, 429, 502)
@sandboxes.response(200, AppConversation)
def adopt_conversation(sandbox_id: str, conversation_id: ConversationId) -> dict[str, Any]:
    """Adopt a conversation that a client began at the sandbox's own agent server. It then behaves like any other.

    Needs the key that started the sandbox, or one with the scopes `write` and `approve`.
    """
    sandbox = current_store.sandboxes.get(_checked(sandbox_id))
    facts = {"conversation_id": conversation_id, "join_id": str(minted("join"))}
    reason = f"Adopts the conversation in sandbox {sandbox.id}."
    join(current_store, current_joiner(), sandbox, "sandbox_id", None, **facts, reason=reason)
    info = adopt(current_commands, current_specs, sandbox, conversation_id)
    current_store.conversations.own(conversation_id, g.principal.name)
    if info is not None:
        keep_report(sandbox.id, conversation_id, info)
    return current_store.conversations.in_sandboxes.get(conversation_id)


@sandboxes.get("/<sandbox_id>/logs")
@needs("write")
@sandboxes.fails()
@sandboxes.arguments(LogTail(), location="query")
@sandboxes.response(200, SandboxLog)
def get_sandbox_log(query: dict[str, int], sandbox_id: str) -> dict[str, str]:
    """Read the last lines of a sandbox's output.

    Needs the key that started the sandbox, with the scopes `write` and `approve`, or the scope `admin`.
    """
    return {"log": current_store.sandboxes.log(_own(sandbox_id, "logs", reveals=True), **query)}


@sandboxes.get("/<sandbox_id>/archive")
@needs("write")
@sandboxes.fails(409)
@sandboxes.response(200, {"type": "string", "format": "binary"}, content_type="application/zstd")
def get_sandbox_archive(sandbox_id: str) -> Response:
    """Download a sandbox's files as `.tar.zst`. A failed download is cut off.

    Needs the key that started the sandbox, with the scopes `write` and `approve`, or the scope `admin`.
    """
    sandbox = current_store.sandboxes.get(_own(sandbox_id, "archive", reveals=True))
    if not sandbox.host:
        raise SandboxRefuses("archive", sandbox.status)
    body = ArchiveBody(current_store.sandboxes.archives.of_sandbox(sandbox.id), caller_required())
    if request.method == "HEAD":
        body.close()
    response = Response(body, mimetype="application/zstd")
    response.headers.set("Content-Disposition", "attachment", filename=f"{sandbox.id}.tar.zst")
    return response


def _checked(sandbox_id: str) -> SandboxId:
    if not is_sandbox_id(sandbox_id):
        raise SandboxNotFound
    return SandboxId(sandbox_id)


def _own(sandbox_id: str, member: str, *, reveals: bool = False) -> SandboxId:
    """Return the sandbox if the caller started it or is an admin, by `require_own`.

    Raises JoinRefused, SandboxNotFound.
    """
    found = _checked(sandbox_id)
    require_own(current_store, current_joiner(), found, member, is_admin=g.principal.may("admin"), reveals=reveals)
    return found


class ArchiveBody:
    """The body of a response, which fails unless the archive is complete.

    A class, because a generator that never started is not closed.
    """

    def __init__(self, receiver: StreamReceiver, require_caller: Callable[[], None]) -> None:
        self._receiver, self._require_caller = receiver, require_caller

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next chunk. Raises Unauthorized if the key ends, ClientGone, and the errors of the receiver."""
        self._require_caller()
        return next(self._receiver)

    def close(self) -> None:
        self._receiver.close(StreamOutcome.FAILED, "The client has disconnected")


def start_from_archive(spec_id: str, owner: str) -> Sandbox:
    """Start a sandbox with the files of the archive in the request's body. Returns after all files are unpacked.

    owner: id of the caller's key. If the archive is refused or incomplete, the sandbox is deleted.
    """
    form = ARCHIVE_TYPES.get(request.mimetype)
    if form is None:
        allowed = " or ".join(ARCHIVE_TYPES)
        raise UnsupportedMediaType(f"Content-Type must be {allowed}, not {request.mimetype or 'absent'}")
    request.max_content_length = current_server().config.http.max_archive_bytes
    stream = request.stream
    if body := body_of(request.environ):
        body.stream(caller_required())
    sender = current_store.sandboxes.archives.sender(current_store.sandboxes.archives.open())
    origin = {"archive": sender.id, "format": form}
    sandbox = after_those_that_wait(
        current_store, lambda: current_store.sandboxes.start(spec_id, source=origin, owner=owner)
    )
    try:
        while piece := stream.read(_PIECE):
            sender.write(piece)
        sender.end()
        sender.confirmed(_UNPACK_TIMEOUT)
    except BaseException:  # also when this worker ends
        _discard(sandbox.id, sender)
        raise
    return current_store.sandboxes.get(sandbox.id)


def _discard(sandbox_id: SandboxId, sender: StreamSender) -> None:
    """Delete a sandbox whose archive is incomplete. If Redis is unavailable, the supervisor sets it to ERROR."""
    with suppress(*UNAVAILABLE):
        sender.fail(StreamOutcome.FAILED, "The upload stopped before its end")
        with suppress(SandboxNotFound, NotDoneYet):
            current_store.sandboxes.ask(sandbox_id, "delete", wait=_END_TIMEOUT)


@specs.get("/search")
@needs("read")
@specs.fails()
@specs.arguments(SpecSearch(), location="query")
@specs.response(200, SandboxSpecPage)
def search_sandbox_specs(search: dict[str, Any]) -> dict[str, Any]:
    """List the specs of sandboxes, the default one first, a page at a time."""
    try:
        items, following = current_specs.page(**search)
    except SpecNotFound:
        fault = FieldFault("Unknown cursor: page_id must be a next_page_id of this search", "value_error")
        raise InvalidInput("query", {"page_id": [fault]}) from None
    return {"items": items, "next_page_id": following}


@specs.get("")
@needs("read")
@specs.fails(414)
@specs.doc(parameters=[repeated_parameter("id", "the specs")])
@specs.response(200, array_with_holes("SandboxSpecInfo"))
def batch_get_sandbox_specs() -> Response:
    """Get specs by id, in the order of the ids, with null for an unknown id."""
    found = [current_specs.find(one) for one in repeated("id", read_names)]
    return jsonify([spec and SandboxSpecInfo().dump(spec) for spec in found])


spending = Blueprint("Spending", __name__, url_prefix="/api/v1")


@spending.get("/sandboxes/<sandbox_id>/spending")
@needs("read")
@spending.fails()
@spending.response(200, SandboxSpending)
def get_sandbox_spending(sandbox_id: str) -> dict[str, Any]:
    """Get a sandbox's spending on models, as their responses report it, and its budget."""
    found = current_store.spending.of_sandbox(current_store.sandboxes.get(SandboxId(sandbox_id)).id)
    return {**asdict(found), "budget": current_server().config.models.budgets.conversation}


@spending.get("/spending")
@needs("admin")
@spending.fails()
@spending.arguments(DaySearch(), location="query")
@spending.response(200, DaySpending)
def get_day_spending(search: dict[str, Any]) -> dict[str, Any]:
    """Get the spending of all sandboxes on models on a day, in total and by key, and the budgets."""
    found, budgets = current_store.spending.of_day(search["day"]), current_server().config.models.budgets
    return {
        "day": found.day.isoformat(),
        "all": found.all,
        "keys": [{**asdict(one), "key_id": owner} for owner, one in found.keys],
        "budget": budgets.day,
        "budget_of_key": budgets.key,
    }
