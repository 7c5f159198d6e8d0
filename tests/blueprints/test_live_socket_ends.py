"""The end of a WebSocket: refused handshakes, close codes, a stopping server, clients that vanish."""

import json
from contextlib import suppress
from uuid import uuid4

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.conftest import event
from tests.servers import agent_server, wait_until
from tests.sockets import socket


def numbered(count, start=0):
    return [event(number=number) for number in range(start, start + count)]


def numbers(frames):
    return [frame["number"] for frame in frames if "number" in frame]


def is_full_state(frame, execution_status):
    return frame["key"] == "full_state" and frame["value"]["execution_status"] == execution_status


def test_an_unknown_conversation_closes_with_4004(server):
    with socket(server, str(uuid4())) as listener:
        assert listener.closed_with() == 4004


def test_a_conversation_that_is_deleted_closes_with_4004(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.receive()

        server.delete(f"/api/conversations/{conversation}")

        assert listener.closed_with() == 4004


def test_a_conversation_that_was_deleted_and_created_again_is_another_conversation(server, conversation, post):
    post(*numbered(3))
    with socket(server, conversation, resend_mode="all") as listener:
        listener.receive_until(number=2)

        server.delete(f"/api/conversations/{conversation}")
        post(*numbered(5, start=10))

        assert listener.closed_with() == 4004
    with socket(server, conversation, resend_mode="all") as listener:
        assert numbers(listener.receive_until(number=14)) == [10, 11, 12, 13, 14]


def test_a_cursor_after_the_end_is_refused(server, conversation, post):
    post(event())

    with socket(server, conversation, after_seq=2) as listener:
        assert listener.closed_with() == 1008


def test_a_message_that_is_too_long_closes_with_1009(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.receive()

        listener.send({"content": "x" * 70_000})

        assert listener.closed_with() == 1009


@pytest.mark.parametrize(
    "query",
    [
        {"resend_mode": "some"},
        {"resend_mode": "since", "after_timestamp": "soon"},
        {"after_seq": "-1"},
        {"after_seq": "x"},
    ],
)
def test_an_invalid_query_is_refused_before_the_handshake(server, conversation, post, query):
    with pytest.raises(InvalidStatus) as refusal, socket(server, conversation, **query):
        pass

    assert refusal.value.response.status_code == 422
    [fault] = json.loads(refusal.value.response.body)["detail"]
    assert fault["loc"][0] == "query"


def test_an_invalid_id_is_refused_before_the_handshake(server):
    with pytest.raises(InvalidStatus) as refusal, socket(server, "x"):
        pass

    assert refusal.value.response.status_code == 422


def test_a_plain_request_is_refused_with_a_demand_for_an_upgrade(server, conversation, post):
    response = server.get(f"/sockets/events/{conversation}")

    assert response.status_code == 426
    assert response.json() == {"detail": "This path is a WebSocket: ask for an upgrade"}


def test_an_upgrade_without_a_valid_handshake_is_refused(server, conversation, post):
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "12"}

    response = server.get(f"/sockets/events/{conversation}", headers=headers)

    assert response.status_code == 400
    assert "detail" in response.json()


def test_a_follower_over_the_limit_is_asked_to_retry(backend, conversation):
    folder, url = backend
    settings = {"REDIS_URL": url, "MAX_FOLLOWERS": "2", "WEB_CONCURRENCY": "1"}
    with agent_server(folder / "few", **settings) as (client, _):
        client.post("/api/conversations", json={"conversation_id": conversation})
        with socket(client, conversation) as first, socket(client, conversation) as second:
            first.receive(), second.receive()

            with socket(client, conversation) as third:
                assert third.closed_with() == 1013
            response = client.get(f"/api/conversations/{conversation}/events/stream")
            assert (response.status_code, "Retry-After" in response.headers) == (503, True)
            assert client.get(f"/api/conversations/{conversation}").status_code == 200

        # And after both followers have left, another one is accepted
        def has_room():
            with socket(client, conversation) as again:
                return is_full_state(again.receive(), "idle")

        wait_until(has_room, "room for a follower")


def test_a_stopping_server_closes_its_sockets_with_the_reason_and_ends_at_once(backend, conversation):
    folder, url = backend
    with agent_server(folder / "stops", REDIS_URL=url, GRACEFUL_TIMEOUT="30") as (client, process):
        client.post("/api/conversations", json={"conversation_id": conversation})
        with socket(client, conversation) as listener:
            listener.receive()
            with client.stream("GET", f"/api/conversations/{conversation}/events/stream") as stream:
                lines = stream.iter_lines()
                next(lines)

                process.terminate()

                assert listener.closed_with() == 1012
                with suppress(httpx.RemoteProtocolError):
                    list(lines)
        process.wait(15)  # half of the time that requests would get


def test_a_client_that_sends_no_pongs_is_dropped_and_a_client_that_sends_them_is_not(backend, conversation):
    folder, url = backend
    settings = {"REDIS_URL": url, "PING_SECONDS": "0.2", "IDLE_SECONDS": "0.8"}
    with agent_server(folder / "idle", **settings) as (client, _):
        client.post("/api/conversations", json={"conversation_id": conversation})
        with socket(client, conversation) as alive, socket(client, conversation) as silent:
            alive.receive(), silent.receive()
            with silent.connection.send_context():  # holds back the pongs of the library
                alive.receives_nothing(2)

            client.post(f"/api/v1/webhooks/events/{conversation}", json=[event(number=1)])
            assert alive.receive()["number"] == 1
            assert silent.closed_with() in (1001, 1006)


def test_a_message_of_a_client_that_leaves_at_once_is_kept(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.receive()
        listener.send({"content": "and goodbye"})

    count = f"/api/conversations/{conversation}/events/count?body=goodbye"
    wait_until(lambda: server.get(count).json() == 1, "the message")
