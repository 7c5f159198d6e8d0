"""The requests that start a conversation at an agent server: a spec's template, or a client's own body.

A client's own body names a folder of a machine that the sandbox is not. A folder of the sandbox stands for it: the one
that was asked for where it lies inside the sandbox's working folder, else that working folder itself. The state of the
conversation has both: `asked_dir`, and `working_dir` in its `workspace`.
"""

import posixpath
from collections.abc import Mapping
from pathlib import PureWindowsPath
from typing import Any

from specs import Spec
from store import Store
from store.sandboxes.sandbox_record import Sandbox
from wire import ConversationId

#: what a client may have changed since the first start, and what a later one takes from the conversation's state
_CHANGED = ("confirmation_policy", "security_analyzer", "tags")


def conversation_request(
    conversation_id: ConversationId, request: Mapping[str, Any], template: Mapping[str, Any], working_dir: str
) -> dict[str, Any]:
    """The body of the request that starts the conversation: the spec's template, filled with the client's request."""
    body: dict[str, Any] = {
        "agent": {},
        "workspace": {"kind": "LocalWorkspace", "working_dir": working_dir if working_dir.startswith("/") else "."},
        **template,
        "conversation_id": conversation_id,
    }
    if message := request.get("initial_message"):
        body["initial_message"] = message
    if (model := request.get("llm_model")) and isinstance(body["agent"].get("llm"), dict):
        body["agent"] = {**body["agent"], "llm": {**body["agent"]["llm"], "model": model}}
    return body


def own_request(conversation_id: ConversationId, body: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """A client's own body as its agent server gets it: with the conversation's id and a folder of the sandbox.

    folder: the sandbox's working folder. A body without a workspace stays without: the agent server says what it needs.
    """
    workspace = body.get("workspace")
    if isinstance(workspace, dict):
        body = {**body, "workspace": {**workspace, "working_dir": folder_for(asked_dir(body), folder)}}
    return {**body, "conversation_id": conversation_id}


def restart_request(store: Store, conversation_id: ConversationId, sandbox: Sandbox, spec: Spec) -> dict[str, Any]:
    """The body of the request that starts a conversation again at an agent server that has forgotten it.

    What clients have set since the first start, a policy above all, stays. Raises ConversationNotFound, SecretsRefused.
    """
    state, secrets = store.conversations.get(conversation_id), store.conversations.secrets_of(conversation_id)
    own = store.start_tasks.bodies.of(conversation_id)
    if own is not None:
        body = own_request(conversation_id, own, working_folder(sandbox, spec))
    else:
        body = conversation_request(conversation_id, state["app"], spec.conversation, spec.working_dir)
    body |= {name: state[name] for name in _CHANGED if state[name]}
    return body | ({"secrets": secrets} if secrets else {})


def working_folder(sandbox: Sandbox, spec: Spec) -> str:
    """The working folder of a sandbox, absolute; `.` where an older release has started it."""
    return sandbox.working_dir or (spec.working_dir if spec.working_dir.startswith("/") else ".")


def asked_dir(body: Mapping[str, Any]) -> str:
    """The working folder that a client's own body asks for; empty if it names none."""
    workspace = body.get("workspace")
    asked = workspace.get("working_dir") if isinstance(workspace, dict) else None
    return asked if isinstance(asked, str) else ""


def folder_for(asked: str, folder: str) -> str:
    """The folder of the sandbox that stands for the one that was asked for; folder: the sandbox's working folder."""
    path = posixpath.normpath(posixpath.join(folder, asked))
    is_inside = folder.startswith("/") and path.startswith(folder.rstrip("/") + "/")
    return path if is_inside and not PureWindowsPath(asked).drive and "\0" not in path else folder
