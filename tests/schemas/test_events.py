"""What a client may ask of events and may send: which values are refused, where, and with which type."""

import json
from inspect import signature
from itertools import product
from uuid import uuid4

from websockets.sync.client import connect

from core.wire import MOST_EVENT_BYTES, InvalidJson
from schemas.events import (
    EventFilterQuery,
    EventSearch,
    Follow,
    HistogramQuery,
    InboundMessage,
    SendMessageRequest,
    read_batch,
    read_ids,
)
from tests.conftest import event
from tests.refusals import taken
from tests.schemas import faults_of

NO_TIMES = ["", "garbage", "1700000000", "-1", "-0001-01-01", "2026-02-30", "24:00", "2026-11-20T24:00:00"]


def refusals(load, value, place="query") -> list[tuple]:
    """Where a value is refused, and with which types."""
    return [(fault["loc"], fault["type"]) for fault in faults_of(load, value, place)]


# queries


def test_a_text_other_than_a_date_time_is_refused():
    for schema, name, value in product(
        (EventFilterQuery, EventSearch, HistogramQuery),
        ("timestamp__gte", "timestamp__lt"),
        [*NO_TIMES, "２０２６-11-20"],
    ):
        [fault] = faults_of(schema().load, {name: value})
        assert (fault["loc"], fault["type"]) == (["query", name], "datetime_parsing"), value
        assert "date-time" in fault["msg"]


def test_a_limit_is_from_one_to_a_hundred():
    for limit in ("0", "-1", "101", "abc", "", "1.5", "９", "9" * 30):
        [fault] = faults_of(EventSearch().load, {"limit": limit})
        assert (fault["loc"], "from 1 to 100" in fault["msg"]) == (["query", "limit"], True), limit
    assert [EventSearch().load(query)["limit"] for query in ({}, {"limit": "1"}, {"limit": "100"})] == [100, 1, 100]


def test_a_search_has_two_sort_orders():
    for order in ("", "timestamp", "DESC", "CREATED_AT"):
        [fault] = faults_of(EventSearch().load, {"sort_order": order})
        assert (fault["loc"], fault["type"]) == (["query", "sort_order"], "enum")
        assert "TIMESTAMP, TIMESTAMP_DESC" in fault["msg"]


NO_POLLS = [
    ({"after_seq": "-1"}, "after_seq"),
    ({"after_seq": "x"}, "after_seq"),
    ({"after_seq": "0", "wait": "31"}, "wait"),
    ({"after_seq": "0", "wait": "-1"}, "wait"),
    ({"after_seq": "0", "wait": "soon"}, "wait"),
    ({"wait": "1"}, "wait"),
    ({"after_seq": "0", "page_id": "x"}, "after_seq"),
    ({"after_seq": "0", "sort_order": "TIMESTAMP_DESC"}, "after_seq"),
]


def test_an_invalid_poll_is_refused():
    for query, member in NO_POLLS:
        assert [fault["loc"] for fault in faults_of(EventSearch().load, query)] == [["query", member]], query


def test_a_histogram_is_by_kind_or_source_in_1_to_200_buckets():
    for query, words in (
        ({"by": "body"}, "one of kind, source"),
        ({"buckets": "0"}, "from 1 to 200"),
        ({"buckets": "201"}, "from 1 to 200"),
        ({"buckets": "many"}, "from 1 to 200"),
    ):
        [fault] = faults_of(HistogramQuery().load, query)
        assert (fault["loc"], words in fault["msg"]) == (["query", *query], True)
    assert [HistogramQuery().load({"buckets": str(number)})["buckets"] for number in (1, 200)] == [1, 200]


NOW = {"after": None, "since": None, "with_seq": False}
SINCE_3 = 3_000_000


BEGINNINGS = [
    ({}, NOW),
    ({"resend_mode": "all"}, NOW | {"after": 0}),
    ({"resend_all": "true"}, NOW | {"after": 0}),
    ({"resend_all": "1"}, NOW | {"after": 0}),
    ({"resend_all": "false"}, NOW),
    ({"resend_mode": "since"}, NOW),
    ({"after_timestamp": "1970-01-01T00:00:03"}, NOW),
    ({"resend_mode": "since", "after_timestamp": "1970-01-01T00:00:03"}, NOW | {"since": SINCE_3}),
    ({"resend_mode": "since", "resend_all": "true"}, NOW),
    ({"after_seq": "0"}, {"after": 0, "since": None, "with_seq": True}),
    ({"after_seq": "7", "resend_mode": "all"}, {"after": 7, "since": None, "with_seq": True}),
]


def test_a_socket_begins_now_or_where_its_query_says():
    assert [(query, Follow().load(query)) for query, _ in BEGINNINGS] == BEGINNINGS


NO_BEGINNINGS = [
    ({"resend_mode": "some"}, "resend_mode"),
    ({"resend_mode": "since", "after_timestamp": "soon"}, "after_timestamp"),
    ({"after_seq": "-1"}, "after_seq"),
    ({"after_seq": "x"}, "after_seq"),
]


def test_an_invalid_place_of_a_socket_is_refused():
    for query, member in NO_BEGINNINGS:
        assert [fault["loc"] for fault in faults_of(Follow().load, query)] == [["query", member]], query


# what is sent


