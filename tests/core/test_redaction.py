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


@pytest.mark.parametrize("begin", ["://", "://:", "://a:b", "://:@"])
@pytest.mark.parametrize("unit", [":", "://", "://:", "x"])
def test_a_long_text_is_searched_in_time_in_proportion_to_its_length(begin, unit):
    """A search that tried every colon as the one before the password would take hours."""
    assert set(credentials_in({"text": begin + unit * (1 << 18)})) <= {""}
