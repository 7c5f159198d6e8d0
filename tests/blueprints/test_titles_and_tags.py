"""PATCH of a conversation: title and tags."""

from uuid import uuid4

import pytest

from schemas.app_conversations import AppConversationStartRequest
from tests.blueprints import API, NOT_FOUND, log, refused, updates


def test_a_title_is_stripped_and_changed_without_an_event(client, url):
    earlier = client.get(url).get_json()

    assert client.patch(url, json={"title": "  A \n title\t"}).get_json() == {"success": True}

    now = client.get(url).get_json()
    assert now == {**earlier, "title": "A \n title", "updated_at": now["updated_at"]}
    assert now["updated_at"] > earlier["updated_at"]
    assert log(client, url) == []


def test_a_title_has_from_1_to_200_characters(client, url):
    for title in ("x", "x" * 200, "😀" * 200, " " * 50 + "x" * 200, "null", "ÄÖ \u202e"):
        assert client.patch(url, json={"title": title}).status_code == 200

        assert client.get(url).get_json()["title"] == title.strip()


def test_a_longer_title_is_refused_from_a_client_and_cut_with_a_mark_from_an_agent_or_a_start(client, store, url):
    conversation, sandbox = str(uuid4()), str(uuid4())
    store.conversations.create(conversation, sandbox_id=sandbox, app={})
    for path in (url, f"/api/v1/app-conversations/{conversation}"):
        refused = client.patch(path, json={"title": "x" * 201})
        assert refused.status_code == 422
        [fault] = refused.json["detail"]
        assert (fault["loc"], "200" in fault["msg"]) == (["body", "title"], True)

    store.conversations.in_sandboxes.report(sandbox, conversation, {"title": "😀" * 201})

    assert store.conversations.get(conversation)["title"] == "😀" * 199 + "…"
    start = {"title": "x" * 200}, {"title": "x" * 201}
    titles = [AppConversationStartRequest().load(one)["title"] for one in start]
    assert titles == ["x" * 200, "x" * 199 + "…"]


def test_a_malformed_title_is_refused_and_nothing_is_changed(client, url):
    earlier = client.get(url).get_json()

    for title in ("", " \n ", "x" * 201, 5, ["x"], True, "lone \ud800"):
        assert refused(client.patch(url, json={"title": title, "tags": {"new": "2"}}), "title")

    assert client.get(url).get_json() == earlier
    assert log(client, url) == []


def test_tags_are_replaced_as_a_whole_by_an_event_of_the_log(client, url):
    earlier = client.get(url).get_json()

    for tags in ({"new": "2", "0": "", "a" * 300: "ä" * 256}, {}):
        assert client.patch(url, json={"tags": tags}).get_json() == {"success": True}
        assert client.get(url).get_json()["tags"] == tags

    now = client.get(url).get_json()
    assert now == {**earlier, "tags": {}, "updated_at": now["updated_at"]}
    assert updates(client, url) == [("tags", {"new": "2", "0": "", "a" * 300: "ä" * 256}), ("tags", {})]
    assert {one["source"] for one in log(client, url)} == {"environment"}


NO_TAGS = [
    ([], ["tags"]),
    ("x", ["tags"]),
    ({"Upper": "x"}, ["tags"]),
    ({"a-b": "x"}, ["tags"]),
    ({"": "x"}, ["tags"]),
    ({"²": "x"}, ["tags"]),
    ({"a": 5}, ["tags", "a", "value"]),
    ({"a": None}, ["tags", "a", "value"]),
    ({"a": "x" * 257}, ["tags", "a", "value"]),
    ({"a": "\udc00"}, ["tags", "a"]),
]


def test_malformed_tags_are_refused_and_nothing_is_changed(client, url):
    earlier = client.get(url).get_json()

    for tags, loc in NO_TAGS:
        assert refused(client.patch(url, json={"title": "New", "tags": tags}), *loc)

    assert client.get(url).get_json() == earlier
    assert log(client, url) == []


def test_a_patch_changes_title_and_tags_together(client, url):
    client.patch(url, json={"title": "New", "tags": {"new": "2"}, "updated_at": "then", "unknown": 1})

    now = client.get(url).get_json()
    assert (now["title"], now["tags"], now["execution_status"]) == ("New", {"new": "2"}, "idle")
    assert updates(client, url) == [("tags", {"new": "2"})]


@pytest.mark.parametrize(
    "body", [{}, {"unknown": 1}, {"title": "Old"}, {"tags": {"old": "1"}}, {"title": None, "tags": None}]
)
def test_a_patch_that_changes_nothing_writes_nothing(client, url, body):
    earlier = client.get(url).get_json()

    assert client.patch(url, json=body).get_json() == {"success": True}

    assert client.get(url).get_json() == earlier
    assert log(client, url) == []


@pytest.mark.parametrize("body", [{}, {"title": "New"}, {"tags": {}}])
def test_an_unknown_conversation_is_not_changed(client, conversation, body):
    response = client.patch(f"{API}/{conversation}", json=body)

    assert (response.status_code, response.get_json()) == NOT_FOUND
    assert client.get(f"{API}/{conversation}").status_code == 404


def test_a_member_that_is_null_stays_as_it_is(client, url):
    client.patch(url, json={"title": None, "tags": {"new": "2"}})
    client.patch(url, json={"title": "New", "tags": None})

    now = client.get(url).get_json()
    assert (now["title"], now["tags"]) == ("New", {"new": "2"})


@pytest.mark.parametrize("body", [[], None, "x", 5])
def test_a_patch_is_an_object(client, url, body):
    assert refused(client.patch(url, json=body))
