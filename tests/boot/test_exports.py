"""Exports, imports and retention on the whole server: streamed bodies, clients that go, a supervisor that sweeps."""

import json
import socket
from uuid import uuid4

import pytest
from redis import Redis

from tests.conftest import event
from tests.exports import sealed
from tests.servers import store_server, supervised_server, wait_until

pytestmark = pytest.mark.process("starts a server with a supervisor, and waits for its sweep")

MIB = 1024 * 1024

LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with its supervisor, a client for it, and its Redis."""
    folder = tmp_path_factory.mktemp("exports")
    with (
        store_server(folder) as (url, _),
        supervised_server(folder, REDIS_URL=url, RETENTION_TAGS="trial:0.00001") as (client, _),
    ):
        yield client, Redis.from_url(url)


def head_of(client, number: int, **members) -> tuple[str, bytes]:
    """The path of a conversation that does not exist yet, and the first line of an export of it."""
    made = client.post("/api/conversations", json={}).json()
    lines = client.get(f"/api/conversations/{made['id']}/export").content.splitlines()
    identity = str(uuid4())
    head = {**json.loads(lines[0]), "id": identity, "events": number, **members}
    return f"/api/conversations/{identity}", json.dumps(head).encode()


def test_an_import_of_unknown_length_may_be_longer_than_other_bodies(server):
    client, _ = server
    path, head = head_of(client, 24)
    lines = sealed([head, *(json.dumps(event(text="x" * (MIB // 2))).encode() for _ in range(24))])

    made = client.post("/api/conversations/import", content=(line + b"\n" for line in lines), headers=LINES)

    assert made.status_code == 201, made.text
    assert made.json()["id"] == path.rpartition("/")[2]
    assert client.get(f"{path}/export").content.splitlines()[1:-1] == lines[1:-1]


def test_a_client_that_goes_within_an_import_leaves_nothing(server):
    client, redis = server
    path, head = head_of(client, 1000)
    pattern = f"conv:{{{path.rpartition('/')[2]}}}*"
    request = b"POST /api/conversations/import HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
    body = b"\n".join([head, *(json.dumps(event(text="x" * 2000)).encode() for _ in range(300)), b""])
    with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
        connection.sendall(request + b"Content-Length: 100000000\r\n\r\n" + body)
        wait_until(lambda: redis.keys(f"{pattern}:log"), "a page of it")
        assert client.get(path).status_code == 404

    wait_until(lambda: not redis.keys(pattern), "the end of its keys")
    assert client.get(path).status_code == 404


def test_a_supervisor_deletes_what_is_too_old_and_nothing_else(server):
    client, _ = server
    old, young = (client.post("/api/conversations", json={"tags": {tag: ""}}).json()["id"] for tag in ("trial", "kept"))

    wait_until(lambda: client.get(f"/api/conversations/{old}").status_code == 404, "the sweep")

    assert client.get(f"/api/conversations/{young}").status_code == 200
