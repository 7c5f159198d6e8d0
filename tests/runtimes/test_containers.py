"""Tar streams of friends and enemies, cut into chunks of any size."""

import io
import tarfile
import tracemalloc
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runtimes import RuntimeCallFailed
from runtimes.containers import MOST_PACKED_BYTES, Owner, owner_of_first, packed, placed
from runtimes.tar_stream import MemberRefused, TarUnreadable

OWNER = Owner(7, 8, 0o750)


def written(*members: tuple[str, dict, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as archive:
        for name, attributes, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for attribute, value in attributes.items():
                setattr(member, attribute, value)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def read(stream: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
        return archive.getmembers()


def cut(stream: bytes, size: int) -> Iterator[bytes]:
    return (stream[start : start + size] for start in range(0, len(stream), size))


def put(stream: bytes) -> list[tarfile.TarInfo]:
    """The members as `placed` hands them on, without the folder that it adds."""
    first, *members = read(b"".join(placed([stream], "top", OWNER)))
    assert (first.name, first.uid, first.gid, first.mode) == ("top", 7, 8, 0o750)
    return members


A, LINK, DEVICE = {"mode": 0o644}, {"type": tarfile.SYMTYPE}, {"type": tarfile.BLKTYPE}
DIR, HARD = {"type": tarfile.DIRTYPE, "mode": 0o700}, {"type": tarfile.LNKTYPE}


OUTSIDE = [
    ([("../a", A, b"")], "is outside of the folder"),
    ([("a/../../b", A, b"")], "is outside of the folder"),
    ([("/etc/passwd", A, b"")], "is outside of the folder"),
    ([("a", {**HARD, "linkname": "../a"}, b"")], "is outside of the folder"),
    ([("a", {**HARD, "linkname": "/etc/passwd"}, b"")], "is outside of the folder"),
    ([("sda", DEVICE, b"")], "sda is a device"),
    ([("a", {"type": b"Z"}, b"")], "a is sparse or of an unknown type"),
    ([(".", A, b"x")], "a file at the path of its folder"),
    ([(".", {**LINK, "linkname": "/etc"}, b"")], "a file at the path of its folder"),
    ([("a", {"pax_headers": {"comment": "x" * 2_000_000}}, b"")], "extended header of .* bytes"),
    ([("a", {"pax_headers": {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}}, b"")], "a is sparse"),
    ([("a", {"type": tarfile.GNUTYPE_SPARSE}, b"")], "a is sparse"),
]


def test_a_member_that_does_not_belong_into_a_folder_is_refused():
    for members, sentence in OUTSIDE:
        with pytest.raises(MemberRefused, match=sentence):
            put(written(*members))


@pytest.mark.parametrize("size", [0, 100, 512, 700, 1024 + 511, 3 * 512])
def test_a_stream_that_breaks_off_is_refused(size):
    stream = written(("a", A, b"x" * 1000), form=tarfile.USTAR_FORMAT)[:size]

    with pytest.raises(TarUnreadable, match="ends too early"):
        put(stream)
    with pytest.raises(TarUnreadable, match="ends too early"):
        b"".join(packed([stream], None))


@settings(deadline=None)  # another process may need the processor
@given(st.binary(max_size=2000) | st.binary(max_size=512).map(lambda noise: noise + written(("a", A, b"x"))))
def test_noise_is_refused_in_words_or_is_an_archive(noise):
    try:
        put(noise)
    except RuntimeCallFailed:
        return


@settings(deadline=None)
@given(st.integers(0, 2047), st.integers(0, 255))
@example(512, ord("0"))  # the length of an extended header's record
@example(513, ord("0"))
@example(514, ord("0"))
def test_an_archive_with_a_wrong_byte_is_refused_in_words_or_lies_in_its_folder(place, value):
    stream = bytearray(written(("a" * 200, A, b"x" * 600), ("b", {**HARD, "linkname": "a"}, b"")))
    stream[place] = value
    try:
        assert all(member.name.startswith("top/") for member in put(bytes(stream)))
    except RuntimeCallFailed:
        return


def test_members_lose_owner_and_set_user_id_and_attributes_and_keep_links_and_times():
    attributes = {"uid": 0, "uname": "root", "mode": 0o6755, "mtime": 5.5, "pax_headers": {"SCHILY.xattr.user.a": "b"}}
    member, link, hard = put(
        written(
            ("./a", attributes, b"x"), ("l", {**LINK, "linkname": "/etc"}, b""), ("h", {**HARD, "linkname": "./a"}, b"")
        )
    )

    assert (member.name, member.uid, member.gid, member.uname, member.mode) == ("top/a", 7, 8, "", 0o755)
    assert (member.mtime, set(member.pax_headers)) == (5.5, {"mtime"})
    assert (link.name, link.linkname) == ("top/l", "/etc")
    assert (hard.name, hard.linkname) == ("top/h", "top/a")


def test_folders_that_an_archive_lacks_are_added_once_and_those_that_it_has_are_not():
    names = [
        member.name for member in put(written(("a/b/c", A, b""), ("a/b/d", A, b""), ("e", DIR, b""), ("e/f", A, b"")))
    ]

    assert names == ["top/a", "top/a/b", "top/a/b/c", "top/a/b/d", "top/e", "top/e/f"]


def test_an_archive_of_any_format_comes_through_in_chunks_of_any_size():
    for form, size in product((tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT), (1, 511, 4096, 1 << 20)):
        stream = written((f"{'d' * 90}/{'n' * 90}", A, b"x" * 1000), ("ä", A, b""), ("e", DIR, b""), form=form)

        kept = b"".join(packed(cut(stream, size), None))

        assert [(one.name, one.size) for one in read(kept)] == [(one.name, one.size) for one in read(stream)]
        placed_names = [one.name for one in read(b"".join(placed(cut(stream, size), "t", OWNER))) if one.isreg()]
        assert placed_names == [f"t/{'d' * 90}/{'n' * 90}", "t/ä"]


def test_a_packed_stream_has_no_owners_no_fifos_and_no_devices():
    fifo = {"type": tarfile.FIFOTYPE}
    kept = read(b"".join(packed([written(("./f", fifo, b""), ("./d", DEVICE, b""), ("./a", {"uid": 7}, b"x"))], None)))

    assert [(one.name, one.uid) for one in kept] == [("./a", 0)]


def endless(size: int) -> Iterator[bytes]:
    """The stream of a file with a hole, as an engine sends it: zeros for as long as anyone reads."""
    yield written(("./kept", A, b"x" * 1000), form=tarfile.USTAR_FORMAT)[: 3 * 512]
    member = tarfile.TarInfo("./holes")
    member.size = size
    yield member.tobuf(tarfile.GNU_FORMAT)
    while True:
        yield bytes(1 << 20)


@pytest.mark.parametrize(
    ("disk_bytes", "size", "most"),
    [(10_000, 19_001, 20_000), (None, MOST_PACKED_BYTES, MOST_PACKED_BYTES), (1 << 40, 1 << 42, 2 << 40)],
)
def test_files_that_are_larger_than_their_disk_are_refused_before_they_are_read(disk_bytes, size, most):
    stream = packed(endless(size), disk_bytes)
    with pytest.raises(RuntimeCallFailed, match=rf"\./holes.*{most} bytes") as refusal:
        assert sum(len(piece) for piece in stream) < 10_000
    assert type(refusal.value) is RuntimeCallFailed


def test_files_of_twice_their_disk_are_packed():
    stream = written(("./a", A, b"x" * 1000), ("./b", {**HARD, "linkname": "./a"}, b""), ("./c", A, b"y" * 1000))
    assert [one.name for one in read(b"".join(packed([stream], 1000)))] == ["./a", "./b", "./c"]
    with pytest.raises(RuntimeCallFailed, match="c takes the files beyond 1998 bytes"):
        b"".join(packed([stream], 999))


def test_the_owner_of_the_first_member_is_read():
    assert owner_of_first([written(("./", {**DIR, "uid": 5, "gid": 6}, b""), ("a", A, b""))]) == Owner(5, 6, 0o700)
    with pytest.raises(TarUnreadable, match="empty"):
        owner_of_first([bytes(1024)])


def test_memory_is_bounded_by_chunks_and_not_by_files():
    member = tarfile.TarInfo("big")
    member.size = 64 << 20

    def chunks() -> Iterator[bytes]:
        yield member.tobuf()
        for _ in range(64):
            yield bytes(1 << 20)
        yield bytes(1024)

    tracemalloc.start()
    try:
        assert sum(len(piece) for piece in placed(chunks(), "top", OWNER)) > member.size
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
