"""Conversations of one test, their agents, an app with a SECRET_KEY, and a real server for sockets and streams."""

import pytest

from app import create_app
from settings.config import Config
from tests.blueprints import API, KEYS, SECRET_KEY
from tests.blueprints.decided import DecidedHere
from tests.conftest import LIMITS
from tests.conftest import SECRET_KEY as SHARED_KEY
from tests.servers import agent_server, store_server

ALWAYS = {"kind": "AlwaysConfirm"}


@pytest.fixture
def url(client, conversation):
    """A conversation that exists and is idle."""
    client.post(API, json={"conversation_id": conversation, "title": "Old", "tags": {"old": "1"}})
    return f"{API}/{conversation}"


@pytest.fixture
def post_events(client, conversation):
    """Append events as the agent does."""
    return lambda *events: client.post(f"/api/v1/webhooks/events/{conversation}", json=list(events))


@pytest.fixture(scope="package")
def keeper(redis_url):
    """A client of an app that has a SECRET_KEY."""
    return create_app(Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY)).test_client()


@pytest.fixture(scope="package")
def keyless(redis_url):
    """A client of an app that has no SECRET_KEY."""
    return create_app(Config.of(redis_url=redis_url, redis_timeout=10)).test_client()


@pytest.fixture(scope="module")
def keyed(redis_url):
    """An app that wants keys."""
    return create_app(Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SHARED_KEY, api_keys=KEYS, **LIMITS))


@pytest.fixture
def caller(keyed):
    """A client of a server that wants keys, none of which keeps anything."""
    for owner in ("settings-1", "settings-2"):
        keyed.extensions["server"].store.access.settings.forget(owner)
    return keyed.test_client()


@pytest.fixture(scope="module")
def cold_url(tmp_path_factory):
    """The URL of a store of a module that leaves cold conversations behind, which a server of the store reports."""
    with store_server(tmp_path_factory.mktemp("cold")) as (url, _):
        yield url


@pytest.fixture
def agent(client, conversation):
    """A conversation under AlwaysConfirm, with short names for the requests of tests."""
    client.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": ALWAYS})
    return ForwardedAgent(client, conversation)


@pytest.fixture(scope="package")
def backend(tmp_path_factory):
    """A folder and the URL of a store, which the tests of this folder share with their server."""
    folder = tmp_path_factory.mktemp("backend")
    with store_server(folder) as (url, _):
        yield folder, url


@pytest.fixture(scope="package")
def server(backend):
    """A real server of two workers, which the tests of this folder share; it pings often."""
    folder, url = backend
    with agent_server(folder / "log", REDIS_URL=url, SOCKET_MESSAGE_BYTES="65536", PING_SECONDS="0.3") as (client, _):
        yield client


@pytest.fixture
def post(server, conversation):
    """Append events to a conversation that exists."""
    server.post("/api/conversations", json={"conversation_id": conversation})

    def post(*events):
        response = server.post(f"/api/v1/webhooks/events/{conversation}", json=list(events))
        assert response.status_code == 200
        return response.json()

    return post


class ForwardedAgent:
    def __init__(self, client, conversation):
        self.client, self.url = client, f"/api/conversations/{conversation}"
        self.webhook = f"/api/v1/webhooks/events/{conversation}"

    def posts(self, *events):
        response = self.client.post(self.webhook, json=list(events))
        assert response.status_code == 200, response.get_data()

    def decide(self, accept, **members):
        response = self.client.post(f"{self.url}/events/respond_to_confirmation", json={"accept": accept, **members})
        assert response.status_code == 200, response.get_data()
        return response.get_json()["success"]

    def policy(self, **policy):
        return self.client.post(f"{self.url}/confirmation_policy", json={"policy": policy}).status_code

    @property
    def pending(self):
        return [one["id"] for one in self.client.get(f"{self.url}/pending_actions").get_json()]

    @property
    def status(self):
        return self.client.get(self.url).get_json()["execution_status"]

    @property
    def log(self):
        return self.client.get(f"{self.url}/events/search").get_json()["items"]

    @property
    def states(self):
        return [one["value"] for one in self.log if one.get("key") == "execution_status"]

    @property
    def rejections(self):
        return [one for one in self.log if one["kind"] == "UserRejectObservation"]


@pytest.fixture
def fresh(client, store):
    """A client of a server that has no rules and no decisions."""
    redis = store.approvals.rules._redis
    for pattern in ("{rules}*", "{approvals}*"):
        for key in redis.scan_iter(pattern):
            redis.delete(key)
    return client


@pytest.fixture
def here(fresh, conversation):
    """A conversation in which every action waits."""
    return DecidedHere(fresh, conversation)
