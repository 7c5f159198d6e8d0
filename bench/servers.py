"""Servers of this run's own: a private Redis and gunicorn on a free loopback port, ended by their process id."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

_ROOT = Path(__file__).parent.parent

#: seconds in which a server must respond, and in which it must end after a SIGTERM
_START_TIMEOUT, _STOP_TIMEOUT = 60.0, 10.0


@contextmanager
def redis_server(*, durable: bool = False) -> Iterator[str]:
    """A private Redis; yields its URL. durable: an append-only file, synced before each reply, as the embedded one."""
    program = shutil.which("redis-server")
    if program is None:
        sys.exit("bench: redis-server is not on the PATH")
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder:
        path = f"{folder}/redis.sock"
        durability = ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
        command = [program, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder, *durability]
        with process(command, Path(folder), {}, lambda: _redis_answers(path)):
            yield f"unix://{path}"


@contextmanager
def gunicorn(app: str, redis_url: str, workers: int = 1, **others: str) -> Iterator[int]:
    """Workers of an app callable under the server's own gunicorn settings, and others given; yields its port."""
    port = free_port()
    settings = {
        "REDIS_URL": redis_url,
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "WEB_CONCURRENCY": str(workers),
        "LOG_LEVEL": "warning",
        "SUPERVISOR": "0",
        "AUTH": "open",
        **others,
    }
    command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", app]
    with (
        tempfile.TemporaryDirectory(prefix="bench-gunicorn-") as folder,
        process(command, Path(folder), settings, lambda: http_answers(port)),
    ):
        yield port


@contextmanager
def process(
    command: list[str],
    folder: Path,
    settings: dict[str, str],
    answers: Callable[[], bool],
    seconds: float = _START_TIMEOUT,
) -> Iterator[None]:
    """A process that ends with the block; its log is in the folder. Raises RuntimeError unless it answers in time."""
    log = folder / "log"
    with log.open("ab") as output:
        started = subprocess.Popen(
            command, cwd=_ROOT, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + seconds
        while not answers():
            if started.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command)} did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield
    finally:
        started.terminate()
        try:
            started.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def free_port() -> int:
    """A port that no process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _redis_answers(path: str) -> bool:
    try:
        with Redis(unix_socket_path=path, socket_timeout=1) as client:
            return bool(client.ping())
    except RedisError:
        return False


def http_answers(port: int) -> bool:
    """Whether a server responds at all; a 404 counts."""
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as client:
            client.sendall(b"GET /alive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return client.recv(16).startswith(b"HTTP/1.1")
    except OSError:
        return False
