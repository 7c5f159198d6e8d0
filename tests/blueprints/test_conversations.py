"""Conversations over HTTP: made once, read with every member that clients want, deleted whole."""

from uuid import uuid4

import pytest

from tests.conftest import action, message, recorded

API = "/api/conversations"


def test_everything_is_optional(client):
    for body in ({"json": {}}, {}):
        response = client.post(API, **body)
        assert response.status_code == 201
        created = response.get_json()
        assert (created["execution_status"], created["title"]) == ("idle", None)
        assert created["confirmation_policy"] == {"kind": "NeverConfirm"}
        assert created["created_at"].endswith("Z")
        assert client.get(f"{API}/{created['id']}").get_json() == created


def test_an_id_is_taken_once_and_given_back_after(client, conversation):
    first = client.post(API, json={"conversation_id": conversation.replace("-", ""), "title": "First"})
    again = client.post(API, json={"conversation_id": conversation, "title": "Second"})

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.get_json() == again.get_json()
    assert (again.get_json()["id"], again.get_json()["title"]) == (conversation, "First")


def test_what_is_given_is_told(client, conversation):
    given = {
        "title": "A title",
        "tags": {"team": "blue"},
        "confirmation_policy": {"kind": "ConfirmRisky", "threshold": "LOW", "confirm_unknown": False},
        "workspace": {"kind": "LocalWorkspace", "working_dir": "/w"},
        "agent": {"kind": "Agent", "llm": {"model": "m"}},
        "max_iterations": 7,
        "stuck_detection": False,
        "security_analyzer": None,
        "client_tools": [],
        "parent_conversation_id": str(uuid4()),
    }

    client.post(
        API, json={"conversation_id": conversation, **given, "stuck_detection_thresholds": {}, "worktree": True}
    )

    told = client.get(f"{API}/{conversation}").get_json()
    assert {name: told[name] for name in given} == given


def test_every_member_that_clients_look_for_is_there(client, conversation):
    client.post(API, json={"conversation_id": conversation})

    told = client.get(f"{API}/{conversation}").get_json()

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
    } <= set(told)


def test_an_initial_message_starts_a_run(client, conversation):
    text = {"content": [{"type": "text", "text": "Go"}], "run": False}

    created = client.post(API, json={"conversation_id": conversation, "initial_message": text}).get_json()

    assert created["execution_status"] == "running"
    events = client.get(f"{API}/{conversation}/events/search").get_json()["items"]
    assert [one["kind"] for one in events] == ["MessageEvent", "ConversationStateUpdateEvent"]
    assert created["last_user_message_id"] == events[0]["id"]
    assert client.get(f"{API}/{conversation}/events/count?body=go").get_json() == 1


def test_an_agents_secrets_are_not_kept(client, conversation):
    llm = {"api_key": "sk-1", "aws_secret_access_key": "s", "model": "m", "max_output_tokens": 5, "password": ""}

    client.post(API, json={"conversation_id": conversation, "agent": {"llm": llm, "mcp": [{"token": "t"}]}})

    told = client.get(f"{API}/{conversation}").get_json()["agent"]
    assert told["llm"] == {**llm, "api_key": "**********", "aws_secret_access_key": "**********"}
    assert told["mcp"] == [{"token": "**********"}]


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"conversation_id": "x"}, ["conversation_id"]),
        ({"conversation_id": 5}, ["conversation_id"]),
        ({"title": ""}, ["title"]),
        ({"title": "x" * 201}, ["title"]),
        ({"title": 5}, ["title"]),
        ({"tags": []}, ["tags"]),
        ({"tags": {"Upper": "x"}}, ["tags"]),
        ({"tags": {"a": "x" * 257}}, ["tags", "a", "value"]),
        ({"confirmation_policy": {"kind": "Sometimes"}}, ["confirmation_policy", "kind"]),
        ({"confirmation_policy": {}}, ["confirmation_policy", "kind"]),
        ({"initial_message": {"content": "hi"}}, ["initial_message", "content"]),
        ({"max_iterations": 0}, ["max_iterations"]),
        ({"max_iterations": True}, ["max_iterations"]),
        ({"max_iterations": "5"}, ["max_iterations"]),
        ({"stuck_detection": 1}, ["stuck_detection"]),
        ({"agent": "x"}, ["agent"]),
        ({"secrets": {"KEY": "value"}}, ["secrets"]),
        ([], []),
    ],
)
def test_a_bad_member_is_named(client, body, loc):
    response = client.post(API, json=body)

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"] == ["body", *loc]


def test_a_conversation_is_deleted_whole(client, conversation):
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[message("old words"), action()])
    url = f"{API}/{conversation}"
    assert client.get(f"{url}/events/count?body=old").get_json() == 1

    assert client.delete(url).get_json() == {"success": True}

    answers = [
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
    for answer in answers:
        assert (answer.status_code, answer.get_json()) == (404, {"detail": "Conversation not found"})


def test_a_deleted_id_can_begin_anew(client, conversation):
    client.post(f"/api/v1/webhooks/events/{conversation}", json=recorded("pending"))
    client.delete(f"{API}/{conversation}")

    assert client.post(API, json={"conversation_id": conversation}).status_code == 201

    assert client.get(f"{API}/{conversation}/events/count").get_json() == 0
    assert client.get(f"{API}/{conversation}/pending_actions").get_json() == []
    again = client.post(f"/api/v1/webhooks/events/{conversation}", json=recorded("pending"))
    assert again.get_json() == {"success": True, "appended": 9, "seq": 9}


def test_nothing_of_a_deleted_conversation_stays_but_a_mark_for_a_minute(client, store, conversation):
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[*recorded("pending"), action(), message("x")])
    redis = store.conversations._redis
    keys = f"conv:{{{conversation}}}*"
    assert len(redis.keys(keys)) >= 8

    client.delete(f"{API}/{conversation}")

    [mark] = redis.keys(keys)
    assert mark.endswith(b":deleted")
    assert 0 < redis.ttl(mark) <= 60
