"""App conversations: start, list, change, delete, and their folders. Source: the app-server wire.

The supervisor of the host reads files, whether the sandbox runs or not. The agent server reads the folder's repository,
skills and hooks.
"""

import json
import posixpath
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from flask import Response, g, jsonify, request

from agents import inquiries
from agents.client import AgentServer
from agents.commands import relabel
from agents.deletions import delete_with_children
from agents.expiry import with_deadline
from agents.forks import has_own_forks, moments
from agents.inquiries import PathOutside, folder_of, kept_folder, linked_folder, seen_folder, within, without_place
from agents.joins import require_start
from agents.modes import require_right, start_fault
from agents.returns import Returned, can_return, turn_back
from agents.starts import DELETED, model_fault
from agents.waking import NotReachable
from blueprints import current_client, current_commands, current_joiner, current_server, current_specs, current_store
from blueprints.api import (
    Blueprint,
    InvalidInput,
    array_with_holes,
    json_response,
    needs,
    refused,
    repeated,
    repeated_parameter,
)
from blueprints.conversations import join_sandbox_of
from blueprints.grants import require_tagger
from core.modes import mode_named
from core.wire import ConversationId, Micros, Seq
from schemas import app_conversations as schemas
from schemas.conversations import read_conversation_ids
from schemas.fields import FieldFault, Success, canonical_id, page_id
from settings.specs import Spec
from store import Store
from store.conversations.conversations import app_filter
from store.errors import ConversationNotFound
from store.sandboxes.files import Between, FileNotKept, FolderNotRecorded, FolderSnapshot
from store.sandboxes.sandboxes import SandboxId
from store.sandboxes.start_tasks import FINISHED, StartTask

app_conversations = Blueprint("App Conversations", __name__, url_prefix="/api/v1/app-conversations")

_NUMBER = {"type": "integer", "minimum": 0}

#: Shortest and longest delay between two polls of a streamed start task, in seconds. Each is twice the previous.
_FIRST_TASK_POLL, _TASK_POLL = 0.01, 0.1

_STARTS = {"type": "array", "items": {"$ref": "#/components/schemas/AppConversationStartTask"}}


@app_conversations.post("")
@needs("write")
@app_conversations.starts
@app_conversations.replay(remade=True)
@app_conversations.fails()
@app_conversations.arguments(schemas.AppConversationStartRequest(), required=False)
@app_conversations.response(200, schemas.AppConversationStartTask)
def start_app_conversation(wanted: dict[str, Any]) -> StartTask:
    """Start an app conversation.

    The response is a start task, which continues in the background until READY or ERROR.
    """
    return _create_start(wanted)


@app_conversations.post("/stream-start")
@needs("write")
@app_conversations.starts
@app_conversations.replay(remade=True, has_key=True)
@app_conversations.fails()
@app_conversations.arguments(schemas.AppConversationStartRequest(), required=False)
@app_conversations.response(
    200, _STARTS, description="An array, to which each change of the start task adds the task again"
)
def stream_app_conversation_start(wanted: dict[str, Any]) -> Response:
    """Start an app conversation and stream every state of its start task; the stream ends at READY or ERROR."""
    start = _create_start(wanted)
    store = current_store._get_current_object()  # type: ignore[attr-defined]
    guard, principal = current_server().guard, g.principal
    states = _states(store, start, partial(guard.following.are_live, principal))
    return Response(states, mimetype="application/json", headers={"X-Accel-Buffering": "no"})


def _create_start(wanted: dict[str, Any]) -> StartTask:
    joiner = current_joiner()
    require_start(current_store, current_specs, joiner, wanted, wanted.get("conversation_id") or "")
    _require_model(wanted)
    _require_mode(wanted)
    _require_failed(wanted)
    task = {**wanted, "started_from": current_client()}
    return current_store.start_tasks.create(task, echo=schemas.echo(wanted), owner=joiner.owner, joiner=joiner)


def _require_model(wanted: dict[str, Any]) -> None:
    """Refuse a model that the agent cannot use.

    Raises InvalidInput. Cost: up to two round trips; none without a model.
    """
    if not (model := wanted.get("llm_model")):
        return
    spec = _spec_of(wanted)
    if spec is not None and (fault := model_fault(spec, model)):
        raise InvalidInput("body", {"llm_model": [fault]})


