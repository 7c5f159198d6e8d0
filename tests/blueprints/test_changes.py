"""What is changed, kept secret, summed up and copied: PATCH, security analyzer, secrets, final response, fork."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from cryptography.fernet import InvalidToken

from app import create_app
from config import Config
from store.errors import ConversationNotFound
from store.secrets import fernet_for
from tests.conftest import action, event, message, observation, recorded

API = "/api/conversations"
MASK = "**********"
SECRET_KEY = "a key for tests, of 32 characters"
NOT_FOUND = (404, {"detail": "Conversation not found"})


@pytest.fixture
def url(client, conversation):
    """A conversation that exists and is idle."""
    client.post(API, json={"conversation_id": conversation, "title": "Old", "tags": {"old": "1"}})
    return f"{API}/{conversation}"


@pytest.fixture
def tell(client, conversation):
    """Append events as the agent does."""
    return lambda *events: client.post(f"/api/v1/webhooks/events/{conversation}", json=list(events))


def log(client, url):
    """The log as it came, in the order of appending."""
    items, page = [], [{}]
    while page:
        page = client.get(f"{url}/events/search?after_seq={len(items)}").get_json()["items"]
        items += page
    return items


def updates(client, url):
    """The state events of a log: key and value."""
    return [(one["key"], one["value"]) for one in log(client, url) if one["kind"] == "ConversationStateUpdateEvent"]


def refused(response, *loc):
    """Whether a response refuses the member of the body at a place."""
    return response.status_code == 422 and response.get_json()["detail"][0]["loc"] == ["body", *loc]


# title and tags


def test_a_title_is_changed_without_the_space_around_it_and_without_an_event(client, url):
    told = client.get(url).get_json()

    assert client.patch(url, json={"title": "  A \n title\t"}).get_json() == {"success": True}

    now = client.get(url).get_json()
    assert now == {**told, "title": "A \n title", "updated_at": now["updated_at"]}
    assert now["updated_at"] > told["updated_at"]
    assert log(client, url) == []


@pytest.mark.parametrize("title", ["x", "x" * 200, "😀" * 200, " " * 50 + "x" * 200, "null", "ÄÖ \u202e"])
def test_a_title_has_from_1_to_200_characters(client, url, title):
    assert client.patch(url, json={"title": title}).status_code == 200

    assert client.get(url).get_json()["title"] == title.strip()


@pytest.mark.parametrize("title", ["", " \n ", "x" * 201, 5, ["x"], True, "lone \ud800"])
def test_a_title_that_is_none_is_refused_and_nothing_is_changed(client, url, title):
    told = client.get(url).get_json()

    assert refused(client.patch(url, json={"title": title, "tags": {"new": "2"}}), "title")

    assert client.get(url).get_json() == told
    assert log(client, url) == []


def test_tags_are_replaced_as_a_whole_and_the_log_tells(client, url):
    told = client.get(url).get_json()

    for tags in ({"new": "2", "0": "", "a" * 300: "ä" * 256}, {}):
        assert client.patch(url, json={"tags": tags}).get_json() == {"success": True}
        assert client.get(url).get_json()["tags"] == tags

    now = client.get(url).get_json()
    assert now == {**told, "tags": {}, "updated_at": now["updated_at"]}
    assert updates(client, url) == [("tags", {"new": "2", "0": "", "a" * 300: "ä" * 256}), ("tags", {})]
    assert {one["source"] for one in log(client, url)} == {"environment"}


@pytest.mark.parametrize(
    ("tags", "loc"),
    [
        ([], ["tags"]),
        ("x", ["tags"]),
        ({"Upper": "x"}, ["tags"]),
        ({"a-b": "x"}, ["tags"]),
        ({"": "x"}, ["tags"]),
        ({"²": "x"}, ["tags"]),
        ({"a": 5}, ["tags", "a", "value"]),
        ({"a": None}, ["tags", "a", "value"]),
        ({"a": "x" * 257}, ["tags", "a", "value"]),
        ({"a": "\udc00"}, ["tags", "a", "value"]),
    ],
)
def test_tags_that_are_none_are_refused_and_nothing_is_changed(client, url, tags, loc):
    told = client.get(url).get_json()

    assert refused(client.patch(url, json={"title": "New", "tags": tags}), *loc)

    assert client.get(url).get_json() == told
    assert log(client, url) == []


def test_title_and_tags_are_changed_at_once(client, url):
    client.patch(url, json={"title": "New", "tags": {"new": "2"}, "execution_status": "error", "unknown": 1})

    now = client.get(url).get_json()
    assert (now["title"], now["tags"], now["execution_status"]) == ("New", {"new": "2"}, "idle")
    assert updates(client, url) == [("tags", {"new": "2"})]


@pytest.mark.parametrize("body", [{}, {"unknown": 1}, {"title": "Old"}, {"tags": {"old": "1"}}])
def test_a_patch_that_changes_nothing_leaves_no_trace(client, url, body):
    told = client.get(url).get_json()

    assert client.patch(url, json=body).get_json() == {"success": True}

    assert client.get(url).get_json() == told
    assert log(client, url) == []


@pytest.mark.parametrize("body", [{}, {"title": "New"}, {"tags": {}}])
def test_an_unknown_conversation_is_not_changed(client, conversation, body):
    response = client.patch(f"{API}/{conversation}", json=body)

    assert (response.status_code, response.get_json()) == NOT_FOUND
    assert client.get(f"{API}/{conversation}").status_code == 404


@pytest.mark.parametrize("body", [[], None, "x", 5])
def test_a_patch_is_an_object(client, url, body):
    assert refused(client.patch(url, json=body))


# security analyzer


def test_a_security_analyzer_is_set_and_taken_away_and_the_log_tells_once_each(client, url):
    analyzer = {"kind": "LLMSecurityAnalyzer", "nested": {"list": [1, None, "ä"]}}

    for value in (analyzer, analyzer, None, None):
        response = client.post(f"{url}/security_analyzer", json={"security_analyzer": value})
        assert (response.status_code, response.get_json()) == (200, {"success": True})
        assert client.get(url).get_json()["security_analyzer"] == value

    assert updates(client, url) == [("security_analyzer", analyzer), ("security_analyzer", None)]


@pytest.mark.parametrize("body", [{}, {"security_analyzer": "x"}, {"security_analyzer": []}, {"analyzer": None}])
def test_a_security_analyzer_must_be_named(client, url, body):
    assert refused(client.post(f"{url}/security_analyzer", json=body), "security_analyzer")

    assert log(client, url) == []


def test_an_unknown_conversation_has_no_security_analyzer(client, conversation):
    response = client.post(f"{API}/{conversation}/security_analyzer", json={"security_analyzer": None})

    assert (response.status_code, response.get_json()) == NOT_FOUND


@pytest.mark.parametrize(
    "members",
    [
        {"api_key": "hush"},
        {"llm": {"aws_secret_access_key": "hush", "extra_headers": {"X-Any": "hush"}}},
        {"rules": [{"token": "hush"}, {"env": {"ANY": {"value": "hush"}}}]},
        {"api_key": {"kind": "StaticSecret", "value": "hush"}},
        {"password": ["hush"]},
    ],
)
def test_no_secret_of_a_security_analyzer_is_kept(client, store, conversation, url, members):
    client.post(f"{url}/security_analyzer", json={"security_analyzer": {"kind": "GraySwanAnalyzer", **members}})

    assert client.get(url).get_json()["security_analyzer"]["kind"] == "GraySwanAnalyzer"
    assert [key for key, _ in updates(client, url)] == ["security_analyzer"]
    assert b"hush" not in everything(store, conversation)


# secrets


def everything(store, conversation) -> bytes:
    """All that Redis holds of a conversation, in one."""
    redis = store.conversations._redis
    readers = {
        b"string": redis.get,
        b"hash": redis.hgetall,
        b"list": lambda key: redis.lrange(key, 0, -1),
        b"set": redis.smembers,
        b"zset": lambda key: redis.zrange(key, 0, -1),
    }
    keys = redis.keys(f"conv:{{{conversation}}}*")
    assert len(keys) >= 2
    return b"\n".join(key + b" " + repr(readers[redis.type(key)](key)).encode() for key in keys)


def sealed(store, conversation) -> dict[str, bytes]:
    stored = store.conversations._redis.hgetall(f"conv:{{{conversation}}}:secrets")
    return {name.decode(): value for name, value in stored.items()}


def opened(store, conversation) -> dict:
    """What an agent's host, which has the key, reads."""
    fernet = fernet_for(SECRET_KEY, conversation)
    return {name: json.loads(fernet.decrypt(value)) for name, value in sealed(store, conversation).items()}


