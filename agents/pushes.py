"""Pushes a conversation's work as a branch to the remote of the repository in its folder, through the egress proxy.

Git runs in the sandbox, as for the clone of a start. So it is subject to the sandbox's isolation, its destinations, and
the services that add a credential outside of the sandbox. The commit contains all files of the folder that Git does not
ignore. The folder's own branch and index are unchanged, no hook runs, and no push is forced.

Limitation: the sandbox reports which commit it pushed and where to, and may lie about both. It could push by itself.
"""

import re
from collections.abc import Mapping
from shlex import quote
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from agents.client import AgentRefused, AgentServer, AgentUnreachable
from agents.model_addresses import service_at, shown_url
from core.cuts import beginning
from core.refused import RefusalKind, Refused
from core.visible import visible
from settings.egress import NAMED, NO_WAY
from settings.specs import Spec

#: Timeouts in seconds: for inspecting a repository, for its commit, and for its push.
LOOK_SECONDS, COMMIT_SECONDS, PUSH_SECONDS = 20, 60, 120

#: Maximum number of characters of Git's output in a refusal.
_MOST_SAID = 300

#: The folder of an agent's own files, which are not part of the work.
_OF_AGENT = ".agent-server"

#: Git without hooks, monitors and signing of the repository.
_GIT = "git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c commit.gpgSign=false -c push.gpgSign=false"

#: Finds the repository of a folder, or the only one directly below it, and describes it in NAME=VALUE lines.
_LOOK = """\
at={path}
if [ -z "$at" ]; then
  if [ -e .git ]; then at=.; else
    for one in */; do
      [ -e "$one.git" ] || continue
      if [ -n "$at" ]; then echo "several=$at, ${{one%/}}"; exit 0; fi
      at=${{one%/}}
    done
  fi
fi
[ -n "$at" ] && [ -e "$at/.git" ] || exit 0
echo "path=$at"
cd "./$at" || exit 1
branch=$(git symbolic-ref --quiet --short HEAD)
remote=$(git config "branch.$branch.remote")
if [ -z "$remote" ] || [ "$remote" = . ]; then
  remote=$(git remote | grep -x origin || git remote | head -n 1)
fi
echo "branch=$branch"
[ -n "$remote" ] || exit 0
echo "url=$(git remote get-url --push "$remote")"
base=$(git symbolic-ref --quiet --short "refs/remotes/$remote/HEAD")
echo "base=${{base#"$remote/"}}"
exit 0
"""

#: Commits the folder in a separate index, on top of its HEAD, or of the branch if an earlier push made it.
_COMMIT = """\
cd {path} || exit 1
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
head=$({git} rev-parse --quiet --verify 'HEAD^{{commit}}')
parent=$head
if tip=$({git} rev-parse --quiet --verify {ref}'^{{commit}}'); then
  parent=$tip
  if [ -n "$head" ] && ! {git} merge-base --is-ancestor "$head" "$tip"; then echo {other} >&2; exit 1; fi
fi
cp -p "$({git} rev-parse --git-path index)" "$folder/index" 2>/dev/null  # with its time, by which Git tells what is new
export GIT_INDEX_FILE="$folder/index"
{git} add --all -- . {left_out} || exit 1
tree=$({git} write-tree) || exit 1
if [ -n "$parent" ] && [ "$tree" = "$({git} rev-parse "$parent^{{tree}}")" ]; then
  commit=$parent
  new=$({git} rev-list --max-count=1 "$commit" --not --remotes)
  if [ -z "$tip$new" ]; then echo {same} >&2; exit 1; fi
else
  commit=$(printf '%s' {message} | {identity} {git} commit-tree "$tree" ${{parent:+-p "$parent"}}) || exit 1
fi
echo "commit=$commit"
"""

_PUSH = """\
cd {path} || exit 1
GIT_TERMINAL_PROMPT=0 {git} push --porcelain -- {url} {commit}:{ref} || exit 1
if [ "$({git} symbolic-ref --quiet HEAD)" = {ref} ]; then
  {git} update-ref {ref} {commit} && {git} reset --quiet
else
  {git} update-ref {ref} {commit}
fi
exit 0
"""

