"""What sandboxes in containers have in common, whatever starts the containers: a Docker engine or a cluster.

Tar streams go out of and into a volume member by member. Kept: files, directories, symlinks as they are, hard links,
names of any bytes, permissions, times of change. Not kept: owners, the bits set-uid and set-gid, extended attributes,
sockets, FIFOs and devices. So it is for processes too.
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

from runtimes import Launch, RuntimeFailure, archive, reading
from runtimes.folder import failing, remove
from runtimes.git import NotRecorded
from runtimes.shadow import Shadow, beside, forget, held
from runtimes.tar_stream import (
    END,
    ArchiveUnreadable,
    Member,
    MemberKind,
    MemberRefused,
    TarReader,
    header,
    padding,
    shown,
)

#: labels of a container: its sandbox, the host of the supervisor that made it, and the number of its start.
#: A volume has the first two.
SANDBOX, HOST, START = "agent-server.sandbox", "agent-server.host", "agent-server.start"

#: label of a container or a pod that only reads or fills a volume: the identity of the runtime that made it
CARRIER = "agent-server.carrier"

#: last lines of the log of a container that ended while it was started
LAST_LINES = 20

#: the working folder of a sandbox where nothing names one
WORK = "/workspace"

#: limits of a sandbox without limits in its spec: bytes of memory, cpus
MEMORY_BYTES, CPUS = 2 << 30, 1.0

#: how a container ended that the kernel ended for its memory
OUT_OF_MEMORY = "it needed more memory than it may have"


_KEPT_BITS = 0o1777

#: most bytes of the files of an archive, where the spec has no `disk_mb`
MOST_PACKED_BYTES = 64 << 30


class Volumes(ABC):
    """The calls of a runtime about files that lie in volumes, which it reads as tar streams."""

    in_folder = False

    def __init__(self, host: str, folder: Path) -> None:
        """host: the name under which its objects are known. folder: of the host's sandboxes, for records of theirs."""
        self._host, self._folder = host, folder.absolute()
        self._identity = uuid4().hex

    @abstractmethod
    def _work_of(self, launch: Launch) -> str:
        """The kept folder, as its path in a container is."""

    @abstractmethod
    def _packed(self, launch: Launch) -> Generator[bytes]:
        """The files of a sandbox, as a tar stream. Raises RuntimeFailure where there are none."""

    @abstractmethod
    def unpack(self, launch: Launch, chunks: Iterable[bytes]) -> None:
        """As `runtimes.Runtime` has it."""

    def copy(self, launch: Launch, source_id: str) -> None:
        """Fill the volume of a new sandbox with another one's files, as `unpack` does."""
        with contextlib.closing(self._packed(replace(launch, sandbox_id=source_id))) as chunks:
            self.unpack(launch, chunks)

    @abstractmethod
    def shadow(self, launch: Launch, folder: str) -> Shadow | None:
        """As `runtimes.Runtime` has it."""

    def recall(self, launch: Launch, source_id: str, folder: str, conversation: str, seq: int) -> None:
        """Fill the volume of a new sandbox with a folder of another one at a moment, as `unpack` does."""
        shadow = self.shadow(replace(launch, sandbox_id=source_id), folder)
        if shadow is None:
            raise NotRecorded(f"The folder was not recorded at event {seq}")
        draft = beside(self._folder / launch.sandbox_id) / "draft"
        try:
            remove(draft)  # of a supervisor that was killed
            draft.mkdir(mode=0o700, parents=True)
            shadow.restore(conversation, seq, draft)
            self.unpack(launch, archive.pack(draft))
        finally:
            remove(draft)

    def pack(self, launch: Launch) -> Iterator[bytes]:
        """The files of a sandbox, as a tar stream. Raises RuntimeFailure where there are none."""
        return self._packed(launch)

    def names(self, launch: Launch, folder: str) -> Iterator[bytes]:
        """The path of every file in a folder of the agent, from there. Cost: reads the volume."""
        work = self._work_of(launch)
        return reading.names_in(partial(self._packed, launch), reading.below(work, work, folder), work, launch.seen_dir)

    def content(self, launch: Launch, folder: str, path: str, most: int) -> bytes | None:
        """A file of a folder of the agent; None if there is none. Cost: reads the volume up to the file."""
        work, packed = self._work_of(launch), partial(self._packed, launch)
        start = reading.below(work, work, folder)
        return reading.content_in(packed, reading.joined(start, path), most, work, launch.seen_dir)

    def occupied_bytes(self, sandbox_id: str) -> int | None:  # noqa: ARG002
        """Not known: the file system is another machine's, or the engine's."""
        return None

    def _forget(self, sandbox_id: str) -> None:
        """Remove the records of a sandbox's folders. Raises RuntimeFailure."""
        recorded = beside(self._folder / sandbox_id)
        if recorded.exists():
            with failing(f"the records of sandbox {sandbox_id} cannot be removed"), held(recorded):
                forget(recorded)


def exit_sentence(code: int) -> str:
    """How a container ended, by its exit code: shells and inits add the number of the signal to 128."""
    with contextlib.suppress(ValueError):
        return f"exit code {code}: it was ended by {signal.Signals(code - 128).name}"
    return f"exit code {code}"


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


def placed(chunks: Iterable[bytes], folder: str, owner: Owner) -> Iterator[bytes]:
    """The stream with each member below `folder`, a relative path, and the owner's; folders that it lacks are added.

    Raises ArchiveUnreadable, and MemberRefused on a member that lies elsewhere.
    """
    top = inside = folder.encode()
    yield _folder(top, owner)
    reader = TarReader(chunks)
    for member in reader.members():
        name = _below(top, member.name)
        if name == top and member.kind is not MemberKind.DIRECTORY:
            raise MemberRefused("It has a file in the place of its folder")
        target = _below(top, member.target) if member.kind is MemberKind.HARDLINK else member.target
        # The last member's folder is there, as are those around it: an archive has the order of a walk.
        for parent in _missing(posixpath.dirname(name), inside, top):
            yield _folder(parent, owner._replace(mode=0o755))
        inside = name if member.kind is MemberKind.DIRECTORY else posixpath.dirname(name)
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
    reader = TarReader(placed(chunks, top.decode(), Owner(0, 0, 0o755)))
    for member in reader.members():
        if member.name != top:
            target = member.target.removeprefix(top + b"/") if member.kind is MemberKind.HARDLINK else member.target
            yield from _written(replace(member, name=member.name.removeprefix(top + b"/"), target=target), reader)
    yield END


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
    return header(Member(path, MemberKind.DIRECTORY, owner.mode, uid=owner.uid, gid=owner.gid))


def _written(member: Member, reader: TarReader) -> Iterator[bytes]:
    yield header(replace(member, mode=member.mode & _KEPT_BITS))
    for piece in reader.content(member):
        yield bytes(piece)
    yield padding(member.size)
