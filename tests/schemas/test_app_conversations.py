"""Cursors of app conversations: `page_id` is written and read back, whatever a title has."""

import pytest

from schemas.app_conversations import AppConversationSearch, page_id

ID = "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0001"


@pytest.mark.parametrize("at", [0, 1_795_269_919_258_359, "", "title", "ß😀\n\x00-", "lone \ud800", "x" * 600])
def test_a_cursor_is_read_back_from_its_page_id(at):
    written = page_id((at, ID))

    assert written.isascii()
    assert AppConversationSearch().load({"page_id": written})["start"] == (at, ID)


def test_the_last_page_has_no_page_id():
    assert page_id(None) is None
