"""What every place of objects does, as `store/conversations/cold.py` says it."""

import os
from uuid import uuid4

import pytest

from store import objects
from store.conversations.cold import ObjectMissing, ObjectsAway
from store.objects import s3


@pytest.fixture
def name():
    return f"{uuid4()}-{uuid4().hex}"


def test_an_object_is_read_as_it_was_put(place, name):
    content = os.urandom(300_000)

    place.put(name, content)

    assert place.get(name) == content
    assert list(place.names()) == [name]


def test_a_repeated_put_replaces_the_object(place, name):
    place.put(name, b"first")
    place.put(name, b"")

    assert place.get(name) == b""
    assert list(place.names()) == [name]


def test_an_object_that_was_deleted_is_missing_and_may_be_deleted_again(place, name):
    place.put(name, b"content")

    place.delete(name)
    place.delete(name)

    with pytest.raises(ObjectMissing):
        place.get(name)
    assert list(place.names()) == []


def test_the_names_of_an_empty_place_are_none(place):
    assert list(place.names()) == []


def test_no_name_leads_out_of_the_place(place):
    for wrong in ["", ".", "..", "../x", "a/b", "/etc/passwd", "a.b", ".a.part", "-a", "a\0", "ä", "a" * 201]:
        for call, *content in ((place.put, b"x"), (place.get,), (place.delete,)):
            with pytest.raises(ValueError, match="letters, digits and hyphens"):
                call(wrong, *content)


def test_an_object_that_is_too_long_is_refused_unread(place, name, monkeypatch):
    place.put(name, bytes(2000))
    for module in (objects, s3):
        monkeypatch.setattr(module, "MOST_BYTES", 1999)

    with pytest.raises(ObjectsAway, match="has more than 1999 bytes"):
        place.get(name)
