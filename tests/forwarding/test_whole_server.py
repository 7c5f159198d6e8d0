"""Forwarded calls through the whole server: bodies of any size, and ends at every side of the exchange."""

import hashlib
import os
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import psutil
import pytest

from tests.agents import running_sandbox
from tests.chance import often
from tests.conftest import SECRET_KEY, limits_of, store_of
from tests.forwarding import upstream_agent
from tests.servers import TIMEOUT, agent_server, store_server

pytestmark = pytest.mark.process("a whole server, 100 MiB through it, and clients that hang")

MIB = 1 << 20
SIZE = 100 * MIB

#: what a worker may grow by while it forwards: some pieces on each side, and what the allocator keeps
ROOM = 40 * MIB

KEY = "an-admin-key-of-the-settings"
CONVERSATION = "0e7bd7c3-9f6c-4a4e-8e8f-0d4c7d3b7d11"
SHOWN = {"X-Session-API-Key": KEY}
PATH = f"/api/conversations/{CONVERSATION}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A client of a server with one worker, its master process, its store, and the one sandbox that runs."""
    folder = tmp_path_factory.mktemp("forwarding")
    with ExitStack() as stack:
        url, _ = stack.enter_context(store_server(folder))
        settings = {"REDIS_URL": url, "SESSION_API_KEY": KEY, "WEB_CONCURRENCY": "1", "SECRET_KEY": SECRET_KEY}
        client, master = stack.enter_context(agent_server(folder / "log", **settings))
        store = store_of(url, limits_of(10, False, 3600, 3600))
        agent = stack.enter_context(upstream_agent())
        sandbox = stack.enter_context(running_sandbox(store, agent.url, owner="settings-1"))
        store.sandboxes.begin(sandbox.id, "scripted", "supervisor", "process")
        store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING", agent_url=agent.url)
        store.conversations.create(CONVERSATION, sandbox_id=sandbox.id, app={})
        yield client, master, store, store.sandboxes.get(sandbox.id)


@pytest.fixture
def upstream(whole):
    """An agent server of the test's own for that sandbox."""
    _, _, store, sandbox = whole
    with upstream_agent() as agent:
        store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING", agent_url=agent.url)
        yield agent


@pytest.fixture
def client(whole):
    return whole[0]


def workers(whole) -> list[psutil.Process]:
    return [one for one in psutil.Process(whole[1].pid).children() if "gunicorn" in " ".join(one.cmdline())]


class PeakMemory:
    """The most memory that the workers have at once while the block runs, in bytes."""

    def __init__(self, whole) -> None:
        self._processes, self._done = workers(whole), threading.Event()
        self.before = self.most = self._now()

    def _now(self) -> int:
        return sum(one.memory_info().rss for one in self._processes)

    def _look(self) -> None:
        while not self._done.wait(0.01):
            self.most = max(self.most, self._now())

    def __enter__(self):
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()


def raw(client: httpx.Client, path: str, method: str = "GET", *lines: str) -> socket.socket:
    """A connection on which that request was sent."""
    connection = socket.create_connection((client.base_url.host, client.base_url.port), TIMEOUT)
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", f"X-Session-API-Key: {KEY}", *lines, "", ""]
    connection.sendall("\r\n".join(head).encode())
    return connection


# ends


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_agent_server_that_dies_within_its_response_breaks_the_response_off(client, upstream, framing):
    upstream.go_on.set()
    with client.stream("GET", f"{PATH}/file/dies", params={"framing": framing}, headers=SHOWN) as response:
        assert response.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            response.read()


def test_a_client_that_hangs_up_while_the_agent_server_is_silent_ends_the_exchange(client, upstream):
    connection = raw(client, f"{PATH}/bash/waits")
    assert upstream.arrived.wait(TIMEOUT)
    connection.close()
    assert upstream.ended.wait(TIMEOUT)


def test_a_client_that_hangs_up_within_a_download_ends_the_exchange(client, upstream):
    connection = raw(client, f"{PATH}/file/download?size={SIZE}")
    assert connection.recv(1000)
    connection.close()
    assert upstream.ended.wait(TIMEOUT)


