"""An app that needs a key, in the process of the tests and as a real server."""

import httpx
import pytest

from app import create_app
from settings.config import Config
from tests.servers import agent_server, store_server
from tests.test_access import ADMIN, bearer
from wiring import open_store_of

REAL = pytest.param(
    "server", marks=pytest.mark.process("the same on a real server, which must find that a client left")
)


@pytest.fixture(scope="module")
def keyed_url(tmp_path_factory):
    """The URL of a store that has keys and sandboxes of these tests alone."""
    with store_server(tmp_path_factory.mktemp("keyed")) as (url, _):
        yield url


@pytest.fixture(scope="module")
def keyed_store(keyed_url):
    return open_store_of(Config.of(redis_url=keyed_url, redis_timeout=10, secret_key="a key for tests only"))


@pytest.fixture(scope="module", params=["app", REAL])
def keyed(request, keyed_url, tmp_path_factory):
    """A client with an admin's key, of a server that lets each key follow once."""
    if request.param == "server":
        settings = {"SESSION_API_KEY": ADMIN, "WEB_CONCURRENCY": "1", "MAX_FOLLOWERS_PER_KEY": "1", "PING_SECONDS": "1"}
        with agent_server(tmp_path_factory.mktemp("log") / "log", REDIS_URL=keyed_url, **settings) as (client, _):
            client.headers.update(bearer(ADMIN))
            yield client
    else:
        settings = {"api_keys": (ADMIN,), "max_followers_per_key": 1, "ping_seconds": 0.1}
        app = create_app(
            Config.of(redis_url=keyed_url, redis_timeout=10, secret_key="a key for tests only", **settings)
        )
        transport = httpx.WSGITransport(app)
        with httpx.Client(transport=transport, base_url="http://localhost", headers=bearer(ADMIN)) as client:
            yield client


@pytest.fixture
def key(keyed):
    """Make a key; returns its id and the headers that show it."""

    def make(scope="read") -> tuple[str, dict[str, str]]:
        made = keyed.post("/api/v1/keys", json={"name": scope, "scopes": [scope]}).raise_for_status().json()
        return made["id"], bearer(made["key"])

    return make
