"""File names that are not UTF-8 as text, and back."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.filenames import as_text, from_text


@given(st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode(errors="replace")))
def test_each_name_returns_from_its_text_which_is_valid_unicode(name):
    text = as_text(name)

    text.encode()
    assert os.fsencode(from_text(json.loads(json.dumps(text)))) == name


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_text_without_escapes_is_its_own_name(text):
    if not any("\uef80" <= letter <= "\uefff" for letter in text):
        assert as_text(text) == from_text(text) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"caf\xe9", "caf\uefe9"),
        ("\uefe9".encode(), "\uefee\uefbf\uefa9"),  # a real character of the range
        (b"caf\xc3\xa9", "café"),
    ],
)
def test_only_bytes_that_are_not_utf8_are_escaped(name, text):
    assert as_text(name) == text
