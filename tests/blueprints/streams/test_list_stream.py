"""The streams of the lists, on real servers: endings first, then what a client gets."""

import os
import re
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.conftest import message
from tests.servers import TIMEOUT, agent_server, redis_server, wait_until
from tests.sockets import named_events_of
from tests.test_access import bearer

CONVERSATIONS, SANDBOXES = "/api/v1/conversations/stream", "/api/v1/sandboxes/stream"


def conversations(client, **options):
    return named_events_of(client, CONVERSATIONS, **options)


def made(client, **members) -> str:
    return client.post("/api/conversations", json=members).raise_for_status().json()["id"]


def until_ready(events) -> str:
    """The number that `ready` bears."""
    (name, _, identity), ready = next(events), next(events)
    assert (name, identity, ready[0], ready[1]) == ("reset", "", "ready", {})
    return ready[2]


def changed(events, identity: str) -> dict:
    """The next change of an item; those of other items are skipped."""
    return next(data for name, data, _ in events if data.get("id") == identity and name == "changed")


def made_key(client, scope="read") -> tuple[str, str]:
    key = client.post("/api/v1/keys", json={"name": scope, "scopes": [scope]}).json()
    return key["id"], key["key"]


# endings


def test_a_stream_goes_on_when_the_store_was_stopped_for_a_while(store, server):
    with conversations(server) as events:
        until_ready(events)

        store[2].send_signal(signal.SIGSTOP)
        wait_until(lambda: server.get("/ready").status_code == 503, "the loss of the store")
        store[2].send_signal(signal.SIGCONT)
        wait_until(lambda: server.get("/ready").status_code == 200, "the store")

        assert changed(events, made(server, title="Later"))["title"] == "Later"


def test_a_stream_goes_on_when_the_store_was_started_again(tmp_path):
    folder = tmp_path / "redis"
    folder.mkdir()
    url = f"unix://{folder}/redis.sock"
    with redis_server(folder) as (_, process), agent_server(tmp_path / "log", REDIS_URL=url) as (client, _):
        first = made(client, title="First")
        with conversations(client) as events:
            number = until_ready(events)
            process.terminate()
            process.wait(30)
            with redis_server(folder):
                wait_until(lambda: client.get("/ready").status_code == 200, "the store")
                client.patch(f"/api/conversations/{first}", json={"title": "Second"}).raise_for_status()

                assert changed(events, first)["title"] == "Second"
                with conversations(client, headers={"Last-Event-ID": number}) as resumed:
                    assert changed(resumed, first)["title"] == "Second"


def test_a_client_of_a_killed_worker_goes_on_at_another(store, server, tmp_path):
    settings = {"REDIS_URL": store[1], "WEB_CONCURRENCY": "1"}
    with agent_server(tmp_path / "log", **settings) as (client, master), conversations(client) as events:
        number = until_ready(events)
        [worker] = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()
        os.kill(int(worker), signal.SIGKILL)
        with suppress(httpx.RemoteProtocolError):
            assert list(events) == []
    identity = made(server, title="Meanwhile")

    with conversations(server, params={"last_event_id": number}) as events:
        assert changed(events, identity)["title"] == "Meanwhile"


def test_a_stopping_server_ends_its_streams(store, tmp_path):
    settings = {"REDIS_URL": store[1], "GRACEFUL_TIMEOUT": "60"}
    with agent_server(tmp_path / "log", **settings) as (client, process), conversations(client) as events:
        until_ready(events)

        process.terminate()

        with suppress(httpx.RemoteProtocolError):
            assert [name for name, _, _ in events if name != "changed"] == []
        process.wait(50)  # less than requests would get


def test_a_stream_that_begins_while_the_worker_ends_asks_the_browser_to_reconnect(client, app, monkeypatch):
    monkeypatch.setattr(app.extensions["store"].followers, "_stopping", True)

    assert [client.get(path).data for path in (CONVERSATIONS, SANDBOXES)] == [b"retry: 1000\n\n"] * 2


