"""Names and single files of a kept folder: the same from the folder itself and from a tar stream of it."""

import os

import pytest

from runtimes import FileOverLimit, FolderNotKept, RuntimeCallFailed, reading
from runtimes.archive import pack
from runtimes.reading import below, content, content_in, names, names_in


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "work"
    for name in ("a.txt", "src/b.py", "src/deep/c.py", "src/node_modules/d.js", "dist/e.js"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (tmp_path / "secret").write_text("outside")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "out").symlink_to(tmp_path)
    (folder / "src" / "inner").symlink_to(folder)
    (folder / "src" / "inner" / "up").symlink_to("src/deep/../../a.txt")
    (folder / "short").symlink_to(folder / "src" / "deep")
    (folder / "loop").symlink_to("loop")
    (folder / "sneaks").symlink_to(f"{folder}/../secret")
    os.mkfifo(folder / "pipe")
    return folder


def found(folder, start):
    return [sorted(names(folder, start)), sorted(names_in(lambda: pack(folder), start, str(folder)))]


def read(folder, path, most=100):
    return [content(folder, path, most), content_in(lambda: pack(folder), path, most, str(folder))]


NO_FILES = [
    b"link",
    b"out/secret",
    b"sneaks",
    b"src/inner/out/secret",
    b"loop",
    b"short",
    b"src",
    b"pipe",
    b"none",
    b"",
    b"a.txt/x",
]


def test_what_is_no_file_of_the_folder_has_no_content(folder):
    assert [path for path in NO_FILES if read(folder, path) != [None, None]] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (b"up", b"a.txt"),
        (b"src/inner/a.txt", b"a.txt"),
        (b"short/c.py", b"src/deep/c.py"),
        (b"src/inner/short/c.py", b"src/deep/c.py"),
    ],
)
def test_a_symlink_that_stays_in_the_folder_leads_to_its_file(folder, path, text):
    assert read(folder, path) == [text, text]


def test_a_symlink_that_stays_in_the_folder_leads_to_its_directory(folder):
    assert found(folder, b"short") == [[b"c.py"]] * 2
    assert found(folder, b"src/inner/src") == [[b"b.py", b"deep/c.py"]] * 2


def test_a_symlink_by_either_path_of_a_folder_behind_a_symlink_leads_to_its_file_and_by_no_path_beside_it(tmp_path):
    """An image has a symlink in the way: the folder is at the path of its spec and at the one that `pwd` prints."""
    for name, target in (("seen", "/data/app/a.txt"), ("spec", "/place/a.txt"), ("beside", "/data/app2/a.txt")):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "up").symlink_to("/data/app/../a.txt")
    (tmp_path / "a.txt").write_text("found")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.txt").touch()
    (tmp_path / "into").symlink_to("/data/app/deep/")

    def at(path, *roots):
        return content_in(lambda: pack(tmp_path), path, 100, *roots)

    paths = (b"seen", b"spec", b"beside", b"up")
    assert [at(path, "/place", "/data/app") for path in paths] == [b"found", b"found", None, None]
    assert [at(path, "/place", "") for path in paths] == [None, b"found", None, None]
    assert list(names_in(lambda: pack(tmp_path), b"into", "/place", "/data/app")) == [b"b.txt"]


def test_a_path_through_more_than_eight_symlinks_leads_nowhere(folder):
    (folder / "0").symlink_to("src/b.py")
    for number in range(1, 9):
        (folder / str(number)).symlink_to(str(number - 1))

    assert read(folder, b"7") == [b"src/b.py"] * 2
    assert read(folder, b"8") == [None] * 2


def test_a_further_name_of_a_file_is_a_file(folder):
    (folder / "again").hardlink_to(folder / "src" / "b.py")

    assert read(folder, b"again") == read(folder, b"src/b.py") == [b"src/b.py"] * 2
    assert found(folder, b"") == [[b"a.txt", b"again", b"src/b.py", b"src/deep/c.py"]] * 2


@pytest.mark.parametrize("start", [b"out", b"sneaks", b"loop", b"none", b"a.txt"])
def test_what_is_no_directory_of_the_folder_has_no_files(folder, start):
    assert found(folder, start) == [[], []]


def test_files_are_listed_without_symlinks_pipes_and_what_tools_make(folder):
    assert found(folder, b"") == [[b"a.txt", b"src/b.py", b"src/deep/c.py"]] * 2
    assert found(folder, b"src") == [[b"b.py", b"deep/c.py"]] * 2


def test_a_file_is_read_whole_or_not_at_all(folder):
    assert read(folder, b"src/deep/c.py") == [b"src/deep/c.py"] * 2
    assert read(folder, b"a.txt", most=5) == [b"a.txt"] * 2
    for too_much in (lambda: content(folder, b"a.txt", 4), lambda: content_in(lambda: pack(folder), b"a.txt", 4, "/w")):
        with pytest.raises(FileOverLimit, match="more than 4 bytes"):
            too_much()


@pytest.mark.parametrize(("at", "path"), [(".", b"a"), ("b/", b"a/b"), ("/w/c", b"c"), ("..", b""), ("/w", b"")])
def test_a_folder_of_an_agent_has_a_path_below_the_kept_one(at, path):
    assert below("/w", "/w/a", at) == path


@pytest.mark.parametrize("at", ["../..", "/", "/wide", "/w/../x"])
def test_a_folder_elsewhere_is_not_kept(at):
    with pytest.raises(FolderNotKept):
        below("/w", "/w/a", at)


def test_a_list_of_files_ends_where_a_folder_has_directories_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_PASSED", 20)
    for number in range(19):
        (tmp_path / f"{number}").mkdir()
    assert list(names(tmp_path, b"")) == []

    (tmp_path / "one more").mkdir()
    with pytest.raises(RuntimeCallFailed, match="More than 20 files and directories"):
        list(names(tmp_path, b""))

    monkeypatch.undo()
    monkeypatch.setattr(reading, "MOST_PATHS", 20)
    with pytest.raises(RuntimeCallFailed, match="or 20 bytes of their paths"):
        list(names(tmp_path, b""))
