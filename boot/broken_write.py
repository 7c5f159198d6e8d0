"""The end of an append-only file that a server finds unfinished: one write that broke off, or damage before writes.

A server that cuts its file takes both for the same: a damaged length makes a command seem to reach beyond the end, and
all that was acknowledged after it would be cut too.

Only the standard library stands here, as in `boot/embedded.py`.
"""

import mmap
import re
import subprocess
from pathlib import Path

#: what the program says of a file when it checks it
_CHECKED = re.compile(r"AOF analyzed: filename=(\S+), size=\d+, ok_up_to=(\d+), ok_up_to_line=\d+, diff=(\d+)")

#: seconds for a check, which reads the whole file and runs none of it
_CHECK_TIMEOUT = 600

_HEADER = re.compile(rb"\*(\d{1,10})\r\n")
_LENGTH = re.compile(rb"\$(\d{1,20})\r\n")
_NEXT = re.compile(rb"\r\n\*[1-9]\d{0,9}\r\n\$[1-9]\d{0,9}\r\n")


def broke_off(folder: Path, program: str) -> bool:
    """Whether what a server would cut of the files in a folder is one write. Reads them; changes nothing."""
    manifests = list(folder.glob("*.manifest"))
    name = Path(program).name.replace("-server", "-check-aof")  # by which the server's program checks files
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
    """Whether what stands after `start` is the beginning of one command, or of one transaction."""
    end, at = _end(content, start), start
    if end is not None and _name(content, start) != b"MULTI":
        return False
    while end is not None:
        if _name(content, at) == b"EXEC":
            return False
        at, end = end, _end(content, end)
    # Text of a client that looks like a command counts as one: the server then refuses to start, and cuts nothing
    return _NEXT.search(content, at) is None


def _end(content: bytes | mmap.mmap, at: int) -> int | None:
    """Where the command that begins there ends; None where the file ends before it."""
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
    """The first word of a complete command."""
    header = _HEADER.match(content, at)
    length = _LENGTH.match(content, header.end()) if header else None
    return content[length.end() : length.end() + int(length[1])].upper() if length else b""
