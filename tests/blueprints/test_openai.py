"""OpenAI's API in front of agents, over HTTP: an agent that answers by itself, and one whose steps the test takes."""

import json
from contextlib import closing
from uuid import uuid4

import pytest

from agents import turns
from app import create_app
from blueprints import openai
from settings.config import Config
from tests.agents import running_sandbox, scripted_agent
from tests.conftest import SECRET_KEY, action, as_events, event, message, status

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
CONVERSATION = "X-OpenHands-ServerConversation-ID"
MODEL = "openhands_reference-agent"
ADMIN = "an-admin-key-for-tests-only"


def said(text: str = "hello", **members) -> dict:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **members}


def text(content: str) -> dict:
    return {"type": "text", "text": content}


def users(client, conversation: str) -> list[str]:
    """What a user has said in a conversation, in the order of the log."""
    query = "kind=MessageEvent&source=user"
    items = client.get(f"/api/conversations/{conversation}/events/search?{query}").get_json()["items"]
    return ["\n".join(part["text"] for part in one["llm_message"]["content"]) for one in items]


def data_of(frames: bytes) -> list:
    """What the frames of a stream have as data."""
    lines = [line.removeprefix("data: ") for line in frames.decode().splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def deltas(frames: bytes) -> str:
    """The content that the chunks of a stream add up to."""
    chunks = [one for one in data_of(frames) if one != "[DONE]" and one.get("choices")]
    return "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks)


class AnswerStream:
    """A stream that is read until it has sent a text, or to its end."""

    def __init__(self, response) -> None:
        assert response.status_code == 200, response.get_data()
        assert response.mimetype == "text/event-stream"
        self.response, self._chunks, self.frames = response, response.iter_encoded(), b""

    def until(self, expected: str) -> "AnswerStream":
        while expected not in self.frames.decode():
            self.frames += next(self._chunks)
        return self

    def rest(self) -> bytes:
        self.frames += b"".join(self._chunks)
        return self.frames


@pytest.fixture
def stream(client, conversation):
    """Begin a streamed chat completion in the conversation; it is closed at the end of the test."""
    begun = []

    def begin(body: dict, path: str = CHAT) -> AnswerStream:
        begun.append(
            AnswerStream(client.post(path, json={**body, "stream": True}, headers={CONVERSATION: conversation}))
        )
        return begun[-1]

    yield begin
    for one in begun:
        one.response.close()


class AnsweringAgent:
    """An agent in a sandbox that takes each message and appends a turn: the message, then what the test has set."""

    def __init__(self, store, agent, sandbox, conversation: str) -> None:
        self.turn = [status("running"), message("done", "agent"), status("finished")]
        self.conversation = conversation
        self._store, self._agent, self.sandbox = store, agent, sandbox
        store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
        agent.on_request = self._take

    def _take(self, path: str) -> None:
        if path.endswith("/events") and self._agent.requests[-1][0].startswith("POST"):
            said = {"role": "user", "content": self._agent.requests[-1][1]["content"]}
            turn = [event("MessageEvent", "user", llm_message=said), *self.turn]
            fresh = as_events([{**one, "id": str(uuid4())} for one in turn])
            self._store.events.append(self.conversation, fresh, sandbox_id=self.sandbox.id)


@pytest.fixture
def answering(store, conversation):
    with scripted_agent() as agent, running_sandbox(store, agent.url) as sandbox:
        yield AnsweringAgent(store, agent, sandbox, conversation)


@pytest.fixture
def sandbox_of_answering(answering):
    """The sandbox of an agent that begins to work and says nothing."""
    answering.turn = [status("running")]
    return answering.sandbox


@pytest.fixture(scope="module")
def hasty(redis_url):
    """A client of an app whose calls wait 50 ms for an agent that works, and 1 s for one that starts."""
    brief = {"completion_seconds": 0.05, "sandbox_start_seconds": 1.0}
    return create_app(Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, **brief)).test_client()


@pytest.fixture(scope="module")
def keyed(redis_url):
    """A client of an app that asks for keys."""
    config = Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, api_keys=(ADMIN,))
    return create_app(config).test_client()


# models


