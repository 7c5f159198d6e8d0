"""The folder of an app conversation. Files are read by the supervisor that has them, whether the sandbox runs or not;
its repository, skills and hooks by the agent server. Source: the app-server wire.
"""

import posixpath
from typing import Any

from flask import Response, jsonify

from agents import inquiries
from agents.link import AgentServer
from agents.paths import PathOutside, within
from agents.reach import NotReachable
from blueprints import current_commands, current_store
from blueprints.api import Blueprint, InvalidInput, needs
from schemas.app_folders import FileQuery, FolderQuery, GitChange, GitDiff, GitQuery, Hooks, Skills
from schemas.fields import Fault
from store.errors import ConversationNotFound
from store.sandboxes.sandbox_record import SandboxId
from wire import ConversationId

app_folders = Blueprint(
    "App Conversation Folders", __name__, url_prefix="/api/v1/app-conversations/<conversation_id:conversation_id>"
)


@app_folders.get("/file")
@needs("approve")
@app_folders.fails(404, 409, 410, 413, 414, 502)
@app_folders.arguments(FileQuery(), location="query")
@app_folders.response(200, {"type": "string"}, description="The text of the file; empty where there is none")
def get_app_conversation_file(query: dict[str, str], conversation_id: ConversationId) -> Response:
    """Read a file as text: bytes that are no UTF-8 are replaced."""
    sandbox_id, folder = _kept(conversation_id)
    found = current_store.sandbox_files.content(sandbox_id, folder, _within(folder, query["path"], "file_path"))
    return jsonify((found or b"").decode(errors="replace"))


@app_folders.get("/files")
@needs("approve")
@app_folders.fails(404, 409, 410, 414, 502)
@app_folders.arguments(FolderQuery(), location="query")
@app_folders.response(200, {"type": "array", "items": {"type": "string"}, "maxItems": 2000})
def list_app_conversation_files(query: dict[str, str], conversation_id: ConversationId) -> Response:
    """List files by their paths, at most 2000; symlinks and what tools make, such as `node_modules`, are left out."""
    sandbox_id, folder = _kept(conversation_id)
    inner = _within(folder, query["path"], "path")
    return jsonify(current_store.sandbox_files.names(sandbox_id, posixpath.normpath(posixpath.join(folder, inner))))


@app_folders.get("/git/changes")
@needs("read")
@app_folders.fails(404, 409, 410, 414, 429, 502)
@app_folders.arguments(GitQuery(), location="query")
@app_folders.response(200, GitChange(many=True))
def get_app_conversation_changes(query: dict[str, str], conversation_id: ConversationId) -> Response:
    """List the changed files of a repository; a paused sandbox is woken."""
    folder = _folder_of(current_store.app_conversations.get(conversation_id))
    inner = _within(folder, query["path"], "path")
    return jsonify(inquiries.git_changes(_agent_of(conversation_id), folder, inner, query["ref"]))


@app_folders.get("/git/diff")
@needs("read")
@app_folders.fails(404, 409, 410, 414, 429, 502)
@app_folders.arguments(GitQuery(), location="query")
@app_folders.response(200, GitDiff)
def get_app_conversation_diff(query: dict[str, str], conversation_id: ConversationId) -> Response:
    """Read a changed file of a repository as it is and as it was; a paused sandbox is woken."""
    folder = _folder_of(current_store.app_conversations.get(conversation_id))
    inner = _within(folder, query["path"], "path")
    return jsonify(inquiries.git_diff(_agent_of(conversation_id), folder, inner, query["ref"]))


@app_folders.get("/skills")
@needs("read")
@app_folders.fails(404, 409, 410, 429, 502)
@app_folders.response(200, Skills)
def list_app_conversation_skills(conversation_id: ConversationId) -> dict[str, Any]:
    """List the skills of the agent; none while the sandbox is paused, which is not woken for it."""
    state = current_store.app_conversations.get(conversation_id)
    if _is_paused(state):
        return {"skills": []}
    return {"skills": inquiries.skills(_agent_of(conversation_id), _folder_of(state), state.get("agent"))}


@app_folders.get("/hooks")
@needs("read")
@app_folders.fails(404, 409, 410, 429, 502)
@app_folders.response(200, Hooks)
def list_app_conversation_hooks(conversation_id: ConversationId) -> dict[str, Any]:
    """List the hooks of the agent; none while the sandbox is paused, which is not woken for it."""
    state = current_store.app_conversations.get(conversation_id)
    if _is_paused(state):
        return {"hooks": []}
    return {"hooks": inquiries.hooks(_agent_of(conversation_id), _folder_of(state))}


def _kept(conversation_id: ConversationId) -> tuple[SandboxId, str]:
    """The sandbox of a conversation, which has files, and the conversation's folder. Raises NotReachable."""
    state = current_store.app_conversations.get(conversation_id)
    sandbox = state["sandbox"]
    if sandbox is None or not sandbox.host or sandbox.wanted == "deleted":
        raise NotReachable.of(state["sandbox_id"], sandbox)
    return sandbox.id, _folder_of(state)


def _folder_of(state: dict[str, Any]) -> str:
    """The folder of a conversation as its agent names it."""
    workspace = state["info"].get("workspace")
    folder = workspace.get("working_dir") if isinstance(workspace, dict) else None
    return folder if isinstance(folder, str) and folder else "."


def _within(folder: str, path: str, member: str) -> str:
    """The path relative to the folder. Raises InvalidInput."""
    try:
        return within(folder, path)
    except PathOutside as error:
        raise InvalidInput("query", {member: [Fault(str(error), "value_error")]}) from None


def _agent_of(conversation_id: ConversationId) -> AgentServer:
    """The agent server of a conversation, woken if need be."""
    agent = current_commands.awake_agent_of(conversation_id)
    if agent is None:
        raise ConversationNotFound
    return agent


def _is_paused(state: dict[str, Any]) -> bool:
    return state["sandbox"] is not None and state["sandbox"].status == "PAUSED"
