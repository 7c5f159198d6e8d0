"""Two servers on one store, with a key of every kind: in the process of the tests, and as they are started."""

import json
from types import SimpleNamespace

import httpx
import pytest

from app import create_app
from core.wire import micros, now
from settings.config import Config
from tests.approvals import ADMIN, ALWAYS, DecidedConversation, shown
from tests.conftest import action, limits_of, status, store_of
from tests.servers import agent_server, store_server, wait_until


@pytest.fixture(scope="package")
def servers(tmp_path_factory):
    """Two real servers on one store, and a key of every kind."""
    folder = tmp_path_factory.mktemp("approvals")
    settings = {"SESSION_API_KEY": ADMIN, "RATE_LIMIT_FAILURES": "none", "WEB_CONCURRENCY": "1"}
    with store_server(folder) as (url, _):
        settings["REDIS_URL"] = url
        with (
            agent_server(folder / "one", **settings) as (one, _),
            agent_server(folder / "two", **settings) as (two, _),
            httpx.Client(base_url=one.base_url) as anyone,
        ):
            yield furnished(url, one, two, anyone, lapse=wait_for_the_deadline)


@pytest.fixture(scope="package")
def apps(tmp_path_factory):
    """Two apps on one store, and a key of every kind. Nothing in them rejects by itself what has expired."""
    settings = {"api_keys": (ADMIN,), "rate_limit_failures": "none", "secret_key": "a key for tests only"}
    with store_server(tmp_path_factory.mktemp("approvals")) as (url, _):
        one, two = (create_app(Config.of(redis_url=url, redis_timeout=10, **settings)) for _ in range(2))
        clients = [
            httpx.Client(transport=httpx.WSGITransport(app), base_url="http://localhost") for app in (one, two, one)
        ]
        house = furnished(url, *clients, lapse=lambda held, act: set_deadline_back(house.store, held, act))
        yield house


@pytest.fixture(
    scope="package", params=["apps", pytest.param("servers", marks=pytest.mark.process("the same on two real servers"))]
)
def house(request):
    """Two servers on one store, and a key of every kind."""
    return request.getfixturevalue(request.param)


def wait_for_the_deadline(held, act) -> None:
    found = held.server.get("/api/v1/pending-actions", params={"conversation_id": held.id}).json()["items"]
    ends = [micros(one["expires_at"]) for one in found if one["action_id"] == act["id"]]
    wait_until(lambda: not ends or now() > ends[0] + 1_000_000, "the deadline")  # which Redis' clock ends


def set_deadline_back(store, held, act) -> None:
    redis, key = store.conversations._redis, f"conv:{{{held.id}}}:pending"
    redis.hset(key, act["id"], json.dumps(json.loads(redis.hget(key, act["id"])) | {"expires": "1"}))


def furnished(url, one, two, anyone, *, lapse) -> SimpleNamespace:
    """A house whose keys are made.

    anyone: a client that shows no key of its own. lapse: lets the deadline of an action pass.
    """
    for server in (one, two):
        server.headers["X-Session-API-Key"] = ADMIN
    keys = {scope: made(one, scope) for scope in ("read", "write", "approve")}
    store = store_of(url, limits_of(most=9, pause_idlest=False, host_seconds=3600, start_seconds=3600))
    store.sandboxes.beat("host", "supervisor")
    sandbox = store.sandboxes.start("spec", host="host")
    keys["hook"] = store.sandboxes.begin(sandbox.id, "host", "supervisor", "process")
    keys["session"] = store.sandboxes.get(sandbox.id).session_api_key
    return SimpleNamespace(
        one=one, two=two, anyone=anyone, keys=keys, sandbox_id=sandbox.id, store=store, url=url, lapse=lapse
    )


def made(server, scope) -> str:
    return server.post("/api/v1/keys", json={"name": f"{scope} key", "scopes": [scope]}).json()["key"]


@pytest.fixture
def held(house, conversation):
    """A conversation with two actions that wait."""
    found = DecidedConversation(house.one, conversation)
    found.actions = [action("rm -r build"), action("make")]
    found.appends(*found.actions)
    assert found.pending == [one["id"] for one in found.actions]
    return found


@pytest.fixture
def sandboxed(house, conversation):
    """A conversation in the sandbox, with an action that waits; its agent appends with the hook key."""
    found = DecidedConversation.__new__(DecidedConversation)
    found.server, found.id = house.one, conversation
    house.store.conversations.create(conversation, confirmation_policy=ALWAYS, sandbox_id=house.sandbox_id)
    found.act = action("rm -r build")
    found.agent = lambda *events: house.one.post(
        f"/api/v1/webhooks/events/{conversation}", json=list(events), headers=shown(house.keys["hook"])
    )
    assert found.agent(found.act, status("waiting_for_confirmation")).status_code == 200
    assert found.pending == [found.act["id"]]
    return found
