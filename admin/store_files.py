"""Checks that the files of a store only contain commands that write data.

A store executes its append-only files at each start. So a malicious file could open a port (`CONFIG SET`), follow
another server (`REPLICAOF`) or load a program (`MODULE`). A file may begin with a snapshot, which only contains data.
Nothing may follow the snapshot in its file, because the store would execute it.
"""

import mmap
import re
import subprocess
from pathlib import Path

from admin.backup_file import BackupDamaged
from boot.embedded import release
from core.cuts import beginning
from core.visible import visible

#: Commands that write data, as both programs write them to their files.
_WRITES = frozenset(
    (
        b"APPEND BITFIELD BITOP COPY DECR DECRBY DEL EXPIRE EXPIREAT FLUSHALL FLUSHDB GEOADD GEORADIUS GEOSEARCHSTORE "
        b"GETDEL GETEX GETSET HDEL HEXPIRE HEXPIREAT HGETDEL HGETEX HINCRBY HINCRBYFLOAT HMSET HPERSIST HPEXPIRE "
        b"HPEXPIREAT HSET HSETEX HSETNX INCR INCRBY INCRBYFLOAT LINSERT LMOVE LMPOP LPOP LPUSH LPUSHX LREM LSET LTRIM "
        b"MSET MSETNX PERSIST PEXPIRE PEXPIREAT PFADD PFMERGE PSETEX RENAME RENAMENX RESTORE RPOP RPOPLPUSH RPUSH "
        b"RPUSHX SADD SDIFFSTORE SET SETBIT SETEX SETNX SETRANGE SINTERSTORE SMOVE SPOP SREM SUNIONSTORE UNLINK XACK "
        b"XADD XAUTOCLAIM XCLAIM XDEL XGROUP XSETID XTRIM ZADD ZDIFFSTORE ZINCRBY ZINTERSTORE ZMPOP ZPOPMAX ZPOPMIN "
        b"ZRANGESTORE ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZUNIONSTORE MULTI EXEC SELECT"
    ).split()
)

#: The only file without commands. It names the others.
_MANIFEST = "appendonly.aof.manifest"

_SNAPSHOT = (b"REDIS", b"VALKEY")
_HEADER, _LENGTH = re.compile(rb"\*([1-9]\d{0,8})\r\n"), re.compile(rb"\$(\d{1,10})\r\n")
_NOTE = re.compile(rb"#[^\r\n]{0,1000}\r\n")

#: Output of the program for a complete snapshot, with the bytes that it has read.
_WHOLE = re.compile(r"\[offset (\d+)\] \\o/ RDB looks OK")

#: Maximum beginning of a command that a crash can leave without the end of its line, in bytes.
_MOST_TORN = 16

#: Timeout of the check of a snapshot, in seconds. It reads the whole file.
_CHECK_SECONDS = 3600


def check(folder: Path, program: str) -> None:
    """Check all files of a store. program: of the server. Raises BackupDamaged for commands that do not just write."""
    for path in sorted(folder.iterdir()):
        if path.name == _MANIFEST or not path.stat().st_size:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[:6].startswith(_SNAPSHOT):
                _check_snapshot(path, program)
            else:
                check_commands(path.name, content)


def check_commands(name: str, content: bytes | mmap.mmap) -> None:
    """Raise BackupDamaged for a command that does more than write data, and for invalid content.

    An incomplete write at the end is left to the server, which refuses or truncates it.
    """
    at, end = 0, len(content)
    while at < end:
        if note := _NOTE.match(content, at):
            at = note.end()
            continue
        begin, header = at, _HEADER.match(content, at)
        at = header.end() if header else at
        for number in range(int(header[1]) if header else 1):
            length = _LENGTH.match(content, at) if header else None
            if length is None:
                if end - at > _MOST_TORN or b"\r\n" in content[at:end]:
                    raise BackupDamaged(f"{name} has no command at byte {begin}")
                return
            stop = length.end() + int(length[1])
            word = content[length.end() : stop].upper() if number == 0 and stop - length.end() <= 32 else b""
            if number == 0 and stop <= end and word not in _WRITES:
                shown = beginning(visible(content[length.end() : stop][:100].decode("latin-1")), 40)
                raise BackupDamaged(f"{name} has the command {shown} at byte {begin}, which does more than write data")
            if content[stop : stop + 2] not in (b"\r\n", b"\r", b""):
                raise BackupDamaged(f"{name} has no command at byte {begin}")
            at = stop + 2
            if at > end:
                return


def _check_snapshot(path: Path, program: str) -> None:
    name = Path(program).name.replace("-server", "-check-rdb")  # the server's program for checking snapshots
    done = subprocess.run(
        [name, str(path)],
        executable=program,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_CHECK_SECONDS,
        check=False,
    )
    whole = _WHOLE.search(done.stdout)
    if whole is None:
        raise BackupDamaged(
            f"{release(program)} does not read {path.name}: install the program that wrote it, or a newer release of it"
        )
    if int(whole[1]) != path.stat().st_size:
        raise BackupDamaged(f"{path.name} goes on after its snapshot, with commands that the store would run")
