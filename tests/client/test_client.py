"""The Python client against the app, and against a server that fails as a test wants."""

import asyncio
import json
from uuid import uuid4

import httpx
import pytest
from agent_server_client import AgentServerError, AsyncClient, Client, PendingAction

from store.errors import ConversationNotFound
from tests.client.responses import responding
from tests.conftest import action, event, message, observation, status


@pytest.fixture
def server(app):
    with Client("http://127.0.0.1", transport=httpx.WSGITransport(app), retry_seconds=0.5) as client:
        yield client


@pytest.fixture
def detached(server):
    """A conversation in which every action waits, and what posts an agent's events into it."""
    conversation = server.conversation(str(uuid4()))
    body = {"conversation_id": conversation.id, "confirmation_policy": {"kind": "AlwaysConfirm"}, "title": "Deploy"}
    server.post("/api/conversations", body)

    def post(*events: dict) -> None:
        server.request("POST", f"/api/v1/webhooks/events/{conversation.id}", json=list(events))

    conversation.post = post
    return conversation


def test_what_waits_is_approved_and_rejected_as_objects(detached):
    detached.post(action("ls", id="a"), action("rm", id="b"))
    first, second = detached.pending_actions()

    first.approve()
    second.reject("Not here.")

    assert (first.item["tool_name"], first.item["arguments"]["command"]) == ("terminal", "ls")
    assert detached.pending_actions() == []
    assert [one["rejection_reason"] for one in detached.search(kind="UserRejectObservation")] == ["Not here."]


def test_a_decision_is_bound_to_the_digest_of_what_was_shown(detached):
    detached.post(action("ls"))
    [shown] = detached.pending_actions()
    shown.item["digest"] = "0" * 64

    with pytest.raises(AgentServerError) as refused:
        shown.approve()

    assert (refused.value.status, refused.value.problems[0]["problem"]) == (409, "changed")
    assert len(detached.pending_actions()) == 1


def test_a_message_that_rejects_nothing_is_not_sent_while_an_action_waits(detached):
    detached.post(action("ls"))

    with pytest.raises(AgentServerError) as refused:
        detached.send("go on", rejects=False)

    assert refused.value.status == 409
    assert len(detached.pending_actions()) == 1
    detached.send("go on")
    assert detached.pending_actions() == []
    detached.send("and on", rejects=False)
    assert detached.count(kind="MessageEvent") == 2


def test_a_second_decision_says_that_somebody_was_faster(detached):
    detached.post(action("ls"))
    [one], [other] = detached.pending_actions(), detached.pending_actions()
    one.approve()

    with pytest.raises(AgentServerError) as refused:
        other.reject()

    assert refused.value.problems == [{"action_id": one.id, "problem": "not_pending"}]


def test_a_run_that_would_approve_is_refused(detached):
    detached.post(action("ls"))

    with pytest.raises(AgentServerError, match="waits for a decision"):
        detached.run()

    assert len(detached.pending_actions()) == 1


def test_a_list_whose_page_names_itself_as_the_next_one_ends_with_an_error():
    page = httpx.Response(200, json={"items": [1], "next_page_id": "again"})
    client = Client("http://server", transport=httpx.MockTransport(lambda _: page))

    with client, pytest.raises(AgentServerError, match="returns the page again endlessly"):
        list(client.pages("/api/conversations/search"))


def test_events_are_counted_and_searched_through_all_pages(detached):
    detached.post(*(message(f"number {number}", "agent") for number in range(120)))

    assert detached.count(kind="MessageEvent") == 120
    assert detached.count(body="number 11") == 11
    assert len(list(detached.search(kind="MessageEvent"))) == 120


def test_a_log_ends_where_it_ended_when_it_was_asked_for(detached):
    detached.post(message("one", "agent"), message("two", "agent"))

    assert [(one.seq, one.event["kind"]) for one in detached.log()] == [(1, "MessageEvent"), (2, "MessageEvent")]
    assert [one.seq for one in detached.log(after=1)] == [2]
    assert list(detached.log(after=2)) == []


def test_a_run_is_followed_to_its_end_with_each_pending_action_once(detached):
    waits = action("ls")
    detached.post(status("running"), waits)

    seen = []
    for one in detached.follow():
        seen.append(one.id if isinstance(one, PendingAction) else one.kind)
        if isinstance(one, PendingAction):
            one.approve()
            detached.post(observation(waits), status("finished"))

    assert seen.count(waits["id"]) == 1
    assert seen[-1] == "ConversationStateUpdateEvent"
    assert "ObservationEvent" in seen


def test_a_run_that_goes_on_by_itself_after_a_crash_is_followed_to_its_end(detached):
    crash = event("ConversationErrorEvent", "environment", code="AgentServerRestarted", detail="killed", goes_on=True)
    detached.post(status("running"), crash, status("paused"), status("running"), status("finished"))
    assert list(detached.follow())[-1].event["value"] == "finished"


