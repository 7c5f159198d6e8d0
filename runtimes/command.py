"""What a process sandbox runs: its command, its environment, its working directory and its ports."""

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from runtimes import Launch, RuntimeFailure, filled
from runtimes.tree import MARK

#: where programs are looked for unless the environment says otherwise
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PROJECT = Path(__file__).parent.parent

#: the file that says which ports a sandbox has
PORTS = "ports.json"


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
    env = {"PATH": PATH, "HOME": str(work)} | {name: filled(text, ports) for name, text in launch.env.items()}
    command = [filled(word, ports) for word in launch.command]
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


def free_ports(folder: Path, names: Mapping[str, int]) -> dict[str, int]:
    """Free ports by name, noted in the sandbox's folder and given to no other sandbox beside it."""
    with ExitStack() as stack:
        lock = os.open(folder.parent / ".ports.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        taken = {port for file in folder.parent.glob(f"*/{PORTS}") for port in json.loads(file.read_text()).values()}
        ports: dict[str, int] = {}
        while len(ports) < len(names):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            port: int = listener.getsockname()[1]
            if port not in taken:
                ports[next(name for name in names if name not in ports)] = port
        (folder / PORTS).write_text(json.dumps(ports))
        return ports
