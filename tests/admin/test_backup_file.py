"""The format of a backup: what was written is read, and a file that was cut, changed or made to do harm is refused."""

import io
import json
from dataclasses import asdict, replace

import pytest
from zstandard import ZstdCompressor

from admin import backup_file
from admin.backup_file import VERSION, BackupDamaged, BackupHead, BackupReader, BackupWriter
from runtimes import RuntimeCallFailed
from runtimes.tar_stream import END, Member, MemberKind, header, padding
from tests.chance import damaged, often
from tests.refusals import is_refused

HEAD = BackupHead(
    project="0.1.0",
    data=1,
    program="Redis 7.0.15",
    is_snapshot=False,
    time="2026-11-28T03:00:00Z",
    host="a",
    conversations=1,
    sandboxes=1,
    seals=False,
)

WORK = b"sandboxes/a/1c4f/work"

MEMBERS = [
    (Member(b"secret_key", MemberKind.FILE, 0o600, size=6), b"sealed"),
    (Member(b"appendonlydir/appendonly.aof.1.incr.aof", MemberKind.FILE, 0o600, size=700), b"x" * 700),
    (Member(b"cold/5f1c-0a", MemberKind.FILE, 0o600, size=3), b"ice"),
    (Member(b"sandboxes/a/.lock", MemberKind.FILE, 0o600, size=2), b"id"),
    (Member(b"sandboxes/a/1c4f", MemberKind.DIRECTORY, 0o700), b""),
    (Member(WORK, MemberKind.DIRECTORY, 0o755, 1_700_000_000_123_456_789), b""),
    (Member(WORK + b"/a b\n\xff", MemberKind.FILE, 0o755, 5, size=4), b"file"),
    (Member(WORK + b"/..link", MemberKind.SYMLINK, 0o777, target=b"../../../../../etc/passwd"), b""),
    (Member(WORK + b"/again", MemberKind.HARDLINK, 0o755, 5, target=WORK + b"/a b\n\xff"), b""),
]


def written(head: BackupHead = HEAD, members=MEMBERS) -> bytes:
    sink = io.BytesIO()
    writer = BackupWriter(sink, head)
    for member, content in members:
        writer.add(member, [content[:2], content[2:]])
    writer.finish()
    return sink.getvalue()


def read(content: bytes) -> list[tuple[Member, bytes]]:
    return [(member, b"".join(pieces)) for member, pieces in BackupReader(io.BytesIO(content)).members()]


def made_of(*members: tuple[Member, bytes], head: dict | None = None) -> bytes:
    """A file of any members, with a head and without a manifest."""
    first = json.dumps(head or asdict(HEAD)).encode()
    all_of_them = [(Member(b"backup.json", MemberKind.FILE, size=len(first)), first), *members]
    stream = b"".join(header(member) + content + padding(len(content)) for member, content in all_of_them)
    return ZstdCompressor().compress(stream + END)


def test_what_was_written_is_read():
    assert BackupReader(io.BytesIO(written())).head == HEAD
    assert read(written()) == MEMBERS


def test_a_file_that_ends_early_is_refused():
    """The last bytes are a checksum of the compression, which those of the manifest make superfluous."""
    whole, accepted = written(), []
    for size in range(len(whole)):
        try:
            assert read(whole[:size]) == MEMBERS
            accepted.append(size)
        except (BackupDamaged, RuntimeCallFailed):
            pass
    assert accepted == list(range(len(whole) - len(accepted), len(whole)))
    assert len(accepted) <= 16


@pytest.mark.parametrize("seed", range(often(100, 2000)))
def test_a_damaged_file_is_refused_or_has_the_same_members(seed):
    try:
        found = read(damaged(written(), seed))
    except (BackupDamaged, RuntimeCallFailed):
        return
    assert found == MEMBERS  # what follows after its end does not count


