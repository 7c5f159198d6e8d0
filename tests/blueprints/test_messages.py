"""The search for messages in all conversations, over HTTP."""

from uuid import uuid4

import pytest

from tests.conftest import message

PATH = "/api/v1/messages/search"


@pytest.fixture
def word():
    """A text that only this test's messages have."""
    return uuid4().hex


def search(client, **query) -> dict:
    response = client.get(PATH, query_string=query)
    assert response.status_code == 200, response.get_data()
    return response.get_json()


def test_a_found_message_has_its_conversation_and_is_the_event_as_it_was_appended(client, url, post_events, word):
    said = message(f"Please deploy {word}", unknown_member={"kept": [1, None]})
    post_events(said)

    page = search(client, text=word.upper())

    assert page["items"] == [{"conversation_id": url.rpartition("/")[2], "title": "Old", "event": said}]


def test_the_pages_of_a_search_follow_each_other_to_a_null_cursor(client, url, post_events, word):
    said = [message(f"{word} {number}") for number in range(5)]
    post_events(*said)

    found, query = [], {"text": word, "limit": 2}
    while True:
        page = search(client, **query)
        assert set(page) == {"items", "next_page_id"}
        found += [one["event"] for one in page["items"]]
        if page["next_page_id"] is None:
            break
        query["page_id"] = page["next_page_id"]

    assert found == said


def test_a_search_filters_by_source_and_time(client, url, post_events, word):
    post_events(message(word), message(word, "agent"))

    def sources(**query):
        return [one["event"]["source"] for one in search(client, text=word, **query)["items"]]

    assert sources() == ["user", "agent"]
    assert sources(source="agent") == ["agent"]
    assert sources(timestamp__lt="2026-11-20") == []
    assert sources(timestamp__gte="2026-11-20") == ["user", "agent"]


BAD = [
    ("text", None, "Field required"),
    ("text", "", "at least 1 character"),
    ("text", "x" * 501, "at most 500 characters"),
    ("limit", "0", "from 1 to 100"),
    ("limit", "101", "from 1 to 100"),
    ("timestamp__gte", "soon", "date-time"),
    ("page_id", "nonsense", "next_page_id of this search"),
    ("page_id", f"created.desc.1-{'0' * 32}", "next_page_id of this search"),
    ("page_id", f"messages.1-{'0' * 32}-0-{'٣'}", "next_page_id of this search"),
]


def test_bad_input_is_422_and_named(client):
    for name, value, words in BAD:
        query = {"text": "some", name: value}

        response = client.get(PATH, query_string={key: one for key, one in query.items() if one is not None})

        [fault] = response.get_json()["detail"]
        assert (response.status_code, fault["loc"]) == (422, ["query", name]), value
        assert words in fault["msg"]


def test_a_text_of_500_characters_may_be_searched_for(client):
    assert search(client, text="ß" * 500)["items"] == []
