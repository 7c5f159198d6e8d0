"""The embedded store belongs to one start: it ends with it, its data outlive it, and nobody else may have them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.conftest import message, recorded
from tests.servers import PROJECT, agent_server, redis_program, wait_until


@pytest.fixture(autouse=True)
def _needs_redis_server():
    redis_program()


def commands() -> dict[int, tuple[int, str]]:
    """Every process: its parent and its command line."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(process.name)] = (parent, command)
    return found


def processes_of(folder: Path) -> list[int]:
    """The embedded store's own process for a folder, while it runs."""
    return [pid for pid, (_, command) in commands().items() if "-m boot.embedded" in command and str(folder) in command]


def redis_of(folder: Path) -> int:
    """The redis-server of the embedded store."""
    [supervisor] = processes_of(folder)
    [redis] = children_of(supervisor)
    return redis


def children_of(parent: int) -> list[int]:
    return [pid for pid, (its_parent, _) in commands().items() if its_parent == parent]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_data_outlive_the_start_and_its_store_does_not(tmp_path, conversation):
    environment = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data")}
    with agent_server(tmp_path / "log", **environment) as (client, _):
        client.post(f"/api/v1/webhooks/events/{conversation}", json=recorded("never_confirm"))
        redis = redis_of(tmp_path)
    assert not is_running(redis)
    assert processes_of(tmp_path) == []

    with agent_server(tmp_path / "log", **environment) as (client, _):
        assert client.get(f"/api/conversations/{conversation}/events/count").json() == 84


def test_two_starts_on_one_folder_are_refused_in_a_sentence(tmp_path):
    environment = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data")}
    with agent_server(tmp_path / "log", **environment) as (client, _):
        second = subprocess.run(
            [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"],
            cwd=PROJECT,
            env={**os.environ, **environment, "PORT": "1"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert second.returncode != 0
        assert f"DATA_DIR {tmp_path / 'data'} is in use by another start of this server" in second.stderr
        assert "Traceback" not in second.stderr
        assert client.get("/ready").status_code == 200


def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    start = subprocess.run(
        [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"],
        cwd=PROJECT,
        env={**os.environ, "REDIS_URL": "", "DATA_DIR": str(tmp_path / "file" / "data"), "PORT": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert start.returncode != 0
    assert f"DATA_DIR {tmp_path / 'file' / 'data'} cannot be used" in start.stderr


def test_the_store_ends_when_the_master_is_killed(tmp_path):
    with agent_server(tmp_path / "log", REDIS_URL="", DATA_DIR=str(tmp_path / "data")) as (_, master):
        redis = redis_of(tmp_path)
        master.send_signal(signal.SIGKILL)
        wait_until(lambda: not is_running(redis) and not processes_of(tmp_path), "the end of the store")


def test_a_killed_redis_comes_back_with_everything_acknowledged(tmp_path, conversation):
    with agent_server(tmp_path / "log", REDIS_URL="", DATA_DIR=str(tmp_path / "data")) as (client, _):
        acknowledged, url = 0, f"/api/v1/webhooks/events/{conversation}"
        for round_ in range(3):
            for _ in range(20):
                acknowledged += client.post(url, json=[message(f"round {round_}")]).is_success
            os.kill(redis_of(tmp_path), signal.SIGKILL)
            wait_until(lambda: client.get("/ready").status_code == 200, "the store")

        assert acknowledged == 60
        assert client.get(f"/api/conversations/{conversation}/events/count").json() == 60
        assert client.get(f"/api/conversations/{conversation}/events/count", params={"body": "ROUND 2"}).json() == 20


def test_a_killed_worker_is_replaced_and_nothing_acknowledged_is_lost(tmp_path, conversation):
    with agent_server(tmp_path / "log", REDIS_URL="", DATA_DIR=str(tmp_path / "data")) as (client, master):
        url, sent, acknowledged = f"/api/v1/webhooks/events/{conversation}", [], []
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            batch = [message("x"), message("y")]
            sent.append(batch)
            if len(sent) % 200 == 0:
                [*_, worker] = [pid for pid in children_of(master.pid) if pid not in processes_of(tmp_path)]
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            try:
                if client.post(url, json=batch).is_success:
                    acknowledged += batch
            except httpx.TransportError:
                continue
        wait_until(lambda: client.get("/ready").status_code == 200, "the server")

        stored = set()
        page_id = ""
        while page_id is not None:
            page = client.get(f"/api/conversations/{conversation}/events/search", params={"page_id": page_id}).json()
            stored |= {event["id"] for event in page["items"]}
            page_id = page["next_page_id"]
        assert {event["id"] for event in acknowledged} <= stored
        for batch in sent:  # all of a batch, or nothing
            assert len(stored & {event["id"] for event in batch}) in (0, 2)