def test_a_revoked_key_ends_its_streams(keyed):
    identity, key = made_key(keyed)
    with conversations(keyed, headers=bearer(key)) as events:
        until_ready(events)

        keyed.delete(f"/api/v1/keys/{identity}").raise_for_status()

        assert list(events) == []


def test_the_streams_of_a_key_count_together(keyed):
    _, key = made_key(keyed)
    with conversations(keyed, headers=bearer(key)) as events:
        until_ready(events)
        refused = keyed.get(SANDBOXES, headers=bearer(key))

    assert (refused.status_code, "MAX_FOLLOWERS_PER_KEY" in refused.json()["detail"]) == (429, True)


def test_a_client_that_reads_nothing_is_ended_and_gets_the_newest_of_each_when_it_resumes(store, server, tmp_path):
    settings = {"REDIS_URL": store[1], "WEB_CONCURRENCY": "1", "FOLLOWER_BYTES": "65536"}
    tags = {f"tag{number}": "x" * 250 for number in range(150)}
    ids = [made(server, tags=tags) for _ in range(100)]
    with agent_server(tmp_path / "log", **settings) as (client, _), socket.socket() as slow:
        slow.settimeout(TIMEOUT)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((client.base_url.host, client.base_url.port))
        slow.sendall(f"GET {CONVERSATIONS} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        read = b""
        while not re.search(rb"event: ready\n.*\n\n", read, re.DOTALL):
            read += slow.recv(1024)
        number = re.findall(rb"id: (\d+)", read)[-1].decode()

        # When another client takes more than the server keeps, and than the connection holds
        with conversations(client) as quick:
            until_ready(quick)
            seen: dict[str, str | None] = {}
            reader = threading.Thread(target=lambda: note_titles(quick, seen), daemon=True)
            reader.start()
            for turn in range(3):
                titles = {one: f"Turn {turn}" for one in ids}
                for one, title in titles.items():
                    client.patch(f"/api/conversations/{one}", json={"title": title}).raise_for_status()
                wait_until(lambda titles=titles: seen == {**seen, **titles}, "the changes at the quick client")

        # Then the slow client's stream ends, and each conversation comes once when it goes on
        while slow.recv(1 << 20):
            pass
    with conversations(server, headers={"Last-Event-ID": number}) as events:
        resumed = [next(events)[1] for _ in ids]
    assert [(item["id"], item["title"]) for item in resumed] == [(one, titles[one]) for one in ids]


def note_titles(events, seen) -> None:
    """Note the title of every change, until the stream ends or is left."""
    with suppress(httpx.HTTPError):
        for _, data, _ in events:
            seen[data["id"]] = data.get("title")


def items(client) -> list[dict]:
    return client.get("/api/v1/conversations/search").raise_for_status().json()["items"]


# what a client gets


def test_a_stream_has_the_headers_and_lines_that_a_browser_expects(server):
    with server.stream("GET", CONVERSATIONS) as response:
        lines = [line for line, _ in zip(response.iter_lines(), range(8), strict=False)]

    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert response.headers["Cache-Control"] == "no-store"
    assert lines[:6] == ["retry: 1000", "", "event: reset", 'data: {"reason": "new"}', "", "event: ready"]
    assert (re.fullmatch(r"id: \d+", lines[6]) is None, lines[7]) == (False, "data: {}")


def test_a_quiet_stream_is_kept_open_by_comments(server):
    with server.stream("GET", SANDBOXES) as response:
        comment = next(line for line in response.iter_lines() if line.startswith(":"))

    assert re.fullmatch(r": \d+", comment)


def test_a_change_is_the_item_of_the_search_and_a_deletion_its_id(server):
    with conversations(server) as events:
        until_ready(events)
        identity = made(server, title="Mine", tags={"team": "red"})
        server.post(f"/api/v1/webhooks/events/{identity}", json=[message("hello")]).raise_for_status()

        change = changed(events, identity)
        while change["events"] == 0:
            change = changed(events, identity)
        assert change == next(item for item in items(server) if item["id"] == identity)
        server.delete(f"/api/conversations/{identity}").raise_for_status()
        assert next(data for name, data, _ in events if name == "deleted") == {"id": identity}


def test_the_page_that_is_read_after_ready_and_the_changes_since_miss_nothing(server):
    with conversations(server) as events:
        until_ready(events)
        ids = [made(server, title=f"No. {number}") for number in range(5)]
        page = {item["id"] for item in items(server)}
        ids += [made(server, title=f"No. {number}") for number in range(5, 10)]

        known = set(page)
        while not set(ids) <= known:
            known.add(next(events)[1]["id"])


@pytest.mark.parametrize("path", [CONVERSATIONS, SANDBOXES])
@pytest.mark.parametrize("place", [{"headers": {"Last-Event-ID": "1"}}, {"params": {"last_event_id": "1"}}])
def test_a_client_whose_place_is_not_held_is_told_to_read_the_list_again(server, path, place):
    made(server)
    with named_events_of(server, path, **place) as events:
        assert next(events) == ("reset", {"reason": "dropped"}, "")
        assert next(events)[0] == "ready"


@pytest.mark.parametrize("path", [CONVERSATIONS, SANDBOXES])
@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"headers": {"Last-Event-ID": "1-1"}}, ["header", "Last-Event-ID"]),
        ({"params": {"last_event_id": "x"}}, ["query", "last_event_id"]),
        ({"params": {"last_event_id": "9" * 17}}, ["query", "last_event_id"]),
    ],
)
def test_an_invalid_place_is_refused(server, path, options, place):
    refused = server.get(path, **options)

    assert (refused.status_code, refused.json()["detail"][0]["loc"]) == (422, place)


