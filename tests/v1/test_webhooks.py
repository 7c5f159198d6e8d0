"""Webhooks of agents, and the keys that open them. Source: docs/wire.md, 11."""

import json
from functools import partial
from uuid import UUID, uuid4

import pytest

from tests.conftest import action, event, message, status
from tests.servers import wait_until
from tests.sockets import socket
from tests.v1.processes import hook_key


@pytest.fixture
def sandbox(api):
    """A running sandbox."""
    return api.running_sandbox("free")


@pytest.fixture
def hook(folder):
    """The hook key of a running sandbox."""
    return lambda sandbox: hook_key(folder, sandbox["id"])


def post(api, path, body, key=None, status=200, **headers):
    headers |= {"Authorization": f"Bearer {key}"} if key is not None else {}
    return api.call("POST", f"/v1/webhooks{path}", json=body, headers=headers, status=status)


@pytest.mark.parametrize("prefix", ["", "/{sandbox}"])
def test_the_hook_key_of_the_sandbox_opens_its_conversations(api, sandbox, hook, prefix):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    path = f"{prefix.format(sandbox=sandbox['id'])}/events/{conversation}"
    before = api.count(conversation)

    added = post(api, path, [message("hello", "agent")], hook(sandbox))

    assert added["appended"] == 1
    assert api.count(conversation) == before + 1


def test_a_webhook_without_the_key_or_with_another_one_is_401(api, sandbox, hook):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    other = api.running_sandbox("free")
    batch, before = [message("hello", "agent")], api.count(conversation)

    for key in (None, "x" * 43, "x", sandbox["session_api_key"], hook(other)):
        post(api, f"/events/{conversation}", batch, key, status=401)
        post(api, f"/{sandbox['id']}/events/{conversation}", batch, key, status=401)
    post(api, f"/{other['id']}/events/{conversation}", batch, hook(sandbox), status=401)
    post(api, f"/{uuid4().hex}/events/{conversation}", batch, hook(sandbox), status=401)

    assert api.count(conversation) == before


def test_a_session_key_is_passed_over_by_webhooks(api, sandbox, hook):
    """The published agent server writes its own into every webhook, beside the key that counts."""
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    session = {"X-Session-API-Key": sandbox["session_api_key"]}

    post(api, f"/events/{conversation}", [event()], status=401, **session)
    post(api, "/conversations", {"id": conversation}, status=401, **session)
    assert post(api, f"/events/{conversation}", [event()], hook(sandbox), **session)["appended"] == 1


def test_the_key_of_a_sandbox_that_is_gone_opens_nothing(api, sandbox, hook):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    key = hook(sandbox)
    api.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")

    post(api, f"/events/{conversation}", [event()], key, status=401)


def test_the_key_of_a_sandbox_that_failed_opens_nothing(api, sandbox, hook):
    conversation, key = api.app_conversation(sandbox_id=sandbox["id"])["id"], hook(sandbox)
    api.send(conversation, "run: kill -9 $PPID", run=False)
    api.client.post(f"/api/conversations/{UUID(conversation)}/run")  # the agent may die before it responds
    api.wait_for(sandbox["id"], "ERROR")
    post(api, f"/events/{conversation}", [event()], key, status=401)


def test_a_sandbox_creates_no_conversation(api, sandbox, hook):
    unknown, key = uuid4(), hook(sandbox)
    reports = [{"id": str(unknown)}, {"id": str(unknown), "parent_conversation_id": str(uuid4())}]

    refused = post(api, f"/events/{unknown}", [message("first", "agent")], key, status=404)
    for report in reports:
        assert post(api, "/conversations", report, key, status=404) == refused

    assert refused["detail"].startswith("Conversation not found: a sandbox posts to")
    assert api.conversation(unknown.hex) is None
    api.call("GET", f"/conversations/{unknown}", status=404)


def test_a_child_that_an_agent_server_reports_is_created_in_the_sandbox_of_its_parent(api, sandbox, hook):
    parent, child = api.app_conversation(sandbox_id=sandbox["id"])["id"], uuid4()
    other = api.running_sandbox("free")
    report = {"id": str(child), "parent_conversation_id": str(UUID(parent))}

    post(api, "/conversations", report, hook(other), status=404)
    post(api, "/conversations", report, hook(sandbox))
    post(api, f"/events/{child}", [message("first", "agent")], hook(sandbox))

    found = api.conversation(child.hex)
    assert (found["sandbox_id"], found["parent_conversation_id"]) == (sandbox["id"], parent)
    assert api.conversation(parent)["sub_conversation_ids"] == [child.hex]


def test_a_detached_conversation_takes_no_key_and_is_no_app_conversation(api, sandbox, hook):
    detached = uuid4()
    post(api, f"/events/{detached}", [event()])

    assert api.conversation(detached.hex) is None
    post(api, f"/events/{detached}", [event()], hook(sandbox), status=401)
    assert api.count(str(detached)) == 1
    api.call("DELETE", f"/conversations/{detached}")


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


def test_an_agent_that_goes_on_by_itself_is_shown(api, sandbox, hook):
    conversation, proposed = api.app_conversation(sandbox_id=sandbox["id"])["id"], action()
    waits = [proposed, status("waiting_for_confirmation")]
    post(api, f"/events/{conversation}", waits, hook(sandbox))
    post(api, f"/events/{conversation}", [status("running")], hook(sandbox))

    assert api.conversation(conversation)["unapproved_resumes"] == 1
    [told] = api.events(conversation, kind__eq="ConversationErrorEvent")
    assert (told["code"], proposed["id"] in told["detail"]) == ("unapproved_resume", True)