@pytest.fixture(scope="module")
def keeper(redis_url):
    """A server that has a SECRET_KEY."""
    return create_app(Config(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY)).test_client()


SECRETS = {
    "GITHUB_TOKEN": "sesame ghp_1",
    "an odd name: ä/😀\n": {"value": "sesame 2"},
    "lookup": {"kind": "LookupSecret", "url": "http://sesame/3", "headers": {"Authorization": "sesame 4"}},
}
SEEN = {name: {"kind": "StaticSecret", "description": None, "value": MASK} for name in SECRETS}


def test_without_a_key_secrets_are_refused_with_a_sentence_that_says_why(client, store, conversation, url):
    told = client.get(url).get_json()

    response = client.post(f"{url}/secrets", json={"secrets": {"KEY": "hush"}})

    [fault] = response.get_json()["detail"]
    assert (response.status_code, fault["loc"]) == (422, ["body", "secrets"])
    assert fault["msg"] == "Secrets cannot be kept: the server has no SECRET_KEY"
    assert "hush" not in response.get_data(as_text=True)
    assert client.get(url).get_json() == told
    assert sealed(store, conversation) == {}


def test_without_a_key_a_conversation_with_secrets_does_not_begin(client, conversation):
    response = client.post(API, json={"conversation_id": conversation, "secrets": {"KEY": "hush"}})

    assert refused(response, "secrets")
    assert "SECRET_KEY" in response.get_json()["detail"][0]["msg"]
    assert client.get(f"{API}/{conversation}").status_code == 404