def test_each_spec_is_a_model(client):
    listed = client.get("/v1/models").get_json()

    assert listed["object"] == "list"
    assert [one["id"] for one in listed["data"]] == [MODEL]
    assert client.get(f"/v1/models/{MODEL}").get_json() == listed["data"][0]
    assert listed["data"][0] == {"id": MODEL, "object": "model", "created": 1795219200, "owned_by": "openhands"}


@pytest.mark.parametrize("model", ["gpt-5", "reference-agent", "openhands_", "openhands_other/one"])
def test_an_unknown_model_is_404_and_starts_nothing(client, model):
    for response in (
        client.get(f"/v1/models/{model}"),
        client.post(CHAT, json=said(model=model)),
        client.post(RESPONSES, json={"model": model, "input": "x"}),
    ):
        assert response.status_code == 404
        error = response.get_json()["error"]
        assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "model_not_found", None)
        assert f'"{model}"' in error["message"]
        assert CONVERSATION not in response.headers


# calls that are not streamed


def test_a_chat_completion_is_what_the_agent_says_last(client, answering, conversation):
    stats = {"usage_to_metrics": {"agent": {"accumulated_token_usage": {"prompt_tokens": 7, "completion_tokens": 2}}}}
    used = event("ConversationStateUpdateEvent", "environment", key="stats", value=stats)
    answering.turn[1:1] = [message("on it", "agent"), action("ls"), used]

    response = client.post(CHAT, json=said(), headers={CONVERSATION: conversation})

    assert (response.status_code, response.headers[CONVERSATION]) == (200, conversation)
    completion = response.get_json()
    assert completion.pop("id").startswith(f"chatcmpl-{conversation.replace('-', '')}")
    assert isinstance(completion.pop("created"), int)
    assert completion == {
        "object": "chat.completion",
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
    }
    assert users(client, conversation) == ["hello"]


def test_a_message_with_the_value_of_a_secret_has_its_turn(client, store, answering, conversation):
    store.conversations.put_secrets(conversation, {"TOKEN": "sesame-ghp_1"}, answering.sandbox.id)

    response = client.post(CHAT, json=said("log in with sesame-ghp_1"), headers={CONVERSATION: conversation})

    assert (response.status_code, response.get_json()["choices"][0]["message"]["content"]) == (200, "done")
    assert users(client, conversation) == ["log in with <secret-hidden>"]


def test_the_message_with_which_an_agent_finishes_is_its_answer(client, answering, conversation):
    answering.turn[1] = action(action={"kind": "FinishAction", "message": "It is 42."}, tool_name="finish")

    response = client.post(CHAT, json=said(), headers={CONVERSATION: conversation})

    assert response.get_json()["choices"][0]["message"]["content"] == "It is 42."


def test_a_known_conversation_gets_the_users_new_messages_alone(client, answering, conversation):
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": [text("second"), {"type": "text", "text": "part"}]},
        {"role": "user", "content": "third"},
    ]

    assert client.post(CHAT, json=said(messages=history[1:]), headers={CONVERSATION: conversation}).status_code == 200
    assert users(client, conversation) == ["second\npart\nthird"]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_that_a_conversation_has_not_been_told_precede_the_new_message_once(
    client, answering, conversation, role
):
    def call(instructions: str, words: str) -> str:
        messages = [{"role": role, "content": instructions}] if instructions else []
        body = said(messages=[*messages, {"role": "user", "content": words}])
        assert client.post(CHAT, json=body, headers={CONVERSATION: conversation}).status_code == 200
        return users(client, conversation)[-1]

    def told(instructions: str, words: str) -> str:
        return f'<message role="{role}">\n{instructions}\n</message>\n{words}'

    assert call("Be brief.", "first") == told("Be brief.", "first")
    assert call("Be brief.", "second") == "second"
    assert call("", "third") == "third"
    assert call("Be verbose.", "fourth") == told("Be verbose.", "fourth")
    assert call("Be verbose.", "fifth") == "fifth"


def test_new_instructions_of_the_responses_api_are_told_too(client, answering, conversation):
    for instructions in ("Be brief.", "Be brief.", "Be verbose."):
        body = {"model": MODEL, "input": "hello", "instructions": instructions}
        assert client.post(RESPONSES, json=body, headers={CONVERSATION: conversation}).status_code == 200

    marked = '<message role="system">\nBe {}.\n</message>\nhello'
    assert users(client, conversation) == [marked.format("brief"), "hello", marked.format("verbose")]