def test_a_run_that_was_to_go_on_and_does_not_ends_where_that_is_told(detached):
    told = event("ConversationErrorEvent", "environment", code="AgentServerRestarted", detail="killed", goes_on=True)
    taken_back = event("ConversationErrorEvent", "environment", code="RunNotResumed", detail="refused")
    detached.post(status("running"), told, status("paused"), taken_back)
    assert list(detached.follow())[-1].event["code"] == "RunNotResumed"


def test_the_inbox_is_followed(server, detached):
    detached.post(action("ls", id="followed"))

    for name, data in server.inbox():
        if any(item["action_id"] == "followed" for item in data.get("items", [])):
            assert name == "snapshot"
            break
    else:
        pytest.fail("the stream of the inbox has ended")


def test_an_unknown_conversation_is_an_error_with_status_and_detail(server):
    with pytest.raises(AgentServerError) as refused:
        server.conversation(str(uuid4())).info()

    assert (refused.value.status, refused.value.detail) == (404, ConversationNotFound.words)


def test_the_beginning_of_an_id_is_refused_with_the_command_that_prints_whole_ones(server):
    with pytest.raises(ValueError, match=r"'5f1c8a52' is not the whole id of a conversation.*agentctl ls --json"):
        server.conversation("5f1c8a52")


def test_a_refused_member_is_named(detached):
    with pytest.raises(AgentServerError, match=r"422: timestamp__gte: "):
        detached.count(timestamp__gte="yesterday")


def test_a_deleted_conversation_is_gone(detached):
    detached.delete()
    with pytest.raises(AgentServerError, match="Conversation not found"):
        detached.info()


def test_a_post_that_got_no_response_is_repeated_under_its_key():
    later = httpx.Response(503, headers={"Retry-After": "0"}, json={"detail": "later"})
    client, requests = responding(httpx.ReadError("reset"), later, httpx.Response(200, json={"success": True}))

    assert client.post("/api/x") == {"success": True}
    assert len({request.headers["Idempotency-Key"] for request in requests}) == 1
    assert len(requests) == 3


def test_what_must_happen_once_and_takes_no_key_is_sent_once():
    client, requests = responding(httpx.ReadError("reset"))

    with pytest.raises(AgentServerError, match="it is not known whether this took effect"):
        client.post("/api/x", again=False)

    assert "Idempotency-Key" not in requests[0].headers


def test_tries_end_with_the_time_for_them():
    refusals = (httpx.Response(503, headers={"Retry-After": "1"}, json={"detail": "busy"}) for _ in range(9))
    client, requests = responding(*refusals, retry_seconds=0.5)

    with pytest.raises(AgentServerError, match="503: busy"):
        client.get("/api/x")
    assert len(requests) == 1


def test_a_server_that_has_never_answered_is_tried_for_the_first_seconds_alone():
    client, requests = responding(httpx.ConnectError("refused"), first_seconds=0.0)
    with pytest.raises(AgentServerError, match="does not answer: refused"):
        client.get("/api/x")
    assert len(requests) == 1

    lost, back = httpx.ConnectError("refused"), httpx.Response(200, json={})
    retries = []
    client, requests = responding(
        back, lost, lost, back, first_seconds=0.0, on_retry=lambda *said: retries.append(said)
    )
    assert client.get("/api/x") == client.get("/api/x") == {}
    assert len(requests) == 4
    assert [(str(error), 0 <= spent < left) for error, spent, left in retries] == [
        ("http://server does not answer: refused. Check that the server runs there", True)
    ] * 2


@pytest.mark.parametrize("code", [400, 404, 409, 500, 502])
def test_a_refusal_without_a_retry_after_is_final(code):
    client, requests = responding(httpx.Response(code, json={"detail": "no"}))

    with pytest.raises(AgentServerError) as refused:
        client.get("/api/x")

    assert (refused.value.status, len(requests)) == (code, 1)


def sent(*numbers: int, cut: str = "") -> httpx.Response:
    """A stream of events, which breaks off in the middle of the next one."""
    lines = [
        f"id: {number}\ndata: {json.dumps({'kind': 'K', 'n': number, 'text': chr(0x2028)})}\n\n" for number in numbers
    ]
    return httpx.Response(200, content=("retry: 1000\n\n: comment\n\n" + "".join(lines) + cut).encode())


@pytest.fixture
def _at_once(monkeypatch):
    """No pauses between the tries of a stream."""
    for name in ("_sync", "_async"):
        monkeypatch.setattr(f"agent_server_client.{name}._ENDED", 0.0)
    monkeypatch.setattr("agent_server_client.wire._FIRST", 0.001)


def interrupted() -> list:
    return [
        sent(1, 2, cut='id: 3\ndata: {"kind": "half'),
        httpx.ConnectError("refused"),
        httpx.Response(503, headers={"Retry-After": "0"}, json={"detail": "starting"}),
        sent(3, 4),
        httpx.Response(404, json={"detail": "Conversation not found"}),
    ]


