"""Each place of objects: a folder, and a bucket of a real S3 server."""

import pytest

from settings.config import Config
from store.objects import open_objects
from tests.s3 import BUCKET, aws, s3_server

__all__ = ["aws"]


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(request, aws, s3):
    """A place in the bucket that no other test has."""
    settings = {"cold_url": f"s3://{BUCKET}/{abs(hash(request.node.name))}", "cold_s3_endpoint": s3.url}
    return open_objects(Config.of(redis_url="redis://unused", **settings).keeping)


@pytest.fixture
def folder(tmp_path):
    return open_objects(Config.of(redis_url="redis://unused", cold_url=f"file://{tmp_path}/cold").keeping)


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.process("starts an S3 server"))])
def place(request):
    return request.getfixturevalue(request.param)
