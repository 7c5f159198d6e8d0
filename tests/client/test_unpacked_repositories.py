"""No download makes a repository on this machine, whatever an agent named it."""

import os
import subprocess
import tarfile

import pytest
from agent_server_client.archives import Unsafe, unpack

from tests.client.archive_files import archive as archive

#: the files of a folder that Git reads as a repository, whose settings start a program
BARE = {
    "HEAD": "ref: refs/heads/main\n",
    "config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n"
    '\tfsmonitor = "touch CANARY; false"\n',
    "objects/keep": "",
    "refs/heads/keep": "",
}


def repository_at(folder, files=BARE):
    return [(f"{folder}/{name}", text) for name, text in files.items()]


def files_in(folder) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name",
    [
        ".git",
        ".GiT",
        ".g\u200cit",
        "\ufeff.git",
        ".git.",
        ".git ",
        ".git . .",
        "GIT~1",
        "git~1.",
        ".git::$INDEX_ALLOCATION",
    ],
)
@pytest.mark.parametrize("place", ["{}", "a/{}", "a/{}/b", "a\\..\\{}", "a\\{}\\b"])
def test_no_name_that_a_file_system_reads_as_git_is_written(archive, tmp_path, caplog, name, place):
    place = place.format(name)

    assert unpack(archive((place, "gitdir: x"), ("b.txt", "b")), "", tmp_path / "out") == [tmp_path / "out/b.txt"]
    assert files_in(tmp_path / "out") == {"b.txt"}
    assert "Git" in caplog.text


@pytest.mark.parametrize("name", [".gitignore", ".github", "git", "x.git", "git~2", ".gita", "agit~1", "a b.git.txt"])
def test_a_name_that_only_resembles_git_is_written(archive, tmp_path, name):
    assert unpack(archive((name, "x")), "", tmp_path / "out") == [tmp_path / "out" / name]


@pytest.mark.parametrize("folder", ["", "x", "a/b/x"])
def test_a_folder_that_git_would_read_as_a_repository_is_left_out_and_reported(archive, tmp_path, caplog, folder):
    path = archive(*repository_at(f"./{folder}"), ("./b/c", "c"))

    unpack(path, "", tmp_path / "out")

    assert files_in(tmp_path / "out") == ({"b/c"} if folder else set())
    assert "Git repository" in caplog.text


def test_letter_case_and_ignored_characters_do_not_hide_a_repository(archive, tmp_path):
    files = {"X/head": "", "x/Objects/a": "", "x\u200d/REFS/a": "", "x/config": ""}

    unpack(archive(*files.items()), "", tmp_path / "out")

    assert files_in(tmp_path / "out") == set()


def test_a_folder_with_a_common_directory_is_a_repository(archive, tmp_path):
    files = {"x/HEAD": "ref: refs/heads/main", "x/commondir": "../y", "y/objects/a": "", "y/refs/a": "", "y/config": ""}

    unpack(archive(*files.items()), "", tmp_path / "out")

    assert not (tmp_path / "out/x").exists()


def test_two_downloads_make_no_repository_together(archive, tmp_path):
    unpack(archive(("x/HEAD", "ref: refs/heads/main"), ("x/config", "x")), "", tmp_path / "out")
    unpack(archive(("x/objects/a", ""), ("x/refs/a", "")), "", tmp_path / "out")

    assert files_in(tmp_path / "out") == {"x/HEAD", "x/config"}


def test_a_repository_of_the_person_is_not_written_into(archive, tmp_path):
    mine = tmp_path / "out/mine"
    for name in ("objects", "refs"):
        (mine / name).mkdir(parents=True)
    (mine / "HEAD").write_text("ref: refs/heads/main")

    unpack(archive(("mine/config", "x"), ("mine/hooks/post-checkout", "x")), "", tmp_path / "out")

    assert files_in(mine) == {"HEAD"}


def test_a_part_of_a_sandbox_is_written_into_a_folder_below_which_a_repository_lies(archive, tmp_path):
    mine = tmp_path / "out"
    for name in ("HEAD", "objects", "refs", "x"):
        (mine / name).mkdir(parents=True)

    unpack(archive(("a/x/c", "c")), "a/x", mine / "x")

    assert (mine / "x/c").read_text() == "c"
    with pytest.raises(Unsafe, match="Git repository"):
        unpack(archive(("a/x/c", "c")), "a/x", mine)


