"""Instants and JSON, as the wire has them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire import InvalidJson, bare_kind, event_time, json_elements, micros, parse_json, utc_time

NOON = 1_763_640_000_000_000  # 2025-11-20T12:00:00Z


@pytest.mark.parametrize(
    ("text", "at"),
    [
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
        ("1970-01-01", 0),
        ("1969-12-31T23:59:59.999999", -1),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000_000),
        ("9999-12-31T23:59:59.999999-23:59", 253_402_387_139_999_999),
    ],
)
def test_instants_are_read_exactly(text, at):
    assert micros(text) == at


@pytest.mark.parametrize(
    "text",
    [
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
        "2025-11-20Z",
        "2025-11-20T12:00:00.",
        "٢٠٢٥-11-20",
        "2025-11-20\n",
        "2025-11-20T12:00:00ZZ",
    ],
)
def test_what_is_no_instant_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        micros(text)


@given(st.datetimes().map(lambda when: when.isoformat()))
def test_every_instant_that_we_write_is_read_as_itself(text):
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


@pytest.mark.parametrize(
    "raw",
    [
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
    ],
)
def test_what_is_no_json_is_refused(raw):
    with pytest.raises(InvalidJson):
        parse_json(raw)
    with pytest.raises(InvalidJson):
        json_elements(raw, 10)


def test_sixty_four_levels_are_read():
    raw = b"[" * 64 + b"]" * 64

    assert parse_json(raw) is not None
    assert len(json_elements(raw, 10)) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(json_values, max_size=8), st.sampled_from([None, 1, "\t"]))
def test_the_elements_of_an_array_have_the_bytes_that_they_came_with(values, indent):

    raw = json.dumps(values, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    try:
        raw.decode()
    except UnicodeDecodeError:
        return

    elements = json_elements(raw, 10)

    assert [value for value, _ in elements] == values
    assert [json.loads(own) for _, own in elements] == values
    assert all(own in raw for _, own in elements)


def test_reading_stops_behind_the_most_elements_wanted():
    assert len(json_elements(b"[" + b"1," * 1000 + b"1]", 5)) == 6
    assert json_elements(b'{"a": 1}', 5) is None
