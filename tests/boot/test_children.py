"""What keeps the supervisor and the embedded store is started again when it ends, and a server that cannot ends."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

from boot import children
from boot.children import Child, TooManyRestarts
from boot.embedded import EmbeddedStore, main
from store.link.connection import connect
from tests.boot.test_embedded import ids_of, write_until
from tests.servers import agent_server, runs, supervised_server, wait_until

pytestmark = pytest.mark.process("starts programs and waits for their end")


def child(code: str) -> Child:
    return Child("the child", [sys.executable, "-S", "-c", code])


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(children, "_SHORTEST_DELAY", 0.01)
    monkeypatch.setattr(children, "_LONGEST_DELAY", 0.02)


@pytest.mark.usefixtures("quick")
def test_a_child_that_keeps_ending_is_restarted_so_often_and_then_refused_with_its_reason(capsys):
    one = child("""print('{"error": "it has no disk"}')""")

    def look_until_it_is_refused() -> None:
        while True:
            one.look()
            time.sleep(0.01)

    with pytest.raises(TooManyRestarts) as refused:
        look_until_it_is_refused()
    one.stop()

    assert str(refused.value) == (
        "the child has been restarted 6 times within 60 s, and has ended again: it has no disk"
    )
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 6
    assert said[0].endswith("agent-server: the child has ended: it has no disk. Restart in 0.01 s")


@pytest.mark.usefixtures("quick")
def test_a_child_is_known_to_have_ended_whoever_took_its_exit_status():
    """gunicorn's master takes those of all its children."""
    one = child("import sys; sys.stdin.read()")
    first = one._process.pid
    one.look()
    assert one._process.pid == first

    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)

    def is_restarted() -> bool:
        one.look()
        return one._process.pid != first

    wait_until(is_restarted, "the next one")
    one.stop()


def test_the_socket_of_a_store_that_was_killed_is_not_taken_from_another_user(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("boot.embedded.signal.signal", lambda *_: None)
    before = os.umask(0)
    (tmp_path / "private").mkdir(mode=0o777)
    try:
        assert main(str(tmp_path / "data"), 0, f"unix://{tmp_path}/private/store.sock") == 1
    finally:
        os.umask(before)
    assert "private is not a folder of this user alone" in capsys.readouterr().out


def test_a_store_that_is_restarted_has_its_data_at_its_address(tmp_path):
    store = EmbeddedStore(str(tmp_path), 0)
    clients = connect(store.url, timeout=10, max_connections=1)
    clients.commands.set("key", "kept")
    first = store._process.pid
    os.kill(first, signal.SIGKILL)

    def is_back() -> bool:
        store.look()
        return store._process.pid != first and clients.commands.get("key") == b"kept"

    wait_until(is_back, "the next store")
    store.stop()
    assert not Path(store.url.removeprefix("unix://")).parent.exists()


def kept_by(master: subprocess.Popen) -> dict[str, psutil.Process]:
    """The master's own children, by the modules that they run."""
    found = psutil.Process(master.pid).children()
    return {name: one for name in ("boot.keeper", "boot.embedded") for one in found if runs(one, name)}


@pytest.mark.faults("kills the processes that keep the others")
@pytest.mark.parametrize("killed", [["boot.keeper"], ["boot.embedded"], ["boot.keeper", "boot.embedded"]])
def test_what_keeps_the_others_comes_back_when_it_is_killed_and_nothing_acknowledged_is_lost(
    tmp_path, conversation, killed
):
    with supervised_server(tmp_path, REDIS_URL="", WEB_CONCURRENCY="2", HOST_SECONDS="2") as (client, master):
        stopped, acknowledged = threading.Event(), []
        words = (stopped, str(client.base_url), conversation, acknowledged)
        writer = threading.Thread(target=write_until, args=words)
        writer.start()
        for _ in range(2):
            before, known = len(acknowledged), kept_by(master)
            wait_until(lambda: len(acknowledged) >= before + 20, "twenty events more")  # noqa: B023
            for name in killed:
                known[name].kill()

            def are_back() -> bool:
                found = kept_by(master)
                return all(found[name].pid != known[name].pid for name in killed)  # noqa: B023

            wait_until(are_back, "the next ones")
        wait_until(lambda: len(acknowledged) >= before + 40, "twenty events more")
        stopped.set()
        writer.join()

        found = ids_of(client, conversation)
        assert len(found) == len(set(found)) == client.get(f"/api/conversations/{conversation}/events/count").json()
        assert set(acknowledged) <= set(found)
        wait_until(lambda: client.get("/ready").json() | {"store": 0} == READY, "the supervisor")
        sandbox = client.post("/api/v1/sandboxes").json()["id"]
        wait_until(lambda: statuses(client, sandbox) == ["RUNNING"], "a sandbox")
    for name in killed:
        assert f"{NAMES[name]} has ended unexpectedly. Restart in " in (tmp_path / "log").read_text()


READY = {"status": "ready", "store": 0, "notice": None}
NAMES = {"boot.keeper": "the keeper of the supervisor", "boot.embedded": "the embedded store"}


def statuses(client: httpx.Client, sandbox: str) -> list[str]:
    return [one["status"] for one in client.get("/api/v1/sandboxes", params={"id": sandbox}).json()]


@pytest.mark.faults("waits until a server gives up its store")
def test_a_server_whose_store_cannot_be_restarted_ends_with_the_reason(tmp_path):
    with agent_server(tmp_path / "log", REDIS_URL="", WEB_CONCURRENCY="1") as (_, master):
        kept_by(master)["boot.embedded"].kill()
        lock = os.open(tmp_path / "lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)  # as another program that takes the folder
        assert master.wait(180) == 1
        os.close(lock)
    log = (tmp_path / "log").read_text()
    assert "Reason: the embedded store has been restarted 6 times within 60 s, and has ended again: DATA_DIR" in log
    assert "is in use by another start of this server" in log


@pytest.mark.process("starts a server of its own")
def test_the_supervisor_ends_before_its_store_after_a_reload_too(tmp_path):
    with supervised_server(tmp_path, REDIS_URL="") as (client, master):
        log, before = tmp_path / "log", kept_by(master)
        master.send_signal(signal.SIGHUP)
        wait_until(lambda: log.read_text().count("Booting worker") == 2, "the next worker")
        wait_until(lambda: client.get("/ready").status_code == 200, "the server")
        assert kept_by(master).keys() == before.keys()
    assert "store does not answer" not in log.read_text()
