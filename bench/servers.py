"""Servers of this run: a private Redis, and gunicorn on a free loopback port, ended by their process id."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import psutil
from flask import Flask, Response, request
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import RedisError

_ROOT = Path(__file__).parent.parent

#: Timeouts of a server's first response, and of its end after a SIGTERM, in seconds.
_START_TIMEOUT, _STOP_TIMEOUT = 60.0, 10.0


@contextmanager
def redis_server(*, most_bytes: int = 0) -> Iterator[str]:
    """Start a private Redis, and yield its URL. most_bytes: its `maxmemory`; 0: unlimited."""
    program = shutil.which("redis-server")
    if program is None:
        sys.exit("bench: redis-server is not on the PATH")
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder:
        path = f"{folder}/redis.sock"
        command = [program, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder, "--appendonly", "no"]
        command += ["--maxmemory", str(most_bytes)]
        with _process(command, Path(folder), {}, lambda: _redis_answers(path)):
            yield f"unix://{path}"


@contextmanager
def gunicorn(app: str, redis_url: str, workers: int = 1, **others: str) -> Iterator[int]:
    """Start an app's workers with the server's gunicorn settings and `others`, and yield the port."""
    port = _free_port()
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
    with _gunicorn(["-c", "gunicorn.conf.py", app], settings, port):
        yield port


@contextmanager
def bare(redis_url: str, workers: int = 1) -> Iterator[int]:
    """Start the bare view with gunicorn's own gevent worker and defaults, and yield the port."""
    port = _free_port()
    # Otherwise gunicorn would read the server's settings file in the folder that it starts in.
    words = ["-c", os.devnull, "-k", "gevent", "-w", str(workers), "-b", f"127.0.0.1:{port}", "--log-level", "warning"]
    with _gunicorn([*words, "bench.servers:bare_app()"], {"REDIS_URL": redis_url}, port):
        yield port


def fill_bare(redis: Redis, conversation_id: str, events: Iterable[bytes]) -> None:
    """Write the events that the bare views count and page."""
    for number, event in enumerate(events):
        with redis.pipeline(transaction=False) as pipe:
            _append(pipe, f"bench:{conversation_id}", f"{number:010d}", number, event)
            pipe.execute()


def _append(pipe: Pipeline, key: str, event_id: str, at: float, event: bytes) -> None:
    pipe.rpush(f"{key}:log", event)
    pipe.hset(f"{key}:seqs", event_id, at)
    pipe.zadd(key, {event_id: at})


def bare_app() -> Flask:
    """Return the minimum in Flask of a count, a page and an append: a pipelined Redis call each, without rules.

    Its Redis is that of REDIS_URL, as for the server. It shares nothing with the server, so that the costs and savings
    of the server's worker, hooks and frozen heap are measured.
    """
    app = Flask(__name__)
    redis = Redis.from_url(os.environ["REDIS_URL"])

    @app.get("/api/conversations/<conversation_id>/events/count")
    def count(conversation_id: str) -> Response:
        key = f"bench:{conversation_id}"
        with redis.pipeline(transaction=False) as pipe:
            pipe.exists(key)
            pipe.zcount(key, "-inf", "+inf")
            _, number = pipe.execute()
        return Response(b"%d" % number, mimetype="application/json")

    @app.get("/api/conversations/<conversation_id>/events/search")
    def page(conversation_id: str) -> Response:
        key = f"bench:{conversation_id}"
        with redis.pipeline(transaction=False) as pipe:
            pipe.exists(key)
            pipe.lrange(f"{key}:log", 0, request.args.get("limit", 100, int) - 1)
            _, events = pipe.execute()
        return Response(b'{"items":[%b]}' % b",".join(events), mimetype="application/json")

    @app.post("/api/v1/webhooks/events/<conversation_id>")
    def append(conversation_id: str) -> Response:
        with redis.pipeline(transaction=False) as pipe:
            for event in request.get_json():
                at = datetime.fromisoformat(event["timestamp"]).timestamp()
                _append(pipe, f"bench:{conversation_id}", event["id"], at, json.dumps(event).encode())
            pipe.execute()
        return Response(b'{"success":true}', mimetype="application/json")

    return app


@contextmanager
def _gunicorn(words: list[str], settings: dict[str, str], port: int) -> Iterator[None]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-gunicorn-") as folder,
        _process([sys.executable, "-m", "gunicorn", *words], Path(folder), settings, lambda: _http_answers(port)),
    ):
        yield


@contextmanager
def _process(command: list[str], folder: Path, settings: dict[str, str], answers: Callable[[], bool]) -> Iterator[None]:
    """Run a process during the block, with its log in the folder. Raises RuntimeError if its start times out."""
    log = folder / "log"
    with log.open("ab") as output:
        started = subprocess.Popen(
            command, cwd=_ROOT, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + _START_TIMEOUT
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


def worker_processes() -> list[psutil.Process]:
    """Return the workers of the only server that this process started, which has no supervisor."""
    [master] = [one for one in psutil.Process().children() if "gunicorn" in " ".join(one.cmdline())]
    workers: list[psutil.Process] = master.children()
    return workers


def forget_peak(pid: int) -> None:
    """Reset the kernel's peak of a process' resident memory. Source: proc_pid_clear_refs(5)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def resident(pid: int, name: str = "VmRSS") -> int:
    """Return a process' resident memory in KiB; `VmHWM`: its peak. Source: proc_pid_status(5)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name)))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _redis_answers(path: str) -> bool:
    try:
        with Redis(unix_socket_path=path, socket_timeout=1) as client:
            return bool(client.ping())
    except RedisError:
        return False


def _http_answers(port: int) -> bool:
    """Return whether a server responds at all; a 404 counts."""
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as client:
            client.sendall(b"GET /alive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return client.recv(16).startswith(b"HTTP/1.1")
    except OSError:
        return False
