"""Shared parts of the Docker and Kubernetes runtimes.

Tar streams copy a volume member by member. Kept: files, directories, symlinks, hard links, names of any bytes,
permissions and modification times. Not kept: owners, the set-uid and set-gid bits, extended attributes, sockets, FIFOs
and devices. Process sandboxes keep the same.
"""

import contextlib
import posixpath
import signal
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from runtimes import Launch, RuntimeCallFailed, archive, reading
from runtimes.folder import failing, remove
from runtimes.git import NotRecorded
from runtimes.shadow import Shadow, beside, forget, held
from runtimes.tar_stream import (
    END,
    Member,
    MemberKind,
    MemberRefused,
    TarReader,
    TarUnreadable,
    header,
    padding,
    shown,
)

#: Labels of a container: its sandbox, the host of its supervisor, and the number of its start. A volume has the first
#: two.
SANDBOX, HOST, START = "agent-server.sandbox", "agent-server.host", "agent-server.start"

#: Label of a container or a pod that only reads or fills a volume: the identity of its runtime.
CARRIER = "agent-server.carrier"

#: Number of log lines in the error about a container that ended during its start.
LAST_LINES = 20

WORK = "/workspace"

#: Default limits of a sandbox: memory in bytes, cpus.
MEMORY_BYTES, CPUS = 2 << 30, 1.0

#: The end of a container that the kernel killed for its memory.
OUT_OF_MEMORY = "it needed more memory than it may have"


_KEPT_BITS = 0o1777

#: Maximum size of an archive's files, in bytes, if the spec has no `disk_mb`.
MOST_PACKED_BYTES = 64 << 30


class Volumes(ABC):
    """The calls of a runtime about files in volumes, which it reads as tar streams."""

    in_folder = False

    def __init__(self, host: str, folder: Path) -> None:
        """host: the name of its objects' owner. folder: of the host's sandboxes, for their records."""
        self._host, self._folder = host, folder.absolute()
        self._identity = uuid4().hex

    @abstractmethod
    def _work_of(self, launch: Launch) -> str:
        """Return the persistent folder's path in a container."""

    @abstractmethod
    def _packed(self, launch: Launch) -> Generator[bytes]:
        """Stream a sandbox's files as a tar. Raises RuntimeCallFailed if there are none."""

    @abstractmethod
    def unpack(self, launch: Launch, chunks: Iterable[bytes]) -> None:
        """See `runtimes.Runtime`."""

    def copy(self, launch: Launch, source_id: str) -> None:
        """Fill the volume of a new sandbox with another sandbox's files, as `unpack` does."""
        with contextlib.closing(self._packed(replace(launch, sandbox_id=source_id))) as chunks:
            self.unpack(launch, chunks)

    @abstractmethod
    def shadow(self, launch: Launch, folder: str) -> Shadow | None:
        """See `runtimes.Runtime`."""

    def recall(self, launch: Launch, source_id: str, folder: str, conversation: str, seq: int) -> None:
        """Fill the volume of a new sandbox with another sandbox's folder at a moment, as `unpack` does."""
        shadow = self.shadow(replace(launch, sandbox_id=source_id), folder)
        if shadow is None:
            raise NotRecorded(f"The folder was not recorded at event {seq}")
        draft = beside(self._folder / launch.sandbox_id) / "draft"
        try:
            remove(draft)  # of a killed supervisor
            draft.mkdir(mode=0o700, parents=True)
            shadow.restore(conversation, seq, draft)
            self.unpack(launch, archive.pack(draft))
        finally:
            remove(draft)

    def pack(self, launch: Launch) -> Iterator[bytes]:
        """Stream a sandbox's files as a tar. Raises RuntimeCallFailed if there are none."""
        return self._packed(launch)

    def names(self, launch: Launch, folder: str) -> Iterator[bytes]:
        """Yield the relative path of every file in a folder of the agent. Cost: reads the volume."""
        work = self._work_of(launch)
        return reading.names_in(partial(self._packed, launch), reading.below(work, work, folder), work, launch.seen_dir)

    def content(self, launch: Launch, folder: str, path: str, most: int) -> bytes | None:
        """Return a file in a folder of the agent; None if there is none. Cost: reads the volume up to the file."""
        work, packed = self._work_of(launch), partial(self._packed, launch)
        start = reading.below(work, work, folder)
        return reading.content_in(packed, reading.joined(start, path), most, work, launch.seen_dir)

    def occupied_bytes(self, sandbox_id: str) -> int | None:  # noqa: ARG002
        """Return None: the file system belongs to another machine or to the engine."""
        return None

    def _forget(self, sandbox_id: str) -> None:
        """Delete the records of a sandbox's folders. Raises RuntimeCallFailed."""
        recorded = beside(self._folder / sandbox_id)
        if recorded.exists():
            with failing(f"the records of sandbox {sandbox_id} cannot be removed"), held(recorded):
                forget(recorded)


