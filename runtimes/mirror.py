"""The shadow repository of a folder that this host does not have, such as a pod's: it is copied for each record.

The copy comes as a tar stream, which a program of the sandbox's own image makes and may make as it likes: each name is
reached without following a link, and bounds hold for what is written. It lies beside the records, and ends with the
record that needs it; what a supervisor that was killed leaves of one, the next record removes.

Cost: the whole folder is sent and read for each record, however little of it has changed.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

from runtimes import shadow
from runtimes.archive import Target
from runtimes.folder import remove
from runtimes.git import NotRecorded, Timeout
from runtimes.reading import HEAVY
from runtimes.shadow import Shadow
from runtimes.tar_stream import Member, MemberKind, TarReader

#: bytes of contents that are copied for a record, and the largest size that a file whose content is not copied shows
MOST_COPIED, _MOST_SIZE = 2 * shadow.MOST_CONTENT, 1 << 40

#: what no file is seen as
_UNKNOWN: shadow.Seen = ("", 0, 0, 0, 0)

#: the name of the copy beside the records of its folder
_COPY = "folder"


class Mirror(Shadow):
    """The shadow repository of one folder elsewhere."""

    def __init__(
        self, place: Path, start: bytes, exists: Callable[[], bool], packed: Callable[[], Generator[bytes]]
    ) -> None:
        """place, start: as Shadow has them. exists: whether the sandbox has files. packed: begins a stream of them."""
        super().__init__(place, place, start)
        self._work = self._own / _COPY
        self._exists, self._packed = exists, packed

    def _has_folder(self) -> bool:
        return self._exists()

    def _recorded(self, state: shadow.ShadowState) -> str:
        remove(self._work)
        self._work.mkdir(mode=0o700)
        state.files = dict.fromkeys(state.files, _UNKNOWN)  # times of a tar stream are seconds: each file is read again
        try:
            with contextlib.closing(self._packed()) as chunks:
                copy(self._work, chunks, Timeout(shadow.RECORD_SECONDS))
            return super()._recorded(state)
        finally:
            remove(self._work)

    def _taken(self) -> str:
        """None: the copy has neither the modes nor the empty directories."""
        return ""

    def _identity(self, seen: shadow.Seen) -> str:
        """By size and time alone: every copy is another file."""
        mode, _, size, changed, _ = seen
        return repr((mode, size, changed))


def copy(folder: Path, chunks: Iterable[bytes], timeout: Timeout) -> None:
    """Fill an empty folder with what a record needs of a tar stream. Raises RuntimeFailure, OSError."""
    reader, target, number, size = TarReader(chunks, skips=True), Target(folder), 0, 0
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


def _add(target: Target, member: Member, reader: TarReader | None) -> None:
    """Make what the member says, so that this process can read it. reader: None where only a file's size counts."""
    mode = 0o700 if member.kind is MemberKind.DIRECTORY or member.mode & 0o100 else 0o600
    usable = Member(member.name, member.kind, mode, member.mtime, member.size, member.target)
    if member.kind is MemberKind.FILE and reader is None:
        with target.file(usable) as file:
            os.ftruncate(file, min(member.size, _MOST_SIZE))
        return
    target.add(usable, reader.content(member) if reader and member.kind is MemberKind.FILE else ())


def _linked(member: Member) -> bytes:
    """The file of which a member is a further name, if it is one."""
    return member.target if member.kind is MemberKind.HARDLINK else b""
