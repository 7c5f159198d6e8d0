"""The object of a cold conversation: what was kept comes back, and nothing else does."""

from hashlib import sha256

import pytest

from store.log.frames import (
    Frozen,
    Unreadable,
    digests_in,
    frozen,
    head,
    head_name,
    piece_name,
    pieces,
    ranges_in,
    thawed,
)
from tests.chance import damaged, often

OF = Frozen("0a-1b", "0a", "an incarnation", "7")
PARTS = [(":log", b"events " * 30), (":at:MessageEvent:user", b"times")]
MAY = {":log", ":ids", ":at:MessageEvent:user", ":at:MessageEvent:agent"}


def changed_bits(content: bytes):
    """The content with each of its bits changed alone."""
    for at in range(len(content)):
        for bit in range(8):
            yield content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def accepted(of: Frozen, content: bytes) -> list[tuple[str, bytes]] | None:
    """The parts of a content; None: it is refused."""
    try:
        return thawed(of, content, {":log"}, MAY)
    except Unreadable:
        return None


@pytest.mark.parametrize("parts", [PARTS, []], ids=["a log", "no event"])
def test_the_parts_that_were_kept_come_back(parts):
    assert thawed(OF, frozen(OF, parts), set(), MAY) == parts


def test_an_object_with_any_bit_changed_is_refused():
    assert [one for one in changed_bits(frozen(OF, PARTS)) if accepted(OF, one) is not None] == []


def test_an_object_whose_parts_do_not_add_up_is_refused_though_its_digest_is_right():
    content = frozen(OF, PARTS)[:-32].replace(b'":log", 210]', b'":log", 211]')

    with pytest.raises(Unreadable, match="other sizes than its content"):
        thawed(OF, content + sha256(content).digest(), set(), MAY)


def test_an_object_whose_head_is_nested_without_end_is_refused():
    with pytest.raises(Unreadable, match="damaged"):
        thawed(OF, b"[" * 200_000 + b"\n", set(), MAY)


@pytest.mark.parametrize("field", Frozen._fields)
def test_the_object_of_another_name_conversation_or_time_is_refused(field):
    with pytest.raises(Unreadable, match="not the one that was kept under its name"):
        thawed(OF._replace(**{field: "other"}), frozen(OF, PARTS), set(), MAY)


def test_an_object_that_was_cut_short_or_went_on_is_refused():
    content = frozen(OF, PARTS)
    assert [end for end in range(len(content)) if accepted(OF, content[:end]) is not None] == []
    assert accepted(OF, content + b"\0") is None


@pytest.mark.parametrize(
    "parts",
    [PARTS[1:], [*PARTS, PARTS[0]], [*PARTS, (":pending", b"another key")]],
    ids=["one is missing", "one comes twice", "one is of no log"],
)
def test_an_object_with_other_parts_than_the_log_is_refused(parts):
    with pytest.raises(Unreadable, match="other parts than the log"):
        thawed(OF, frozen(OF, parts), {":log"}, MAY)


@pytest.mark.parametrize("number", [1, 4])
def test_another_format_is_named(number):
    other = frozen(OF, PARTS).replace(b'"format": 2', f'"format": {number}'.encode())
    with pytest.raises(Unreadable, match=f"it is of format {number}"):
        thawed(OF, other, set(), MAY)


RANGES = [(":log", [b"an event", b"another"]), (":text:0", [b"words " * 30]), (":at:MessageEvent:user", [b"1.5", b"1"])]
[(PIECE, DIGEST)] = pieces(RANGES)
HEAD = head(OF, [DIGEST, "0" * 64])
PIECE_MAY = {part for part, _ in RANGES}


def read_object(content: bytes):
    return thawed(OF, content, {":log"}, MAY)


def read_head(content: bytes):
    return digests_in(OF, content)


def read_piece(content: bytes):
    return ranges_in(content, DIGEST, PIECE_MAY)


#: objects of this release: how each is read, and its content
READERS = [(read_object, frozen(OF, PARTS)), (read_head, HEAD), (read_piece, PIECE)]


def refuses(read, content: bytes) -> bool:
    try:
        read(content)
    except Unreadable:
        return True
    return False


def test_a_head_object_and_a_piece_come_back():
    assert read_head(HEAD) == [DIGEST, "0" * 64]
    assert read_piece(PIECE) == RANGES
    assert ranges_in(PIECE, DIGEST, None) == RANGES


def test_a_piece_has_its_head_object_in_its_name():
    assert head_name(piece_name("0a-1b", 17)) == ("0a-1b", 17)
    assert [head_name(one) for one in ("0a-1b", "0a-p", "0a-1b-px")] == [
        (one, None) for one in ("0a-1b", "0a-p", "0a-1b-px")
    ]


@pytest.mark.parametrize("field", Frozen._fields)
def test_the_head_object_of_another_name_conversation_or_time_is_refused(field):
    with pytest.raises(Unreadable, match="not the one that was kept under its name"):
        digests_in(OF._replace(**{field: "other"}), HEAD)


def test_a_piece_with_a_part_that_the_log_has_not_is_refused():
    with pytest.raises(Unreadable, match="other parts than the log"):
        ranges_in(PIECE, DIGEST, PIECE_MAY - {":log"})


@pytest.mark.parametrize(("read", "content"), READERS[1:])
def test_a_head_object_and_a_piece_with_any_bit_changed_are_refused(read, content):
    assert [one for one in changed_bits(content) if not refuses(read, one)] == []


@pytest.mark.faults("reads each object once for every other value of each of its bytes")
@pytest.mark.parametrize(("read", "content"), READERS)
def test_an_object_with_any_byte_changed_to_any_value_is_refused(read, content):
    for at, byte in enumerate(content):
        before, after = content[:at], content[at + 1 :]
        accepted = [
            other for other in range(256) if other != byte and not refuses(read, before + bytes([other]) + after)
        ]
        assert accepted == [], at


@pytest.mark.faults("reads damaged objects 500 times each")
@pytest.mark.parametrize(("read", "content"), READERS)
def test_no_random_damage_makes_another_object_of_one(read, content):
    assert [seed for seed in range(often(500, 10_000)) if not refuses(read, damaged(content, seed))] == []
