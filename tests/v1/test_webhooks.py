"""Webhooks of agents, and the keys that open them. Source: docs/wire.md, 11."""

from contextlib import contextmanager
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from tests.agents import running_sandbox
from tests.conftest import action, event, message, status
from tests.shared import client_of
from tests.v1 import WireApi

#: host and supervisor of `running_sandbox`
SUPERVISOR = ("scripted", "supervisor")

#: where no agent server listens
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def api(app):
    """Calls of the app in this process."""
    with client_of(app) as client:
        yield WireApi(client)


@contextmanager
def sandbox_of(store):
    """A sandbox without processes, which a supervisor has reported: its `id`, and its keys `session` and `hook`."""
    store.data_version.ensure()  # a migration of what an empty store has would close the keys
    with running_sandbox(store, NOWHERE) as sandbox:
        hook = store.sandboxes.begin(sandbox.id, *SUPERVISOR, "process")
        store.sandboxes.report(sandbox.id, *SUPERVISOR, "RUNNING", agent_url=NOWHERE, urls=[], handle={})
        yield SimpleNamespace(id=sandbox.id, hook=hook, session=store.sandboxes.get(sandbox.id).session_api_key)


@pytest.fixture(scope="module")
def sandbox(store):
    with sandbox_of(store) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def other(store):
    with sandbox_of(store) as sandbox:
        yield sandbox


@pytest.fixture
def conversation(store, sandbox):
    """The id of a conversation in the sandbox."""
    identity = uuid4()
    store.conversations.create(str(identity), sandbox_id=sandbox.id, app={}, title="mine", tags={"a": "1"})
    return identity.hex


def post(api, path, body, key=None, status=200, **headers):
    headers |= {"Authorization": f"Bearer {key}"} if key is not None else {}
    return api.call("POST", f"/v1/webhooks{path}", json=body, headers=headers, status=status)


@pytest.mark.parametrize("prefix", ["", "/{sandbox}"])
def test_the_hook_key_of_the_sandbox_opens_its_conversations(api, sandbox, conversation, prefix):
    path = f"{prefix.format(sandbox=sandbox.id)}/events/{conversation}"
    before = api.count(conversation)

    added = post(api, path, [message("hello", "agent")], sandbox.hook)

    assert added["appended"] == 1
    assert api.count(conversation) == before + 1


def test_a_webhook_without_the_key_or_with_another_one_is_401(api, sandbox, other, conversation):
    batch, before = [message("hello", "agent")], api.count(conversation)

    for key in (None, "x" * 43, "x", sandbox.session, other.hook):
        post(api, f"/events/{conversation}", batch, key, status=401)
        post(api, f"/{sandbox.id}/events/{conversation}", batch, key, status=401)
    post(api, f"/{other.id}/events/{conversation}", batch, sandbox.hook, status=401)
    post(api, f"/{uuid4().hex}/events/{conversation}", batch, sandbox.hook, status=401)

    assert api.count(conversation) == before


def test_a_session_key_is_passed_over_by_webhooks(api, sandbox, conversation):
    """The published agent server writes its own into every webhook, beside the key that counts."""
    session = {"X-Session-API-Key": sandbox.session}

    post(api, f"/events/{conversation}", [event()], status=401, **session)
    post(api, "/conversations", {"id": conversation}, status=401, **session)
    assert post(api, f"/events/{conversation}", [event()], sandbox.hook, **session)["appended"] == 1


@pytest.mark.parametrize("ended", ["ERROR", "GONE"])
def test_the_key_of_a_sandbox_that_failed_or_is_gone_opens_nothing(api, store, ended):
    conversation = str(uuid4())
    with sandbox_of(store) as sandbox:
        store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
        post(api, f"/events/{conversation}", [event()], sandbox.hook)

        store.sandboxes.report(sandbox.id, *SUPERVISOR, ended)

        post(api, f"/events/{conversation}", [event()], sandbox.hook, status=401)


def test_a_sandbox_creates_no_conversation(api, sandbox):
    unknown, key = uuid4(), sandbox.hook
    reports = [{"id": str(unknown)}, {"id": str(unknown), "parent_conversation_id": str(uuid4())}]

    refused = post(api, f"/events/{unknown}", [message("first", "agent")], key, status=404)
    for report in reports:
        assert post(api, "/conversations", report, key, status=404) == refused

    assert refused["detail"].startswith("Conversation not found: a sandbox posts to")
    assert api.conversation(unknown.hex) is None
    api.call("GET", f"/conversations/{unknown}", status=404)


def test_a_child_that_an_agent_server_reports_is_made_in_the_sandbox_of_its_parent(api, sandbox, other, conversation):
    parent, child = conversation, uuid4()
    report = {"id": str(child), "parent_conversation_id": str(UUID(parent))}

    post(api, "/conversations", report, other.hook, status=404)
    post(api, "/conversations", report, sandbox.hook)
    post(api, f"/events/{child}", [message("first", "agent")], sandbox.hook)

    found = api.conversation(child.hex)
    assert (found["sandbox_id"], found["parent_conversation_id"]) == (sandbox.id, parent)
    assert api.conversation(parent)["sub_conversation_ids"] == [child.hex]


def test_a_detached_conversation_takes_no_key_and_is_no_app_conversation(api, sandbox):
    detached = uuid4()
    post(api, f"/events/{detached}", [event()])

    assert api.conversation(detached.hex) is None
    post(api, f"/events/{detached}", [event()], sandbox.hook, status=401)
    assert api.count(str(detached)) == 1
    api.call("DELETE", f"/conversations/{detached}")


