"""SECRET_KEY: made once where none is set, private, the same for every process, and a difference is said."""

import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from redis import Redis

from app import create_app
from settings import ConfigError
from settings.config import Config
from settings.data_dir import SECRET_KEY_FILE, make_secret_key
from store.link.secrets import DIFFERS
from tests.conftest import store_of
from tests.servers import agent_server, store_server
from tests.supervisor.conftest import LIMITS

ONE, OTHER = "one key of 16 or more", "another key of 16 or more"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_key_that_is_made_is_private_and_stays(tmp_path):
    data = tmp_path / "data"
    make_secret_key(str(data))
    made = (data / SECRET_KEY_FILE).read_text()
    (data / SECRET_KEY_FILE).chmod(0o644)

    make_secret_key(str(data))

    assert (data / SECRET_KEY_FILE).read_text() == made
    assert len(made.strip()) == 43
    assert (mode(data), mode(data / SECRET_KEY_FILE)) == (0o700, 0o600)
    assert [path.name for path in data.iterdir()] == [SECRET_KEY_FILE]


@pytest.mark.faults("a race of threads")
def test_of_several_processes_that_make_a_key_all_read_the_same(tmp_path):
    def read(_):
        make_secret_key(str(tmp_path))
        return (tmp_path / SECRET_KEY_FILE).read_text()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(read, range(16)))) == 1


def test_a_folder_that_cannot_keep_a_key_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError, match=r"DATA_DIR .*file cannot be used: .* unless SECRET_KEY is set"):
        make_secret_key(str(tmp_path / "file"))


def test_a_key_of_the_environment_comes_before_the_file(tmp_path, monkeypatch):
    make_secret_key(str(tmp_path))
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    monkeypatch.delenv("SECRET_KEY", raising=False)
    assert Config.from_env().redis.secret_key == (tmp_path / SECRET_KEY_FILE).read_text().strip()

    monkeypatch.setenv("SECRET_KEY", ONE)
    assert Config.from_env().redis.secret_keys == (ONE,)


@pytest.mark.parametrize("text", ["short", "\udcff" * 20])
def test_a_file_that_holds_no_key_is_a_sentence(tmp_path, monkeypatch, text):
    (tmp_path / SECRET_KEY_FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    monkeypatch.delenv("SECRET_KEY", raising=False)
    with pytest.raises(ConfigError):
        Config.from_env()


def test_several_keys_are_separated_by_commas_and_none_of_them_is_short():
    assert Config.of(secret_key=ONE).redis.secret_keys == (ONE,)
    assert Config.of(secret_key=f"{ONE}, {OTHER}").redis.secret_keys == (ONE, OTHER)
    assert Config.of(secret_key="x" * 16).redis.secret_keys == ("x" * 16,)
    for short in ("x" * 15, f"{ONE}, {'x' * 15}"):
        with pytest.raises(ConfigError, match="Each key of SECRET_KEY must have at least 16 characters"):
            Config.of(secret_key=short)


def fault_of(url: str, key: str) -> str | None:
    return store_of(url, LIMITS, key).link.seal_check.fault()


def test_a_host_with_another_key_is_told_and_changes_nothing(tmp_path):
    with store_server(tmp_path) as (url, _):
        assert fault_of(url, ONE) is None
        kept = Redis.from_url(url).get("seal_check")

        assert fault_of(url, OTHER) == DIFFERS

        assert Redis.from_url(url).get("seal_check") == kept
        assert fault_of(url, ONE) is None
        notice = create_app(Config.of(redis_url=url, secret_key=OTHER)).test_client().get("/server_info").get_json()
        assert DIFFERS in notice["notice"]


def test_after_a_rotation_the_host_that_kept_the_old_key_alone_is_told(tmp_path):
    with store_server(tmp_path) as (url, _):
        assert fault_of(url, ONE) is None
        assert fault_of(url, f"{OTHER},{ONE}") is None
        assert fault_of(url, ONE) == DIFFERS
        assert fault_of(url, f"{ONE},{OTHER}") is None


@pytest.mark.process("starts a server")
def test_a_server_makes_its_key_says_no_notice_and_keeps_secrets(tmp_path):
    data = tmp_path / "data"
    with agent_server(tmp_path / "log", REDIS_URL="", DATA_DIR=str(data), SECRET_KEY="") as (client, _):
        conversation = client.post("/api/conversations", json={"secrets": {"TOKEN": "hush"}})
        assert conversation.status_code == 201
        assert "SECRET_KEY" not in str(client.get("/server_info").json()["notice"])
    assert mode(data / SECRET_KEY_FILE) == 0o600
    assert not re.search((data / SECRET_KEY_FILE).read_text().strip(), (tmp_path / "log").read_text())


@pytest.mark.process("starts a server")
def test_a_server_with_another_key_warns_at_its_start(tmp_path):
    with store_server(tmp_path) as (url, _):
        assert fault_of(url, ONE) is None
        with agent_server(tmp_path / "log", REDIS_URL=url, SECRET_KEY=OTHER):
            pass
    assert DIFFERS in (tmp_path / "log").read_text()
