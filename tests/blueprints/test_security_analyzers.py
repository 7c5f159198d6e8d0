"""The security analyzer of a conversation: set, removed, kept without secrets."""

import pytest

from tests.blueprints import API, NOT_FOUND, log, refused, stored, updates


def test_a_security_analyzer_is_set_and_removed_by_one_event_each(client, url):
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
    assert b"hush" not in stored(store, conversation)
