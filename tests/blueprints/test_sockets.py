"""A conversation over a WebSocket, on a real server of two workers: its frames, its refusals, its end."""

import json
from uuid import uuid4

import pytest
from flask import g
from redis.exceptions import ConnectionError as Away
from redis.exceptions import OutOfMemoryError
from websockets.exceptions import InvalidStatus

from blueprints.sockets import SocketSession
from core.access import ANYONE
from store.approvals.audit import SERVER
from store.errors import FULL, NewerData, StoreFull, TooManyKinds
from tests.blueprints.test_websocket import open_socket
from tests.conftest import action, event, status
from tests.servers import agent_server, wait_until
from tests.sockets import socket

pytestmark = pytest.mark.process("opens sockets to a real server")


def numbered(count, start=0):
    return [event(number=number) for number in range(start, start + count)]


def numbers(frames):
    return [frame["number"] for frame in frames if "number" in frame]


def is_full_state(frame, execution_status):
    return frame["key"] == "full_state" and frame["value"]["execution_status"] == execution_status


# frames from the server


def test_the_first_frame_is_the_full_state_and_nothing_is_replayed_by_default(server, conversation, post):
    post(*numbered(3))

    with socket(server, conversation) as listener:
        first = listener.receive()
        post(event(number=3))

        assert first["kind"] == "ConversationStateUpdateEvent"
        assert is_full_state(first, "idle")
        state = server.get(f"/api/conversations/{conversation}").json()
        assert {**first["value"], "updated_at": ""} == {**state, "updated_at": ""}
        assert listener.receive()["number"] == 3
    assert server.get(f"/api/conversations/{conversation}/events/count").json() == 4


def test_all_events_are_replayed_on_demand_then_live_ones_follow(server, conversation, post):
    post(*numbered(250))

    with socket(server, conversation, resend_mode="all") as listener:
        assert is_full_state(listener.receive(), "idle")
        post(event(number=250))

        assert numbers(listener.receive_until(number=250)) == list(range(251))


def test_events_are_sent_byte_for_byte(server, conversation, post):
    text = (
        '{"kind": "PauseEvent",\n "id": "as-it-came", "source":"user", "timestamp":"2026-11-20", "n": 1.00, "é": null}'
    )
    url = f"/api/v1/webhooks/events/{conversation}"

    with socket(server, conversation) as listener:
        listener.receive()
        server.post(url, content=f"[{text}]".encode(), headers={"Content-Type": "application/json"})

        assert listener.connection.recv(10) == text


def test_events_since_a_time_are_replayed_in_the_order_of_appending(server, conversation, post):
    # Given times out of order, one of them exactly the requested one
    for number, second in enumerate((5, 1, 3, 2, 4)):
        post(event(number=number, timestamp=f"2026-11-20T10:00:0{second}"))

    with socket(server, conversation, resend_mode="since", after_timestamp="2026-11-20T10:00:03") as listener:
        listener.receive()
        # And a live one of an earlier time
        post(event(number=5, timestamp="2020-01-01T00:00:00"))

        assert numbers(listener.receive_until(number=5)) == [0, 2, 4, 5]


def test_a_time_without_events_replays_nothing(server, conversation, post):
    post(*numbered(2))

    with socket(server, conversation, resend_mode="since", after_timestamp="2099-01-01") as listener:
        listener.receive()
        post(event(number=2))

        assert listener.receive()["number"] == 2


def test_every_frame_after_a_seq_has_its_seq(server, conversation, post):
    post(*numbered(5))

    with socket(server, conversation, after_seq=2) as listener:
        state = listener.receive()
        assert state["seq"] is None
        assert is_full_state(state["event"], "idle")
        post(event(number=5))

        frames = [listener.receive() for _ in range(4)]
        assert [(frame["seq"], frame["event"]["number"]) for frame in frames] == [(3, 2), (4, 3), (5, 4), (6, 5)]


