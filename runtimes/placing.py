"""Tar streams on their way out of and into a volume, member by member.

Kept: files, directories, symlinks as they are, hard links, names of any bytes, permissions, times of change. Not kept:
owners, the bits set-uid and set-gid, extended attributes, sockets, FIFOs and devices. So it is for processes too.
"""

import posixpath
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

_KEPT_BITS = 0o1777


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


def packed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The engine's stream of a folder, as an archive has it. Raises ArchiveUnreadable at its end if it breaks off."""
    reader = TarReader(chunks, skips=True)
    for member in reader.members():
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
