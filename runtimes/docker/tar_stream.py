"""A tar stream, read member by member in bounded memory. Nothing is unpacked here.

A stream may come from an enemy: from an upload, or from a sandbox, which names its own files. tarfile alone would read
an extended header of any length into memory; here it is given headers of bounded length.
"""

import io
import posixpath
import tarfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from runtimes import RuntimeFailure

#: most bytes of one member's headers: names and links of 4,096 bytes each fit many times
_MOST_HEADER = 64 * 1024

#: types of headers that extend the next one, and of one that a whole archive shares: git's holds a commit's id
_EXTENSIONS = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_SHARED = tarfile.XGLTYPE

#: types of members that a working folder may get: no devices, no sparse files
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_KEPT = (*_FILES, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE)

_SPARSE = "the archive has a sparse file, or a header that is not supported"

_END = bytes(2 * tarfile.BLOCKSIZE)


class Owner(NamedTuple):
    """The owner and the mode that a folder gets."""

    uid: int
    gid: int
    mode: int


def whole(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same stream. Raises RuntimeFailure at its end if it breaks off: a copy would lack files."""
    for _, header, data in _members(chunks, None):
        yield header
        yield from data
    yield _END


def owner_of_first(chunks: Iterable[bytes]) -> Owner:
    """The owner and the mode of the first member. Raises RuntimeFailure."""
    for member, *_ in _members(chunks, None):
        return Owner(member.uid, member.gid, member.mode & 0o1777)
    raise RuntimeFailure("the archive is empty")


def placed(chunks: Iterable[bytes], folder: str, owner: Owner, most_bytes: int | None) -> Iterator[bytes]:
    """The stream with each member below `folder`, a relative path, and the owner's; folders that it lacks are added.

    No member has an owner, set-user-id bits or attributes of its own. Raises RuntimeFailure on a member that would lie
    elsewhere, on devices and sparse files, and on a stream of more bytes than `most_bytes`.
    """
    yield _folder_at(folder, owner)
    inside = folder  # the folder of the last member. An archive's order is that of a walk, so its parents are there
    for member, _, data in _members(chunks, most_bytes):
        _check(member)
        member.name = _below(folder, member.name)
        if member.name == folder and not member.isdir():
            raise RuntimeFailure("the archive has a file in the place of its folder")
        if member.islnk():
            member.linkname = _below(folder, member.linkname)
        member.mode &= 0o1777
        member.uid, member.gid, member.uname, member.gname, member.pax_headers = owner.uid, owner.gid, "", "", {}
        for parent in _missing(posixpath.dirname(member.name), inside, folder):
            yield _folder_at(parent, owner._replace(mode=0o755))
        inside = member.name if member.isdir() else posixpath.dirname(member.name)
        yield _header(member)
        yield from data
    yield _END


def _check(member: tarfile.TarInfo) -> None:
    if member.type not in _KEPT:
        raise RuntimeFailure(f"the archive's {member.name!r} is a device, or of a type that is not supported")


def _below(folder: str, name: str) -> str:
    """The path of a member below a folder. Raises RuntimeFailure if the member names a place that is not there."""
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise RuntimeFailure(f"the archive's {name!r} lies outside of its folder")
    return posixpath.normpath(f"{folder}/{name}")


def _missing(parent: str, inside: str, top: str) -> list[str]:
    """The folders from the outermost to `parent`, without those that are `inside` or around it."""
    missing: list[str] = []
    while len(parent) > len(top) and not f"{inside}/".startswith(f"{parent}/"):
        missing.insert(0, parent)
        parent = posixpath.dirname(parent)
    return missing


def _folder_at(path: str, owner: Owner) -> bytes:
    member = tarfile.TarInfo(path)
    member.type, member.mode, member.uid, member.gid = tarfile.DIRTYPE, owner.mode, owner.uid, owner.gid
    return _header(member)


def _header(member: tarfile.TarInfo) -> bytes:
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _members(
    chunks: Iterable[bytes], most_bytes: int | None
) -> Iterator[tuple[tarfile.TarInfo, bytes, Iterator[bytes]]]:
    """Each member with its headers as they came, and its padded data, which the caller reads before the next one."""
    stream = _Stream(chunks, most_bytes)
    while header := _headers(stream):
        try:
            with tarfile.open(fileobj=io.BytesIO(header), mode="r:", errors="surrogateescape") as archive:
                member = archive.next()
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise RuntimeFailure(f"the archive is no tar archive: {error}") from error
        if member is None or member.size < 0 or member.issparse():
            raise RuntimeFailure(_SPARSE)
        if member.type not in _FILES:
            member.size = 0
        yield member, header, stream.pieces(_padded(member.size))
    stream.drain()


def _headers(stream: "_Stream") -> bytes:
    """The header of the next member with those that extend it; empty at the end of the archive."""
    found = b""
    while True:
        block = stream.exactly(tarfile.BLOCKSIZE)
        if not found and not block.strip(b"\0"):
            return b""
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise RuntimeFailure(f"the archive is no tar archive: {error}") from error
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise RuntimeFailure(_SPARSE)
        if header.type not in (*_EXTENSIONS, _SHARED):
            return found + block
        if not 0 <= header.size <= _MOST_HEADER - len(found):
            raise RuntimeFailure(f"the archive has a header of more than {_MOST_HEADER} bytes")
        extension = block + stream.exactly(_padded(header.size))
        found += b"" if header.type == _SHARED else extension


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


class _Stream:
    """The bytes of chunks, and their count. Raises RuntimeFailure where they end too early, and beyond `most_bytes`."""

    def __init__(self, chunks: Iterable[bytes], most_bytes: int | None) -> None:
        self._chunks = iter(chunks)
        self._most_bytes = most_bytes
        self._count = 0
        self._rest = memoryview(b"")

    def pieces(self, size: int) -> Iterator[bytes]:
        """So many bytes, as they come."""
        while size:
            if not self._rest and not self._read():
                raise RuntimeFailure("the archive breaks off")
            piece, self._rest = self._rest[:size], self._rest[size:]
            size -= len(piece)
            yield bytes(piece)

    def exactly(self, size: int) -> bytes:
        return b"".join(self.pieces(size))

    def drain(self) -> None:
        """Read what follows the end of the archive, its padding."""
        while self._read():
            pass

    def _read(self) -> bool:
        """Take the next chunk that is not empty; False if there is none."""
        try:
            chunk = next((chunk for chunk in self._chunks if chunk), b"")
        except OSError as error:
            raise RuntimeFailure(f"the archive cannot be read: {error}") from error
        self._count += len(chunk)
        if self._most_bytes is not None and self._count > self._most_bytes:
            raise RuntimeFailure(f"the archive has more than {self._most_bytes} bytes")
        self._rest = memoryview(chunk)
        return bool(chunk)
