"""Archives of folders: hostile ones are refused and leave nothing, and a round trip keeps every file, mode and name."""

import io
import os
import random
import socket
import stat
import subprocess
import sys
import tarfile
import threading
from itertools import chain
from pathlib import Path

import pytest

from runtimes import Launch, RuntimeCallFailed, archive
from runtimes.folder import Stack, remove
from runtimes.process import ProcessRuntime
from runtimes.tar_stream import (
    MOST_HEADER,
    Member,
    MemberKind,
    MemberRefused,
    TarTooLarge,
    TarUnreadable,
    header,
)
from tests.servers import PROJECT, program


@pytest.fixture
def outside(tmp_path):
    """A folder outside of the one that is filled, which no archive may change."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    (outside / "kept").write_text("kept")
    yield outside
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("kept", "kept")]
    assert stat.S_IMODE(outside.stat().st_mode) == 0o750


@pytest.fixture
def folder(tmp_path):
    """A new folder."""
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


def member(name: str, type: bytes = tarfile.REGTYPE, content: bytes = b"", **fields) -> bytes:
    """A member as the module tarfile writes it, which checks nothing."""
    info = tarfile.TarInfo(name)
    info.type, info.size = type, len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def tar(*members: bytes) -> bytes:
    return b"".join(members) + bytes(1024)


def link(name: str, target: str, type: bytes = tarfile.SYMTYPE) -> bytes:
    return member(name, type, linkname=target)


def unpack(folder: Path, data: bytes, size: int = 1000) -> None:
    archive.unpack(folder, (data[at : at + size] for at in range(0, len(data), size)))


def tree(folder: Path) -> dict[str, tuple]:
    """Every path of a folder with its type, mode, time of change and content or target."""
    found = {}
    # pathlib's rglob asks what a link leads to, and Python 3.11.2 fails where the target is too long for a name.
    for path in [folder, *(Path(at, name) for at, *names in os.walk(folder) for name in chain(*names))]:
        seen = path.lstat()
        what = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        found[str(path.relative_to(folder))] = seen.st_mode, seen.st_mtime_ns, what
    return found


def inside(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


HOSTILE = [
    ([member("/etc/passwd")], "absolute"),
    ([member("../kept", content=b"x")], r"`\.\.`"),
    ([member("a/../../outside/kept", content=b"x")], r"`\.\.`"),
    ([link("way", "../outside"), member("way/kept", content=b"x")], "through a link"),
    ([link("way", "../outside"), member("way/new/file")], "through a link"),
    ([link("way", "../outside"), member("way", tarfile.DIRTYPE, mode=0o777)], "through a link"),
    ([link("way", "../outside"), link("copy", "way/kept", tarfile.LNKTYPE)], "through a link"),
    ([link("way", "../outside/kept"), link("copy", "way", tarfile.LNKTYPE)], "not an earlier file"),
    ([link("copy", "/etc/passwd", tarfile.LNKTYPE)], "absolute"),
    ([link("copy", "../outside/kept", tarfile.LNKTYPE)], r"`\.\.`"),
    ([link("copy", "later", tarfile.LNKTYPE), member("later")], "not an earlier file"),
    ([link("self", "self", tarfile.LNKTYPE)], "not an earlier file"),
    ([member("disk", tarfile.BLKTYPE, devmajor=8)], "a device or a FIFO"),
    ([member("terminal", tarfile.CHRTYPE, devmajor=5)], "a device or a FIFO"),
    ([member("pipe", tarfile.FIFOTYPE)], "a device or a FIFO"),
    ([member("holes", tarfile.GNUTYPE_SPARSE)], "sparse"),
    ([member("file"), member("file/inside")], "a file"),
    ([member("directory", tarfile.DIRTYPE), member("directory", content=b"x")], "replace a directory"),
    ([member(".")], "the folder itself"),
    ([member("n" * 300)], "n: File name too long|cannot be written"),
    ([member("long" * 20_000)], "longer than 65536 bytes"),
    ([member("x", tarfile.XHDTYPE, bytes(MOST_HEADER + 1))], "extended header of 1048577 bytes"),
    (
        [member("x", tarfile.XHDTYPE, b"400000 %d=" % one + b"x" * 399_990 + b"\n") for one in range(3)],
        "of 1200000 bytes",
    ),
    ([link("empty", "")], "empty"),
]


def test_a_hostile_member_is_refused_by_its_name(outside):
    for number, (members, words) in enumerate(HOSTILE):
        (own := outside.with_name(f"folder {number}")).mkdir()
        with pytest.raises(MemberRefused, match=words):
            unpack(own, tar(*members))


@pytest.mark.parametrize("replaced", ["way/kept", "way"])
def test_a_file_that_replaces_a_link_is_written_beside_it_and_not_through_it(folder, outside, replaced):
    (outside.parent / "folder" / "unused").touch()

    unpack(folder, tar(link("way", "../outside/kept"), member("way", content=b"new")))

    assert not (folder / "way").is_symlink()
    assert (folder / "way").read_bytes() == b"new"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive at all",
        os.urandom(4096),
        tar(member("file", content=b"x" * 5000))[:3000],
        tar(member("file"))[:-1024],
        tar(member("file"))[:200],
        header(Member(b"./f", MemberKind.FILE, mtime=1))[:700],
        member("x", tarfile.XHDTYPE, b"99 path=a\n") + tar(),
        member("x", tarfile.XHDTYPE, b"no records") + tar(),
        member("x", tarfile.XHDTYPE, b"11 size=-1\n") + tar(member("file")),
    ],
    ids=["empty", "text", "noise", "in a file", "no end", "in a header", "after a header", "record", "records", "size"],
)
def test_what_is_no_whole_archive_is_refused(folder, data):
    with pytest.raises(TarUnreadable):
        unpack(folder, data)


def test_ten_thousand_extended_headers_before_a_member_need_no_recursion(folder):
    record = member("x", tarfile.XHDTYPE, b"12 comment=\n") * 10_000

    unpack(folder, record + tar(member("file", content=b"x")), 65536)

    assert (folder / "file").read_bytes() == b"x"


def test_an_archive_with_too_many_members_is_refused_with_the_number(folder, monkeypatch):
    monkeypatch.setattr(archive, "MOST_MEMBERS", 3)
    unpack(folder, tar(*(member(f"{number}") for number in range(3))))

    with pytest.raises(TarTooLarge, match="more than 3 members"):
        unpack(folder, tar(*(member(f"more {number}") for number in range(4))))


def test_bits_that_give_another_users_rights_are_dropped(folder):
    unpack(folder, tar(member("program", mode=0o6755), member("group", tarfile.DIRTYPE, mode=0o2775)))

    assert stat.S_IMODE((folder / "program").stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "group").stat().st_mode) == 0o775
    assert (folder / "program").stat().st_uid == os.geteuid()


def test_a_directory_that_nobody_may_write_gets_its_content_first(folder):
    closed = member("closed", tarfile.DIRTYPE, mode=0o500, mtime=7)

    unpack(folder, tar(closed, member("closed/inner/file", content=b"x")))

    assert (folder / "closed" / "inner" / "file").read_bytes() == b"x"
    assert stat.S_IMODE((folder / "closed").stat().st_mode) == 0o500
    assert (folder / "closed").stat().st_mtime == 7


def test_the_stream_is_read_to_its_end(folder):
    left = iter([tar(member("file")), b"after the end", b"more"])

    archive.unpack(folder, left)

    assert list(left) == []


@pytest.mark.process("starts a program")
def test_a_file_that_cannot_be_read_fails_the_archive_by_its_name(folder):
    script = "import os, sys; from pathlib import Path; from runtimes import archive\n"
    script += "os.geteuid() or os.setgid(65534) or os.setuid(65534)\n"
    script += "list(archive.pack(Path(sys.argv[1])))"
    (folder / "closed").touch(mode=0o000)
    folder.parent.chmod(0o755)
    command = [sys.executable, "-c", script, folder.name]
    done = subprocess.run(command, cwd=folder.parent, env={"PYTHONPATH": PROJECT}, capture_output=True, text=True)

    assert "closed cannot be read: Permission denied" in done.stderr


def test_a_missing_folder_is_a_failure_in_words(tmp_path):
    with pytest.raises(RuntimeCallFailed, match="No such file"):
        list(archive.pack(tmp_path / "missing"))
    with pytest.raises(RuntimeCallFailed, match="No such file"):
        archive.copy(tmp_path / "missing", tmp_path)


def fill_with_everything(folder: Path) -> None:
    (folder / "src" / "empty").mkdir(parents=True)
    (folder / "file").write_bytes(random.Random(1).randbytes(1_000_000))
    (folder / "none").touch()
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "secret").touch(mode=0o600)
    (folder / "relative").symlink_to("src/empty")
    (folder / "absolute").symlink_to("/etc/passwd")
    (folder / "dangling").symlink_to("n" * 300)
    (folder / "src" / "up").symlink_to("..")
    (folder / "src" / "again").hardlink_to(folder / "file")
    for name in (b"caf\xc3\xa9 \xf0\x9f\x90\x8d", b"latin\xe9", b"new\nline", b"-rf", b"n" * 255, b" ", b"\\"):
        Path(folder / os.fsdecode(name)).write_bytes(name)
    Path(folder / ("d" * 200) / ("d" * 200)).mkdir(parents=True)
    (folder / ("d" * 200) / ("d" * 200) / "deep").write_text("deep")
    with (folder / "sparse").open("wb") as sparse:
        sparse.seek(3_000_000)
        sparse.write(b"end")
    os.utime(folder / "file", ns=(1, 1_234_567_890_123_456_789))
    os.utime(folder / "none", ns=(1, -5_000_000_001))
    (folder / "closed").mkdir()
    (folder / "closed" / "file").touch()
    (folder / "closed").chmod(0o555)
    (folder / "src").chmod(0o1777)


@pytest.mark.parametrize("way", ["archive", "copy"])
def test_a_round_trip_keeps_every_file_link_mode_time_and_name(folder, tmp_path, way):
    fill_with_everything(folder)
    other = tmp_path / "other"
    other.mkdir()

    if way == "archive":
        unpack(other, b"".join(archive.pack(folder)), 999)
    else:
        archive.copy(folder, other)

    assert tree(other) == tree(folder)
    assert (other / "file").samefile(other / "src" / "again")
    assert not (other / "file").samefile(folder / "file")


def test_an_archive_of_holes_breaks_off_before_it_is_endless(folder):
    with (folder / "fits").open("wb") as sparse:
        sparse.truncate(1 << 20)
    assert len(b"".join(archive.pack(folder, 1 << 20))) > 1 << 20
    with (folder / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 40)

    with pytest.raises(RuntimeCallFailed, match=r"sparse is sparse: .*holes"):
        for _ in archive.pack(folder, 2 << 20):
            pass


def test_a_copy_keeps_holes(folder, tmp_path):
    with (folder / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 40)
    other = tmp_path / "other"
    other.mkdir()

    archive.copy(folder, other)

    assert (other / "sparse").stat().st_size == 1 << 40
    assert (other / "sparse").stat().st_blocks < 1000


@pytest.mark.process("starts a program")
def test_gnu_tar_reads_an_archive_and_its_archives_are_read(folder, tmp_path):
    tar_program = program("tar")
    fill_with_everything(folder)
    for form in ("gnu", "pax"):
        ours, theirs = tmp_path / f"ours-{form}", tmp_path / f"theirs-{form}"
        ours.mkdir(), theirs.mkdir()
        packed = subprocess.run(
            [tar_program, f"--format={form}", "-C", folder, "-c", "."], check=True, capture_output=True
        )
        unpack(ours, packed.stdout)
        subprocess.run([tar_program, "-C", theirs, "-xp"], input=b"".join(archive.pack(folder)), check=True)

        contents = [{name: what for name, (_, _, what) in tree(each).items()} for each in (ours, folder)]
        assert contents[0] == contents[1]
        assert tree(theirs) == tree(folder)


@pytest.mark.process("walks a chain of 2100 folders, each opened from the one above it")
@pytest.mark.parametrize("way", ["archive", "copy"])
def test_a_folder_nested_deeper_than_a_path_can_be_long_is_kept(folder, tmp_path, way):
    # As a sandbox makes it: level by level, each from inside the previous one. A path has at most 4096 bytes.
    script = "import os\nfor _ in range(2100): os.mkdir('d'); os.chdir('d')\nopen('end', 'w').write('x')"
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=True)
    other = tmp_path / "other"
    other.mkdir()

    archive.copy(folder, other) if way == "copy" else archive.unpack(other, archive.pack(folder))

    assert names(archive.pack(other))[-1] == "./" + "d/" * 2100 + "end"
    for deep in (folder, other):  # pytest's own removal recurses
        remove(deep)


def names(chunks) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        return tar.getnames()


def test_sockets_fifos_and_links_to_folders_outside_are_not_followed(folder, outside):
    os.mkfifo(folder / "pipe")
    (folder / "way").symlink_to(outside)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))

        assert names(archive.pack(folder)) == [".", "./way"]


@pytest.mark.faults("a race of threads")
def test_a_directory_that_becomes_a_link_while_it_is_packed_is_not_followed(folder, outside):
    for number in range(50):
        (folder / f"{number}").mkdir()
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for number in range(50):
                path = folder / f"{number}"
                path.rmdir()
                path.symlink_to(outside)
                path.unlink()
                path.mkdir()

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(50):
            assert not [name for name in names(archive.pack(folder)) if "kept" in name]
    finally:
        stop.set()
        swapper.join()


def test_a_file_that_changes_while_it_is_packed_has_the_size_that_it_had(folder, tmp_path):
    (folder / "file").write_bytes(b"x" * 2_000_000)
    chunks = archive.pack(folder)
    packed = [next(chunks), next(chunks), next(chunks)]  # the folder, the header of the file, its first piece
    os.truncate(folder / "file", 300_000)
    other = tmp_path / "other"
    other.mkdir()

    archive.unpack(other, [*packed, *chunks])

    assert (other / "file").read_bytes() == b"x" * 300_000 + bytes(1_700_000)


def test_files_that_vanish_while_a_folder_is_packed_or_copied_break_neither(folder, tmp_path):
    for number in range(500):
        (folder / f"{number}").write_bytes(b"x" * 1000)
    chunks = archive.pack(folder)
    packed = [next(chunks)]
    for number in range(0, 500, 2):
        (folder / f"{number}").unlink()
    other = tmp_path / "other"
    other.mkdir()

    archive.unpack(other, [*packed, *chunks])

    assert {f"{number}" for number in range(1, 500, 2)} <= inside(other)


def test_a_stack_gives_the_last_record_first_also_when_it_lies_on_disk():
    stack = Stack()
    records = [bytes([number % 256]) * (number % 700) for number in range(10_000)]
    for record in records:
        stack.push(record)

    assert [stack.pop() for _ in records] == records[::-1]
    assert stack.pop() is None
    stack.close()


def tar_of(*members: str) -> bytes:
    """An archive of empty files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in members:
            archive.addfile(tarfile.TarInfo(name))
    return packed.getvalue()


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def runtime(tmp_path):
    return ProcessRuntime(tmp_path / "sandboxes", parent_cgroup=None)