def test_no_secrets_need_no_key(client, url, conversation):
    assert client.post(f"{url}/secrets", json={"secrets": {}}).get_json() == {"success": True}
    for nothing in ({}, None):
        assert client.post(API, json={"secrets": nothing}).status_code == 201

    response = client.post(f"{API}/{uuid4()}/secrets", json={"secrets": {}})
    assert (response.status_code, response.get_json()) == NOT_FOUND


@pytest.mark.parametrize("at_start", [True, False])
def test_secrets_are_kept_sealed_and_only_their_names_are_told(keeper, store, conversation, at_start):
    # Given a conversation with secrets, some text and an event
    url, text = f"{API}/{conversation}", {"content": [{"type": "text", "text": "Hello"}]}
    request = {"conversation_id": conversation, "initial_message": text}
    if at_start:
        begun = keeper.post(API, json={**request, "secrets": SECRETS})
        assert begun.get_json()["secret_registry"] == {"secret_sources": SEEN}
    else:
        keeper.post(API, json=request)
        answer = keeper.post(f"{url}/secrets", json={"secrets": SECRETS})
        assert (answer.status_code, answer.get_json()) == (200, {"success": True})

    # Then nothing that Redis holds has a value, and who has the key reads them all
    assert b"sesame" not in everything(store, conversation)
    assert opened(store, conversation) == SECRETS

    # And their names are told by every read, their values by none; no event tells of them
    reads = [url, f"{API}?ids={conversation}", f"{API}/search", f"{url}/events/search"]
    answers = [keeper.get(path).get_data(as_text=True) for path in reads]
    assert not any("sesame" in answer for answer in answers)
    assert keeper.get(url).get_json()["secret_registry"] == {"secret_sources": SEEN}
    assert keeper.get(reads[1]).get_json()[0]["secret_registry"] == {"secret_sources": SEEN}
    assert [one["kind"] for one in log(keeper, url)] == ["MessageEvent", "ConversationStateUpdateEvent"]