def test_a_part_that_was_changed_before_it_was_compressed_is_refused():
    members = [(replace(member), content) for member, content in MEMBERS]
    one, other = written(), written(members=[(members[0][0], b"SEALED"), *members[1:]])
    assert one != other

    manifest = b'{"secret_key": [1, 6, "0"]}'
    forged = made_of(
        (Member(b"data/secret_key", MemberKind.FILE, size=6), b"SEALED"),
        (Member(b"manifest.json", MemberKind.FILE, size=len(manifest)), manifest),
    )
    with pytest.raises(BackupDamaged, match="the checksum of secret_key differs from the manifest"):
        read(forged)


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (Member(b"data/../key", MemberKind.FILE), "is outside of DATA_DIR"),
        (Member(b"/etc/cron.d/x", MemberKind.FILE), "is outside of DATA_DIR"),
        (Member(b"data//etc/x", MemberKind.FILE), "is outside of DATA_DIR"),
        (Member(b"data/" + WORK + b"/../../../../x", MemberKind.FILE), "is outside of DATA_DIR"),
        (Member(b"data/sandboxes/../key", MemberKind.FILE), "is outside of DATA_DIR"),
        (Member(b"data/lock", MemberKind.FILE), "A backup cannot have the member data/lock"),
        (Member(b"data/sandboxes/a/1c4f/handle.json", MemberKind.FILE), "A backup cannot have the member"),
        (Member(b"data/key", MemberKind.SYMLINK, target=b"/etc/passwd"), "is not a file"),
        (Member(b"data/appendonlydir", MemberKind.SYMLINK, target=b"/tmp"), "A backup cannot have the member"),
        (Member(b"data/sandboxes/a/1c4f", MemberKind.SYMLINK, target=b"/tmp"), "is a link"),
        (Member(b"data/sandboxes/a/.1c4f.shadow/x", MemberKind.SYMLINK, target=b"/tmp"), "is a link"),
        (
            Member(b"data/" + WORK + b"/x", MemberKind.HARDLINK, target=b"data/secret_key"),
            "is a hard link to a file outside of its",
        ),
        (
            Member(b"data/" + WORK + b"/x", MemberKind.HARDLINK, target=b"data/" + WORK + b"/../../2d/work/x"),
            "hard link",
        ),
        (Member(b"data/" + WORK + b"/x", MemberKind.HARDLINK, target=b"data/sandboxes/a/2d/work/x"), "hard link"),
    ],
)
def test_a_member_that_leads_out_of_its_place_is_refused(member, problem):
    with pytest.raises(BackupDamaged, match=problem):
        read(made_of((member, b"")))


@pytest.mark.parametrize("kind", [b"3", b"4", b"6"])
def test_devices_and_fifos_are_refused(kind):
    stream = bytearray(header(Member(b"data/" + WORK + b"/x", MemberKind.FILE)))
    stream[156:157] = kind
    stream[148:156] = b" " * 8
    stream[148:156] = b"%06o\0 " % sum(stream[:512])
    first = json.dumps(asdict(HEAD)).encode()
    head = header(Member(b"backup.json", MemberKind.FILE, size=len(first))) + first + padding(len(first))
    with pytest.raises(RuntimeCallFailed, match="a device or a FIFO"):
        read(ZstdCompressor().compress(head + bytes(stream) + END))


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        ({**asdict(HEAD), "version": VERSION + 1}, f"version {VERSION + 1}, and this release reads up to {VERSION}"),
        ({**asdict(HEAD), "version": "1"}, "reads up to"),
        ({**asdict(HEAD), "format": "other"}, "not a backup of this server"),
        ({**asdict(HEAD), "data": "1"}, "a member of the wrong type"),
        ({**asdict(HEAD), "left_out": 1}, "a member of the wrong type"),
        ({**asdict(HEAD), "left_out": [["x"]]}, "a member of the wrong type"),
        ({**asdict(HEAD), "project": {}}, "a member of the wrong type"),
        ({"format": HEAD.format, "version": 1}, "`backup.json` has no 'project'"),
        ([], "not a backup of this server"),
    ],
)
def test_a_head_that_this_release_does_not_read_is_refused(head, problem):
    with pytest.raises(BackupDamaged, match=problem):
        read(made_of(head=head or {"format": "other"}))


def test_a_manifest_that_is_larger_than_the_members_give_is_refused_before_it_is_parsed():
    manifest = b"[" + b"[]," * 30_000 + b"[]]"
    content = made_of((Member(b"manifest.json", MemberKind.FILE, size=len(manifest)), manifest))

    with pytest.raises(BackupDamaged, match=r"`manifest.json` has 90004 bytes; 65538 are allowed"):
        read(content)


def test_parts_that_only_a_reader_would_remember_have_a_bound(monkeypatch):
    """Members that are not restored take no room on the disk, and would take it in memory."""
    monkeypatch.setattr(backup_file, "_MOST_PARTS", 5)
    hooks = [Member(b"data/sandboxes/a/.s%d.shadow/k/git/hooks/x" % number, MemberKind.FILE) for number in range(6)]

    assert is_refused(read, made_of(*((one, b"") for one in hooks)), error=BackupDamaged, words="more than 5 parts")


def test_what_is_no_backup_is_said_to_be_none():
    with pytest.raises(BackupDamaged, match="It is damaged, or no backup"):
        read(b"PK\3\4 a zip file, perhaps" * 20)
    with pytest.raises(BackupDamaged, match="It is not a backup"):
        read(ZstdCompressor().compress(header(Member(b"x", MemberKind.FILE)) + END))


def test_a_file_that_cannot_be_read_to_its_end_leaves_the_others_whole():
    def broken():
        yield b"beg"
        raise RuntimeCallFailed("the disk failed")

    sink = io.BytesIO()
    writer = BackupWriter(sink, HEAD)
    with pytest.raises(RuntimeCallFailed):
        writer.add(Member(b"cold/a", MemberKind.FILE, 0o600, size=1000), broken())
    writer.add(Member(b"cold/b", MemberKind.FILE, 0o600, size=2), [b"ok"])
    writer.finish()

    assert [content for _, content in read(sink.getvalue())] == [b"beg" + bytes(997), b"ok"]