def test_an_agent_that_goes_on_by_itself_is_shown(api, sandbox, conversation):
    proposed = action()
    waits = [proposed, status("waiting_for_confirmation")]
    post(api, f"/events/{conversation}", waits, sandbox.hook)
    post(api, f"/events/{conversation}", [status("running")], sandbox.hook)

    assert api.conversation(conversation)["unapproved_resumes"] == 1
    [told] = api.events(conversation, kind__eq="ConversationErrorEvent")
    assert (told["code"], proposed["id"] in told["detail"]) == ("unapproved_resume", True)


def test_the_status_follows_the_reports_of_the_agent(api, sandbox, conversation):
    for value in ("running", "stuck"):
        post(api, f"/events/{conversation}", [status(value)], sandbox.hook)
        assert api.conversation(conversation)["execution_status"] == value


@pytest.mark.parametrize("prefix", ["", "/{sandbox}"])
def test_the_state_of_a_conversation_that_an_agent_server_posts_is_kept(api, sandbox, conversation, prefix):
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
    path = f"{prefix.format(sandbox=sandbox.id)}/conversations"

    assert post(api, path, report, sandbox.hook) == {"success": True}

    found = api.conversation(conversation)
    assert found["title"] == "mine"
    assert found["tags"] == {"a": "1", "b": "2"}
    assert found["llm_model"] == "their/model"
    assert found["metrics"]["accumulated_cost"] == 0.5
    assert found["metrics"]["accumulated_token_usage"]["prompt_tokens"] == 10
    policy = api.call("GET", f"/conversations/{UUID(conversation)}")["confirmation_policy"]
    assert policy == {"kind": "NeverConfirm"}
    post(api, path, report, status=401)
    post(api, path, {**report, "id": "x"}, sandbox.hook, status=422)


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
    "runtime_info": {"runtime_status": "available", "can_resume": True, "runtime_error": None},
    "hook_config": {"pre_tool_use": [{"hooks": [{"command": "x", "env": {"TOKEN": "hidden"}}]}]},
}


def test_a_report_keeps_what_it_does_not_name_and_leaves_out_what_is_too_long(api, sandbox, conversation):
    post(api, "/conversations", {"id": conversation, **TOLD}, sandbox.hook)

    post(api, "/conversations", {"id": conversation, "max_iterations": 8, "runtime_info": None}, sandbox.hook)
    long = {"max_iterations": 9, "invoked_skills": ["x" * 300_000], "persistence_dir": "y" * 300_000}
    post(api, "/conversations", {"id": conversation, **long}, sandbox.hook)

    state = api.call("GET", f"/conversations/{conversation}")
    assert state["max_iterations"] == 9
    for name in ("invoked_skills", "persistence_dir", "client_tools"):
        assert state[name] == TOLD[name]
    post(api, "/conversations", {"id": conversation, "max_iterations": "many"}, sandbox.hook, status=422)


def test_a_report_is_kept_without_secrets_of_its_sandbox_and_what_is_too_long_then_is_left_out(api, store, sandbox):
    conversation = uuid4()
    secrets = {"TOKEN": "sesame-ghp_1", "SHORT": "sesame"}
    store.conversations.create(str(conversation), sandbox_id=sandbox.id, app={}, secrets=secrets)
    told = {"title": "Use sesame-ghp_1", "tags": {"key": "sesame-ghp_1"}, "persistence_dir": "/of/sesame-ghp_1"}
    long = {"invoked_skills": ["sesame " * 30_000]}  # what stands for the values makes it longer than is kept

    post(api, "/conversations", {"id": conversation.hex, **TOLD, **told, **long}, sandbox.hook)

    state = api.call("GET", f"/conversations/{conversation}")
    assert (state["title"], state["tags"]) == ("Use <secret-hidden>", {"key": "<secret-hidden>"})
    assert (state["persistence_dir"], state["max_iterations"]) == ("/of/<secret-hidden>", 7)
    assert state["client_tools"] == TOLD["client_tools"]
    assert "sesame" not in str(state["invoked_skills"])
    assert len(str(state["invoked_skills"])) < 300_000


def test_the_head_of_the_conversation_follows_the_states_that_its_agent_posts(api, sandbox, conversation):
    heads = {"leaf_event_id": "e2", "last_user_message_id": "m2"}
    full = event("ConversationStateUpdateEvent", "environment", key="full_state", value=heads)

    post(api, f"/events/{conversation}", [full], sandbox.hook)

    state = api.call("GET", f"/conversations/{conversation}")
    assert {name: state[name] for name in heads} == heads


def test_skills_and_what_hooks_have_blocked_follow_the_snapshot_at_the_end_of_a_run(api, sandbox, conversation):
    done = {
        "invoked_skills": ["converter"],
        "activated_knowledge_skills": ["github"],
        "blocked_actions": {"a1": "not here"},
        "blocked_messages": {"m1": "nor this"},
    }
    unfit = {"invoked_skills": [1], "blocked_actions": {"a1": 1}, "blocked_messages": {"m1": "x" * 300_000}}

    for value in (done, unfit):
        full = event("ConversationStateUpdateEvent", "environment", key="full_state", value=value)
        post(api, f"/events/{conversation}", [full], sandbox.hook)

    state = api.call("GET", f"/conversations/{conversation}")
    assert {name: state[name] for name in done} == done


def test_a_report_of_a_deletion_deletes_nothing(api, sandbox, conversation):
    report = {"id": conversation, "execution_status": "deleting"}
    assert post(api, "/conversations", report, sandbox.hook) == {"success": True}
    assert api.conversation(conversation) is not None