def test_secrets_are_added_and_overwritten_by_name(keeper, store, conversation):
    keeper.post(API, json={"conversation_id": conversation, "secrets": {"a": "1", "b": "2"}})
    told = keeper.get(f"{API}/{conversation}").get_json()

    keeper.post(f"{API}/{conversation}/secrets", json={"secrets": {"b": "3", "c": "4"}})

    assert opened(store, conversation) == {"a": "1", "b": "3", "c": "4"}
    now = keeper.get(f"{API}/{conversation}").get_json()
    assert list(now["secret_registry"]["secret_sources"]) == ["a", "b", "c"]
    assert now["updated_at"] > told["updated_at"]


def test_a_secret_opens_only_with_the_key_and_in_its_conversation(keeper, store, conversation):
    keeper.post(API, json={"conversation_id": conversation, "secrets": {"a": "1", "b": "1"}})
    kept = sealed(store, conversation)
    assert kept["a"] != kept["b"]

    for key, owner in ((SECRET_KEY, str(uuid4())), ("another key of 16 or more", conversation)):
        with pytest.raises(InvalidToken):
            fernet_for(key, owner).decrypt(kept["a"])


def test_secrets_of_a_conversation_that_is_there_already_are_passed_over(keeper, store, conversation):
    keeper.post(API, json={"conversation_id": conversation, "secrets": {"a": "1"}})

    assert keeper.post(API, json={"conversation_id": conversation, "secrets": {"b": "2"}}).status_code == 200

    assert opened(store, conversation) == {"a": "1"}


def test_an_unknown_conversation_keeps_no_secrets(keeper, store, conversation):
    response = keeper.post(f"{API}/{conversation}/secrets", json={"secrets": {"a": "1"}})

    assert (response.status_code, response.get_json()) == NOT_FOUND
    assert sealed(store, conversation) == {}


def test_secrets_go_with_their_conversation(keeper, store, conversation):
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


@pytest.mark.parametrize(
    ("secrets", "loc"),
    [
        (None, []),
        ([], []),
        ("hush", []),
        ({f"x{number}": "hush" for number in range(101)}, []),
        ({"": "hush"}, [""]),
        ({"x" * 129: "hush"}, ["x" * 129]),
        ({"\ud800": "hush"}, ["\ud800"]),
        ({"x": 5}, ["x"]),
        ({"x": None}, ["x"]),
        ({"x": ["hush"]}, ["x"]),
        ({"x": "hush" * 17_000}, ["x"]),
        ({"x": {"value": "hush" * 17_000}}, ["x"]),
    ],
)
def test_secrets_out_of_bounds_are_refused_and_not_told_again(keeper, store, conversation, secrets, loc):
    keeper.post(API, json={"conversation_id": conversation})
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


# final response


def at(second: int) -> dict[str, str]:
    return {"timestamp": f"2026-11-20T20:00:{second:02}"}


def said(text, **members):
    return message(text, "agent", **members)


def finished(text, **members):
    return action(**{"action": {"kind": "FinishAction", "message": text}, "tool_name": "finish", **members})


PARTS = {"role": "assistant", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]}
IMAGE = {"role": "assistant", "content": [{"type": "image", "image_urls": ["data:"]}]}


