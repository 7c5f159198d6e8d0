"""A shadow repository of a folder that comes as a tar stream, which may be hostile."""

import io
import os
import tarfile

import pytest

from runtimes import FileOverLimit, RuntimeCallFailed, archive, mirror, shadow
from runtimes.git import NotRecorded, Timeout
from runtimes.mirror import Mirror
from runtimes.tar_stream import MemberRefused
from tests.runtimes.test_shadow import changes, clear

runs_git = pytest.mark.process("starts git")


@pytest.fixture
def work(tmp_path):
    work = tmp_path / "elsewhere"
    work.mkdir()
    return work


@pytest.fixture
def kept(tmp_path, work):
    """The shadow repository of the folder elsewhere."""
    return Mirror(tmp_path / ".box.shadow", b"", work.exists, lambda: archive.pack(work))


def stream(*members: tuple[dict, bytes]) -> list[bytes]:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for told, content in members:
            info = tarfile.TarInfo()
            info.size = len(content)
            for name, value in told.items():
                setattr(info, name, value)
            tar.addfile(info, io.BytesIO(content))
    return [made.getvalue()]


def copied(folder, *members):
    folder.mkdir()
    mirror.copy(folder, stream(*members), Timeout(9))
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_what_a_record_leaves_out_is_not_copied(tmp_path):
    names = ("a", "below/b", ".git/config", "below/node_modules/c", "target/d")

    assert copied(tmp_path / "copy", *(({"name": name}, b"x") for name in names)) == ["a", "below", "below/b"]


def test_of_a_large_file_only_the_size_is_copied(tmp_path):
    copied(tmp_path / "copy", ({"name": "large"}, b"x" * (shadow.MOST_FILE + 1)))

    large = (tmp_path / "copy" / "large").stat()
    assert (large.st_size, large.st_blocks) == (shadow.MOST_FILE + 1, 0)


@pytest.mark.parametrize("name", ["../out", "/out", "link/out"])
def test_no_name_leads_out_of_the_copy(tmp_path, name):
    link = {"name": "link", "type": tarfile.SYMTYPE, "linkname": str(tmp_path)}

    with pytest.raises(MemberRefused):
        copied(tmp_path / "copy", (link, b""), ({"name": name}, b"x"))
    assert not (tmp_path / "out").exists()


def test_files_that_nobody_may_read_are_copied_so_that_they_can_be_read(tmp_path):
    copied(
        tmp_path / "copy",
        ({"name": "closed", "type": tarfile.DIRTYPE, "mode": 0}, b""),
        ({"name": "closed/a", "mode": 0o4000}, b"x"),
        ({"name": "closed/run", "mode": 0o111}, b"x"),
    )

    modes = {path.name: path.stat().st_mode & 0o7700 for path in (tmp_path / "copy").rglob("*")}
    assert modes == {"closed": 0o700, "a": 0o600, "run": 0o700}


def test_a_further_name_of_a_file_that_is_left_out_is_left_out(tmp_path):
    hard = {"name": "b", "type": tarfile.LNKTYPE, "linkname": "node_modules/a"}

    assert copied(tmp_path / "copy", ({"name": "node_modules/a"}, b"x"), (hard, b"")) == []


@pytest.mark.parametrize(("bound", "most", "words"), [("MOST_SEEN", 2, "more than 2 files"), ("MOST_COPIED", 2, "MiB")])
def test_a_copy_has_bounds(tmp_path, monkeypatch, bound, most, words):
    monkeypatch.setattr(mirror if bound == "MOST_COPIED" else shadow, bound, most)

    with pytest.raises(NotRecorded, match=words):
        copied(tmp_path / "copy", *(({"name": str(number)}, b"x") for number in range(3)))


@runs_git
def test_changes_are_those_since_the_start_and_between_turns(kept, work):
    (work / "same").write_text("same")
    (work / ".gitignore").write_text("ignored\n")
    kept.record("c", 0)
    (work / "a").write_text("one")
    (work / "ignored").write_text("no")
    (work / "to").symlink_to("/etc/passwd")
    kept.record("c", 5)
    (work / "a").write_text("two")

    assert changes(kept) == {"a": "ADDED", "to": "ADDED"}
    assert changes(kept, 6) == {"a": "UPDATED"}
    assert kept.contents("c", "a", 6) == (b"one", b"two")
    assert kept.contents("c", "to", 6) == (b"/etc/passwd", b"/etc/passwd")
    clear(work)
    assert changes(kept, 6) == {".gitignore": "DELETED", "a": "DELETED", "same": "DELETED", "to": "DELETED"}


@runs_git
def test_a_file_that_keeps_its_size_and_its_time_is_seen_to_change(kept, work):
    (work / "a").write_text("one")
    os.utime(work / "a", (1_000, 1_000))
    kept.record("c", 0)
    (work / "a").write_text("two")
    os.utime(work / "a", (1_000, 1_000))

    assert changes(kept) == {"a": "UPDATED"}


@runs_git
def test_a_large_file_that_stays_is_no_change(kept, work):
    (work / "large").write_bytes(b"x" * (shadow.MOST_FILE + 1))
    kept.record("c", 0)
    (work / "a").write_text("one")

    assert changes(kept) == {"a": "ADDED"}
    (work / "large").write_bytes(b"x" * (shadow.MOST_FILE + 2))
    assert changes(kept) == {"a": "ADDED", "large": "UPDATED"}
    with pytest.raises(FileOverLimit):
        kept.contents("c", "large", 0)


@runs_git
def test_a_copy_ends_with_its_record_and_the_records_with_the_sandbox(kept, work, tmp_path):
    (work / "a").write_text("one")
    kept.record("c", 0)
    [own] = [path for path in (tmp_path / ".box.shadow").iterdir() if path.is_dir()]
    assert not (own / "folder").exists()
    (own / "folder").mkdir()  # of a supervisor that was killed
    (own / "folder" / "left").touch()

    assert changes(kept) == {}
    clear(work)
    work.rmdir()
    with pytest.raises(RuntimeCallFailed, match="no folder"):
        kept.record("c", 1)
    assert not (tmp_path / ".box.shadow").exists()
