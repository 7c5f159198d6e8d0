"""The object of a cold conversation: what was kept comes back, and nothing else does."""

from hashlib import sha256

import pytest

from store.log.frames import (
    FrameUnreadable,
    Frozen,
    head,
    head_name,
    piece_name,
    pieces,
    ranges_in,
    read_head,
)
from tests.chance import damaged, often

OF = Frozen("0a-1b", "0a", "an incarnation", "7")


def changed_bits(content: bytes):
    """The content with each of its bits changed alone."""
    for at in range(len(content)):
        for bit in range(8):
            yield content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


RANGES = [(":log", [b"an event", b"another"]), (":text:0", [b"words " * 30]), (":at:MessageEvent:user", [b"1.5", b"1"])]
[(PIECE, DIGEST)] = pieces(RANGES)
HEAD, WHOLE = head(OF, [DIGEST, "0" * 64]), head(OF, [DIGEST], PIECE)
PIECE_MAY = {part for part, _ in RANGES}


def read_object(content: bytes):
    return read_head(OF, content)


def read_piece(content: bytes):
    return ranges_in(content, DIGEST, PIECE_MAY)


#: objects of this release: how each is read, and its content
READERS = [(read_object, WHOLE), (read_object, HEAD), (read_piece, PIECE)]


def refuses(read, content: bytes) -> bool:
    try:
        read(content)
    except FrameUnreadable:
        return True
    return False


def test_an_object_and_a_piece_come_back():
    assert read_object(HEAD) == ([DIGEST, "0" * 64], b"")
    assert read_object(WHOLE) == ([DIGEST], PIECE)
    assert read_piece(PIECE) == RANGES
    assert ranges_in(PIECE, DIGEST, None) == RANGES


def test_a_piece_has_its_head_object_in_its_name():
    assert head_name(piece_name("0a-1b", 17)) == ("0a-1b", 17)
    assert [head_name(one) for one in ("0a-1b", "0a-p", "0a-1b-px")] == [
        (one, None) for one in ("0a-1b", "0a-p", "0a-1b-px")
    ]


@pytest.mark.parametrize("field", Frozen._fields)
@pytest.mark.parametrize("content", [HEAD, WHOLE])
def test_the_object_of_another_name_conversation_or_time_is_refused(field, content):
    with pytest.raises(FrameUnreadable, match="not the one that was kept under its name"):
        read_head(OF._replace(**{field: "other"}), content)


def test_an_object_whose_line_is_nested_without_end_is_refused():
    line = b"[" * 200_000 + b"\n"
    with pytest.raises(FrameUnreadable, match="damaged"):
        read_object(line + sha256(line).digest())


@pytest.mark.parametrize("number", [2, 4])
def test_another_format_is_named(number):
    other = WHOLE[:-32].replace(b'"format": 3', f'"format": {number}'.encode())
    with pytest.raises(FrameUnreadable, match=f"it is of format {number}, and this version reads format 3"):
        read_object(other + sha256(other).digest())


def test_an_object_that_was_cut_short_or_extended_is_refused():
    assert [end for end in range(len(WHOLE)) if not refuses(read_object, WHOLE[:end])] == []
    assert refuses(read_object, WHOLE + b"\0")


def test_a_piece_with_a_part_that_the_log_has_not_is_refused():
    with pytest.raises(FrameUnreadable, match="other parts than the log"):
        ranges_in(PIECE, DIGEST, PIECE_MAY - {":log"})


@pytest.mark.parametrize(("read", "content"), READERS)
def test_an_object_and_a_piece_with_any_bit_changed_are_refused(read, content):
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
