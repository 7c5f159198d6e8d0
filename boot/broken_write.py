"""Tells an incomplete last write of an append-only file from damage before other writes.

A Redis that truncates its file cannot tell them apart: a damaged length makes a command seem to reach beyond the end,
and all acknowledged writes after it would be lost too. Standard library only.
"""

import mmap
import re
import subprocess
from pathlib import Path

#: Output of the checker about a file.
_CHECKED = re.compile(r"AOF analyzed: filename=(\S+), size=\d+, ok_up_to=(\d+), ok_up_to_line=\d+, diff=(\d+)")

#: Timeout of a check, in seconds. It reads the whole file and executes nothing.
_CHECK_TIMEOUT = 600

_HEADER = re.compile(rb"\*(\d{1,10})\r\n")
_LENGTH = re.compile(rb"\$(\d{1,20})\r\n")
_NEXT = re.compile(rb"\r\n\*[1-9]\d{0,9}\r\n\$[1-9]\d{0,9}\r\n")


def broke_off(folder: Path, program: str) -> bool:
    """Return whether a server would truncate a single write from the files of a folder. Changes nothing."""
    manifests = list(folder.glob("*.manifest"))
    name = Path(program).name.replace("-server", "-check-aof")  # the checker beside the server
    try:
        told = subprocess.run(
            [name, *map(str, manifests)],
            executable=program,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CHECK_TIMEOUT,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    found = [(path, int(start)) for path, start, rest in _CHECKED.findall(told) if int(rest)]
    if len(found) != 1:
        return False
    [(path, start)] = found
    with (folder / path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return is_one_write(content, start)


def is_one_write(content: bytes | mmap.mmap, start: int) -> bool:
    """Return whether the bytes after `start` begin a single command or transaction."""
    end, at = _end(content, start), start
    if end is not None and _name(content, start) != b"MULTI":
        return False
    while end is not None:
        if _name(content, at) == b"EXEC":
            return False
        at, end = end, _end(content, end)
    # Text of a client that looks like a command counts as one: the server then refuses to start, and truncates nothing
    return _NEXT.search(content, at) is None


def _end(content: bytes | mmap.mmap, at: int) -> int | None:
    """Return where a command ends; None if the file ends first."""
    header = _HEADER.match(content, at)
    if header is None:
        return None
    at = header.end()
    for _ in range(int(header[1])):
        length = _LENGTH.match(content, at)
        if length is None:
            return None
        at = length.end() + int(length[1]) + len(b"\r\n")
        if at > len(content):
            return None
    return at


def _name(content: bytes | mmap.mmap, at: int) -> bytes:
    """Return the first word of a complete command."""
    header = _HEADER.match(content, at)
    length = _LENGTH.match(content, header.end()) if header else None
    return content[length.end() : length.end() + int(length[1])].upper() if length else b""
