"""Secrets of a conversation: kept sealed, shown by name alone."""

from uuid import uuid4

import pytest
from cryptography.fernet import InvalidToken

from store.errors import SecretsRefused
from store.link.secrets import fernet_for
from tests.blueprints import API, NOT_FOUND, SECRET_KEY, log, opened, refused, sealed, stored

MASK = "**********"

SECRETS = {
    "GITHUB_TOKEN": "sesame ghp_1",
    "an odd name: ä/😀\n": {"value": "sesame 2"},
    "lookup": {"kind": "LookupSecret", "url": "http://sesame/3", "headers": {"Authorization": "sesame 4"}},
}
SEEN = {name: {"kind": "StaticSecret", "description": None, "value": MASK} for name in SECRETS}


def test_secrets_without_a_server_key_are_refused_with_the_reason(keyless, store, conversation, url):
    earlier = keyless.get(url).get_json()

    response = keyless.post(f"{url}/secrets", json={"secrets": {"KEY": "hush"}})

    [fault] = response.get_json()["detail"]
    assert (response.status_code, fault["loc"]) == (422, ["body", "secrets"])
    assert fault["msg"] == SecretsRefused.words
    assert "hush" not in response.get_data(as_text=True)
    assert keyless.get(url).get_json() == earlier
    assert sealed(store, conversation) == {}


def test_a_conversation_with_secrets_is_not_started_without_a_server_key(keyless, conversation):
    response = keyless.post(API, json={"conversation_id": conversation, "secrets": {"KEY": "hush"}})

    assert refused(response, "secrets")
    assert "SECRET_KEY" in response.get_json()["detail"][0]["msg"]
    assert keyless.get(f"{API}/{conversation}").status_code == 404


def test_no_secrets_need_no_key(keyless, url, conversation):
    assert keyless.post(f"{url}/secrets", json={"secrets": {}}).get_json() == {"success": True}
    for nothing in ({}, None):
        assert keyless.post(API, json={"secrets": nothing}).status_code == 201

    response = keyless.post(f"{API}/{uuid4()}/secrets", json={"secrets": {}})
    assert (response.status_code, response.get_json()) == NOT_FOUND


@pytest.mark.parametrize("at_start", [True, False])
def test_secrets_are_kept_sealed_and_responses_have_only_their_names(keeper, store, conversation, at_start):
    # Given a conversation with secrets, some text and an event
    url, text = f"{API}/{conversation}", {"content": [{"type": "text", "text": "Hello"}]}
    request = {"conversation_id": conversation, "initial_message": text}
    if at_start:
        begun = keeper.post(API, json={**request, "secrets": SECRETS})
        assert begun.get_json()["secret_registry"] == {"secret_sources": SEEN}
    else:
        keeper.post(API, json=request)
        response = keeper.post(f"{url}/secrets", json={"secrets": SECRETS})
        assert (response.status_code, response.get_json()) == (200, {"success": True})

    # Then no key of Redis holds a value, and a process with the server key reads them all
    assert b"sesame" not in stored(store, conversation)
    assert opened(store, conversation) == SECRETS

    # And every read returns their names, no read returns their values, and no event has either
    reads = [url, f"{API}?ids={conversation}", f"{API}/search", f"{url}/events/search"]
    responses = [keeper.get(path).get_data(as_text=True) for path in reads]
    assert not any("sesame" in response for response in responses)
    assert keeper.get(url).get_json()["secret_registry"] == {"secret_sources": SEEN}
    assert keeper.get(reads[1]).get_json()[0]["secret_registry"] == {"secret_sources": SEEN}
    assert [one["kind"] for one in log(keeper, url)] == ["MessageEvent", "ConversationStateUpdateEvent"]


def test_secrets_are_added_and_overwritten_by_name(keeper, store, conversation):
    keeper.post(API, json={"conversation_id": conversation, "secrets": {"a": "1", "b": "2"}})
    earlier = keeper.get(f"{API}/{conversation}").get_json()

    keeper.post(f"{API}/{conversation}/secrets", json={"secrets": {"b": "3", "c": "4"}})

    assert opened(store, conversation) == {"a": "1", "b": "3", "c": "4"}
    now = keeper.get(f"{API}/{conversation}").get_json()
    assert list(now["secret_registry"]["secret_sources"]) == ["a", "b", "c"]
    assert now["updated_at"] > earlier["updated_at"]


