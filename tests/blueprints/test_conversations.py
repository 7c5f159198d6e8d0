"""Conversations over HTTP: made once, read with every member that clients want, deleted whole."""

import re
from uuid import uuid4

import pytest

from blueprints.conversations import in_header
from schemas.conversations import StartConversationRequest
from store.errors import ConversationNotFound
from tests.conftest import action, event, message, recorded, status

API = "/api/conversations"


@pytest.fixture
def url(conversation):
    """The path to which an agent posts the conversation's events."""
    return f"/api/v1/webhooks/events/{conversation}"


@pytest.fixture
def events_url(conversation):
    return f"{API}/{conversation}/events"


def state_update(key, value):
    return event("ConversationStateUpdateEvent", "environment", key=key, value=value)


def test_every_member_of_a_start_request_is_optional(client):
    for body in ({"json": {}}, {}):
        response = client.post(API, **body)
        assert response.status_code == 201
        created = response.get_json()
        assert (created["execution_status"], created["title"]) == ("idle", None)
        assert created["confirmation_policy"] == {"kind": "NeverConfirm"}
        assert created["created_at"].endswith("Z")
        assert client.get(f"{API}/{created['id']}").get_json() == created


def test_a_second_start_of_an_id_returns_the_same_conversation(client, conversation):
    first = client.post(API, json={"conversation_id": conversation.replace("-", ""), "title": "First"})
    again = client.post(API, json={"conversation_id": conversation, "title": "Second"})

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.get_json() == again.get_json()
    assert (again.get_json()["id"], again.get_json()["title"]) == (conversation, "First")


def test_the_members_of_a_start_request_are_returned(client, conversation):
    given = {
        "title": "A title",
        "tags": {"team": "blue"},
        "confirmation_policy": {"kind": "ConfirmRisky", "threshold": "LOW", "confirm_unknown": False},
        "workspace": {"kind": "LocalWorkspace", "working_dir": "/w"},
        "max_iterations": 7,
        "stuck_detection": False,
        "security_analyzer": None,
        "client_tools": [],
        "parent_conversation_id": str(uuid4()),
    }

    client.post(
        API, json={"conversation_id": conversation, **given, "stuck_detection_thresholds": {}, "worktree": True}
    )

    returned = client.get(f"{API}/{conversation}").get_json()
    assert {name: returned[name] for name in given} == given


def test_every_member_that_clients_read_is_present(client, conversation):
    client.post(API, json={"conversation_id": conversation})

    returned = client.get(f"{API}/{conversation}").get_json()

    assert {
        *("id", "workspace", "persistence_dir", "max_iterations", "stuck_detection", "execution_status"),
        *(
            "confirmation_policy",
            "security_analyzer",
            "activated_knowledge_skills",
            "invoked_skills",
            "blocked_actions",
        ),
        *("blocked_messages", "last_user_message_id", "leaf_event_id", "stats", "secret_registry", "agent_state"),
        *("hook_config", "title", "metrics", "created_at", "updated_at", "forked_from_conversation_id"),
        *("forked_from_event_id", "parent_conversation_id", "sub_conversation_ids", "tags", "current_model_id"),
        *("available_models", "supports_runtime_model_switch", "launched_agent_profile", "agent", "client_tools"),
    } <= set(returned)


def test_an_initial_message_starts_a_run(client, conversation):
    text = {"content": [{"type": "text", "text": "Go"}], "run": False}

    created = client.post(API, json={"conversation_id": conversation, "initial_message": text}).get_json()

    assert created["execution_status"] == "running"
    events = client.get(f"{API}/{conversation}/events/search").get_json()["items"]
    assert [one["kind"] for one in events] == ["MessageEvent", "ConversationStateUpdateEvent"]
    assert created["last_user_message_id"] == events[0]["id"]
    assert client.get(f"{API}/{conversation}/events/count?body=go").get_json() == 1


def test_an_agents_secrets_are_not_kept():
    llm = {"api_key": "sk-1", "aws_secret_access_key": "s", "model": "m", "max_output_tokens": 5, "password": ""}

    kept = StartConversationRequest().load({"agent": {"llm": llm, "mcp": [{"token": "t"}]}})["agent"]

    assert kept["llm"] == {**llm, "api_key": "**********", "aws_secret_access_key": "**********"}
    assert kept["mcp"] == [{"token": "**********"}]


