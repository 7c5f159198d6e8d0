"""What clients ask of the agent of a conversation, over HTTP, with a scripted agent server."""

from uuid import uuid4

import pytest

from agents.link import MOST_BYTES
from tests.conftest import as_events, message

BODIES = {
    "ask_agent": {"question": "why?"},
    "condense": {},
    "navigate": {"event_id": None},
    "load_plugin": {"plugin_ref": "review@market"},
    "goal": {"objective": "all tests pass", "max_iterations": 3},
    "goal/stop": {},
    "goal/resume": {},
    "switch_llm": {"llm": {"model": "some/model", "api_key": "sk-very-secret", "unknown_member": [1]}},
    "switch_acp_model": {"model": "other"},
    "switch_profile": {"profile_name": "fast"},
}
STEPPING = ("condense", "navigate", "goal", "goal/resume")


def url(conversation: str, verb: str) -> str:
    return f"/api/conversations/{conversation}/{verb}"


@pytest.fixture
def linked(store, conversation, sandbox, agent):
    """A conversation whose agent is idle."""
    store.conversations.create(conversation, sandbox_id=sandbox.id, app={"llm_model": "old", "start_id": "s"})
    agent.state = {"execution_status": "idle", "leaf_event_id": "leaf", "response": "because"}
    agent.state["confirmation_policy"] = {"kind": "NeverConfirm"}
    return conversation


# refusals come first


@pytest.mark.parametrize("verb", BODIES)
def test_a_detached_conversation_refuses_every_verb_in_words(client, store, conversation, verb):
    assert client.post(url(conversation, verb), json=BODIES[verb]).status_code == 404
    store.conversations.create(conversation)

    response = client.post(url(conversation, verb), json=BODIES[verb])

    assert response.status_code == 409
    assert "has no sandbox" in response.get_json()["detail"]


@pytest.mark.parametrize("verb", STEPPING)
def test_no_verb_that_takes_a_step_reaches_an_agent_whose_actions_wait(client, agent, waiting, verb):
    response = client.post(url(waiting, verb), json=BODIES[verb])

    assert response.status_code == 409
    assert "actions wait for a decision" in response.get_json()["detail"]
    assert agent.requests == []


@pytest.mark.parametrize("verb", STEPPING)
def test_no_verb_that_takes_a_step_overtakes_a_decision(client, store, agent, waiting, verb):
    agent.statuses = [500]
    decision = client.post(url(waiting, "events/respond_to_confirmation"), json={"accept": False})
    assert decision.get_json() == {"success": True}
    agent.state = {"execution_status": "idle"}

    assert client.post(url(waiting, verb), json=BODIES[verb]).status_code == 409
    assert agent.posted(f"/{verb}") == []


@pytest.mark.parametrize("verb", STEPPING)
@pytest.mark.parametrize("reported", ["waiting_for_confirmation", "running"])
def test_no_verb_that_takes_a_step_reaches_an_agent_that_waits_or_soon_may(client, agent, linked, verb, reported):
    agent.state = {"execution_status": reported}  # and none of its events has come yet

    response = client.post(url(linked, verb), json=BODIES[verb])

    assert response.status_code == 409
    assert agent.posted(f"/{verb}") == []


@pytest.mark.parametrize("policy", [{"kind": "AlwaysConfirm"}, {"kind": "ConfirmRisky"}, {"kind": "Unknown"}, None])
@pytest.mark.parametrize("verb", ["goal", "goal/resume"])
def test_no_goal_is_pursued_under_a_policy_whose_actions_its_loop_would_execute(client, agent, linked, verb, policy):
    agent.state["confirmation_policy"] = policy

    response = client.post(url(linked, verb), json=BODIES[verb])

    assert response.status_code == 409
    assert "NeverConfirm" in response.get_json()["detail"]
    assert agent.posted(f"/{verb}") == []


@pytest.mark.parametrize("verb", [verb for verb in BODIES if verb not in STEPPING])
def test_every_other_verb_is_allowed_while_actions_wait(client, agent, waiting, verb):
    agent.replies["/ask_agent"] = {"response": "because"}
    assert client.post(url(waiting, verb), json=BODIES[verb]).status_code == 200


@pytest.mark.parametrize(
    ("verb", "body", "member"),
    [
        ("ask_agent", {}, "question"),
        ("ask_agent", {"question": 1}, "question"),
        ("goal", {"objective": "x", "max_iterations": 0}, "max_iterations"),
        ("navigate", {"event_id": 1}, "event_id"),
        ("switch_llm", {"llm": "some/model"}, "llm"),
        ("switch_acp_model", {}, "model"),
        ("switch_profile", {"profile_name": None}, "profile_name"),
        ("load_plugin", {"plugin_ref": ["x"]}, "plugin_ref"),
    ],
)
def test_a_bad_member_is_named_and_no_agent_is_asked(client, agent, linked, verb, body, member):
    response = client.post(url(linked, verb), json=body)

    assert response.status_code == 422
    assert response.get_json()["detail"][0]["loc"] == ["body", member]
    assert agent.requests == []


