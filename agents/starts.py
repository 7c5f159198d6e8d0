"""Starts of agents that clients bring, and the requests that start a conversation at an agent server.

If several requests name an id, a single start task is made, and all get its conversation. If a client disconnects, the
start task continues with its driver, and the next request with that id finds it.

A request is made from a spec's template, or is a client's own body. Such a body names a folder of the client's machine.
The agent works in a folder of the sandbox instead: the requested folder if it is in the sandbox's working folder, else
the working folder. The state of the conversation has both: `asked_dir`, and `working_dir` in its `workspace`.
"""

import posixpath
import time
from collections.abc import Callable, Mapping
from pathlib import PureWindowsPath
from typing import Any

from agents.model_addresses import within_reach
from core.cuts import beginning
from core.refused import RefusalKind, Refused
from core.wire import ConversationId
from settings.egress import secrets_inside
from settings.specs import Spec, lacks_model
from store import Store
from store.sandboxes.sandboxes import Sandbox
from store.sandboxes.start_tasks import FINISHED, Failure, StartTask

#: Interval in seconds between two polls of a start task: at first, and at most while it waits for a place. Hundreds of
#: requests may wait.
_POLL, _LONGEST_POLL = 0.05, 1.0

#: Maximum number of characters of a title from the first message, as in the console.
MOST_OWN_TITLE = 80

#: Error of a start whose conversation was deleted before its end was read.
DELETED = "The conversation has started, and was deleted since"

#: Status of the failure of a start whose id was taken meanwhile.
_TAKEN = 409


#: Settings that a client may have changed since the first start, and that a restart takes from the state.
_CHANGED = ("confirmation_policy", "security_analyzer", "tags")


class StartFailed(Exception):
    """Raised if the start of an agent ended as ERROR. Nothing of it is stored."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure.detail))
        self.failure = failure


class StartWaits(Refused):
    """The start still waits for a free sandbox when its request ends. It keeps waiting."""

    kind = RefusalKind.TAKEN
    retry_after = 2


class StartNotDone(Refused):
    """The start takes longer than the request waits. It continues."""

    kind = RefusalKind.LATER

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The agent did not start within {seconds:g} s (SANDBOX_START_SECONDS): it continues, so repeat the request"
        )


def started(
    store: Store, conversation_id: ConversationId, create: Callable[[], tuple[StartTask, bool]]
) -> tuple[dict[str, Any], bool]:
    """Return the state of a conversation whose agent has started, and whether this call created it.

    create: returns its start task, and whether it is new; called if the id is free. A conversation of a failed start is
    waited for until it is removed. Raises StartFailed, StartNotDone, StartWaits and the errors of `create`.
    """
    seconds = store.sandboxes.limits.sandbox_start_seconds
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        [state] = store.conversations.get_many([conversation_id])
        start, is_new = create() if state is None else (_start_of(store, state), False)
        if state is not None and (start is None or start.status == "READY"):
            return state, False
        if state is not None and start is not None and start.status == "ERROR":
            time.sleep(_POLL)  # its driver removes it
            continue
        seen = start and _ended(store, start, deadline)
        if seen is not None and seen.status == "READY":
            return store.conversations.get(conversation_id), is_new
        if seen is not None and seen.failure and seen.failure.status != _TAKEN:
            raise StartFailed(seen.failure)
        if seen is not None and seen.waits_for_place:
            raise StartWaits(f"{seen.detail}. Repeat the request")
    raise StartNotDone(seconds)


def start_notices(store: Store, state: dict[str, Any]) -> str:
    """Return the notices of a conversation's start, such as ignored settings; empty without notices or start task."""
    start = _start_of(store, state)
    return start.detail if start is not None and start.status == "READY" else ""


def _start_of(store: Store, state: dict[str, Any]) -> StartTask | None:
    """Return the start task of a conversation; None if there is none, or it is forgotten."""
    start_id = state["app"].get("start_id")
    return store.start_tasks.get_many([start_id])[0] if start_id else None


def _ended(store: Store, start: StartTask, deadline: float) -> StartTask:
    """Return a start task at its end, or at the deadline. Raises StartFailed if it is gone."""
    pause = _POLL
    while start.status not in FINISHED and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = min(1.5 * pause, _LONGEST_POLL) if start.waits_for_place else _POLL
        [now] = store.start_tasks.get_many([start.id])
        if now is None:
            raise StartFailed(Failure(410, DELETED))
        start = now
    return start


def conversation_request(
    conversation_id: ConversationId, request: Mapping[str, Any], template: Mapping[str, Any], working_dir: str
) -> dict[str, Any]:
    """Return the body of a start request: the spec's template with the values of the client's request."""
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


def of_sandbox(value: Any, sandbox: Sandbox) -> Any:
    """Return a value of a spec for a sandbox, with `{EGRESS}` replaced by the URL of its egress proxy."""
    if isinstance(value, dict):
        return {name: of_sandbox(one, sandbox) for name, one in value.items()}
    if isinstance(value, list):
        return [of_sandbox(one, sandbox) for one in value]
    return value.replace("{EGRESS}", sandbox.egress_url) if isinstance(value, str) and sandbox.egress_url else value