@pytest.mark.parametrize(
    "agent",
    [
        {"llm": {"extra_headers": {"Authorization": "Bearer hush"}}},
        {"mcp_config": {"mcpServers": {"m": {"headers": {"authorization": "hush"}, "env": {"GITHUB_TOKEN": "hush"}}}}},
        {"agent_context": {"secrets": {"NPM": "hush"}}},
        {"agent_context": {"secrets": {"NPM": {"kind": "StaticSecret", "value": "hush"}}}},
        {"llm": {"API_KEY": "hush", "aws_access_key_id": "hush", "aws_session_token": "hush"}},
    ],
)
def test_an_agents_secrets_are_not_kept_at_any_depth(agent):
    kept = StartConversationRequest().load({"agent": agent})["agent"]

    assert "hush" not in str(kept)


@pytest.mark.parametrize(
    "request_",
    [
        {"workspace": {"kind": "RemoteWorkspace", "host": "h", "api_key": "hush"}},
        {"security_analyzer": {"kind": "GraySwanAnalyzer", "api_key": "hush"}},
    ],
)
def test_no_other_member_shows_a_secret(client, conversation, request_):
    response = client.post(API, json={"conversation_id": conversation, **request_})

    assert response.status_code == 201
    assert "hush" not in response.get_data(as_text=True)


BODIES = [
    {name: None for name in ("conversation_id", "title", "initial_message", "agent", "workspace", "secrets")},
    {"title": "x"},
    {"title": "😀" * 200},
    {"tags": {"a1": "x" * 256, "0": ""}},
    {"secrets": {}},
    {"max_iterations": 1},
    {"plugins": [1], "autotitle": "?", "no such member": {}},
    {"confirmation_policy": {"kind": "AlwaysConfirm", "threshold": "LOW"}, "odd": 1},
]


def test_valid_members_are_accepted_and_unknown_members_are_ignored(client):
    for body in BODIES:
        response = client.post(API, json=body)

        assert response.status_code == 201, body
        assert "odd" not in response.get_json()


def test_an_id_in_capitals_is_the_same_id(client, conversation):
    client.post(API, json={"conversation_id": conversation.upper()})

    assert client.get(f"{API}/{conversation}").get_json()["id"] == conversation
    assert client.get(f"{API}/{conversation.replace('-', '').upper()}").get_json()["id"] == conversation


def test_a_bad_member_is_named(client):
    for body, loc in (({"title": ""}, ["title"]), ({"tags": {"a": 1}}, ["tags", "a", "value"]), ([], [])):
        response = client.post(API, json=body)

        assert response.status_code == 422
        assert response.get_json()["detail"][0]["loc"] == ["body", *loc]


def test_deleting_a_conversation_deletes_all_its_data(client, conversation):
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("old words"), action()])
    url = f"{API}/{conversation}"
    assert client.get(f"{url}/events/count?body=old").get_json() == 1

    assert client.delete(url).get_json() == {"success": True}

    responses = [
        client.get(url),
        client.delete(url),
        client.get(f"{url}/events/count"),
        client.get(f"{url}/events/count?body=old"),
        client.get(f"{url}/events/count?body=old&kind=ActionEvent"),
        client.get(f"{url}/events/search"),
        client.get(f"{url}/events/search?body=old"),
        client.get(f"{url}/events/search?page_id=x"),
        client.get(f"{url}/events/some-id"),
        client.get(f"{url}/events", json=["some-id"]),
        client.post(f"{url}/events", json={}),
        client.post(f"{url}/events/respond_to_confirmation", json={"accept": True}),
        client.post(f"{url}/confirmation_policy", json={"policy": {"kind": "NeverConfirm"}}),
        client.get(f"{url}/pending_actions"),
    ]
    for response in responses:
        assert (response.status_code, response.get_json()) == (404, {"detail": ConversationNotFound.words})


