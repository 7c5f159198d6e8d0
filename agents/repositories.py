"""The repository of a start: Git clones it in the sandbox, before the conversation starts there.

The sandbox's agent server runs Git, so the clone is subject to the sandbox's isolation, its destinations, and the
services that add a credential outside of the sandbox.
"""

from collections.abc import Mapping
from shlex import quote
from typing import Any

from agents.client import AgentRefused, AgentServer
from core.cuts import beginning
from core.repositories import clone_fault, clone_folder, clone_url
from core.wire import ConversationId

#: Timeout of a clone, in seconds.
CLONE_SECONDS = 120

#: Maximum number of characters of Git's output in a detail.
_MOST_SAID = 300

#: Git's line between the cause and general advice.
_GAVE_UP = "fatal: Could not read from remote repository."

#: The clone is moved into place atomically, so that after a kill the next driver finds a complete clone or none.
_SCRIPT = """\
if [ -e {name}/.git ]; then exit 0; fi
if [ -e {name} ]; then echo {there} >&2; exit 1; fi
rm -rf {part}
if GIT_TERMINAL_PROMPT=0 git clone --quiet {branch}-- {url} {part} && mv {part} {name}; then exit 0; fi
rm -rf {part}
exit 1
"""


def clone(agent: AgentServer, folder: str, conversation_id: ConversationId, request: Mapping[str, Any]) -> str:
    """Clone the repository of a start into a folder of its name below the working folder, unless it exists.

    request: with a `selected_repository`. Return why it was not cloned, in a sentence; empty if it exists. Raises
    AgentUnreachable.
    """
    repository, provider = request["selected_repository"], request.get("git_provider")
    said = clone_fault(repository, provider)  # of a parent that an earlier release recorded
    if not said:
        command = _command(repository, request.get("selected_branch"), provider, conversation_id)
        try:
            said = _failure(agent.execute(command, folder, CLONE_SECONDS))
        except AgentRefused as error:
            said = f"its agent server runs no commands: {error}"
    return said and f"The repository {repository} was not cloned: {said}"


def _command(repository: str, branch: str | None, provider: str | None, conversation_id: ConversationId) -> str:
    name = clone_folder(repository)
    return _SCRIPT.format(
        name=quote(name),
        there=quote(f"there is something else of the name {name} in the working folder"),
        part=quote(f".{conversation_id}.clone"),
        branch=f"--branch {quote(branch)} " if branch else "",
        url=quote(clone_url(repository, provider)),
    )


def _failure(ended: Mapping[str, Any]) -> str:
    """Return Git's line with the cause of a failed clone; empty if it succeeded."""
    if ended.get("exit_code") == 0:
        return ""
    lines = f"{ended.get('stdout') or ''}\n{ended.get('stderr') or ''}".strip().splitlines()
    if _GAVE_UP in lines[1:]:
        lines = lines[: lines.index(_GAVE_UP, 1)]
    fatal = [line for line in lines if line.startswith("fatal: ")]
    return beginning((fatal or lines[-1:] or ["Git gave no reason"])[0], _MOST_SAID)
