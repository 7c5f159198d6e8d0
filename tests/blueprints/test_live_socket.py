"""A conversation over a WebSocket, on a real server of two workers."""

import json
from contextlib import suppress
from uuid import uuid4

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.conftest import action, event, status
from tests.servers import agent_server, fakeredis_server, redis_server, wait_until
from tests.sockets import socket


@pytest.fixture(scope="module", params=[redis_server, fakeredis_server], ids=["server", "fakeredis"])
def place(request, tmp_path_factory):
    """A folder and the URL of a Redis."""
    folder = tmp_path_factory.mktemp("sockets")
    with request.param(folder) as (url, _):
        yield folder, url


@pytest.fixture(scope="module")
def server(place):
    folder, url = place
    with agent_server(folder / "log", REDIS_URL=url, SOCKET_MESSAGE_BYTES="65536") as (client, _):
        yield client


@pytest.fixture
def post(server, conversation):
    """Append events to a conversation that exists."""
    server.post("/api/conversations", json={"conversation_id": conversation})

    def post(*events):
        response = server.post(f"/api/v1/webhooks/events/{conversation}", json=list(events))
        assert response.status_code == 200
        return response.json()

    return post


def numbered(count, start=0):
    return [event(number=number) for number in range(start, start + count)]


def numbers(frames):
    return [frame["number"] for frame in frames if "number" in frame]


def is_full_state(frame, execution_status):
    return frame["key"] == "full_state" and frame["value"]["execution_status"] == execution_status


# what is told


def test_the_first_frame_is_the_full_state_and_nothing_is_replayed_by_default(server, conversation, post):
    post(*numbered(3))

    with socket(server, conversation) as listener:
        first = listener.hear()
        post(event(number=3))

        assert first["kind"] == "ConversationStateUpdateEvent"
        assert is_full_state(first, "idle")
        state = server.get(f"/api/conversations/{conversation}").json()
        assert {**first["value"], "updated_at": ""} == {**state, "updated_at": ""}
        assert listener.hear()["number"] == 3
    assert server.get(f"/api/conversations/{conversation}/events/count").json() == 4


@pytest.mark.parametrize("query", [{"resend_mode": "all"}, {"resend_all": "true"}])
def test_all_events_are_replayed_on_demand_then_live_ones_follow(server, conversation, post, query):
    post(*numbered(250))

    with socket(server, conversation, **query) as listener:
        assert is_full_state(listener.hear(), "idle")
        post(event(number=250))

        assert numbers(listener.hear_until(number=250)) == list(range(251))


def test_events_are_sent_byte_for_byte(server, conversation, post):
    text = (
        '{"kind": "PauseEvent",\n "id": "as-it-came", "source":"user", "timestamp":"2026-11-20", "n": 1.00, "é": null}'
    )
    url = f"/api/v1/webhooks/events/{conversation}"

    with socket(server, conversation) as listener:
        listener.hear()
        server.post(url, content=f"[{text}]".encode(), headers={"Content-Type": "application/json"})

        assert listener.connection.recv(10) == text


def test_events_since_a_time_are_replayed_in_the_order_of_appending(server, conversation, post):
    # Given times in disorder, one of them exactly the one asked for
    for number, second in enumerate((5, 1, 3, 2, 4)):
        post(event(number=number, timestamp=f"2026-11-20T10:00:0{second}"))

    with socket(server, conversation, resend_mode="since", after_timestamp="2026-11-20T10:00:03") as listener:
        listener.hear()
        # And a live one of an earlier time
        post(event(number=5, timestamp="2020-01-01T00:00:00"))

        assert numbers(listener.hear_until(number=5)) == [0, 2, 4, 5]


@pytest.mark.parametrize(
    "query",
    [
        {"resend_mode": "since"},
        {"after_timestamp": "2020-01-01"},
        {"resend_mode": "since", "resend_all": "true"},
        {"resend_mode": "since", "after_timestamp": "2099-01-01"},
        {"resend_all": "false"},
    ],
)
def test_a_query_without_a_replay_replays_nothing(server, conversation, post, query):
    post(*numbered(2))

    with socket(server, conversation, **query) as listener:
        listener.hear()
        post(event(number=2))

        assert listener.hear()["number"] == 2


