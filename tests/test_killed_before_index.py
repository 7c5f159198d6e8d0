"""A worker is killed after a conversation's script and before the index of approvals: readers and a sweep repair it."""

from uuid import uuid4

import httpx
import pytest
from redis import Redis

from settings.config import Config
from store.approvals.inbox import InboxFilter
from tests.conftest import SECRET_KEY, action, limits_of, store_of
from tests.killed_app import WorkerKilled, killed_here
from tests.servers import agent_server, store_server, wait_until
from tests.supervisor import supervisor

LIMITS = limits_of(most=1, pause_idlest=False, host_seconds=3600, start_seconds=3600)
KILL = {"Kill-Before-Index": "1"}


@pytest.fixture(
    scope="module",
    params=["here", pytest.param("servers", marks=pytest.mark.faults("waits for a new worker after each kill"))],
)
def whole(request, tmp_path_factory):
    """A server whose workers a request can kill, and its Redis; or an app whose requests can end so."""
    folder = tmp_path_factory.mktemp("killed")
    with store_server(folder) as (url, _), Redis.from_url(url) as redis:
        if request.param == "here":
            with killed_here(Config.of(redis_url=url, redis_timeout=10, secret_key=SECRET_KEY)) as client:
                yield client, redis, url
            return
        with agent_server(folder / "log", "tests.killed_app:create_app()", REDIS_URL=url) as (client, _):
            yield client, redis, url


@pytest.fixture
def client(whole):
    return whole[0]


@pytest.fixture
def redis(whole):
    whole[1].delete(*(whole[1].keys("{approvals}*") or ["none"]))
    return whole[1]


@pytest.fixture
def url(client, redis, conversation):
    """A conversation that holds back every action."""
    policy = {"confirmation_policy": {"kind": "AlwaysConfirm"}}
    client.post("/api/conversations", json={"conversation_id": conversation, **policy}).raise_for_status()
    return f"/api/conversations/{conversation}"


def killed(client: httpx.Client, method: str, path: str, **request) -> None:
    """A request whose worker is killed before it has settled the index."""
    wait_until(lambda: client.get("/alive").status_code == 200, "a worker")
    with pytest.raises((httpx.TransportError, WorkerKilled)):
        client.request(method, path, headers=KILL, **request)
    wait_until(lambda: client.get("/alive").status_code == 200, "a worker")


def inbox(client: httpx.Client, conversation: str) -> list[str]:
    query = {"conversation_id": conversation}
    return [one["action_id"] for one in client.get("/api/v1/pending-actions", params=query).json()["items"]]


def kinds(redis: Redis, conversation: str) -> list[str]:
    changes = [fields for _, fields in redis.xrange("{approvals}:stream")]
    return [one[b"kind"].decode() for one in changes if one[b"conversation_id"].decode() == conversation]


ENDS = {
    "an acceptance": ("POST", "/events/respond_to_confirmation", {"accept": True}),
    "a rejection": ("POST", "/events/respond_to_confirmation", {"accept": False, "reason": "no"}),
    "a run": ("POST", "/run", None),
    "a message": ("POST", "/events", {"content": [{"type": "text", "text": "Stop"}]}),
    "a deletion": ("DELETE", "", None),
}


@pytest.mark.parametrize("end", ENDS)
def test_no_reader_is_shown_what_a_killed_worker_has_decided(client, redis, conversation, url, end):
    one = action()
    client.post(f"/api/v1/webhooks/events/{conversation}", json=[one]).raise_for_status()
    assert inbox(client, conversation) == [one["id"]]

    method, path, body = ENDS[end]
    killed(client, method, url + path, json=body)

    assert kinds(redis, conversation) == ["opened"]
    assert inbox(client, conversation) == []
    assert kinds(redis, conversation) == ["opened", "decided"]
    assert client.get("/api/v1/pending-actions/count").json() == 0


def test_a_decision_by_action_whose_worker_was_killed_is_repaired_and_its_repeat_is_stale(
    client, redis, conversation, url
):
    actions = [action(), action()]
    client.post(f"/api/v1/webhooks/events/{conversation}", json=actions).raise_for_status()
    path = f"/api/v1/conversation/{conversation}/pending-actions/decisions"
    body = {"decisions": [{"action_id": actions[0]["id"], "decision": "reject"}]}
    killed(client, "POST", path, json=body)

    assert inbox(client, conversation) == [actions[1]["id"]]
    assert client.post(path, json=body).status_code == 409
    assert kinds(redis, conversation) == ["opened", "opened", "decided"]


def test_an_agents_repeat_indexes_the_action_of_a_killed_worker(client, redis, conversation, url):
    one = action()
    killed(client, "POST", f"/api/v1/webhooks/events/{conversation}", json=[one])
    assert inbox(client, conversation) == []

    client.post(f"/api/v1/webhooks/events/{conversation}", json=[one]).raise_for_status()
    assert inbox(client, conversation) == [one["id"]]
    assert kinds(redis, conversation) == ["opened"]


@pytest.mark.process("starts a supervisor")
def test_a_supervisor_indexes_what_a_killed_worker_did_not(whole, client, redis, conversation, url, tmp_path):
    appended, decided, deleted = action(), str(uuid4()), str(uuid4())
    for other in (decided, deleted):
        policy = {"confirmation_policy": {"kind": "AlwaysConfirm"}}
        client.post("/api/conversations", json={"conversation_id": other, **policy}).raise_for_status()
        client.post(f"/api/v1/webhooks/events/{other}", json=[action()]).raise_for_status()
    killed(client, "POST", f"/api/v1/webhooks/events/{conversation}", json=[appended])
    killed(client, "POST", f"/api/conversations/{decided}/run")
    killed(client, "DELETE", f"/api/conversations/{deleted}")

    with supervisor(redis, tmp_path / "a"):
        wait_until(lambda: kinds(redis, conversation) == ["opened"], "the action")
        for other in (decided, deleted):
            wait_until(lambda other=other: kinds(redis, other) == ["opened", "decided"], "the decision")
    found, _ = store_of(whole[2], LIMITS).approvals.inbox.page(
        InboxFilter(conversation), descending=False, limit=2, start=None
    )
    assert [one.action_id for one in found] == [appended["id"]]
