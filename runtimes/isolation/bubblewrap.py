"""The words for bubblewrap, and how root steps aside before it: the sandbox's root is built from an allowlist."""

import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtimes.isolation import syscalls
from runtimes.isolation.view import SYSTEM, is_seen

#: the user and the group inside, whatever they are outside
_USER = 1000

#: bytes of the folders in memory: /tmp, /dev/shm, /run
_FOLDERS = {"/tmp": 1 << 30, "/dev/shm": 256 << 20, "/run": 16 << 20}

#: where root binds what the sandbox's user could not reach; only the process that becomes the sandbox sees it
_STAGE = "/tmp"

_ACCOUNTS = {
    "/etc/passwd": "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:{user}:{user}:sandbox:{work}:/bin/sh\n",
    "/etc/group": "root:x:0:\nsandbox:x:{user}:\n",
    "/etc/hostname": "sandbox\n",
}


def sources(readable: Sequence[str], work: str) -> list[str]:
    """The paths that are bound into the sandbox, the working folder last; links of the system stay links."""
    return [path for path in readable if not (path in SYSTEM and Path(path).is_symlink())] + [work]


def words(
    readable: Sequence[str], work: str, working_dir: str, env: Mapping[str, str], resolvers: str, *, staged: bool
) -> tuple[list[str], list[int]]:
    """The options of bubblewrap, and open files that they name by number.

    staged: the sources lie below _STAGE, by number. Raises OSError.
    """
    options = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    options += ["--uid", str(_USER), "--gid", str(_USER), "--hostname", "sandbox", "--cap-drop", "ALL"]
    options += ["--new-session", "--die-with-parent", "--clearenv"]
    options += ["--proc", "/proc", "--dev", "/dev"]
    for folder, size in _FOLDERS.items():
        options += ["--perms", "0755" if folder == "/run" else "1777", "--size", str(size), "--tmpfs", folder]
    options += ["--dir", "/var", "--symlink", "../tmp", "/var/tmp"]
    for path in readable:
        if path in SYSTEM and Path(path).is_symlink():
            options += ["--symlink", str(Path(path).readlink()), path]
    *outer, own = enumerate(sources(readable, work))
    for number, path in outer:
        options += ["--ro-bind", f"{_STAGE}/{number}" if staged else path, path]
    options += ["--bind", f"{_STAGE}/{own[0]}" if staged else work, work]
    files = []
    texts = {path: text.format(user=_USER, work=work) for path, text in _ACCOUNTS.items()}
    for path, text in {**texts, "/etc/resolv.conf": resolvers}.items():
        if not is_seen(path, readable):
            files.append(in_memory(text.encode()))
            options += ["--perms", "0644", "--ro-bind-data", str(files[-1]), path]
    for name, value in env.items():
        options += ["--setenv", name, value]
    return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", working_dir], files


def in_memory(content: bytes) -> int:
    """An open file with that content, at its beginning."""
    file = os.memfd_create("sandbox")
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def step_aside(user: int, sources: Sequence[str], processes: int | None) -> None:
    """In the process that becomes bubblewrap, as root: bind what its user could not reach, then become that user."""
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    files = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in sources]
    syscalls.mount("tmpfs", _STAGE, "tmpfs", options="mode=755,size=1m")
    for number, file in enumerate(files):
        place = Path(_STAGE, str(number))
        if Path(f"/proc/self/fd/{file}").is_dir():
            place.mkdir()
        else:
            place.touch()
        syscalls.mount(f"/proc/self/fd/{file}", str(place), flags=syscalls.MS_BIND | syscalls.MS_REC)
        os.close(file)
    syscalls.become(user)
    limit(processes)


def limit(processes: int | None) -> None:
    """Limit the processes of this process's user, in its user namespace; write no core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if processes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        most = processes if hard == resource.RLIM_INFINITY else min(processes, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