def _require_mode(wanted: dict[str, Any]) -> None:
    """Refuse an approval mode that is impossible here or needs more rights. Raises InvalidInput, ModeNotAllowed."""
    if not (name := wanted.get("approval_mode")):
        return
    mode, spec = mode_named(name), _spec_of(wanted)
    if spec is None:
        return
    require_right(spec, mode, g.principal.may("approve"))
    sandbox_id = wanted.get("sandbox_id")
    [sandbox] = current_store.sandboxes.get_many([SandboxId(sandbox_id)]) if sandbox_id else [None]
    if fault := start_fault(spec, sandbox, mode):
        raise InvalidInput("body", {"approval_mode": [fault]})


def _require_failed(wanted: dict[str, Any]) -> None:
    """Refuse a `failed_start_id` that names no failed start. Raises InvalidInput. Cost: one round trip if it is set."""
    if not (identity := wanted.get("failed_start_id")):
        return
    [failed] = current_store.start_tasks.get_many([UUID(identity).hex])
    if failed is None or failed.status != "ERROR":
        fault = "No failed start has this id: use the id of a start task with status ERROR, or leave the member out"
        raise InvalidInput("body", {"failed_start_id": [fault]})


def _spec_of(wanted: dict[str, Any]) -> Spec | None:
    """Return the spec of the sandbox that a start asks for; None if it is unknown: the start fails later."""
    sandbox_id, parent_id = wanted.get("sandbox_id"), wanted.get("parent_conversation_id")
    if not sandbox_id and parent_id:
        [parent] = current_store.conversations.get_many([ConversationId(parent_id)])
        if parent is None:
            return None
        sandbox_id = parent.get("sandbox_id")
    if sandbox_id:
        [sandbox] = current_store.sandboxes.get_many([SandboxId(sandbox_id)])
        return current_specs.find(sandbox.spec_id) if sandbox else None
    named = wanted.get("sandbox_spec_id")
    return current_specs.find(named) if named else current_specs.get(None)


def _states(store: Store, start: StartTask, may_go_on: Callable[[], bool]) -> Iterator[str]:
    yield "[\n" + json.dumps(schemas.AppConversationStartTask().dump(start))
    poll = _FIRST_TASK_POLL
    while start.status not in FINISHED and may_go_on():
        time.sleep(poll)
        poll = min(2 * poll, _TASK_POLL)
        [now] = store.start_tasks.get_many([start.id])
        if now is None:
            now = replace(start, status="ERROR", detail=DELETED, updated_at=Micros(start.updated_at + 1))
        if now.updated_at != start.updated_at:
            start = now
            yield ",\n" + json.dumps(schemas.AppConversationStartTask().dump(start))
    yield "]"


@app_conversations.get("/start-tasks/search")
@needs("read")
@app_conversations.fails()
@app_conversations.arguments(schemas.StartTaskSearch(), location="query")
@app_conversations.response(200, schemas.AppConversationStartTaskPage)
def search_start_tasks(search: dict[str, Any]) -> dict[str, Any]:
    """List start tasks, a page at a time."""
    items, following = current_store.start_tasks.search(**search)
    return {"items": items, "next_page_id": page_id(search["by"], search["descending"], following)}


@app_conversations.get("/start-tasks/count")
@needs("read")
@app_conversations.fails()
@app_conversations.arguments(schemas.StartTaskFilter(), location="query")
@app_conversations.response(200, _NUMBER, description="The number of start tasks")
def count_start_tasks(filters: dict[str, Any]) -> Response:
    """Count start tasks."""
    return json_response(b"%d" % current_store.start_tasks.count(**filters))


@app_conversations.get("/start-tasks")
@needs("read")
@app_conversations.fails(414)
@app_conversations.doc(parameters=[repeated_parameter("ids", "the start tasks", format="uuid")])
@app_conversations.response(200, array_with_holes("AppConversationStartTask"))
def batch_get_start_tasks() -> Response:
    """Get start tasks by id, in the order of the ids, with null for an unknown id."""
    ids = [UUID(one).hex for one in repeated("ids", read_conversation_ids)]
    found = current_store.start_tasks.get_many(ids)
    return jsonify([start and schemas.AppConversationStartTask().dump(start) for start in found])


@app_conversations.delete("/start-tasks/<start_task_id>")
@needs("write")
@app_conversations.fails(409)
@app_conversations.response(200, schemas.AppConversationStartTask)
def end_start_task(start_task_id: str) -> StartTask:
    """End a running start: it becomes ERROR and creates nothing. A repeat changes nothing."""
    with refused("path", "start_task_id"):
        return current_store.start_tasks.end(UUID(canonical_id(start_task_id)).hex)