def test_a_repeat_of_a_call_with_new_instructions_sends_nothing(client, agent, conversation, stream):
    body = said(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}])
    stream(body).until("assistant")
    agent.posts(status("running"))
    stream(body).until("assistant")
    assert users(client, conversation) == ['<message role="system">\nBe brief.\n</message>\nhello']


def test_a_chat_goes_on_without_an_id_by_what_was_said_and_its_branches_do_not_meet(
    client, hasty, answering, conversation
):
    begun = said(f"hello {uuid4()}")
    first = client.post(CHAT, json=begun, headers={CONVERSATION: conversation}).get_json()
    answer = first["choices"][0]["message"]
    chat = [*begun["messages"], {**answer, "content": "done \n"}]

    def goes_on(*more: str, with_client=client) -> str:
        messages = [*chat, *({"role": "user", "content": text} for text in more)]
        return with_client.post(CHAT, json=said(messages=messages)).headers[CONVERSATION]

    assert goes_on("more") == conversation
    assert users(client, conversation)[1:] == ["more"]
    assert goes_on("other", with_client=hasty) != conversation
    assert users(client, conversation)[1:] == ["more"]


def test_a_chat_with_a_streamed_answer_continues_its_conversation(client, answering, conversation, stream):
    answering.turn[1:1] = [message("on it", "agent")]
    begun = said(f"hello {uuid4()}")
    answer = deltas(stream(begun).rest())

    chat = [*begun["messages"], {"role": "assistant", "content": answer}, {"role": "user", "content": "more"}]

    assert client.post(CHAT, json=said(messages=chat)).headers[CONVERSATION] == conversation


def test_a_response_goes_on_with_the_conversation_of_the_previous_one(client, answering, conversation):
    body = {"model": MODEL, "input": "hello", "instructions": "Be brief.", "metadata": {"a": "b"}}
    first = client.post(RESPONSES, json=body, headers={CONVERSATION: conversation}).get_json()

    assert first["id"].startswith(f"resp_{conversation.replace('-', '')}")
    assert (first["object"], first["status"], first["metadata"]) == ("response", "completed", {"a": "b"})
    [item] = first["output"]
    assert (item["type"], item["role"], item["content"][0]["text"]) == ("message", "assistant", "done")
    assert first["usage"]["total_tokens"] == 0

    again = {"model": MODEL, "input": [{"role": "user", "content": [{"type": "input_text", "text": "more"}]}]}
    second = client.post(RESPONSES, json={**again, "previous_response_id": first["id"]})
    assert second.headers[CONVERSATION] == conversation
    assert second.get_json()["previous_response_id"] == first["id"]
    assert users(client, conversation)[1:] == ["more"]


def test_a_repeat_with_an_idempotency_key_gets_the_first_response_and_sends_nothing(client, answering, conversation):
    headers = {CONVERSATION: conversation, "Idempotency-Key": str(uuid4())}
    first, again = (client.post(CHAT, json=said(), headers=headers) for _ in range(2))

    assert first.get_json() == again.get_json()
    assert again.headers["Idempotency-Replayed"] == "true"
    assert users(client, conversation) == ["hello"]


# how a turn fails


def test_an_agent_that_ends_with_an_error_is_502_with_its_reason(client, answering, conversation):
    failed = event("ConversationErrorEvent", "environment", code="LLM", detail="The model\nis gone")
    answering.turn[1:] = [failed, status("error")]

    response = client.post(CHAT, json=said(), headers={CONVERSATION: conversation})

    assert (response.status_code, response.headers[CONVERSATION]) == (502, conversation)
    assert response.get_json()["error"] == {
        "message": "The agent ended with the status error: The model is gone",
        "type": "server_error",
        "param": None,
        "code": "agent_failed",
    }


def test_an_agent_that_is_paused_is_409(client, answering, conversation):
    answering.turn[1:] = [status("paused")]

    response = client.post(CHAT, json=said(), headers={CONVERSATION: conversation})

    assert (response.status_code, response.get_json()["error"]["code"]) == (409, "agent_stopped")