def test_every_frame_after_a_seq_has_its_seq(server, conversation, post):
    post(*numbered(5))

    with socket(server, conversation, after_seq=2) as listener:
        state = listener.hear()
        assert state["seq"] is None
        assert is_full_state(state["event"], "idle")
        post(event(number=5))

        frames = [listener.hear() for _ in range(4)]
        assert [(frame["seq"], frame["event"]["number"]) for frame in frames] == [(3, 2), (4, 3), (5, 4), (6, 5)]


def test_a_fresh_full_state_follows_every_end_of_a_run(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.hear()
        for end in ("paused", "error", "stuck", "idle", "finished"):
            server.post(f"/api/conversations/{conversation}/run")
            assert listener.hear()["value"] == "running"

            post(status(end))

            assert listener.hear()["value"] == end
            assert is_full_state(listener.hear(), end)


def test_a_run_that_ends_at_a_pending_action_is_reported(server, conversation, post):
    policy = {"policy": {"kind": "AlwaysConfirm"}}
    server.post(f"/api/conversations/{conversation}/confirmation_policy", json=policy)

    with socket(server, conversation) as listener:
        listener.hear()
        server.post(f"/api/conversations/{conversation}/run")
        post(action())

        heard = listener.hear_until(key="full_state")
        told = [frame.get("value", frame["kind"]) for frame in heard[:-1]]
        assert told == ["running", "ActionEvent", "waiting_for_confirmation"]
        assert is_full_state(heard[-1], "waiting_for_confirmation")


def test_a_change_without_an_event_is_sent_as_a_full_state(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.hear()

        server.patch(f"/api/conversations/{conversation}", json={"title": "New"})

        assert listener.hear()["value"]["title"] == "New"


@pytest.mark.parametrize("kind", ["StreamingDeltaEvent", "ServerErrorEvent"])
def test_events_that_the_log_does_not_keep_are_sent_live(server, conversation, post, kind):
    with socket(server, conversation) as listener:
        listener.hear()
        delta = event(kind, "agent", content="à la carte")

        answer = post(delta, event(number=1))

        assert answer == {"success": True, "appended": 1, "seq": 1}
        assert sorted([listener.hear(), listener.hear()], key=lambda one: "number" in one)[0] == delta
    assert server.get(f"/api/conversations/{conversation}/events/count").json() == 1


# what is said


@pytest.mark.parametrize(
    "content",
    ["hello", [{"type": "text", "text": "hello"}], [{"type": "text", "text": "hello", "cache_prompt": False}]],
)
def test_a_frame_of_a_client_is_a_users_message_and_starts_a_run(server, conversation, post, content):
    with socket(server, conversation) as listener:
        listener.hear()

        listener.say({"role": "user", "content": content, "run": False, "unknown": 1})

        said, running = listener.hear(), listener.hear()
        assert (said["kind"], said["source"]) == ("MessageEvent", "user")
        assert said["llm_message"]["content"] == [{"type": "text", "text": "hello", "cache_prompt": False}]
        assert (running["key"], running["value"]) == ("execution_status", "running")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("no JSON", "JSONDecodeError"),
        (b"\xff", "JSONDecodeError"),
        ("", "JSONDecodeError"),
        ([], "ValidationError"),
        (5, "ValidationError"),
        ({"role": "system", "content": "x"}, "ValidationError"),
        ({"content": [{"type": "sound"}]}, "ValidationError"),
        ({"content": [{"type": "text", "text": "x", "odd": 1}]}, "ValidationError"),
        ({"content": 5}, "ValidationError"),
        ({"content": "lone \ud800"}, None),
    ],
)
def test_an_invalid_message_gets_an_error_frame_and_the_socket_stays_open(server, conversation, post, said, code):
    with socket(server, conversation) as listener:
        listener.hear()

        listener.say(said)
        if code is not None:
            answer = listener.hear()
            assert (answer["kind"], answer["source"], answer["code"]) == ("ServerErrorEvent", "environment", code)
            assert answer["detail"]

        listener.say({"content": "still here"})
        texts = [listener.hear_until(kind="MessageEvent")[-1] for _ in range(1 if code else 2)]
        assert texts[-1]["llm_message"]["content"][0]["text"] == "still here"


