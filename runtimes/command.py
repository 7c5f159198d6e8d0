"""The command, the environment and the working directory of a process sandbox."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from runtimes import Launch, RuntimeFailure, filled
from runtimes.tree import MARK

#: the PATH of a sandbox without one of its own
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PROJECT = Path(__file__).parent.parent


def composed(launch: Launch, folder: Path, ports: Mapping[str, int]) -> tuple[list[str], dict[str, str], Path]:
    """Command, environment and working directory. Raises RuntimeFailure.

    A relative working directory lies in the sandbox's `work`; an absolute one is the command's own affair (it may
    change its root), which then starts in `work`.
    """
    work = folder / "work"
    working_dir = work if launch.working_dir.startswith("/") else (work / launch.working_dir).resolve()
    if not working_dir.is_relative_to(work):
        raise RuntimeFailure(f"its working directory {launch.working_dir} lies outside of its folder")
    working_dir.mkdir(parents=True, exist_ok=True)
    words: dict[str, object] = {"WORK": work, **ports}
    env = {"PATH": PATH, "HOME": str(work)} | {name: filled(text, words) for name, text in launch.env.items()}
    command = [filled(word, words) for word in launch.command]
    if launch.isolated:
        command = [*_isolation(folder, work, working_dir), *command]
    return command, env | {MARK: str(folder)}, working_dir


def _isolation(folder: Path, work: Path, working_dir: Path) -> list[str]:
    program = shutil.which("bwrap")
    if program is None:
        raise RuntimeFailure("its spec asks for isolation, and the program bwrap (bubblewrap) is not installed")
    words = [program, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    words += ["--ro-bind", str(_PROJECT), str(_PROJECT)]
    words += ["--tmpfs", str(folder.parent), "--bind", str(work), str(work), "--chdir", str(working_dir)]
    return [*words, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL", "--die-with-parent", "--"]
