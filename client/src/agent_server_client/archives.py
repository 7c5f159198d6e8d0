"""A folder of this machine as an archive for a sandbox, and the files of a sandbox as a folder of this machine.

An agent wrote what comes out of a sandbox. So nothing is written outside of the folder that was named or through a
symlink, and no repository of Git or another system is written (repositories.py says why). What is left out is logged as
a warning.
"""

import io
import os
import posixpath
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import IO, NamedTuple

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from agent_server_client.errors import AgentServerError
from agent_server_client.packing import OF_AGENT, chosen, git_environment
from agent_server_client.repositories import (
    MARKS,
    folded,
    is_git,
    is_repository,
    keeps_settings,
    marks_in,
    report_left_out,
)

#: most bytes and files that are written, as the server packs at most
MOST_BYTES, MOST_FILES = 64 << 30, 200_000

#: most characters of the names of an archive's folders, which are kept while it is read
_MOST_NAMES = 64 << 20

_REPOSITORY = "a Git repository, whose settings could run programs here"
_OTHER_REPOSITORY = "a repository, whose settings could run programs here"


class _LeftOut(NamedTuple):
    """A path of an archive that is not written to this machine."""

    path: str
    why: str


class Unsafe(Exception):
    """A member of an archive would be written outside of its folder, or there are too many."""