def test_a_secret_opens_only_with_the_key_and_in_its_conversation(keeper, store, conversation):
    keeper.post(API, json={"conversation_id": conversation, "secrets": {"a": "1", "b": "1"}})
    kept = sealed(store, conversation)
    assert kept["a"] != kept["b"]

    for key, owner in ((SECRET_KEY, str(uuid4())), ("another key of 16 or more", conversation)):
        with pytest.raises(InvalidToken):
            fernet_for(key, f"conversation {owner}").decrypt(kept["a"])


def test_a_repeated_start_does_not_change_secrets(keeper, store, conversation):
    keeper.post(API, json={"conversation_id": conversation, "secrets": {"a": "1"}})

    assert keeper.post(API, json={"conversation_id": conversation, "secrets": {"b": "2"}}).status_code == 200

    assert opened(store, conversation) == {"a": "1"}


def test_an_unknown_conversation_keeps_no_secrets(keeper, store, conversation):
    response = keeper.post(f"{API}/{conversation}/secrets", json={"secrets": {"a": "1"}})

    assert (response.status_code, response.get_json()) == NOT_FOUND
    assert sealed(store, conversation) == {}


def test_secrets_are_deleted_with_their_conversation(keeper, store, conversation):
    keeper.post(API, json={"conversation_id": conversation, "secrets": {"a": "1"}})

    keeper.delete(f"{API}/{conversation}")
    keeper.post(API, json={"conversation_id": conversation})

    assert sealed(store, conversation) == {}
    assert keeper.get(f"{API}/{conversation}").get_json()["secret_registry"] == {"secret_sources": {}}


@pytest.mark.parametrize(
    "secrets",
    [
        {"x" * 128: "1"},
        {"x": ""},
        {"x": "y" * 60_000},
        {f"x{number}": "1" for number in range(100)},
    ],
)
def test_secrets_within_bounds_are_kept(keeper, store, conversation, secrets):
    assert keeper.post(API, json={"conversation_id": conversation, "secrets": secrets}).status_code == 201

    assert opened(store, conversation) == secrets


NO_SECRETS = [
    (None, []),
    ([], []),
    ("hush", []),
    ({f"x{number}": "hush" for number in range(101)}, []),
    ({"": "hush"}, [""]),
    ({"x" * 129: "hush"}, ["x" * 129]),
    ({"\ud800": "hush"}, ["\ufffd"]),
    ({"a=b": "hush"}, ["a=b"]),
    ({"a\0b": "hush"}, ["a\0b"]),
    ({"x": "a\0hush"}, ["x"]),
    ({"x": {"kind": "StaticSecret", "value": "a\0hush"}}, ["x"]),
    ({"x": 5}, ["x"]),
    ({"x": None}, ["x"]),
    ({"x": ["hush"]}, ["x"]),
    ({"x": "hush" * 17_000}, ["x"]),
    ({"x": {"value": "hush" * 17_000}}, ["x"]),
]


def test_secrets_out_of_bounds_are_refused_and_not_repeated_in_the_response(keeper, store, conversation):
    keeper.post(API, json={"conversation_id": conversation})
    for secrets, loc in NO_SECRETS:
        requests = [keeper.post(f"{API}/{conversation}/secrets", json={"secrets": secrets})]
        if secrets is not None:
            requests.append(keeper.post(API, json={"secrets": secrets}))

        for response in requests:
            assert refused(response, "secrets", *loc)
            assert "hush" not in response.get_data(as_text=True)
    assert sealed(store, conversation) == {}


def test_secrets_must_be_named(keeper, conversation):
    keeper.post(API, json={"conversation_id": conversation})

    assert refused(keeper.post(f"{API}/{conversation}/secrets", json={}), "secrets")
