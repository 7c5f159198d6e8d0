"""Types of the wire: tables of accepted values and of refused values, with the type of each refusal; and cursors."""

import json
import re
from uuid import UUID

import pytest
from marshmallow import ValidationError

from core.wire import InvalidJson
from schemas.app_conversations import AppConversationSearch, StartTaskSearch
from schemas.conversations import ConversationListSearch, ConversationSearch
from schemas.errors import validation_errors
from schemas.fields import (
    Choice,
    DurationSeconds,
    EventKind,
    Id,
    Instant,
    PageLimit,
    StrictBoolean,
    StrictInteger,
    Text,
    page_id,
    read_said,
    read_told,
)
from schemas.sandboxes import SandboxSearch

ID = "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0001"


VALID = [
    (Id(), ID, ID),
    (Id(), ID.upper(), ID),
    (Id(), ID.replace("-", ""), ID),
    (Id(), ID.replace("-", "").upper(), ID),
    (Instant(), "1970-01-01T00:00:01", 1_000_000),
    (Instant(), "1969-12-31 23:59:59 00:00", -1_000_000),
    (Instant(), "9999-12-31", 253_402_214_400_000_000),
    (EventKind(), "a.b.MessageEvent", "MessageEvent"),
    (EventKind(), "a.", ""),
    (EventKind(), "", ""),
    (EventKind(), "a:b", "a:b"),
    (PageLimit(100), "1", 1),
    (PageLimit(100), "100", 100),
    (PageLimit(100), "007", 7),
    (DurationSeconds(most=30), "0", 0.0),
    (DurationSeconds(most=30), "29.999999999999996", 29.999999999999996),
    (DurationSeconds(most=30), "1.5e-05", 1.5e-05),
    (StrictBoolean(), True, True),
    (StrictBoolean(), False, False),
    (StrictInteger(least=1), 1, 1),
    (StrictInteger(least=1), 10**40, 10**40),
    (StrictInteger(least=1), 5.0, 5),
    (Choice("a", "b"), "b", "b"),
    (Text(most=2), "😀é", "😀é"),
    (Text(), "\x00", "\x00"),
]


def test_a_valid_value_is_accepted():
    assert [row for row in VALID if row[0].deserialize(row[1]) != row[2]] == []


INVALID = [
    *((Id(), value, "uuid_parsing") for value in ("", "x", ID[:-1], f"{{{ID}}}", f"urn:uuid:{ID}", ID[:35] + "g", 5)),
    (Id(), ID.replace("-", "", 2), "uuid_parsing"),
    *(
        (Instant(), value, "datetime_parsing")
        for value in ("", "soon", "1700000000", "-1", "24:00", 5, 1.5, True, [], {})
    ),
    *(
        (PageLimit(100), value, "int_parsing")
        for value in ("", "x", "-", "--1", "1.0", "1e2", "0x1", "+1", " 1", "٣", "1" * 21)
    ),
    *((PageLimit(100), value, "greater_than_equal") for value in ("0", "-0", "-1", "-999")),
    (PageLimit(100), "101", "less_than_equal"),
    *((DurationSeconds(most=30), value, "float_parsing") for value in ("", "-1", "nan", "inf", ".5", "1e", "1" * 10)),
    *((DurationSeconds(most=30), value, "less_than_equal") for value in ("30.001", "4e1", "1e999")),
    *((StrictBoolean(), value, "bool_type") for value in ("true", "yes", 1, 0, 1.0, [], {})),
    *((StrictInteger(least=1), value, "int_type") for value in ("1", 1.5, True)),
    (StrictInteger(least=1), 0, "greater_than_equal"),
    *((Choice("a", "b"), value, "enum") for value in ("c", "", 1, [], {})),
    (Text(), 5, "string_type"),
    (Text(), "\udc00", "string_unicode"),
    (Text(least=1), "", "string_too_short"),
    (Text(most=2), "abc", "string_too_long"),
]


def types_of(field, value) -> list[str]:
    try:
        field.deserialize(value)
    except ValidationError as refusal:
        return [fault.type for fault in refusal.messages]
    return []


def test_an_invalid_value_is_refused():
    assert [row for row in INVALID if types_of(*row[:2]) != [row[2]]] == []


def test_messages_become_a_list_with_the_location_of_each_fault():
    messages = {"a": {0: {"b": ["Unknown field."]}}, "_schema": ["Invalid input type."], "c": ["something of ours"]}

    assert validation_errors("body", messages) == [
        {"loc": ["body", "a", 0, "b"], "msg": "Extra inputs are not permitted", "type": "extra_forbidden"},
        {"loc": ["body"], "msg": "Input should be a valid object", "type": "dict_type"},
        {"loc": ["body", "c"], "msg": "something of ours", "type": "value_error"},
    ]


#: searches, and those that have an order by title
SEARCHES = (ConversationSearch, ConversationListSearch, AppConversationSearch, StartTaskSearch)
BY_TITLE = (ConversationListSearch, AppConversationSearch)

HEX = "0f" * 16
PLAIN = f"1763730000000000-{HEX}"

#: cursors of none of these searches
FOREIGN_CURSORS = [
    *("", "x", "\u0661", HEX, str(UUID(HEX)), f"t61-{HEX}"),
    *(f"created.desc.{at}-{HEX}" for at in ("", "x", "-1", "1.5", "9" * 17, " 1", "\u0663")),
    *(f"created.desc.1-{identity}" for identity in ("", UUID(HEX), f"{HEX}0", HEX[1:], f"{HEX}\n")),
    *(f"{order}-{HEX}" for order in ("created.down.1", "seen.desc.1", "title.desc.1", "title.desc.ff")),
]

#: the refusal of a cursor of another search, as `refusal_of` returns it
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
        taken = [
            one for one in (PLAIN, *FOREIGN_CURSORS) if refusal_of(search, page_id=one, sort_order=order) != FOREIGN
        ]
        assert taken == [], order


def test_the_cursor_of_sandboxes_is_a_time_and_an_id():
    assert SandboxSearch().load({"page_id": PLAIN})["start"] == (1_763_730_000_000_000, HEX)

    assert [one for one in FOREIGN_CURSORS if refusal_of(SandboxSearch, page_id=one) != FOREIGN] == []


@pytest.mark.parametrize(
    ("raw", "words", "told"),
    [
        (b'{"a": 1, "b": 2, "a": 3}', 'the name "a" occurs twice in one object', {"a": 3, "b": 2}),
        (b'{"a": 1, "\\u0061": 1}', 'the name "a" occurs twice', {"a": 1}),
        (b'[{"x": {"": 1, "": 1}}]', 'the name "" occurs twice', [{"x": {"": 1}}]),
        (b'{"a": [1e999]}', "the number 1e999 is larger than a double can hold", {"a": ["1e999"]}),
        (b"-1E400", "the number -1E400 is larger", "-1E400"),
    ],
)
def test_json_that_two_readers_may_read_differently_is_refused_of_a_client_and_read_of_an_agent(raw, words, told):
    with pytest.raises(InvalidJson, match=re.escape(words)):
        read_said(raw)

    assert read_told(raw) == told


def test_the_same_name_in_two_objects_and_numbers_of_a_double_are_read_of_a_client():
    raw = b'[{"a": 1, "b": {"a": 2}}, {"a": 1.7976931348623157e308, "b": 1e-999, "c": 123456789012345678901234567890}]'

    assert read_said(raw) == json.loads(raw)