def template_of(spec: Spec, sandbox: Sandbox, model: str | None = None) -> dict[str, Any]:
    """Return the spec's template of a conversation for a sandbox.

    model: of the start; the spec's agent uses it at the endpoint of the spec's own model, with the same key.
    """
    template = {name: of_sandbox(one, sandbox) for name, one in spec.conversation.items()}
    if model and "agent" not in template and "reference_agent" in spec.command:
        template["agent"] = {"llm": {"model": model}}
    return template


def model_fault(spec: Spec, model: str | None) -> str:
    """Return why a spec's agent cannot use the model of a start, and what to do; empty if it can or is unknown."""
    if not model or not lacks_model(spec):
        return ""
    return (
        "No model is set on the server, so its agent has none. Start the server with LLM_MODEL=… LLM_API_KEY=…, or "
        "leave this out and send lines that begin with `run: `."
    )


def title_of_message(content: Any) -> str | None:
    """Return the title from a first message: its first line, without the `run:` of a command; None if it has no text.

    content: the parts of the message, as clients send them. Marked parts, which contain messages that only a client of
    OpenAI's API had, such as its system message, are ignored.
    """
    is_marked = False
    for part in content if isinstance(content, list) else ():
        text = part.get("text") if isinstance(part, dict) else None
        is_marked = text != "</message>" and (is_marked or str(text).startswith('<message role="'))
        if is_marked or text == "</message>":
            continue
        lines = text.strip().split("\n") if isinstance(text, str) else [""]
        if line := lines[0].removeprefix("run:").strip():
            return beginning(line, MOST_OWN_TITLE)
    return None


def own_request(conversation_id: ConversationId, body: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Return a client's own body for its agent server, with the conversation's id and a folder of the sandbox.

    folder: the sandbox's working folder. A body without a workspace is unchanged: the agent server reports what it
    needs.
    """
    workspace = body.get("workspace")
    if isinstance(workspace, dict):
        body = {**body, "workspace": {**workspace, "working_dir": folder_for(asked_dir(body), folder)}}
    return {**body, "conversation_id": conversation_id}


def restart_request(store: Store, conversation_id: ConversationId, sandbox: Sandbox, spec: Spec) -> dict[str, Any]:
    """Return the body that restarts a conversation at an agent server that has forgotten it.

    It keeps settings that clients changed since the first start, such as the policy. Raises ConversationNotFound,
    SecretsRefused.
    """
    state, secrets = store.conversations.get(conversation_id), store.conversations.secrets_of(conversation_id)
    own = store.start_tasks.bodies.of(conversation_id)
    if own is not None:
        body, _ = within_reach(
            own_request(conversation_id, own, working_folder(sandbox, spec)), spec, sandbox.egress_url
        )
    else:
        template = template_of(spec, sandbox, state["app"].get("llm_model"))
        body = conversation_request(conversation_id, state["app"], template, spec.working_dir)
    body |= {name: state[name] for name in _CHANGED if state[name]}
    return body | ({"secrets": secrets_inside(secrets, spec.services)} if secrets else {})


def working_folder(sandbox: Sandbox, spec: Spec) -> str:
    """Return the absolute working folder of a sandbox; `.` before its first start if its spec has none."""
    return sandbox.working_dir or (spec.working_dir if spec.working_dir.startswith("/") else ".")


def asked_dir(body: Mapping[str, Any]) -> str:
    """Return the working folder that a client's own body asks for; empty if there is none."""
    workspace = body.get("workspace")
    asked = workspace.get("working_dir") if isinstance(workspace, dict) else None
    return asked if isinstance(asked, str) else ""


def movable(body: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
    """Return a client's own body for storage, with a folder inside the sandbox's working folder as a relative path.

    After a restore the sandbox may have another data folder, where the absolute path does not exist.
    """
    asked = asked_dir(body)
    inside = folder_for(asked, folder)
    if not asked.startswith("/") or inside == folder:
        return body
    return {**body, "workspace": {**body["workspace"], "working_dir": posixpath.relpath(inside, folder)}}


def in_workspace(body: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
    """Return a client's own body for the workspace sandbox of its key, below the sandbox's working folder.

    Its earlier calls used that mapping too; see `Folder.whole` of `agents/forwarding.py`.
    """
    asked = asked_dir(body)
    if not asked.startswith("/") or f"{asked}/".startswith(f"{folder.rstrip('/')}/"):
        return body
    return {**body, "workspace": {**body["workspace"], "working_dir": asked.strip("/") or "."}}


def folder_for(asked: str, folder: str) -> str:
    """Return the sandbox's folder for a requested folder. folder: the sandbox's working folder."""
    path = posixpath.normpath(posixpath.join(folder, asked))
    is_inside = folder.startswith("/") and path.startswith(folder.rstrip("/") + "/")
    return path if is_inside and not PureWindowsPath(asked).drive and "\0" not in path else folder
