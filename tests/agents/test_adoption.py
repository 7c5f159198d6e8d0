"""A conversation that a client began at a sandbox's own agent server is adopted by a call, once, and by no webhook."""

from uuid import UUID, uuid4

import pytest

from app import create_app
from settings.config import Config
from store.errors import SandboxNotFound
from tests.agents import running_sandbox
from tests.conftest import SECRET_KEY, as_events, message
from tests.killed_app import WorkerKilled
from tests.shared import ADMIN

#: host and supervisor of `running_sandbox`
SUPERVISOR = ("scripted", "supervisor")

POLICY = {"kind": "ConfirmRisky", "threshold": "MEDIUM"}


@pytest.fixture
def stray(agent, conversation):
    """The id of a conversation that only the agent server has."""
    agent.replies[f"/api/conversations/{conversation}"] = {
        "id": conversation,
        "title": "Begun elsewhere",
        "tags": {"from": "cli"},
        "execution_status": "running",
        "confirmation_policy": {**POLICY, "other": "x"},
        "agent": {"kind": "Agent", "llm": {"model": "m", "api_key": "secret"}},
        "workspace": {"kind": "LocalWorkspace", "working_dir": "/work/there"},
    }
    return conversation


def adopt(client, sandbox, conversation, status=200, **headers):
    response = client.post(f"/api/v1/sandboxes/{sandbox.id}/conversations/{conversation}/adopt", headers=headers)
    assert response.status_code == status, response.get_data(as_text=True)
    return response.json


def post(client, sandbox, hook, conversation, events):
    path = f"/api/v1/webhooks/events/{conversation}"
    return client.post(path, json=events, headers={"Authorization": f"Bearer {hook}"})


def test_an_adopted_conversation_is_listed_with_what_its_agent_server_says_of_it(client, sandbox, stray):
    shown = adopt(client, sandbox, stray)

    assert UUID(shown["id"]) == UUID(stray)
    assert (shown["title"], shown["sandbox_id"], shown["llm_model"]) == ("Begun elsewhere", sandbox.id, "m")
    state = client.get(f"/api/conversations/{stray}").json
    assert (state["confirmation_policy"], state["tags"]) == (POLICY, {"from": "cli"})
    assert state["workspace"]["working_dir"] == "/work/there"
    assert "secret" not in str(state["agent"])
    found = client.get(f"/api/v1/app-conversations/search?sandbox_id__eq={sandbox.id}").json["items"]
    assert [one["id"] for one in found] == [shown["id"]]


def test_a_repeat_of_an_adoption_changes_nothing_and_asks_no_agent(client, store, sandbox, stray, agent):
    first = adopt(client, sandbox, stray)
    store.events.append(stray, as_events([message("posted", "agent")]), sandbox_id=sandbox.id)
    agent.requests.clear()

    again = adopt(client, sandbox, stray)

    assert (again["created_at"], again["title"]) == (first["created_at"], first["title"])
    assert store.events.count(stray) == 1
    assert agent.requests == []


@pytest.mark.parametrize("cut", ["store.sandboxes.checks.Checks.require", "blueprints.sandboxes.keep_report"])
def test_the_repeat_of_an_adoption_whose_worker_was_killed_does_what_is_missing(
    client, store, sandbox, stray, monkeypatch, cut
):
    def die(*_):
        raise WorkerKilled

    with monkeypatch.context() as patched:
        patched.setattr(cut, die)
        with pytest.raises(WorkerKilled):
            adopt(client, sandbox, stray)
    store.events._redis.delete("{sandboxes}:checks")

    shown = adopt(client, sandbox, stray)

    assert shown["llm_model"] == "m"
    assert client.get(f"/api/conversations/{stray}").json["tags"] == {"from": "cli"}
    assert store.events._redis.zscore("{sandboxes}:checks", f"{stray} {sandbox.id}") is not None


def test_the_repeat_of_an_adoption_whose_description_its_agent_has_posted_meanwhile_is_due_to_be_compared(
    client, store, sandbox, stray
):
    adopt(client, sandbox, stray)
    store.events._redis.delete("{sandboxes}:checks")

    adopt(client, sandbox, stray)

    assert store.events._redis.zscore("{sandboxes}:checks", f"{stray} {sandbox.id}") is not None


def test_an_adopted_conversation_is_due_to_be_compared_and_takes_its_webhooks(client, store, sandbox, stray, agent):
    hook = store.sandboxes.begin(sandbox.id, *SUPERVISOR, "process")
    store.sandboxes.report(sandbox.id, *SUPERVISOR, "RUNNING", agent_url=agent.url, handle={})
    said = [message("hello", "agent")]
    assert post(client, sandbox, hook, stray, said).status_code == 404

    adopt(client, sandbox, stray)

    assert store.events._redis.zscore("{sandboxes}:checks", f"{stray} {sandbox.id}") is not None
    assert post(client, sandbox, hook, stray, said).status_code == 200
    assert store.events.count(stray) == 1


