"""`agentctl download`, and nothing on this machine is replaced unasked."""

import tarfile
from io import BytesIO
from uuid import uuid4

import httpx
import pytest
from agent_server_client.archives import zstd
from agent_server_client.cli import agentctl, folders
from agent_server_client.cli.program import CommandSession
from click.testing import CliRunner

from tests.client.responses import responding

ID = str(uuid4())


def archive(**files) -> bytes:
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name.replace("__", "/"))
            member.size = len(content)
            tar.addfile(member, BytesIO(content))
    return zstd.compress(packed.getvalue())


@pytest.fixture
def ctl(monkeypatch):
    """Runs agentctl against a sandbox with some files."""

    def run(*words, code=0, **files):
        answers = [httpx.Response(200, json=[{"sandbox_id": "box"}]), httpx.Response(200, content=archive(**files))]
        client, _ = responding(*answers * 2)
        monkeypatch.setattr(CommandSession, "client", lambda *_, **__: client)
        result = CliRunner().invoke(agentctl, words, prog_name="agentctl")
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


def test_a_dash_is_the_standard_output_byte_by_byte(ctl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = bytes(range(256))
    assert ctl("download", ID, "a", "-", a=content).stdout_bytes == content
    assert list(tmp_path.iterdir()) == []
    assert "is a folder" in ctl("download", ID, "folder", "-", code=2, folder__a=b"1", folder__b=b"2").stderr
    assert "prints one file" in ctl("download", ID, "a", "-", "--json", code=2, a=b"").stderr


def test_a_file_that_is_there_is_replaced_by_force_alone_where_nobody_can_be_asked(ctl, tmp_path):
    there = tmp_path / "a"
    there.write_text("mine")

    refused = ctl("download", ID, "a", str(there), code=2, a=b"theirs")
    assert f"This would replace {there}. Give --force" in " ".join(refused.stderr.split())
    assert there.read_text() == "mine"
    ctl("download", ID, "a", str(tmp_path), code=2, a=b"theirs")
    ctl("download", ID, "", str(tmp_path), code=2, a=b"theirs", b=b"new")
    assert not (tmp_path / "b").exists()

    ctl("download", ID, "a", str(there), "--force", a=b"theirs")
    assert there.read_text() == "theirs"


def test_a_folder_that_is_there_takes_new_files_unasked(ctl, tmp_path):
    (tmp_path / "mine").write_text("mine")
    ctl("download", ID, "", str(tmp_path), a=b"new", folder__b=b"new")
    assert {one.name for one in tmp_path.iterdir()} == {"mine", "a", "folder"}


@pytest.mark.parametrize(("says", "code", "content"), [(True, 0, "theirs"), (False, 1, "mine")])
def test_a_person_is_asked_and_the_files_are_named(ctl, tmp_path, monkeypatch, says, code, content):
    asked = []
    monkeypatch.setattr(folders, "agrees", lambda _, question: asked.append(question) or says)
    monkeypatch.setattr(folders, "is_asked", lambda: True)
    there = tmp_path / "a"
    there.write_text("mine")

    ctl("download", ID, "a", str(there), code=code, a=b"theirs")

    assert asked == [f"Replace {there}?"]
    assert there.read_text() == content


def test_a_run_that_nobody_watches_begins_only_where_its_files_replace_none(ctl, tmp_path):
    (tmp_path / "mine").write_text("mine")
    assert "Give --force, or another folder" in ctl("run", "x", "--pull", str(tmp_path), code=2).stderr
