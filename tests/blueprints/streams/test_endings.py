"""The ends of streams on real servers: a store that is away, a killed worker, a server's stop, a client that rests."""

import os
import re
import signal
import socket as raw
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.blueprints.streams import OF_A_CONVERSATION, STREAMS, begin, change, follow, tells, until_live
from tests.conftest import action
from tests.servers import TIMEOUT, agent_server, store_server, wait_until
from tests.sockets import socket

pytestmark = pytest.mark.faults("starts servers and stores of its own, and stops them")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A folder, the URL of a store and its process."""
    folder = tmp_path_factory.mktemp("store")
    with store_server(folder) as (url, process):
        yield folder, url, process


@pytest.fixture(scope="module")
def server(store):
    folder, url, _ = store
    with agent_server(folder / "log", REDIS_URL=url, PING_SECONDS="1", FOLLOWER_BYTES="65536") as (client, _):
        yield client


def all_of(stack, client, conversation) -> dict:
    """Follow every stream that tells of a conversation."""
    return {name: stack.enter_context(follow(client, name, conversation)) for name in OF_A_CONVERSATION}


def assert_resumed(client, conversation, places, word) -> None:
    """Every stream goes on after a place of an earlier connection."""
    for name, place in places.items():
        with follow(client, name, conversation, headers={"Last-Event-ID": place}) as events:
            assert next(events)[0] != "reset", name
        with follow(client, name, conversation, headers={"Last-Event-ID": place}) as events:
            assert tells(events, word), name


def assert_ended(events) -> None:
    """A stream ends, and tells nothing but what has happened."""
    with suppress(httpx.RemoteProtocolError):
        assert [name for name, _, _ in events if name not in ("", "changed", "ready")] == []


def test_streams_pause_while_the_store_is_away_and_go_on_and_no_other_begins_meanwhile(store, server, conversation):
    begin(server, conversation)
    with ExitStack() as stack:
        streams = all_of(stack, server, conversation)
        for events in streams.values():
            until_live(events)

        store[2].send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: server.get("/ready").status_code == 503, "the loss of the store")
            refused = [server.get(stream.path.format(id=conversation)) for stream in STREAMS.values()]
        finally:
            store[2].send_signal(signal.SIGCONT)
        wait_until(lambda: server.get("/ready").status_code == 200, "the store")
        word = change(server, conversation)

        assert [(one.status_code, "Retry-After" in one.headers) for one in refused] == [(503, True)] * 4
        assert [name for name, events in streams.items() if not tells(events, word)] == []


def test_streams_go_on_when_the_store_was_started_again(tmp_path, conversation):
    folder = tmp_path / "store"
    folder.mkdir()
    with ExitStack() as stack:
        url, process = stack.enter_context(store_server(folder))
        client, _ = stack.enter_context(agent_server(tmp_path / "log", REDIS_URL=url))
        begin(client, conversation)
        streams = all_of(stack, client, conversation)
        places = {name: until_live(events) for name, events in streams.items()}
        process.terminate()
        process.wait(30)
        stack.enter_context(store_server(folder))
        wait_until(lambda: client.get("/ready").status_code == 200, "the store")

        word = change(client, conversation)

        assert [name for name, events in streams.items() if not tells(events, word)] == []
        assert_resumed(client, conversation, places, word)


def test_clients_of_a_killed_worker_go_on_at_another(store, server, tmp_path, conversation):
    settings = {"REDIS_URL": store[1], "WEB_CONCURRENCY": "1"}
    begin(server, conversation)
    with ExitStack() as stack:
        client, master = stack.enter_context(agent_server(tmp_path / "log", **settings))
        streams = all_of(stack, client, conversation)
        places = {name: until_live(events) for name, events in streams.items()}
        [worker] = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()

        os.kill(int(worker), signal.SIGKILL)

        for events in streams.values():
            assert_ended(events)
    assert_resumed(server, conversation, places, change(server, conversation))


def test_a_stopping_server_ends_its_streams_and_sockets_at_once_and_they_resume_at_another(
    store, server, tmp_path, conversation
):
    begin(server, conversation)
    with ExitStack() as stack:
        client, process = stack.enter_context(agent_server(tmp_path / "log", REDIS_URL=store[1], GRACEFUL_TIMEOUT="60"))
        streams = all_of(stack, client, conversation)
        places = {name: until_live(events) for name, events in streams.items()}
        sandboxes = stack.enter_context(follow(client, "sandboxes", conversation))
        until_live(sandboxes)
        listener = stack.enter_context(socket(client, conversation))
        listener.receive()

        process.terminate()

        assert listener.closed_with() == 1012
        for events in (*streams.values(), sandboxes):
            assert_ended(events)
        process.wait(50)  # less than requests would get
    assert_resumed(server, conversation, places, change(server, conversation))


class Slow:
    """A client that reads what a stream sends at first, and nothing more."""

    def __init__(self, stack, client, name, conversation) -> None:
        self.connection = stack.enter_context(raw.socket())
        self.connection.settimeout(TIMEOUT)
        self.connection.setsockopt(raw.SOL_SOCKET, raw.SO_RCVBUF, 4096)
        self.connection.connect((client.base_url.host, client.base_url.port))
        url = urlsplit(STREAMS[name].path.format(id=conversation))
        self.connection.sendall(f"GET {url.path}?{url.query} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        self.read = b""
        while not re.search(rb"event: ready\n.*\n\n", self.read, re.DOTALL):
            self.read += self.connection.recv(1024)

    def rest(self) -> list[bytes]:
        """All whole events until the server ends the stream."""
        while chunk := self.connection.recv(1 << 20):
            self.read += chunk
        return self.read.rpartition(b"\n\n")[0].split(b"\n\n")


def test_a_client_that_reads_no_actions_is_dropped_and_resumes_without_a_gap(store, server, tmp_path, conversation):
    settings = {"REDIS_URL": store[1], "WEB_CONCURRENCY": "1", "FOLLOWER_BYTES": "65536"}
    begin(server, conversation)
    with ExitStack() as stack:
        client, _ = stack.enter_context(agent_server(tmp_path / "log", **settings))
        slow, ids = Slow(stack, client, "inbox", conversation), []

        # When another client takes more than the server keeps, and than the connection holds
        with follow(client, "inbox", conversation) as quick:
            until_live(quick)
            for number in range(100):
                act = action(str(number % 10) * 150_000)
                client.post(f"/api/v1/webhooks/events/{conversation}", json=[act]).raise_for_status()
                ids.append(act["id"])
                assert next(quick)[1]["action_id"] == act["id"]

        # Then the slow client's stream ends, and goes on after the last change that it received
        whole = slow.rest()
    last = re.search(rb"id: (\S+)\n", whole[-1])[1].decode()
    received = [re.search(rb'"action_id": "([^"]*)"', one)[1].decode() for one in whole if b"event: opened" in one]
    assert len(received) < len(ids)
    with follow(server, "inbox", conversation, headers={"Last-Event-ID": last}) as events:
        rest = [next(events)[1]["action_id"] for _ in ids[len(received) :]]
    assert [*received, *rest] == ids


def test_a_client_that_reads_no_list_is_ended_and_gets_the_newest_of_each_when_it_resumes(store, server, tmp_path):
    settings = {"REDIS_URL": store[1], "WEB_CONCURRENCY": "1", "FOLLOWER_BYTES": "65536"}
    tags = {f"{'k' * 500}{number}": "x" * 250 for number in range(50)}
    ids = [server.post("/api/conversations", json={"tags": tags}).json()["id"] for _ in range(100)]
    with ExitStack() as stack:
        client, _ = stack.enter_context(agent_server(tmp_path / "log", **settings))
        slow = Slow(stack, client, "conversations", "")
        number = re.findall(rb"id: (\d+)", slow.read)[-1].decode()

        # When another client takes more than the server keeps, and than the connection holds
        with follow(client, "conversations", "") as quick:
            until_live(quick)
            seen: dict[str, str | None] = {}
            reader = threading.Thread(target=lambda: note_titles(quick, seen), daemon=True)
            reader.start()
            for turn in range(3):
                titles = {one: f"Turn {turn}" for one in ids}
                for one, title in titles.items():
                    client.patch(f"/api/conversations/{one}", json={"title": title}).raise_for_status()
                wait_until(lambda titles=titles: seen == {**seen, **titles}, "the changes at the quick client")

        # Then the slow client's stream ends, and each conversation comes once when it goes on
        slow.rest()
    with follow(server, "conversations", "", headers={"Last-Event-ID": number}) as events:
        resumed = [next(events)[1] for _ in ids]
    assert [(item["id"], item["title"]) for item in resumed] == [(one, titles[one]) for one in ids]


def note_titles(events, seen) -> None:
    """Note the title of every change, until the stream ends or is left."""
    with suppress(httpx.HTTPError):
        for _, data, _ in events:
            seen[data["id"]] = data.get("title")
