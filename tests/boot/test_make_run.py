"""`make run` in a terminal: Ctrl-C ends the server and everything that it has started."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import httpx
import psutil
import pytest

from runtimes.tree import MARK
from tests.servers import PROJECT, free_port, program, valkey_program, wait_until
from tests.v1 import Api


@contextlib.contextmanager
def made(folder: Path, **environment: str):
    """`make run` in a process group of its own, as a shell starts it; a client, and the process of make."""
    valkey_program()
    port = str(free_port())
    settings = {"REDIS_URL": "", "DATA_DIR": str(folder), "PORT": port, "WEB_CONCURRENCY": "2"}
    with (folder / "log").open("wb") as log, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
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


@pytest.fixture
def without_sandboxes(tmp_path):
    """End every process that the test leaves."""
    yield
    for pid in started_in(tmp_path):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("leave", [False, True], ids=["by default", "STOP_SANDBOXES=0"])
def test_ctrl_c_ends_sandboxes_unless_settings_leave_them(tmp_path, without_sandboxes, leave):
    with made(tmp_path, **({"STOP_SANDBOXES": "0"} if leave else {})) as (client, process):
        assert client.get("/ready").json()["store"] == {"kind": "valkey", "durable": True, "durability": "fsync"}
        assert f"agent-server: open {client.base_url}" in (tmp_path / "log").read_text()
        Api(client).running_sandbox()

        os.killpg(process.pid, signal.SIGINT)  # as a terminal does for Ctrl-C
        process.wait(60)

    left = started_in(tmp_path)
    assert bool(left) is leave, [psutil.Process(pid).cmdline() for pid in left]