@pytest.mark.parametrize(
    ("events", "response"),
    [
        ([], ""),
        ([message("user's words"), action(), event()], ""),
        ([said("first", **at(1)), said("last", **at(2)), message("thanks", **at(3))], "last"),
        ([finished("first", **at(1)), finished("last", **at(2)), action(**at(3))], "last"),
        ([finished("the action's", **at(1)), said("the message's", **at(2))], "the message's"),
        ([said("the message's", **at(1)), finished("the action's", **at(2))], "the action's"),
        ([said("the message's", **at(1)), finished("the action's", **at(1))], "the action's"),
        ([finished("the action's", **at(1)), said("the message's", **at(1))], "the message's"),
        ([said("before", **at(1)), finished("", **at(2))], ""),
        ([finished("", **at(1), action={"kind": "FinishAction"})], ""),
        ([event("MessageEvent", "agent", llm_message=PARTS)], "OneTwo"),
        ([said("before", **at(1)), event("MessageEvent", "agent", llm_message=IMAGE, **at(2))], ""),
        ([event("MessageEvent", "agent")], ""),
        ([said("ÄÖ 😀 \n\t\"'")], "ÄÖ 😀 \n\t\"'"),
    ],
)
def test_the_final_response_is_the_agents_last_word(client, url, tell, events, response):
    tell(*events)

    answer = client.get(f"{url}/agent_final_response")

    assert (answer.status_code, answer.get_json()) == (200, {"response": response})


def test_the_final_response_is_found_behind_many_later_actions(client, url, tell):
    tell(finished("long ago", **at(1)), *(action(**at(2)) for _ in range(250)))

    assert client.get(f"{url}/agent_final_response").get_json() == {"response": "long ago"}


def test_an_unknown_conversation_has_no_final_response(client, conversation):
    answer = client.get(f"{API}/{conversation}/agent_final_response")

    assert (answer.status_code, answer.get_json()) == NOT_FOUND


# fork

QUERIES = ["", "kind=MessageEvent", "source=agent", "body=o", "body=Straße", "kind=ActionEvent&source=agent"]
QUERIES += ["timestamp__gte=2026-11-20T20:00:03", "body=&timestamp__lt=2026-11-20T20:00:02"]


def assert_same_log(client, url, copy):
    """Both have the same events, byte for byte, and every count and search agrees about them."""
    for query in QUERIES:
        for operation in ("count", "search", "search?sort_order=TIMESTAMP_DESC&limit=3"):
            path = f"/events/{operation}{'&' if '?' in operation else '?'}{query}"
            assert client.get(copy + path).get_data() == client.get(url + path).get_data(), path
    assert log(client, copy) == log(client, url)
    for one in log(client, url):
        assert client.get(f"{copy}/events/{one['id']}").get_data() == client.get(f"{url}/events/{one['id']}").get_data()


def fork(client, url, status=201, **request):
    response = client.post(f"{url}/fork", json=request)
    assert response.status_code == status, response.get_data(as_text=True)
    return response.get_json()


def keys_of(store, conversation):
    redis = store.conversations._redis
    return {key.decode(): redis.ttl(key) for key in redis.keys(f"conv:{{{conversation}}}*")}


def test_a_copy_has_the_whole_log_byte_for_byte(client, store, url, conversation):
    # Given a log of every sort of event, in disorder, one of them oddly written
    odd = (
        f'{{ "id":"{uuid4()}",\t"kind" : "m.MessageEvent","source":"agent", "timestamp":"1999-01-01T00:00:00Z","x":1e3,'
    )
    odd += '"llm_message":{"content":[{"type":"text","text":"Stra\\u00dfe \\ud83d\\ude00"}]}, "none":null }'
    events = [*recorded("pending"), said("from the future", timestamp="2199-01-01T00:00:00+02:00"), said("o", **at(3))]
    body = f"[{', '.join([json.dumps(one) for one in events] + [odd])}]"
    webhook = f"/api/v1/webhooks/events/{conversation}"
    assert client.post(webhook, data=body, content_type="application/json").status_code == 200
    told = client.get(url).get_json()

    # When it is copied
    copy = fork(client, url)

    # Then the copy is a conversation of its own with the same log
    assert copy == client.get(f"{API}/{copy['id']}").get_json()
    assert copy["id"] != conversation
    assert (copy["forked_from_conversation_id"], copy["forked_from_event_id"]) == (conversation, None)
    assert copy["created_at"] == copy["updated_at"] > told["updated_at"]
    assert_same_log(client, url, f"{API}/{copy['id']}")
    assert odd.encode() in client.get(f"{API}/{copy['id']}/events/search").get_data()

    # And nothing of its making is left, nothing of it ends by itself, and the source is as it was
    keys = keys_of(store, copy["id"])
    assert not [key for key in keys if ":fork" in key]
    assert set(keys.values()) == {-1}
    assert client.get(url).get_json() == told