def test_a_deleted_id_can_be_started_again(client, conversation):
    client.post(f"/api/v1/webhooks/events/{conversation}", json=recorded("pending"))
    client.delete(f"{API}/{conversation}")

    assert client.post(API, json={"conversation_id": conversation}).status_code == 201

    assert client.get(f"{API}/{conversation}/events/count").get_json() == 0
    assert client.get(f"{API}/{conversation}/pending_actions").get_json() == []
    again = client.post(f"/api/v1/webhooks/events/{conversation}", json=recorded("pending"))
    assert again.get_json() == {"success": True, "appended": 9, "seq": 9}


def test_the_text_of_a_deleted_conversation_is_not_found_in_its_successor(client, conversation, url, events_url):
    # Given a worker that has searched a conversation's text, and caches it
    client.post(url, json=[message("old words")])
    assert client.get(f"{events_url}/count?body=old").get_json() == 1

    # When the conversation is deleted and created again with a longer text
    client.delete(f"{API}/{conversation}")
    text = {"content": [{"type": "text", "text": "new words, and more of them than before"}]}
    client.post(API, json={"conversation_id": conversation, "initial_message": text})

    # Then only the new text is found
    assert client.get(f"{events_url}/count?body=old").get_json() == 0
    assert client.get(f"{events_url}/search?body=old").get_json() == {"items": [], "next_page_id": None}
    assert client.get(f"{events_url}/count?body=words").get_json() == 1


def test_a_deleted_conversation_leaves_a_mark_for_a_minute_and_its_audit(client, store, conversation):
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[*recorded("pending"), action(), message("x")])
    redis = store.conversations._redis
    keys = f"conv:{{{conversation}}}*"
    assert len(list(redis.scan_iter(keys))) >= 8

    client.delete(f"{API}/{conversation}")

    [audit, mark] = sorted(redis.scan_iter(keys))
    assert mark.endswith(b":deleted")
    assert 0 < redis.ttl(mark) <= 60
    assert audit.endswith(b":audit")
    assert 0 < redis.ttl(audit) <= 400 * 86_400


@pytest.mark.parametrize(
    ("key", "value"),
    [("execution_status", "running"), ("title", "A title"), ("tags", {"a": "b"}), ("stats", {"usage_to_metrics": {}})],
)
def test_a_state_update_is_kept_and_updates_the_conversation(client, url, conversation, key, value):
    update = event("ConversationStateUpdateEvent", "environment", key=key, value=value)

    assert client.post(url, json=[update]).get_json()["appended"] == 1

    assert client.get(f"/api/conversations/{conversation}").get_json()[key] == value


def test_an_agent_that_acts_unasked_shows_no_policy_and_gets_none(client, store, conversation):
    url = f"{API}/{conversation}"
    store.conversations.create(conversation, agent={"kind": "ACPAgent"}, confirmation_policy={"kind": "AlwaysConfirm"})

    refused = client.post(f"{url}/confirmation_policy", json={"policy": {"kind": "ConfirmRisky"}})

    assert client.get(url).get_json()["confirmation_policy"] == {"kind": "NeverConfirm"}
    assert refused.status_code == 409
    assert "ACPAgent" in refused.get_json()["detail"]
    assert client.post(f"{url}/confirmation_policy", json={"policy": {"kind": "NeverConfirm"}}).status_code == 200


def test_a_policy_that_an_agent_reports_holds(client, url, conversation):
    policy = {"kind": "ConfirmRisky", "threshold": "LOW", "confirm_unknown": False}
    client.post(url, json=[event("ConversationStateUpdateEvent", key="confirmation_policy", value=policy)])

    assert client.get(f"/api/conversations/{conversation}").get_json()["confirmation_policy"] == policy


NO_UPDATES = [
    ("execution_status", "sleeping"),
    ("execution_status", 1),
    ("title", 5),
    ("tags", "x"),
    ("tags", {"a": 1}),
    ("stats", []),
    ("confirmation_policy", {"kind": "Sometimes"}),
    ("confirmation_policy", {"kind": "ConfirmRisky", "threshold": "UNKNOWN"}),
    ("id", "x"),
    ("seq", 7),
    (None, None),
    (["a"], {}),
]


