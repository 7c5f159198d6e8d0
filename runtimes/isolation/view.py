"""The machine's files that a confined sandbox sees besides its own: a read-only allowlist.

Bubblewrap builds the sandbox's root from it, after root has given up its rights. Paths that a sandbox's own user cannot
reach because of their folders' modes are bound to where the sandbox looks.
"""

import errno
import os
import resource
import shlex
import site
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from runtimes import PROJECT, RuntimeCallFailed
from runtimes.isolation import kernel

#: Folders of programs and libraries. On most systems all except the first are links into it.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

#: Needed parts of /etc: names, certificates, time, the linker. None is secret.
_ETC = """\
hosts host.conf gai.conf nsswitch.conf services protocols ld.so.cache ld.so.conf ld.so.conf.d localtime timezone
alternatives os-release debian_version mime.types inputrc bash.bashrc profile profile.d terminfo fonts
ssl/certs ssl/openssl.cnf pki/tls/certs pki/tls/openssl.cnf pki/ca-trust/extracted ca-certificates crypto-policies
python3 java-11-openjdk java-17-openjdk java-21-openjdk perl magic magic.mime
"""

#: Maximum number of links to one file. Source: path_resolution(7)
_MOST_LINKS = 40

#: The parts of the server's folder that the reference agent needs.
_AGENT = ("reference_agent", "core")


#: An address that no machine has. Source: RFC 7600, IPv4 dummy address
FORWARDER = "192.0.0.8"

#: User and group inside, whatever they are outside.
_USER = 1000

#: Sizes of the memory folders, in bytes.
_FOLDERS = {"/tmp": 1 << 30, "/dev/shm": 256 << 20, "/run": 16 << 20}

#: Where root binds what the sandbox's user could not reach. Only the process that becomes the sandbox sees it.
_STAGE = "/tmp"

_ACCOUNTS = {
    "/etc/passwd": "root:x:0:0:root:/:/usr/sbin/nologin\nsandbox:x:{user}:{user}:sandbox:{work}:/bin/sh\n",
    "/etc/group": "root:x:0:\nsandbox:x:{user}:\n",
    "/etc/hostname": "sandbox\n",
}


def system_files() -> list[str]:
    """Return the system paths that every sandbox sees, with the system's links."""
    return [path for path in (*SYSTEM, *(f"/etc/{name}" for name in _ETC.split())) if Path(path).exists()]


def interpreter() -> list[str]:
    """Return the server's Python, its packages and the reference agent: their paths, their links' targets, and every
    link on the way, but nothing else of the links' folders.
    """
    packages = [path for path in (*site.getsitepackages(), site.getusersitepackages()) if Path(path).is_dir()]
    places = [sys.prefix, sys.base_prefix, *packages, *(str(PROJECT / name) for name in _AGENT)]
    # A virtual environment links to its interpreter, possibly through links of a version manager.
    links = [link for place in (sys.executable, *places) for link in links_to(place)]
    places.append(str(Path(sys.executable).resolve().parent))
    return [*links, *(path for place in places for path in dict.fromkeys((place, str(Path(place).resolve()))))]


def links_to(path: str) -> list[str]:
    """Return the links on the way to a path's target, in order. Raises OSError for a loop."""
    links: list[str] = []
    here, left = Path("/"), list(Path(path).parts[1:])
    while left:
        here, name = (here.parent, "") if left[0] == ".." else (here / left[0], left[0])
        left = left[1:]
        if name and here.is_symlink():
            if len(links) == _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            links.append(str(here))
            target = here.readlink()
            left = [*(part for part in target.parts if part != "/"), *left]
            here = Path("/") if target.is_absolute() else here.parent
    return links


def link_agent(folder: Path) -> None:
    """Create a folder of links to the needed parts of the reference agent.

    Landlock allows only a folder with all below it, and Python must list the folder that it imports from.
    """
    folder.mkdir()
    folder.chmod(0o755)  # also for the sandbox's own user, whatever the umask
    for name in _AGENT:
        (folder / name).symlink_to(PROJECT / name)


def readable(extra: Iterable[str], private: Iterable[Path]) -> list[str]:
    """Return all paths that a sandbox may read, outermost only. extra: the spec's paths.

    private: what no sandbox may read. Raises RuntimeCallFailed for a missing path of `extra`, and for a path that would
    show private files.
    """
    named = [os.path.normpath(path) for path in extra]
    for path in named:
        if not Path(path).exists():
            raise RuntimeCallFailed(f"its spec's `readable` names {path}, which does not exist")
    paths = [*system_files(), *(path for path in interpreter() if path != "/"), *named]
    for secret in (path.resolve() for path in private):
        for path in named:
            if Path(path).resolve().is_relative_to(secret):
                raise RuntimeCallFailed(f"its spec's `readable` names {path}, which contains the server's own data")
        for path in paths:
            if secret.is_relative_to(Path(path).resolve()):
                raise RuntimeCallFailed(
                    f"it could read {path}, which contains {secret} of the server. Move one of the two"
                )
    return _outermost(paths)


def is_seen(path: str, paths: Iterable[str]) -> bool:
    """Return whether a path is at or below one of these."""
    return any(Path(path).is_relative_to(outer) for outer in paths)