def test_an_auth_frame_is_ignored(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.hear()

        listener.say({"type": "auth", "session_api_key": "any"})
        listener.say({"content": "x"})

        assert listener.hear()["kind"] == "MessageEvent"
    assert server.get(f"/api/conversations/{conversation}/events/count").json() == 2


def test_a_message_over_a_socket_rejects_pending_actions(server, conversation, post):
    policy = {"policy": {"kind": "AlwaysConfirm"}}
    server.post(f"/api/conversations/{conversation}/confirmation_policy", json=policy)
    held = action()
    post(held)

    with socket(server, conversation) as listener:
        listener.hear()
        listener.say({"content": "Wait!"})

        rejection = listener.hear_until(kind="UserRejectObservation")[-1]
        assert (rejection["action_id"], rejection["rejection_reason"]) == (
            held["id"],
            "Superseded by a new user message.",
        )


# how it ends


def test_an_unknown_conversation_closes_with_4004(server):
    with socket(server, str(uuid4())) as listener:
        assert listener.closed_with() == 4004


def test_a_conversation_that_is_deleted_closes_with_4004(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.hear()

        server.delete(f"/api/conversations/{conversation}")

        assert listener.closed_with() == 4004


def test_a_conversation_that_was_deleted_and_created_again_is_another_conversation(server, conversation, post):
    post(*numbered(3))
    with socket(server, conversation, resend_mode="all") as listener:
        listener.hear_until(number=2)

        server.delete(f"/api/conversations/{conversation}")
        post(*numbered(5, start=10))

        assert listener.closed_with() == 4004
    with socket(server, conversation, resend_mode="all") as listener:
        assert numbers(listener.hear_until(number=14)) == [10, 11, 12, 13, 14]


def test_a_cursor_after_the_end_is_refused(server, conversation, post):
    post(event())

    with socket(server, conversation, after_seq=2) as listener:
        assert listener.closed_with() == 1008


def test_a_message_that_is_too_long_closes_with_1009(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.hear()

        listener.say({"content": "x" * 70_000})

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


def test_a_follower_over_the_limit_is_asked_to_retry(place, conversation):
    folder, url = place
    settings = {"REDIS_URL": url, "MAX_FOLLOWERS": "2", "WEB_CONCURRENCY": "1"}
    with agent_server(folder / "few", **settings) as (client, _):
        client.post("/api/conversations", json={"conversation_id": conversation})
        with socket(client, conversation) as first, socket(client, conversation) as second:
            first.hear(), second.hear()

            with socket(client, conversation) as third:
                assert third.closed_with() == 1013
            response = client.get(f"/api/conversations/{conversation}/events/stream")
            assert (response.status_code, "Retry-After" in response.headers) == (503, True)
            assert client.get(f"/api/conversations/{conversation}").status_code == 200

        # And when they have gone, there is room again
        def has_room():
            with socket(client, conversation) as again:
                return is_full_state(again.hear(), "idle")

        wait_until(has_room, "room for a follower")


def test_a_stopping_server_closes_its_sockets_with_the_reason_and_ends_at_once(place, conversation):
    folder, url = place
    with agent_server(folder / "stops", REDIS_URL=url, GRACEFUL_TIMEOUT="30") as (client, process):
        client.post("/api/conversations", json={"conversation_id": conversation})
        with socket(client, conversation) as listener:
            listener.hear()
            with client.stream("GET", f"/api/conversations/{conversation}/events/stream") as stream:
                lines = stream.iter_lines()
                next(lines)

                process.terminate()

                assert listener.closed_with() == 1012
                with suppress(httpx.RemoteProtocolError):
                    list(lines)
        process.wait(15)  # half of the time that requests would get


def test_a_client_that_sends_no_pongs_is_dropped_and_a_client_that_sends_them_is_not(place, conversation):
    folder, url = place
    settings = {"REDIS_URL": url, "PING_SECONDS": "0.2", "IDLE_SECONDS": "0.8"}
    with agent_server(folder / "idle", **settings) as (client, _):
        client.post("/api/conversations", json={"conversation_id": conversation})
        with socket(client, conversation) as alive, socket(client, conversation) as silent:
            alive.hear(), silent.hear()
            with silent.connection.send_context():  # holds back whatever the library would answer
                alive.hears_nothing(2)

            client.post(f"/api/v1/webhooks/events/{conversation}", json=[event(number=1)])
            assert alive.hear()["number"] == 1
            assert silent.closed_with() in (1001, 1006)


def test_a_message_of_a_client_that_leaves_at_once_is_kept(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.hear()
        listener.say({"content": "and goodbye"})

    count = f"/api/conversations/{conversation}/events/count?body=goodbye"
    wait_until(lambda: server.get(count).json() == 1, "the message")
