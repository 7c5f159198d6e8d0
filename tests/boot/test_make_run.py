"""`make run` in a terminal: Ctrl-C ends the server and everything that it has started."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from runtimes.tree import MARK
from tests.servers import PROJECT, free_port, program, valkey_program, wait_until
from tests.v1 import WireApi

pytestmark = pytest.mark.process("starts the server as make run does")


@contextlib.contextmanager
def made(folder: Path, **environment: str):
    """`make run` in a process group of its own, as a shell starts it; a client, and the process of make."""
    valkey_program()
    port = str(free_port())
    settings = {"REDIS_URL": "", "DATA_DIR": str(folder), "PORT": port, "WEB_CONCURRENCY": "2"}
    url, alone = f"http://127.0.0.1:{port}", {"Connection": "close"}  # an open connection delays the end of a server
    with (folder / "log").open("wb") as log, httpx.Client(base_url=url, headers=alone, timeout=20) as client:
        process = subprocess.Popen(
            [
                program("make"),
                "--old-file=.venv/run",
                "run",
            ],  # packages that are installed here are not installed again
            cwd=PROJECT,
            env={**os.environ, **settings, "PATH": str(folder), **environment},  # no redis-server is on the PATH
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_until(lambda: client.get("/ready").status_code == 200, "the server")
            yield client, process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            process.wait(60)


def started_in(folder: Path) -> list[int]:
    """Every living process whose environment names a folder: as its DATA_DIR, or as that of a sandbox."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
            paths = (environment.get("DATA_DIR", ""), environment.get(MARK, ""))
            if process.status() != psutil.STATUS_ZOMBIE and any(path.startswith(str(folder)) for path in paths):
                found.append(process.pid)
    return found


@contextlib.contextmanager
def emptied(folder: Path) -> Iterator[Path]:
    """A folder, whose processes end with the block."""
    try:
        yield folder
    finally:
        for pid in started_in(folder):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with emptied(tmp_path_factory.mktemp("run")) as folder:
        yield folder


def interrupt(process: subprocess.Popen) -> None:
    """As a terminal does for Ctrl-C."""
    os.killpg(process.pid, signal.SIGINT)
    process.wait(60)


@pytest.fixture(scope="module")
def interrupted(folder):
    """`make run`, a sandbox in it, and Ctrl-C: the address, what /ready responded, and the processes that are left."""
    with made(folder) as (client, process):
        WireApi(client).running_sandbox()
        ready = client.get("/ready").json()
        interrupt(process)
    return client.base_url, ready, [psutil.Process(pid).cmdline() for pid in started_in(folder)]


def test_ctrl_c_ends_the_server_its_store_and_its_sandboxes(folder, interrupted):
    url, ready, left = interrupted

    assert ready["store"] == {"kind": "valkey", "durable": True, "durability": "fsync"}
    assert f"agent-server: open {url}" in (folder / "log").read_text()
    assert left == []


@pytest.mark.process("starts the server a second time")
def test_ctrl_c_leaves_the_sandboxes_where_settings_say_so(tmp_path):
    with emptied(tmp_path):
        with made(tmp_path, STOP_SANDBOXES="0") as (client, process):
            WireApi(client).running_sandbox()
            interrupt(process)
        assert started_in(tmp_path)