def _outermost(paths: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted(dict.fromkeys(paths), key=len):
        if not is_seen(path, kept):
            kept.append(path)
    return kept


def resolvers() -> str:
    """Return the content of /etc/resolv.conf for a sandbox with its own network.

    It cannot reach a resolver on the host's loopback, so the upstream servers of systemd-resolved replace it. Without
    upstream servers, pasta forwards packets for FORWARDER to the host's resolver.
    """
    for file in ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"):
        try:
            lines = [line.split() for line in Path(file).read_text().splitlines()]
        except OSError:
            continue
        own = [words for words in lines if words and words[0] in ("search", "options")]
        servers = [words for words in lines if len(words) > 1 and words[0] == "nameserver" and _is_far(words[1])]
        if servers:
            return "".join(f"{' '.join(words)}\n" for words in servers + own)
    return f"nameserver {FORWARDER}\n"


def _is_far(address: str) -> bool:
    return not address.lower().startswith(("127.", "::1", "169.254.", "fe80:"))


def sources(readable: Sequence[str], work: str) -> list[str]:
    """Return the paths that are bound into the sandbox, the working folder last, without paths that stay links."""
    return [path for path in readable if not _stays_link(path, readable)] + [work]


def _stays_link(path: str, readable: Sequence[str]) -> bool:
    """Return whether a path stays a link in the sandbox: a system link, or a link to what the sandbox sees anyway.

    Python finds its library by the links that lead to it.
    """
    if not Path(path).is_symlink():
        return False
    return path in SYSTEM or is_seen(os.path.realpath(path), (other for other in readable if other != path))


def bubblewrap_words(
    readable: Sequence[str], work: str, working_dir: str, env: Mapping[str, str], resolvers: str, *, staged: bool
) -> tuple[list[str], list[int]]:
    """Return the options of bubblewrap, and the open files that they name by number.

    staged: the sources are below _STAGE, by number. Raises OSError.
    """
    options = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    options += ["--uid", str(_USER), "--gid", str(_USER), "--hostname", "sandbox", "--cap-drop", "ALL"]
    options += ["--new-session", "--die-with-parent", "--clearenv"]
    options += ["--proc", "/proc", "--dev", "/dev"]
    for folder, size in _FOLDERS.items():
        options += ["--perms", "0755" if folder == "/run" else "1777", "--size", str(size), "--tmpfs", folder]
    options += ["--dir", "/var", "--symlink", "../tmp", "/var/tmp"]
    for path in readable:
        if _stays_link(path, readable):
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
    """Return an open file with the content, at its start."""
    file = os.memfd_create("sandbox")
    os.write(file, content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def step_aside(user: int, sources: Sequence[str], processes: int | None) -> None:
    """As root, in the process that becomes bubblewrap: bind what its user could not reach, then become that user."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    files = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in sources]
    kernel.mount("tmpfs", _STAGE, "tmpfs", options="mode=755,size=1m")
    for number, file in enumerate(files):
        place = Path(_STAGE, str(number))
        if Path(f"/proc/self/fd/{file}").is_dir():
            place.mkdir()
        else:
            place.touch()
        kernel.mount(f"/proc/self/fd/{file}", str(place), flags=kernel.MS_BIND | kernel.MS_REC)
        os.close(file)
    kernel.become(user)
    limit(processes)


def limit(processes: int | None) -> None:
    """Limit the number of processes of this process's user, in its user namespace; write no core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if processes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        most = processes if hard == resource.RLIM_INFINITY else min(processes, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def hidden(paths: Iterable[str]) -> list[str]:
    """Return the outermost folders above these paths and their links' targets that other users cannot enter."""
    folders = set()
    for path in paths:
        for real in {path, os.path.realpath(path)}:
            for folder in reversed(Path(real).parents):
                if not _mode(folder) & stat.S_IXOTH:
                    folders.add(str(folder))
                    break
    return sorted(folders)


def closed(paths: Iterable[str]) -> str:
    """Name the files and folders that only their owner may read, with the command that changes it; "" if none."""
    shut = []
    for path in paths:
        wanted = stat.S_IROTH | (stat.S_IXOTH if Path(path).is_dir() else 0)
        if _mode(Path(path)) & wanted != wanted:
            shut.append(path)
    if not shut:
        return ""
    return f"other users may not read {', '.join(shut)} (`chmod -R a+rX {shlex.join(shut)}` changes that)"


def show(paths: Sequence[str], folders: Iterable[str]) -> None:
    """As root, in the process that becomes the sandbox: hide the contents of folders that are closed to its user.

    Each is empty except for these paths and their links' targets, which are bound at their places. Raises OSError.
    """
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    places = {place for path in paths for place in (path, os.path.realpath(path))}
    links = {place: Path(place).readlink() for place in places if Path(place).is_symlink()}
    files = {place: os.open(place, os.O_PATH | os.O_CLOEXEC) for place in sorted(places, key=len)}
    before = os.umask(0o022)
    bound: list[str] = []
    for folder in folders:
        kernel.mount("tmpfs", folder, "tmpfs", options="mode=755,size=1m")
        for place, file in files.items():
            if is_seen(place, [folder]) and not is_seen(place, bound):
                if place in links:
                    Path(place).parent.mkdir(parents=True, exist_ok=True)
                    Path(place).symlink_to(links[place])
                else:
                    _bind(file, Path(place))
                bound.append(place)
    os.umask(before)
    for file in files.values():
        os.close(file)


def _bind(file: int, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISDIR(os.fstat(file).st_mode):
        place.mkdir(exist_ok=True)
    else:
        place.touch()
    kernel.mount(f"/proc/self/fd/{file}", str(place), flags=kernel.MS_BIND | kernel.MS_REC)


def _mode(path: Path) -> int:
    """Return the mode of a path's target; 0 if it is missing."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0