def test_a_log_of_many_pages_is_copied_whole(client, url, tell, store):
    # Given more events than one page has, and a few that fill pages by their size
    tell(*(said(f"text {number}", **at(number % 60)) for number in range(230)))
    tell(*(said("o" * 150_000 + str(number)) for number in range(5)))

    copy = fork(client, url)

    assert_same_log(client, url, f"{API}/{copy['id']}")
    assert set(keys_of(store, copy["id"]).values()) == {-1}


def test_a_copy_ends_with_the_event_that_is_named_in_the_order_of_appending(client, url, tell):
    # Given a log whose times run backwards
    events = [said(f"o {number}", **at(9 - number)) for number in range(6)]
    tell(*events)

    for last, one in enumerate(events, 1):
        copy = fork(client, url, from_event_id=one["id"])
        assert log(client, f"{API}/{copy['id']}") == events[:last]
        assert copy["forked_from_event_id"] == one["id"]
        assert client.get(f"{API}/{copy['id']}/events/count?body=o").get_json() == last


def test_an_empty_conversation_is_copied_too(client, url, store):
    for body in ({}, {"json": {}}):
        response = client.post(f"{url}/fork", **body)

        assert response.status_code == 201
        copy = f"{API}/{response.get_json()['id']}"
        assert client.get(copy).get_json()["execution_status"] == "idle"
        assert (log(client, copy), client.get(f"{copy}/events/count").get_json()) == ([], 0)
        assert set(keys_of(store, response.get_json()["id"]).values()) == {-1}


def test_a_copy_and_its_source_go_their_own_ways(client, url, conversation, tell):
    # Given a copy of the first of two events
    first, second = said("first"), said("second")
    tell(first, second)
    copy = fork(client, url, from_event_id=first["id"])["id"]

    # When the copy hears of the second and a third, and the first again
    third = said("third")
    answer = client.post(f"/api/v1/webhooks/events/{copy}", json=[first, second, third])

    # Then it has each once; the source does not know the third; and it outlives the source
    assert answer.get_json() == {"success": True, "appended": 2, "seq": 3}
    assert log(client, url) == [first, second]
    client.delete(url)
    assert log(client, f"{API}/{copy}") == [first, second, third]
    assert client.get(f"{API}/{copy}/events/count?body=third").get_json() == 1


