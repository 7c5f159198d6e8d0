"""Keys of sockets, streams and long polls, against real servers. Source: docs/access.md."""

import re
import threading
from socket import create_connection
from uuid import uuid4

import pytest
from websockets.exceptions import InvalidStatus

from tests.conftest import message
from tests.servers import TIMEOUT, agent_server, store_server, wait_until
from tests.shared import ADMIN, shared_server
from tests.sockets import socket
from tests.test_access import bearer

pytestmark = pytest.mark.process("follows with keys of a real server")


@pytest.fixture(scope="module")
def servers():
    """A server of two workers that needs a key, twice: what one worker is told the other one must know too."""
    client = shared_server(ADMIN).client
    return client, client


@pytest.fixture(scope="module")
def two_servers(tmp_path_factory):
    """That server and another one on its Redis."""
    shared = shared_server(ADMIN)
    settings = {"REDIS_URL": shared.url, "SESSION_API_KEY": ADMIN, "RATE_LIMIT_FAILURES": "none"}
    with agent_server(tmp_path_factory.mktemp("second") / "log", **settings) as (second, _):
        second.headers.update(bearer(ADMIN))
        yield shared.client, second


def made_key(client, *scopes):
    made = client.post("/api/v1/keys", json={"name": "one", "scopes": scopes or ["read"]}).json()
    return made["id"], made["key"]


@pytest.fixture
def started(servers):
    identity = str(uuid4())
    assert servers[0].post("/api/conversations", json={"conversation_id": identity}).status_code == 201
    return identity


def test_a_socket_shows_its_key_in_the_query(servers, started):
    with socket(servers[0], started, session_api_key=ADMIN) as listener:
        assert listener.receive()["key"] == "full_state"


@pytest.mark.parametrize("query", [{"session_api_key": "w" * 40}, {"ticket": "w" * 40}])
def test_a_wrong_key_in_the_handshake_of_a_socket_is_refused_with_a_status(servers, started, query):
    with pytest.raises(InvalidStatus) as refusal, socket(servers[0], started, **query):
        pass
    assert refusal.value.response.status_code == (403 if "session_api_key" in query else 401)


def test_a_socket_shows_its_key_in_the_first_frame(servers, started):
    with socket(servers[0], started) as listener:
        listener.send({"type": "auth", "session_api_key": ADMIN})
        assert listener.receive()["key"] == "full_state"
        listener.send({"type": "auth", "session_api_key": "again"})
        assert listener.receives_nothing()


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "auth", "session_api_key": "w" * 40},
        {"type": "auth"},
        {"type": "auth", "session_api_key": 7},
        {"session_api_key": ADMIN},
        {"role": "user", "content": "hello"},
        "no JSON",
        "[]",
        b"\x00\xff",
    ],
)
def test_a_first_frame_that_shows_no_right_key_closes_with_4001(servers, started, frame):
    with socket(servers[0], started) as listener:
        listener.send(frame)
        assert listener.closed_with() == 4001


def test_a_first_frame_that_is_too_long_closes_with_1009(servers, started):
    with socket(servers[0], started) as listener:
        listener.send({"type": "auth", "session_api_key": "w" * 5000})
        assert listener.closed_with() == 1009


@pytest.mark.process("waits for AUTH_SECONDS")
def test_a_socket_without_a_first_frame_is_closed(servers, started):
    with socket(servers[0], started) as listener:
        assert listener.closed_with() == 4001


def test_an_unknown_conversation_is_told_only_after_the_key(servers):
    with socket(servers[0], str(uuid4())) as listener:
        assert listener.receives_nothing()
        listener.send({"type": "auth", "session_api_key": ADMIN})
        assert listener.closed_with() == 4004


def test_a_socket_that_may_only_read_takes_no_message(servers, started):
    _, key = made_key(servers[0], "read")
    with socket(servers[0], started, session_api_key=key) as listener:
        listener.receive()
        listener.send({"role": "user", "content": "hello"})
        refused = listener.receive()
        assert (refused["kind"], refused["code"]) == ("ServerErrorEvent", "Forbidden")
    assert servers[0].get(f"/api/conversations/{started}/events/count").json() == 0


