"""LOG_FORMAT=json on a real server: every line is one object that names its request, and none holds a secret.

For people a record is one line, whatever is in it. At a terminal that is the default.
"""

import io
import json
import logging
import os
import re
import sys
from contextlib import suppress
from datetime import datetime
from uuid import uuid4

import psutil
import pytest

from settings import ConfigError
from settings.config import Config
from telemetry.logs import JsonLines, TextLines, say
from tests.servers import agent_server, runs, store_server, supervised_server, wait_until
from tests.sockets import socket

KEY = "planted-key-of-the-settings"
JSON = {"LOG_FORMAT": "json", "GUNICORN_CMD_ARGS": "--access-logfile -"}
MEMBERS = {"time", "level", "logger", "process", "message"}
ABOUT = {"request_id", "conversation_id", "method", "route"}


def lines_of(path) -> list[dict]:
    """The lines of a log, all of which are JSON; those about who did what are left out."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if "key_id" not in line]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """The log of a server with two workers, a client with its key, its Redis, and its master process."""
    folder = tmp_path_factory.mktemp("json")
    log = folder / "log"
    with (
        store_server(folder) as (url, redis),
        agent_server(log, "tests.apps:failing_app()", REDIS_URL=url, SESSION_API_KEY=KEY, **JSON) as server,
    ):
        server[0].headers["Authorization"] = f"Bearer {KEY}"
        yield log, *server, redis


def line_of(log, **members) -> dict:
    """The line with these members, as soon as it is there."""

    def found() -> list[dict]:
        return [line for line in lines_of(log) if members.items() <= line.items()]

    wait_until(found, f"a line with {members}")
    [line] = found()
    return line


@pytest.mark.faults("starts a server that these tests share, and kills a worker and the store")
def test_a_line_of_the_access_log_names_request_conversation_route_and_duration(running):
    log, client, *_ = running
    conversation = client.post("/api/conversations", json={}).json()["id"]

    client.get(f"/api/conversations/{conversation}", headers={"X-Request-Id": "request-1"}, params={"x": "planted"})

    line = line_of(log, request_id="request-1")
    route = "/api/conversations/{conversation_id}"
    assert line.keys() == {*MEMBERS, *ABOUT, "status", "duration_ms"}
    assert re.fullmatch(r"2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"])
    assert (line["logger"], line["level"], line["status"]) == ("gunicorn.access", "info", 422)
    assert (line["method"], line["route"], line["conversation_id"]) == ("GET", route, conversation)
    assert 0 < line["duration_ms"] < 20_000


@pytest.mark.faults("starts a server that these tests share, and kills a worker and the store")
def test_a_request_whose_path_is_none_of_ours_shows_nothing_of_it(running):
    log, client, *_ = running

    client.request("PLANTED", "/planted/path", headers={"X-Request-Id": "request-2"})

    line = line_of(log, request_id="request-2")
    assert (line["method"], line["route"], line["conversation_id"], line["status"]) == (None, None, None, 404)


@pytest.mark.faults("starts a server that these tests share, and kills a worker and the store")
def test_an_error_that_nobody_foresaw_is_one_line_with_its_traceback_and_its_request(running):
    log, client, *_ = running
    conversation = str(uuid4())
    failure = f"two words of ws://host/?session_api_key={KEY}"

    path = f"/api/conversations/{conversation}/events/count"
    response = client.get(path, headers={"X-Request-Id": "request-3", "Fail": failure})

    assert response.status_code == 500
    line = line_of(log, request_id="request-3", level="error")
    assert response.json()["error_id"] in line["message"]
    assert "Traceback" in line["exception"]
    assert "\n" in line["exception"]
    assert "RuntimeError: two words of ws://host/?session_api_key=***" in line["exception"]
    assert (line["conversation_id"], line["route"]) == (
        conversation,
        "/api/conversations/{conversation_id}/events/count",
    )


@pytest.mark.faults("starts a server that these tests share, and kills a worker and the store")
def test_a_socket_and_a_killed_worker_leave_lines_of_json(running):
    log, client, master, _ = running
    conversation = client.post("/api/conversations", json={}).json()["id"]
    with socket(client, conversation, session_api_key=KEY) as listener:
        listener.receive()

    psutil.Process(master.pid).children()[0].kill()

    wait_until(lambda: any("SIGKILL" in line["message"] for line in lines_of(log)), "the line about the worker")
    assert all(line.keys() >= MEMBERS for line in lines_of(log))


@pytest.mark.faults("starts a server that these tests share, and kills a worker and the store")
def test_a_store_that_is_away_is_a_warning_with_its_request(running):
    log, client, _, redis = running
    conversation = str(uuid4())
    redis.kill()
    redis.wait()

    client.get(f"/api/conversations/{conversation}", headers={"X-Request-Id": "request-4"})

    line = line_of(log, request_id="request-4", level="warning")
    assert line["conversation_id"] == conversation
    assert "store unavailable" in line["message"]
    assert KEY not in log.read_text()
    assert "planted" not in log.read_text()


@pytest.mark.process("starts a server of its own")
def test_embedded_store_supervisor_and_their_restarts_write_json_too(tmp_path):
    settings = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data"), "LOG_LEVEL": "debug", **JSON}
    with supervised_server(tmp_path, **settings) as (_, master):
        log = tmp_path / "log"
        wait_until(lambda: any(line["logger"] == "supervisor" for line in lines_of(log)), "a supervisor")
        for process in psutil.Process(master.pid).children(recursive=True):
            if runs(process, "supervisor"):
                process.kill()
        wait_until(lambda: any("restart in" in line["message"] for line in lines_of(log)), "its restart")
    assert all(line.keys() >= MEMBERS for line in lines_of(log))


@pytest.mark.process("starts a server of its own")
def test_no_line_has_a_key_that_the_start_makes_or_the_token_of_a_link(tmp_path):
    settings = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data"), "AUTH": "keys", "LOG_LEVEL": "debug", **JSON}
    with agent_server(tmp_path / "log", **settings) as (client, _):
        client.get("/approvals/planted-token?x=1")

    wait_until(lambda: "GET /approvals/***" in (tmp_path / "log").read_text(), "the line about the link")
    assert "planted-token" not in (tmp_path / "log").read_text()
    assert (tmp_path / "data" / "key").read_text().strip() not in (tmp_path / "log").read_text()
    assert any(str(tmp_path / "data" / "key") in line["message"] for line in lines_of(tmp_path / "log"))


def test_another_format_is_refused():
    with pytest.raises(ConfigError, match="LOG_FORMAT must be auto, json or text, not 'xml'"):
        Config.of(log_format="xml")


def test_a_record_is_one_line_whose_keys_are_masked_and_whose_fields_are_members():
    try:
        raise ValueError(f"two\nlines of ws://host/?session_api_key={KEY}")
    except ValueError:
        failed = sys.exc_info()
    record = logging.LogRecord("x", logging.WARNING, "", 0, "%s\nin %d s", ("/x?ticket=hush", 3), failed)
    record.fields = {"route": "/x"}

    text = JsonLines().format(record)

    line = json.loads(text)
    assert "\n" not in text
    assert line.keys() == {*MEMBERS, "exception", "route"}
    assert (line["level"], line["logger"], line["process"]) == ("warning", "x", os.getpid())
    assert (line["message"], line["route"]) == ("/x?ticket=***\nin 3 s", "/x")
    assert line["exception"].endswith("session_api_key=***")
    assert KEY not in text


class LogScreen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def formatted(message: str, exc_info=None, stream=None, **fields) -> str:
    record = logging.LogRecord("supervisor", logging.WARNING, __file__, 1, "%s", (message,), exc_info)
    record.fields = fields
    return TextLines("supervisor", stream or io.StringIO()).format(record)


def test_a_message_with_line_ends_and_escape_codes_is_one_plain_line():
    line = formatted("said:\r\n[1] [supervisor] forged\x1b[31m red\x1b]0;title\x07\x00", name="a\nb\x1b[1m\u00ad")
    begin, _, rest = line.partition(" ")
    assert datetime.fromisoformat(begin).tzinfo
    assert rest == "warning supervisor: said: [1] [supervisor] forged red  name=a b\\u{ad}"


def test_a_terminal_shows_the_time_in_colours_unless_it_or_the_person_has_none(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = formatted("waits", stream=LogScreen(), request_id="r-1")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = formatted("waits", stream=LogScreen(), request_id="r-1")

    assert re.fullmatch(r"\d\d:\d\d:\d\d warning supervisor: waits  request_id=r-1", plain)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured)[8:] == plain[8:]
    assert "\x1b[33mwarning\x1b[0m" in coloured
    assert "\x1b[2mrequest_id=r-1\x1b[0m" in coloured


def test_no_line_of_a_traceback_looks_like_a_log_record():
    try:
        raise ValueError("oh\n[1] [supervisor] forged\x1b[31m")
    except ValueError:
        lines = formatted("failed", sys.exc_info()).splitlines()

    assert lines[0].endswith(" warning supervisor: failed")
    assert all(line.startswith("    ") for line in lines[1:])
    assert "    [1] [supervisor] forged" in lines


@pytest.mark.parametrize("is_json", [False, True])
def test_a_sentence_that_nobody_can_read_raises_nothing(monkeypatch, is_json):
    monkeypatch.setenv("LOG_FORMAT", "json" if is_json else "text")
    reading, writing = os.pipe()
    os.close(reading)
    for broken in (open(writing, "w"), open("/dev/full", "w")):  # noqa: SIM115, PTH123
        monkeypatch.setattr(sys, "stderr", broken)
        say("a sentence")
        with suppress(OSError):
            broken.close()
        say("one more, to what is closed")
