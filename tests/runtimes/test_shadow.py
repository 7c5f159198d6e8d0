"""What a shadow repository records of a folder, and that nothing in the folder has a hand in it."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

from runtimes import FileOverLimit, RuntimeCallFailed, reading, shadow
from runtimes.git import Ignored, NotRecorded
from runtimes.shadow import Shadow, TurnBack
from tests.chance import often
from tests.servers import PROJECT

runs_git = pytest.mark.process("starts git")


@pytest.fixture
def work(tmp_path):
    work = tmp_path / "box" / "work"
    work.mkdir(parents=True)
    return work


@pytest.fixture
def kept(work):
    """The shadow repository of the whole folder."""
    return Shadow(work.parent.with_name(".box.shadow"), work, b"")


def changes(kept, since=0, until=None):
    return {one.path: one.status for one in kept.changes("c", since, until)}


def clear(work):
    for one in work.iterdir():
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one)
        else:
            one.unlink()


def test_without_git_a_sentence_says_that_nothing_is_recorded(kept, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(NotRecorded, match="no git program"):
        kept.record("c", 0)


@runs_git
def test_changes_are_those_since_the_start_and_between_turns(kept, work):
    (work / "same").write_text("same")
    kept.record("c", 0)
    (work / "a").write_text("one")
    (work / "gone").write_text("soon")
    kept.record("c", 5)
    (work / "a").write_text("two")
    (work / "gone").unlink()
    (work / "b").write_text("new")

    assert changes(kept) == {"a": "ADDED", "b": "ADDED"}
    assert changes(kept, 6) == {"a": "UPDATED", "b": "ADDED", "gone": "DELETED"}
    assert changes(kept, 0, 6) == {"a": "ADDED", "gone": "ADDED"}
    assert kept.contents("c", "a", 6) == (b"one", b"two")
    assert kept.contents("c", "gone", 6) == (b"soon", None)


@runs_git
def test_a_file_that_becomes_a_directory_and_back_is_seen(kept, work):
    (work / "d").write_text("file")
    kept.record("c", 0)
    (work / "d").unlink()
    (work / "d").mkdir()
    (work / "d" / "e").write_text("inside")
    kept.record("c", 2)
    assert changes(kept) == {"d": "DELETED", "d/e": "ADDED"}

    shutil.rmtree(work / "d")
    (work / "d").write_text("file")
    assert changes(kept) == {}
    assert changes(kept, 3) == {"d": "ADDED", "d/e": "DELETED"}


@runs_git
def test_a_moment_that_was_not_recorded_is_a_sentence(kept):
    kept.record("c", 4)

    for since, words in ((0, "at the start of the conversation"), (4, "before event 4")):
        with pytest.raises(NotRecorded, match=words):
            kept.changes("c", since)
    with pytest.raises(NotRecorded):
        kept.changes("another", 0)


@runs_git
def test_a_record_that_comes_late_or_twice_changes_nothing(kept, work):
    kept.record("c", 9)
    (work / "a").write_text("later")
    kept.record("c", 9)
    kept.record("c", 5)

    assert changes(kept, 10) == {"a": "ADDED"}


@runs_git
def test_names_of_any_bytes_are_recorded(kept, work):
    kept.record("c", 0)
    names = {'quo"te', "back\\slash", "line\nend", ":(exclude)x", " blank ", "-n", "latin\udce4", "ünï"}
    (work / ".gitignore").write_text("none\n")  # so that Git is asked about each name
    for name in names:
        (work / name).write_text(name, errors="surrogateescape")

    assert changes(kept).keys() == names | {".gitignore"}
    assert kept.contents("c", "line\nend", 0) == (None, b"line\nend")
    assert kept.contents("c", ":(exclude)x", 0) == (None, b":(exclude)x")


@runs_git
def test_what_gitignore_files_and_tools_leave_out_is_not_recorded(kept, work):
    kept.record("c", 0)
    for name in ("x.log", "keep.log", "out/f", "sub/only/me", "sub/only/you", "node_modules/m", ".git/config"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("x")
    (work / ".gitignore").write_text("*.log\nout/\n!keep.log\n")
    (work / "sub" / ".gitignore").write_text("only/*\n!only/me\n")

    assert changes(kept).keys() == {".gitignore", "keep.log", "sub/.gitignore", "sub/only/me"}


@runs_git
def test_a_hostile_folder_runs_nothing_and_shows_nothing_of_the_host(kept, work, tmp_path):
    kept.record("c", 0)
    (tmp_path / "secret").write_text("of the host")
    (work / ".git").mkdir()
    proof = f"touch {tmp_path}/ran"
    (work / ".git" / "config").write_text(
        f'[core]\n fsmonitor = {proof}\n hooksPath = {work}\n[filter "x"]\n clean = {proof}\n smudge = {proof}\n'
    )
    (work / ".gitattributes").write_text("* filter=x text eol=crlf ident working-tree-encoding=UTF-16\n")
    (work / ".gitmodules").write_text('[submodule "m"]\n path = m\n url = ext::touch ran\n')
    (work / "nested").mkdir()
    (work / "nested" / ".git").write_text("gitdir: /etc")
    (work / "nested" / "f").write_text("in\r\n")
    (work / "link").symlink_to(tmp_path / "secret")
    (work / "folder").symlink_to(tmp_path)
    os.mkfifo(work / "pipe")

    found = changes(kept)

    assert found.keys() == {".gitattributes", ".gitmodules", "nested/f", "link", "folder"}
    assert kept.contents("c", "nested/f", 0)[1] == b"in\r\n"
    assert kept.contents("c", "link", 0)[1] == os.fsencode(tmp_path / "secret")
    assert not (tmp_path / "ran").exists()


@runs_git
def test_the_copies_of_all_gitignore_files_have_a_bound(kept, work):
    (work / ".gitignore").write_bytes(b"#" * (64 << 10))
    for number in range(520):
        (work / str(number)).mkdir()
        os.link(work / ".gitignore", work / str(number) / ".gitignore")

    with pytest.raises(NotRecorded, match=r"The folder's \.gitignore files have more than 32 MiB in all"):
        kept.record("c", 0)


@runs_git
def test_copies_of_gitignore_files_end_with_the_walk_of_their_directories(kept, work, monkeypatch):
    (work / ".gitignore").write_text("out/\n")
    (work / "deep" / "er").mkdir(parents=True)
    (work / "deep" / ".gitignore").write_text("*.log\n")
    for number in range(20):
        (work / "deep" / "er" / str(number) / "out" / "x").mkdir(parents=True)
    copies, cleanup = [], TemporaryDirectory.cleanup
    monkeypatch.setattr(
        TemporaryDirectory, "cleanup", lambda self: (copies.extend(Path(self.name).rglob("*")), cleanup(self))[1]
    )

    kept.record("c", 0)

    assert {path.name for path in copies} == {".gitignore"}


@runs_git
def test_only_the_directories_above_a_path_have_copies_of_gitignore_files(kept, work, monkeypatch):
    """So neither the disk of the host nor the time until a timeout is heard grows with the number of such files."""
    kept.record("c", 0)
    for number in range(30):
        (work / str(number) / "in" / "side").mkdir(parents=True)
        (work / str(number) / ".gitignore").write_text("*.log\n")
        for name in ("x.log", "in/x.log", "in/side/x", "y"):
            (work / str(number) / name).touch()
    (work / "3" / "in" / ".gitignore").write_text("!x.log\n")
    copies, matches = [], Ignored._matches

    def counted(self, path):
        copies.append(len([*self._copies.rglob(".gitignore")]))
        return matches(self, path)

    monkeypatch.setattr(Ignored, "_matches", counted)

    assert {path for path in changes(kept) if path.endswith(".log")} == {"3/in/x.log"}
    assert max(copies) == 2


@runs_git
def test_names_that_are_left_out_count_while_their_directory_is_read(kept, work, monkeypatch):
    monkeypatch.setattr("runtimes.shadow.MOST_SEEN", 20)
    monkeypatch.setattr("runtimes.reading.MOST_PASSED", 20)
    for number in range(30):
        os.mkfifo(work / str(number))

    with pytest.raises(NotRecorded, match="more than 20 files"):
        kept.record("c", 0)
    with pytest.raises(RuntimeCallFailed, match="More than 20 files and directories"):
        list(reading.names(work, b""))


@runs_git
def test_a_request_that_does_not_read_the_folder_has_the_state_of_the_last_read(kept, work):
    kept.record("c", 0)
    (work / "a").write_text("a")
    assert changes(kept) == {"a": "ADDED"}
    (work / "b").write_text("b")

    assert kept.changes("c", 0, walks=False) == [("ADDED", "a")]
    assert kept.contents("c", "b", 0, walks=False) == (None, None)
    assert changes(kept) == {"a": "ADDED", "b": "ADDED"}


@runs_git
def test_a_pattern_that_takes_git_long_is_named_as_the_reason(kept, work, monkeypatch):
    monkeypatch.setattr("runtimes.git._MATCH_SECONDS", 0.1, raising=False)
    (work / ".gitignore").write_text("**/a/" * 6 + "**/b\n")
    deep = work / "/".join("a" * 100)
    deep.mkdir(parents=True)
    (deep / "x").touch()

    with pytest.raises(NotRecorded, match="Simplify the patterns"):
        kept.record("c", 0)


@runs_git
def test_each_directory_of_a_deep_folder_is_made_once_for_git(kept, work, monkeypatch):
    (work / ".gitignore").write_text("*.pyc\n")
    (work / "/".join("d" * 100)).mkdir(parents=True)
    made = []
    make = os.mkdir
    monkeypatch.setattr(os, "mkdir", lambda path, *rest, **more: made.append(path) or make(path, *rest, **more))

    kept.record("c", 1)

    assert len([path for path in made if "/d" in os.fsdecode(path)]) <= 100


@runs_git
def test_patterns_that_take_the_time_of_a_record_are_named_in_the_refusal(kept, work, monkeypatch):
    monkeypatch.setattr("runtimes.shadow.RECORD_SECONDS", 0.5)
    (work / ".gitignore").write_text("**/a/" * 6 + "**/b\n")
    deep = work / "/".join("a" * 100)
    deep.mkdir(parents=True)
    (deep / "x").touch()

    with pytest.raises(
        NotRecorded, match=r"of the 0\.5 s in which a folder is read to match its paths with \.gitignore"
    ):
        kept.record("c", 0)


@runs_git
def test_a_fifo_in_the_place_of_gitignore_holds_nothing_up(kept, work):
    os.mkfifo(work / ".gitignore")
    (work / "a").write_text("a")

    kept.record("c", 0)
    assert changes(kept) == {}


@runs_git
def test_of_a_large_file_only_that_it_changed_is_recorded(kept, work):
    (work / "large").write_bytes(b"x" * (shadow.MOST_FILE + 1))
    kept.record("c", 0)
    (work / "large").write_bytes(b"y" * (shadow.MOST_FILE + 1))

    assert changes(kept) == {"large": "UPDATED"}
    with pytest.raises(FileOverLimit):
        kept.contents("c", "large", 0)


@runs_git
@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("MOST_FILES", "more than 2 files"),
        ("MOST_SEEN", "more than 2 files"),
        ("MOST_CONTENT", "MiB"),
        ("MOST_PATHS", "more than 2 bytes in all"),
        ("MOST_PASSED", "more than 2 bytes in all"),
    ],
)
def test_a_folder_beyond_a_bound_is_not_recorded_and_the_bound_is_named(kept, work, monkeypatch, bound, words):
    monkeypatch.setattr(shadow, bound, 2)
    for name in ("a", "b", "c"):
        (work / name).write_text("xx")

    with pytest.raises(NotRecorded, match=words):
        kept.record("c", 0)


@runs_git
def test_a_folder_of_directories_in_each_other_is_not_recorded(kept, work):
    (work / ".gitignore").write_text("")
    (work / "/".join(["d"] * (shadow.MOST_DEEP + 2))).mkdir(parents=True)

    with pytest.raises(NotRecorded, match="in each other"):
        kept.record("c", 0)


@runs_git
def test_among_too_many_records_the_first_and_the_last_ones_stay(kept, work, monkeypatch):
    monkeypatch.setattr(shadow, "MOST_RECORDS", 3)
    monkeypatch.setattr(shadow, "_STAY", 2)
    for seq in range(5):
        (work / "a").write_text("x" * seq)
        kept.record("c", seq)
    clear(work)

    assert kept.contents("c", "a", 0) == (b"", None)
    assert kept.contents("c", "a", 5) == (b"xxxx", None)
    assert kept.contents("c", "a", 2) == (b"", None)


@runs_git
def test_a_record_is_of_the_conversations_folder_alone_and_never_of_one_outside(work, tmp_path):
    (work / "inner").mkdir()
    (work / "outside").symlink_to(tmp_path)
    inner = Shadow(work.parent.with_name(".box.shadow"), work, b"inner")
    inner.record("c", 0)
    (work / "inner" / "a").write_text("a")
    (work / "b").write_text("b")

    assert changes(inner) == {"a": "ADDED"}
    with pytest.raises(NotRecorded, match="a link out of"):
        Shadow(work.parent.with_name(".box.shadow"), work, b"outside").record("c", 0)


@runs_git
def test_records_at_once_are_made_one_after_the_other(kept, work):
    (work / "a").write_text("a")
    kept.record("c", 0)
    (work / "b").write_text("b")
    threads = [threading.Thread(target=kept.record, args=(name, 1)) for name in ("c", "d", "e", "f")]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert changes(kept) == {"b": "ADDED"}
    assert [kept.changes(name, 2) for name in ("c", "d", "e", "f")] == [[], [], [], []]


@runs_git
def test_a_folder_that_is_gone_is_a_failure_and_makes_nothing(kept, work):
    shutil.rmtree(work.parent)

    with pytest.raises(RuntimeCallFailed, match="has no folder"):
        kept.record("c", 0)
    assert not list(work.parent.parent.iterdir())


# kills

#: records a folder in a process of its own, a new file each time, until it is killed
RECORDER = """
import sys
from pathlib import Path
from runtimes import shadow
from runtimes.shadow import Shadow, TurnBack
shadow._UNPACKED, shadow.MOST_RECORDS = 3, 22
place, work = map(Path, sys.argv[1:3])
kept = Shadow(place, work, b"")
for seq in range(int(sys.argv[3]), 10**6):
    (work / f"f{seq}").write_text(str(seq))
    kept.record("c", seq)
    print(seq, flush=True)