def test_empty_folders_complete_no_repository(archive, tmp_path):
    folders = [tarfile.TarInfo(f"x/{name}") for name in ("objects", "refs")]
    for folder in folders:
        folder.type = tarfile.DIRTYPE

    unpack(archive(("x/HEAD", "x"), *folders), "", tmp_path / "out")

    assert not (tmp_path / "out/x").exists()


def test_a_path_within_a_repository_is_refused_by_its_name(archive, tmp_path):
    path = archive(*repository_at("out/x"))
    for wanted in ("out/x", "out/x/config", "out/x/refs"):
        with pytest.raises(Unsafe, match=wanted):
            unpack(path, wanted, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_what_is_left_out_is_reported_without_control_characters_and_within_a_bound(archive, tmp_path, caplog):
    unpack(archive(*((f"{number}\x1b[2J/.git/config", "x") for number in range(200))), "", tmp_path / "out")

    assert "\x1b" not in caplog.text
    assert "190 more" in caplog.text
    assert len(caplog.records) < 20


def test_a_link_that_is_left_out_is_reported(archive, tmp_path, caplog):
    link = tarfile.TarInfo("a/link")
    link.type, link.linkname = tarfile.SYMTYPE, "b"

    unpack(archive(link), "", tmp_path / "out")

    assert "a/link" in caplog.text


@pytest.mark.parametrize("name", ["here/new/folder/x", "here/new/x"])
def test_no_folder_is_made_through_a_symlink_before_the_refusal(archive, tmp_path, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/here").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Unsafe, match="symlink"):
        unpack(archive((name, "x")), "", tmp_path / "out")

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_no_file_is_written_through_a_symlink_to_the_persons_git_folder(archive, tmp_path):
    (tmp_path / "out/.git/hooks").mkdir(parents=True)
    (tmp_path / "out/link").symlink_to(".git")

    with pytest.raises(Unsafe, match="symlink"):
        unpack(archive(("link/hooks/post-checkout", "x")), "", tmp_path / "out")

    assert files_in(tmp_path / "out/.git") == set()


@pytest.mark.parametrize("link", ["d", "d/e", "absolute"])
def test_a_symlink_that_stays_in_the_folder_is_followed(archive, tmp_path, link):
    (tmp_path / "out/new/place").mkdir(parents=True)
    (tmp_path / "out/d").mkdir()
    place = tmp_path / "out" / (link if link != "d" else "f")
    place.symlink_to(
        tmp_path / "out/new/place" if link == "absolute" else os.path.relpath("out/new/place", f"out/{link}/..")
    )

    written = unpack(archive((f"{place.name if link != 'd/e' else link}/sub/x", "x")), "", tmp_path / "out")

    assert (tmp_path / "out/new/place/sub/x").read_text() == "x"
    assert written == [place / "sub/x"]


@pytest.mark.parametrize("through", [["y/HEAD"], ["y/objects/a"], ["y/objects/a", "y/refs/a", "y/HEAD"]])
def test_no_repository_is_made_through_a_symlink(archive, tmp_path, through):
    (tmp_path / "out/x").mkdir(parents=True)
    (tmp_path / "out/y").symlink_to("x")
    names = {"HEAD", "objects/a", "refs/a", "config"} - {name.removeprefix("y/") for name in through}

    unpack(archive(*((name, "") for name in through), *((f"x/{name}", "") for name in names)), "", tmp_path / "out")

    assert files_in(tmp_path / "out") == set()


@pytest.mark.parametrize("mine", ["", "mine"])
def test_no_file_is_written_through_a_symlink_into_a_repository_of_the_person(archive, tmp_path, mine):
    for name in ("objects", "refs", "hooks"):
        (tmp_path / "out/a" / mine / name).mkdir(parents=True)
    (tmp_path / "out/a" / mine / "HEAD").write_text("ref: refs/heads/main")
    (tmp_path / "out/link").symlink_to(tmp_path / "out/a" / mine / "hooks")

    with pytest.raises(Unsafe, match="symlink"):
        unpack(archive(("link/post-checkout", "x")), "", tmp_path / "out")

    assert list((tmp_path / "out/a" / mine / "hooks").iterdir()) == []


@pytest.mark.parametrize("name", [".git", "a/.git/hooks", "GIT~1", "link"])
def test_no_folder_of_git_is_the_place_of_a_download(archive, tmp_path, name):
    (tmp_path / "link").symlink_to("elsewhere/.git")
    with pytest.raises(Unsafe, match="Git"):
        unpack(archive(("x/post-checkout", "x")), "x", tmp_path / name)

    assert not (tmp_path / name).exists()


@pytest.mark.parametrize(("wanted", "to"), [("x/refs", "refs"), ("x/refs/a", "refs"), ("x/refs", ".")])
def test_a_part_of_a_sandbox_completes_no_repository(archive, tmp_path, wanted, to):
    (tmp_path / "objects").mkdir()
    (tmp_path / "HEAD").write_text("ref: refs/heads/main")
    path = archive(("x/refs" if to == "." else "x/refs/a", "a"))

    with pytest.raises(Unsafe, match="Git repository"):
        unpack(path, wanted, tmp_path / to)

    assert not (tmp_path / "refs").exists()


@pytest.mark.process("starts Git")
@pytest.mark.parametrize("folder", ["x", "x.git", "a/x", "", ".g\u200cit", "GIT~1"])
def test_git_runs_no_program_of_an_agent_in_a_download(archive, tmp_path, folder):
    (tmp_path / "to/out").mkdir(parents=True)

    unpack(archive(*repository_at(f"./{folder}"), ("./a/b", "b")), "", tmp_path / "to/out")

    for place in [tmp_path / "to/out", *(one for one in (tmp_path / "to/out").rglob("*") if one.is_dir())]:
        environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path)}
        subprocess.run(["git", "status"], cwd=place, env=environment, capture_output=True, check=False, timeout=30)
    assert not list(tmp_path.rglob("CANARY"))


