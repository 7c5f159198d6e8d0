"""Write everything that this server keeps into one file:  python -m admin backup FILE|-

The store is at REDIS_URL, or else embedded in DATA_DIR, whether its server runs or not. The file
contains everything acknowledged before the command began, and is as secret as the server. Source: docs/backup.md.

Exit status: 0 complete, 1 nothing was written, 3 written, but without the parts that standard error names.
"""

import argparse
import fcntl
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from admin.backup_file import BackupHead, BackupWriter
from core.programs import admin
from core.wire import API_VERSION
from runtimes import RuntimeCallFailed
from runtimes.archive import pack
from runtimes.shadow import beside, held
from runtimes.tar_stream import PIECE, Member, MemberKind, TarReader
from settings import ConfigError
from settings.config import Config
from settings.data_dir import SECRET_KEY_FILE, folder_of
from store.errors import UNAVAILABLE, StoreError
from store.keys import DATA_VERSION, VERSION, ListingKeys, SandboxKeys
from store.link.connection import connect
from store.link.snapshot import snapshot
from store.objects import is_name
from wiring import settings_here

#: Exit status of an incomplete backup.
PARTLY = 3

#: Folder of a store's append-only files.
AOF = "appendonlydir"

#: Files of a snapshot: the base of an append-only file, its next file, and its manifest.
_BASE, _FOLLOWING, _MANIFEST = "appendonly.aof.1.base.rdb", "appendonly.aof.1.incr.aof", "appendonly.aof.manifest"

#: Number of attempts to read a consistent set of the store's files.
_TRIES = 20

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_SANDBOX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_LOG = re.compile(r"log(\.\d{1,3})?")

#: Error of a server without a durable store.
_IN_MEMORY = (
    "The store keeps its data in memory, so there is nothing that a backup could restore. Install redis-server 7 or "
    "valkey-server, or set REDIS_URL, and start the server again"
)

_CLUSTER = (
    "A Redis Cluster has no consistent state for a backup. Back up each of its nodes with the tools of your "
    "Redis; docs/backup.md says what else to copy"
)


class NotBackedUp(Exception):
    """Raised if nothing was written. The message has the reason and what to do."""


def main(words: list[str] | None = None) -> int:
    """Run the command, and return the exit status. Standard output has the backup, or nothing."""
    given = _parser().parse_args(words)
    try:
        with _sink(given.file) as sink, settings_here() as config:
            backup = _Backup(config, sink)
            backup.run()
            sink.flush()
    except BrokenPipeError:
        raise
    except (ConfigError, StoreError, RuntimeError, NotBackedUp) as error:
        return _refuse(str(error))
    except UNAVAILABLE as error:
        return _refuse(f"the store does not answer: {error}")
    except OSError as error:
        return _refuse(written_failure(error, given.file))
    for sentence in backup.missing:
        print(f"backup: {sentence}", file=sys.stderr)
    named = "standard output" if given.file == "-" else given.file
    head = backup.head
    print(f"backup: {head.conversations} conversations and {backup.sandboxes} sandboxes: {named}", file=sys.stderr)
    if given.file != "-":
        restore = admin(f"restore {shlex.quote(given.file)} --data-dir NEW_FOLDER")
        print(f"backup: it is as secret as the server. To restore it: {restore}", file=sys.stderr)
    return PARTLY if backup.is_partial else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m admin backup",
        description="Write the store, the keys and the sandboxes' files into one file, while the server runs or not.",
    )
    parser.add_argument("file", metavar="FILE", help="to write, such as agents.backup; - is standard output")
    return parser


def _refuse(sentence: str) -> int:
    print(f"backup: nothing was written: {sentence}", file=sys.stderr)
    return 1


def written_failure(error: OSError, place: str) -> str:
    """Return a sentence about a file or a folder that could not be written."""
    where = Path(place).absolute()
    while not where.is_dir() and where != where.parent:
        where = where.parent
    free = ""
    with suppress(OSError):
        seen = os.statvfs(where)
        free = f": {seen.f_bavail * seen.f_frsize} bytes are free on the disk of {where}"
    return f"{error.filename or place}: {error.strerror or error}{free}. Make room, or name another place"


@contextmanager
def _sink(name: str) -> Iterator[BinaryIO]:
    """Yield standard output, or a file that gets its name after it is complete and on the disk. Raises OSError."""
    if name == "-":
        if sys.stdout.isatty():
            raise NotBackedUp("a terminal shows no backup: name a file, or redirect standard output")
        yield sys.stdout.buffer
        return
    path = Path(name)
    if path.is_dir():
        raise NotBackedUp(f"{name} is a folder: name a file, such as {shlex.quote(f'{name}/agents.backup')}")
    part = path.with_name(f"{path.name}.part")
    # Lock before truncating: remains of a killed backup are overwritten, but not another running backup.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as sink:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotBackedUp(f"another backup is being written to {name}: wait for it, or name another file") from None
        os.fchmod(descriptor, 0o600)
        os.truncate(descriptor, 0)
        try:
            yield sink
            sink.flush()
            os.fsync(descriptor)
            part.rename(path)
            _sync(path.absolute().parent)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise


def _sync(folder: Path) -> None:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class _AofFile(NamedTuple):
    name: str
    descriptor: int
    size: int


@dataclass
class _AofFiles:
    """The files of an append-only store at one moment, open, so that a rewrite cannot remove them."""

    lines: list[str] = field(default_factory=list)  #: of the manifest
    files: list[_AofFile] = field(default_factory=list)

    def close(self) -> None:
        for file in self.files:
            os.close(file.descriptor)