_COMMIT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")

#: Git's short form of an SSH address, with its host and path.
_SCP = re.compile(r"(?:[\w.-]+@)?([\w.-]+):(?!/)([\w./~-]+)", re.ASCII)

#: URL in a host's output of a push where a pull request can be opened.
_OFFERED = re.compile(r"^remote:\s+(https?://\S+)\s*$", re.MULTILINE)


class CannotPush(Refused):
    """The work of the conversation cannot be pushed now. The message has the reason."""

    kind = RefusalKind.CONFLICT


class PushFailed(Refused):
    """Git failed to commit or to push. The message has the last line of its output."""

    kind = RefusalKind.BAD_AGENT


class RemoteChanged(Refused):
    """The repository has another remote than the request names."""

    kind = RefusalKind.CONFLICT
    words = "The repository's remote has changed. Look at it again with GET …/git/remote"


class ConversationRemote(NamedTuple):
    """The remote of a conversation's work."""

    path: str  #: of the repository, below the conversation's folder
    branch: str  #: current branch of the folder; empty: none
    base: str  #: default branch of the remote; empty: unknown
    url: str  #: for people
    pushed_to: str  #: for Git in the sandbox
    repository: str  #: its path at its host, such as `owner/name`
    host: str  #: name and port


class RequestedPush(NamedTuple):
    """The push that a person requested."""

    branch: str
    title: str
    description: str
    author: str  #: NAME <ADDRESS>


def find_remote(agent: AgentServer, folder: str, path: str | None, spec: Spec, egress_url: str) -> ConversationRemote:
    """Return the remote of the repository in a conversation's folder. Raises CannotPush, PushFailed.

    path: of the repository below the folder; None: the folder itself, or the only repository directly below it.
    egress_url: of the sandbox's egress proxy; empty: none.
    """
    seen = _facts(_run(agent, _LOOK.format(path=quote(path or "")), folder, LOOK_SECONDS))
    if several := seen.get("several"):
        raise CannotPush(f"The folder has several repositories: name one as path, such as one of {several}")
    if "path" not in seen:
        place = f"{path} is not a Git repository" if path else "The conversation's folder is not a Git repository"
        raise CannotPush(f"{place}, so there is no remote to push to: start with a repository, or save a patch")
    if not (url := seen.get("url", "")):
        raise CannotPush("The repository has no remote. Ask the agent to add one: git remote add origin URL")
    pushed_to, public = _way(url, spec, egress_url)
    parts = urlsplit(public)
    repository = parts.path.strip("/").removesuffix(".git")
    host = parts.netloc.rpartition("@")[2]
    return ConversationRemote(
        seen["path"], seen.get("branch", ""), seen.get("base", ""), shown_url(public), pushed_to, repository, host
    )


def _way(url: str, spec: Spec, egress_url: str) -> tuple[str, str]:
    """Return the remote's URL for Git in a sandbox, and its own URL. Raises CannotPush."""
    if spec.egress == NO_WAY:
        raise CannotPush(f"Sandboxes of the spec {spec.id} have no network: save a patch, or choose a spec with egress")
    address = _as_https(url)
    if spec.egress != NAMED or not egress_url:
        return url, address
    if url.startswith(f"{egress_url}/"):
        name, _, rest = url.removeprefix(f"{egress_url}/").partition("/")
        if service := next((one for one in spec.services if one.name == name), None):
            return url, f"{service.base_url}/{rest}"
    elif found := service_at(address, spec.services):
        service, rest = found
        return f"{egress_url}/{service.name}{rest}", address
    raise CannotPush(
        f"No service of the spec {spec.id} has a credential for {shown_url(address)}. Its operator names one as "
        "[[spec.service]], whose base_url the repository is below"
    )


def _as_https(url: str) -> str:
    """Convert an SSH address to HTTPS. Other addresses are unchanged."""
    if "://" not in url and (found := _SCP.fullmatch(url)):
        return f"https://{found[1]}/{found[2]}"
    parts = urlsplit(url)
    return f"https://{parts.hostname}{parts.path}" if parts.scheme == "ssh" and parts.hostname else url


def commit(agent: AgentServer, folder: str, remote: ConversationRemote, wanted: RequestedPush) -> str:
    """Commit the files of a repository for a branch, and return the commit's id. Raises PushFailed, CannotPush.

    `push` creates the branch. Files that an earlier push has committed are not committed again.
    """
    name, _, address = wanted.author.rpartition(" <")
    whole = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": address.removesuffix(">")}
    whole |= {key.replace("AUTHOR", "COMMITTER"): value for key, value in whole.items()}
    same, other = "The remote already has all changes", "The branch has other commits than the folder"
    script = _COMMIT.format(
        git=_GIT,
        path=quote(f"./{remote.path}"),
        ref=quote(f"refs/heads/{wanted.branch}"),
        left_out=quote(f":(top,exclude){_OF_AGENT}"),
        message=quote(f"{wanted.title}\n\n{wanted.description}".strip() + "\n"),
        identity=" ".join(f"{key}={quote(value)}" for key, value in whole.items()),
        same=quote(same),
        other=quote(other),
    )
    try:
        made = _facts(_run(agent, script, folder, COMMIT_SECONDS)).get("commit", "")
    except PushFailed as error:
        if same in str(error):
            raise CannotPush(same) from None
        if other in str(error):
            raise CannotPush(f"{other}: choose another branch") from None
        raise
    if not _COMMIT_ID.fullmatch(made):
        raise PushFailed("Git in the sandbox returned no commit")
    return made


def push(agent: AgentServer, folder: str, remote: ConversationRemote, branch: str, commit_id: str) -> str:
    """Push a commit as a branch, and create the branch in the folder's repository too. Raises PushFailed.

    Return the host's URL for opening a pull request; empty if it sends none.
    """
    script = _PUSH.format(
        git=_GIT,
        path=quote(f"./{remote.path}"),
        url=quote(remote.pushed_to),
        commit=commit_id,
        ref=quote(f"refs/heads/{branch}"),
    )
    said = _run(agent, script, folder, PUSH_SECONDS)
    found = (one for one in _OFFERED.findall(said["stderr"]) if urlsplit(one).netloc == remote.host)
    return beginning(visible(next(found, "")), 2000)


def author_of(name: str) -> str:
    """Return a caller's identity for Git. A person whose name is an email address gets it."""
    plain = re.sub(r"[<>\x00-\x1f\x7f]", " ", name).strip() or "anyone"
    return f"{plain} <{plain if re.fullmatch(r'[^@ ]+@[^@ ]+', plain) else 'agent-server@localhost'}>"


def _run(agent: AgentServer, script: str, folder: str, seconds: int) -> dict[str, str]:
    """Run a script, and return its stdout and stderr. Raises PushFailed."""
    try:
        ended: Mapping[str, Any] = agent.execute(script, folder, seconds)
    except (AgentUnreachable, AgentRefused) as error:
        raise PushFailed(f"No command runs in the sandbox: {error}") from None
    said = {name: str(ended.get(name) or "") for name in ("stdout", "stderr")}
    if ended.get("exit_code") == 0:
        return said
    lines = [line for line in f"{said['stdout']}\n{said['stderr']}".splitlines() if line.strip()]
    refused = [line for line in lines if line.startswith(("!", "fatal:", "error:", "remote: error:"))]
    reason = (refused or lines[-1:] or [f"it did not end within {seconds} s"])[0]
    raise PushFailed(f"Git in the sandbox: {beginning(visible(' '.join(reason.split())), _MOST_SAID)}")


def _facts(said: Mapping[str, str]) -> dict[str, str]:
    """Return the NAME=VALUE lines of a script's output."""
    return dict(line.split("=", 1) for line in said["stdout"].splitlines() if "=" in line)
