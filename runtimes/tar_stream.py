"""The tar format as a stream: each member is written and read by itself, in bounded memory.

Written as pax, which keeps names of any length and bytes, and times to the nanosecond. Read as ustar, pax and GNU.
The module tarfile reads a header of any length into memory and keeps every member, so it serves single blocks here.
Source: POSIX.1-2017, pax; the manual of GNU tar, "Basic Tar Format".
"""

import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from runtimes import RuntimeFailure

BLOCK = 512

#: two blocks of zeros end a tar stream
END = bytes(2 * BLOCK)

#: most bytes of one piece of content, of a member's name, and of its extended header
PIECE, MOST_NAME, MOST_HEADER = 256 * 1024, 64 * 1024, 1024 * 1024

_DECIMAL = re.compile(rb"(-?\d{1,11})(?:\.(\d+))?")
_ENCODING = ("utf-8", "surrogateescape")

#: types of blocks that say something of the member after them
_EXTENSIONS = (
    *(tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)


class ArchiveUnreadable(RuntimeFailure):
    """The bytes are not a tar stream, or end within one."""


class MemberRefused(RuntimeFailure):
    """A member of an archive would do harm, or is of a kind that no sandbox gets."""


class ArchiveTooLarge(RuntimeFailure):
    """An archive has too many bytes or too many members."""


class Kind(StrEnum):
    """What a member is."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    HARDLINK = "hardlink"


_KINDS = {
    tarfile.REGTYPE: Kind.FILE,
    tarfile.AREGTYPE: Kind.FILE,
    tarfile.CONTTYPE: Kind.FILE,
    tarfile.DIRTYPE: Kind.DIRECTORY,
    tarfile.SYMTYPE: Kind.SYMLINK,
    tarfile.LNKTYPE: Kind.HARDLINK,
}
_TYPES = {
    Kind.FILE: tarfile.REGTYPE,
    Kind.DIRECTORY: tarfile.DIRTYPE,
    Kind.SYMLINK: tarfile.SYMTYPE,
    Kind.HARDLINK: tarfile.LNKTYPE,
}


@dataclass(frozen=True, slots=True)
class Member:
    """One member. Names are bytes: a file's name need not be text."""

    name: bytes
    kind: Kind
    mode: int = 0o644
    mtime: int = 0  #: ns since 1970
    size: int = 0  #: bytes of content that follow; 0 but for a file
    target: bytes = b""  #: of a link
    uid: int = 0
    gid: int = 0


def shown(name: bytes) -> str:
    """A name for a message."""
    text = name[:200].decode(errors="replace")
    return f"{text}…" if len(name) > 200 else text


def header(member: Member) -> bytes:
    """The blocks before the content of a member."""
    info = tarfile.TarInfo(member.name.decode(*_ENCODING))
    info.type, info.mode, info.size = _TYPES[member.kind], member.mode, member.size
    info.linkname = member.target.decode(*_ENCODING)
    info.uid, info.gid = member.uid, member.gid
    info.mtime = member.mtime // 10**9
    if member.mtime % 10**9:
        whole, fraction = divmod(abs(member.mtime), 10**9)
        info.pax_headers = {"mtime": f"{'-' if member.mtime < 0 else ''}{whole}.{fraction:09}"}
    return info.tobuf(tarfile.PAX_FORMAT, *_ENCODING)


def padding(size: int) -> bytes:
    """The bytes after content of that size, to the end of its last block."""
    return bytes(-size % BLOCK)


class TarReader:
    """The members of a tar stream, one after the other."""

    def __init__(self, chunks: Iterable[bytes], *, skips: bool = False) -> None:
        """skips: leave out FIFOs and devices instead of refusing them."""
        self._chunks = iter(chunks)
        self._skips = skips
        self._held = memoryview(b"")
        self._unread = 0  #: bytes of the last member's content, with its padding

    def members(self) -> Iterator[Member]:
        """Each member; its content may be read before the next one is. Then the stream is read to its end.

        Raises ArchiveUnreadable, MemberRefused.
        """
        records: dict[bytes, bytes] = {}
        extended = 0  #: bytes of the extended headers before a member
        while (block := self._exactly(BLOCK)).count(0) < BLOCK:
            try:
                info = tarfile.TarInfo.frombuf(block, *_ENCODING)
            except tarfile.HeaderError as error:
                raise ArchiveUnreadable(f"It is not a tar archive: {error}") from None
            if info.size < 0:
                raise ArchiveUnreadable("It is not a tar archive: a member has a negative size")
            extended = extended + info.size if info.type in _EXTENSIONS else 0
            if extended > MOST_HEADER:
                raise MemberRefused(f"A member has an extended header of {extended} bytes; {MOST_HEADER} are allowed")
            match info.type:
                case tarfile.XHDTYPE | tarfile.SOLARIS_XHDTYPE:
                    records |= _records(self._extension(info.size))
                case tarfile.XGLTYPE:  # a comment, as of `git archive`
                    self._extension(info.size)
                case tarfile.GNUTYPE_LONGNAME:
                    records[b"path"] = self._extension(info.size).rstrip(b"\0")
                case tarfile.GNUTYPE_LONGLINK:
                    records[b"linkpath"] = self._extension(info.size).rstrip(b"\0")
                case tarfile.FIFOTYPE | tarfile.CHRTYPE | tarfile.BLKTYPE if self._skips:
                    records = {}
                case _:
                    member = _member(info, records)
                    records = {}
                    self._unread = member.size + len(padding(member.size))
                    yield member
                    for _ in self._pieces(self._unread):
                        pass
        self._held = memoryview(b"")
        for _ in self._chunks:
            pass

    def content(self, member: Member) -> Iterator[memoryview]:
        """The content of the member that `members` gave last, once, in pieces. Raises ArchiveUnreadable."""
        yield from self._pieces(member.size)

    def _extension(self, size: int) -> bytes:
        return self._exactly(size + len(padding(size)))[:size]

    def _exactly(self, size: int) -> bytes:
        self._unread = size
        return b"".join(self._pieces(size))

    def _pieces(self, size: int) -> Iterator[memoryview]:
        while size:
            while not self._held:
                chunk = next(self._chunks, None)
                if chunk is None:
                    raise ArchiveUnreadable("It ends too early: the archive is not whole")
                self._held = memoryview(chunk)
            piece, self._held = self._held[:size], self._held[size:]
            size -= len(piece)
            self._unread -= len(piece)
            yield piece


def _records(data: bytes) -> dict[bytes, bytes]:
    """The records of a pax header: each is its own length in decimal, a space, NAME=VALUE and a newline."""
    found, at = {}, 0
    while at < len(data):
        space = data.find(b" ", at, at + 8)
        length = data[at : max(space, at)]
        end = at + int(length) if length.isdigit() else at
        name, equals, value = data[space + 1 : end - 1].partition(b"=")
        # A record must lead on: one without a length, or of length 0, would be read for ever.
        if not at < space < end <= len(data) or not equals:
            raise ArchiveUnreadable("It is not a tar archive: an extended header cannot be read")
        found[name] = value
        at = end
    return found


def _member(info: tarfile.TarInfo, records: dict[bytes, bytes]) -> Member:
    name = records.get(b"path", info.name.encode(*_ENCODING))
    target = records.get(b"linkpath", info.linkname.encode(*_ENCODING))
    kind = _KINDS.get(info.type)
    if kind is None or any(record.startswith(b"GNU.sparse.") for record in records):
        what = "a device or a FIFO" if info.isdev() else "sparse or of an unknown type"
        raise MemberRefused(f"The member {shown(name)} is {what}: files, directories and links are allowed")
    if max(len(name), len(target)) > MOST_NAME:
        raise MemberRefused(f"The name {shown(name)} is longer than {MOST_NAME} bytes")
    if b"\0" in name or b"\0" in target:
        raise MemberRefused(f"The name {shown(name)} has a NUL byte")
    size = records.get(b"size", b"%d" % info.size)
    if not size.isdigit() or len(size) > 18:
        raise ArchiveUnreadable(f"It is not a tar archive: the member {shown(name)} has no size")
    return Member(
        name=name,
        kind=kind,
        mode=info.mode,
        mtime=_ns(records.get(b"mtime", b"%d" % info.mtime)),
        size=int(size) if kind is Kind.FILE else 0,
        target=target if kind in (Kind.SYMLINK, Kind.HARDLINK) else b"",
        uid=_number(records.get(b"uid", b"%d" % info.uid)),
        gid=_number(records.get(b"gid", b"%d" % info.gid)),
    )


def _number(digits: bytes) -> int:
    """The number of a user or a group; 0 for one that no system has."""
    return int(digits) if digits.isdigit() and len(digits) <= 10 else 0


def _ns(seconds: bytes) -> int:
    """A time as ns since 1970; 0 for one that no file system keeps."""
    match = _DECIMAL.fullmatch(seconds)
    if match is None:
        return 0
    whole, fraction = match[1], (match[2] or b"")[:9].ljust(9, b"0")
    return int(whole) * 10**9 + (-int(fraction) if whole.startswith(b"-") else int(fraction))
