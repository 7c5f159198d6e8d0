"""Settings: documented, checked, and read in one place."""

import ast
import os
import subprocess
import sys

import pytest

from app import create_app
from config import REDIS_SCHEMES, Config, ConfigError
from docs import make
from store.connection import connect
from tests.servers import PROJECT


def test_the_page_of_settings_is_made_from_the_code():
    assert make.SETTINGS.read_text() == make.settings(), "run `make docs`"


def test_an_empty_environment_gives_the_defaults(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where no server has made a key
    for name in ("HOST", "PORT", "WEB_CONCURRENCY", "REDIS_URL", "DATA_DIR"):
        monkeypatch.setenv(name, "")

    assert Config.from_env() == Config()


def test_values_are_read_with_their_types(monkeypatch):
    monkeypatch.setenv("PORT", "9000")
    monkeypatch.setenv("REDIS_TIMEOUT", "0.5")
    monkeypatch.setenv("REDIS_URL", "redis://somewhere:1/2")

    config = Config.from_env()

    assert (config.port, config.redis_timeout, config.redis_url) == (9000, 0.5, "redis://somewhere:1/2")


def test_the_repr_of_settings_shows_no_secret():
    config = Config(redis_url="redis://user:a-password@host", secret_key="a secret of sixteen")

    assert "a-password" not in repr(config)
    assert "a secret" not in repr(config)
    assert "port=8000" in repr(config)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("PORT", "http", "a whole number"),
        ("PORT", "0", "from 1 to 65535"),
        ("PORT", "65536", "from 1 to 65535"),
        ("WEB_CONCURRENCY", "-1", "from 0 to 1024"),
        ("REDIS_TIMEOUT", "soon", "a number"),
        ("REDIS_TIMEOUT", "nan", "a number"),
        ("REDIS_TIMEOUT", "0", "from 0.05 to 60"),
        ("REDIS_CONNECTIONS", "0", "from 1 to 10000"),
        ("MAX_BODY_BYTES", "5", "at least 1024"),
        ("TEXT_CACHE_BYTES", "-5", "at least 0"),
        ("LOG_LEVEL", "loud", "debug, info, warning, error or critical"),
        ("ORPHAN_SECONDS", "0", "from 1 to"),
        ("SANDBOX_PORTS", "20000", "FIRST-LAST"),
        ("SANDBOX_PORTS", "80-90", "from 1024 to 65535"),
        ("SANDBOX_PORTS", "30000-20000", "FIRST-LAST"),
        ("SANDBOX_PORTS", "20000-70000", "from 1024 to 65535"),
        ("REDIS_URL", "http://localhost", "redis://, rediss://, unix://"),
        ("REDIS_URL", "localhost:6379", "redis://, rediss://, unix://"),
    ],
)
def test_a_bad_value_is_refused_with_a_sentence_that_names_it(monkeypatch, name, value, allowed):
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigError, match=f"^{name} must .*{allowed}"):
        Config.from_env()


def test_a_bad_value_stops_the_start():
    start = subprocess.run(
        [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"],
        cwd=PROJECT,
        env={**os.environ, "PORT": "x"},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert start.returncode != 0
    assert start.stderr.strip() == "agent-server: PORT must be a whole number, not 'x'"


def test_the_app_alone_wants_a_redis():
    with pytest.raises(ConfigError, match="REDIS_URL is not set"):
        create_app(Config())


@pytest.mark.parametrize("scheme", [scheme for scheme in REDIS_SCHEMES if scheme != "redis+cluster"])
def test_every_scheme_that_is_allowed_is_known(scheme):
    connect(f"{scheme}://127.0.0.1:1/name", timeout=1, max_connections=1)


def test_an_unknown_scheme_is_refused():
    with pytest.raises(ValueError, match="'http'"):
        connect("http://127.0.0.1:1", timeout=1, max_connections=1)


def test_no_other_module_reads_the_environment():
    readers = [
        path.name
        for folder in (".", "blueprints", "schemas", "store")
        for path in (PROJECT / folder).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    ]

    assert readers == ["gunicorn.conf.py"]  # which writes the embedded store's URL for the workers
