"""The repository of a start: Git clones it in the sandbox, before the conversation begins there.

The sandbox's agent server runs Git, so what holds for any command there holds for it: the isolation, the destinations
that may be reached, and the services that add a credential outside of the sandbox. A clone that fails stops no start:
the start task's detail says why.
"""

import re
from collections.abc import Mapping
from shlex import quote
from typing import Any

from agents.client import AgentRefused, AgentServer, AgentUnreachable
from core.cuts import beginning
from core.scopes import REPOSITORY_HOSTS
from core.wire import ConversationId

#: seconds that a clone may take
CLONE_SECONDS = 120

#: where providers of the wire have the repositories that are named OWNER/NAME; those of the others need a URL
PROVIDERS = {name: f"https://{host}" for name, host in REPOSITORY_HOSTS.items()}

#: most characters of what Git says that a detail has
_MOST_SAID = 300

_OWNED = re.compile(r"\w[\w.-]*(/[\w.-]+)+", re.ASCII)
_NAME = re.compile(r"[\w.][\w.-]*", re.ASCII)

#: a clone is moved into place as a whole: a driver that follows one that was killed finds it whole or not at all
_SCRIPT = """\
if [ -e {name}/.git ]; then exit 0; fi
if [ -e {name} ]; then echo {there} >&2; exit 1; fi
rm -rf {part}
if GIT_TERMINAL_PROMPT=0 git clone --quiet {branch}-- {url} {part} && mv {part} {name}; then exit 0; fi
rm -rf {part}
exit 1
"""


class _NotNamed(ValueError):
    """What a request names is no repository that can be cloned; the message says why."""


def clone(agent: AgentServer, folder: str, conversation_id: ConversationId, request: Mapping[str, Any]) -> str:
    """Clone the repository of a start into a folder of its name below the working folder, unless it is there.

    request: with a `selected_repository`. Returns what was not done, in a sentence; empty: nothing.
    """
    repository = request["selected_repository"]
    try:
        command = _command(repository, request.get("selected_branch"), request.get("git_provider"), conversation_id)
        ended = agent.execute(command, folder, CLONE_SECONDS)
    except _NotNamed as error:
        return f"{repository} was not cloned: {error}"
    except (AgentUnreachable, AgentRefused) as error:
        return f"{repository} was not cloned, as no command runs in its sandbox: {error}"
    if ended.get("exit_code") == 0:
        return ""
    lines = f"{ended.get('stdout') or ''}\n{ended.get('stderr') or ''}".strip().splitlines() or ["it says nothing"]
    return f"{repository} was not cloned: {beginning(lines[-1], _MOST_SAID)}"


def _command(repository: str, branch: str | None, provider: str | None, conversation_id: ConversationId) -> str:
    """Raises _NotNamed."""
    name = repository.rstrip("/").rpartition("/")[2].removesuffix(".git")
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise _NotNamed("its last part is no name of a folder")
    return _SCRIPT.format(
        name=quote(name),
        there=quote(f"there is something else of the name {name} in the working folder"),
        part=quote(f".{conversation_id}.clone"),
        branch=f"--branch {quote(branch)} " if branch else "",
        url=quote(_url(repository, provider)),
    )


def _url(repository: str, provider: str | None) -> str:
    """Raises _NotNamed."""
    if not _OWNED.fullmatch(repository):
        return repository
    host = PROVIDERS.get(provider or "github")
    if host is None:
        raise _NotNamed(f"give its URL, as this server does not know where {provider} is")
    return f"{host}/{repository}.git"