def test_a_ticket_without_a_conversation_opens_each_stream_once(keyed):

    def ticket(**about):
        headers = bearer(made_key(keyed)[1])  # each has a place of its own
        return {"ticket": keyed.post("/api/v1/tickets", json=about, headers=headers).json()["ticket"]}

    with httpx.Client(base_url=keyed.base_url, timeout=TIMEOUT) as browser:
        for path in (CONVERSATIONS, SANDBOXES):
            opened = ticket()
            with named_events_of(browser, path, params=opened) as events:
                assert next(events)[0] == "reset"
            assert browser.get(path, params=opened).status_code == 401
            assert browser.get(path, params=ticket(conversation_id=str(uuid4()))).status_code == 403


def test_no_stream_of_sandboxes_shows_a_key_not_even_to_those_who_may_see_it(keyed, keyed_store):
    _, key = made_key(keyed)
    keyed_store.sandboxes.beat("h", "supervisor")
    with (
        named_events_of(keyed, SANDBOXES) as may_see,
        named_events_of(keyed, SANDBOXES, headers=bearer(key)) as may_not,
    ):
        until_ready(may_see), until_ready(may_not)
        one = keyed_store.sandboxes.start("spec")
        keyed_store.sandboxes.claim("h")
        keyed_store.sandboxes.begin(one.id, "h", "supervisor", "process")
        urls = [{"name": "AGENT_SERVER", "url": "http://agent", "port": 1}]
        keyed_store.sandboxes.report(
            one.id, "h", "supervisor", "RUNNING", handle={"pid": 1}, urls=urls, agent_url="http://a"
        )

        [shown] = keyed.get("/api/v1/sandboxes", params={"id": one.id}).json()
        assert shown["session_api_key"]
        for events in (may_see, may_not):
            item = changed(events, one.id)
            while item["status"] != "RUNNING":
                item = changed(events, one.id)
            assert item == {**shown, "session_api_key": None}