def test_the_status_follows_the_reports_of_the_agent(api, sandbox, hook):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    for value in ("running", "stuck"):
        post(api, f"/events/{conversation}", [status(value)], hook(sandbox))
        assert api.conversation(conversation)["execution_status"] == value


@pytest.mark.parametrize("prefix", ["", "/{sandbox}"])
def test_the_state_of_a_conversation_that_an_agent_server_posts_is_kept(api, sandbox, hook, prefix):
    conversation = api.app_conversation(sandbox_id=sandbox["id"], title="mine", tags={"a": "1"})["id"]
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    metrics = {"model_name": "m", "accumulated_cost": 0.5, "accumulated_token_usage": usage}
    report = {
        "id": str(UUID(conversation)),
        "title": "theirs",
        "tags": {"b": "2"},
        "stats": {"usage_to_metrics": {"agent": metrics}},
        "agent": {"llm": {"model": "their/model", "api_key": "hidden"}},
        "confirmation_policy": {"kind": "AlwaysConfirm"},
        "workspace": {"working_dir": "/"},
        "anything": "else",
    }
    path = f"{prefix.format(sandbox=sandbox['id'])}/conversations"

    assert post(api, path, report, hook(sandbox)) == {"success": True}

    found = api.conversation(conversation)
    assert found["title"] == "mine"
    assert found["tags"] == {"a": "1", "b": "2"}
    assert found["llm_model"] == "their/model"
    assert found["metrics"]["accumulated_cost"] == 0.5
    assert found["metrics"]["accumulated_token_usage"]["prompt_tokens"] == 10
    policy = api.call("GET", f"/conversations/{UUID(conversation)}")["confirmation_policy"]
    assert policy == {"kind": "NeverConfirm"}
    post(api, path, report, status=401)
    post(api, path, {**report, "id": "x"}, hook(sandbox), status=422)


TOLD = {
    "workspace": {"kind": "LocalWorkspace", "working_dir": "/work"},
    "persistence_dir": "conversations/1",
    "max_iterations": 7,
    "stuck_detection": False,
    "invoked_skills": ["s"],
    "last_user_message_id": "m1",
    "leaf_event_id": "e1",
    "client_tools": [{"name": "t", "parameters": {"properties": {"token": {"type": "string"}}}}],
    "tool_module_qualnames": {"terminal": "openhands.tools.terminal.definition"},
    "runtime_info": {"runtime_status": "available", "can_resume": True},
    "hook_config": {"pre_tool_use": [{"hooks": [{"command": "x", "env": {"TOKEN": "hidden"}}]}]},
}


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


def test_a_report_keeps_what_it_does_not_name_and_leaves_out_what_is_too_long(api, sandbox, hook):
    conversation = str(UUID(api.app_conversation(sandbox_id=sandbox["id"])["id"]))
    post(api, "/conversations", {"id": conversation, **TOLD}, hook(sandbox))

    post(api, "/conversations", {"id": conversation, "max_iterations": 8, "runtime_info": None}, hook(sandbox))
    long = {"max_iterations": 9, "invoked_skills": ["x" * 300_000], "persistence_dir": "y" * 300_000}
    post(api, "/conversations", {"id": conversation, **long}, hook(sandbox))

    state = api.call("GET", f"/conversations/{conversation}")
    assert state["max_iterations"] == 9
    for name in ("invoked_skills", "persistence_dir", "runtime_info", "client_tools"):
        assert state[name] == TOLD[name]
    post(api, "/conversations", {"id": conversation, "max_iterations": "many"}, hook(sandbox), status=422)


def test_the_head_of_the_conversation_follows_the_states_that_its_agent_posts(api, sandbox, hook):
    conversation = str(UUID(api.app_conversation(sandbox_id=sandbox["id"])["id"]))
    heads = {"leaf_event_id": "e2", "last_user_message_id": "m2"}
    full = event("ConversationStateUpdateEvent", "environment", key="full_state", value=heads)

    post(api, f"/events/{conversation}", [full], hook(sandbox))

    state = api.call("GET", f"/conversations/{conversation}")
    assert {name: state[name] for name in heads} == heads


def test_the_reference_agent_is_one_that_clients_can_read(api, sandbox):
    conversation = str(UUID(api.app_conversation(sandbox_id=sandbox["id"])["id"]))

    state = api.call("GET", f"/conversations/{conversation}")

    assert (state["agent"]["kind"], bool(state["agent"]["llm"]["model"])) == ("Agent", True)
    assert state["workspace"]["kind"] == "LocalWorkspace"


def test_a_report_of_a_deletion_deletes_nothing(api, sandbox, hook):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    report = {"id": conversation, "execution_status": "deleting"}
    assert post(api, "/conversations", report, hook(sandbox)) == {"success": True}
    assert api.conversation(conversation) is not None


def test_posted_events_reach_followers(api, sandbox):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    api.send(conversation, "hello")
    wait_until(lambda: api.count(conversation, kind="MessageEvent", source="agent") == 1, "the message of the agent")
    query = {"kind": "MessageEvent", "source": "agent", "after_seq": "0", "wait": "5"}
    found = api.call("GET", f"/conversations/{UUID(conversation)}/events/search", params=query)["items"]
    assert [part["text"] for one in found for part in one["llm_message"]["content"]] == ["You said: hello"]