def exit_sentence(code: int) -> str:
    """Describe a container's end by its exit code. Shells and inits add the signal's number to 128."""
    with contextlib.suppress(ValueError):
        return f"exit code {code}: ended by {signal.Signals(code - 128).name}"
    return f"exit code {code}"


class Owner(NamedTuple):
    uid: int
    gid: int
    mode: int


def owner_of_first(chunks: Iterable[bytes]) -> Owner:
    """Return owner and mode of the first member. Raises TarUnreadable."""
    for member in TarReader(chunks).members():
        return Owner(member.uid, member.gid, member.mode & _KEPT_BITS)
    raise TarUnreadable("It is empty")


def packed(chunks: Iterable[bytes], disk_bytes: int | None) -> Iterator[bytes]:
    """Convert the engine's stream of a folder to an archive.

    disk_bytes: the limit of the files; None: the spec has none. Raises TarUnreadable for a truncated stream, and
    RuntimeCallFailed that names the first file beyond twice `disk_bytes`, or beyond MOST_PACKED_BYTES.
    """
    most = room = MOST_PACKED_BYTES if disk_bytes is None else 2 * disk_bytes
    reader = TarReader(chunks, skips=True)
    for member in reader.members():
        room -= member.size
        if room < 0:  # the engine sends zeros for holes, which use no disk
            raise RuntimeCallFailed(
                f"{shown(member.name)} takes the files beyond {most} bytes (disk_mb), holes included: they are too "
                "large for an archive"
            )
        yield from _written(replace(member, uid=0, gid=0), reader)
    yield END


def placed(chunks: Iterable[bytes], folder: str, owner: Owner) -> Iterator[bytes]:
    """Move each member below `folder`, a relative path, give it the owner, and add missing parent folders.

    Raises TarUnreadable, and MemberRefused for a member outside of the folder.
    """
    top = inside = folder.encode()
    yield _folder(top, owner)
    reader = TarReader(chunks)
    for member in reader.members():
        name = _below(top, member.name)
        if name == top and member.kind is not MemberKind.DIRECTORY:
            raise MemberRefused("It has a file at the path of its folder")
        target = _below(top, member.target) if member.kind is MemberKind.HARDLINK else member.target
        # The last member's folder and its parents exist, because an archive has the order of a walk.
        for parent in _missing(posixpath.dirname(name), inside, top):
            yield _folder(parent, owner._replace(mode=0o755))
        inside = name if member.kind is MemberKind.DIRECTORY else posixpath.dirname(name)
        yield from _written(replace(member, name=name, target=target, uid=owner.uid, gid=owner.gid), reader)
    yield END


def readable(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield chunks, turning the source's errors into RuntimeCallFailed, which the engine's own errors are not."""
    try:
        yield from chunks
    except OSError as error:
        raise RuntimeCallFailed(f"the archive cannot be read: {error}") from error


def unrooted(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the stream without the folder itself, which exists and has another owner. Raises the errors of `placed`."""
    top = b"work"
    reader = TarReader(placed(chunks, top.decode(), Owner(0, 0, 0o755)))
    for member in reader.members():
        if member.name != top:
            target = member.target.removeprefix(top + b"/") if member.kind is MemberKind.HARDLINK else member.target
            yield from _written(replace(member, name=member.name.removeprefix(top + b"/"), target=target), reader)
    yield END


def _below(folder: bytes, name: bytes) -> bytes:
    """Return a member's path below a folder. Raises MemberRefused for a member outside."""
    if name.startswith(b"/") or b".." in name.split(b"/"):
        raise MemberRefused(f"The member {shown(name)} is outside of the folder")
    return posixpath.normpath(folder + b"/" + name)


def _missing(parent: bytes, inside: bytes, top: bytes) -> list[bytes]:
    """Return the missing folders from the outermost to `parent`: not `inside` and not its parents."""
    missing: list[bytes] = []
    while len(parent) > len(top) and not (inside + b"/").startswith(parent + b"/"):
        missing.insert(0, parent)
        parent = posixpath.dirname(parent)
    return missing


def _folder(path: bytes, owner: Owner) -> bytes:
    return header(Member(path, MemberKind.DIRECTORY, owner.mode, uid=owner.uid, gid=owner.gid))


def _written(member: Member, reader: TarReader) -> Iterator[bytes]:
    yield header(replace(member, mode=member.mode & _KEPT_BITS))
    for piece in reader.content(member):
        yield bytes(piece)
    yield padding(member.size)
