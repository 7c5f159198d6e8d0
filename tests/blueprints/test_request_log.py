"""Request ids, and the lines about requests that write: who did what, and nothing that must not be logged."""

import json
import logging
from uuid import uuid4

import pytest
from flask import g

from blueprints.request_log import is_for_people
from core.access import Principal
from tests.conftest import message
from tests.servers import wait_until
from tests.sockets import socket

#: planted wherever a client can put something
PLANTED = "planted-7f3a9c"

ALICE = Principal("alice's key", "k-1", frozenset({"admin"}))


@pytest.fixture
def lines():
    """The audit lines so far, each parsed."""

    class KeptLines(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    found, logger, handler = [], logging.getLogger("request_log"), KeptLines()
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


@pytest.fixture
def named(app, monkeypatch):
    """Every request is asked by ALICE."""
    functions = app.before_request_funcs[None]
    monkeypatch.setitem(app.before_request_funcs, None, [*functions, lambda: setattr(g, "principal", ALICE)])


def test_every_response_bears_a_request_id_of_its_own(client, conversation):
    responses = [
        client.get("/alive"),
        client.get("/nope"),
        client.post("/api/conversations", data="{"),
        client.put("/alive"),
    ]

    ids = [response.headers["X-Request-Id"] for response in responses]
    assert len(set(ids)) == 4
    assert all(len(one) == 32 for one in ids)


@pytest.mark.parametrize("own", ["trace-1", "A.b_c-9", "x" * 64])
def test_a_clients_own_request_id_is_taken_over(client, own):
    assert client.get("/alive", headers={"X-Request-Id": own}).headers["X-Request-Id"] == own


def test_a_request_id_of_another_form_is_replaced(client):
    for own in ("", "x" * 65, "a b", "é", 'a"b', "<script>"):
        assert client.get("/alive", headers={"X-Request-Id": own}).headers["X-Request-Id"] not in ("", own)


def test_a_request_that_writes_is_one_line_of_json(client, conversation, lines, named):
    url = f"/api/conversations/{conversation}"
    client.post("/api/conversations", json={"conversation_id": conversation}, headers={"X-Request-Id": "trace-1"})
    client.patch(url, json={"title": "new"})
    client.get(url)

    created, changed = map(json.loads, lines)
    assert created["time"].endswith("Z")
    assert created["ms"] >= 0
    assert {name: created[name] for name in ("request_id", "key", "key_id", "address", "method", "path", "status")} == {
        "request_id": "trace-1",
        "key": "alice's key",
        "key_id": "k-1",
        "address": "127.0.0.1",
        "method": "POST",
        "path": "/api/conversations",
        "status": 201,
    }
    assert (changed["method"], changed["path"], changed["status"]) == ("PATCH", url, 200)


def test_a_refused_request_is_a_line_too(client, lines, conversation):
    client.post("/api/conversations", data="{", content_type="application/json")
    client.delete(f"/api/conversations/{conversation}")
    client.put("/alive")
    client.post("/nope")

    assert [json.loads(line)["status"] for line in lines] == [422, 404, 405, 404]
    assert [json.loads(line)["path"] for line in lines][2:] == [None, None]


def test_a_request_that_the_guard_refuses_is_a_line_of_nobody(app, client, lines, monkeypatch):
    monkeypatch.setitem(app.before_request_funcs, None, [lambda: ("no", 401)])
    response = client.post("/api/conversations")

    [line] = map(json.loads, lines)
    assert (line["status"], line["key"], line["key_id"]) == (401, "nobody", "")
    assert response.headers["X-Request-Id"] == line["request_id"]


def test_a_terminal_shows_no_webhook_of_a_sandbox_that_succeeds(app, client, conversation, lines, store, caplog):
    store.sandboxes.beat("logged", "supervisor")
    sandbox = store.sandboxes.start("spec", host="logged")
    key = {"Authorization": f"Bearer {store.sandboxes.begin(sandbox.id, 'logged', 'supervisor', 'process')}"}
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
    path = f"/api/v1/webhooks/{sandbox.id}/events/{conversation}"

    refused = client.post(path, json={}, headers=key).status_code
    taken = client.post(path, json=[message("done", "agent")], headers=key).status_code
    client.post("/api/conversations", json={})

    statuses = [record.line["status"] for record in caplog.records if hasattr(record, "line")]
    shown = [record.line["status"] for record in caplog.records if hasattr(record, "line") and is_for_people(record)]
    assert (refused, taken < 400) == (422, True)
    assert statuses == [refused, taken, 201]
    assert shown == [refused, 201]
    assert len(lines) == 3  # as JSON


def test_no_line_holds_what_a_client_planted(client, conversation, lines):
    headers = {
        "Authorization": f"Bearer {PLANTED}",
        "X-Session-API-Key": PLANTED,
        "X-Request-Id": f"{PLANTED}\t",
        "Idempotency-Key": f"{PLANTED} {uuid4()}",
        "Referer": PLANTED,
        "User-Agent": PLANTED,
    }
    planted = {"headers": headers, "query_string": {"session_api_key": PLANTED, "page_id": PLANTED}}
    url = f"/api/conversations/{conversation}"

    client.post("/api/conversations", json={"conversation_id": conversation, "title": PLANTED}, **planted)
    client.post(f"{url}/events", json={"content": [{"type": "text", "text": PLANTED}]}, **planted)
    client.post(f"{url}/secrets", json={"secrets": {PLANTED: PLANTED}}, **planted)
    client.post(f"/api/v1/sandboxes/{PLANTED}/pause", **planted)
    client.delete(f"/api/v1/sandboxes/{PLANTED}", **planted)
    client.post(f"/api/v1/webhooks/{PLANTED}/conversations", json={"id": PLANTED}, **planted)
    client.post(f"/api/conversations/{PLANTED}/run", **planted)
    client.post(f"/{PLANTED}", **planted)

    assert len(lines) == 8
    assert PLANTED not in "".join(lines)


def test_no_name_of_a_key_can_forge_a_line(app, client, lines, monkeypatch):
    forged = Principal('x"}\n{"key": "root"}\r\u2028\x1b[2J', "k")
    functions = app.before_request_funcs[None]
    monkeypatch.setitem(app.before_request_funcs, None, [*functions, lambda: setattr(g, "principal", forged)])

    client.post("/api/conversations")

    [line] = lines
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["key"] == forged.name


def test_the_log_of_an_error_names_the_request_and_not_its_path(app, client, monkeypatch, caplog):
    def fail(*_args, **_options):
        raise RuntimeError("inner")

    monkeypatch.setattr(type(app.extensions["server"].store.sandboxes), "ask", fail)
    response = client.post(f"/api/v1/sandboxes/{PLANTED.replace('-', 'x')}/pause")

    assert response.status_code == 500
    assert response.headers["X-Request-Id"] in caplog.text
    assert response.get_json()["error_id"] in caplog.text
    assert PLANTED.replace("-", "x") not in caplog.text.replace(repr(fail), "")


@pytest.mark.process("asks a real server")
def test_a_socket_bears_an_id_and_each_message_that_writes_is_a_line(server, backend, conversation):
    server.post("/api/conversations", json={"conversation_id": conversation})
    with socket(server, conversation) as follower:
        handshake = follower.connection.response.headers["X-Request-Id"]
        follower.send({"role": "user", "content": PLANTED})
        follower.send("{")
        follower.receive_until(kind="ServerErrorEvent")
    path, log = f"/sockets/events/{conversation}", backend[0] / "log"

    def lines() -> list[dict]:
        found = [json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"time"')]
        return [line for line in found if line["method"] == "SOCKET" and line["path"] == path]

    wait_until(lambda: len(lines()) == 2, "the lines")
    sent, refused = lines()
    assert (sent["status"], refused["status"]) == ("sent", "refused")
    assert sent["request_id"] == refused["request_id"] == handshake
    assert PLANTED not in log.read_text()