def test_a_copy_of_what_waits_is_idle_with_nothing_pending_and_the_source_waits_still(client, url, tell):
    # Given an action that waits
    client.post(f"{url}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}})
    waiting = action()
    tell(waiting)

    # When it is copied
    copy = fork(client, url)

    # Then nothing waits in the copy, which is as free as any idle conversation
    copied = f"{API}/{copy['id']}"
    assert copy["execution_status"] == "idle"
    assert client.get(f"{copied}/pending_actions").get_json() == []
    for accept in (True, False):
        answer = client.post(f"{copied}/events/respond_to_confirmation", json={"accept": accept})
        assert answer.get_json() == {"success": False}
    assert client.post(f"{copied}/run").status_code == 200

    # And the policy is the same there
    client.post(f"/api/v1/webhooks/events/{copy['id']}", json=[observation(waiting), action()])
    assert client.get(copied).get_json()["execution_status"] == "waiting_for_confirmation"

    # And the source is answered as if nothing had been
    assert [one["id"] for one in client.get(f"{url}/pending_actions").get_json()] == [waiting["id"]]
    answer = client.post(f"{url}/events/respond_to_confirmation", json={"accept": True})
    assert answer.get_json() == {"success": True}


@pytest.mark.parametrize("before", ["running", "paused", "finished", "error", "stuck"])
def test_a_copy_is_idle_whatever_its_source_is(client, url, tell, before):
    tell(event("ConversationStateUpdateEvent", "environment", key="execution_status", value=before))

    assert fork(client, url)["execution_status"] == "idle"

    assert client.get(url).get_json()["execution_status"] == before


def test_a_copy_has_what_its_source_was_begun_with(client, conversation):
    given = {
        "agent": {"kind": "Agent", "llm": {"model": "m"}},
        "workspace": {"kind": "LocalWorkspace", "working_dir": "/w"},
        "confirmation_policy": {"kind": "ConfirmRisky", "threshold": "LOW", "confirm_unknown": False},
        "security_analyzer": {"kind": "X"},
        "max_iterations": 7,
        "client_tools": [{"name": "t"}],
        "title": "Title",
        "tags": {"team": "blue"},
    }
    client.post(API, json={"conversation_id": conversation, **given, "initial_message": {}})

    copy = fork(client, f"{API}/{conversation}")

    assert {name: copy[name] for name in given} == given


def test_a_copy_may_have_its_own_title_and_tags_and_keep_the_metrics(client, url, tell):
    stats = {"usage_to_metrics": {"agent": {"accumulated_cost": 0.5}}}
    tell(event("ConversationStateUpdateEvent", "environment", key="stats", value=stats))

    plain, reset, kept = (
        fork(client, url),
        fork(client, url, reset_metrics=True),
        fork(client, url, reset_metrics=False),
    )
    assert (plain["stats"], reset["stats"], kept["stats"]) == ({}, {}, stats)
    assert (plain["title"], plain["tags"]) == ("Old", {"old": "1"})

    own = fork(client, url, title="Own", tags={"own": "2"})
    assert (own["title"], own["tags"]) == ("Own", {"own": "2"})
    assert fork(client, url, tags={})["tags"] == {}
    assert fork(client, url, title=None, tags=None, id=None, from_event_id=None)["title"] == "Old"
    now = client.get(url).get_json()
    assert (now["title"], now["tags"], now["stats"]) == ("Old", {"old": "1"}, stats)


def test_a_copy_has_the_id_that_is_given(client, url, tell):
    tell(said("text"))
    given = str(uuid4())

    assert fork(client, url, id=given.replace("-", "").upper())["id"] == given

    assert_same_log(client, url, f"{API}/{given}")


def test_a_copy_may_take_the_id_of_what_was_deleted(client, url, tell, store):
    tell(said("new"))
    gone = client.post(API, json={"initial_message": {"content": [{"type": "text", "text": "old"}]}}).get_json()["id"]
    assert client.get(f"{API}/{gone}/events/count?body=old").get_json() == 1
    client.delete(f"{API}/{gone}")

    fork(client, url, id=gone)

    assert client.get(f"{API}/{gone}/events/count?body=old").get_json() == 0
    assert_same_log(client, url, f"{API}/{gone}")


def test_an_id_in_use_is_refused_and_the_one_who_has_it_keeps_all(client, store, url, conversation, tell):
    tell(said("text"))
    other = client.post(API, json={"title": "Other"}).get_json()

    for taken in (other["id"], conversation):
        told = client.get(f"{API}/{taken}").get_json()
        answer = fork(client, url, 409, id=taken)
        assert answer == {"detail": "A conversation of that id exists"}
        assert client.get(f"{API}/{taken}").get_json() == told

        # What was made aside ends by itself
        aside = [ttl for key, ttl in keys_of(store, taken).items() if ":fork:" in key]
        assert all(0 < ttl <= 3600 for ttl in aside)


def test_what_is_unknown_is_not_copied(client, url, tell):
    tell(said("text"))
    other = client.post(API, json={"initial_message": {}}).get_json()

    for event_id in (str(uuid4()), "", "x", other["last_user_message_id"]):
        assert fork(client, url, 404, from_event_id=event_id) == {"detail": "Event not found"}
    for request in ({}, {"from_event_id": "x"}, {"id": other["id"]}):
        assert fork(client, f"{API}/{uuid4()}", 404, **request) == {"detail": "Conversation not found"}


def test_an_event_id_that_cannot_be_written_as_utf_8_is_no_fault_of_the_server(client, url):
    response = client.post(f"{url}/fork", json={"from_event_id": "\ud800"})

    assert response.status_code in (404, 422)


@pytest.mark.parametrize(
    ("request_", "loc"),
    [
        ({"id": "x"}, ["id"]),
        ({"id": 5}, ["id"]),
        ({"title": ""}, ["title"]),
        ({"title": "x" * 201}, ["title"]),
        ({"tags": {"A": "x"}}, ["tags"]),
        ({"reset_metrics": "yes"}, ["reset_metrics"]),
        ({"reset_metrics": None}, ["reset_metrics"]),
        ({"from_event_id": 5}, ["from_event_id"]),
        ([], []),
    ],
)
def test_a_bad_member_of_a_copy_is_named(client, url, request_, loc):
    assert refused(client.post(f"{url}/fork", json=request_), *loc)


def test_secrets_are_not_copied(keeper, store, conversation):
    keeper.post(API, json={"conversation_id": conversation, "secrets": {"a": "1"}, "initial_message": {}})

    copy = fork(keeper, f"{API}/{conversation}")

    assert copy["secret_registry"] == {"secret_sources": {}}
    assert sealed(store, copy["id"]) == {}
    assert opened(store, conversation) == {"a": "1"}


def test_of_eight_copies_into_one_id_one_is_made(app, client, store, url, tell):
    # Given two sources and one id that copies of both race for
    tell(said("text"))
    other = client.post(API, json={"initial_message": {}}).get_json()["id"]
    sources, target, barrier = [url, f"{API}/{other}"], str(uuid4()), threading.Barrier(8)

    def copy(number):
        client = app.test_client()
        barrier.wait(30)
        return client.post(f"{sources[number % 2]}/fork", json={"id": target, "title": f"Copy {number}"}).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(copy, range(8)))

    # Then one is made, whole and unmixed
    assert sorted(statuses) == [201] + [409] * 7
    winner = statuses.index(201)
    assert client.get(f"{API}/{target}").get_json()["title"] == f"Copy {winner}"
    assert_same_log(client, sources[winner % 2], f"{API}/{target}")
    keys = keys_of(store, target)
    assert {ttl for key, ttl in keys.items() if ":fork:" not in key} == {-1}
    assert all(0 < ttl <= 3600 for key, ttl in keys.items() if ":fork:" in key)