def pack(folder: Path, into: IO[bytes]) -> None:
    """Write a folder as a tar, without what stays on this machine (packing.py says what).

    Raises OSError; subprocess.CalledProcessError where Git fails.
    """
    with tarfile.open(fileobj=into, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path, content in sorted(chosen(folder).items()):
            name = f"./{path.relative_to(folder).as_posix()}"
            if content is not None:
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o644
                tar.addfile(member, io.BytesIO(content))
                continue
            found = tar.gettarinfo(path, name)
            if found is not None and found.islnk():  # a second name of a file goes as a file of its own
                found.type, found.linkname, found.size = tarfile.REGTYPE, "", path.stat().st_size
            if found is None or not (found.isreg() or found.isdir() or found.issym()):
                continue  # a socket or a device
            found.uid = found.gid = 0
            found.uname = found.gname = ""
            if found.isreg():
                with path.open("rb") as file:
                    tar.addfile(found, file)
            else:
                tar.addfile(found)


def clone(url: str, into: Path) -> None:
    """Clone a repository with the Git of this machine, and with its keys. Raises subprocess.CalledProcessError."""
    words = ["git", "clone", "--quiet", "--", url, str(into)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, env=git_environment())


def unpack(archive: Path, wanted: str, to: Path) -> list[Path]:
    """Write the files at a path of a `.tar.zst` below a folder, or one file to a path, and return what was written.

    wanted: relative to the archive's root, "" for everything. Files that are there are replaced.
    Raises Unsafe, also where all that is wanted is left out, OSError, and AgentServerError for a path that the archive
    does not have (404) and for a broken archive.
    """
    wanted = posixpath.normpath(wanted or ".").removeprefix("./").strip("/")
    wanted = "" if wanted == "." else wanted
    _refuse_repository(to)
    written, left, size = list[Path](), dict[str, str](), 0
    try:
        folders = _folders(archive, wanted, to)
        with zstd.open(archive) as content, tarfile.open(fileobj=content, mode="r|") as tar:
            for member in tar:
                path = posixpath.normpath(member.name)
                inner = _inner(path, wanted)
                if inner is None or path.split("/")[0] == OF_AGENT:
                    continue
                out = folders[path if member.isdir() else posixpath.dirname(path) or "."] or _of_name(path)
                if out is None and not (member.isreg() or member.isdir()):
                    out = _LeftOut(path, "a link or a device")
                if out:
                    left.setdefault(out.path, out.why)
                    continue
                size += member.size
                if size > MOST_BYTES or len(written) > MOST_FILES:
                    raise Unsafe("The archive is larger than 64 GiB or 200,000 files. Name a folder of it")
                target = to / inner if inner else to
                if inner == "" and member.isreg() and to.is_dir():
                    target = to / posixpath.basename(wanted)
                    _refuse_repository(target)
                if _write(tar, member, target, to):
                    written.append(target)
    except (zstd.ZstdError, EOFError, tarfile.TarError) as error:
        raise AgentServerError(
            None, f"The archive of the sandbox was cut short or is damaged: {error}. Try again"
        ) from error
    if not written and wanted:
        if left:
            name, why = next(iter(left.items()))
            raise Unsafe(f"Nothing of {wanted} was written: {name}: {why}")
        raise AgentServerError(
            404, f"The sandbox has no file {wanted}. GET /api/v1/app-conversations/ID/files lists those that are there"
        )
    report_left_out(left)
    return written


def _inner(name: str, wanted: str) -> str | None:
    """The path of a member below the wanted path, "" for that itself; None where it lies elsewhere."""
    name = posixpath.normpath(name)
    if name.startswith(("/", "../")) or name == "..":
        raise Unsafe(f"The archive has a member outside of it: {name!r}")
    if not wanted:
        return name if name != "." else None
    if name == wanted:
        return ""
    return name[len(wanted) + 1 :] if name.startswith(f"{wanted}/") else None


def _folders(archive: Path, wanted: str, to: Path) -> dict[str, _LeftOut | None]:
    """The folders of an archive, and why each is left out, if it is.

    A repository counts with the files that are there already: no two downloads make one together, nor does one through
    a symlink. Raises Unsafe for folders whose names take more than 64 MiB.
    """
    keys, marks, size = {".": ""}, {"": marks_in(to) if not wanted else set()}, 0
    with zstd.open(archive) as content, tarfile.open(fileobj=content, mode="r|") as tar:
        for member in tar:
            path = posixpath.normpath(member.name)
            _inner(path, wanted)  # refuses a path that leads out
            new, folder = [path] if member.isdir() else [], posixpath.dirname(path) or "."
            while folder not in keys:
                new.append(folder)
                folder = posixpath.dirname(folder) or "."
            for one in reversed(new):
                parent, name = keys[posixpath.dirname(one) or "."], folded(posixpath.basename(one))
                if one not in keys:
                    inner = _inner(one, wanted)
                    keys[one] = f"{parent}/{name}" if one != "." else ""
                    if inner and (to / inner).is_symlink():
                        keys[one] = _key_behind(to / inner, to, keys[wanted or "."]) or keys[one]
                    marks.setdefault(keys[one], set()).update(marks_in(to / inner) if inner is not None else ())
                    size += len(one)
                marks[parent].update(MARKS & {name})
            if not member.isdir():
                marks[keys[posixpath.dirname(path) or "."]].update(MARKS & {folded(posixpath.basename(path))})
            if size > _MOST_NAMES:
                raise Unsafe("The archive has too many folders. Name a folder of it")
    found = dict[str, _LeftOut | None]()
    for folder, key in keys.items():  # parents come first
        above = found.get(posixpath.dirname(folder) or ".")
        own = _LeftOut(folder, _REPOSITORY) if is_repository(marks[key]) else _of_name(folder)
        found[folder] = above or own
    return found


def _key_behind(link: Path, root: Path, key: str) -> str | None:
    """The key of the folder to which a symlink leads, below the key of the root; None where that is not below it.

    Raises Unsafe where the symlink leads into a repository of the person.
    """
    there, top = link.resolve(), root.resolve()
    if not there.is_relative_to(top):
        return None  # writing refuses it
    steps = there.relative_to(top).parts
    if any(map(keeps_settings, steps)) or any(
        is_repository(marks_in(top.joinpath(*steps[:n]))) for n in range(len(steps) + 1)
    ):
        raise Unsafe(f"A symlink in {root} leads into a repository: {link}. Name another folder")
    return "/".join((key, *map(folded, steps)))


def _refuse_repository(path: Path) -> None:
    """Raise Unsafe for a path in a repository's own folder, or that would make a repository of its folder."""
    for real in (path.resolve(), path.parent.resolve() / path.name):
        if any(map(keeps_settings, real.parts)):
            raise Unsafe(f"Git or another system keeps its settings and hooks there: {path}. Name another folder")
        if folded(real.name) in MARKS and is_repository(marks_in(real.parent) | {folded(real.name)}):
            raise Unsafe(f"{path} would make a Git repository of its folder. Name another folder")


def _of_name(path: str) -> _LeftOut | None:
    """Why the last step of a path is left out, if it is."""
    step = posixpath.basename(path)
    if is_git(step):
        return _LeftOut(path, _REPOSITORY)
    if keeps_settings(step):
        return _LeftOut(path, _OTHER_REPOSITORY)
    return _LeftOut(path, "a path that leads elsewhere on Windows") if ".." in step.split("\\") else None


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, root: Path) -> bool:
    """Write a file or a folder; whether that made a file."""
    below = target if member.isdir() else target.parent
    if target != root and not below.resolve().is_relative_to(root.resolve()):  # before any folder is made
        raise Unsafe(f"A symlink in {root} leads out of it: {target}. Name another folder")
    below.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        return False
    if target.is_dir() and not target.is_symlink():
        raise Unsafe(f"A folder is in the place of a file: {target}. Name another folder")
    source = tar.extractfile(member)
    if source is None:
        return False
    target.unlink(missing_ok=True)
    mode = 0o755 if member.mode & 0o100 else 0o644
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        shutil.copyfileobj(source, file)
    return True