NO_MESSAGES = [
    ({"content": "hi"}, ["content"]),
    ({"content": ["hi"]}, ["content", 0]),
    ({"content": [{"type": "video"}]}, ["content", 0, "type"]),
    ({"content": [{"type": "text"}]}, ["content", 0, "text"]),
    ({"content": [{"type": "text", "text": 5}]}, ["content", 0, "text"]),
    ({"content": [{"type": "text", "text": "a", "odd": 1}]}, ["content", 0, "odd"]),
    ({"content": [{"type": "image", "image_urls": "u"}]}, ["content", 0, "image_urls"]),
    ({"content": [{"type": "text", "text": "x" * (1024 * 1024)}]}, ["content"]),
    ({"content": [{"type": "image", "image_urls": ["u"], "text": "a"}]}, ["content", 0, "text"]),
    ({"content": [{"type": "text", "text": "a", "cache_prompt": 1}]}, ["content", 0, "cache_prompt"]),
    ({"content": None}, ["content"]),
    ({"run": None}, ["run"]),
    *(({"role": role}, ["role"]) for role in ("assistant", "system", "tool", "", None, 5)),
    ({"run": "yes"}, ["run"]),
    ([], []),
]


def test_a_malformed_message_is_refused():
    for body, loc in NO_MESSAGES:
        faults = faults_of(SendMessageRequest().load, body, "body")
        assert [fault["loc"] for fault in faults[:1]] == [["body", *loc]], str(body)[:80]


def test_a_message_over_a_socket_may_be_text_and_always_runs():
    part = {"type": "text", "text": "hello", "cache_prompt": False}

    for content in ("hello", [{"type": "text", "text": "hello"}], [part]):
        assert InboundMessage().load({"content": content, "run": False, "unknown": 1}) == {
            "role": "user",
            "content": [part],
            "run": True,
            "rejects": True,
        }
    for refused in ([], 5, {"role": "system", "content": "x"}, {"content": [{"type": "sound"}]}, {"content": 5}):
        assert faults_of(InboundMessage().load, refused) != []


def test_a_batch_get_takes_up_to_a_hundred_ids():
    for ids in ({}, "a", 1, None, [1], [None], ["\ud800"], ["x"] * 101):
        assert faults_of(read_ids, ids) != [], ids
    assert read_ids(["x"] * 100) == ["x"] * 100


def batch(*events) -> bytes:
    return json.dumps(events).encode()


def test_a_batch_is_an_array_of_events():
    for raw in (b"[]", b"{}", b'"text"', b"1", b"null", b'{"events": []}'):
        assert [loc for loc, _ in refusals(read_batch, raw, "body")] == [["body"]], raw


def test_a_batch_has_at_most_500_events():
    assert len(read_batch(batch(*(event() for _ in range(500))))) == 500

    assert refusals(read_batch, batch(*(event() for _ in range(501))), "body") == [(["body"], "too_long")]


def test_a_missing_member_of_an_event_is_named():
    for member in ("id", "kind", "source", "timestamp"):
        lacking = {name: value for name, value in event().items() if name != member}
        assert faults_of(read_batch, batch(event(), lacking, event()), "body") == [
            {"loc": ["body", 1, member], "msg": "Field required", "type": "missing"}
        ]


NO_MEMBERS = [
    (("id", "kind", "source", "timestamp"), (None, 1, {}, []), "string_type"),
    (("id", "kind", "source"), ("",), "string_too_short"),
    (("id", "kind", "source"), ("x" * 129, "x" * 10_240), "string_too_long"),
    (("id", "kind", "source"), ("lone \ud800",), "string_unicode"),
    (("timestamp",), (*NO_TIMES, "yesterday", "2026-13-01", "2026-11-20T25:00", "10:00"), "datetime_parsing"),
    (("kind",), ("module.",), "value_error"),
]


def test_an_invalid_member_of_an_event_is_named():
    rows = [(member, value, type) for members, values, type in NO_MEMBERS for member in members for value in values]
    for member, value, type in rows:
        raw = batch({**event(), member: value})
        assert refusals(read_batch, raw, "body") == [(["body", 0, member], type)], value


def test_every_fault_of_a_batch_is_named():
    faults = refusals(read_batch, batch(1, event(), {**event(), "id": ""}, {}), "body")

    assert [loc for loc, _ in faults] == [
        ["body", 0],
        ["body", 2, "id"],
        *(["body", 3, member] for member in ("id", "kind", "source", "timestamp")),
    ]


def test_the_names_of_an_event_have_up_to_128_characters():
    longest = {name: uuid4().hex.ljust(128, "😀") for name in ("id", "kind", "source")}

    [one] = read_batch(batch(event(**longest)))

    assert (one.id, one.kind, one.source) == tuple(longest.values())


def test_the_largest_event_fits_with_its_seq_into_a_frame_of_a_mebibyte():
    frame = len(json.dumps(event(text="")))
    assert read_batch(batch(event(text="x" * (MOST_EVENT_BYTES - frame))))

    too_long = batch(event(), event(text="x" * (MOST_EVENT_BYTES - frame + 1)))
    assert refusals(read_batch, too_long, "body") == [(["body", 1], "too_long")]
    [largest] = read_batch(batch(event(text="x" * (MOST_EVENT_BYTES - frame))))
    assert (
        len(b'{"seq":9007199254740991,"event":%b}' % largest.raw) <= signature(connect).parameters["max_size"].default
    )


NO_JSON = [
    b"",
    b"[",
    b'[{"a": NaN}]',
    b"[-Infinity]",
    b'["\xff"]',
    b'["\xed\xa0\x80"]',
    b"[] []",
    b"[1" + b"0" * 5000 + b"]",
]


def test_a_body_other_than_json_is_refused():
    assert taken(NO_JSON, read_batch, InvalidJson) == []


def test_json_has_at_most_64_levels():
    def nested(levels: int) -> bytes:
        deep = b"[" * levels + b"]" * levels
        return b'[{"id":"a","kind":"X","source":"s","timestamp":"2026-11-20","deep":%b}]' % deep

    assert read_batch(nested(62))
    assert taken([63, 1000, 100_000], lambda levels: read_batch(nested(levels)), InvalidJson, "64 levels") == []