def box(sandbox_id: str) -> Launch:
    return Launch(sandbox_id, ("/bin/true",), {}, ".")


@pytest.mark.parametrize("data", [tar_of("file", "../file"), tar_of("file")[:600]])
def test_an_archive_that_is_refused_leaves_no_folder(runtime, tmp_path, data):
    with pytest.raises(RuntimeCallFailed):
        runtime.unpack(box("new"), [data])

    assert not (tmp_path / "sandboxes" / "new").exists()


def test_a_fill_that_was_broken_off_is_repeated_from_its_beginning(runtime, tmp_path):
    part = tmp_path / "sandboxes" / "new" / "work.part"
    part.mkdir(parents=True)
    (part / "half").touch()

    runtime.unpack(box("new"), [tar_of("file")])

    assert names_in(tmp_path / "sandboxes" / "new") == ["work"]
    assert names_in(tmp_path / "sandboxes" / "new" / "work") == ["file"]


def test_a_repeated_fill_leaves_the_folder_as_it_is(runtime, tmp_path):
    runtime.unpack(box("new"), [tar_of("file")])
    runtime.unpack(box("new"), [])
    runtime.copy(box("copy"), "new")
    (tmp_path / "sandboxes" / "new" / "work" / "file").unlink()
    runtime.copy(box("copy"), "new")

    assert (tmp_path / "sandboxes" / "copy" / "work" / "file").exists()
    assert b"./file" in b"".join(runtime.pack(box("copy")))


def test_a_copy_of_a_sandbox_that_is_not_here_fails_and_leaves_no_folder(runtime, tmp_path):
    with pytest.raises(RuntimeCallFailed, match="No such file"):
        runtime.copy(box("new"), "missing")

    assert not (tmp_path / "sandboxes" / "new").exists()
