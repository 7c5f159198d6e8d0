"""A record is what its annotations say: written, read, with defaults for what older data lack."""

import json
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.wire import Micros
from store.errors import UNREADABLE
from store.record import BESIDE, HashRecord, pairs
from store.record import JSON as JSON_KIND


@dataclass(frozen=True, slots=True, kw_only=True)
class Box(HashRecord):
    key = "boxes:ID"
    id: str
    made_at: Micros
    start: int = 0
    is_warm: Annotated[bool, "warm"] = False
    handle: dict[str, Any] | None = None
    crashes: list[Micros] = field(default_factory=list)
    load: float | None = None
    words: tuple[str, ...] = ()
    title: Annotated[str | None, JSON_KIND] = None
    notes: Annotated[dict[str, Any], "note.*"] = field(default_factory=dict)
    seen_at: Micros = field(default=Micros(0), metadata=BESIDE)


def hash_of(**members: Any) -> dict[bytes, bytes]:
    """A hash as Redis returns it."""
    return {name.encode(): value.encode() for name, value in Box.fields_of(**members).items()}


SCALARS = st.none() | st.booleans() | st.integers() | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))

members = st.fixed_dictionaries(
    {"id": st.text(st.characters(exclude_categories=["Cs"])), "made_at": st.integers()},
    optional={
        "start": st.integers(),
        "is_warm": st.booleans(),
        "handle": st.none() | st.dictionaries(st.text(), JSON),
        "crashes": st.lists(st.integers()),
        "load": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "words": st.lists(st.text("ab", min_size=1), min_size=1).map(tuple),
        "title": st.none() | st.text(),
        "notes": st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), JSON),
    },
)


@given(members)
def test_what_is_written_reads_back_equal(values):
    assert Box.read(hash_of(**values)) == Box(**values)


@given(members)
def test_an_empty_number_flag_or_json_has_its_default(values):
    empty = dict.fromkeys((b"start", b"warm", b"handle", b"crashes", b"load"), b"")
    required = {name: values[name] for name in ("id", "made_at")}
    assert Box.read(hash_of(**required) | empty) == Box(**required)


def test_a_value_is_stored_as_its_annotation_says():
    assert Box.fields_of(id="b", start=3, is_warm=True, handle={"pid": 1}, load=None) == {
        "id": "b",
        "start": "3",
        "warm": "1",
        "handle": '{"pid": 1}',
        "load": "null",
    }
    assert Box.fields_of(is_warm=False) == {"warm": ""}


def test_texts_are_joined_by_commas_and_no_text_is_none():
    assert Box.fields_of(words=("a", "b")) == {"words": "a,b"}
    assert Box.read(hash_of(id="b", made_at=1, words=())).words == ()


def test_a_marked_text_is_stored_as_json():
    assert Box.fields_of(title="12") == {"title": '"12"'}


def test_a_mapping_has_a_field_for_each_entry():
    assert Box.fields_of(notes={"a": 1, "b": "x"}) == {"note.a": "1", "note.b": '"x"'}
    assert Box.read(hash_of(id="b", made_at=1, notes={"a": 1}) | {b"notes": b"?"}).notes == {"a": 1}


def test_a_field_that_no_annotation_names_is_ignored():
    assert Box.read(hash_of(id="b", made_at=1) | {b"of_another_version": b"?"}) == Box(id="b", made_at=Micros(1))


def test_a_member_that_no_annotation_names_is_not_written():
    with pytest.raises(KeyError, match="colour"):
        Box.fields_of(colour="red")


DAMAGED = (
    {"made_at": "1"},
    {"id": "b"},
    {"id": "b", "made_at": ""},
    {"id": "b", "made_at": "soon"},
    {"id": "b", "made_at": "1", "handle": "{"},
)


@pytest.mark.parametrize("stored", DAMAGED, ids=json.dumps)
def test_a_hash_without_a_required_field_or_with_a_damaged_one_is_unreadable(stored):
    with pytest.raises(UNREADABLE):
        Box.read({name.encode(): value.encode() for name, value in stored.items()})


def test_a_member_beside_the_hash_is_given_and_never_read():
    assert Box.read(hash_of(id="b", made_at=1) | {b"seen_at": b"5"}, seen_at=Micros(7)).seen_at == 7
    with pytest.raises(KeyError):
        Box.fields_of(seen_at=7)


def test_a_member_that_is_given_stands_for_its_field():
    assert Box.read(hash_of(id="b", made_at=1) | {b"handle": b"damaged"}, handle={"pid": 2}).handle == {"pid": 2}


def test_the_words_of_a_reply_are_names_and_values_in_turn():
    assert pairs([b"id", b"b", b"start", b"1"]) == {b"id": b"b", b"start": b"1"}
    with pytest.raises(ValueError, match="shorter"):
        pairs([b"id"])
