"""Which texts of settings are credentials by themselves, and what their search costs."""

import pytest

from core.redaction import credentials_in


def test_what_a_name_calls_a_credential_and_the_password_of_every_url_are_found():
    settings = {
        "API_KEY": "the key",
        "llm": {"model": "a-model", "base_url": "https://host/path", "api_key": "another key"},
        "mirrors": "redis://me:pass:word@one/0 and http://:alone@two",
        "others": [{"first": "http://three:80/a@b", "second": "http://four:@x"}],
    }

    assert list(credentials_in(settings)) == ["the key", "another key", "pass:word", "alone"]


def test_credentials_among_the_arguments_of_a_program_are_found():
    """As the settings of an MCP server have them."""
    arguments = [
        "serve",
        "--api-key",
        "key one",
        "--token=key two",
        "API_KEY=key three",
        "-H",
        "Authorization: Bearer 4",
    ]
    others = [["https://me:five@host"], "redis://:six@host", "--port", "8000", "--verbose", "--secret", "--quiet"]

    found = list(credentials_in({"mcp_servers": {"one": {"args": arguments + others}}}))

    assert found == ["key one", "key two", "key three", "Bearer 4", "4", "five", "six"]


@pytest.mark.parametrize("begin", ["://", "://:", "://a:b", "://:@"])
@pytest.mark.parametrize("unit", [":", "://", "://:", "x"])
def test_a_long_text_is_searched_in_time_in_proportion_to_its_length(begin, unit):
    """A search that tried every colon as the one before the password would take hours."""
    text = begin + unit * (1 << 18)

    assert set(credentials_in({"text": text, "args": [text]})) <= {""}
