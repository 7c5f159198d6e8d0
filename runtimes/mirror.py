"""The shadow repository of a folder on another host, such as a pod's: each record copies the folder.

The copy is a tar stream from a program of the sandbox's image, which may be hostile. Each name is reached without
following a link, and the written files are bounded. The copy is beside the records, and ends with its record; the next
record deletes a copy that a killed supervisor left.

Cost: each record sends and reads the whole folder, however little has changed.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

from runtimes import shadow
from runtimes.archive import UnpackTarget
from runtimes.folder import remove
from runtimes.git import NotRecorded, Timeout
from runtimes.reading import HEAVY
from runtimes.shadow import Shadow
from runtimes.tar_stream import Member, MemberKind, TarReader

#: Maximum size of a record's copied contents, and maximum size of a file without copied content, in bytes.
MOST_COPIED, _MOST_SIZE = 2 * shadow.MOST_CONTENT, 1 << 40

#: Matches no file.
_UNKNOWN: shadow.Seen = ("", 0, 0, 0, 0)

#: Name of the copy beside the records of its folder.
_COPY = "folder"


class Mirror(Shadow):
    """The shadow repository of one folder on another host."""

    def __init__(
        self, place: Path, start: bytes, exists: Callable[[], bool], packed: Callable[[], Generator[bytes]]
    ) -> None:
        """place, start: as in Shadow. exists: whether the sandbox has files. packed: starts a stream of them."""
        super().__init__(place, place, start)
        self._work = self._own / _COPY
        self._exists, self._packed = exists, packed

    def _has_folder(self) -> bool:
        return self._exists()

    def _recorded(self, state: shadow.ShadowState) -> str:
        remove(self._work)
        self._work.mkdir(mode=0o700)
        state.files = dict.fromkeys(state.files, _UNKNOWN)  # tar times are in seconds: read each file again
        try:
            with contextlib.closing(self._packed()) as chunks:
                copy(self._work, chunks, Timeout(shadow.RECORD_SECONDS))
            return super()._recorded(state)
        finally:
            remove(self._work)

    def _taken(self) -> str:
        """Return "": the copy has neither the modes nor the empty directories."""
        return ""

    def _identity(self, seen: shadow.Seen) -> str:
        """Identify a file by size and time only, because every copy is another file."""
        mode, _, size, changed, _ = seen
        return repr((mode, size, changed))


def copy(folder: Path, chunks: Iterable[bytes], timeout: Timeout) -> None:
    """Fill an empty folder with the parts of a tar stream that a record needs. Raises RuntimeCallFailed and OSError."""
    reader, target, number, size = TarReader(chunks, skips=True), UnpackTarget(folder), 0, 0
    with contextlib.closing(target):
        for member in reader.members():
            timeout.check()
            number += 1
            if number > shadow.MOST_SEEN:
                raise NotRecorded(f"The folder has more than {shadow.MOST_SEEN} files, so it is not recorded")
            if HEAVY.intersection([*member.name.split(b"/"), *_linked(member).split(b"/")]):
                continue
            is_read = member.size <= shadow.MOST_FILE
            size += member.size if is_read else 0
            if size > MOST_COPIED:
                raise NotRecorded(f"The folder has more than {MOST_COPIED >> 20} MiB of files, ignored ones included")
            _add(target, member, reader if is_read else None)


def _add(target: UnpackTarget, member: Member, reader: TarReader | None) -> None:
    """Create a member, readable for this process. reader: None for a file of which only the size counts."""
    mode = 0o700 if member.kind is MemberKind.DIRECTORY or member.mode & 0o100 else 0o600
    usable = Member(member.name, member.kind, mode, member.mtime, member.size, member.target)
    if member.kind is MemberKind.FILE and reader is None:
        with target.file(usable) as file:
            os.ftruncate(file, min(member.size, _MOST_SIZE))
        return
    target.add(usable, reader.content(member) if reader and member.kind is MemberKind.FILE else ())


def _linked(member: Member) -> bytes:
    """Return the file of which a member is another name, if it is one."""
    return member.target if member.kind is MemberKind.HARDLINK else b""