class _Backup:
    """A backup of the settings' store and of this host's sandboxes.

    Order: records of folders, then the store, then files that the store names. A record that the store does not know
    would be taken for that of a later event, and a file that it names must not be missing.
    """

    def __init__(self, config: Config, sink: BinaryIO) -> None:
        self.missing: list[str] = []
        self.is_partial = False
        self.sandboxes = 0  #: number of sandboxes with files in the backup
        self._config = config
        self._data_dir = Path(config.redis.data_dir).resolve()
        self._sink = sink
        url = config.redis.redis_url
        scheme = url.partition(":")[0]
        if scheme == "redis+cluster":
            raise NotBackedUp(_CLUSTER)
        self._redis: Any = connect(url, timeout=config.redis.redis_timeout, max_connections=4).commands
        self._folder = folder_of(url, self._data_dir)  #: of the embedded store; None for another Redis
        self._hosts = _hosts(config.sandbox_folder)
        self.head = self._head()

    def run(self) -> None:
        """Write the backup. Raises OSError, NotBackedUp, RuntimeCallFailed, StoreError, or one of UNAVAILABLE."""
        writer = BackupWriter(self._sink, self.head)
        for name in ("key", SECRET_KEY_FILE):
            with suppress(FileNotFoundError):
                writer.file(name, (self._data_dir / name).read_bytes())
        writer.file("store.program", f"{self.head.program}\n".encode())
        for host in self._hosts:
            for folder in _sandboxes(host):
                self._try_part(folder.name, self._shadow, writer, host, folder)
        if self._folder:
            self._commands(writer, self._folder)
        else:
            self._snapshot(writer)
        self._cold(writer)
        for host in self._hosts:
            writer.file(f"sandboxes/{host.name}/.lock", (host / ".lock").read_bytes())
            for folder in _sandboxes(host):
                self.sandboxes += self._try_part(folder.name, self._sandbox, writer, host, folder)
        writer.finish()

    def _head(self) -> BackupHead:
        info = {} if self._folder is None and self._is_fake() else self._redis.info("server")
        if not info:
            raise NotBackedUp(_IN_MEMORY)
        kind = "Valkey" if "valkey_version" in info else "Redis"
        stored = self._redis.get(DATA_VERSION)
        config = self._config
        head = BackupHead(
            project=API_VERSION,
            data=int(stored) if stored and stored.isdigit() else VERSION,
            program=f"{kind} {info.get('valkey_version') or info.get('redis_version')}",
            is_snapshot=self._folder is None,
            time=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            host=config.host.name,
            conversations=self._redis.zcard(ListingKeys.index("created")),
            sandboxes=self._redis.zcard(SandboxKeys.created),
            seals=config.redis.secret_key != _stored_key(self._data_dir),
        )
        self._leave_out(head)
        return head

    def _is_fake(self) -> bool:
        """Return whether the store is in memory, which has no INFO."""
        try:
            self._redis.info("server")
        except UNAVAILABLE:
            raise
        except Exception:
            return True
        return False

    def _leave_out(self, head: BackupHead) -> None:
        if head.seals:
            head.left_out.append("SECRET_KEY is not in it: the restored server needs the same value")
        if (place := self._config.keeping.cold_place) and place.bucket:
            url = self._config.keeping.cold_url
            head.left_out.append(f"The events of cold conversations are not in it: they are in {url}")
        known = {host.name for host in self._hosts}
        others = [name.decode() for name in self._redis.zrange(SandboxKeys.hosts, 0, -1) if name.decode() not in known]
        if others:
            head.left_out.append(f"The files of sandboxes on other hosts are not in it: {', '.join(sorted(others))}")
        self.missing += head.left_out

    def _try_part(self, name: str, act: Any, *arguments: Any) -> bool:
        """Back up a part of a sandbox, and return whether it is complete. A sandbox deleted meanwhile lacks nothing."""
        try:
            act(*arguments)
        except RuntimeCallFailed as failure:
            if arguments[-1].exists():
                self.is_partial = True
                self.missing.append(f"not all of sandbox {name} is in it: {failure}")
            return False
        return True

    def _shadow(self, writer: BackupWriter, host: Path, folder: Path) -> None:
        place = beside(folder)
        if not place.is_dir():
            return
        with held(place):
            _add_folder(writer, place, f"sandboxes/{host.name}/{place.name}")

    def _sandbox(self, writer: BackupWriter, host: Path, folder: Path) -> None:
        name = f"sandboxes/{host.name}/{folder.name}"
        try:
            mode = folder.stat().st_mode & 0o777
            logs = sorted(one.name for one in folder.iterdir() if _LOG.fullmatch(one.name))
        except OSError as error:
            raise RuntimeCallFailed(f"{folder}: {error.strerror}") from error
        writer.add(Member(name.encode(), MemberKind.DIRECTORY, mode))
        for log in logs:
            try:
                descriptor = os.open(folder / log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                continue  # it was rotated meanwhile
            _add_file(writer, f"{name}/{log}", descriptor, os.fstat(descriptor).st_size)
            os.close(descriptor)
        if (folder / "work").is_dir():
            _add_folder(writer, folder / "work", f"{name}/work")

    def _commands(self, writer: BackupWriter, folder: Path) -> None:
        with closing(self._aof_files(folder / AOF)) as found:
            for file in found.files:
                _add_file(writer, f"{AOF}/{file.name}", file.descriptor, file.size)
            writer.file(f"{AOF}/{_MANIFEST}", "".join(f"{line}\n" for line in found.lines).encode())

    def _aof_files(self, folder: Path) -> _AofFiles:
        """Return the files, each with its size between two commands. Raises OSError, NotBackedUp.

        Redis reports the size of all files after each round of commands, and only the last file grows.
        """
        for _ in range(_TRIES):
            before, found = _manifest(folder), _AofFiles()
            try:
                for line in before:
                    name, kind = _manifest_entry(line)
                    if kind != "h":  # history, which a rewrite has replaced
                        found.lines.append(line)
                        file = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                        found.files.append(_AofFile(name, file, 0))
                first = _sizes(found)
                total = int(self._redis.info("persistence").get("aof_current_size", -1))
                sizes = _sizes(found)
                if _manifest(folder) == before and found.files:
                    last = total - sum(sizes[:-1])
                    # Its count is wrong after it has truncated a file at a start. A restored store drops a partial
                    # command itself.
                    sizes[-1] = last if first[-1] <= last <= sizes[-1] else sizes[-1]
                    found.files = [file._replace(size=size) for file, size in zip(found.files, sizes, strict=True)]
                    return found
            except FileNotFoundError:  # a rewrite has removed it
                pass
            except BaseException:
                found.close()
                raise
            found.close()
        raise NotBackedUp(f"the store keeps rewriting its files in {folder}: try again")

    def _snapshot(self, writer: BackupWriter) -> None:
        with snapshot(self._redis) as (size, pieces):
            writer.add(Member(f"{AOF}/{_BASE}".encode(), MemberKind.FILE, 0o600, size=size), pieces)
        writer.file(f"{AOF}/{_FOLLOWING}", b"")
        lines = f"file {_BASE} seq 1 type b\nfile {_FOLLOWING} seq 1 type i\n"
        writer.file(f"{AOF}/{_MANIFEST}", lines.encode())

    def _cold(self, writer: BackupWriter) -> None:
        """Back up the objects of cold conversations.

        An object exists before the store names it, and for an hour longer.
        """
        place = self._config.keeping.cold_place
        if place is None or place.bucket:
            return
        with os.scandir(place.path) as entries:
            for entry in entries:
                if not is_name(entry.name):
                    continue
                try:
                    descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                except FileNotFoundError:
                    continue
                _add_file(writer, f"cold/{entry.name}", descriptor, os.fstat(descriptor).st_size)
                os.close(descriptor)


def _stored_key(data_dir: Path) -> str:
    with suppress(OSError):
        return (data_dir / SECRET_KEY_FILE).read_text().strip()
    return ""


def _hosts(folder: Path) -> list[Path]:
    """Return the folders of hosts that have had a supervisor here."""
    if not folder.is_dir():
        return []
    return sorted(one for one in folder.iterdir() if _HOST.fullmatch(one.name) and (one / ".lock").is_file())


def _sandboxes(host: Path) -> list[Path]:
    return sorted(one for one in host.iterdir() if _SANDBOX.fullmatch(one.name) and one.is_dir())


def _manifest(folder: Path) -> list[str]:
    return [line for line in (folder / _MANIFEST).read_text().splitlines() if line.strip()]


def _sizes(found: _AofFiles) -> list[int]:
    return [os.fstat(file.descriptor).st_size for file in found.files]


def _manifest_entry(line: str) -> tuple[str, str]:
    """Return the name and the type of a file in a line of the manifest."""
    words = line.split()
    members = dict(zip(words[::2], words[1::2], strict=False))
    return members["file"], members.get("type", "i")


def _add_file(writer: BackupWriter, name: str, descriptor: int, size: int) -> None:
    """Add `size` bytes of an open file, padded with zeros if it has become shorter."""
    writer.add(Member(name.encode(), MemberKind.FILE, 0o600, size=size), _content(descriptor, size))


def _content(descriptor: int, size: int) -> Iterator[bytes]:
    at = 0
    while at < size:
        piece = os.pread(descriptor, min(PIECE, size - at), at) or bytes(min(PIECE, size - at))
        at += len(piece)
        yield piece


def _add_folder(writer: BackupWriter, folder: Path, name: str) -> None:
    """Add a folder with its contents below a name. Raises RuntimeCallFailed."""
    reader, prefix = TarReader(pack(folder)), name.encode()
    for member in reader.members():
        path = _below(prefix, member.name)
        target = _below(prefix, member.target) if member.kind is MemberKind.HARDLINK else member.target
        inner = Member(path, member.kind, member.mode, member.mtime, member.size, target)
        writer.add(inner, reader.content(member))


def _below(prefix: bytes, name: bytes) -> bytes:
    """Return the full name of a packed member, whose name begins with `./` or is the folder itself."""
    inner = b"/".join(word for word in name.split(b"/") if word not in (b"", b"."))
    return prefix + b"/" + inner if inner else prefix
