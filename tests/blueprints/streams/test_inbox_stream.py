"""The stream of all pending actions, on real servers: endings first, then what a client gets."""

import re
import signal
import socket
from contextlib import suppress
from itertools import takewhile
from urllib.parse import urlencode
from uuid import uuid4

import httpx
import pytest

from tests.conftest import action, status
from tests.servers import TIMEOUT, agent_server, wait_until
from tests.sockets import inbox_of
from tests.test_access import bearer

STREAM = "/api/v1/pending-actions/stream"


@pytest.fixture
def propose(conversation):
    """Have actions wait in the test's conversation, by way of a server; returns their ids."""

    def propose(client, *commands, **members) -> list[str]:
        policy = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
        client.post("/api/conversations", json=policy).raise_for_status()
        actions = [action(command, **members) for command in commands]
        events = [*actions, status("waiting_for_confirmation")]
        client.post(f"/api/v1/webhooks/events/{conversation}", json=events).raise_for_status()
        return [one["id"] for one in actions]

    return propose


def until_ready(events) -> list[tuple]:
    """The events before `ready`, and it."""
    return [*takewhile(lambda event: event[0] != "ready", events), ("ready", {}, "")]


def made_key(client) -> tuple[str, str]:
    made = client.post("/api/v1/keys", json={"name": "reader", "scopes": ["read"]}).json()
    return made["id"], made["key"]


# endings


def test_a_stream_pauses_while_the_store_is_away_and_goes_on(store, server, conversation, propose):
    with inbox_of(server, params={"conversation_id": conversation}) as events:
        until_ready(events)

        store[2].send_signal(signal.SIGSTOP)
        wait_until(lambda: server.get("/ready").status_code == 503, "the loss of the store")
        store[2].send_signal(signal.SIGCONT)
        wait_until(lambda: server.get("/ready").status_code == 200, "the store")
        [one] = propose(server, "ls")

        assert [(name, data["action_id"]) for name, data, _ in [next(events)]] == [("opened", one)]


def test_a_store_that_is_away_refuses_a_stream_before_it_begins(store, server):
    store[2].send_signal(signal.SIGSTOP)
    try:
        refused = server.get(STREAM)
    finally:
        store[2].send_signal(signal.SIGCONT)
    wait_until(lambda: server.get("/ready").status_code == 200, "the store")

    assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)


def test_a_revoked_key_ends_its_streams_and_no_other(keyed, conversation, propose):
    identity, key = made_key(keyed)
    with (
        inbox_of(keyed, params={"conversation_id": conversation}) as other,
        inbox_of(keyed, headers=bearer(key)) as events,
    ):
        until_ready(events), until_ready(other)

        keyed.delete(f"/api/v1/keys/{identity}").raise_for_status()

        assert list(events) == []
        propose(keyed, "ls")
        assert next(other)[0] == "opened"


def test_one_key_has_so_many_streams_and_a_client_that_leaves_gives_its_place_back(keyed):
    _, key = made_key(keyed)
    with inbox_of(keyed, headers=bearer(key)) as events:
        until_ready(events)
        refused = keyed.get(STREAM, headers=bearer(key))

    assert (refused.status_code, "MAX_FOLLOWERS_PER_KEY" in refused.json()["detail"]) == (429, True)

    def has_room():
        with inbox_of(keyed, headers=bearer(key)) as again:
            return until_ready(again)

    wait_until(has_room, "the place of the client that left")


def test_a_stopping_server_ends_its_streams_which_resume_at_another(store, server, conversation, propose):
    folder, url, _ = store
    with agent_server(folder / "stops", REDIS_URL=url, GRACEFUL_TIMEOUT="60") as (client, process):
        with client.stream("GET", STREAM, params={"conversation_id": conversation}, timeout=TIMEOUT) as response:
            lines = response.iter_lines()
            assert next(lines) == "retry: 1000"
            [last] = re.findall("id: (.*)", next(line for line in lines if line.startswith("id: ")))

            process.terminate()

            with suppress(httpx.RemoteProtocolError):
                assert not [line for line in lines if line.startswith("event: ") and line != "event: ready"]
        process.wait(50)  # less than requests would get

    ids = propose(server, "one", "two")
    with inbox_of(server, params={"conversation_id": conversation}, headers={"Last-Event-ID": last}) as events:
        assert [(name, data["action_id"]) for name, data, _ in [next(events), next(events)]] == [
            ("opened", one) for one in ids
        ]


def test_a_stream_that_begins_while_the_worker_ends_asks_the_browser_to_reconnect(client, app, monkeypatch):
    monkeypatch.setattr(app.extensions["store"].followers, "_stopping", True)

    response = client.get(STREAM)

    assert (response.status_code, response.data) == (200, b"retry: 1000\n\n")


