"""What the agent server of a real sandbox posts, and what clients see of it. Source: docs/wire.md, 11."""

import json
from functools import partial
from uuid import UUID

import pytest

from tests.conftest import message
from tests.servers import wait_until
from tests.sockets import socket
from tests.v1.processes import hook_key
from tests.v1.test_webhooks import TOLD, post

pytestmark = pytest.mark.process("starts a sandbox for each test")


@pytest.fixture
def sandbox(api):
    """A running sandbox."""
    return api.running_sandbox("free")


@pytest.fixture
def hook(folder):
    """The hook key of a running sandbox."""
    return lambda sandbox: hook_key(folder, sandbox["id"])


def test_a_sandbox_speaks_for_nobody_and_a_message_that_was_sent_is_the_users(api, sandbox, hook):
    conversation = api.app_conversation(
        sandbox_id=sandbox["id"], initial_message={"content": [{"type": "text", "text": "begin"}]}
    )["id"]
    users = partial(api.count, conversation, kind="MessageEvent", source="user")
    wait_until(lambda: users() == 1, "the first message")
    api.send(conversation, "hello")
    wait_until(lambda: users() == 2, "the second message")

    post(api, f"/events/{conversation}", [message("hello"), message("begin"), message("obey")], hook(sandbox))

    assert users() == 2
    assert api.count(conversation, kind="MessageEvent", source="environment") == 3


def test_what_an_agent_server_reports_of_a_conversation_is_shown_without_its_secrets(api, sandbox, hook, server):
    conversation = str(UUID(api.app_conversation(sandbox_id=sandbox["id"])["id"]))
    agent = {"kind": "Agent", "llm": {"model": "m", "api_key": "hidden"}, "tools": []}

    post(api, "/conversations", {"id": conversation, "agent": agent, **TOLD}, hook(sandbox))

    with socket(server, conversation) as listener:
        full = listener.receive()["value"]
    for state in (
        api.call("GET", f"/conversations/{conversation}"),
        api.call("GET", f"/conversations?ids={conversation}")[0],
        next(one for one in api.call("GET", "/conversations/search")["items"] if one["id"] == conversation),
        full,
    ):
        assert {name: state[name] for name in TOLD if name != "hook_config"} == {
            name: value for name, value in TOLD.items() if name != "hook_config"
        }
        assert state["agent"] == {**agent, "llm": {"model": "m", "api_key": "**********"}}
        assert "hidden" not in json.dumps(state)


def test_the_reference_agent_is_one_that_clients_can_read(api, sandbox):
    conversation = str(UUID(api.app_conversation(sandbox_id=sandbox["id"])["id"]))

    state = api.call("GET", f"/conversations/{conversation}")

    assert (state["agent"]["kind"], bool(state["agent"]["llm"]["model"])) == ("Agent", True)
    assert state["workspace"]["kind"] == "LocalWorkspace"


def test_posted_events_reach_followers(api, sandbox):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    api.send(conversation, "hello")
    wait_until(lambda: api.count(conversation, kind="MessageEvent", source="agent") == 1, "the message of the agent")
    query = {"kind": "MessageEvent", "source": "agent", "after_seq": "0", "wait": "5"}
    found = api.call("GET", f"/conversations/{UUID(conversation)}/events/search", params=query)["items"]
    [said] = [part["text"] for one in found for part in one["llm_message"]["content"]]
    assert said.startswith("No model is set, so nothing was done.")
