"""Settings: documented, checked, and read in one place."""

import ast
import os
import subprocess
import sys
from dataclasses import fields

import pytest

from app import create_app
from core.prices import NO_BUDGETS, Budgets, ModelBudget
from docs import make
from settings import ConfigError, keeping
from settings.config import Config, groups
from settings.http import HttpSettings
from settings.keeping import ObjectsPlace
from settings.limits import SandboxLimits
from settings.redis import REDIS_SCHEMES
from store.link.connection import connect
from tests.refusals import is_refused, taken
from tests.servers import PROJECT


def test_the_page_of_settings_is_made_from_the_code():
    assert make.SETTINGS.read_text() == make.settings(), "run `make docs`"
    assert make.LIMITS.read_text() == make.limits(), "run `make docs`"


def test_every_setting_is_in_one_group_and_on_one_of_the_two_pages():
    names = [one.metadata["names"] or f"`{one.name.upper()}`" for group in groups().values() for one in fields(group)]
    pages = make.SETTINGS.read_text() + make.LIMITS.read_text()

    assert [name for name in names if pages.count(f"\n| {name} |") != 1 or names.count(name) != 1] == []


def test_settings_are_given_by_their_names_or_in_their_groups():
    in_groups = Config(http=HttpSettings(port=9000), sandboxes=SandboxLimits(max_sandboxes=3))

    assert Config.of(port=9000, max_sandboxes=3) == in_groups
    with pytest.raises(TypeError, match=r"^There is no setting max_sandbox$"):
        Config.of(port=9000, max_sandbox=3)


