"""Real starts: whether a key is needed, and what becomes of one that the server makes."""

import contextlib
import errno
import io
import json
import logging
import os
import re
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from boot.posture import make_key, settle
from telemetry.logs import KeysMasked, masked
from tests.servers import PROJECT, agent_server, fakeredis_server, free_port

LINK = re.compile(r"agent-server: open http://127\.0\.0\.1:(\d+)/console/#key=(\S+)\n")
KEY = "a-key-for-tests-only"


@pytest.fixture(scope="module")
def one_redis(tmp_path_factory):
    with fakeredis_server(tmp_path_factory.mktemp("redis")) as (url, _):
        yield url


@pytest.fixture
def start(one_redis, tmp_path):
    """Start a server on DATA_DIR `tmp_path/data`; a client, and what it has logged since its start."""
    log = tmp_path / "log"

    @contextlib.contextmanager
    def started(**environment):
        begin = log.stat().st_size if log.exists() else 0
        settings = {"REDIS_URL": one_redis, "DATA_DIR": str(tmp_path / "data"), "WEB_CONCURRENCY": "1", **environment}
        with agent_server(log, **settings) as (client, _):
            yield client, lambda: log.read_bytes()[begin:].decode()

    return started


def refused(**environment) -> str:
    """What a start says that ends before anything listens."""
    command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"]
    settings = {**os.environ, "SUPERVISOR": "0", **environment}
    start = subprocess.run(command, cwd=PROJECT, env=settings, capture_output=True, text=True, timeout=60)
    assert start.returncode != 0
    return start.stderr


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in [folder, *folder.rglob("*")]}


@pytest.mark.process("starts a server of its own")
def test_a_start_on_loopback_is_open_and_makes_no_key(start, tmp_path):
    with start() as (client, said):
        assert client.get("/api/conversations/search").status_code == 200
        assert "No key is needed: the server listens on this machine alone" in said()
        assert f"agent-server: open http://127.0.0.1:{client.base_url.port}/\n" in said()
        assert client.get("/alive", headers={"Host": "evil"}).status_code == 421
    assert not (tmp_path / "data" / "key").exists()


@pytest.mark.process("starts a server of its own")
def test_a_start_on_a_network_makes_a_key_and_shows_it_once_with_the_link_that_uses_it(start, tmp_path):
    key_file = tmp_path / "data" / "key"
    with start(HOST="0.0.0.0") as (client, said):
        port, key = LINK.search(said()).groups()
        assert int(port) == client.base_url.port
        assert key_file.read_text() == key + "\n"
        assert len(key) >= 43  # 256 bits
        assert said().count("agent-server: open ") == 1
        assert client.get("/alive", headers={"Host": "any.example"}).status_code == 200  # a key protects, not the name
    assert modes(key_file.parent) == {0}

    with start(HOST="0.0.0.0") as (client, said):
        assert "A key is needed." in said()
        assert f"agent-server: open http://127.0.0.1:{client.base_url.port}/\n" in said()
        assert key not in said()
    assert key_file.read_text() == key + "\n"


@pytest.mark.process("starts a server of its own")
def test_a_start_with_a_key_makes_none(start, tmp_path):
    with start(HOST="0.0.0.0", SESSION_API_KEY=KEY) as (_, said):
        assert "A key is needed." in said()
        assert KEY not in said()
    assert not (tmp_path / "data" / "key").exists()


@pytest.mark.process("starts a server of its own")
def test_keys_are_made_on_loopback_too_where_they_are_asked_for(start):
    with start(AUTH="keys") as (_, said):
        assert LINK.search(said())


@pytest.mark.process("starts a server of its own")
def test_an_address_of_the_command_line_counts(start):
    port = str(free_port())
    with start(PORT=port, GUNICORN_CMD_ARGS=f"--bind 0.0.0.0:{port}") as (_, said):
        assert LINK.search(said())


@pytest.mark.process("starts a server of its own")
def test_an_open_server_on_a_network_is_warned_about(start, tmp_path):
    with start(HOST="0.0.0.0", AUTH="open") as (client, said):
        assert re.search(
            r"warning agent-server: .*NO KEY IS NEEDED, AND EVERYONE WHO REACHES 0\.0\.0\.0:\d+ MAY DO EVERYTHING",
            said(),
        )
        assert client.get("/api/conversations/search").status_code == 200
        assert client.get("/alive", headers={"Host": "192.168.0.1:8000"}).status_code == 421
    assert not (tmp_path / "data" / "key").exists()