def test_a_turn_that_takes_longer_is_503_and_a_repeat_waits_on_without_sending_again(hasty, client, conversation):
    client.post("/api/conversations", json={"conversation_id": conversation})

    for repeat in ({}, {"X-Stainless-Retry-Count": "1"}):
        response = hasty.post(CHAT, json=said(), headers={CONVERSATION: conversation, **repeat})
        assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
        assert response.get_json()["error"]["code"] == "turn_not_done"
        assert "COMPLETION_SECONDS" in response.get_json()["error"]["message"]
        assert "X-Should-Retry" not in response.headers
    assert users(client, conversation) == ["hello"]


def test_what_still_waits_when_the_time_is_over_is_told_in_the_answer(hasty, agent, conversation):
    turn = [message("hello"), status("running"), action("rm -r build", security_risk="HIGH")]
    agent.posts(*turn)

    response = hasty.post(CHAT, json=said(), headers={CONVERSATION: conversation})
    [choice] = response.get_json()["choices"]
    assert choice["finish_reason"] == "length"
    assert '"command": "rm -r build"' in choice["message"]["content"]
    assert f"/console/#/conversations/{conversation}" in choice["message"]["content"]
    assert len(agent.pending) == 1

    told = hasty.post(RESPONSES, json={"model": MODEL, "input": "hello"}, headers={CONVERSATION: conversation})
    assert (told.get_json()["status"], told.get_json()["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )


def test_a_call_returns_soon_after_an_action_begins_to_wait_for_a_person(client, agent, conversation, monkeypatch):
    monkeypatch.setattr(openai, "_DECISION_SECONDS", 0.01)
    agent.posts(message("hello"), status("running"), action("rm -r build"))

    response = client.post(CHAT, json=said(), headers={CONVERSATION: conversation})

    [choice] = response.get_json()["choices"]
    assert (choice["finish_reason"], len(agent.pending)) == ("length", 1)
    assert f"/console/#/conversations/{conversation}" in choice["message"]["content"]


def test_a_call_that_could_only_begin_another_conversation_forbids_a_repeat(hasty):
    response = hasty.post(CHAT, json=said())

    assert response.status_code == 503  # no supervisor takes the start
    assert response.headers["X-Should-Retry"] == "false"
    assert response.headers[CONVERSATION]


# streams


def test_a_stream_has_what_the_agent_says_and_does_and_ends(answering, stream):
    answering.turn[1:1] = [message("on it", "agent"), action("ls", summary="list")]

    frames = stream(said(stream_options={"include_usage": True})).rest()

    *chunks, done = data_of(frames)
    assert done == "[DONE]"
    assert {(one["object"], one["model"], one["id"]) for one in chunks} == {
        ("chat.completion.chunk", MODEL, chunks[0]["id"])
    }
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert deltas(frames) == "on it\n\ndone"
    told = [one["choices"][0]["delta"].get("reasoning_content") for one in chunks[:-1]]
    assert "list\nterminal: ls\n" in told
    assert [one["choices"][0]["finish_reason"] for one in chunks[:-1]][-1] == "stop"
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["total_tokens"]) == ([], 0)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [({"url": "http://x"}, '{"url": "http://x"}'), ({"command": "create", "path": "a.txt"}, "create a.txt")],
)
def test_a_step_says_what_the_call_does_and_the_summary_of_the_agent_beside_it(answering, stream, arguments, shown):
    call = action(action={"kind": "AnyAction", **arguments}, summary="list", tool_name="any")
    answering.turn[1:1] = [call]

    chunks = data_of(stream(said()).rest())[:-1]

    told = [one["choices"][0]["delta"].get("reasoning_content") for one in chunks]
    assert f"list\nany: {shown}\n" in told