@pytest.mark.parametrize("refused", [400, 404, 409, 429, 504])
def test_what_the_agent_server_refuses_has_its_status_and_its_words(client, agent, linked, refused):
    agent.broken[linked] = refused
    response = client.post(url(linked, "switch_profile"), json=BODIES["switch_profile"])
    assert (response.status_code, response.get_json()) == (refused, {"detail": "as scripted"})


@pytest.mark.parametrize("broken", [500, 502, 401, 302, 0])
def test_an_agent_server_that_fails_is_502(client, agent, linked, broken):
    agent.statuses = [broken]
    response = client.post(url(linked, "switch_profile"), json=BODIES["switch_profile"])
    assert response.status_code == 502
    assert isinstance(response.get_json()["detail"], str)


@pytest.mark.parametrize("reply", [[], "text", None, {"response": "x" * MOST_BYTES}])
def test_a_response_that_is_no_object_or_too_long_is_502(client, agent, linked, reply):
    agent.replies["/ask_agent"] = reply
    assert client.post(url(linked, "ask_agent"), json=BODIES["ask_agent"]).status_code == 502


def test_a_refused_member_is_named_without_the_input_which_may_be_a_secret(client, agent, linked):
    fault = {"loc": ["body", "llm", 0], "msg": "no such model, sk-very-secret", "type": "value_error"}
    agent.statuses, agent.detail = [422], [{**fault, "input": "sk-very-secret", "ctx": {"error": "sk-very-secret"}}]

    response = client.post(url(linked, "switch_llm"), json=BODIES["switch_llm"])

    said = {**fault, "msg": "no such model, **********"}
    assert (response.status_code, response.get_json()) == (422, {"detail": [said]})


def test_an_idempotent_repeat_asks_the_agent_once(client, agent, linked):
    headers = {"Idempotency-Key": str(uuid4())}
    first = client.post(url(linked, "ask_agent"), json=BODIES["ask_agent"], headers=headers)
    again = client.post(url(linked, "ask_agent"), json=BODIES["ask_agent"], headers=headers)

    assert first.get_json() == again.get_json() == {"response": "because"}
    assert len(agent.posted("/ask_agent")) == 1


# what an agent is asked


@pytest.mark.parametrize("verb", BODIES)
def test_a_verb_reaches_the_agent_server_as_it_came(client, agent, linked, verb):
    response = client.post(url(linked, verb), json={**BODIES[verb], "unknown": 1})

    assert response.status_code == 200
    assert agent.posted(f"{linked}/{verb}") == [BODIES[verb]]
    if verb not in ("ask_agent", "navigate"):
        assert response.get_json() == {"success": True}


def test_a_models_key_is_stored_nowhere(client, store, agent, linked, caplog):
    client.post(url(linked, "switch_llm"), json=BODIES["switch_llm"], headers={"Idempotency-Key": str(uuid4())})

    redis = store.events._redis
    for key in redis.scan_iter(f"*{linked}*"):
        stored = redis.hgetall(key) if redis.type(key) == b"hash" else {}
        assert b"sk-very-secret" not in b"".join([*stored.keys(), *stored.values()])
    assert "sk-very-secret" not in caplog.text
    assert "sk-very-secret" not in client.get(f"/api/conversations/{linked}").get_data(as_text=True)


def test_a_navigation_rejects_what_is_open_there_before_anything_can_run(client, agent, linked):
    response = client.post(url(linked, "navigate"), json={"event_id": "an action's"})

    assert response.get_json()["leaf_event_id"] == "leaf"
    paths = [path.rpartition("/")[2] for path, _ in agent.requests if path.startswith("POST")]
    assert paths == ["navigate", "respond_to_confirmation"]
    assert agent.decisions[0]["accept"] is False


def test_the_objective_of_a_goal_is_the_users_own_message(client, store, agent, sandbox, linked):
    client.post(url(linked, "goal"), json=BODIES["goal"])
    own, foreign = message("all tests pass"), message("something else")
    store.events.append(linked, as_events([own, foreign]), sandbox_id=sandbox.id)

    items = client.get(url(linked, "events/search")).get_json()["items"]
    assert [item["source"] for item in items] == ["user", "environment"]


# runtime


def test_the_runtime_of_a_conversation_is_its_sandbox_and_reading_it_wakes_nothing(
    client, store, sandbox, linked, agent
):
    def told():
        found = client.get(url(linked, "runtime")).get_json()
        return found["runtime_status"], found["can_resume"], found["runtime_error"] and found["runtime_error"]["code"]

    assert told() == ("available", True, None)
    store.sandboxes.ask(sandbox.id, "pause")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "PAUSED")
    assert told() == ("missing", True, None)
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "ERROR")
    assert told() == ("error", False, "sandbox_error")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "GONE")
    assert told() == ("missing", False, "sandbox_missing")
    assert agent.requests == []


def test_the_credentials_of_a_runtime_are_the_session_key_of_its_sandbox(client, store, sandbox, linked, agent):
    store.sandboxes.begin(sandbox.id, "scripted", "supervisor", "process")
    store.sandboxes.report(sandbox.id, "scripted", "supervisor", "RUNNING", agent_url=agent.url)

    response = client.post(url(linked, "runtime/credentials"))

    assert response.get_json() == {"session_api_key": store.sandboxes.get(sandbox.id).session_api_key}
    assert response.headers["Cache-Control"] == "no-store"
