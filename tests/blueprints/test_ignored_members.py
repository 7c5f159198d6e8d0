"""No member is ignored that would change what an agent may do: it is refused, or the detail of the start has it."""

from uuid import uuid4

import pytest

from schemas.app_conversations import AppConversationStartRequest
from tests.blueprints import refused

ALWAYS = {"kind": "AlwaysConfirm"}

#: members of a conversation's state that have a request of their own, or are set at the start
SET_ELSEWHERE = (
    *("confirmation_policy", "security_analyzer", "secrets", "agent", "llm_model", "execution_status"),
    "max_iterations",
)


@pytest.fixture
def app_url(store):
    conversation = str(uuid4())
    store.conversations.create(conversation, sandbox_id=str(uuid4()), app={})
    return f"/api/v1/app-conversations/{conversation}"


@pytest.mark.parametrize("member", SET_ELSEWHERE)
def test_a_change_or_a_fork_with_a_member_that_another_request_sets_is_refused_and_changes_nothing(
    client, url, app_url, member
):
    earlier = client.get(url).get_json()

    for response in (
        client.patch(url, json={"title": "new", member: ALWAYS}),
        client.patch(app_url, json={"title": "new", member: ALWAYS}),
        client.post(f"{url}/fork", json={member: ALWAYS}),
    ):
        assert refused(response, member)
        assert "Is not set here: " in response.get_json()["detail"][0]["msg"]

    assert client.get(url).get_json() == earlier


def test_the_refusal_of_a_policy_names_the_request_that_sets_it(client, url):
    [fault] = client.patch(url, json={"confirmation_policy": ALWAYS}).get_json()["detail"]

    assert "POST /api/conversations/{conversation_id}/confirmation_policy" in fault["msg"]
    assert fault["loc"] == ["body", "confirmation_policy"]


@pytest.mark.parametrize("member", ["confirmation_policy", "security_analyzer"])
def test_a_start_of_an_app_conversation_that_names_a_policy_is_refused(client, member):
    for path in ("/api/v1/app-conversations", "/api/v1/app-conversations/stream-start"):
        assert refused(client.post(path, json={member: ALWAYS}), member)


def test_null_is_ignored_as_an_absent_member(client, url, app_url):
    nulls = dict.fromkeys(SET_ELSEWHERE)

    assert client.patch(url, json=nulls).status_code == 200
    assert client.patch(app_url, json=nulls).status_code == 200


def test_what_else_a_client_sends_beside_is_ignored_as_before(client, url):
    assert client.patch(url, json={"title": "new", "unknown": 1}).status_code == 200


@pytest.mark.parametrize(
    "policy", [{"kind": "ConfirmRisky", "treshold": "LOW"}, {"kind": "AlwaysConfirm", "except": ["terminal"]}]
)
def test_a_policy_with_a_misspelt_member_is_refused(client, url, policy):
    assert client.post(f"{url}/confirmation_policy", json={"policy": policy}).status_code == 422
    assert client.post("/api/conversations", json={"confirmation_policy": policy}).status_code == 422


@pytest.mark.parametrize(
    ("path", "body", "member"),
    [
        ("/api/v1/keys", {"name": "a", "scopes": ["read"], "expires_in": 60}, "expires_in"),
        ("/api/v1/tickets", {"scope": "read"}, "scope"),
        ("/api/v1/notifications/test", {"targets": "x"}, "targets"),
    ],
)
def test_a_misspelt_member_of_a_request_of_this_server_alone_is_refused(client, path, body, member):
    assert refused(client.post(path, json=body), member)


def test_a_start_remembers_what_of_the_published_start_it_ignores():
    loaded = AppConversationStartRequest().load({"plugins": [{"source": "x"}], "system_prompt": "", "title": "t"})

    assert loaded["ignored"] == ["plugins"]
    assert "ignored" not in AppConversationStartRequest().load({"title": "t", "plugins": None})
