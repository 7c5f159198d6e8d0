"""Real servers for tests of streams: one whose store a test may stop, and one that needs a key."""

import pytest

from config import Config
from tests.servers import agent_server, redis_server
from tests.test_access import ADMIN, bearer
from wiring import open_store_of


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A folder, the URL of a Redis and its process."""
    folder = tmp_path_factory.mktemp("store")
    with redis_server(folder) as (url, process):
        yield folder, url, process


@pytest.fixture(scope="module")
def server(store):
    folder, url, _ = store
    with agent_server(folder / "log", REDIS_URL=url, PING_SECONDS="1", FOLLOWER_BYTES="65536") as (client, _):
        yield client


@pytest.fixture
def keyed_url(tmp_path):
    """The URL of a Redis for one test."""
    with redis_server(tmp_path) as (url, _):
        yield url


@pytest.fixture
def keyed_store(keyed_url):
    """The store of the server that needs a key."""
    return open_store_of(Config(redis_url=keyed_url, redis_timeout=10, secret_key="a key for tests only"))


@pytest.fixture
def keyed(tmp_path, keyed_url):
    """A server of one worker with a store of its own that needs a key, and lets each follow once."""
    settings = {"SESSION_API_KEY": ADMIN, "WEB_CONCURRENCY": "1", "MAX_FOLLOWERS_PER_KEY": "1"}
    with agent_server(tmp_path / "log", REDIS_URL=keyed_url, **settings) as (client, _):
        client.headers.update(bearer(ADMIN))
        yield client
