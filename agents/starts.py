"""Starts of agents that clients bring, and the requests that start a conversation at an agent server.

However many requests name one id, one start task is made, and all get its conversation. If a client hangs up, the start
task continues with its driver; the next request with that id finds it.

A request is a spec's template, or a client's own body. Such a body names a folder of the client's machine. The agent
works in a folder of the sandbox in its place: the one that was asked for if it lies in the sandbox's working folder,
else that working folder. The state of the conversation has both: `asked_dir`, and `working_dir` in its `workspace`.
"""

import posixpath
import time
from collections.abc import Callable, Mapping
from pathlib import PureWindowsPath
from typing import Any

from agents.model_addresses import within_reach
from core.cuts import beginning
from core.refused import Kind, Refused
from core.wire import ConversationId
from settings.egress import secrets_inside
from settings.specs import Spec, lacks_model
from store import Store
from store.sandboxes.sandboxes import Sandbox
from store.sandboxes.start_tasks import FINISHED, Failure, StartTask

#: seconds between two polls of a start task: at first, and at most of one that waits for a place. Hundreds may wait at
#: once, each in a request of its own
_POLL, _LONGEST_POLL = 0.05, 1.0

#: most characters of a title that is taken from the first message; the console takes as many
MOST_OWN_TITLE = 80

#: what is said of a start whose conversation was deleted before its end was read
DELETED = "The conversation has started, and was deleted since"

#: status of the failure of a start whose id was taken meanwhile
_TAKEN = 409


#: what a client may have changed since the first start, and what a later one takes from the conversation's state
_CHANGED = ("confirmation_policy", "security_analyzer", "tags")


class StartFailed(Exception):
    """The start of an agent ended as ERROR; nothing of it is kept."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure.detail))
        self.failure = failure


class StartWaits(Refused):
    """The start still waits for a free sandbox when its request ends. It keeps waiting."""

    kind = Kind.TAKEN
    retry_after = 2


class StartNotDone(Refused):
    """The start takes longer than the request waits. It continues."""

    kind = Kind.LATER

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The agent did not start within {seconds:g} s (SANDBOX_START_SECONDS): it continues, so repeat the request"
        )


def started(
    store: Store, conversation_id: ConversationId, create: Callable[[], tuple[StartTask, bool]]
) -> tuple[dict[str, Any], bool]:
    """The state of a conversation whose agent has started, and whether this call created it.

    create: the start task of it, and whether it is new; called where the id is free. A conversation whose start has
    failed is waited for until it is gone. Raises StartFailed, StartNotDone, StartWaits and what create raises.
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


def told_of(store: Store, state: dict[str, Any]) -> str:
    """What the start of a conversation was told, such as what its agent ignores; empty: nothing, or it is forgotten."""
    start = _start_of(store, state)
    return start.detail if start is not None and start.status == "READY" else ""


def _start_of(store: Store, state: dict[str, Any]) -> StartTask | None:
    """The start task that made a conversation; None where there was none, or it is forgotten."""
    start_id = state["app"].get("start_id")
    return store.start_tasks.get_many([start_id])[0] if start_id else None


def _ended(store: Store, start: StartTask, deadline: float) -> StartTask:
    """A start task at its end, or as it is when the time is over. Raises StartFailed of one that is gone."""
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


def of_sandbox(value: Any, sandbox: Sandbox) -> Any:
    """Return a value of a spec as a sandbox gets it: `{EGRESS}` stands for the URL of its way out."""
    if isinstance(value, dict):
        return {name: of_sandbox(one, sandbox) for name, one in value.items()}
    if isinstance(value, list):
        return [of_sandbox(one, sandbox) for one in value]
    return value.replace("{EGRESS}", sandbox.egress_url) if isinstance(value, str) and sandbox.egress_url else value


def template_of(spec: Spec, sandbox: Sandbox, model: str | None = None) -> dict[str, Any]:
    """The spec's template of a conversation as a sandbox gets it.

    model: of the start. The spec's agent asks for it where the spec's own model is, with the same key.
    """
    template = {name: of_sandbox(one, sandbox) for name, one in spec.conversation.items()}
    if model and "agent" not in template and "reference_agent" in spec.command:
        template["agent"] = {"llm": {"model": model}}
    return template


def model_fault(spec: Spec, model: str | None) -> str:
    """Why the agent of a spec cannot use the model of a start, and what to do; empty: it can, or is not known."""
    if not model or not lacks_model(spec):
        return ""
    return (
        "No model is set on the server, so its agent can use none. Start the server with LLM_MODEL=… LLM_API_KEY=…, or "
        "leave this out and send lines that begin with `run: `."
    )


def title_of_message(content: Any) -> str | None:
    """Return the title that a first message stands for: its first line, without the word `run:` of a command.

    content: the parts of the message, as clients send them. Messages that only a client of OpenAI's API knew before,
    such as its system message, stand between marks and are left out. None where the parts have no text.
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
        body, _ = within_reach(
            own_request(conversation_id, own, working_folder(sandbox, spec)), spec, sandbox.egress_url
        )
    else:
        template = template_of(spec, sandbox, state["app"].get("llm_model"))
        body = conversation_request(conversation_id, state["app"], template, spec.working_dir)
    body |= {name: state[name] for name in _CHANGED if state[name]}
    return body | ({"secrets": secrets_inside(secrets, spec.services)} if secrets else {})


def working_folder(sandbox: Sandbox, spec: Spec) -> str:
    """The working folder of a sandbox, absolute; `.` before its first start, where its spec names none."""
    return sandbox.working_dir or (spec.working_dir if spec.working_dir.startswith("/") else ".")


def asked_dir(body: Mapping[str, Any]) -> str:
    """The working folder that a client's own body asks for; empty if it names none."""
    workspace = body.get("workspace")
    asked = workspace.get("working_dir") if isinstance(workspace, dict) else None
    return asked if isinstance(asked, str) else ""


def movable(body: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
    """A client's own body as it is kept: a folder inside of the sandbox's working folder by its path from there.

    The sandbox may wake below another data folder, as after a restore, where the absolute path names nothing.
    """
    asked = asked_dir(body)
    inside = folder_for(asked, folder)
    if not asked.startswith("/") or inside == folder:
        return body
    return {**body, "workspace": {**body["workspace"], "working_dir": posixpath.relpath(inside, folder)}}


def in_workspace(body: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
    """A client's own body for the workspace sandbox of its key, whose paths lie below the sandbox's working folder.

    There its calls have put what they named before; see `Folder.whole` of `agents/forwarding.py`.
    """
    asked = asked_dir(body)
    if not asked.startswith("/") or f"{asked}/".startswith(f"{folder.rstrip('/')}/"):
        return body
    return {**body, "workspace": {**body["workspace"], "working_dir": asked.strip("/") or "."}}


def folder_for(asked: str, folder: str) -> str:
    """The folder of the sandbox that stands for the one that was asked for; folder: the sandbox's working folder."""
    path = posixpath.normpath(posixpath.join(folder, asked))
    is_inside = folder.startswith("/") and path.startswith(folder.rstrip("/") + "/")
    return path if is_inside and not PureWindowsPath(asked).drive and "\0" not in path else folder
