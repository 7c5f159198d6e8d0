"""A folder at a moment: what is brought back is bit for bit what was there, and nothing in it has a hand in that."""

import os
import stat

import pytest

from runtimes import RuntimeCallFailed, moments
from runtimes.git import NotRecorded, Timeout, environment_of
from runtimes.moments import Moments
from tests.folders import fill, seen

runs_git = pytest.mark.process("starts git")


@pytest.fixture
def work(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def kept(tmp_path):
    """The moments beside a repository, of which Git needs the existence."""
    own = tmp_path / "own"
    for name in ("objects", "refs"):
        (own / "git" / name).mkdir(parents=True)
    (own / "git" / "HEAD").write_text("ref: refs/heads/none\n")
    return Moments(own)


def taken(kept, work, start=b""):
    return kept.take(work, start, environment_of(kept._own / "git"), Timeout(10))


def restored(kept, name, tmp_path, start=b""):
    folder = tmp_path / f"new {os.urandom(4).hex()}"
    folder.mkdir()
    kept.restore(name, folder, start)
    return folder


def listed(folder):
    return sorted(one.name for one in folder.iterdir())


def test_a_moment_is_brought_back_bit_for_bit(kept, work, tmp_path):
    fill(work)

    assert seen(restored(kept, taken(kept, work), tmp_path)) == seen(work)


def test_each_moment_stays_as_it_was_whatever_comes_after_it(kept, work, tmp_path):
    # Given moments of a folder that changes by content, mode, kind and name
    moments_of, folders = [], []
    for step in range(5):
        (work / "count").write_text(str(step))
        (work / f"only {step}").mkdir()
        (work / "count").chmod(0o600 + step)
        if step == 2:
            (work / "thing").write_text("a file")
        if step == 3:
            (work / "thing").unlink()
            (work / "thing").mkdir()
        moments_of.append(taken(kept, work))
        folders.append(seen(work))

    # Then each is brought back as it was
    assert [seen(restored(kept, name, tmp_path)) for name in moments_of] == folders


def test_a_file_that_has_changed_within_a_tick_and_kept_its_size_is_read_again(kept, work, tmp_path):
    (work / "a").write_text("one")
    times = (work / "a").stat()
    first = taken(kept, work)
    (work / "a").write_text("two")
    os.utime(work / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    second = taken(kept, work)

    assert (restored(kept, first, tmp_path) / "a").read_text() == "one"
    assert (restored(kept, second, tmp_path) / "a").read_text() == "two"


def test_a_folder_below_is_brought_back_at_its_place_with_its_hard_links(kept, work, tmp_path):
    (work / "below" / "it").mkdir(parents=True)
    fill(work / "below" / "it")
    (work / "beside").write_text("not of it")

    new = restored(kept, taken(kept, work, b"below/it"), tmp_path, b"below/it")
    assert seen(new / "below" / "it") == seen(work / "below" / "it")
    assert listed(new) == ["below"]


def test_the_agent_servers_folder_and_what_is_no_file_are_left_out(kept, work, tmp_path):
    (work / ".agent-server" / "conversations").mkdir(parents=True)
    (work / ".agent-server" / "conversations" / "a").write_text("of another conversation")
    os.mkfifo(work / "fifo")
    (work / "a").write_text("kept")

    assert listed(restored(kept, taken(kept, work), tmp_path)) == ["a"]


@runs_git
def test_what_gitignore_leaves_out_is_left_out_but_nothing_of_a_repositorys_own(kept, work, tmp_path):
    for name in ("node_modules/a", ".git/logs", "src/logs"):
        (work / name).mkdir(parents=True)
        (work / name / "x.log").write_text(name)
    (work / ".gitignore").write_text("node_modules/\n*.log\n")

    new = restored(kept, taken(kept, work), tmp_path)
    assert listed(new) == [".git", ".gitignore", "src"]
    assert (new / ".git" / "logs" / "x.log").read_text() == ".git/logs"
    assert listed(new / "src" / "logs") == []


@runs_git
def test_nothing_of_a_hostile_folder_runs_or_is_followed(kept, work, tmp_path):
    # Given a folder whose Git settings name programs, and whose links lead to the host's files
    (tmp_path / "secret").write_text("of the host")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "secret").write_text("of the host")
    trap = tmp_path / "ran"
    (work / ".git").mkdir()
    (work / ".git" / "config").write_text(
        f"[core]\n\tfsmonitor = touch {trap}\n\thooksPath = .\n\tpager = touch {trap}\n"
    )
    (work / ".gitattributes").write_text("* filter=trap diff=trap\n")
    (work / ".gitmodules").write_text(f'[submodule "x"]\n\tpath = x\n\turl = ext::touch {trap}\n')
    (work / ".gitignore").symlink_to(tmp_path / "secret")
    (work / "out").symlink_to(tmp_path / "folder")
    (work / "up").mkdir()
    (work / "up" / ".gitignore").write_text("nothing\n")

    # When it is kept and brought back
    new = restored(kept, taken(kept, work), tmp_path)

    # Then it is the same, no program has run, and no file has come from outside
    assert seen(new) == seen(work)
    assert not trap.exists()
    assert not any(b"of the host" in file.read_bytes() for file in (tmp_path / "own").rglob("*") if file.is_file())


@pytest.mark.parametrize("damage", ["another", "cut", "gone"])
def test_a_damaged_content_is_an_error_and_never_other_bytes(kept, work, tmp_path, damage):
    (work / "a").write_text("the content")
    name = taken(kept, work)
    [content] = (tmp_path / "own" / "moments" / "contents").glob("*/*")
    if damage == "gone":
        content.unlink()
    else:
        content.write_text("another one" if damage == "another" else "the")

    with pytest.raises(RuntimeCallFailed, match="the record of a is damaged"):
        restored(kept, name, tmp_path)


def test_a_damaged_manifest_is_an_error(kept, work, tmp_path):
    (work / "a").write_text("the content")
    name = taken(kept, work)
    manifest = tmp_path / "own" / "moments" / "manifests" / name
    manifest.write_bytes(manifest.read_bytes()[:-9])

    with pytest.raises(RuntimeCallFailed, match=r"damaged|cannot be read"):
        restored(kept, name, tmp_path)


def test_a_sweep_keeps_all_content_of_the_named_moments(kept, work, tmp_path):
    (work / "a").write_text("one")
    (work / "b").write_text("the same")
    first = taken(kept, work)
    (work / "a").write_text("two")
    second, now = taken(kept, work), seen(work)
    (work / "a").write_text("three")
    third = taken(kept, work)

    kept.sweep({second})

    assert seen(restored(kept, second, tmp_path)) == now
    for name in (first, third):
        with pytest.raises(NotRecorded, match="was deleted"):
            restored(kept, name, tmp_path)
    assert len([*(tmp_path / "own" / "moments" / "contents").glob("*/*")]) == 2
    (work / "a").write_text("one")
    assert (restored(kept, taken(kept, work), tmp_path) / "a").read_text() == "one"


@pytest.mark.parametrize(
    ("bound", "most", "words"),
    [
        ("MOST_ENTRIES", 2, "more than 2 files"),
        ("MOST_CONTENT", 1 << 20, "more than 1 MiB"),
        ("MOST_PATHS", 10, "paths"),
    ],
)
def test_a_folder_above_a_limit_is_not_recorded_and_the_error_names_the_limit(
    kept, work, monkeypatch, bound, most, words
):
    for number in range(4):
        with (work / f"name {number}").open("wb") as file:
            file.truncate(300_000)
    monkeypatch.setattr(moments, bound, most)

    with pytest.raises(NotRecorded, match=words):
        taken(kept, work)


class Brief(Timeout):
    """The end of a time in which few entries are read."""

    def __init__(self, checks):
        super().__init__(10)
        self._checks = checks

    def check(self):
        self._checks -= 1
        if self._checks < 0:
            raise NotRecorded("The folder was not read in time")


def test_an_attempt_skips_files_that_an_attempt_before_its_timeout_has_read(kept, work, tmp_path, monkeypatch):
    # Given a folder that takes longer to read than the time allows
    for number in range(9):
        (work / f"file {number}").write_text(f"content {number}")
    files, reads = [], Moments._read
    monkeypatch.setattr(moments, "_TICK", 0)
    monkeypatch.setattr(Moments, "_read", lambda self, entry: files.append(entry.name) or reads(self, entry))
    with pytest.raises(NotRecorded, match="in time"):
        kept.take(work, b"", environment_of(kept._own / "git"), Brief(6))
    assert 0 < len(files) < 9

    # When it is read again
    name = taken(kept, work)

    # Then each file was read once, and the moment is whole
    assert len(files) == len({*files}) == 9
    assert seen(restored(kept, name, tmp_path)) == seen(work)


def test_only_the_owner_can_read_the_records(kept, work, tmp_path):
    (work / "a").write_text("one")
    taken(kept, work)

    assert stat.S_IMODE((tmp_path / "own" / "moments" / "contents").stat().st_mode) == 0o700


def turned_back(kept, work, tmp_path, wanted, start=b""):
    """The moment of the present folder, and a folder that has the wanted one in its place."""
    now = kept.take(work, start, environment_of(kept._own / "git"), Timeout(10), kept.paths(wanted))
    folder = tmp_path / f"back {os.urandom(4).hex()}"
    folder.mkdir()
    kept.turn_back(work, start, now, wanted, folder, (b".agent-server/note", b"said"))
    return now, folder


def test_a_folder_is_turned_back_bit_for_bit_there_and_again(kept, work, tmp_path):
    # Given a folder of odd things, and what it became: by content, mode, kind, name and link
    fill(work)
    first, before = taken(kept, work), seen(work)
    (work / "plain.txt").write_text("other")
    (work / "run.sh").chmod(0o600)
    (work / "closed").rmdir()
    (work / "closed").write_text("a file now")
    (work / "empty").rmdir()
    (work / "inner").unlink()
    (work / "inner").mkdir()
    (work / "inner" / "new").write_text("new")
    (work / "deep" / "er" / "big.bin").unlink()
    after = seen(work)

    # When it is turned back, and from there again
    second, back = turned_back(kept, work, tmp_path, first)
    _, again = turned_back(kept, back, tmp_path, second)

    # Then each is as it was, and so is the folder itself; the agent server has its note
    assert seen(back, ".agent-server") == before
    assert seen(again, ".agent-server") == after
    assert seen(work) == after
    assert (back / ".agent-server" / "note").read_bytes() == b"said"


def test_what_is_outside_of_the_conversations_folder_stays_as_it_is(kept, work, tmp_path):
    (work / "mine").mkdir()
    (work / "mine" / "a").write_text("one")
    first = taken(kept, work, b"mine")
    (work / "mine" / "a").write_text("two")
    (work / "mine" / "b").write_text("two")
    (work / "beside").write_text("beside")

    _, back = turned_back(kept, work, tmp_path, first, b"mine")

    assert (back / "mine" / "a").read_text() == "one"
    assert listed(back / "mine") == ["a"]
    assert (back / "beside").read_text() == "beside"


@runs_git
def test_ignored_files_stay_when_a_folder_is_turned_back_or_forward(kept, work, tmp_path):
    # Given a folder without .gitignore, in which a part of what it names later was recorded
    (work / "lib").mkdir()
    (work / "lib" / "old").write_text("then")
    first = taken(kept, work)
    (work / ".gitignore").write_text("lib\n*.log\n")
    (work / "lib" / "old").write_text("now")
    (work / "lib" / "new").write_text("new")
    (work / "a.log").write_text("log")
    (work / "src").mkdir()
    (work / "src" / "b.log").write_text("log")
    after = seen(work)

    second, back = turned_back(kept, work, tmp_path, first)
    _, again = turned_back(kept, back, tmp_path, second)

    # Then what was recorded is as it was, what was not stays, and nothing is lost on the way back
    assert (back / "lib" / "old").read_text() == "then"
    assert [(back / name).read_text() for name in ("lib/new", "a.log", "src/b.log")] == ["new", "log", "log"]
    assert seen(again, ".agent-server") == after


@runs_git
def test_a_file_in_the_place_of_what_no_record_has_is_refused_before_anything_changes(kept, work, tmp_path):
    (work / "out").write_text("a file then")
    first = taken(kept, work)
    (work / "out").unlink()
    (work / "out").mkdir()
    (work / "out" / "made").write_text("made")
    (work / ".gitignore").write_text("out/*\n")

    with pytest.raises(NotRecorded, match=r"out/made is left out by a .gitignore"):
        turned_back(kept, work, tmp_path, first)
    assert (work / "out" / "made").read_text() == "made"