@app_conversations.get("/search")
@needs("read")
@app_conversations.fails()
@app_conversations.arguments(schemas.AppConversationSearch(), location="query")
@app_conversations.response(200, schemas.AppConversationPage)
def search_app_conversations(search: dict[str, Any]) -> dict[str, Any]:
    """List app conversations, a page at a time.

    With filters, a page may be shorter than its limit and not be the last.
    """
    return _page(search)


def _page(search: dict[str, Any]) -> dict[str, Any]:
    page = {name: search.pop(name) for name in ("by", "descending", "limit", "start")}
    items, following = current_store.conversations.in_sandboxes.search(app_filter(**search), **page)
    return {"items": items, "next_page_id": page_id(page["by"], page["descending"], following)}


@app_conversations.get("/count")
@needs("read")
@app_conversations.fails()
@app_conversations.arguments(schemas.AppConversationFilter(), location="query")
@app_conversations.response(200, _NUMBER, description="The number of app conversations")
def count_app_conversations(filters: dict[str, Any]) -> Response:
    """Count app conversations, with the filters of search."""
    return json_response(b"%d" % current_store.conversations.in_sandboxes.count(app_filter(**filters)))


@app_conversations.get("")
@needs("read")
@app_conversations.fails(414)
@app_conversations.doc(
    parameters=[{**repeated_parameter("ids", "the conversations", format="uuid"), "required": False}]
)
@app_conversations.arguments(schemas.AppConversationSearch(), location="query")
@app_conversations.response(
    200,
    {
        "anyOf": [
            {"$ref": "#/components/schemas/AppConversationPage"},
            array_with_holes("AppConversation"),
        ]
    },
    description="With ids: their conversations, null for unknown ids. Without: a page, newest first",
)
def list_app_conversations(search: dict[str, Any]) -> Response:
    """List app conversations, or get app conversations by id."""
    if "ids" not in request.args:
        return jsonify(schemas.AppConversationPage().dump(_page(search)))
    ids = [ConversationId(one) for one in repeated("ids", read_conversation_ids)]
    found = current_store.conversations.in_sandboxes.get_many(ids)
    return jsonify([state and schemas.AppConversation().dump(state) for state in found])


@app_conversations.patch("/<conversation_id:conversation_id>")
@needs("write")
@app_conversations.fails()
@app_conversations.arguments(schemas.UpdateAppConversationRequest())
@app_conversations.response(200, schemas.AppConversation)
def update_app_conversation(changes: dict[str, Any], conversation_id: ConversationId) -> dict[str, Any]:
    """Change an app conversation. A person needs the role `admin` to change tags."""
    require_tagger(changes)
    changes = with_deadline(current_store, current_specs, g.principal, conversation_id, changes)
    own = {name: changes.pop(name) for name in ("title", "tags", "confirmation_seconds") if name in changes}
    relabel(current_commands, conversation_id, app=changes, **own)
    return current_store.conversations.in_sandboxes.get(conversation_id)


@app_conversations.delete("/<conversation_id:conversation_id>")
@needs("admin")
@app_conversations.fails()
@app_conversations.response(200, Success)
def delete_app_conversation(conversation_id: ConversationId) -> dict[str, bool]:
    """Delete an app conversation, its children and start tasks, and its sandbox if no other conversation uses it.

    A running start of the conversation or of a child also ends, as with `DELETE …/start-tasks/{id}`, even before the
    conversation exists.
    """
    delete_with_children(current_commands, conversation_id)
    return {"success": True}


@app_conversations.post("/<conversation_id:conversation_id>/send-message")
@needs("write")
@app_conversations.fails(409, 410, 429, 502)
@app_conversations.arguments(schemas.SendAppMessageRequest())
@app_conversations.response(200, schemas.SendAppMessageResult)
def send_app_message(message: dict[str, Any], conversation_id: ConversationId) -> dict[str, Any]:
    """Send a user's message to the agent of an app conversation."""
    words = {name: message[name] for name in ("content", "run", "rejects")}
    current_commands.send_to_agent(conversation_id, **words)
    return {"success": True, "sandbox_status": "RUNNING", "message": None}


app_folders = Blueprint(
    "App Conversation Folders", __name__, url_prefix="/api/v1/app-conversations/<conversation_id:conversation_id>"
)