def test_a_fresh_full_state_follows_every_end_of_a_run(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.receive()
        for end in ("paused", "error", "stuck", "idle", "finished"):
            server.post(f"/api/conversations/{conversation}/run")
            assert listener.receive()["value"] == "running"

            post(status(end))

            assert listener.receive()["value"] == end
            assert is_full_state(listener.receive(), end)


def test_a_run_that_ends_at_a_pending_action_is_reported(server, conversation, post):
    policy = {"policy": {"kind": "AlwaysConfirm"}}
    server.post(f"/api/conversations/{conversation}/confirmation_policy", json=policy)

    with socket(server, conversation) as listener:
        listener.receive()
        server.post(f"/api/conversations/{conversation}/run")
        post(action())

        received = listener.receive_until(key="full_state")
        reported = [frame.get("value", frame["kind"]) for frame in received[:-1]]
        assert reported == ["running", "ActionEvent", "waiting_for_confirmation"]
        assert is_full_state(received[-1], "waiting_for_confirmation")


def test_a_change_that_ends_no_run_sends_no_full_state(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.receive()

        server.patch(f"/api/conversations/{conversation}", json={"title": "New"})
        post(event("ConversationStateUpdateEvent", "environment", key="full_state", value={"title": "Newer"}))
        server.patch(f"/api/conversations/{conversation}", json={"tags": {"a": "1"}})

        tags = listener.receive()
        assert (tags["key"], tags["value"]) == ("tags", {"a": "1"})


def test_a_follower_with_seqs_receives_a_changed_title_as_an_event_that_no_log_keeps(server, conversation, post):
    with socket(server, conversation, after_seq=0) as listener:
        listener.receive()

        server.patch(f"/api/conversations/{conversation}", json={"title": "New"})

        frame = listener.receive()
        assert frame["seq"] is None
        told = frame["event"]
        assert (told["kind"], told["source"]) == ("ConversationStateUpdateEvent", "environment")
        assert (told["key"], told["value"]) == ("title", "New")
    assert server.get(f"/api/conversations/{conversation}/events/count").json() == 0


def test_a_run_of_a_finished_conversation_is_reported_as_ended(server, conversation, post):
    post(status("finished"))
    with socket(server, conversation) as listener:
        listener.receive()

        server.post(f"/api/conversations/{conversation}/run")

        assert is_full_state(listener.receive(), "finished")


def test_a_run_that_ends_by_a_snapshot_of_its_agent_is_reported(server, conversation, post):
    post(status("running"))
    with socket(server, conversation) as listener:
        listener.receive()

        post(
            event("ConversationStateUpdateEvent", "environment", key="full_state", value={"execution_status": "error"})
        )

        assert is_full_state(listener.receive(), "error")


@pytest.mark.parametrize("kind", ["StreamingDeltaEvent", "ServerErrorEvent"])
def test_events_that_the_log_does_not_keep_are_sent_live(server, conversation, post, kind):
    with socket(server, conversation) as listener:
        listener.receive()
        delta = event(kind, "agent", content="à la carte")

        appended = post(delta, event(number=1))

        assert appended == {"success": True, "appended": 1, "seq": 1}
        assert sorted([listener.receive(), listener.receive()], key=lambda one: "number" in one)[0] == delta
    assert server.get(f"/api/conversations/{conversation}/events/count").json() == 1


def test_what_a_command_has_printed_so_far_is_for_followers_with_seqs_alone(server, conversation, post):
    with socket(server, conversation) as plain, socket(server, conversation, after_seq=0) as with_seqs:
        plain.receive(), with_seqs.receive()
        printed = event("CommandOutputEvent", "environment", action_id="a", text="one", size=3)

        post(printed)
        post(one := event())

        assert with_seqs.receive() == {"seq": None, "event": printed}
        assert plain.receive()["id"] == one["id"]


# frames from the client


def test_a_frame_of_a_client_is_a_users_message_and_starts_a_run(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.receive()

        listener.send({"role": "user", "content": "hello", "run": False, "unknown": 1})

        said, running = listener.receive(), listener.receive()
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
        ({"content": [{"type": "sound"}]}, "ValidationError"),
        ({"content": "lone \ud800"}, "ValidationError"),
    ],
)
def test_an_invalid_message_gets_an_error_frame_and_the_socket_stays_open(server, conversation, post, said, code):
    with socket(server, conversation) as listener:
        listener.receive()

        listener.send(said)
        error = listener.receive()
        assert (error["kind"], error["source"], error["code"]) == ("ServerErrorEvent", "environment", code)
        assert error["detail"]

        listener.send({"content": "still here"})
        said_last = listener.receive_until(kind="MessageEvent")[-1]
        assert said_last["llm_message"]["content"][0]["text"] == "still here"


def test_a_message_that_is_to_reject_nothing_gets_an_error_frame_while_an_action_waits(server, conversation, post):
    policy = {"policy": {"kind": "AlwaysConfirm"}}
    assert server.post(f"/api/conversations/{conversation}/confirmation_policy", json=policy).status_code == 200
    held = action("ls")
    post(held)
    with socket(server, conversation) as listener:
        listener.receive()

        listener.send({"content": "hello", "rejects": False})
        error = listener.receive()
        assert (error["kind"], error["code"]) == ("ServerErrorEvent", "ActionsWait")
        waits = server.get(f"/api/conversations/{conversation}/pending_actions").json()
        assert [one["id"] for one in waits] == [held["id"]]

        listener.send({"content": "hello"})
        assert listener.receive_until(kind="MessageEvent")
        assert server.get(f"/api/conversations/{conversation}/pending_actions").json() == []


def test_an_auth_frame_is_ignored(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.receive()

        listener.send({"type": "auth", "session_api_key": "any"})
        listener.send({"content": "x"})

        assert listener.receive()["kind"] == "MessageEvent"
    assert server.get(f"/api/conversations/{conversation}/events/count").json() == 2


def test_a_message_over_a_socket_rejects_pending_actions(server, conversation, post):
    policy = {"policy": {"kind": "AlwaysConfirm"}}
    server.post(f"/api/conversations/{conversation}/confirmation_policy", json=policy)
    held = action()
    post(held)

    with socket(server, conversation) as listener:
        listener.receive()
        listener.send({"content": "Wait!"})

        rejection = listener.receive_until(kind="UserRejectObservation")[-1]
        assert (rejection["action_id"], rejection["rejection_reason"]) == (
            held["id"],
            "Superseded by a new user message.",
        )


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


def test_an_invalid_query_is_refused_before_the_handshake(server, conversation, post):
    with pytest.raises(InvalidStatus) as refusal, socket(server, conversation, after_seq="-1"):
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


@pytest.mark.process("starts a server with room for two followers")
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


@pytest.mark.process("starts a server that waits for pongs")
def test_a_client_that_sends_no_pongs_is_dropped_and_a_client_that_sends_them_is_not(backend, conversation):
    folder, url = backend
    settings = {"REDIS_URL": url, "PING_SECONDS": "0.2", "IDLE_SECONDS": "5"}
    with agent_server(folder / "idle", **settings) as (client, _):
        client.post("/api/conversations", json={"conversation_id": conversation})
        with socket(client, conversation) as alive, open_socket(client, conversation) as silent:
            silent.head(), alive.receive()

            assert silent.closed_with() == (1001, "No answer to pings")

            client.post(f"/api/v1/webhooks/events/{conversation}", json=[event(number=1)])
            assert alive.receive()["number"] == 1


def test_a_message_of_a_client_that_leaves_at_once_is_kept(server, conversation, post):
    with socket(server, conversation) as listener:
        listener.receive()
        listener.send({"content": "and goodbye"})

    count = f"/api/conversations/{conversation}/events/count?body=goodbye"
    wait_until(lambda: server.get(count).json() == 1, "the message")


class Socket:
    """The frames that a client receives."""

    def __init__(self):
        self.sent = b""

    def send(self, frames):
        self.sent += frames


@pytest.fixture
def session(app, store, conversation):
    """A session of one client, whose threads do not run."""
    store.conversations.create(conversation)
    with app.test_request_context():
        g.principal, g.request_id = ANYONE, "a-request"
        options = {"after": None, "since": None, "with_seq": False}
        session = SocketSession(app.extensions["server"].commands.of(SERVER), ANYONE, conversation, Socket(), **options)
        yield session
        session._follower.close()


def refusal(session) -> tuple[str, str]:
    """The code and the detail of the error that a message gets."""
    session._take(json.dumps({"role": "user", "content": [{"type": "text", "text": "hello"}]}).encode())
    event = json.loads(session._socket.sent[session._socket.sent.index(b"{") :])
    return event["code"], event["detail"]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OutOfMemoryError("OOM command not allowed"), "StoreFull", FULL),
        (StoreFull(99, 100), "StoreFull", "Redis is nearly full: 99 of 100 bytes are in use"),
        (NewerData("8", 7), "NewerData", "run a newer release"),
        (TooManyKinds(9), "TooManyKinds", "at most 9 pairs"),  # a refusal that a message rarely meets
        (Away("refused"), "StoreUnavailable", "the store does not answer"),
    ],
)
def test_a_message_that_the_store_refuses_names_the_reason(session, monkeypatch, error, code, words):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(session._store.events._scripts, "send_message", refuse)

    told, detail = refusal(session)

    assert (told, words in detail) == (code, True), detail


def test_an_open_socket_takes_no_message_once_a_newer_release_was_found(session, store, monkeypatch):
    def found():
        raise NewerData("8", 7)

    monkeypatch.setattr(store.data_version, "is_current", False)
    monkeypatch.setattr(store.data_version, "ensure", found)

    assert refusal(session)[0] == "NewerData"
    assert store.events.count(session._id) == 0
