"""Cursors of listings: `page_id` is written and read back with any title."""

import pytest

from schemas.app_conversations import AppConversationSearch
from schemas.cursors import page_id

ID = "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0001"


@pytest.mark.parametrize("at", [0, 1_795_269_919_258_359])
def test_a_cursor_of_a_time_is_read_back_from_its_page_id(at):
    written = page_id("created", True, (at, ID))

    assert AppConversationSearch().load({"page_id": written})["start"] == (at, ID)


@pytest.mark.parametrize("title", ["", "title", "ß😀\n\x00-", "lone \ud800", "x" * 600])
def test_a_cursor_of_a_title_is_read_back_from_its_page_id(title):
    written = page_id("title", False, (title, ID))

    assert written.isascii()
    assert AppConversationSearch().load({"page_id": written, "sort_order": "TITLE"})["start"] == (title, ID)


def test_the_last_page_has_no_page_id():
    assert page_id("created", True, None) is None
