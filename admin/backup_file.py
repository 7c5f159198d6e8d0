"""The format of a backup: a tar stream, compressed by Zstandard, that mirrors DATA_DIR.

backup.json              the head: `BackupHead`
data/key                 and `secret_key`, `store.program`: files of DATA_DIR
data/appendonlydir/…     the store: its append-only files, or a snapshot as their base
data/cold/NAME           objects of cold conversations, if COLD_URL is a folder
data/sandboxes/HOST/…    `.lock` (the folder's id), and per sandbox `ID/work/…`, `ID/log…`, `.ID.shadow/…`
manifest.json            the last member: SHA-256, members and bytes of each part

A part is a file of the store or of a key, all cold objects, or the files of a sandbox. A file without its manifest is
incomplete. A reader trusts no name in the file: `checked` defines the allowed names.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from typing import Any, BinaryIO

from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from runtimes.tar_stream import END, PIECE, Member, MemberKind, TarReader, header, padding, shown

#: Version of the format. A reader refuses newer versions.
VERSION = 1

FORMAT = "agent-server-backup"

_HEAD, _MANIFEST, _DATA = b"backup.json", b"manifest.json", b"data/"

#: Maximum size of the head, in bytes, and number of bytes by which the manifest may exceed the expected one.
_MOST_HEAD, _MOST_SPARE = 64 * 1024, 64 * 1024

#: Maximum number of parts: two per sandbox. The reader keeps all of them in memory.
_MOST_PARTS = 200_000

#: Compression level. Level 3 is about as fast as a disk.
_LEVEL = 3

_NAME = rb"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}"

#: Names of plain files below `data/`. Other names must belong to a sandbox.
_FILES = re.compile(
    rb"key|secret_key|store\.program|appendonlydir/" + _NAME + rb"|cold/[A-Za-z0-9][A-Za-z0-9-]{0,199}"
    rb"|sandboxes/" + _NAME + rb"/\.lock"
)

_ID = rb"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}"

#: Names of a sandbox: its folder and its logs, its working directory, and the shadow repository beside it.
_OF_SANDBOX = re.compile(
    rb"sandboxes/%(name)s/(?:%(id)s(?:/log(?:\.\d{1,3})?)?|\.%(id)s\.shadow(?:/.*)?)" % {b"name": _NAME, b"id": _ID},
    re.DOTALL,
)
_WORK = re.compile(rb"(sandboxes/%(name)s/%(id)s/work)(?:/.*)?" % {b"name": _NAME, b"id": _ID}, re.DOTALL)

#: Files of a shadow repository that are not restored: all except objects and references. Git would run programs that
#: settings and hooks name, and read other folders that alternates name. `runtimes/shadow.py` writes the settings anew.
_GIT_SETTINGS = re.compile(
    rb"sandboxes/[^/]+/\.[^/]+/[^/]+/git/(?:objects/info/.*|(?!(?:HEAD|packed-refs|refs|objects)(?:/|\Z)).+)", re.DOTALL
)


class BackupDamaged(Exception):
    """Raised if the file is not a complete backup, or is harmful. The message says why."""


@dataclass(frozen=True, kw_only=True)
class BackupHead:
    """The description of a backup before its data."""

    version: int = VERSION
    format: str = FORMAT
    project: str  #: version of the server's code
    data: int  #: version of the stored data
    program: str  #: program of the store, such as `Valkey 9.1.2`; empty: unknown
    is_snapshot: bool  #: the store is a snapshot: only `program` of the same or a newer release reads it
    time: str  #: start of the command, UTC
    host: str  #: name of its host
    conversations: int
    sandboxes: int
    seals: bool  #: SECRET_KEY was set, and is not in the backup
    left_out: list[str] = field(default_factory=list)  #: sentences about missing contents


@dataclass
class _Part:
    members: int = 0
    size: int = 0
    digest: Any = field(default_factory=sha256)

    def begin(self, member: Member) -> None:
        self.members += 1
        self.size += member.size
        self.digest.update(b"%s %o %d " % (member.kind.encode(), member.mode & 0o777, member.size))
        self.digest.update(member.name + b"\0" + member.target + b"\0")

    def as_list(self) -> list[Any]:
        return [self.members, self.size, self.digest.hexdigest()]


class _Parts(dict[str, _Part]):
    def part_with(self, member: Member) -> _Part:
        name = part_of(member.name)
        if name not in self and len(self) >= _MOST_PARTS:
            raise BackupDamaged(f"It has more than {_MOST_PARTS} parts (files of the store, and folders of sandboxes)")
        return self.setdefault(name, _Part())

    def as_manifest(self) -> dict[str, list[Any]]:
        return {name: part.as_list() for name, part in self.items()}


def part_of(name: bytes) -> str:
    """Return the part of a name below `data/`."""
    segments = name.split(b"/")
    match segments[0]:
        case b"sandboxes":
            return b"/".join(segments[:3]).decode("utf-8", "backslashreplace")
        case b"cold":
            return "cold"
        case _:
            return name.decode("utf-8", "backslashreplace")


class BackupWriter:
    """Writes a backup, one member after the other."""

    def __init__(self, sink: BinaryIO, head: BackupHead) -> None:
        """Raises OSError, as every call does."""
        self._stream = ZstdCompressor(level=_LEVEL, write_checksum=True).stream_writer(sink, closefd=False)
        self._parts = _Parts()
        self._put(_HEAD, json.dumps(asdict(head)).encode())

    def add(self, member: Member, content: Iterable[bytes | memoryview] = ()) -> None:
        """Write a member. Its name is relative to DATA_DIR. content: exactly `member.size` bytes.

        If `content` raises an error, write zeros for the rest, and raise that error.
        """
        part = self._parts.part_with(member)
        part.begin(member)
        target = _DATA + member.target if member.kind is MemberKind.HARDLINK else member.target
        self._stream.write(
            header(Member(_DATA + member.name, member.kind, member.mode, member.mtime, member.size, target))
        )
        left = member.size
        try:
            for piece in content:
                left -= self._piece(part, piece)
        finally:
            while left > 0:  # a partly unreadable file must not damage the others
                left -= self._piece(part, bytes(min(PIECE, left)))
            self._stream.write(padding(member.size))

    def _piece(self, part: _Part, piece: bytes | memoryview) -> int:
        part.digest.update(piece)
        self._stream.write(piece)
        return len(piece)

    def file(self, name: str, content: bytes) -> None:
        """Write a small file."""
        self.add(Member(name.encode(), MemberKind.FILE, 0o600, size=len(content)), [content])

    def finish(self) -> None:
        """Write the manifest and the end."""
        self._put(_MANIFEST, json.dumps(self._parts.as_manifest()).encode())
        self._stream.write(END)
        self._stream.close()

    def _put(self, name: bytes, content: bytes) -> None:
        self._stream.write(
            header(Member(name, MemberKind.FILE, 0o600, size=len(content))) + content + padding(len(content))
        )


class BackupReader:
    """Reads a backup once, from beginning to end."""

    def __init__(self, source: BinaryIO) -> None:
        """Read the head. Raises BackupDamaged, and OSError, as every call does."""
        self._tar = TarReader(_decompressed(source))
        self._members = self._tar.members()
        first = next(self._members, None)
        if first is None or first.name != _HEAD:
            raise BackupDamaged("It is not a backup: `backup.json` is not its first member")
        self.head = _read_head(self._small(first, _MOST_HEAD))

    def members(self) -> Iterator[tuple[Member, Iterator[memoryview]]]:
        """Yield each member with its content. Name and target are relative to DATA_DIR.

        Raises BackupDamaged, possibly after the last member, because the manifest is read last. The caller then
        discards everything that it has read.
        """
        parts = _Parts()
        for member in self._members:
            if member.name == _MANIFEST:
                self._check(parts, self._small(member, len(json.dumps(parts.as_manifest())) + _MOST_SPARE))
                if next(self._members, None) is not None:
                    raise BackupDamaged("Members follow after its manifest")
                return
            inner = checked(member)
            part = parts.part_with(inner)
            part.begin(inner)
            yield inner, self._content(part, member)
        raise BackupDamaged("It ends before its manifest: the backup was cut off")

    def _content(self, part: _Part, member: Member) -> Iterator[memoryview]:
        for piece in self._tar.content(member):
            part.digest.update(piece)
            yield piece

    def _small(self, member: Member, most: int) -> Any:
        if member.kind is not MemberKind.FILE or member.size > most:
            raise BackupDamaged(f"`{shown(member.name)}` has {member.size} bytes; {most} are allowed")
        try:
            return json.loads(b"".join(self._tar.content(member)))
        except (ValueError, RecursionError):
            raise BackupDamaged(f"`{shown(member.name)}` is not JSON") from None

    @staticmethod
    def _check(parts: _Parts, manifest: Any) -> None:
        actual = parts.as_manifest()
        if manifest == actual:
            return
        expected = manifest if isinstance(manifest, dict) else {}
        names = [name for name in sorted({*expected, *actual}) if expected.get(name) != actual.get(name)]
        raise BackupDamaged(
            f"It is damaged: the checksum of {names[0] if names else 'a part'} differs from the manifest"
        )


def _read_head(members: Any) -> BackupHead:
    """Parse the head. Raises BackupDamaged. A newer format is refused, because its members may have other meanings."""
    if not isinstance(members, dict) or members.get("format") != FORMAT:
        raise BackupDamaged("It is not a backup of this server")
    version = members.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise BackupDamaged(
            f"Its format has the version {version}, and this release reads up to {VERSION}. "
            "Restore it with the release that made it, or a newer one"
        )
    try:
        head = BackupHead(**{each.name: members[each.name] for each in fields(BackupHead)})
    except KeyError as missing:
        raise BackupDamaged(f"`backup.json` has no {missing}") from None
    texts = [head.project, head.program, head.host, head.time]
    are_texts = isinstance(head.left_out, list) and all(isinstance(one, str) for one in [*texts, *head.left_out])
    if not isinstance(head.data, int) or not are_texts:
        raise BackupDamaged("`backup.json` has a member of the wrong type")
    return head


def _decompressed(source: BinaryIO) -> Iterator[bytes]:
    """Yield the decompressed bytes. Raises BackupDamaged."""
    try:
        reader = ZstdDecompressor().stream_reader(source, read_size=PIECE, closefd=False)
        while piece := reader.read(PIECE):
            yield piece
    except ZstdError as error:
        raise BackupDamaged(f"It is damaged, or no backup: {error}") from None


def is_restored(member: Member) -> bool:
    """Return whether a member of a backup is restored: all except settings of shadow repositories."""
    return not _GIT_SETTINGS.fullmatch(member.name)


def checked(member: Member) -> Member:
    """Return a member with its name in DATA_DIR. Raises BackupDamaged unless a backup may contain it.

    A hard link may only lead to a file of the same working directory. Otherwise a sandbox could read and change the
    server's keys.
    """
    name = member.name.removeprefix(_DATA)
    if member.kind is MemberKind.DIRECTORY:
        name = name.rstrip(b"/")
    segments = name.split(b"/")
    if not member.name.startswith(_DATA) or {b"..", b".", b""} & set(segments):
        raise BackupDamaged(f"The member {shown(member.name)} is outside of DATA_DIR")
    if _FILES.fullmatch(name):
        if member.kind is not MemberKind.FILE:
            raise BackupDamaged(f"The member {shown(member.name)} is not a file")
        return Member(name, member.kind, 0o600, member.mtime, member.size)
    target, work = member.target, _WORK.fullmatch(name)
    if not work and not _OF_SANDBOX.fullmatch(name):
        raise BackupDamaged(f"A backup cannot have the member {shown(member.name)}")
    if member.kind in (MemberKind.SYMLINK, MemberKind.HARDLINK) and not work:
        raise BackupDamaged(f"The member {shown(member.name)} is a link")
    if work and member.kind is MemberKind.HARDLINK:
        target = target.removeprefix(_DATA)
        if not target.startswith(work[1] + b"/") or b".." in target.split(b"/"):
            raise BackupDamaged(f"The member {shown(member.name)} is a hard link to a file outside of its sandbox")
    return Member(name, member.kind, member.mode & 0o777, member.mtime, member.size, target)
