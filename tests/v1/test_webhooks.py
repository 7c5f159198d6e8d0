"""Webhooks of agents, and the keys that open them. Source: docs/wire.md, 11."""

from uuid import UUID, uuid4

import pytest

from tests.conftest import event, message, status
from tests.servers import wait_until


@pytest.fixture
def sandbox(api):
    """A running sandbox."""
    return api.running_sandbox("free")


def post(api, path, body, key=None, status=200):
    headers = {"X-Session-API-Key": key} if key else {}
    return api.call("POST", f"/v1/webhooks{path}", json=body, headers=headers, status=status)


@pytest.mark.parametrize("prefix", ["", "/{sandbox}"])
def test_the_key_of_the_sandbox_opens_its_conversations(api, sandbox, prefix):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    path = f"{prefix.format(sandbox=sandbox['id'])}/events/{conversation}"
    before = api.count(conversation)

    added = post(api, path, [message("hello", "agent")], sandbox["session_api_key"])

    assert added["appended"] == 1
    assert api.count(conversation) == before + 1


def test_a_webhook_without_the_key_or_with_another_one_is_401(api, sandbox):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    other = api.running_sandbox("free")
    batch, before = [message("hello", "agent")], api.count(conversation)

    for key in (None, "x" * 43, "", other["session_api_key"]):
        post(api, f"/events/{conversation}", batch, key, status=401)
        post(api, f"/{sandbox['id']}/events/{conversation}", batch, key, status=401)
    post(api, f"/{other['id']}/events/{conversation}", batch, sandbox["session_api_key"], status=401)
    post(api, f"/{uuid4().hex}/events/{conversation}", batch, sandbox["session_api_key"], status=401)

    assert api.count(conversation) == before


def test_the_key_of_a_sandbox_that_is_gone_opens_nothing(api, sandbox):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    api.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")

    post(api, f"/events/{conversation}", [event()], sandbox["session_api_key"], status=401)


def test_the_key_of_a_sandbox_that_failed_opens_nothing(api):
    conversation, _ = api.failed_sandbox()
    post(api, f"/events/{conversation['id']}", [event()], conversation["session_api_key"], status=401)


def test_an_unknown_conversation_goes_to_the_sandbox_that_posts_it(api, sandbox):
    """An agent server may post events of a conversation before its start task has stored it."""
    unknown = uuid4()
    post(api, f"/events/{unknown}", [message("first", "agent")], sandbox["session_api_key"])

    found = api.conversation(unknown.hex)
    assert found["sandbox_id"] == sandbox["id"]
    post(api, f"/events/{unknown}", [event()], status=401)


def test_a_detached_conversation_takes_no_key_and_is_no_app_conversation(api, sandbox):
    detached = uuid4()
    post(api, f"/events/{detached}", [event()])

    assert api.conversation(detached.hex) is None
    post(api, f"/events/{detached}", [event()], sandbox["session_api_key"], status=401)
    assert api.count(str(detached)) == 1
    api.call("DELETE", f"/conversations/{detached}")


def test_the_status_follows_the_reports_of_the_agent(api, sandbox):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    for value in ("running", "stuck"):
        post(api, f"/events/{conversation}", [status(value)], sandbox["session_api_key"])
        assert api.conversation(conversation)["execution_status"] == value


@pytest.mark.parametrize("prefix", ["", "/{sandbox}"])
def test_the_state_of_a_conversation_that_an_agent_server_posts_is_kept(api, sandbox, prefix):
    conversation = api.app_conversation(sandbox_id=sandbox["id"], title="mine", tags={"a": "1"})["id"]
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    metrics = {"model_name": "m", "accumulated_cost": 0.5, "accumulated_token_usage": usage}
    report = {
        "id": str(UUID(conversation)),
        "title": "theirs",
        "tags": {"b": "2"},
        "stats": {"usage_to_metrics": {"agent": metrics}},
        "agent": {"llm": {"model": "their/model", "api_key": "hidden"}},
        "workspace": {"working_dir": "/"},
        "anything": "else",
    }
    path = f"{prefix.format(sandbox=sandbox['id'])}/conversations"

    assert post(api, path, report, sandbox["session_api_key"]) == {"success": True}

    found = api.conversation(conversation)
    assert found["title"] == "mine"
    assert found["tags"] == {"a": "1", "b": "2"}
    assert found["llm_model"] == "their/model"
    assert found["metrics"]["accumulated_cost"] == 0.5
    assert found["metrics"]["accumulated_token_usage"]["prompt_tokens"] == 10
    post(api, path, report, status=401)
    post(api, path, {**report, "id": "x"}, sandbox["session_api_key"], status=422)


def test_a_report_of_a_deletion_deletes_nothing(api, sandbox):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    report = {"id": conversation, "execution_status": "deleting"}
    assert post(api, "/conversations", report, sandbox["session_api_key"]) == {"success": True}
    assert api.conversation(conversation) is not None


def test_posted_events_reach_followers(api, sandbox):
    conversation = api.app_conversation(sandbox_id=sandbox["id"])["id"]
    api.send(conversation, "hello")
    wait_until(lambda: api.count(conversation, kind="MessageEvent", source="agent") == 1, "the message of the agent")
    query = {"kind": "MessageEvent", "source": "agent", "after_seq": "0", "wait": "5"}
    found = api.call("GET", f"/conversations/{UUID(conversation)}/events/search", params=query)["items"]
    assert [part["text"] for one in found for part in one["llm_message"]["content"]] == ["You said: hello"]