def test_a_stream_of_the_responses_api_has_its_events_in_order(answering, stream):
    frames = stream({"model": MODEL, "input": "hello"}, RESPONSES).rest()

    events = data_of(frames)
    assert [one["type"].removeprefix("response.") for one in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [one["sequence_number"] for one in events] == list(range(9))
    assert [line for line in frames.decode().splitlines() if line.startswith("event: ")][-1] == (
        "event: response.completed"
    )
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "done"


def test_what_waits_is_told_in_the_stream_and_it_goes_on_with_the_decision(agent, stream):
    turn = stream(said()).until("assistant")

    agent.posts(status("running"), action("deploy", security_risk="HIGH"))
    turn.until("Waits for approval")
    assert "risk HIGH" in deltas(turn.frames)
    assert '"command": "deploy"' in deltas(turn.frames)

    agent.decide(True)
    turn.until("Approved")
    agent.posts(message("deployed", "agent"), status("finished"))
    assert deltas(turn.rest()).endswith("**Approved**\n\ndeployed")


def test_a_rejection_ends_the_stream_with_its_reason(agent, stream):
    turn = stream(said()).until("assistant")
    agent.posts(status("running"), action())
    turn.until("Waits for approval")

    agent.decide(False, reason="not today")

    assert deltas(turn.rest()).endswith("**Rejected**: not today")
    assert data_of(turn.frames)[-1] == "[DONE]"


def test_nothing_of_an_action_counts_as_markdown_or_is_hidden(agent, stream):
    turn = stream(said()).until("assistant")
    agent.posts(status("running"), action("echo ```` \u202e ![x](https://evil.example)", tool_name="a\n``` b"))

    shown = deltas(turn.until("Waits for approval").frames)

    head, fence, inner, end = shown.partition("`````")[0], *shown.partition("`````")[1:], shown[-5:]
    assert (fence, end) == ("`````", "`````")
    assert "evil" not in head
    assert "\\u{202e}" in inner
    assert "\u202e" not in shown


def test_long_arguments_are_cut_and_say_so(agent, stream):
    turn = stream(said()).until("assistant")
    agent.posts(status("running"), action("x" * 50_000))

    shown = deltas(turn.until("Waits for approval").frames)

    assert "characters are not shown here" in shown
    assert len(shown) < 5000


def test_the_words_on_which_an_agent_works_follow_its_turn_and_others_are_sent(client, agent, conversation, stream):
    agent.posts(message("hello"), status("running"), action())

    resumed = stream(said()).until("Waits for approval")
    assert users(client, conversation) == ["hello"]
    assert len(agent.pending) == 1
    resumed.response.close()

    stream(said("something else")).until("assistant")
    assert users(client, conversation) == ["hello", "something else"]
    assert agent.pending == []


def test_a_repeat_is_told_the_turn_that_has_ended_meanwhile(client, agent, conversation):
    agent.posts(message("hello"), status("running"), message("done", "agent"), status("finished"))

    again = {CONVERSATION: conversation, "X-Stainless-Retry-Count": "2"}
    response = client.post(CHAT, json=said(), headers=again)

    assert response.get_json()["choices"][0]["message"]["content"] == "done"
    assert users(client, conversation) == ["hello"]


def test_a_stream_whose_conversation_is_deleted_ends_with_an_error(client, agent, conversation, stream):
    for path, body in ((CHAT, said()), (RESPONSES, {"model": MODEL, "input": "hello"})):
        client.post("/api/conversations", json={"conversation_id": conversation})
        turn = stream(body, path).until("assistant" if path == CHAT else "content_part.added")

        client.delete(f"/api/conversations/{conversation}")

        last = data_of(turn.rest())[-1]
        error = last["error"] if path == CHAT else last["response"]["error"]
        assert error["code"] == "conversation_not_found"


def test_a_stream_of_an_agent_that_fails_ends_with_an_error(answering, stream):
    answering.turn[1:] = [status("stuck")]

    assert data_of(stream(said()).rest())[-1]["error"]["code"] == "agent_failed"


def test_an_agent_whose_sandbox_is_deleted_ends_the_stream(store, sandbox_of_answering, stream, monkeypatch):
    monkeypatch.setattr(turns, "_LOOKS", 0.0)
    turn = stream(said()).until("assistant")

    store.sandboxes.report(sandbox_of_answering.id, "scripted", "supervisor", "GONE")

    assert data_of(turn.rest())[-1]["error"]["message"] == "The sandbox of the agent was deleted"


# requests that are refused


@pytest.mark.parametrize(
    ("path", "body", "param", "code"),
    [
        (CHAT, {"model": MODEL}, "messages", "missing"),
        (CHAT, said(messages=[]), "messages", "value_error"),
        (CHAT, said(messages="x"), "messages", "list_type"),
        (CHAT, said(messages=[{"role": "system", "content": "x"}]), "messages", "missing"),
        (CHAT, said(messages=[{"role": "user", "content": ""}]), "messages", "missing"),
        (CHAT, said(messages=[{"role": "robot", "content": "x"}]), "messages[0].role", "enum"),
        (CHAT, said(messages=[{"role": "user", "content": [{"type": "file"}]}]), "messages[0].content[0].type", "enum"),
        (CHAT, said(stream="yes"), "stream", "bool_type"),
        (CHAT, said("x" * 1_100_000), "messages", "context_length_exceeded"),
        (CHAT, {"messages": said()["messages"]}, "model", "missing"),
        (RESPONSES, {"model": MODEL}, "input", "missing"),
        (RESPONSES, {"model": MODEL, "input": ""}, "input", "string_too_short"),
        (RESPONSES, {"model": MODEL, "input": []}, "input", "too_short"),
        (RESPONSES, {"model": MODEL, "input": [{"role": "tool", "content": "x"}]}, "input[0].role", "enum"),
        (RESPONSES, {"model": MODEL, "input": "x", "store": True}, "store", "unsupported"),
    ],
)
def test_bad_input_is_422_and_names_its_member(client, path, body, param, code):
    response = client.post(path, json=body)

    assert response.status_code == 422
    error = response.get_json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert error["message"].startswith(param)


def test_a_header_that_names_no_conversation_is_422(client):
    response = client.post(CHAT, json=said(), headers={CONVERSATION: "mine"})

    assert (response.status_code, response.get_json()["error"]["param"]) == (422, CONVERSATION)


@pytest.mark.parametrize("previous", ["x", "resp_x", f"resp_{'0' * 48}", f"resp_{'z' * 48}", f"{'0' * 48}"])
def test_a_response_that_is_unknown_is_404(client, previous):
    response = client.post(RESPONSES, json={"model": MODEL, "input": "x", "previous_response_id": previous})

    assert (response.status_code, response.get_json()["error"]["code"]) == (404, "previous_response_not_found")


def test_a_header_that_contradicts_the_previous_response_is_422(client, url, conversation):
    previous = f"resp_{conversation.replace('-', '')}{'0' * 16}"
    body = {"model": MODEL, "input": "x", "previous_response_id": previous}

    response = client.post(RESPONSES, json=body, headers={CONVERSATION: str(uuid4())})

    assert (response.status_code, response.get_json()["error"]["param"]) == (422, CONVERSATION)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/v1/embeddings", 404, "not_found"), ("GET", CHAT, 405, None), ("POST", CHAT, 415, None)],
)
def test_every_error_below_v1_has_openais_shape(client, method, path, status, code):
    response = client.open(path, method=method, data=b"x", content_type="text/plain")

    assert response.status_code == status
    assert list(response.get_json()) == ["error"]
    assert sorted(response.get_json()["error"]) == ["code", "message", "param", "type"]
    assert response.get_json()["error"]["code"] == code