def test_a_ticket_opens_one_socket_once(servers, started):
    _, key = made_key(servers[0], "read")
    made = servers[0].post("/api/v1/tickets", json={"conversation_id": started}, headers=bearer(key))
    assert made.status_code == 201
    ticket = made.json()["ticket"]
    with socket(servers[1], started, ticket=ticket) as listener:
        assert listener.receive()["key"] == "full_state"
        listener.send({"role": "user", "content": "hello"})
        assert listener.receive()["code"] == "Forbidden"
    with pytest.raises(InvalidStatus) as refusal, socket(servers[0], started, ticket=ticket):
        pass
    assert refusal.value.response.status_code == 401


def test_a_ticket_opens_no_other_conversation_and_no_other_rule_and_stays_good(servers, started):
    ticket = servers[0].post("/api/v1/tickets", json={"conversation_id": started}).json()["ticket"]
    for path, status in ((f"{uuid4()}/events/stream", 403), (started, 401)):
        without = servers[0].build_request("GET", f"/api/conversations/{path}", params={"ticket": ticket})
        del without.headers["Authorization"]
        assert servers[0].send(without).status_code == status

    with socket(servers[1], started, ticket=ticket) as listener:
        assert listener.receive()["key"] == "full_state"


def test_a_ticket_has_no_scope_that_its_asker_lacks(servers, started):
    _, key = made_key(servers[0], "read")
    body = {"conversation_id": started, "scopes": ["write"]}
    assert servers[0].post("/api/v1/tickets", json=body, headers=bearer(key)).status_code == 403


