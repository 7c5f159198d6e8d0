"""Names and single files of a kept folder: the same from the folder itself and from a tar stream of it."""

import os

import pytest

from runtimes import FileTooLong, FolderNotKept
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
    os.mkfifo(folder / "pipe")
    return folder


def found(folder, start):
    return [sorted(names(folder, start)), sorted(names_in(pack(folder), start))]


def read(folder, path, most=100):
    return [content(folder, path, most), content_in(pack(folder), path, most)]


@pytest.mark.parametrize(
    "path", [b"link", b"out/secret", b"src/inner/a.txt", b"src", b"pipe", b"none", b"", b"a.txt/x"]
)
def test_what_is_no_file_of_the_folder_has_no_content(folder, path):
    assert read(folder, path) == [None, None]


@pytest.mark.parametrize("start", [b"out", b"src/inner", b"none", b"a.txt"])
def test_what_is_no_directory_of_the_folder_has_no_files(folder, start):
    assert found(folder, start) == [[], []]


def test_files_are_listed_without_symlinks_pipes_and_what_tools_make(folder):
    assert found(folder, b"") == [[b"a.txt", b"src/b.py", b"src/deep/c.py"]] * 2
    assert found(folder, b"src") == [[b"b.py", b"deep/c.py"]] * 2


def test_a_file_is_read_whole_or_not_at_all(folder):
    assert read(folder, b"src/deep/c.py") == [b"src/deep/c.py"] * 2
    assert read(folder, b"a.txt", most=5) == [b"a.txt"] * 2
    for too_much in (lambda: content(folder, b"a.txt", 4), lambda: content_in(pack(folder), b"a.txt", 4)):
        with pytest.raises(FileTooLong, match="more than 4 bytes"):
            too_much()


@pytest.mark.parametrize(("at", "path"), [(".", b"a"), ("b/", b"a/b"), ("/w/c", b"c"), ("..", b""), ("/w", b"")])
def test_a_folder_of_an_agent_has_a_path_below_the_kept_one(at, path):
    assert below("/w", "/w/a", at) == path


@pytest.mark.parametrize("at", ["../..", "/", "/wide", "/w/../x"])
def test_a_folder_elsewhere_is_not_kept(at):
    with pytest.raises(FolderNotKept):
        below("/w", "/w/a", at)
