"""`python -m keys`: keys are made, listed and revoked where the store is, whether a server runs or not."""

import os
import subprocess
import sys

import pytest

from tests.servers import PROJECT, agent_server, redis_program, redis_server

ADMIN = "an-admin-key-of-the-settings"


@pytest.fixture
def keys(tmp_path):
    """Run the command on a folder; returns what it prints."""
    environment = {**os.environ, "REDIS_URL": "", "DATA_DIR": str(tmp_path / "data")}

    def run(*words: str, status: int = 0, **others: str) -> str:
        command = [sys.executable, "-m", "keys", *words]
        done = subprocess.run(command, cwd=PROJECT, env={**environment, **others}, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    return run


def is_opened_by(client, key: str) -> bool:
    return client.get("/api/conversations/count", headers={"Authorization": f"Bearer {key}"}).status_code == 200


def test_a_key_that_is_made_before_the_server_runs_opens_it(keys, tmp_path):
    redis_program()
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


def test_the_store_of_redis_url_is_used(keys, tmp_path):
    with redis_server(tmp_path) as (url, _):
        keys("make", "one", "--scope", "admin", REDIS_URL=url)
        assert keys("list", REDIS_URL=url).split("\t")[1] == "one"
    assert "the store does not answer" in keys("list", REDIS_URL=url, status=1)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("make", "a\nb", "--scope", "read"), "name"),
        (("make", "a", "--scope", "read", "--expires-at", "soon"), "expires_at"),
        (("make", "a", "--scope", "read", "--expires-at", "2020-01-01"), "Must lie in the future"),
        (("revoke", "unknown"), "Key not found"),
    ],
)
def test_what_cannot_be_done_is_told(keys, words, sentence):
    redis_program()
    assert sentence in keys(*words, status=1)
