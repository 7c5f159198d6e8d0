"""A folder of this machine as an archive for a sandbox, and the files of a sandbox as a folder of this machine.

What comes out of a sandbox was written by an agent. So nothing is written outside of the folder that was named, also
through no symlink, and nothing that would run here by itself: a `.git`, whose hooks and settings name programs, stays.
"""

import io
import os
import posixpath
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from agent_server_client.errors import AgentServerError

#: most bytes and files that are written, as the server packs at most
MOST_BYTES, MOST_FILES = 64 << 30, 200_000

#: the folder in which agents keep their own records
OF_AGENT = ".agent-server"

#: the settings of a repository that go with it: others may name programs, or hold a key of a remote
_KEPT_SETTINGS = ("core.repositoryformatversion", "core.filemode", "core.bare", "extensions.")


class Unsafe(Exception):
    """A member of an archive would be written outside of its folder, or there are too many."""


def pack(folder: Path, into: IO[bytes]) -> None:
    """Write a folder as a tar. Of a Git repository: what it tracks or would track, and its history without its hooks.

    So what a .gitignore names stays at home. Raises OSError; subprocess.CalledProcessError where Git fails.
    """
    with tarfile.open(fileobj=into, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path in _chosen(folder):
            member = tar.gettarinfo(path, f"./{path.relative_to(folder).as_posix()}")
            if member is None or not (member.isreg() or member.isdir() or member.issym()):
                continue  # a socket or a device
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            if member.isreg():
                with path.open("rb") as file:
                    tar.addfile(member, file)
            else:
                tar.addfile(member)
        if (folder / ".git").is_dir():
            for name, text in (("config", _settings(folder)), ("info/exclude", f"{OF_AGENT}/\n")):
                member = tarfile.TarInfo(f"./.git/{name}")
                member.size, member.mode = len(text.encode()), 0o644
                tar.addfile(member, io.BytesIO(text.encode()))


def clone(url: str, into: Path) -> None:
    """Clone a repository with the Git of this machine, and with its keys. Raises subprocess.CalledProcessError."""
    subprocess.run(["git", "clone", "--quiet", "--", url, str(into)], check=True, stdin=subprocess.DEVNULL)


def unpack(archive: Path, wanted: str, to: Path) -> list[Path]:
    """Write the files at a path of a `.tar.zst` below a folder, or one file to a path, and return what was written.

    wanted: relative to the archive's root, "" for everything. Files that are there are replaced.
    Raises Unsafe, OSError, and AgentServerError for a path that the archive has not (404) and for a broken archive.
    """
    wanted = posixpath.normpath(wanted or ".").removeprefix("./").strip("/")
    written, size = list[Path](), 0
    try:
        with zstd.open(archive) as content, tarfile.open(fileobj=content, mode="r|") as tar:
            for member in tar:
                inner = _inner(member.name, "" if wanted == "." else wanted)
                if inner is None or _stays(member.name):
                    continue
                size += member.size
                if size > MOST_BYTES or len(written) > MOST_FILES:
                    raise Unsafe("The archive is larger than 64 GiB or 200,000 files")
                target = to / inner if inner else to
                if inner == "" and member.isreg() and to.is_dir():
                    target = to / posixpath.basename(wanted)
                if _write(tar, member, target, to):
                    written.append(target)
    except (zstd.ZstdError, EOFError, tarfile.TarError) as error:
        raise AgentServerError(None, f"The archive of the sandbox was cut short or is damaged: {error}") from error
    if not written and wanted != ".":
        raise AgentServerError(404, f"The sandbox has no file {wanted}")
    return written


def _chosen(folder: Path) -> Iterator[Path]:
    """What is packed, folders before what is in them."""
    git = folder / ".git"
    if not git.exists():
        yield from sorted(folder.rglob("*"))
        return
    words = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split("\0")
    paths = {folder / name for name in names if name}
    yield from sorted(path for path in paths if path.is_symlink() or path.is_file())
    if git.is_dir():
        ours = (path for path in git.rglob("*") if path.relative_to(git).parts[0] not in ("hooks", "config", "info"))
        yield from sorted(path for path in ours if path.suffix != ".lock")


def _settings(folder: Path) -> str:
    """The settings of a repository, as a file of Git's."""
    words = ["git", "config", "--file", str(folder / ".git/config"), "--list"]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    kept = [line.partition("=") for line in lines if line.lower().startswith(_KEPT_SETTINGS)]
    return "".join(f"[{name.partition('.')[0]}]\n\t{name.partition('.')[2]} = {value}\n" for name, _, value in kept)


def _inner(name: str, wanted: str) -> str | None:
    """The path of a member below the wanted path, "" for that itself; None where it lies elsewhere."""
    name = posixpath.normpath(name)
    if name.startswith(("/", "..")):
        raise Unsafe(f"The archive has a member outside of it: {name!r}")
    if not wanted:
        return name if name != "." else None
    if name == wanted:
        return ""
    return name[len(wanted) + 1 :] if name.startswith(f"{wanted}/") else None


def _stays(name: str) -> bool:
    """Whether a member is not for this machine."""
    steps = posixpath.normpath(name).split("/")
    return steps[0] == OF_AGENT or any(step.lower() == ".git" for step in steps)


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, root: Path) -> bool:
    """Write a member; whether that made a file. Links, devices and the like are left out."""
    if not (member.isreg() or member.isdir()):
        return False
    below = target if member.isdir() else target.parent
    below.mkdir(parents=True, exist_ok=True)
    if target != root and not below.resolve().is_relative_to(root.resolve()):
        raise Unsafe(f"A symlink in {root} leads out of it: {target}")
    if member.isdir():
        return False
    if target.is_dir() and not target.is_symlink():
        raise Unsafe(f"A folder is in the place of a file: {target}")
    source = tar.extractfile(member)
    if source is None:
        return False
    target.unlink(missing_ok=True)
    mode = 0o755 if member.mode & 0o100 else 0o644
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        shutil.copyfileobj(source, file)
    return True
