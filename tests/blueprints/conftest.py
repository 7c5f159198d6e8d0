"""A conversation of the test's own, its agent, and a server that keeps secrets."""

import pytest

from app import create_app
from config import Config
from tests.blueprints import API, SECRET_KEY


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