def test_an_empty_environment_gives_the_defaults(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # DATA_DIR, and a key in it, are relative to it
    of_keys = ("SESSION_API_KEY", "SESSION_API_KEYS", "OH_SESSION_API_KEYS_0")
    for name in ("HOST", "PORT", "WEB_CONCURRENCY", "REDIS_URL", "DATA_DIR", "LOG_FORMAT", "AGENTS_DIR", *of_keys):
        monkeypatch.setenv(name, "")

    assert Config.from_env() == Config()


def test_values_are_read_with_their_types(monkeypatch):
    monkeypatch.setenv("PORT", "9000")
    monkeypatch.setenv("REDIS_TIMEOUT", "0.5")
    monkeypatch.setenv("REDIS_URL", "redis://somewhere:1/2")

    config = Config.from_env()

    assert (config.http.port, config.redis.redis_timeout, config.redis.redis_url) == (
        9000,
        0.5,
        "redis://somewhere:1/2",
    )


def test_keys_are_read_from_every_variable_and_from_the_file_each_once(monkeypatch, tmp_path):
    (tmp_path / "key").write_text("key-of-the-file-0\n")
    for name, value in {
        "DATA_DIR": str(tmp_path),
        "SESSION_API_KEY": "one-key-with-a,comma",
        "SESSION_API_KEYS": "key-of-the-list-1, key-of-the-list-2,",
        "OH_SESSION_API_KEYS_0": "key-of-the-list-1",
        "OH_SESSION_API_KEYS_1": "key-of-a-number-1",
        "OH_SESSION_API_KEYS_2": "",
    }.items():
        monkeypatch.setenv(name, value)

    assert Config.from_env().access.api_keys == (
        "one-key-with-a,comma",
        "key-of-the-list-1",
        "key-of-the-list-2",
        "key-of-a-number-1",
        "key-of-the-file-0",
    )


def test_a_file_that_holds_no_key_is_refused_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    for content in (b"", b"\n", b"short\n", b"a-key-and-another\na-key-and-another\n", b"\xff" * 20):
        (tmp_path / "key").write_bytes(content)
        with pytest.raises(ConfigError, match=f"^{tmp_path}/key "):
            Config.from_env()


def test_no_refusal_of_a_key_shows_it(monkeypatch):
    monkeypatch.setenv("SESSION_API_KEY", "hush hush hush hush")

    with pytest.raises(ConfigError) as refusal:
        Config.from_env()

    assert "hush" not in repr(refusal.value)


def test_lists_of_hosts_origins_and_proxies_are_read_with_commas(monkeypatch):
    monkeypatch.setenv("ALLOWED_HOSTS", "example.org, *.example.org ,*,b\u00fccher.de,[::1],127.0.0.1,")
    monkeypatch.setenv("ALLOWED_ORIGINS", "https://app.example.org,vscode-webview://id,http://[::1]:3000")
    monkeypatch.setenv("TRUSTED_PROXIES", "127.0.0.1,10.0.0.0/8,fd00::/8")

    config = Config.from_env()

    assert len(config.http.allowed_hosts) == 6
    assert len(config.http.allowed_origins) == len(config.http.trusted_proxies) == 3


OPEN = [
    ({}, True),
    ({"host": "localhost"}, True),
    ({"host": "::1"}, True),
    ({"host": "0.0.0.0"}, False),
    ({"host": "::"}, False),
    ({"host": "192.168.0.1"}, False),
    ({"host": "some-name"}, False),
    ({"api_keys": ("a-key-for-tests-only",)}, False),
    ({"auth": "keys"}, False),
    ({"auth": "open", "host": "0.0.0.0", "api_keys": ("a-key-for-tests-only",)}, True),
]


def test_an_app_that_no_master_has_settled_needs_keys_unless_it_is_on_loopback_without_any():
    assert [(given, Config.of(**given).is_open) for given, _ in OPEN] == OPEN


def test_the_repr_of_settings_shows_no_secret():
    config = Config.of(
        redis_url="redis://user:a-password@host", secret_key="a secret of sixteen", api_keys=("a-secret-key-of-twenty",)
    )

    assert "a-password" not in repr(config)
    assert "a secret" not in repr(config)
    assert "a-secret" not in repr(config)
    assert "port=8000" in repr(config)


BAD = [
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
    ("SANDBOX_USERS", "100000", "FIRST-LAST"),
    ("SANDBOX_USERS", "0-65535", "from 1000 to"),
    ("SANDBOX_USERS", "200000-100000", "or none"),
    ("SANDBOX_USERS", "1000-4294967295", "from 1000 to"),
    ("SANDBOX_PORTS", "80-90", "from 1024 to 65535"),
    ("SANDBOX_PORTS", "30000-20000", "FIRST-LAST"),
    ("SANDBOX_PORTS", "20000-70000", "from 1024 to 65535"),
    ("AUTH", "none", "auto, keys or open"),
    ("SESSION_API_KEY", "x" * 15, "from 16 to 512 characters"),
    ("SESSION_API_KEY", "x" * 513, "from 16 to 512 characters"),
    ("SESSION_API_KEY", "sixteen characters and blanks", "without blanks"),
    ("SESSION_API_KEY", " a-key-with-a-blank-before", "without blanks"),
    ("SESSION_API_KEY", "schlüssel-schlüssel", "printable ASCII"),
    ("SESSION_API_KEY", "a-key-with-a-bell\a", "printable ASCII"),
    ("SESSION_API_KEYS", "a-key-that-is-long-enough,short", "from 16 to 512 characters"),
    ("SESSION_API_KEYS", " , ", "from 16 to 512 characters"),
    ("OH_SESSION_API_KEYS_0", "short", "from 16 to 512 characters"),
    ("OH_SESSION_API_KEYS_1", "a-key-that-is-long-enough", "OH_SESSION_API_KEYS_0"),
    ("OH_SESSION_API_KEYS", "a-key-that-is-long-enough", "OH_SESSION_API_KEYS_0"),
    ("ALLOWED_HOSTS", "example.org,https://example.org", "host names without ports"),
    ("ALLOWED_HOSTS", "example.org:8000", "host names without ports"),
    ("ALLOWED_HOSTS", "example.*", "host names without ports"),
    ("ALLOWED_HOSTS", "*.*.org", "host names without ports"),
    ("ALLOWED_HOSTS", "\u2024.\u2024", "host names without ports"),
    ("ALLOWED_ORIGINS", "*", "origins such as"),
    ("ALLOWED_ORIGINS", "null", "origins such as"),
    ("ALLOWED_ORIGINS", "https://*.example.org", "origins such as"),
    ("ALLOWED_ORIGINS", "app.example.org", "origins such as"),
    ("ALLOWED_ORIGINS", "https://app.example.org/", "origins such as"),
    ("TRUSTED_PROXIES", "1", "addresses or networks"),
    ("TRUSTED_PROXIES", "10.0.0.1/8", "addresses or networks"),
    ("TRUSTED_PROXIES", "proxy.example", "addresses or networks"),
    ("REDIS_URL", "http://localhost", "redis://, rediss://, unix://"),
    ("REDIS_URL", "localhost:6379", "redis://, rediss://, unix://"),
]


def test_a_bad_value_is_refused_with_a_sentence_that_names_it(monkeypatch):
    def is_named(name: str, value: str, allowed: str) -> bool:
        with monkeypatch.context() as environment:
            environment.setenv(name, value)
            return is_refused(Config.from_env, error=ConfigError, words=f"^{name} must .*{allowed}")

    assert [row for row in BAD if not is_named(*row)] == []


@pytest.mark.process("starts a program")
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


def test_every_scheme_that_is_allowed_is_known():
    for scheme in set(REDIS_SCHEMES) - {"redis+cluster"}:
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

    assert set(readers) == {"gunicorn.conf.py"}  # which writes the store's URL and AUTH for the workers


def settings(**given) -> Config:
    return Config.of(redis_url="redis://unused", **given)


PLACES = [
    ("", None),
    ("file:///var/lib/cold", ObjectsPlace(None, "/var/lib/cold")),
    ("file:///var/with%20blank/", ObjectsPlace(None, "/var/with blank/")),
    ("s3://bucket", ObjectsPlace("bucket", "")),
    ("s3://bucket/", ObjectsPlace("bucket", "")),
    ("s3://my.bucket-1/agents/cold", ObjectsPlace("my.bucket-1", "agents/cold/")),
    ("s3://bucket/agents/", ObjectsPlace("bucket", "agents/")),
]


def test_a_url_names_a_folder_or_a_prefix_in_a_bucket():
    assert [(url, settings(cold_url=url).keeping.cold_place) for url, _ in PLACES] == PLACES


NO_PLACES = [
    *("cold", "/var/lib/cold", "http://host/cold", "file:", "file:///", "file://host/cold"),
    *("file:///a?b", "file:///a#b"),
    *("file:///a/../b", "file:///%2e%2e/b", "file:///a%00", "file:///./a"),
    *("s3:", "s3://", "s3:///cold", "s3://B", "s3://Bucket/x", "s3://bucket/../x", "s3://bucket//x"),
    "s3://bucket/x?y",
    *("s3://key:secret@bucket", "s3://bucket:9000/x", "s3://[bucket/x", "s3://bucket/a b"),
]


def test_any_other_url_is_refused():
    sentence = r"^COLD_URL must be file:///FOLDER or s3://BUCKET/PREFIX, not "
    assert taken(NO_PLACES, lambda url: settings(cold_url=url), ConfigError, sentence) == []


def test_days_without_a_place_are_refused():
    with pytest.raises(ConfigError, match=r"^COLD_DAYS needs a COLD_URL$"):
        settings(cold_days=30)


WRONG = [
    ({"cold_days": -1}, "^COLD_DAYS must be from 0 to 36500"),
    ({"cold_max_bytes": 10}, "^COLD_MAX_BYTES must be from 1024 to 17179869184"),
    ({"cold_s3_endpoint": "minio:9000"}, "^COLD_S3_ENDPOINT must be a URL such as http://minio:9000"),
    ({"cold_s3_endpoint": "ftp://minio"}, "^COLD_S3_ENDPOINT must be"),
    ({"cold_s3_endpoint": "http://minio/path"}, "^COLD_S3_ENDPOINT must be"),
]


def test_a_wrong_value_is_refused_by_name():
    def is_named(given: dict, sentence: str) -> bool:
        return is_refused(lambda: settings(cold_url="file:///var/lib/cold", **given), error=ConfigError, words=sentence)

    assert [row for row in WRONG if not is_named(*row)] == []


def test_a_bucket_without_boto3_refuses_the_start_and_says_what_to_install(monkeypatch):
    monkeypatch.setattr(keeping, "find_spec", lambda _: None)

    with pytest.raises(ConfigError, match=r"needs the package boto3: pip install -r requirements/s3\.txt$"):
        settings(cold_url="s3://bucket/cold")
    settings(cold_url="file:///var/lib/cold")


@pytest.mark.process("starts a program")
def test_the_settings_load_no_client_of_s3():
    code = "import sys; from settings.config import Config; Config.of(cold_url='s3://bucket')"
    code += "; print('boto3' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)

    assert found.stdout == "False\n"


def test_prices_of_models_are_read_and_the_entry_that_is_none_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODEL_PRICES", "qwen3:32b=0/0, mine=0.5/1.5/0.05")
    assert Config.from_env().models.model_prices == "qwen3:32b=0/0, mine=0.5/1.5/0.05"

    monkeypatch.setenv("MODEL_PRICES", "qwen3:32b=0/0, mine=cheap")
    with pytest.raises(ConfigError, match=r"^MODEL_PRICES must be entries MODEL=INPUT/OUTPUT .*, not 'mine=cheap'$"):
        Config.from_env()


def test_budgets_of_models_are_read_and_the_setting_that_is_none_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert Config.from_env().models.budgets == NO_BUDGETS
    monkeypatch.setenv("MODEL_BUDGET_KEY", "5, 2000000 tokens")
    assert Config.from_env().models.budgets == Budgets(key=ModelBudget(5_000_000_000, 2_000_000))

    monkeypatch.setenv("MODEL_BUDGET_DAY", "much")
    with pytest.raises(ConfigError, match=r"^MODEL_BUDGET_DAY must be DOLLARS, .*, not 'much'$"):
        Config.from_env()


@pytest.mark.parametrize(
    ("host", "more"),
    [
        ("localhost", {}),
        ("127.0.0.1", {}),
        ("preview.example.org:8000", {}),
        ("*.example.org", {}),
        ("Preview.example.org", {}),
        ("example.org", {"allowed_hosts": ("agents.example.org",)}),
        ("example.org", {"allowed_hosts": ("*.example.org",)}),
        ("agents.example.org", {"public_url": "https://agents.example.org/"}),
    ],
)
def test_the_host_of_previews_is_a_domain_and_not_that_of_the_server(host, more):
    with pytest.raises(ConfigError, match="PREVIEW_HOST"):
        Config.of(preview_host=host, **more)
    Config.of(preview_host="preview.example.org", allowed_hosts=("agents.example.org",))