"""


@pytest.mark.faults("kills a process that records, at random moments")
def test_a_kill_at_any_moment_of_a_record_ends_no_later_one_and_loses_none(kept, work):
    chance, recorded, seq = Random(20261127), [*range(22)], 22
    for one in recorded:
        (work / f"f{one}").write_text(str(one))
        kept.record("c", one)
    for _ in range(often(20, 200)):
        command = [sys.executable, "-c", RECORDER, str(kept._place), str(work), str(seq)]
        with subprocess.Popen(
            command, cwd=PROJECT, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            assert process.stdout is not None
            recorded.append(int(process.stdout.readline()))
            time.sleep(chance.random() * 0.15)
            kill = os.kill if chance.random() < 0.5 else os.killpg  # alone, and with the Git that it runs
            kill(process.pid, signal.SIGKILL)
            recorded += map(int, process.stdout.read().split())
        seq = recorded[-1] + 2
        with kept._used() as state:
            named = [one.seq for one in state.records]
        assert {0, recorded[-1], *(one for one in recorded if one >= named[1])} <= set(named)
        for last in named[-1:] if chance.random() < 0.8 else named:
            assert (f"f{last}" in changes(kept, 0, last + 1)) is (last > 0)

    kept.record("c", seq)
    assert len(named) < len(recorded)  # records were dropped meanwhile
    assert changes(kept)["f1"] == "ADDED"


@runs_git
def test_a_kill_while_records_are_dropped_loses_no_other_and_ends_no_later_one(kept, work, monkeypatch):
    class ShadowKilled(BaseException):
        pass

    def collect_and_die(self):
        collect(self)
        raise ShadowKilled

    collect = Shadow._collect
    for seq in range(6):
        (work / "a").write_text(f"content {seq}")
        kept.record("c", seq)
    monkeypatch.setattr(shadow, "MOST_RECORDS", 3)
    monkeypatch.setattr(shadow, "_STAY", 2)
    with monkeypatch.context() as dying:
        dying.setattr(Shadow, "_collect", collect_and_die)
        (work / "a").write_text("content 6")
        with pytest.raises(ShadowKilled):
            kept.record("c", 6)

    (work / "a").write_text("content 2")  # as it was before: its tree has been dropped
    kept.record("c", 7)
    (work / "b").write_text("new")
    kept.record("c", 8)

    assert changes(kept, 0, 1) == {}
    assert changes(kept, 0) == {"a": "UPDATED", "b": "ADDED"}
    assert kept.contents("c", "a", 0, 8) == (b"content 0", b"content 2")


@runs_git
@pytest.mark.parametrize(
    "damaged",
    [
        *("", "[]", "{}", '{"tree": "", "files": {}, "records": [1], "trees": {}, "number": 0}'),
        '{"tree": "--output=x", "files": {}, "records": [], "trees": {}, "number": 0}',
    ],
)
def test_a_damaged_state_begins_again(kept, work, damaged):
    kept.record("c", 0)
    (kept._own / "state.json").write_text(damaged)
    kept.record("c", 1)
    (work / "a").write_text("one")
    assert changes(kept, 2) == {"a": "ADDED"}


@runs_git
def test_what_a_killed_git_and_a_machine_that_went_down_left_behind_is_removed(kept, work):
    (work / "a").write_text("one")
    kept.record("c", 0)
    git = kept._git_dir
    kept._git("update-ref", "refs/trees/2", "refs/trees/1")  # of a record whose state was not written
    for left in ("packed-refs.lock", "refs/trees/2.lock", "HEAD.lock"):
        (git / left).write_text("")
    (work / "a").write_text("two")

    kept.record("c", 1)
    assert changes(kept) == {"a": "UPDATED"}

    (kept._own / "state.json").write_text("")
    kept.record("c", 2)
    (work / "b").write_text("new")
    assert changes(kept, 3) == {"b": "ADDED"}


@runs_git
def test_a_record_is_kept_where_its_packing_fails(kept, work, monkeypatch):
    monkeypatch.setattr(shadow, "_UNPACKED", 1)
    git = Shadow._git

    def failing(self, *words, given=b""):
        if words[0] == "gc":
            raise RuntimeCallFailed("git gc failed: no room")
        return git(self, *words, given=given)

    monkeypatch.setattr(Shadow, "_git", failing)
    kept.record("c", 0)
    (work / "a").write_text("one")

    assert changes(kept) == {"a": "ADDED"}


def a_return(seq, last, events):
    return TurnBack("c", seq, last, events, b".agent-server/c/returned.json", f'"{last}"'.encode())


@runs_git
def test_a_return_is_whole_or_not_at_all_and_its_repeat_changes_nothing(kept, work, monkeypatch):
    # Given a folder with a record of an earlier moment
    (work / "a").write_text("one")
    kept.record("c", 1, lambda _: ["e1"])
    (work / "a").write_text("two")
    (work / "b").write_text("two")

    # When the host fails just before the folders are exchanged, then the folder is as it was
    with monkeypatch.context() as patched:
        patched.setattr(shadow, "exchange", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(RuntimeCallFailed, match="full"):
            kept.turn_back(a_return(1, 2, ["e2"]))
    assert sorted(one.name for one in work.parent.iterdir()) == ["work"]
    assert ((work / "a").read_text(), (work / "b").exists()) == ("two", True)

    # And a later try makes it, once
    kept.turn_back(a_return(1, 2, ["e2"]))
    assert ((work / "a").read_text(), (work / "b").exists()) == ("one", False)
    (work / "a").write_text("three")
    kept.turn_back(a_return(1, 2, ["e2"]))
    assert (work / "a").read_text() == "three"

    # And the folder before the return was recorded, so the way back is another return
    assert [(one.seq, one.event_ids) for one in kept.moments("c")] == [(1, ["e1"]), (2, ["e2"])]
    kept.turn_back(a_return(2, 4, ["e4"]))
    assert ((work / "a").read_text(), (work / "b").read_text()) == ("two", "two")


@runs_git
def test_a_return_without_a_record_changes_nothing(kept, work):
    (work / "a").write_text("one")
    kept.record("c", 1, lambda _: ["e1"])

    with pytest.raises(NotRecorded, match="not recorded at event 7"):
        kept.turn_back(a_return(7, 8, ["e8"]))
    assert [one.seq for one in kept.moments("c")] == [1]