def test_a_malformed_update_is_kept_without_effect(client, url, conversation):
    client.post(url, json=[status("paused")])
    before = client.get(f"/api/conversations/{conversation}").get_json()

    for seq, (key, value) in enumerate(NO_UPDATES, 2):
        response = client.post(url, json=[event("ConversationStateUpdateEvent", key=key, value=value)])

        assert response.get_json() == {"success": True, "appended": 1, "seq": seq}
        after = client.get(f"/api/conversations/{conversation}").get_json()
        assert {**after, "updated_at": 0} == {**before, "updated_at": 0}, (key, value)


def test_a_full_state_updates_and_is_not_kept(client, url, events_url, conversation):
    full = {"execution_status": "finished", "title": "T", "tags": {"k": "v"}, "stats": {"s": 1}, "agent": {}, "id": "x"}

    response = client.post(url, json=[event("ConversationStateUpdateEvent", key="full_state", value=full)])

    assert response.get_json() == {"success": True, "appended": 0, "seq": 0}
    assert client.get(f"{events_url}/count").get_json() == 0
    state = client.get(f"/api/conversations/{conversation}").get_json()
    assert (state["id"], state["execution_status"], state["title"]) == (conversation, "finished", "T")
    assert (state["tags"], state["stats"]) == ({"k": "v"}, {"s": 1})


@pytest.mark.parametrize("key", ["confirmation_policy", "full_state"])
def test_a_policy_that_the_agent_reports_holds_the_next_action(client, url, conversation, key):
    policy = {"kind": "AlwaysConfirm"}
    value = policy if key == "confirmation_policy" else {"confirmation_policy": policy}

    client.post(url, json=[state_update(key, value), action()])

    state = client.get(f"{API}/{conversation}").get_json()
    assert (state["confirmation_policy"], state["execution_status"]) == (policy, "waiting_for_confirmation")


def test_kinds_have_their_effect_under_their_qualified_names_too(client, url, conversation):
    module = "openhands.sdk.event.conversation_state.ConversationStateUpdateEvent"
    title = {**state_update("title", "T"), "kind": module}
    snapshot = {**state_update("full_state", {"execution_status": "paused"}), "kind": module}

    assert client.post(url, json=[title, snapshot]).get_json()["appended"] == 1

    state = client.get(f"{API}/{conversation}").get_json()
    assert (state["title"], state["execution_status"]) == ("T", "paused")


def test_a_malformed_member_of_a_full_state_does_not_block_the_others(client, url, conversation):
    client.post(url, json=[state_update("full_state", {"execution_status": "asleep", "tags": 5, "title": "T"})])

    state = client.get(f"{API}/{conversation}").get_json()
    assert (state["title"], state["execution_status"], state["tags"]) == ("T", "idle", {})


@pytest.mark.parametrize("value", ["text", None, [], 5])
def test_a_full_state_other_than_an_object_has_no_effect_and_is_not_kept(client, url, events_url, value):
    response = client.post(url, json=[state_update("full_state", value), event()])

    assert response.get_json() == {"success": True, "appended": 1, "seq": 1}
    assert client.get(f"{events_url}/count").get_json() == 1


def test_a_repeated_batch_with_a_full_state_does_not_revert_the_state(client, url, conversation):
    # Given a batch that begins with the agent's state at that time, and a later change of the state
    batch = [state_update("full_state", {"execution_status": "idle", "title": "Early"}), state_update("title", "Late")]
    batch.append(status("running"))
    client.post(url, json=batch)

    # When the agent, which received no response, sends the batch again
    client.post(url, json=batch)

    # Then the state is still that of the last event
    state = client.get(f"{API}/{conversation}").get_json()
    assert (state["execution_status"], state["title"]) == ("running", "Late")


@pytest.mark.parametrize(
    "text", ["a\r\nSet-Cookie: x=1", "\x00\x1b[2J\x85", "\u202e\u2028é😀", "\ud83d", "x" * 9000, "é" * 9000, ""]
)
def test_a_message_of_an_agent_server_about_a_start_is_one_short_header_line(text):
    assert re.fullmatch(r"[ -~]{0,1500}", in_header(text))