@app_folders.get("/file")
@needs("approve")
@app_folders.fails(409, 410, 413, 414, 502)
@app_folders.arguments(schemas.FileQuery(), location="query")
@app_folders.response(200, {"type": "string"}, description="The text of the file")
def get_app_conversation_file(query: dict[str, str], conversation_id: ConversationId) -> Response:
    """Read a file as text. Invalid UTF-8 is replaced, and secrets of the sandbox's conversations are masked."""
    sandbox_id, state = _sandbox_and_state(conversation_id)
    inner = _within(state, query["path"], "file_path")
    found = current_store.sandboxes.files.content(sandbox_id, kept_folder(state), inner)
    return jsonify(_masked(state, found.decode(errors="replace")))


@app_folders.get("/files")
@needs("approve")
@app_folders.fails(409, 410, 414, 502)
@app_folders.arguments(schemas.FolderQuery(), location="query")
@app_folders.response(200, {"type": "array", "items": {"type": "string"}, "maxItems": 2000})
def list_app_conversation_files(query: dict[str, str], conversation_id: ConversationId) -> Response:
    """List the paths of at most 2000 files. Symlinks and tool output, such as `node_modules`, are left out."""
    sandbox_id, state = _sandbox_and_state(conversation_id)
    folder = posixpath.join(kept_folder(state), _within(state, query["path"], "path"))
    return jsonify(current_store.sandboxes.files.names(sandbox_id, posixpath.normpath(folder)))


@app_folders.get("/git/changes")
@needs("read")
@app_folders.fails(409, 410, 414, 429, 502)
@app_folders.arguments(schemas.GitQuery(), location="query")
@app_folders.response(200, schemas.GitChange(many=True))
def get_app_conversation_changes(query: dict[str, str], conversation_id: ConversationId) -> Response:
    """List the changed files of a repository, which resumes a paused sandbox, or of the folder since a moment.

    With `since` the folder needs no repository: the supervisor records it at the start of a conversation, at the end of
    each turn and before an action waits. Files that `.gitignore` excludes are not recorded.
    """
    if query["since"] is not None:
        return _changes_between(conversation_id, query)
    state = current_store.conversations.in_sandboxes.get(conversation_id)
    inner = _within(state, query["path"], "path")
    with without_place(state):
        changes = inquiries.git_changes(_agent_of(conversation_id), folder_of(state), inner, query["ref"])
    return jsonify(_masked(state, changes))


@app_folders.get("/git/diff")
@needs("read")
@app_folders.fails(409, 410, 413, 414, 429, 502)
@app_folders.arguments(schemas.GitQuery(), location="query")
@app_folders.response(200, schemas.GitDiff)
def get_app_conversation_diff(query: dict[str, str], conversation_id: ConversationId) -> Response:
    """Read a changed file before and after: of a repository, which resumes a paused sandbox, or since a moment.

    With `since`, a file of more than 1 MiB is refused: the records only say that it changed.
    """
    if query["since"] is not None:
        sandbox_id, state = _sandbox_and_state(conversation_id)
        inner, between = _within(state, query["path"], "path"), _between(conversation_id, query)
        found = current_store.sandboxes.files.difference(sandbox_id, kept_folder(state), inner, between)
        return jsonify(_masked(state, found))
    state = current_store.conversations.in_sandboxes.get(conversation_id)
    inner = _within(state, query["path"], "path")
    with without_place(state):
        difference = inquiries.git_diff(_agent_of(conversation_id), folder_of(state), inner, query["ref"])
    return jsonify(_masked(state, difference))


@app_folders.get("/records")
@needs("read")
@app_folders.fails()
@app_folders.response(200, schemas.FolderRecords)
def list_app_conversation_records(conversation_id: ConversationId) -> dict[str, Any]:
    """List the records of the folder, the oldest first. A fork from a recorded event has the files of that event."""
    state = current_store.conversations.get(conversation_id)
    has_files, found = has_own_forks(state), list[FolderSnapshot]()
    if has_files:
        with suppress(FolderNotRecorded, FileNotKept, NotReachable):
            found = moments(current_store, _sandbox_and_state(conversation_id)[1])
    return {"forks_have_files": has_files, "can_return": can_return(state), "records": found}


