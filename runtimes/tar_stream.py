"""The tar format as a stream: members are written and read one by one, in bounded memory.

Written as pax, which keeps names of any length and bytes, and times in nanoseconds. Read as ustar, pax and GNU. The
module tarfile reads a header of any length into memory and keeps every member, so it is used only for single blocks.
Source: POSIX.1-2017, pax; the manual of GNU tar, "Basic Tar Format".
"""

import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from runtimes import RuntimeCallFailed

BLOCK = 512

#: Two blocks of zeros end a tar stream.
END = bytes(2 * BLOCK)

#: Maximum bytes of a piece of content, of a member's name, and of its extended header.
PIECE, MOST_NAME, MOST_HEADER = 256 * 1024, 64 * 1024, 1024 * 1024

_DECIMAL = re.compile(rb"(-?\d{1,11})(?:\.(\d+))?")
_ENCODING = ("utf-8", "surrogateescape")

#: Types of blocks that extend the next member's header.
_EXTENSIONS = (
    *(tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)


class TarUnreadable(RuntimeCallFailed):
    """The bytes are not a tar stream, or are truncated."""


class MemberRefused(RuntimeCallFailed):
    """A member of an archive would do harm, or is of an unsupported kind."""


class TarTooLarge(RuntimeCallFailed):
    """An archive has too many bytes or too many members."""


class MemberKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    HARDLINK = "hardlink"


_KINDS = {
    tarfile.REGTYPE: MemberKind.FILE,
    tarfile.AREGTYPE: MemberKind.FILE,
    tarfile.CONTTYPE: MemberKind.FILE,
    tarfile.DIRTYPE: MemberKind.DIRECTORY,
    tarfile.SYMTYPE: MemberKind.SYMLINK,
    tarfile.LNKTYPE: MemberKind.HARDLINK,
}
_TYPES = {
    MemberKind.FILE: tarfile.REGTYPE,
    MemberKind.DIRECTORY: tarfile.DIRTYPE,
    MemberKind.SYMLINK: tarfile.SYMTYPE,
    MemberKind.HARDLINK: tarfile.LNKTYPE,
}


@dataclass(frozen=True, slots=True)
class Member:
    """One member. Names are bytes, because a file's name need not be text."""

    name: bytes
    kind: MemberKind
    mode: int = 0o644
    mtime: int = 0  #: ns since 1970
    size: int = 0  #: bytes of content; 0 except for a file
    target: bytes = b""  #: of a link
    uid: int = 0
    gid: int = 0


def shown(name: bytes) -> str:
    text = name[:200].decode(errors="replace")
    return f"{text}…" if len(name) > 200 else text


def header(member: Member) -> bytes:
    """Return the blocks before the content of a member."""
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
    """Return the bytes after content of a size, to the end of its last block."""
    return bytes(-size % BLOCK)


class TarReader:
    def __init__(self, chunks: Iterable[bytes], *, skips: bool = False) -> None:
        """skips: skip FIFOs and devices instead of refusing them."""
        self._chunks = iter(chunks)
        self._skips = skips
        self._held = memoryview(b"")
        self._unread = 0  #: bytes of the last member's content, with its padding

    def members(self) -> Iterator[Member]:
        """Yield each member. Its content can be read before the next one. Then the stream is read to its end.

        Raises TarUnreadable and MemberRefused.
        """
        records: dict[bytes, bytes] = {}
        extended = 0  #: bytes of the extended headers before a member
        while (block := self._exactly(BLOCK)).count(0) < BLOCK:
            try:
                info = tarfile.TarInfo.frombuf(block, *_ENCODING)
            except tarfile.HeaderError as error:
                raise TarUnreadable(f"It is not a tar archive: {error}") from None
            if info.size < 0:
                raise TarUnreadable("It is not a tar archive: a member has a negative size")
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
        """Yield the content of the last member, once, in pieces. Raises TarUnreadable."""
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
                    raise TarUnreadable("It ends too early: the archive is not whole")
                self._held = memoryview(chunk)
            piece, self._held = self._held[:size], self._held[size:]
            size -= len(piece)
            self._unread -= len(piece)
            yield piece


def _records(data: bytes) -> dict[bytes, bytes]:
    """Parse the records of a pax header. Each is its own length in decimal, a space, NAME=VALUE and a newline."""
    records, at = {}, 0
    while at < len(data):
        space = data.find(b" ", at, at + 8)
        length = data[at : max(space, at)]
        end = at + int(length) if length.isdigit() else at
        name, equals, value = data[space + 1 : end - 1].partition(b"=")
        # A record must advance: without a length, or with length 0, the loop would not end.
        if not at < space < end <= len(data) or not equals:
            raise TarUnreadable("It is not a tar archive: an extended header cannot be read")
        records[name] = value
        at = end
    return records


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
        raise TarUnreadable(f"It is not a tar archive: the member {shown(name)} has no size")
    return Member(
        name=name,
        kind=kind,
        mode=info.mode,
        mtime=_ns(records.get(b"mtime", b"%d" % info.mtime)),
        size=int(size) if kind is MemberKind.FILE else 0,
        target=target if kind in (MemberKind.SYMLINK, MemberKind.HARDLINK) else b"",
        uid=_number(records.get(b"uid", b"%d" % info.uid)),
        gid=_number(records.get(b"gid", b"%d" % info.gid)),
    )


def _number(digits: bytes) -> int:
    """Parse the number of a user or a group; 0 for an impossible one."""
    return int(digits) if digits.isdigit() and len(digits) <= 10 else 0


def _ns(seconds: bytes) -> int:
    """Parse a time as ns since 1970; 0 for a time that no file system keeps."""
    match = _DECIMAL.fullmatch(seconds)
    if match is None:
        return 0
    whole, fraction = match[1], (match[2] or b"")[:9].ljust(9, b"0")
    return int(whole) * 10**9 + (-int(fraction) if whole.startswith(b"-") else int(fraction))
