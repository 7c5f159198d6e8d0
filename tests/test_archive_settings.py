"""The settings of the archive: what they allow, and what refuses the start."""

import subprocess
import sys

import pytest

import settings.archive as archive_settings
from config import Config, ConfigError
from settings.archive import Place
from tests.servers import PROJECT


def settings(**given) -> Config:
    return Config(redis_url="redis://unused", **given)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("", None),
        ("file:///var/lib/cold", Place(None, "/var/lib/cold")),
        ("file:///var/with%20blank/", Place(None, "/var/with blank/")),
        ("s3://bucket", Place("bucket", "")),
        ("s3://bucket/", Place("bucket", "")),
        ("s3://my.bucket-1/agents/cold", Place("my.bucket-1", "agents/cold/")),
        ("s3://bucket/agents/", Place("bucket", "agents/")),
    ],
)
def test_a_url_names_a_folder_or_a_prefix_in_a_bucket(url, place):
    assert settings(archive_url=url).archive_place == place


@pytest.mark.parametrize(
    "url",
    [
        *("cold", "/var/lib/cold", "http://host/cold", "file:", "file:///", "file://host/cold"),
        *("file:///a?b", "file:///a#b"),
        *("file:///a/../b", "file:///%2e%2e/b", "file:///a%00", "file:///./a"),
        *("s3:", "s3://", "s3:///cold", "s3://B", "s3://Bucket/x", "s3://bucket/../x", "s3://bucket//x"),
        "s3://bucket/x?y",
        *("s3://key:secret@bucket", "s3://bucket:9000/x", "s3://[bucket/x", "s3://bucket/a b"),
    ],
)
def test_any_other_url_is_refused(url):
    with pytest.raises(ConfigError, match=r"^ARCHIVE_URL must be file:///FOLDER or s3://BUCKET/PREFIX, not "):
        settings(archive_url=url)


def test_days_without_a_place_are_refused():
    with pytest.raises(ConfigError, match=r"^ARCHIVE_DAYS needs an ARCHIVE_URL$"):
        settings(archive_days=30)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"archive_days": -1}, "^ARCHIVE_DAYS must be from 0 to 36500"),
        ({"archive_max_bytes": 10}, "^ARCHIVE_MAX_BYTES must be from 1024 to 536870912"),
        ({"archive_s3_endpoint": "minio:9000"}, "^ARCHIVE_S3_ENDPOINT must be a URL such as http://minio:9000"),
        ({"archive_s3_endpoint": "ftp://minio"}, "^ARCHIVE_S3_ENDPOINT must be"),
        ({"archive_s3_endpoint": "http://minio/path"}, "^ARCHIVE_S3_ENDPOINT must be"),
    ],
)
def test_a_wrong_value_is_refused_by_name(given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        settings(archive_url="file:///var/lib/cold", **given)


def test_a_bucket_without_boto3_refuses_the_start_and_says_what_to_install(monkeypatch):
    monkeypatch.setattr(archive_settings, "find_spec", lambda _: None)

    with pytest.raises(ConfigError, match=r"needs the package boto3: pip install -r requirements-s3\.txt$"):
        settings(archive_url="s3://bucket/cold")
    settings(archive_url="file:///var/lib/cold")


def test_the_settings_load_no_client_of_s3():
    code = "import config; config.Config(archive_url='s3://bucket'); import sys; print('boto3' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)

    assert found.stdout == "False\n"