@app_folders.post("/return")
@needs("write")
@app_folders.replay(remade=True)
@app_folders.fails(400, 409, 410, 429, 502)
@app_folders.arguments(schemas.ReturnRequest())
@app_folders.response(200, schemas.Return)
def return_app_conversation(wanted: dict[str, Any], conversation_id: ConversationId) -> Returned:
    """Return to an earlier event, with the files as they were at that event; or undo the last return.

    Later events stay in the log, marked as left behind. Running programs of the sandbox end. 409 while the agent runs
    or an action waits, if the files were not recorded, and in a sandbox with other conversations.
    """
    join_sandbox_of(current_store.conversations.get(conversation_id), "Returns the conversation to an earlier event")
    return turn_back(current_commands, conversation_id, wanted["event_id"])


@app_folders.get("/skills")
@needs("read")
@app_folders.fails(409, 410, 429, 502)
@app_folders.response(200, schemas.Skills)
def list_app_conversation_skills(conversation_id: ConversationId) -> dict[str, Any]:
    """List the skills of the agent. The list is empty while the sandbox is paused, because this does not resume it."""
    state = current_store.conversations.in_sandboxes.get(conversation_id)
    if _is_paused(state):
        return {"skills": []}
    return {"skills": inquiries.skills(_agent_of(conversation_id), folder_of(state), state.get("agent"))}


@app_folders.get("/hooks")
@needs("read")
@app_folders.fails(409, 410, 429, 502)
@app_folders.response(200, schemas.Hooks)
def list_app_conversation_hooks(conversation_id: ConversationId) -> dict[str, Any]:
    """List the hooks of the agent. The list is empty while the sandbox is paused, because this does not resume it."""
    state = current_store.conversations.in_sandboxes.get(conversation_id)
    if _is_paused(state):
        return {"hooks": []}
    return {"hooks": inquiries.hooks(_agent_of(conversation_id), folder_of(state))}


def _changes_between(conversation_id: ConversationId, query: dict[str, Any]) -> Response:
    """Return the changed files of a conversation's folder. Paths of a subfolder are relative to it, as in Git."""
    sandbox_id, state = _sandbox_and_state(conversation_id)
    inner = _within(state, query["path"], "path")
    found = current_store.sandboxes.files.changes(sandbox_id, kept_folder(state), _between(conversation_id, query))
    if inner != ".":
        below = f"{inner}/"
        found = [{**one, "path": one["path"][len(below) :]} for one in found if one["path"].startswith(below)]
    return jsonify(_masked(state, found))


def _between(conversation_id: ConversationId, query: dict[str, Any]) -> Between:
    """Return the moments in a query. Raises EventNotFound."""
    since, until = (
        None if query[name] is None else _moment(conversation_id, query[name]) for name in ("since", "until")
    )
    return Between(conversation_id, since or Seq(0), until)


def _moment(conversation_id: ConversationId, named: str) -> Seq:
    if named == "start":
        return Seq(0)
    if named.isascii() and named.isdigit():
        return Seq(int(named[:18]))
    return current_store.events.seq(conversation_id, named)


def _sandbox_and_state(conversation_id: ConversationId) -> tuple[SandboxId, dict[str, Any]]:
    """Return the sandbox of a conversation and the conversation's state.

    Raises NotReachable if the sandbox has no files.
    """
    state = current_store.conversations.in_sandboxes.get(conversation_id)
    sandbox = state["sandbox"]
    if sandbox is None or not sandbox.host or sandbox.wanted == "deleted":
        raise NotReachable.of(state["sandbox_id"], sandbox)
    return sandbox.id, state


def _within(state: dict[str, Any], path: str, member: str) -> str:
    """Return a path relative to the conversation's folder. Raises InvalidInput."""
    try:
        return within(seen_folder(state), path, linked=linked_folder(state))
    except PathOutside as error:
        raise InvalidInput("query", {member: [FieldFault(str(error), "value_error")]}) from None


def _masked(state: dict[str, Any], told: Any) -> Any:
    """Mask the secrets of the conversation's sandbox in a reply of an agent server."""
    return current_store.masks.in_sandbox(SandboxId(state["sandbox_id"])).value(told)


def _agent_of(conversation_id: ConversationId) -> AgentServer:
    """Return the agent server of a conversation, and resume its sandbox if necessary."""
    agent = current_commands.awake_agent_of(conversation_id)
    if agent is None:
        raise ConversationNotFound
    return agent


def _is_paused(state: dict[str, Any]) -> bool:
    return state["sandbox"] is not None and state["sandbox"].status == "PAUSED"