def test_a_client_that_hangs_up_within_an_upload_ends_the_exchange(client, upstream):
    sent = ("Content-Type: application/octet-stream", f"Content-Length: {SIZE}")
    with raw(client, f"{PATH}/file/upload?path=/x", "POST", *sent) as connection:
        connection.sendall(b"x" * MIB)
    assert upstream.ended.wait(TIMEOUT)


def test_a_silent_agent_server_holds_no_other_request(client, upstream):
    held = [raw(client, f"{PATH}/bash/waits") for _ in range(20)]
    assert upstream.arrived.wait(TIMEOUT)

    assert client.get(f"{PATH}/bash/echo", headers=SHOWN).status_code == 200
    assert client.get("/api/conversations/count", headers=SHOWN).json() == 1

    upstream.go_on.set()
    for connection in held:
        with connection:
            assert connection.recv(12) == b"HTTP/1.1 200"


# any size


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_100_mib_are_uploaded_in_bounded_memory(whole, client, upstream, framing):
    piece = os.urandom(MIB)
    digest = hashlib.sha256(piece * 100).hexdigest()
    length = {"Content-Length": str(SIZE)} if framing == "length" else {}
    headers = {**SHOWN, **length, "Content-Type": "multipart/form-data; boundary=x"}

    with PeakMemory(whole) as peak:
        response = client.post(
            f"{PATH}/file/upload", params={"path": "/x"}, content=iter([piece] * 100), headers=headers, timeout=300
        )

    assert response.status_code == 200
    assert (response.json()["size"], response.json()["digest"]) == (SIZE, digest)
    assert ("Content-Length" in response.json()["headers"]) == (framing == "length")
    assert peak.most - peak.before < ROOM


def test_100_mib_are_downloaded_in_bounded_memory_also_by_a_client_that_waits(whole, client, upstream):
    size = 0
    with (
        PeakMemory(whole) as peak,
        client.stream("GET", f"{PATH}/file/download", params={"size": SIZE}, headers=SHOWN, timeout=300) as response,
    ):
        pieces = response.iter_raw()
        size += len(next(pieces))
        # Nothing is taken for as long as three other requests need: what the agent server sends waits with it.
        for _ in range(3):
            assert client.get(f"{PATH}/bash/echo", headers=SHOWN).status_code == 200
        size += sum(map(len, pieces))

    assert size == SIZE
    assert response.headers["Content-Length"] == str(SIZE)
    assert peak.most - peak.before < ROOM


# who may


def test_the_session_key_of_a_sandbox_opens_its_bash_files_and_git_and_nothing_else(whole, client, upstream):
    sandbox = whole[3]
    own = {"X-Session-API-Key": sandbox.session_api_key}

    for path in ("/api/bash/echo", "/api/file/home", "/api/git/changes"):
        assert client.get(path, headers=own).status_code == 200
        assert client.get(path, headers={"Authorization": f"Bearer {sandbox.session_api_key}"}).status_code == 200
    assert {seen["headers"]["X-Session-API-Key"] for seen in upstream.requests} == {sandbox.session_api_key}
    for path in (f"{PATH}/bash/echo", "/api/conversations/count", "/server_info", "/api/v1/sandboxes/search"):
        assert client.get(path, headers=own).status_code == 401
    assert client.get("/api/bash/echo", headers={"X-Session-API-Key": "x" * 43}).status_code == 401
    assert client.get("/api/bash/echo").status_code == 401


def test_a_call_without_a_name_goes_to_the_sandbox_of_its_key_and_never_to_that_of_another(client, upstream):
    made = {"name": "another", "scopes": ["read", "approve"]}  # it may start none of its own
    another = client.post("/api/v1/keys", json=made, headers=SHOWN).json()["key"]

    assert client.get("/api/file/search_subdirs", headers={"X-Session-API-Key": another}).status_code == 409
    assert upstream.requests == []
    assert client.get("/api/file/search_subdirs", headers=SHOWN).status_code == 200
    assert upstream.requests[0]["path"] == "/api/file/search_subdirs"


