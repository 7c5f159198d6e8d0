"""A worker is killed while it takes the decision of a one-time link: the same form decides once, and loses nothing."""

import json

import httpx
import pytest
from redis import Redis

from core.approvals import ApprovalLinks, action_digest, shown_arguments
from tests.conftest import SECRET_KEY, action
from tests.servers import agent_server, store_server, wait_until

pytestmark = pytest.mark.faults("waits for a new worker after each kill")

LINKS = ApprovalLinks((SECRET_KEY,), public_url="http://localhost", seconds=3600)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server whose workers a request can kill, and its Redis."""
    folder = tmp_path_factory.mktemp("links")
    with (
        store_server(folder) as (url, _),
        agent_server(folder / "log", "tests.killed_app:create_app()", REDIS_URL=url, SECRET_KEY=SECRET_KEY) as (
            client,
            _,
        ),
    ):
        yield client, Redis.from_url(url)


@pytest.fixture
def link(server, conversation):
    """The path of a link to an action that waits."""
    client, act = server[0], action()
    body = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
    wait_until(lambda: client.post("/api/conversations", json=body).is_success, "a worker")
    wait_until(lambda: client.post(f"/api/v1/webhooks/events/{conversation}", json=[act]).is_success, "a worker")
    digest = action_digest(act["tool_name"], shown_arguments(act["action"]))
    return LINKS.make(conversation, act["id"], digest, "chat").removeprefix("http://localhost")


def killed(server, link, header, decision):
    with pytest.raises(httpx.TransportError):
        server[0].post(link, data={"decision": decision}, headers={header: "1"})
    wait_until(lambda: server[0].get("/alive").is_success, "a worker")


def decisions(server, conversation) -> list[str]:
    return [json.loads(entry)["decision"] for entry in server[1].lrange(f"conv:{{{conversation}}}:audit", 0, -1)]


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_worker_that_is_killed_before_the_decision_loses_nothing(server, conversation, link, decision):
    killed(server, link, "Kill-Before", decision)
    assert decisions(server, conversation) == []

    assert server[0].post(link, data={"decision": decision}).status_code == 200
    assert server[0].post(link, data={"decision": decision}).status_code == 409
    assert decisions(server, conversation) == [decision]


def test_the_repeat_of_a_form_whose_response_was_lost_is_told_what_it_decided(server, conversation, link):
    killed(server, link, "Kill-After", "approve")
    assert decisions(server, conversation) == ["approve"]

    repeated = server[0].post(link, data={"decision": "approve"})
    assert (repeated.status_code, "the action was approved" in repeated.text) == (409, True)
    assert decisions(server, conversation) == ["approve"]