#: a file in the folder of each system other than Git whose settings or hooks name programs
FOREIGN = (
    *(".hg/hgrc", ".hg/sharedpath", ".sl/config", ".jj/repo/config.toml", ".jj/repo", ".bzr/branch/branch.conf"),
    *(".svn/wc.db", "_darcs/prefs/defaults", ".pijul/config", "_MTN/monotonerc", ".fslckout", "_FOSSIL_"),
    *(".repo/repo/main.py", ".HG/hgrc", "hg~1/hgrc", "JJ~1/repo/config.toml", ".h\u200cg/hgrc", ".hg./hgrc"),
)


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("folder", ["", "a/b/", "a\\"])
def test_no_repository_of_another_system_is_written(archive, tmp_path, caplog, name, folder):
    unpack(archive((f"{folder}{name}", "x"), ("b.txt", "b")), "", tmp_path / "out")

    assert files_in(tmp_path / "out") == {"b.txt"}
    assert "whose settings could run programs here" in caplog.text


@pytest.mark.parametrize("name", [".hgignore", ".hgtags", "hg", "repo", "darcs", "fossil", ".jjx", ".github/x", "hg~2"])
def test_a_name_that_only_resembles_another_systems_is_written(archive, tmp_path, name):
    assert unpack(archive((name, "x")), "", tmp_path / "out") == [tmp_path / "out" / name]


@pytest.mark.parametrize("name", [".hg", "a/.jj/repo", "link"])
def test_no_folder_of_another_system_is_the_place_of_a_download(archive, tmp_path, name):
    (tmp_path / "link").symlink_to("elsewhere/.hg")
    with pytest.raises(Unsafe, match="settings and hooks"):
        unpack(archive(("x/hgrc", "x")), "x", tmp_path / name)

    assert not (tmp_path / name).exists()


def test_no_file_is_written_through_a_symlink_to_the_persons_mercurial_folder(archive, tmp_path):
    (tmp_path / "out/.hg").mkdir(parents=True)
    (tmp_path / "out/link").symlink_to(".hg")

    with pytest.raises(Unsafe, match="symlink"):
        unpack(archive(("link/hgrc", "x")), "", tmp_path / "out")

    assert files_in(tmp_path / "out/.hg") == set()
