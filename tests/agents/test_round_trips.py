"""How often Redis is asked before the agent is: counted where the bytes are sent."""

import threading
from uuid import uuid4

import pytest
from redis.connection import AbstractConnection

from tests.agents import propose

#: everything that is sent in one piece is one round trip, a pipeline as well
MOST = 3

MESSAGE = {"role": "user", "content": [{"type": "text", "text": "hello"}], "run": True}
REQUESTS = {
    "accept": ("/api/conversations/{}/events/respond_to_confirmation", {"accept": True}),
    "reject": ("/api/conversations/{}/events/respond_to_confirmation", {"accept": False, "reason": "no"}),
    "run what waits": ("/api/conversations/{}/run", None),
    "message that rejects": ("/api/conversations/{}/events", MESSAGE),
    "run": ("/api/conversations/{}/run", None),
    "message": ("/api/conversations/{}/events", MESSAGE),
    "app message": ("/api/v1/app-conversations/{}/send-message", {"content": MESSAGE["content"]}),
}

#: the first request to the agent where no action is pending
FIRST_CALLS = {"run": "run", "message": "events", "app message": "events"}


@pytest.fixture
def order(monkeypatch, agent):
    """The commands of this thread to Redis and the requests to the agent, in order."""
    seen, asking = [], threading.get_ident()
    sent = AbstractConnection.send_packed_command

    def send(self, command, **options):
        if threading.get_ident() == asking:
            seen.append("redis")
        return sent(self, command, **options)

    monkeypatch.setattr(AbstractConnection, "send_packed_command", send)
    agent.on_request = lambda path: seen.append(path.rpartition("/")[2])
    return seen


@pytest.mark.parametrize("what", REQUESTS)
def test_the_agent_is_called_after_three_round_trips_at_most(client, store, sandbox, agent, order, what):
    path, body = REQUESTS[what]
    for _ in range(2):  # the first decision connects, and loads the scripts
        conversation = str(uuid4())
        if what in FIRST_CALLS:
            store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
        else:
            agent.latest = propose(store, conversation, sandbox.id)["id"]
        order.clear()
        response = client.post(path.format(conversation), json=body)
        assert response.status_code == 200, response.text

    called = next(index for index, name in enumerate(order) if name != "redis")
    assert called <= MOST, order
    assert order[called] == FIRST_CALLS.get(what, "respond_to_confirmation")


@pytest.mark.parametrize("accept", [True, False])
def test_a_decision_that_loses_takes_four_round_trips(client, store, sandbox, agent, order, accept):
    agent.statuses = [500]
    conversation = str(uuid4())
    agent.latest = propose(store, conversation, sandbox.id)["id"]
    path = REQUESTS["accept"][0].format(conversation)
    assert client.post(path, json={"accept": accept}).json == {"success": True}
    order.clear()

    assert client.post(path, json={"accept": not accept}).json == {"success": False}

    assert order == ["redis"] * 4
