"""Two servers on one store, with a key of every kind."""

from types import SimpleNamespace

import pytest

from store import Limits
from tests.approvals import ADMIN, ALWAYS, Conversation, shown
from tests.conftest import action, status, store_of
from tests.servers import agent_server, redis_server


@pytest.fixture(scope="package")
def house(tmp_path_factory):
    """Two servers on one store, and a key of every kind."""
    folder = tmp_path_factory.mktemp("approvals")
    settings = {"SESSION_API_KEY": ADMIN, "RATE_LIMIT_FAILURES": "none"}
    with redis_server(folder) as (url, _):
        settings["REDIS_URL"] = url
        with (
            agent_server(folder / "one", **settings) as (one, _),
            agent_server(folder / "two", **settings) as (two, _),
        ):
            for server in (one, two):
                server.headers["X-Session-API-Key"] = ADMIN
            keys = {scope: made(one, scope) for scope in ("read", "write", "approve")}
            store = store_of(url, Limits(most=9, pause_idlest=False, host_seconds=3600, start_seconds=3600))
            store.sandboxes.beat("host", "supervisor")
            sandbox = store.sandboxes.start("spec", host="host")
            keys["hook"] = store.sandboxes.begin(sandbox.id, "host", "supervisor", "process")
            keys["session"] = store.sandboxes.get(sandbox.id).session_api_key
            yield SimpleNamespace(one=one, two=two, keys=keys, sandbox_id=sandbox.id, store=store, url=url)


def made(server, scope) -> str:
    return server.post("/api/v1/keys", json={"name": f"{scope} key", "scopes": [scope]}).json()["key"]


@pytest.fixture
def held(house, conversation):
    """A conversation with two actions that wait."""
    found = Conversation(house.one, conversation)
    found.actions = [action("rm -r build"), action("make")]
    found.appends(*found.actions)
    assert found.pending == [one["id"] for one in found.actions]
    return found


@pytest.fixture
def sandboxed(house, conversation):
    """A conversation in the sandbox, with an action that waits; its agent appends with the hook key."""
    found = Conversation.__new__(Conversation)
    found.server, found.id = house.one, conversation
    house.store.conversations.create(conversation, confirmation_policy=ALWAYS, sandbox_id=house.sandbox_id)
    found.act = action("rm -r build")
    found.agent = lambda *events: house.one.post(
        f"/api/v1/webhooks/events/{conversation}", json=list(events), headers=shown(house.keys["hook"])
    )
    assert found.agent(found.act, status("waiting_for_confirmation")).status_code == 200
    assert found.pending == [found.act["id"]]
    return found