def test_a_key_that_may_not_approve_reads_git_and_nothing_else(client, upstream):
    made = {"name": "writer", "scopes": ["write"]}
    writer = {"X-Session-API-Key": client.post("/api/v1/keys", json=made, headers=SHOWN).json()["key"]}

    assert client.get(f"{PATH}/git/changes", headers=writer).status_code == 200
    assert client.get(f"{PATH}/git/changes", params={"path": "/etc"}, headers=writer).status_code == 403
    for method, path in (("GET", "bash/echo"), ("POST", "file/upload"), ("GET", "vscode/url")):
        assert client.request(method, f"{PATH}/{path}", headers=writer).status_code == 403
    assert len(upstream.requests) == 1


# keys that end


@pytest.fixture
def key(client):
    """A key that may approve, its headers, and what revokes it."""
    made = client.post("/api/v1/keys", json={"name": "short-lived", "scopes": ["admin"]}, headers=SHOWN).json()

    def revoke():
        assert client.delete(f"/api/v1/keys/{made['id']}", headers=SHOWN).status_code == 200

    return {"X-Session-API-Key": made["key"]}, revoke


def slowly(pieces):
    for piece in pieces:
        time.sleep(0.001)
        yield piece


def test_a_download_breaks_off_when_its_key_is_revoked(client, upstream, key):
    headers, revoke = key
    with client.stream("GET", f"{PATH}/file/download", params={"size": str(SIZE)}, headers=headers) as response:
        revoke()
        with pytest.raises(httpx.RemoteProtocolError):
            list(slowly(response.iter_raw(SIZE // 2000)))


def test_a_call_that_waits_for_its_agent_server_is_401_when_its_key_is_revoked(client, upstream, key):
    headers, revoke = key
    responses = []
    caller = threading.Thread(
        target=lambda: responses.append(client.get(f"{PATH}/file/waits", headers=headers, timeout=TIMEOUT))
    )
    caller.start()
    assert upstream.arrived.wait(TIMEOUT)
    revoke()
    caller.join(TIMEOUT)

    assert [response.status_code for response in responses] == [401]
    assert upstream.ended.wait(TIMEOUT)


def test_no_call_ends_well_whose_key_is_revoked_at_any_moment_of_it(client, upstream):
    """A download that is too long to end before, and a call whose agent server never responds."""
    tries, chance, outcomes = often(20, 200), random.Random(4), []

    def call(number: int, seconds: float) -> None:
        made = client.post("/api/v1/keys", json={"name": f"ends {number}", "scopes": ["admin"]}, headers=SHOWN).json()
        headers = {"X-Session-API-Key": made["key"]}
        path, query = ("file/waits", {}) if number % 2 else ("file/download", {"size": str(SIZE)})
        timer = threading.Timer(seconds, client.delete, [f"/api/v1/keys/{made['id']}"], {"headers": SHOWN})
        timer.start()
        try:
            with client.stream("GET", f"{PATH}/{path}", params=query, headers=headers, timeout=TIMEOUT) as response:
                read = sum(len(piece) for piece in slowly(response.iter_raw(SIZE // 2000)))
                outcomes.append("whole" if read == SIZE else response.status_code)
        except httpx.RemoteProtocolError:
            outcomes.append("broken off")
        timer.join()
        # 429: the address has sent too many keys that are none
        assert client.get("/api/conversations/count", headers=headers).status_code in (401, 429)

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(call, range(tries), [chance.random() / 4 for _ in range(tries)]))

    assert {*outcomes} <= {401, 429, "broken off"}
    assert len(outcomes) == tries


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        (f"{PATH}/file/upload", "application/octet-stream"),
        ("/api/conversations/import", "application/x-ndjson"),
    ],
)
def test_an_upload_is_401_when_its_key_is_revoked_also_while_its_client_sends_nothing(
    client, upstream, key, path, content_type
):
    headers, revoke = key
    shown = f"X-Session-API-Key: {headers['X-Session-API-Key']}"
    connection = socket.create_connection((client.base_url.host, client.base_url.port), TIMEOUT)
    head = [f"POST {path} HTTP/1.1", "Host: localhost", shown, f"Content-Type: {content_type}", "Content-Length: 99999"]
    with connection:
        connection.sendall("\r\n".join([*head, "Expect: 100-continue", "", ""]).encode())
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"x" * 1000)
        revoke()
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")