def test_a_wrong_key_is_401_and_one_that_may_only_read_403_in_openais_shape(keyed):
    admin = {"Authorization": f"Bearer {ADMIN}"}
    made = keyed.post("/api/v1/keys", json={"name": "reads", "scopes": ["read"]}, headers=admin).get_json()

    wrong = keyed.post(CHAT, json=said(), headers={"Authorization": "Bearer wrong"})
    assert (wrong.status_code, wrong.get_json()["error"]["code"]) == (401, "invalid_api_key")
    reads = {"Authorization": f"Bearer {made['key']}"}
    assert keyed.get("/v1/models", headers=reads).status_code == 200
    refused = keyed.post(CHAT, json=said(), headers=reads)
    assert (refused.status_code, refused.get_json()["error"]["type"]) == (403, "permission_error")


def test_a_key_that_may_not_decide_cannot_reject_what_waits_by_a_message(keyed, agent, conversation):
    admin = {"Authorization": f"Bearer {ADMIN}"}
    made = keyed.post("/api/v1/keys", json={"name": "writes", "scopes": ["write"]}, headers=admin).get_json()
    agent.posts(message("hello"), status("running"), action())
    headers = {"Authorization": f"Bearer {made['key']}", CONVERSATION: conversation}

    refused = keyed.post(CHAT, json=said("other words"), headers=headers)

    assert (refused.status_code, refused.get_json()["error"]["code"]) == (403, "needs_approval")
    assert len(agent.pending) == 1
    with closing(keyed.post(CHAT, json=said(stream=True), headers=headers)) as followed:
        assert "Waits for approval" in AnswerStream(followed).until("Waits for approval").frames.decode()
