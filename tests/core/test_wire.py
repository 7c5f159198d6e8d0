"""Instants, JSON and plain text, as the wire has them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import wire
from core.wire import (
    InvalidJson,
    as_unicode,
    bare_kind,
    event_time,
    json_elements,
    lone_surrogate,
    micros,
    one_line,
    parse_json,
    plain,
    utc_time,
)
from tests.refusals import taken

NOON = 1_763_640_000_000_000  # 2025-11-20T12:00:00Z


INSTANTS = [
    ("2025-11-20T12:00:00Z", NOON),
    ("2025-11-20T12:00:00", NOON),
    ("2025-11-20t12:00:00z", NOON),
    ("2025-11-20 12:00:00", NOON),
    ("2025-11-20T12:00", NOON),
    ("2025-11-20T14:00:00+02:00", NOON),
    ("2025-11-20T14:00:00 02:00", NOON),
    ("2025-11-20T14:00:00+0200", NOON),
    ("2025-11-20T06:30:00-05:30", NOON),
    ("2025-11-20T12:00:00.5", NOON + 500_000),
    ("2025-11-20T12:00:00.000001", NOON + 1),
    ("2025-11-20T12:00:00.000001999", NOON + 1),
    ("2025-11-20T12:00:00.000001Z", NOON + 1),
    ("2025-11-20T12:00Z", NOON),
    ("2025-11-20 14:00 02:00", NOON),
    ("2025-11-20T12:00:00-00:00", NOON),
    ("2025-11-21T11:59:00+23:59", NOON),
    ("2025-11-20T12:00:00.123456789012", NOON + 123_456),
    ("2024-02-29", 1_709_164_800_000_000),
    ("1970-01-01", 0),
    ("0001-01-01", -62_135_596_800_000_000),
    ("1969-12-31T23:59:59.999999", -1),
    ("0001-01-01T00:00:00+23:59", -62_135_683_140_000_000),
    ("9999-12-31T23:59:59.999999-23:59", 253_402_387_139_999_999),
]


def test_instants_are_read_exactly():
    assert {text: micros(text) for text, _ in INSTANTS} == dict(INSTANTS)


NO_INSTANTS = [
    "",
    "now",
    "2025",
    "20251120",
    "2025-11",
    "12:00",
    "2025-11-20T",
    "2025-11-20T12",
    "2025-11-20T12:00:00+",
    "1.5",
    "2025-11-20T12:00:00+24:00",
    "2025-11-20T12:00:00+02:60",
    "2025-13-01",
    "2025-02-29",
    "0000-01-01",
    " 2025-11-20",
    "2025-11-20T12:00:60",
    "2025-11-20T12:00:60.000000",
    "2025-13-20T12:00:00.000000",
    "2025-W47-4T12:00:00.000000",
    "2025-11-20Z",
    "2025-11-20T12:00:00.",
    "٢٠٢٥-11-20",
    "2025-11-20\n",
    "2025-11-20T12:00:00ZZ",
    "2025-11-20T24:00:00",
    "24:00",
    "-2025-11-20",
    "+2025-11-20",
    "10000-01-01",
    "1763640000",
    "-1",
    "2025-W47-4",
    "2025-324",
    "2025/11/20",
    "2025-1-2",
    "2025-11-20  12:00",
    "2025-11-20T12:00:00+2:00",
    "2025-11-20T12:00:00+02",
    "2025-11-20T12:00:00 UTC",
    "2025-11-20T12:00:00,5",
    "2025-11-20T12:00:00.1234567890123",
    "2025-11-20\x00",
]


def test_a_text_other_than_an_instant_is_refused():
    assert taken(NO_INSTANTS, micros, ValueError, ".+") == []


@given(st.datetimes().map(lambda when: when.isoformat()))
def test_every_written_instant_is_read_as_itself(text):
    assert micros(event_time(micros(text))) == micros(utc_time(micros(text))) == micros(text)


def test_an_instant_outside_the_calendar_is_written_as_the_nearest_inside():
    assert event_time(micros("9999-12-31T23:59:59-23:59")) == "9999-12-31T23:59:59.999999"
    assert event_time(micros("0001-01-01T00:00:00+23:59")) == "0001-01-01T00:00:00.000000"


def test_kinds_are_bare_or_qualified():
    assert [bare_kind(kind) for kind in ("MessageEvent", "a.b.MessageEvent", "")] == [
        "MessageEvent",
        "MessageEvent",
        "",
    ]


NO_JSON = [
    b"",
    b" ",
    b"{",
    b"[1,]",
    b"{'a': 1}",
    b"NaN",
    b"[Infinity]",
    b"\xff",
    b"1 2",
    b"[1] x",
    b"[1 2]",
    b"[",
    b"[1",
    b"9" * 5000,
    b"\xef\xbb\xbf[]",
    b'"\n"',
    b"[" * 65 + b"]" * 65,
    b"[" * 100000,
    b'{"a":' * 65 + b"1" + b"}" * 65,
    b"[1, " * 65 + b"{}" + b"]" * 65,
    b"-Infinity",
    b'"\xed\xa0\x80"',
    b"nul",
    b"01",
    b"+1",
    b".5",
    b'{"a" 1}',
    b"{1: 2}",
    b"[1] /* no */",
    b"[],",
]


def test_invalid_json_is_refused():
    assert taken(NO_JSON, parse_json, InvalidJson) == []
    assert taken(NO_JSON, lambda raw: json_elements(raw, 10), InvalidJson) == []


DEEP = [
    b"[" * 64 + b"]" * 64,
    b"[" * 63 + b"{}" + b"]" * 63,
    b'[{"a":' * 32 + b"1" + b"}]" * 32,
    b"[" + b",".join([b"[[]]"] * 100) + b"]",
    b'["' + b"[{" * 100 + b'"]',
]


def test_sixty_four_levels_are_read_however_many_brackets_there_are():
    for raw in DEEP:
        assert parse_json(raw) == json.loads(raw)
        assert [value for value, _ in json_elements(raw, 100)] == json.loads(raw)


VALID = [
    (b"1e999", "1e999"),
    (b"-1E999", "-1E999"),
    (b"1e-999", 0.0),
    (b"123456789012345678901234567890", 123456789012345678901234567890),
    (b'"\\ud800"', "\ud800"),
    (b'"\\u0000"', "\x00"),
    (b'{"a": 1, "a": 2}', {"a": 2}),
    (b" \t\r\n null \n", None),
]


def test_valid_json_is_read():
    assert [(raw, parse_json(raw)) for raw, _ in VALID] == VALID


ELEMENTS = [
    (b"[]", []),
    (b" [ \n ] ", []),
    (b'[1.00 ,1.0, 1e2 ,"\\u00e9"]', [b"1.00", b"1.0", b"1e2", b'"\\u00e9"']),
    ('[\t{ "b":1,"a" :2 } ,\r\n "é😀"]'.encode(), [b'{ "b":1,"a" :2 }', '"é😀"'.encode()]),
]


def test_an_element_has_its_own_bytes_without_the_space_around_it():
    assert [(raw, [piece for _, piece in json_elements(raw, 10)]) for raw, _ in ELEMENTS] == ELEMENTS


def test_a_value_other_than_an_array_has_no_elements():
    assert [json_elements(raw, 10) for raw in (b"{}", b"1", b"null", b'"[]"', b" true ")] == [None] * 5


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(max_examples=50)
@given(st.lists(json_values, max_size=4), st.sampled_from([None, 1, "\t"]))
def test_the_elements_of_an_array_keep_their_bytes(values, indent):

    raw = json.dumps(values, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        raw.decode()
    except UnicodeDecodeError:
        return

    elements = json_elements(raw, 10)

    assert [value for value, _ in elements] == values
    assert [json.loads(own) for _, own in elements] == values
    assert all(own in raw for _, own in elements)


SURROGATES = [
    ("a\ud83d", ()),
    ({"a": [{"b": "x"}, {"c": "\udc00"}]}, ("a", 1, "c")),
    ({"a": {"\ud83d": "x"}}, ("a", "\ufffd")),
    ({"a": ["\0\u2028\u202e😀", None, 1, True]}, None),
]


def test_a_lone_surrogate_is_found_by_its_place_and_replaced():
    for value, place in SURROGATES:
        assert lone_surrogate(value) == place
        assert lone_surrogate(as_unicode(value)) is None
        assert (as_unicode(value) == value) == (place is None)


@pytest.fixture
def few(monkeypatch):
    """A bound of values that takes no time to reach."""
    monkeypatch.setattr(wire, "MOST_VALUES", 2000)
    monkeypatch.setattr(wire, "_FEW_MARKS", 100)
    return 2000


@pytest.mark.parametrize("unit", [b"[]", b"{}", b"1", b'""', b'"[,\\""', b"[1,2]"])
def test_a_text_of_too_many_values_is_refused_before_it_is_read(few, unit):
    """Of eight mebibytes such a text would hold up all others for seconds."""
    raw = b"[" + b",".join([unit] * (few + 1)) + b"]"
    with pytest.raises(InvalidJson, match=f"more than {few} values"):
        parse_json(raw)
    with pytest.raises(InvalidJson, match=f"more than {few} values"):
        json_elements(b"[1," + raw + b"]", 10)
    with pytest.raises(InvalidJson, match=f"more than {few} values"):
        json_elements(b"[1," + raw + b"]", 1)  # one more than the maximum is read


def test_each_element_of_a_batch_may_have_so_many_values(few):
    element = b"[" + b"1," * (few * 2 // 3) + b"1]"
    assert [len(own) for _, own in json_elements(b"[" + b",".join([element] * 3) + b"]", 3)] == [len(element)] * 3


@pytest.mark.parametrize("text", ["[,{", '\\"[,', "a,b}]", "\\\\,"])
def test_commas_and_brackets_within_a_string_are_no_values(few, text):
    raw = b'{"a": [["%s"], 1]}' % (text * few * 2).encode()
    assert parse_json(raw) == json.loads(raw)
    assert [value for value, _ in json_elements(b"[" + raw + b"]", 1)] == [json.loads(raw)]


@pytest.mark.parametrize("levels", [64, 65])
def test_the_levels_of_a_text_of_many_values_are_counted_too(few, levels):
    raw = b"[" + b'"]",' * 500 + b'{"a":' * (levels - 1) + b"1" + b"}" * (levels - 1) + b"]"
    if levels == 64:
        assert parse_json(raw) == json.loads(raw)
        assert len(json_elements(raw, 600)) == 501
    else:
        for read in (parse_json, lambda raw: json_elements(raw, 600)):
            with pytest.raises(InvalidJson, match="64 levels"):
                read(raw)


@pytest.mark.parametrize("end", [b"", b'"', b'"a', b'"\\', b"]]]", b"x", b"[" * 60])
def test_a_long_text_that_is_no_json_is_refused_in_time_in_proportion_to_its_length(few, end):
    for raw in (b"[" + b"[],[1,2]," * 300 + b"x" * (1 << 20) + end, b"[" + b'"[,",' * 1500 + end):
        for read in (parse_json, lambda raw: json_elements(raw, 10_000)):
            with pytest.raises(InvalidJson):
                read(raw)


def test_reading_stops_after_the_maximum_number_of_elements():
    assert len(json_elements(b"[" + b"1," * 1000 + b"1]", 5)) == 6
    assert json_elements(b'{"a": 1}', 5) is None


PRINTED = [
    ("\x1b[1;31mred\x1b[0m\x1b[K", "red"),
    ("\x9b31mred\x9b0m", "red"),
    ("\x1b]0;a title\x07text", "text"),
    ("\x1b]8;;http://a/\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x1b]0;without an end\nnext line", "\nnext line"),
    ("\x1bPsixel\x1b\\a\x1b(Bb\x1bc", "ab"),
    ("\x1b[31", "31"),
    ("a\tb\x00\x07\x7f\x80", "a b"),
    ("one\r\ntwo\rthree\x0bfour\x85five\u2028six\n", "one\ntwo\nthree\nfour\nfive\nsix\n"),
    ("\u202eturned\u2069 \ud800", "turned "),
    ("plain é 😀", "plain é 😀"),
]


def test_plain_text_has_no_escape_sequence_and_no_control_character_but_the_newline():
    assert {printed: plain(printed) for printed, _ in PRINTED} == dict(PRINTED)


@given(st.text(st.characters(max_codepoint=0x2100, categories=None)))
def test_any_text_becomes_plain_and_one_line(text):
    assert not set(plain(text)) & (set(map(chr, range(32))) - {"\n"} | {"\x7f", "\x9b"})
    assert len(one_line(text).splitlines()) <= 1
    assert plain(plain(text)) == plain(text)