def test_a_client_that_reads_nothing_is_dropped_and_resumes(store, server, conversation, propose):
    folder, url, _ = store
    settings = {"REDIS_URL": url, "WEB_CONCURRENCY": "1", "FOLLOWER_BYTES": "65536"}
    query = {"conversation_id": conversation}
    with agent_server(folder / "slow", **settings) as (client, _), socket.socket() as slow:
        slow.settimeout(TIMEOUT)
        slow.connect((client.base_url.host, client.base_url.port))
        slow.sendall(f"GET {STREAM}?{urlencode(query)} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        read = b""
        while b"event: ready" not in read or not read.endswith(b"\n\n"):
            read += slow.recv(1024)

        # When another client takes more than the server keeps, and than the connection holds
        ids = []
        with inbox_of(client, params=query) as quick:
            until_ready(quick)
            for number in range(100):
                ids += propose(client, str(number % 10) * 150_000)
                assert next(quick)[1]["action_id"] == ids[-1]

        # Then the slow client's stream ends, and goes on after the last change that it received
        while chunk := slow.recv(1 << 20):
            read += chunk
    whole, _, _ = read.rpartition(b"\n\n")
    received = re.findall(rb'"action_id": "([^"]*)"', whole)
    assert len(received) < len(ids)
    last = {"Last-Event-ID": re.findall(rb"id: (\S+)\n", whole)[-1].decode()}
    with inbox_of(server, params=query, headers=last) as events:
        rest = [next(events)[1]["action_id"] for _ in ids[len(received) :]]
    assert [*(one.decode() for one in received), *rest] == ids


# what a client gets


def test_a_stream_has_the_headers_and_lines_that_a_browser_expects(server, conversation, propose):
    [one] = propose(server, "ls")

    with server.stream("GET", STREAM, params={"conversation_id": conversation}) as response:
        lines = [line for line, _ in zip(response.iter_lines(), range(11), strict=False)]

    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert response.headers["Cache-Control"] == "no-store"
    assert lines[:5] == ["retry: 1000", "", "event: reset", 'data: {"reason": "new"}', ""]
    assert lines[5] == "event: snapshot"
    assert one in lines[6]
    assert (lines[8], re.fullmatch(r"id: \d+-\d+", lines[9]) is None, lines[10]) == ("event: ready", False, "data: {}")


def test_a_quiet_stream_is_kept_open_by_comments(server, conversation):
    with server.stream("GET", STREAM, params={"conversation_id": conversation}) as response:
        comment = next(line for line in response.iter_lines() if line.startswith(":"))

    assert re.fullmatch(r": \d+-\d+", comment)


@pytest.mark.parametrize("place", [{"headers": {"Last-Event-ID": "1-1"}}, {"params": {"last_event_id": "1-1"}}])
def test_a_client_whose_place_is_no_longer_held_is_told_so_and_gets_a_snapshot(server, propose, place):
    propose(server, "ls")

    with inbox_of(server, **place) as events:
        assert next(events) == ("reset", {"reason": "dropped"}, "")
        assert next(events)[0] == "snapshot"


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"headers": {"Last-Event-ID": "x"}}, ["header", "Last-Event-ID"]),
        ({"params": {"last_event_id": "1"}}, ["query", "last_event_id"]),
        ({"params": {"conversation_id": "x"}}, ["query", "conversation_id"]),
        ({"params": {"security_risk": "SOME"}}, ["query", "security_risk"]),
        ({"params": {"tag": "=x"}}, ["query", "tag"]),
    ],
)
def test_an_invalid_place_or_filter_is_refused(server, options, place):
    refused = server.get(STREAM, **options)

    assert (refused.status_code, refused.json()["detail"][0]["loc"]) == (422, place)


def test_a_ticket_without_a_conversation_opens_the_stream_once_and_nothing_else(keyed, conversation):
    def ticket(**about):
        return {"ticket": keyed.post("/api/v1/tickets", json=about).raise_for_status().json()["ticket"]}

    with httpx.Client(base_url=keyed.base_url, timeout=TIMEOUT) as browser:
        opened = ticket()
        with inbox_of(browser, params=opened) as events:
            assert next(events)[0] == "reset"
        assert browser.get(STREAM, params=opened).status_code == 401
        assert browser.get(STREAM, params=ticket(conversation_id=str(uuid4()))).status_code == 403
        log = f"/api/conversations/{conversation}/events/stream"
        assert browser.get(log, params=ticket()).status_code == 403
        assert browser.get("/api/v1/pending-actions", params=ticket()).status_code == 401
