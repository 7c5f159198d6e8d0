"""Requests of clients about a conversation's folder, to its agent server: git, skills and hooks.

A client's path must stay in the folder (`within`). Source: the routers of the published agent server.
"""

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agents.client import AgentRefused, AgentServer, AgentUnreachable
from store.sandboxes.sandboxes import Sandbox

#: Statuses of a server without a route.
NO_ROUTE = (404, 405)


#: Clients' name for the folder of any conversation. Source: the app-server wire.
USUAL = "/workspace/project"


class RouteLacking(AgentRefused):
    """Raised if the agent server does not serve a route. keeps_status: the client gets the same status."""

    def __init__(self, status: int, path: str, *, keeps_status: bool = False) -> None:
        sentence = f"The agent server of the conversation's sandbox does not serve {path}"
        Exception.__init__(self, sentence)
        self.status, self.detail, self.body = status, "", b""
        self.shown = sentence if keeps_status else None


def git_changes(agent: AgentServer, folder: str, path: str, ref: str | None) -> Any:
    """Return the list of files that differ from a ref, in the repository at a path below the folder."""
    return _checked(_ask_git(agent, "changes", _git(folder, path, ref)), list, "list of changes")


def git_diff(agent: AgentServer, folder: str, path: str, ref: str | None) -> Any:
    """Return a file below the folder as it is and at a ref."""
    return _checked(_ask_git(agent, "diff", _git(folder, path, ref)), dict, "difference of a file")


def skills(agent: AgentServer, folder: str, agent_info: Any) -> list[dict[str, Any]]:
    """Return the skills of the folder and of the agent's user, and public skills if the agent loads them."""
    context = agent_info.get("agent_context") if isinstance(agent_info, dict) else None
    body = {
        "project_dir": folder,
        "load_project": True,
        "load_user": True,
        "load_org": False,
        "load_public": isinstance(context, dict) and context.get("load_public_skills") is True,
    }
    found = _checked(_ask(agent, "POST", "/api/skills", json=body), dict, "list of skills").get("skills")
    names = ("name", "type", "content")
    return [
        {name: str(skill.get(name) or "") for name in names} | {"triggers": _texts(skill.get("triggers"))}
        for skill in _checked(found, list, "list of skills")
        if isinstance(skill, dict)
    ]


def hooks(agent: AgentServer, folder: str) -> list[dict[str, Any]]:
    """Return the hooks of the folder, by event."""
    reply = _checked(_ask(agent, "POST", "/api/hooks", json={"project_dir": folder}), dict, "configuration of hooks")
    config = reply.get("hook_config") or {}
    return [
        {"event_type": event_type, "matchers": matchers}
        for event_type, matchers in _checked(config, dict, "configuration of hooks").items()
        if isinstance(matchers, list) and matchers
    ]


def _git(folder: str, path: str, ref: str | None) -> dict[str, str]:
    return {"path": posixpath.normpath(posixpath.join(folder, path))} | ({} if ref is None else {"ref": ref})


def _ask_git(agent: AgentServer, operation: str, query: dict[str, str]) -> Any:
    """Run a Git operation in a folder. A 409 is about the folder, so its text is shown."""
    try:
        return _ask(agent, "GET", f"/api/git/{operation}", params=query)
    except AgentRefused as refusal:
        if refusal.status == 409:
            refusal.shown = refusal.detail or None
        raise


def _ask(agent: AgentServer, method: str, path: str, **options: Any) -> Any:
    try:
        return agent.ask(method, path, **options)
    except AgentRefused as refusal:
        if refusal.status in NO_ROUTE:
            raise RouteLacking(refusal.status, path) from None
        raise


def _checked(value: Any, kind: type[Any], what: str) -> Any:
    if not isinstance(value, kind):
        raise AgentUnreachable(f"The agent server's response is no {what}")
    return value


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def folder_of(state: dict[str, Any]) -> str:
    """Return a conversation's folder as its agent names it: absolute, or relative to the agent's working directory."""
    workspace = state["info"].get("workspace")
    folder = workspace.get("working_dir") if isinstance(workspace, dict) else None
    return _restored(folder, state.get("sandbox")) if isinstance(folder, str) and folder else "."


def _restored(folder: str, sandbox: Sandbox | None) -> str:
    """Return the current path of a folder in the sandbox, whose data folder changes with a restore."""
    if sandbox is None or f"{folder}/".startswith(f"{sandbox.working_dir}/"):
        return folder
    _, mark, inner = folder.partition(f"/{sandbox.id}/")
    below, is_own, _ = sandbox.working_dir.partition(f"/{sandbox.id}/")
    return f"{below}{mark}{inner}" if mark and is_own else folder


def seen_folder(state: dict[str, Any]) -> str:
    """Return the folder as the agent's own `pwd` prints it; relative before the sandbox's first start.

    state: of an app conversation, with its sandbox.
    """
    sandbox = state["sandbox"]
    return _moved(folder_of(state), sandbox.linked_dir, sandbox.working_dir) if sandbox else folder_of(state)


def linked_folder(state: dict[str, Any]) -> str:
    """Return another path of the folder, through a symlink; empty if there is none."""
    sandbox = state["sandbox"]
    is_linked = bool(sandbox and sandbox.linked_dir)
    return _moved(folder_of(state), sandbox.working_dir, sandbox.linked_dir) if is_linked else ""


def kept_folder(state: dict[str, Any]) -> str:
    """Return the folder as a runtime names it, without symlinks of an image: by its spec's path, or relative to it.

    Until a restored sandbox has started, its absolute path is below the backed up data folder.
    """
    folder, sandbox = folder_of(state), state["sandbox"]
    return linked_folder(state) or (_moved(folder, sandbox.working_dir, "") if sandbox else folder)


def _moved(folder: str, source: str, target: str) -> str:
    """Move a folder from `source` to `target`. Paths outside of `source` are unchanged. source: may be empty."""
    path = posixpath.normpath(folder)
    if source and (path == source or path.startswith(f"{source}/")):
        path = posixpath.relpath(path, source)
    return posixpath.normpath(posixpath.join(target, path))


@contextmanager
def without_place(state: dict[str, Any]) -> Iterator[None]:
    """In errors of an agent server, replace the folder's path on the host by the clients' name."""
    try:
        yield
    except AgentRefused as refusal:
        for place in (seen_folder(state), linked_folder(state)):
            if place.startswith("/") and place != "/":
                refusal.args = (str(refusal).replace(place, USUAL),)
                refusal.shown = refusal.shown and refusal.shown.replace(place, USUAL)
        raise


class PathOutside(ValueError):
    """Raised if a path leads out of a conversation's folder."""

    def __init__(self) -> None:
        super().__init__("Input should be a path in the conversation's folder, relative to it or absolute")


def within(folder: str, path: str, *, linked: str = "") -> str:
    """Return the path relative to the folder, `.` for the folder itself. Raises PathOutside.

    folder, linked: of a conversation, as `seen_folder` and `linked_folder`. USUAL is an alias.
    """
    for root in (folder, linked, USUAL):
        if root.startswith("/") and (path == root or path.startswith(f"{root.rstrip('/')}/")):
            path = path[len(root.rstrip("/")) :].lstrip("/")
            break
    inner = posixpath.normpath(path) if path else "."
    if "\0" in inner or inner.startswith("/") or inner == ".." or inner.startswith("../"):
        raise PathOutside
    return inner