def test_a_child_whose_parent_is_here_is_adopted_as_its_child(client, store, sandbox, stray, agent):
    parent = str(uuid4())
    store.conversations.create(parent, sandbox_id=sandbox.id, app={})
    agent.replies[f"/api/conversations/{stray}"]["parent_conversation_id"] = UUID(parent).hex

    assert UUID(adopt(client, sandbox, stray)["parent_conversation_id"]) == UUID(parent)


def test_a_conversation_that_its_agent_server_does_not_have_is_404(client, sandbox, agent, conversation):
    agent.forgotten.add(conversation)

    refused = adopt(client, sandbox, conversation, 404)

    assert "the agent server of the sandbox has none" in refused["detail"]
    assert client.get(f"/api/conversations/{conversation}").status_code == 404


def test_an_id_that_is_elsewhere_here_is_409(client, store, sandbox, stray, agent):
    with running_sandbox(store, agent.url) as other:
        for place in (None, other.id):
            taken = str(uuid4())
            store.conversations.create(taken, sandbox_id=place, app={} if place else None)
            assert "not in this sandbox" in adopt(client, sandbox, taken, 409)["detail"]
            store.conversations.delete(taken)


def test_a_conversation_that_was_deleted_here_is_not_adopted(client, store, sandbox, stray):
    adopt(client, sandbox, stray)
    store.conversations.delete(stray)

    assert "was deleted here" in adopt(client, sandbox, stray, 409)["detail"]
    assert client.get(f"/api/conversations/{stray}").status_code == 404


def test_a_conversation_that_another_call_adopts_and_a_client_deletes_meanwhile_stays_deleted(
    client, store, sandbox, stray, agent
):
    def meanwhile(_path):
        agent.on_request = lambda _path: None
        store.conversations.create(stray, sandbox_id=sandbox.id, app={})
        store.conversations.delete(stray)

    agent.on_request = meanwhile

    assert "was deleted here" in adopt(client, sandbox, stray, 409)["detail"]
    assert client.get(f"/api/conversations/{stray}").status_code == 404
    assert store.sandboxes.places.known(sandbox.id) == (set(), {stray})


@pytest.mark.parametrize("status", ["PAUSED", "ERROR", "MISSING"])
def test_a_sandbox_that_does_not_run_refuses_and_says_what_it_is(client, store, sandbox, stray, agent, status):
    if status == "PAUSED":
        store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, *SUPERVISOR, status)
    agent.requests.clear()

    assert status in adopt(client, sandbox, stray, 409)["detail"]
    assert agent.requests == []


def test_a_sandbox_that_is_being_deleted_or_unknown_refuses(client, store, sandbox, stray):
    store.sandboxes.ask(sandbox.id, "delete")
    assert "being deleted" in adopt(client, sandbox, stray, 409)["detail"]

    store.sandboxes.report(sandbox.id, *SUPERVISOR, "GONE")
    assert adopt(client, sandbox, stray, 404) == {"detail": SandboxNotFound.words}


def test_a_key_adopts_in_the_sandboxes_that_it_started_and_an_admin_in_all(redis_url, store, agent, stray):
    guarded = create_app(
        Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, api_keys=(ADMIN,))
    ).test_client()
    admin = {"Authorization": f"Bearer {ADMIN}"}
    made = [
        guarded.post("/api/v1/keys", json={"name": name, "scopes": ["write"]}, headers=admin).json
        for name in ("owner", "other")
    ]
    own, other = ({"Authorization": f"Bearer {one['key']}"} for one in made)

    with running_sandbox(store, agent.url, owner=made[0]["id"]) as sandbox:
        assert "another key started" in adopt(guarded, sandbox, stray, 403, **other)["detail"]
        adopt(guarded, sandbox, stray, **own)
        adopt(guarded, sandbox, stray, **admin)

    for one in made:
        guarded.delete(f"/api/v1/keys/{one['id']}", headers=admin)


def test_an_agent_server_that_does_not_answer_is_502_and_nothing_is_created(client, store, sandbox, stray, agent):
    agent.statuses = [0, 0]

    adopt(client, sandbox, stray, 502)

    assert store.conversations.get_many([stray]) == [None]


def test_what_an_agent_says_wrongly_of_a_conversation_keeps_it_from_nothing(client, sandbox, stray, agent):
    agent.replies[f"/api/conversations/{stray}"] = {
        "title": "\ud83d" + "t" * 300,
        "tags": ["x"],
        "confirmation_policy": {"kind": "Never"},
        "parent_conversation_id": 5,
        "execution_status": 7,
    }

    title = adopt(client, sandbox, stray)["title"]

    assert title == "\N{REPLACEMENT CHARACTER}" + "t" * 198 + "…"
