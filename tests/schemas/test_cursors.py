"""Cursors of listings: `page_id` is written and read back with any title."""

from uuid import UUID

import pytest
from marshmallow import ValidationError

from schemas.app_conversations import AppConversationSearch, StartTaskSearch
from schemas.conversations import ConversationListSearch, ConversationSearch
from schemas.fields import page_id
from schemas.sandboxes import SandboxSearch

ID = "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0001"

#: searches, and those that have an order by title
SEARCHES = (ConversationSearch, ConversationListSearch, AppConversationSearch, StartTaskSearch)
BY_TITLE = (ConversationListSearch, AppConversationSearch)

HEX = "0f" * 16
PLAIN = f"1763730000000000-{HEX}"

#: cursors of none of these searches
INVALID = [
    *("", "x", "\u0661", HEX, str(UUID(HEX)), f"t61-{HEX}"),
    *(f"created.desc.{at}-{HEX}" for at in ("", "x", "-1", "1.5", "9" * 17, " 1", "\u0663")),
    *(f"created.desc.1-{identity}" for identity in ("", UUID(HEX), f"{HEX}0", HEX[1:], f"{HEX}\n")),
    *(f"{order}-{HEX}" for order in ("created.down.1", "seen.desc.1", "title.desc.1", "title.desc.ff")),
]


#: the refusal of such a one, as `refusal_of` returns it
FOREIGN = {"page_id": ["value_error"]}


def refusal_of(search, **query) -> dict[str, list[str]]:
    """The types of the faults of each parameter; none where all are taken."""
    try:
        search().load(query)
    except ValidationError as refusal:
        return {name: [fault.type for fault in faults] for name, faults in refusal.messages.items()}
    return {}


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


@pytest.mark.parametrize("search", SEARCHES)
def test_a_cursor_is_of_one_order_and_is_refused_in_every_other(search):
    names = ("created", "updated", "title") if search in BY_TITLE else ("created", "updated")
    orders = [(by, descending) for by in names for descending in (False, True)]

    for own in orders:
        written = page_id(*own, ("title" if own[0] == "title" else 1, ID))
        for by, descending in orders:
            order = f"{by}{'' if by == 'title' else '_at'}{'_desc' * descending}".upper()
            refusal = refusal_of(search, page_id=written, sort_order=order)
            assert refusal == ({} if own == (by, descending) else FOREIGN), (own, order)


@pytest.mark.parametrize("search", SEARCHES)
def test_what_is_no_cursor_is_refused_in_every_order(search):
    for order in ("CREATED_AT_DESC", "UPDATED_AT", *["TITLE_DESC"] * (search in BY_TITLE)):
        taken = [one for one in (PLAIN, *INVALID) if refusal_of(search, page_id=one, sort_order=order) != FOREIGN]
        assert taken == [], order


def test_the_cursor_of_sandboxes_is_a_time_and_an_id():
    assert SandboxSearch().load({"page_id": PLAIN})["start"] == (1_763_730_000_000_000, HEX)

    assert [one for one in INVALID if refusal_of(SandboxSearch, page_id=one) != FOREIGN] == []
