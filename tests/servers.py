"""Real processes for tests: stores, and the whole server.

The store of a test is the Valkey of the wheel, which the set-up installs, unless the test is about another one. A
program that a machine lacks is skipped at home and fails where CI is set: never silently absent.
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
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from redis import Redis

from boot.embedded import wheel_program
from store.link.connection import connect
from tests.quick import known_ports, shared

PROJECT = Path(__file__).parent.parent

#: hides what the tests install and a server does without: each of its processes would load it
ABSENT = PROJECT / "tests" / "absent"

#: settings of a server whose sandboxes are containers: nothing is hidden from it
WITH_DOCKER = {"PYTHONPATH": ""}

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
            known_ports.add(port)
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
    """The path of redis-server, for what is about this program; skips the test where there is none, fails it in CI."""
    return program("redis-server")


def valkey_program() -> str:
    """The path of the wheel's valkey-server. Where no wheel is for this system, a redis-server stands in."""
    return wheel_program() or redis_program()


def wait_until(ready, event: str, *, seconds: float = TIMEOUT) -> None:
    """Wait until a call returns a true value; an exception counts as false.

    Also in a quick test, which may not sleep: it waits for a reader that the tests of its process share.
    """
    pause = threading.Event()  # that nobody sets
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            if ready():
                return
        pause.wait(0.05)
    pytest.fail(f"{event}: not within {seconds} s")


def answers(redis: Redis, process: subprocess.Popen | None = None) -> Callable[[], bool]:
    """Whether a server answers, or its process has ended; the client keeps no connection between two questions."""

    def ask() -> bool:
        if process and process.poll() is not None:
            return True
        with redis:
            return bool(redis.ping())

    return ask


def runs(process: psutil.Process, word: str) -> bool:
    """Whether a word stands on a process's command line; one that has ended has none."""
    try:
        return word in process.cmdline()
    except psutil.NoSuchProcess:  # also of a zombie: the server starts and ends programs meanwhile
        return False


@contextlib.contextmanager
def running(command: list[str], **options) -> Iterator[subprocess.Popen]:
    """A process that ends with the block, and its pipes with it."""
    with subprocess.Popen(command, cwd=PROJECT, **options) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def store_server(folder: Path, program: str = "", *options: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """A store with an append-only file; its URL and its process. program: of the server, the wheel's by default."""
    path = folder / "redis.sock"
    words = ["--port", "0", "--unixsocket", str(path), "--dir", str(folder), "--appendonly", "yes", "--save", ""]
    with contextlib.ExitStack() as stack:
        with shared():
            command = [program or valkey_program(), *words, *options]
            process = stack.enter_context(running(command, stdout=subprocess.DEVNULL))
            wait_until(answers(Redis(unix_socket_path=str(path), retry=None), process), "the store")
        assert process.poll() is None, f"the store has ended with status {process.returncode}"
        yield f"unix://{path}", process


@contextlib.contextmanager
def fakeredis_server(_folder: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """fakeredis on a port, as the embedded store serves it."""
    port = free_port()
    with running([sys.executable, "-m", "store.link.fake", str(port)]) as process:
        wait_until(answers(Redis(port=port, retry=None)), "fakeredis")
        yield f"redis://127.0.0.1:{port}", process


#: the server ends a connection that was idle for 5 s: a client that takes it in that moment gets no response
FRESH = httpx.Limits(keepalive_expiry=1)


@contextlib.contextmanager
def agent_server(
    log: Path, app: str = "app:create_app()", **environment: str
) -> Iterator[tuple[httpx.Client, subprocess.Popen]]:
    """The whole server with two workers, started by the README's command; a client for it and its master process."""
    port = environment.get("PORT") or str(free_port())
    environment = {
        "PYTHONPATH": str(ABSENT),
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
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, limits=FRESH) as client,
    ):
        wait_until(lambda: client.get("/alive").status_code == 200, "the server")
        yield client, process


@contextlib.contextmanager
def supervised_server(folder: Path, **environment: str) -> Iterator[tuple[httpx.Client, subprocess.Popen]]:
    """The whole server with its supervisor, on a store of its own; its sandboxes end with it.

    It has one worker, half as much to start: what is about several asks for them by WEB_CONCURRENCY.
    """
    with contextlib.ExitStack() as stack:
        if "REDIS_URL" not in environment:
            environment["REDIS_URL"], _ = stack.enter_context(store_server(folder))
        settings = {
            "SUPERVISOR": "1",
            "WEB_CONCURRENCY": "1",
            "STOP_SANDBOXES": "1",
            "DATA_DIR": str(folder),
            "SECRET_KEY": "a key for tests only",
            **environment,
        }
        running_server = stack.enter_context(agent_server(folder / "log", **settings))
        if url := environment["REDIS_URL"]:  # the embedded store has an address of its own
            redis = connect(url, timeout=10, max_connections=1).commands
            stack.callback(redis.close)
            wait_until(lambda: redis.zcard("{sandboxes}:hosts"), "its supervisor")
        yield running_server
