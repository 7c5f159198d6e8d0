"""What sandboxes in containers have in common, whatever starts the containers: a Docker engine or a cluster.

Tar streams go out of and into a volume member by member. Kept: files, directories, symlinks as they are, hard links,
names of any bytes, permissions, times of change. Not kept: owners, the bits set-uid and set-gid, extended attributes,
sockets, FIFOs and devices. So it is for processes too.
"""

import contextlib
import posixpath
import signal
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from runtimes import RuntimeFailure
from runtimes.tar_stream import (
    END,
    ArchiveTooLarge,
    ArchiveUnreadable,
    Kind,
    Member,
    MemberRefused,
    TarReader,
    header,
    padding,
    shown,
)

#: labels of a container: its sandbox, the host of the supervisor that made it, and the number of its start.
#: A volume has the first two.
SANDBOX, HOST, START = "agent-server.sandbox", "agent-server.host", "agent-server.start"

#: the working folder of a sandbox where nothing names one
WORK = "/workspace"

#: limits of a sandbox without limits in its spec: bytes of memory, cpus
MEMORY_BYTES, CPUS = 2 << 30, 1.0

#: how a container ended that the kernel ended for its memory
OUT_OF_MEMORY = "it needed more memory than it may have"


def exit_sentence(code: int) -> str:
    """How a container ended, by its exit code: shells and inits add the number of the signal to 128."""
    with contextlib.suppress(ValueError):
        return f"exit code {code}: it was ended by {signal.Signals(code - 128).name}"
    return f"exit code {code}"


_KEPT_BITS = 0o1777


#: most bytes of the files of an archive, where the spec has no `disk_mb`
MOST_PACKED_BYTES = 64 << 30


class Owner(NamedTuple):
    """The owner and the mode of a folder."""

    uid: int
    gid: int
    mode: int


def owner_of_first(chunks: Iterable[bytes]) -> Owner:
    """The owner and the mode of the first member. Raises ArchiveUnreadable."""
    for member in TarReader(chunks).members():
        return Owner(member.uid, member.gid, member.mode & _KEPT_BITS)
    raise ArchiveUnreadable("It is empty")


def packed(chunks: Iterable[bytes], disk_bytes: int | None) -> Iterator[bytes]:
    """The engine's stream of a folder, as an archive has it.

    disk_bytes: that the files may take; None: the spec has no bound. Raises ArchiveUnreadable at its end if it breaks
    off, and RuntimeFailure that names the first file beyond twice `disk_bytes`, or beyond MOST_PACKED_BYTES.
    """
    most = room = MOST_PACKED_BYTES if disk_bytes is None else 2 * disk_bytes
    reader = TarReader(chunks, skips=True)
    for member in reader.members():
        room -= member.size
        if room < 0:  # the engine sends zeros for holes, which cost nothing on the disk
            raise RuntimeFailure(
                f"{shown(member.name)} takes the files beyond {most} bytes (disk_mb), holes included: they are too "
                "large for an archive"
            )
        yield from _written(replace(member, uid=0, gid=0), reader)
    yield END


def placed(chunks: Iterable[bytes], folder: str, owner: Owner, most_bytes: int | None) -> Iterator[bytes]:
    """The stream with each member below `folder`, a relative path, and the owner's; folders that it lacks are added.

    Raises ArchiveUnreadable, ArchiveTooLarge beyond `most_bytes`, and MemberRefused on a member that lies elsewhere.
    """
    top = inside = folder.encode()
    yield _folder(top, owner)
    reader = TarReader(chunks if most_bytes is None else _bounded(chunks, most_bytes))
    for member in reader.members():
        name = _below(top, member.name)
        if name == top and member.kind is not Kind.DIRECTORY:
            raise MemberRefused("It has a file in the place of its folder")
        target = _below(top, member.target) if member.kind is Kind.HARDLINK else member.target
        # The last member's folder is there, as are those around it: an archive has the order of a walk.
        for parent in _missing(posixpath.dirname(name), inside, top):
            yield _folder(parent, owner._replace(mode=0o755))
        inside = name if member.kind is Kind.DIRECTORY else posixpath.dirname(name)
        yield from _written(replace(member, name=name, target=target, uid=owner.uid, gid=owner.gid), reader)
    yield END


def readable(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks of a source whose errors are not those of the engine that they go to. Raises RuntimeFailure."""
    try:
        yield from chunks
    except OSError as error:
        raise RuntimeFailure(f"the archive cannot be read: {error}") from error


def unrooted(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The stream without the folder itself, for one that is there and is another owner's. Raises as `placed`."""
    top = b"work"
    reader = TarReader(placed(chunks, top.decode(), Owner(0, 0, 0o755), None))
    for member in reader.members():
        if member.name != top:
            target = member.target.removeprefix(top + b"/") if member.kind is Kind.HARDLINK else member.target
            yield from _written(replace(member, name=member.name.removeprefix(top + b"/"), target=target), reader)
    yield END


def _bounded(chunks: Iterable[bytes], most_bytes: int) -> Iterator[bytes]:
    count = 0
    for chunk in chunks:
        count += len(chunk)
        if count > most_bytes:
            raise ArchiveTooLarge(f"The archive has more than {most_bytes} bytes")
        yield chunk


def _below(folder: bytes, name: bytes) -> bytes:
    """The path of a member below a folder. Raises MemberRefused if the member names a place that is not there."""
    if name.startswith(b"/") or b".." in name.split(b"/"):
        raise MemberRefused(f"The member {shown(name)} lies outside of the folder")
    return posixpath.normpath(folder + b"/" + name)


def _missing(parent: bytes, inside: bytes, top: bytes) -> list[bytes]:
    """The folders from the outermost to `parent`, without those that are `inside` or around it."""
    missing: list[bytes] = []
    while len(parent) > len(top) and not (inside + b"/").startswith(parent + b"/"):
        missing.insert(0, parent)
        parent = posixpath.dirname(parent)
    return missing


def _folder(path: bytes, owner: Owner) -> bytes:
    return header(Member(path, Kind.DIRECTORY, owner.mode, uid=owner.uid, gid=owner.gid))


def _written(member: Member, reader: TarReader) -> Iterator[bytes]:
    yield header(replace(member, mode=member.mode & _KEPT_BITS))
    for piece in reader.content(member):
        yield bytes(piece)
    yield padding(member.size)