@pytest.mark.parametrize(
    ("places", "number"),
    [("servers", 8), pytest.param("two_servers", 200, marks=pytest.mark.process("200 sockets on two servers"))],
)
def test_revocation_ends_all_sockets_of_a_key_everywhere_and_no_other(request, started, places, number):
    servers = request.getfixturevalue(places)
    identity, key = made_key(servers[0])
    followed, codes = threading.Semaphore(0), []

    def follow(server):
        with socket(server, started, session_api_key=key) as listener:
            listener.receive()
            followed.release()
            codes.append(listener.closed_with())

    threads = [threading.Thread(target=follow, args=(servers[one % 2],)) for one in range(number)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert followed.acquire(timeout=60)
    with socket(servers[1], started, session_api_key=ADMIN) as other:
        other.receive()
        servers[0].delete(f"/api/v1/keys/{identity}").raise_for_status()
        for thread in threads:
            thread.join(30)
        assert codes == [4001] * number
        servers[0].post(f"/api/v1/webhooks/events/{started}", json=[message("still there")]).raise_for_status()
        assert other.receive()["kind"] == "MessageEvent"


def test_revocation_ends_streams_and_long_polls(servers, started):
    identity, key = made_key(servers[0])
    url = f"/api/conversations/{started}/events"
    polled = []

    def poll():
        last = servers[1].get(f"{url}/count").json()
        polled.append(servers[1].get(f"{url}/search", params={"after_seq": last, "wait": 20}, headers=bearer(key)))

    thread = threading.Thread(target=poll)
    thread.start()
    with servers[0].stream("GET", f"{url}/stream", headers=bearer(key)) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("retry")
        servers[0].delete(f"/api/v1/keys/{identity}").raise_for_status()
        assert [line for line in lines if line.startswith("data")] == []
    thread.join(15)
    assert not thread.is_alive()
    assert polled[0].status_code in (200, 401)
    assert servers[0].get(f"{url}/count", headers=bearer(key)).status_code in (200, 401)  # remembered for half a second
    wait_until(lambda: servers[0].get(f"{url}/count", headers=bearer(key)).status_code == 401, "the refusal")


@pytest.mark.parametrize("key", ["", "X-Session-API-Key: wrong\r\n", "Authorization: Bearer wrong\r\n"])
def test_a_wrong_key_is_refused_before_the_body_is_sent(servers, key):
    head = f"POST /api/conversations HTTP/1.1\r\nHost: localhost\r\n{key}Content-Length: 8000000\r\n\r\n"

    with create_connection(("127.0.0.1", servers[0].base_url.port), TIMEOUT) as connection:
        connection.sendall(head.encode())
        assert re.match(rb"HTTP/1.1 4(01|29) ", connection.recv(65536))


# bounds


@pytest.fixture(scope="module")
def bounded(tmp_path_factory):
    """A server with one worker and small bounds."""
    folder = tmp_path_factory.mktemp("bounded")
    settings = {"SESSION_API_KEY": ADMIN, "WEB_CONCURRENCY": "1", "RATE_LIMIT_FAILURES": "3/minute"}
    bounds = {"MAX_FOLLOWERS_PER_KEY": "2", "MAX_SILENT_SOCKETS": "2"}
    with (
        store_server(folder) as (url, _),
        agent_server(folder / "log", REDIS_URL=url, **settings, **bounds) as (client, _),
    ):
        client.headers.update(bearer(ADMIN))
        yield client


def test_a_key_that_follows_too_much_is_refused_and_another_is_not(bounded, conversation):
    bounded.post("/api/conversations", json={"conversation_id": conversation}).raise_for_status()
    _, key = made_key(bounded, "read")
    events = f"/api/conversations/{conversation}/events"
    with (
        socket(bounded, conversation, session_api_key=key) as one,
        socket(bounded, conversation, session_api_key=key) as two,
    ):
        one.receive(), two.receive()
        with socket(bounded, conversation, session_api_key=key) as third:
            assert third.closed_with() == 1013
        refused = bounded.get(f"{events}/stream", headers=bearer(key))
        assert refused.status_code == 429
        assert "MAX_FOLLOWERS_PER_KEY" in refused.json()["detail"]
        polled = bounded.get(f"{events}/search", params={"after_seq": 0, "wait": 1}, headers=bearer(key))
        assert polled.status_code == 429
        with socket(bounded, conversation, session_api_key=ADMIN) as other:
            other.receive()
    with socket(bounded, conversation, session_api_key=key) as again:
        again.receive()


def test_silent_sockets_of_an_address_are_bounded(bounded, conversation):
    with socket(bounded, conversation) as one, socket(bounded, conversation) as two:
        assert one.receives_nothing()
        assert two.receives_nothing()
        with socket(bounded, conversation) as third:
            assert third.closed_with() == 1013
        one.send({"type": "auth", "session_api_key": ADMIN})
        assert one.closed_with() == 4004
        with socket(bounded, conversation) as fourth:
            fourth.send({"type": "auth", "session_api_key": ADMIN})
            assert fourth.closed_with() == 4004


def test_wrong_keys_of_an_address_are_429_in_the_end_and_the_right_one_is_not(bounded):
    statuses = [bounded.get("/api/conversations/count", headers=bearer("w" * 40)).status_code for _ in range(5)]
    assert statuses == [401, 401, 401, 429, 429]
    refused = bounded.get("/api/conversations/count", headers=bearer("w" * 40))
    assert "RATE_LIMIT_FAILURES" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) > 0
    assert bounded.get("/api/conversations/count").status_code == 200


@pytest.mark.process("starts two servers one after the other")
def test_a_server_that_starts_without_its_store_needs_a_key_as_soon_as_the_store_has_one(tmp_path):
    with store_server(tmp_path) as (url, _), agent_server(tmp_path / "first.log", REDIS_URL=url) as (client, _):
        _, key = made_key(client, "read")
        assert client.get("/api/conversations/count").status_code == 200  # it was settled without that key
    with agent_server(tmp_path / "second.log", REDIS_URL=url) as (client, _):
        assert client.get("/api/conversations/count").status_code == 503
        with store_server(tmp_path):
            wait_until(lambda: client.get("/ready").status_code == 200, "the store")
            assert client.get("/api/conversations/count").status_code == 401
            assert client.get("/api/conversations/count", headers=bearer(key)).status_code == 200
