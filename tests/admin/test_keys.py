"""`python -m admin keys`: keys are made, listed and revoked where the store is, whether a server runs or not."""

import io
import os
import subprocess
import sys
from uuid import uuid4

import pytest

from admin import keys as command
from tests.servers import PROJECT, agent_server, store_server, valkey_program

ADMIN = "an-admin-key-of-the-settings"


@pytest.fixture
def keys(tmp_path):
    """Run the command on a folder; returns what it prints."""
    environment = {**os.environ, "REDIS_URL": "", "DATA_DIR": str(tmp_path / "data")}

    def run(*words: str, status: int = 0, **others: str) -> str:
        command = [sys.executable, "-m", "admin", "keys", *words]
        done = subprocess.run(command, cwd=PROJECT, env={**environment, **others}, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    return run


@pytest.fixture
def here(redis_url, monkeypatch, capsys):
    """Run the command in this process; returns its status and what it prints."""
    monkeypatch.setenv("REDIS_URL", redis_url)

    def run(*words: str) -> tuple[int, str]:
        status = command.main([*words])
        printed = capsys.readouterr()
        return status, printed.err if status else printed.out

    return run


def test_a_key_is_made_listed_and_revoked(here, app):
    name = uuid4().hex
    status, key = here("make", name, "--scope", "read", "--scope", "write")
    assert status == 0
    assert app.extensions["server"].store.access.keys.find(key.strip()).scopes == {"read", "write"}

    [line] = [line for line in here("list")[1].splitlines() if name in line]
    assert line.split("\t")[1:3] == [name, "read,write"]
    assert key.strip() not in line
    assert here("revoke", line.split("\t")[0]) == (0, "")
    assert name not in here("list")[1]


def warned(capsys, *words: str) -> tuple[int, bool]:
    """The status of the command, and whether it warns of a first key that is no admin's."""
    status = command.main(["make", uuid4().hex, *words])
    return status, "keys make me --scope admin" in capsys.readouterr().err


def test_the_first_key_of_an_open_server_is_made_with_a_warning(redis_url, monkeypatch, capsys, app):
    monkeypatch.setenv("REDIS_URL", redis_url)
    for key in app.extensions["server"].store.access.keys.all():
        app.extensions["server"].store.access.keys.revoke(key.id)

    assert warned(capsys, "--scope", "read") == (0, True)
    with monkeypatch.context() as patch:
        patch.setenv("AUTH", "open")
        assert warned(capsys, "--scope", "read") == (0, False)
    assert warned(capsys, "--scope", "admin") == (0, False)
    assert warned(capsys, "--scope", "read") == (0, False)


class Typed(io.StringIO):
    """A terminal at which a line was typed, or that shows what is printed."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "status"), [("y\n", 0), ("\n", 1), ("", 1)])
def test_a_person_at_a_terminal_is_asked_before_the_first_key(redis_url, monkeypatch, app, typed, status):
    keys = app.extensions["server"].store.access.keys
    for key in keys.all():
        keys.revoke(key.id)
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.setattr(sys, "stdin", Typed(typed))
    monkeypatch.setattr(sys, "stderr", shown := Typed())

    assert command.main(["make", "ci", "--scope", "read"]) == status
    assert "Make the key ci all the same? [y/N]" in shown.getvalue()
    assert len(keys.all()) == 1 - status


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("make", "a\nb", "--scope", "read"), "name"),
        (("make", "a", "--scope", "read", "--expires-at", "soon"), "expires_at"),
    ],
)
def test_a_key_that_cannot_be_made_is_told(here, words, sentence):
    status, told = here(*words)
    assert (status, sentence in told) == (1, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("make", "a", "--scope", "read", "--expires-at", "2020-01-01"), "Must lie in the future"),
        (("revoke", "unknown"), "Key not found. Those that are there: "),
    ],
)
def test_what_the_store_refuses_is_done_by_none(here, words, sentence):
    status, told = here(*words)
    assert (status, sentence in told) == (1, True)


def is_opened_by(client, key: str) -> bool:
    return client.get("/api/conversations/count", headers={"Authorization": f"Bearer {key}"}).status_code == 200


@pytest.mark.process("starts five programs and a server")
def test_a_key_that_is_made_before_the_server_runs_opens_it(keys, tmp_path):
    valkey_program()
    key = keys("make", "first", "--scope", "read").strip()
    settings = {"REDIS_URL": "", "DATA_DIR": str(tmp_path / "data"), "SESSION_API_KEY": ADMIN}
    with agent_server(tmp_path / "log", **settings) as (client, _):
        assert is_opened_by(client, key)

        # While the server runs, the same store is used
        second = keys("make", "second", "--scope", "read", "--scope", "write").strip()
        assert is_opened_by(client, second)
        newest, oldest = keys("list").splitlines()
        assert newest.split("\t")[1:3] == ["second", "read,write"]
        assert second not in newest

        keys("revoke", oldest.split("\t")[0])
        assert len(keys("list").splitlines()) == 1
        assert [path.name for path in (tmp_path / "data").iterdir() if path.stat().st_mode & 0o077] == []


@pytest.mark.process("starts three programs")
def test_the_store_of_redis_url_is_used(keys, tmp_path):
    with store_server(tmp_path) as (url, _):
        keys("make", "one", "--scope", "admin", REDIS_URL=url)
        assert keys("list", REDIS_URL=url).split("\t")[1] == "one"
    assert "the store does not answer" in keys("list", REDIS_URL=url, status=1)


@pytest.mark.process("starts a program and an embedded store")
def test_what_cannot_be_done_ends_the_program_with_a_sentence(keys):
    valkey_program()
    assert "Key not found" in keys("revoke", "unknown", status=1)
    assert "Must lie in the future" in keys("make", "a", "--scope", "read", "--expires-at", "2020-01-01", status=1)


def test_a_second_key_of_a_name_is_made_with_a_word_about_the_first(here, capsys):
    name = uuid4().hex
    command.main(["make", name, "--scope", "admin"])
    assert "another key has this name" not in capsys.readouterr().err
    command.main(["make", name, "--scope", "admin"])
    said = capsys.readouterr()
    assert "another key has this name and stays" in said.err
    assert "keys revoke" in said.err
    assert said.out.startswith("key_")
