"""The command, the environment and the working directory of a process sandbox."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from runtimes import Launch, RuntimeFailure, filled
from runtimes.isolation import BUBBLEWRAP, LANDLOCK
from runtimes.isolation.network import HOOK_PORT
from runtimes.isolation.view import PROJECT
from runtimes.tree import MARK

#: the PATH of a sandbox without one of its own
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def composed(
    launch: Launch, folder: Path, ports: Mapping[str, int], kind: str, hook_port: int
) -> tuple[list[str], dict[str, str], Path]:
    """Command, environment and working directory in an isolation of that kind. Raises RuntimeFailure.

    hook_port: of the host, where Landlock lets the sandbox post to. A relative working directory lies in the sandbox's
    `work`; an absolute one is the command's own affair (it may change its root), which then starts in `work`.
    """
    work = folder / "work"
    working_dir = work if launch.working_dir.startswith("/") else (work / launch.working_dir).resolve()
    if not working_dir.is_relative_to(work):
        raise RuntimeFailure(f"its working directory {launch.working_dir} lies outside of its folder")
    working_dir.mkdir(parents=True, exist_ok=True)
    words: dict[str, object] = {"WORK": work, "WEBHOOKS": _webhooks(launch.webhooks, kind, hook_port), **ports}
    words["PROJECT"] = folder / "project" if kind == LANDLOCK else PROJECT
    env = {"PATH": PATH, "HOME": str(work)}
    if kind == LANDLOCK:  # which cannot give it a /tmp of its own
        env["TMPDIR"] = str(folder / "tmp")
    env |= {name: filled(text, words) for name, text in launch.env.items()}
    return [filled(word, words) for word in launch.command], env | {MARK: str(folder)}, working_dir


def _webhooks(url: str, kind: str, hook_port: int) -> str:
    """The base URL of the webhooks as the sandbox sees it: where it is confined, a relay's on its loopback."""
    port = {BUBBLEWRAP: HOOK_PORT, LANDLOCK: hook_port}.get(kind)
    return f"http://127.0.0.1:{port}{urlsplit(url).path}" if url and port else url
