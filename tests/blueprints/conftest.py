"""Conversations of the test's own, their agents, and a server that keeps secrets."""

import pytest

from app import create_app
from config import Config
from tests.blueprints import API, SECRET_KEY

ALWAYS = {"kind": "AlwaysConfirm"}


@pytest.fixture
def url(client, conversation):
    """A conversation that exists and is idle."""
    client.post(API, json={"conversation_id": conversation, "title": "Old", "tags": {"old": "1"}})
    return f"{API}/{conversation}"


@pytest.fixture
def tell(client, conversation):
    """Append events as the agent does."""
    return lambda *events: client.post(f"/api/v1/webhooks/events/{conversation}", json=list(events))


@pytest.fixture(scope="module")
def keeper(redis_url):
    """A server that has a SECRET_KEY."""
    return create_app(Config(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY)).test_client()


@pytest.fixture
def agent(client, conversation):
    """A conversation under AlwaysConfirm, and short words for what tests do with it."""
    client.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": ALWAYS})
    return Agent(client, conversation)


class Agent:
    def __init__(self, client, conversation):
        self.client, self.url = client, f"/api/conversations/{conversation}"
        self.webhook = f"/api/v1/webhooks/events/{conversation}"

    def posts(self, *events):
        response = self.client.post(self.webhook, json=list(events))
        assert response.status_code == 200, response.get_data()

    def answer(self, accept, **members):
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
