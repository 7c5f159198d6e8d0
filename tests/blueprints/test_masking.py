"""What clients see of secrets that an agent prints: nothing, on every way out of the log."""

import base64
import json

import pytest

from app import create_app
from settings.config import Config
from store.conversations.masks import Masks
from tests.blueprints import API, SECRET_KEY, stored
from tests.conftest import action, event, message

SECRET, MASK = "sesame-ghp_1", "<secret-hidden>"


def printed(text, **members):
    seen = {"content": [{"type": "text", "text": text}], "kind": "TerminalObservation", **members}
    return event("ObservationEvent", "environment", tool_name="terminal", observation=seen)


@pytest.fixture
def url(keeper, conversation):
    """A conversation with a secret."""
    keeper.post(API, json={"conversation_id": conversation, "secrets": {"TOKEN": SECRET}})
    return f"{API}/{conversation}"


@pytest.fixture
def post(keeper, conversation):
    def posted(*events):
        response = keeper.post(f"/api/v1/webhooks/events/{conversation}", json=list(events))
        assert response.status_code == 200
        return response.get_json()

    return posted


def test_a_secret_that_an_agent_prints_is_in_no_response_and_not_in_the_store(keeper, store, conversation, url, post):
    coded = base64.b64encode(SECRET.encode()).decode()
    one = message(f"it is {SECRET}", "agent")
    post(printed(f"{SECRET}\n{coded}", command=f"echo {SECRET}"), one, event("AgentErrorEvent", error=SECRET))

    reads = ("events/search", "events/search?after_seq=0", f"events/{one['id']}", "export", "agent_final_response")
    texts = [keeper.get(f"{url}/{path}").get_data(as_text=True) for path in reads]
    assert not any(SECRET in text or coded in text for text in texts)
    assert all(MASK in text for text in texts)
    assert SECRET.encode() not in stored(store, conversation)
    assert keeper.get(f"{url}/events/count?body={SECRET}").get_json() == 0
    assert keeper.get(f"{url}/events/count?body=it is {MASK}").get_json() == 1


def test_a_secret_that_another_worker_has_set_is_masked_from_then_on(keeper, redis_url, conversation, url, post):
    post(printed("first-hush"), printed(SECRET))
    another = create_app(Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY))
    another.extensions["server"].store.conversations.put_secrets(conversation, {"LATER": "second-hush"})

    post(printed("first-hush second-hush"))

    events = keeper.get(f"{url}/events/search").get_data(as_text=True)
    assert (events.count("first-hush"), events.count("second-hush"), events.count(MASK)) == (2, 0, 2)


def test_an_event_without_a_secret_is_kept_byte_for_byte(keeper, conversation, url):
    raw = json.dumps(message("nothing é", "agent"), ensure_ascii=False, indent=1).encode()

    keeper.post(f"/api/v1/webhooks/events/{conversation}", data=b"[" + raw + b"]", content_type="application/json")

    assert raw in keeper.get(f"{url}/events/search").get_data()


def test_a_masked_event_that_comes_again_changes_nothing(keeper, url, post):
    one = printed(SECRET)
    post(one)
    before = keeper.get(f"{url}/events/search").get_data()

    assert post(one)["appended"] == 0
    assert keeper.get(f"{url}/events/search").get_data() == before


def test_secrets_are_read_once_and_none_where_there_are_none(keeper, conversation, url, post, monkeypatch):
    read, reads = Masks.read, []
    monkeypatch.setattr(Masks, "read", lambda *args: reads.append(args) or read(*args))
    for _ in range(3):
        post(printed("text"))
    assert len(reads) == 1

    keeper.delete(url)
    keeper.post(API, json={"conversation_id": conversation})
    for _ in range(3):
        post(printed(SECRET))
    assert len(reads) == 2  # to find that what was known is gone
    assert SECRET in keeper.get(f"{url}/events/search").get_data(as_text=True)


def test_an_approval_of_a_masked_action_is_bound_to_what_was_shown(keeper, conversation, url, post):
    keeper.post(f"{url}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}})
    one = action(f"curl -H {SECRET}")
    post(one)

    [shown] = [
        item
        for item in keeper.get("/api/v1/pending-actions?limit=100").get_json()["items"]
        if item["conversation_id"] == conversation
    ]
    assert shown["arguments"]["command"] == f"curl -H {MASK}"
    decide = f"/api/v1/conversation/{conversation}/pending-actions/decisions"
    decision = {"action_id": one["id"], "decision": "approve", "digest": shown["digest"]}

    assert keeper.post(decide, json={"decisions": [decision]}).status_code == 200


def test_an_edit_with_a_masked_value_in_it_is_refused(keeper, conversation, url, post):
    decision = {"action_id": "x", "decision": "edit", "arguments": {"command": [f"curl -H {MASK}"]}}

    response = keeper.post(
        f"/api/v1/conversation/{conversation}/pending-actions/decisions", json={"decisions": [decision]}
    )

    assert response.status_code == 422
    assert "arguments" in response.get_json()["detail"][0]["loc"]
    assert MASK in response.get_json()["detail"][0]["msg"]
