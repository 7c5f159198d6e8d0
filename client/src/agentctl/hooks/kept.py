"""Reports of calls that the server has not taken: they are kept in a file, and sent by a process that a hook leaves.

Without them the record would lack what ran while the server restarted, also what had been refused.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from agentctl.hooks.asking import REQUESTS
from agentctl.hooks.away import state
from agentctl.hooks.behind import is_left_behind
from agentctl.hooks.wire import Away, RequestRefused, ServerConnection

REPORTS = f"{REQUESTS}/reports"

#: Maximum number of bytes of the file. A report beyond it is lost.
_MOST_BYTES = 4 << 20

#: Seconds for which a report is kept, for which the process tries, and between two attempts.
_KEPT, _TRIES, _PAUSE = 600.0, 120.0, 2.0


def keep(body: dict[str, Any], once: str) -> None:
    """Keep a report. once: its Idempotency-Key, also of an attempt whose response was lost."""
    line = json.dumps({"at": time.time(), "once": once, "body": body}).encode() + b"\n"
    with suppress(OSError), _opened() as file:
        if os.fstat(file).st_size + len(line) <= _MOST_BYTES:
            os.lseek(file, 0, os.SEEK_END)
            os.write(file, line)


def send_behind(server: ServerConnection) -> None:
    """Leave a process behind that sends what is kept, unless nothing is or another one does."""
    with suppress(OSError):
        if not state("hooks-reports").exists() or not state("hooks-reports").stat().st_size:
            return
        lock = os.open(state("hooks-reports.sender"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_left_behind():
                _send(server.again(), lock)
                os._exit(0)
        finally:
            os.close(lock)


def _send(server: ServerConnection, lock: int) -> None:
    deadline = time.monotonic() + _TRIES
    while time.monotonic() < deadline:
        with _opened() as file:
            first = _lines(file)[:1]
            if not first:
                fcntl.flock(lock, fcntl.LOCK_UN)  # whoever keeps another one from now on sends it
                return
        try:
            report = json.loads(first[0])
            if report["at"] > time.time() - _KEPT:
                server.call("POST", REPORTS, report["body"], once=report["once"])
        except (RequestRefused, ValueError, KeyError, TypeError):
            pass
        except Away:
            time.sleep(_PAUSE)
            continue
        with _opened() as file:
            rest = b"".join(_lines(file)[1:])
            os.ftruncate(file, 0)
            os.pwrite(file, rest, 0)


@contextmanager
def _opened() -> Iterator[int]:
    """The file, which no other process changes meanwhile. Raises OSError."""
    path = state("hooks-reports")
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _lines(file: int) -> list[bytes]:
    """The whole lines of the file: a process that was killed may have left a part of one."""
    text = os.pread(file, _MOST_BYTES, 0)
    return [one for one in text.splitlines(keepends=True) if one.endswith(b"\n") and one.startswith(b"{")]