@pytest.mark.usefixtures("_at_once")
def test_a_stream_resumes_by_its_cursor_and_repeats_no_event():
    client, requests = responding(*interrupted())
    seen = []

    with pytest.raises(AgentServerError, match="404"):
        seen.extend((one.seq, one.event["n"]) for one in client.conversation(str(uuid4())).events())

    assert seen == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert [request.headers["Last-Event-ID"] for request in requests] == ["0", "2", "2", "2", "4"]


@pytest.mark.usefixtures("_at_once")
def test_an_async_stream_resumes_in_the_same_way():
    seen = []

    async def follow() -> None:
        client, _ = responding(*interrupted(), kind=AsyncClient)
        async with client:
            async for entry in client.conversation(str(uuid4())).events():
                seen.append(entry.seq)

    with pytest.raises(AgentServerError, match="404"):
        asyncio.run(follow())
    assert seen == [1, 2, 3, 4]


def test_an_async_request_is_tried_again_too():
    async def count() -> int:
        later = httpx.Response(429, headers={"Retry-After": "0"}, json={"detail": "later"})
        client, _ = responding(later, httpx.Response(200, json=7), kind=AsyncClient)
        async with client:
            return await client.conversation(str(uuid4())).count()

    assert asyncio.run(count()) == 7


def test_a_command_is_started_once_and_its_output_is_read_in_order():
    def piece(order: int, text: str, code: int | None = None) -> dict:
        return {"order": order, "stdout": text, "stderr": None, "exit_code": code}

    pages = ({"items": items} for items in ([piece(1, "b"), piece(0, "a")], [], [piece(2, "c", 3)]))
    responses = (httpx.Response(200, json=page) for page in pages)
    client, requests = responding(httpx.Response(200, json={"id": "command"}), *responses)

    pieces = list(client.conversation(str(uuid4())).execute("make"))

    assert [(one.stdout, one.exit_code) for one in pieces] == [("a", None), ("b", None), ("c", 3)]
    assert "Idempotency-Key" not in requests[0].headers
    assert requests[2].url.params["order__gt"] == "1"


def test_who_stops_reading_a_command_stops_it():
    output = {"items": [{"order": 0, "stdout": "a", "exit_code": None}]}
    responses = (httpx.Response(200, json=one) for one in ({"id": "command"}, output, {"success": True}))
    client, requests = responding(*responses)

    pieces = client.conversation(str(uuid4())).execute("yes")
    next(pieces)
    pieces.close()

    assert requests[-1].url.path.endswith("/bash/bash_commands/command/stop")


def test_an_upload_names_an_absolute_path_also_where_the_agent_names_none(tmp_path):
    ended = {"items": [{"order": 0, "stdout": "/srv/work\n", "exit_code": 0}]}
    told = ({"workspace": {"working_dir": "."}}, {"id": "command"}, ended, {"file_size": 1})
    client, requests = responding(*(httpx.Response(200, json=one) for one in told))
    (tmp_path / "a").write_text("a")

    client.conversation(str(uuid4())).files.upload(tmp_path / "a", "in/a")

    assert requests[-1].url.params["path"] == "/srv/work/in/a"
    assert b"filename" in requests[-1].content


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_download_whose_connection_is_lost_is_the_one_error(kind, tmp_path):
    class LostConnection(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self):
            yield b"the beginning"
            raise httpx.ReadError("the connection is lost")

        async def __aiter__(self):
            for piece in self:
                yield piece

    known = httpx.Response(200, json=[{"sandbox_id": "s"}])
    client, requests = responding(known, httpx.Response(200, stream=LostConnection()), kind=kind)
    files = client.conversation(str(uuid4())).files

    async def fetch() -> None:
        writing = files.download("", tmp_path)
        if kind is AsyncClient:
            await writing

    with pytest.raises(AgentServerError, match="does not answer: the connection is lost"):
        asyncio.run(fetch())

    assert requests[-1].url.path == "/api/v1/sandboxes/s/archive"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("fault", [httpx.ReadTimeout("timed out"), httpx.RemoteProtocolError("ended")])
def test_a_request_that_may_have_arrived_is_not_said_to_be_refused(fault):
    client, _ = responding(fault, retry_seconds=0)
    with pytest.raises(AgentServerError, match="No answer from http://server: it is not known"):
        client.post("/api/conversations/x/pause")


@pytest.mark.parametrize("fault", [httpx.ConnectError("refused"), httpx.ConnectTimeout("timed out")])
def test_a_request_that_has_not_left_is_known_to_have_no_effect(fault):
    client, _ = responding(fault, retry_seconds=0)
    with pytest.raises(AgentServerError, match="does not answer"):
        client.post("/api/conversations/x/pause")
