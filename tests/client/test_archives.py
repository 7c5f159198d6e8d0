"""A folder that goes into a sandbox, and files that come out of one."""

import io
import subprocess
import tarfile

import pytest
from agent_server_client import AgentServerError
from agent_server_client.archives import Unsafe, clone, pack, unpack

from supervisor.archives import compressed
from tests.client.archive_files import archive as archive


def names_of(folder) -> set[str]:
    file = io.BytesIO()
    pack(folder, file)
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
        return {member.name for member in tar}


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    for name, text in {"a.py": "1", "b.py": "2", ".env": "KEY=1", ".gitignore": ".env\n"}.items():
        (folder / name).write_text(text)
    for words in ("init -q", "add a.py", "-c user.name=n -c user.email=e commit -qm first", "config alias.x !rm"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
    (folder / ".git/hooks/pre-commit").write_text("#!/bin/sh\n")
    return folder


def test_an_archive_that_was_cut_short_or_damaged_is_one_error(archive, tmp_path):
    whole = archive(("a.txt", "1" * 5000), ("b.txt", "2" * 5000)).read_bytes()
    cut_tar = b"".join(compressed([b"\0" * 100]))
    for broken in (whole[:-10], whole[:30], b"no archive", b"", cut_tar):
        file = tmp_path / "broken.tar.zst"
        file.write_bytes(broken)

        with pytest.raises(AgentServerError, match="cut short or is damaged") as failed:
            unpack(file, "", tmp_path / "to")
        assert failed.value.status is None


@pytest.mark.process("starts a program")
def test_a_repository_goes_without_what_is_ignored_and_without_its_hooks(repository):
    names = names_of(repository)

    assert {"./a.py", "./b.py", "./.gitignore", "./.git/HEAD", "./.git/config"} <= names
    assert "./.env" not in names
    assert not [name for name in names if "hooks" in name]


@pytest.mark.process("starts a program")
def test_a_repository_has_its_history_in_the_sandbox_and_none_of_its_settings(repository, tmp_path):
    file = io.BytesIO()
    pack(repository, file)
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
        tar.extractall(tmp_path / "there")

    run = {"cwd": tmp_path / "there", "capture_output": True, "text": True}
    assert "first" in subprocess.run(["git", "log", "--oneline"], check=True, **run).stdout
    (tmp_path / "there/.agent-server").mkdir()
    (tmp_path / "there/.agent-server/events").write_text("of the agent")
    assert subprocess.run(["git", "status", "--short"], check=True, **run).stdout == "?? .gitignore\n?? b.py\n"
    assert subprocess.run(["git", "config", "--local", "alias.x"], check=False, **run).stdout == ""


@pytest.mark.process("starts a program")
def test_a_url_is_cloned_and_what_looks_like_an_option_is_none(repository, tmp_path):
    clone(str(repository), tmp_path / "clone")
    assert (tmp_path / "clone/a.py").read_text() == "1"
    with pytest.raises(subprocess.CalledProcessError):
        clone("--upload-pack=touch /tmp/x", tmp_path / "other")


def test_a_plain_folder_goes_whole(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").write_text("c")
    assert names_of(tmp_path) == {"./a", "./a/b", "./a/b/c"}


def test_both_names_of_a_hard_linked_file_are_packed(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert names_of(tmp_path) == {"./a", "./b"}


def test_all_files_come_out_but_no_git_and_no_record_of_the_agent(archive, tmp_path):
    path = archive(("./a", "1"), ("./d/.GIT/config", "x"), ("./.git/hooks/pre-commit", "x"), ("./.agent-server/e", "x"))

    assert unpack(path, "", tmp_path / "out") == [tmp_path / "out/a"]
    assert [one.name for one in (tmp_path / "out").rglob("*")] == ["a"]


def test_a_file_and_a_folder_come_out_by_their_paths(archive, tmp_path):
    path = archive(("./a/b/c", "c"), ("./a/bc", "other"), ("./a/b/d", "d"))

    assert unpack(path, "a/b/c", tmp_path / "c") == [tmp_path / "c"]
    assert unpack(path, "./a/b", tmp_path / "b") == [tmp_path / "b/c", tmp_path / "b/d"]
    assert (tmp_path / "c").read_text() == "c"
    with pytest.raises(AgentServerError, match="a/x"):
        unpack(path, "a/x", tmp_path / "x")


@pytest.mark.parametrize("name", ["../up", "/etc/absolute", "a/../../up"])
def test_a_name_that_leads_out_is_refused(archive, tmp_path, name):
    with pytest.raises(Unsafe):
        unpack(archive((name, "x")), "", tmp_path / "out")
    assert not (tmp_path / "up").exists()


def test_names_that_only_begin_with_two_dots_come_out(archive, tmp_path):
    unpack(archive(("..data/a", "1"), ("..b", "2")), "", tmp_path / "to")
    unpack(archive(("..data/a", "1"), ("..b", "2")), "..b", tmp_path / "b")

    assert (tmp_path / "to/..data/a").read_text() == "1"
    assert (tmp_path / "b").read_text() == (tmp_path / "to/..b").read_text() == "2"


def test_no_link_is_written_and_none_is_followed(archive, tmp_path):
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out/here").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out/file").symlink_to(tmp_path / "elsewhere/file")

    assert unpack(archive(link, ("file", "x")), "", tmp_path / "out") == [tmp_path / "out/file"]
    assert not (tmp_path / "out/file").is_symlink()
    assert not (tmp_path / "out/link").exists()
    with pytest.raises(Unsafe, match="symlink"):
        unpack(archive(("here/x", "x")), "", tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []
