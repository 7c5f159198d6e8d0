"""Turns of the Python client: what was asked of an agent, read until the agent stops."""

import asyncio
from uuid import uuid4

import httpx
import pytest
from agent_server_client import AgentServerError, AsyncClient, Client, PendingAction, Turn, turns

from tests.conftest import action, message, observation, status


@pytest.fixture
def server(app):
    with Client("http://127.0.0.1", transport=httpx.WSGITransport(app), retry_seconds=0.5) as client:
        yield client


@pytest.fixture
def detached(server):
    """A conversation whose agent is the test: `post` has the events that it writes."""
    conversation = server.conversation(str(uuid4()))
    body = {"conversation_id": conversation.id, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    server.post("/api/conversations", body)

    def post(*events: dict) -> None:
        server.request("POST", f"/api/v1/webhooks/events/{conversation.id}", json=list(events))

    conversation.post = post
    return conversation


@pytest.fixture
def _at_once(monkeypatch):
    """No time in which a stopped agent may still begin."""
    monkeypatch.setattr(turns, "BEGINS", 0.0)
    monkeypatch.setattr("agent_server_client._sync.BEGINS", 0.0)
    monkeypatch.setattr(turns, "APPEARS", 0.0)


def run(*words: str) -> list[dict]:
    """What an agent writes that runs once."""
    return [status("running"), *(message(one, "agent") for one in words), status("finished")]


def texts(found) -> list[str]:
    return [one.text for one in found if one.text]


def test_a_sent_message_is_followed_from_itself_on_and_no_earlier_end_ends_it(detached):
    detached.post(*run("old"))
    detached.send("more")
    detached.post(*run("new"))

    assert texts(detached.follow()) == ["more", "new"]


def test_a_turn_has_the_reply_the_status_and_the_entries(detached):
    detached.post(*run("old"))
    turn = detached.send("more")
    assert (turn.status, turn.reply, turn.is_over) == ("", "", False)
    detached.post(*run("new", "and more"))

    assert turn.wait() is turn
    assert (turn.status, turn.reply, turn.is_over) == ("finished", "new\n\nand more", True)
    assert [one.seq for one in turn.entries] == list(range(turn.after + 1, turn.seq + 1))
    assert list(turn.follow()) == []
    assert detached.turn is turn


def test_an_end_that_comes_between_the_cursor_and_the_message_ends_no_turn(detached):
    detached.post(status("running"))
    after = detached.count()
    detached.post(message("old", "agent"), status("finished"))
    detached.send("more")
    detached.post(*run("new"))
    turn = Turn(detached, after, "more")

    turn.wait()

    assert turn.reply == "new"
    assert texts(turn.entries) == ["old", "more", "new"]


def test_a_message_to_an_agent_at_work_ends_with_the_present_run(detached):
    detached.post(status("running"), message("working", "agent"))
    turn = detached.send("also this")
    detached.post(message("both done", "agent"), status("finished"))

    assert "running" not in [one.status for one in turn.wait().entries]
    assert turn.wait().reply == "both done"


def test_a_later_turn_does_not_prolong_an_earlier_one(detached):
    first = detached.send("one")
    detached.post(*run("1"))
    second = detached.send("two")
    detached.post(*run("2"))

    assert (first.wait().reply, second.wait().reply) == ("1", "2")


def test_a_message_in_which_a_secret_was_masked_is_found_all_the_same(detached):
    detached.post(message("my key is <secret-hidden>", "user"), *run("thanks"))
    assert Turn(detached, 0, "my key is 123456").wait().reply == "thanks"


def test_a_wait_returns_where_an_action_waits_and_goes_on_after_the_decision(detached):
    waits = action("ls")
    turn = detached.send("look")
    detached.post(status("running"), waits)

    assert turn.wait().status == "waiting_for_confirmation"
    [pending] = turn.pending_actions()
    assert turn.wait().status == "waiting_for_confirmation"
    pending.approve()
    detached.post(observation(waits), status("finished"))

    assert turn.wait().status == "finished"


def test_a_wait_with_a_rule_decides_each_action_once(detached):
    waits, asked = action("ls"), []
    turn = detached.send("look")
    detached.post(status("running"), waits)

    def decide(pending: PendingAction) -> None:
        asked.append(pending.command)
        pending.approve()
        detached.post(observation(waits), status("finished"))

    assert turn.wait(decide).status == "finished"
    assert asked == ["ls"]


def test_a_turn_that_a_rejection_ends_shows_it(detached):
    turn = detached.send("look")
    detached.post(status("running"), action("ls"))

    turn.wait(lambda pending: pending.reject("Not here."))

    assert (turn.status, turn.entries[-1].kind, turn.entries[-1].text) == ("idle", "UserRejectObservation", "Not here.")


@pytest.mark.usefixtures("_at_once")
def test_an_agent_that_does_not_begin_is_an_error_that_says_what_to_do(detached):
    turn = detached.send("more", run=False)

    with pytest.raises(AgentServerError, match="does not work on the message") as refused:
        turn.wait()
    assert refused.value.status == 504


def test_a_run_that_was_asked_for_is_a_turn_too(detached):
    detached.post(*run("old"))
    turn = detached.run()
    detached.post(message("went on", "agent"), status("finished"))

    assert texts(detached.follow()) == ["went on"]
    assert turn.reply == "went on"


@pytest.mark.usefixtures("_at_once")
def test_a_conversation_that_was_opened_by_its_id_is_followed_from_the_first_entry_to_the_end_of_the_log(
    server, detached
):
    detached.post(*run("first"))
    detached.send("more")
    detached.post(*run("second"))
    opened = server.conversation(detached.id)

    assert texts(opened.follow()) == ["first", "more", "second"]
    assert list(opened.follow(opened.count())) == []
    assert texts(opened.follow(after=3)) == ["more", "second"]
    assert (opened.wait().status, opened.wait().reply) == ("finished", "second")


@pytest.mark.usefixtures("_at_once")
def test_a_conversation_without_a_message_has_nothing_to_follow(detached):
    assert list(detached.follow()) == []


def test_the_async_client_waits_with_a_rule_to_be_awaited(app, detached):
    asked = []
    detached.post(message("look", "user"), status("running"), action("ls"))

    async def decide(pending) -> None:
        asked.append(pending.command)
        detached.post(status("finished"))

    async def wait() -> str:
        async with AsyncClient("http://127.0.0.1", transport=Bridge(httpx.WSGITransport(app))) as client:
            return (await client.conversation(detached.id).wait(decide)).status

    assert asyncio.run(wait()) == "finished"
    assert asked == ["ls"]


class Bridge(httpx.AsyncBaseTransport):
    """The app for an async client: its responses come in one piece after the other."""

    def __init__(self, inner: httpx.WSGITransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        response = self._inner.handle_request(
            httpx.Request(request.method, request.url, headers=request.headers, content=request.content)
        )

        async def pieces():
            for piece in response.stream:
                yield piece

        class BridgeStream(httpx.AsyncByteStream):
            def __aiter__(self):
                return pieces()

            async def aclose(self):
                response.close()

        return httpx.Response(response.status_code, headers=response.headers, stream=BridgeStream())