@pytest.mark.process("runs gunicorn until it gives up")
def test_a_short_key_is_refused_and_not_shown():
    said = refused(SESSION_API_KEY="x" * 15).strip()

    assert said.startswith("agent-server: SESSION_API_KEY must have from 16 to 512 characters, ")
    assert "x" * 15 not in said


@pytest.mark.process("starts a server of its own")
def test_a_start_whose_key_cannot_be_kept_is_refused(one_redis, tmp_path):
    (tmp_path / "file").write_text("no folder")

    settings = {"REDIS_URL": one_redis, "DATA_DIR": f"{tmp_path}/file/data", "SECRET_KEY": "a key for tests only"}
    said = refused(HOST="0.0.0.0", PORT=str(free_port()), **settings)

    assert "agent-server: a key is needed, but cannot be stored in" in said
    assert "Traceback" not in said


@pytest.mark.process("starts a server of its own")
def test_nobody_else_can_read_a_key_file_after_a_start(start, tmp_path):
    key_file = tmp_path / "data" / "key"
    key_file.parent.mkdir()
    key_file.write_text(KEY)
    key_file.chmod(0o644)

    with start() as (_, said):
        assert "A key is needed." in said()
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600


@pytest.mark.faults("a race of threads")
def test_servers_that_start_at_once_make_one_key(tmp_path):
    path, made, read = tmp_path / "data" / "key", [], []

    def begin():
        made.append(make_key(path))
        read.append(path.read_text())

    threads = [threading.Thread(target=begin) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(made) == [False] * 15 + [True]
    assert len(set(read)) == 1
    assert len(read[0]) > 43
    assert [one.name for one in path.parent.iterdir()] == ["key"]


def test_a_key_that_is_made_begins_with_no_dash(tmp_path):
    for number in range(20):
        make_key(path := tmp_path / str(number) / "key")
        assert path.read_text().strip().isalnum()


OUTCOMES = [
    ("auto", ("127.0.0.1", 1), False, "open", False),
    ("auto", ("::1", 1), False, "open", False),
    ("auto", "/run/server.sock", False, "open", False),
    ("auto", ("127.0.0.1", 1), True, "keys", False),
    ("auto", ("127.0.0.1", 1), None, "auto", False),
    ("auto", ("0.0.0.0", 1), None, "keys", True),
    ("keys", ("127.0.0.1", 1), None, "keys", True),
    ("auto", ("0.0.0.0", 1), False, "keys", True),
    ("auto", ("::", 1), False, "keys", True),
    ("auto", ("10.0.0.1", 1), False, "keys", True),
    ("auto", 3, False, "keys", True),
    ("auto", ("0.0.0.0", 1), True, "keys", False),
    ("keys", ("127.0.0.1", 1), False, "keys", True),
    ("keys", ("127.0.0.1", 1), True, "keys", False),
    ("open", ("0.0.0.0", 1), True, "open", False),
]


def test_every_line_of_the_table_holds(tmp_path):
    log = logging.getLogger("nowhere")
    for number, (auth, address, has_keys, outcome, is_made) in enumerate(OUTCOMES):
        key_file = tmp_path / str(number)
        found = settle(auth, [("127.0.0.1", 1), address], key_file, has_keys=has_keys, log=log)
        assert (found, key_file.exists()) == (outcome, is_made), (auth, address, has_keys)


@pytest.mark.parametrize(
    ("has_keys", "words"),
    [
        (True, "AUTH=open: keys are set or stored, AND NONE IS CHECKED"),
        (False, "AUTH=open: no key is needed"),
        (None, "AUTH=open: no key is needed"),
    ],
)
def test_a_server_that_is_open_by_its_setting_says_that_no_key_is_checked(tmp_path, caplog, has_keys, words):
    with caplog.at_level(logging.INFO, "open"):
        settle("open", [("127.0.0.1", 1)], tmp_path / "key", has_keys=has_keys, log=logging.getLogger("open"))

    assert words in caplog.text
    assert "Unset AUTH" in caplog.text
    assert "SESSION_API_KEY" not in caplog.text


def test_a_key_is_made_beside_stored_ones_that_are_no_admins(tmp_path, capsys):
    key_file, log = tmp_path / "key", logging.getLogger("nowhere")
    open_, settled = (
        settle(auth, [("127.0.0.1", 1)], key_file, has_keys=True, has_admin=False, log=log) for auth in ("open", "auto")
    )

    assert (open_, settled, key_file.exists()) == ("open", "keys", True)
    told = capsys.readouterr().err
    assert f"A key is needed and no stored key is a valid admin key: one was made in {key_file}" in told
    assert f"/console/#key={key_file.read_text().strip()}" in told


ADDRESSES = [
    ([("127.0.0.1", 8000)], "http://127.0.0.1:8000/"),
    ([("0.0.0.0", 80)], "http://127.0.0.1:80/"),
    ([("::", 8000)], "http://[::1]:8000/"),
    ([("::1", 8000)], "http://[::1]:8000/"),
    ([("10.0.0.1", 8000)], "http://10.0.0.1:8000/"),
    (["/run/server.sock", ("localhost", 8000)], "http://localhost:8000/"),
    (["/run/server.sock"], None),
    ([3], None),
]


class Broken(io.StringIO):
    """A standard error that takes nothing."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def write(self, _text: str) -> int:
        raise self._error


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), ValueError("closed file")])
def test_a_start_makes_its_key_where_nobody_takes_what_it_prints(tmp_path, monkeypatch, error):
    monkeypatch.setattr(sys, "stderr", Broken(error))

    settled = settle("keys", [("127.0.0.1", 1)], tmp_path / "key", has_keys=False, log=logging.getLogger("nowhere"))

    assert settled == "keys"
    assert (tmp_path / "key").exists()


def test_a_start_prints_the_address_that_a_browser_of_this_machine_opens(tmp_path, capsys):
    for addresses, url in ADDRESSES:
        settle("open", addresses, tmp_path / "key", has_keys=False, log=logging.getLogger("nowhere"))

        said = capsys.readouterr().err
        assert said.endswith(f" agent-server: open {url}\n") if url else said == ""


@pytest.mark.parametrize("name", ["session_api_key", "session%5Fapi_key", "ticket", "%74icket"])
def test_a_key_in_a_url_is_masked_in_logs(name):
    url = f"GET /sockets/events/x?after_seq=1&{name}=hush-hush&with=y HTTP/1.1"

    assert masked(url) == f"GET /sockets/events/x?after_seq=1&{name}=*** HTTP/1.1".replace("***", "***&with=y")
    assert masked(f"{name}=hush-hush") == f"{name}=***"
    assert masked("/x?my_ticket=1&tickets=2") == "/x?my_ticket=1&tickets=2"


def test_a_masked_record_keeps_the_rest_of_its_text():
    record = logging.LogRecord("x", logging.INFO, "", 0, "%s in %d s", ("/x?ticket=hush-hush", 3), None)

    assert KeysMasked().filter(record)
    assert record.getMessage() == "/x?ticket=*** in 3 s"


@pytest.mark.process("starts a server of its own")
def test_an_access_log_that_is_turned_on_shows_no_key(start):
    with start(GUNICORN_CMD_ARGS="--access-logfile - --log-level debug") as (client, said):
        path = "/sockets/events/5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0001?session_api_key=hush-hush&ticket=hush-hush"
        assert client.get(path, headers={"Referer": f"http://localhost{path}"}).status_code == 426
        with socket.create_connection(("127.0.0.1", client.base_url.port), timeout=10) as connection:
            connection.sendall(f"GET {path} nonsense HTTP/1.1\r\n\r\n".encode())  # gunicorn logs such a line itself
            assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")
        assert "session_api_key=***&ticket=***" in said()
        assert "hush" not in said()


@pytest.mark.process("starts a server of its own")
def test_the_server_names_no_version_of_its_parts(start):
    with start() as (client, _):
        assert not re.search(r"\d", client.get("/alive").headers["Server"])
        assert json.loads(client.get("/alive").text) == {"status": "ok"}