class Meanwhile:
    """Scripts, with something that happens before the log is read for the nth time; many reads are a fault."""

    def __init__(self, scripts, number, happen):
        self._scripts, self._number, self._happen, self._reads = scripts, number, happen, 0

    def __getattr__(self, name):
        return getattr(self._scripts, name)

    def read_log(self, keys, args):
        self._reads += 1
        assert self._reads < 10, "the log is read again and again"
        if self._reads == self._number:
            self._happen()
        return self._scripts.read_log(keys, args)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("successor", [None, 1, 200])
def test_a_source_that_is_deleted_while_it_is_copied_is_not_found(
    client, store, url, conversation, tell, monkeypatch, number, successor
):
    # Given a source that is deleted between two reads, and perhaps begins anew with another log
    tell(*(said("old") for _ in range(150)))
    target = str(uuid4())

    def delete():
        client.delete(url)
        if successor:
            tell(*(said("new") for _ in range(successor)))

    monkeypatch.setattr(store.forks, "_scripts", Meanwhile(store.forks._scripts, number, delete))

    # Then there is no copy, neither half nor mixed, and what was made of it ends by itself
    with pytest.raises(ConversationNotFound):
        store.forks.fork(conversation, id=target)
    assert client.get(f"{API}/{target}").status_code == 404
    assert all(0 < ttl <= 3600 for ttl in keys_of(store, target).values())


def test_what_is_appended_while_it_is_copied_is_not_in_the_copy(client, store, url, conversation, tell, monkeypatch):
    before = [said("old") for _ in range(150)]
    tell(*before)
    monkeypatch.setattr(store.forks, "_scripts", Meanwhile(store.forks._scripts, 2, lambda: tell(said("new"))))

    copy = store.forks.fork(conversation)

    assert log(client, f"{API}/{copy}") == before
