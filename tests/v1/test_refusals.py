"""What the V1 routes refuse before they look for a sandbox: asked of the app in this process."""

from uuid import uuid4

import pytest

from store.errors import ConversationNotFound, StartTaskNotFound
from tests.shared import client_of
from tests.v1 import WireApi

UNKNOWN = "5f1c8a527d0e4c399a41"
HELLO = {"content": [{"type": "text", "text": "hello"}]}


@pytest.fixture(scope="module")
def api(app):
    """Calls of an app without a supervisor."""
    with client_of(app) as client:
        yield WireApi(client)


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/pause"), ("POST", "/resume"), ("DELETE", ""), ("GET", "/logs")]
)
def test_an_unknown_sandbox_is_404(api, method, path):
    for unknown in (UNKNOWN, "-", "..", "%00", "a" * 300, "{}"):
        response = api.client.request(method, f"/api/v1/sandboxes/{unknown}{path}")
        assert response.status_code in ((404, 405) if unknown == ".." else (404,)), unknown
        assert isinstance(response.json()["detail"], str)


def test_an_unknown_spec_is_404(api):
    api.call("POST", "/v1/sandboxes", params={"sandbox_spec_id": "nope"}, status=404)


def test_a_batch_of_sandboxes_needs_ids_and_takes_a_hundred(api):
    assert api.call("GET", "/v1/sandboxes", status=422)["detail"][0]["loc"] == ["query", "id"]
    assert api.call("GET", "/v1/sandboxes", params={"id": [UNKNOWN] * 100}) == [None] * 100
    assert api.call("GET", "/v1/sandboxes", params={"id": ["a"] * 101}, status=422)


def test_an_invalid_search_is_422(api):
    for path, query in (
        ("sandboxes/search", {"status__eq": "SLEEPING"}),
        ("app-conversations/search", {"sort_order": "SIZE"}),
        ("app-conversations/count", {"created_at__gte": "yesterday"}),
        ("app-conversations/start-tasks/search", {"sort_order": "TITLE"}),
        ("app-conversations/start-tasks/count", {"created_at__gte": "x"}),
    ):
        [fault] = api.call("GET", f"/v1/{path}", params=query, status=422)["detail"]
        assert fault["loc"] == ["query", *query], path


def test_an_invalid_start_request_is_422(api):
    [fault] = api.call("POST", "/v1/app-conversations", json={"trigger": "nobody"}, status=422)["detail"]
    assert fault["loc"] == ["body", "trigger"]


def put(api: WireApi, receiver: str, body: dict, status: int):
    return api.call("POST", f"/v1/conversations/{receiver}/pending-messages", json=body, status=status)["detail"]


@pytest.mark.parametrize("receiver", ["no-id", "task-no-id", "task-", "other-" + "0" * 32])
def test_a_pending_message_to_an_id_that_is_none_is_422(api, receiver):
    assert put(api, receiver, HELLO, 422)[0]["loc"] == ["path", "receiver_id"]


def test_a_pending_message_that_is_none_is_422_and_names_the_member(api):
    assert put(api, f"task-{uuid4().hex}", {"content": []}, 422)[0]["loc"] == ["body", "content"]


def test_a_pending_message_to_an_unknown_receiver_is_404(api):
    assert put(api, str(uuid4()), HELLO, 404) == ConversationNotFound.words
    assert put(api, f"task-{uuid4()}", HELLO, 404) == StartTaskNotFound.words


def test_a_message_to_an_unknown_conversation_is_404(api):
    api.send(uuid4().hex, "hello", status=404)


def test_an_unknown_and_a_detached_conversation_are_404_on_every_path_of_files(api):
    detached = api.call("POST", "/conversations", json={}, status=201)["id"]
    for conversation in (str(uuid4()), detached):
        for end in ("file", "files", "skills", "hooks", "download", "git/changes?path=.", "git/diff?path=x"):
            found = api.call("GET", f"/v1/app-conversations/{conversation}/{end}", status=404)
            assert found["detail"] == ConversationNotFound.words, end


def test_the_configuration_of_web_clients_hides_what_is_not_here(api):
    config = api.call("GET", "/v1/web-client/config")

    assert (config["kind"], config["app_mode"], config["providers_configured"]) == ("WebClientConfig", "oss", [])
    assert config["feature_flags"]["hide_llm_settings"] is True
    assert config["feature_flags"]["enable_billing"] is False
    assert config["updated_at"].endswith("Z")
