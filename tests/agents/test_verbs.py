"""What clients ask of the agent of a conversation, copies included: over HTTP, with a scripted agent server."""

import threading
from itertools import product
from uuid import uuid4

import pytest

from agents.client import MOST_BYTES, RUN
from app import create_app
from settings.config import Config
from store.errors import EventNotFound
from tests.conftest import SECRET_KEY, as_events, event, message

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


def test_a_detached_conversation_refuses_every_verb_in_words(client, store, conversation):
    missing = {verb: client.post(url(conversation, verb), json=body).status_code for verb, body in BODIES.items()}
    assert missing == dict.fromkeys(BODIES, 404)
    store.conversations.create(conversation)

    for verb, body in BODIES.items():
        response = client.post(url(conversation, verb), json=body)

        assert response.status_code == 409, verb
        assert "has no sandbox" in response.get_json()["detail"]


@pytest.mark.parametrize("verb", STEPPING)
def test_no_verb_that_takes_a_step_reaches_an_agent_whose_actions_wait(client, agent, waiting, verb):
    response = client.post(url(waiting, verb), json=BODIES[verb])

    assert response.status_code == 409
    assert "decide the pending actions first" in response.get_json()["detail"]
    assert agent.requests == []


@pytest.mark.parametrize("verb", STEPPING)
def test_no_verb_that_takes_a_step_overtakes_a_decision(client, store, agent, waiting, verb):
    agent.statuses = [500]
    decision = client.post(url(waiting, "events/respond_to_confirmation"), json={"accept": False})
    assert decision.get_json() == {"success": True}
    agent.state = {"execution_status": "idle"}

    assert client.post(url(waiting, verb), json=BODIES[verb]).status_code == 409
    assert agent.posted(f"/{verb}") == []


def test_no_verb_that_takes_a_step_reaches_an_agent_that_waits_or_soon_may(client, agent, linked):
    for reported, verb in product(("waiting_for_confirmation", "running"), STEPPING):
        agent.state = {"execution_status": reported}  # and none of its events has come yet

        response = client.post(url(linked, verb), json=BODIES[verb])

        assert response.status_code == 409, (reported, verb)
        assert agent.posted(f"/{verb}") == []


def test_no_goal_is_pursued_under_a_policy_whose_actions_its_loop_would_execute(client, agent, linked):
    policies = ({"kind": "AlwaysConfirm"}, {"kind": "ConfirmRisky"}, {"kind": "Unknown"}, None)
    for policy, verb in product(policies, ("goal", "goal/resume")):
        agent.state["confirmation_policy"] = policy

        response = client.post(url(linked, verb), json=BODIES[verb])

        assert response.status_code == 409, (policy, verb)
        assert "NeverConfirm" in response.get_json()["detail"]
        assert agent.posted(f"/{verb}") == []


@pytest.mark.parametrize("verb", [verb for verb in BODIES if verb not in STEPPING])
def test_every_other_verb_is_allowed_while_actions_wait(client, agent, waiting, verb):
    agent.replies["/ask_agent"] = {"response": "because"}
    assert client.post(url(waiting, verb), json=BODIES[verb]).status_code == 200


BAD = [
    ("ask_agent", {}, "question"),
    ("ask_agent", {"question": 1}, "question"),
    ("goal", {"objective": "x", "max_iterations": 0}, "max_iterations"),
    ("navigate", {"event_id": 1}, "event_id"),
    ("switch_llm", {"llm": "some/model"}, "llm"),
    ("switch_acp_model", {}, "model"),
    ("switch_profile", {"profile_name": None}, "profile_name"),
    ("load_plugin", {"plugin_ref": ["x"]}, "plugin_ref"),
]


def test_a_bad_member_is_named_and_no_agent_is_asked(client, agent, linked):
    for verb, body, member in BAD:
        response = client.post(url(linked, verb), json=body)

        assert response.status_code == 422, (verb, body)
        assert response.get_json()["detail"][0]["loc"] == ["body", member]
    assert agent.requests == []


def test_a_model_of_a_provider_connection_comes_with_its_key(client, agent, linked):
    shared = {"api_key": "sk-shared", "base_url": "https://shared.example/v1"}
    made = client.post("/api/llm/provider-connections", json={"display_name": "Shared", **shared}).get_json()
    llm = {"model": "some/model", "provider_connection_id": made["id"]}
    client.post("/api/profiles/shared", json={"llm": llm})

    for verb, body in (("switch_llm", {"llm": llm}), ("switch_profile", {"profile_name": "shared"})):
        assert client.post(url(linked, verb), json=body).status_code == 200
    unknown = client.post(url(linked, "switch_llm"), json={"llm": {**llm, "provider_connection_id": "gone"}})

    assert [path.rpartition("/")[2] for path, _ in agent.requests] == ["switch_llm", "switch_llm"]
    assert [body["llm"] for _, body in agent.requests] == [
        {"model": "some/model", **shared},
        {"usage_id": "profile:shared", "model": "some/model", **shared},
    ]
    assert (unknown.status_code, unknown.get_json()["detail"][0]["loc"]) == (422, ["body", "llm"])
    client.delete("/api/profiles/shared")
    assert client.delete(f"/api/llm/provider-connections/{made['id']}").status_code == 200


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


def test_a_verb_reaches_the_agent_server_as_it_came(client, agent, linked):
    for verb, body in BODIES.items():
        response = client.post(url(linked, verb), json={**body, "unknown": 1})

        assert response.status_code == 200, verb
        assert agent.posted(f"{linked}/{verb}") == [body]
        if verb not in ("ask_agent", "navigate"):
            assert response.get_json() == {"success": True}, verb


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
        assert client.get(f"/api/conversations/{linked}").get_json()["runtime_info"] == found
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


def copy_url(conversation: str) -> str:
    return f"/api/conversations/{conversation}/fork"


@pytest.fixture
def filled(store, conversation, sandbox, agent):
    """A conversation in a sandbox, with three events."""
    folder = {"working_dir": "/work"}
    store.conversations.create(
        conversation, sandbox_id=sandbox.id, app={"llm_model": "some", "start_id": "s"}, workspace=folder, title="First"
    )
    store.events.append(conversation, as_events([event() for _ in range(3)]), sandbox_id=sandbox.id)
    return conversation


def ids_of(client, conversation: str) -> list[str]:
    return [one["id"] for one in client.get(f"/api/conversations/{conversation}/events/search").get_json()["items"]]


# ends come first


@pytest.mark.parametrize("refused", [409, 422, 429])
def test_a_copy_that_the_agent_server_refuses_leaves_nothing_and_says_why(
    client, store, agent, sandbox, filled, refused
):
    agent.broken[filled], target = refused, str(uuid4())

    response = client.post(copy_url(filled), json={"id": target})

    assert (response.status_code, response.get_json()["detail"]) == (refused, "as scripted")
    assert store.conversations.get_many([target]) == [None]
    assert store.conversations.in_sandboxes.in_sandbox(sandbox.id) == 1


def test_a_copy_whose_open_actions_cannot_be_closed_leaves_nothing_on_either_side(client, store, agent, filled):
    target = str(uuid4())
    agent.broken[target] = 500

    response = client.post(copy_url(filled), json={"id": target})

    assert response.status_code == 502
    assert store.conversations.get_many([target]) == [None]
    assert f"DELETE /api/conversations/{target}" in [path for path, _ in agent.requests]


def test_a_copy_of_an_event_that_only_the_agent_has_leaves_nothing_on_either_side(client, store, agent, filled):
    target = str(uuid4())
    response = client.post(copy_url(filled), json={"id": target, "from_event_id": "unknown"})

    assert (response.status_code, response.get_json()["detail"]) == (404, EventNotFound.words)
    assert store.conversations.get_many([target]) == [None]
    assert agent.requests[-1][0] == f"DELETE /api/conversations/{target}"


@pytest.mark.parametrize("api", ["/api/conversations/", "/api/v1/app-conversations/"])
@pytest.mark.parametrize("step", ["/fork", "/respond_to_confirmation"])
def test_a_copy_whose_id_is_deleted_while_its_agent_makes_it_comes_to_nothing(
    app, client, store, agent, sandbox, filled, step, api
):
    target, deleted = str(uuid4()), []

    def delete(path: str) -> None:
        if path.endswith(step):
            deleted.append(app.test_client().delete(f"{api}{target}").status_code)

    agent.on_request = delete
    response = client.post(copy_url(filled), json={"id": target})

    assert (deleted, response.status_code) == ([200], 409)
    assert "has ended this copy" in response.get_json()["detail"]
    assert store.conversations.get_many([target]) == [None]
    assert agent.requests[-1][0] == f"DELETE /api/conversations/{target}"
    assert store.sandboxes.places.known(sandbox.id) == ({filled}, {target})
    assert client.delete(f"{api}{target}").status_code == 404


def test_a_copy_that_is_ended_does_not_come_to_life_by_a_repeat_of_its_request(app, client, store, agent, filled):
    target, headers = str(uuid4()), {"Idempotency-Key": str(uuid4())}

    def end_and_fail(path: str) -> None:
        if path.endswith("/respond_to_confirmation"):  # as if its worker had been killed: the request has no outcome
            app.test_client().delete(f"/api/conversations/{target}")
            agent.statuses = [500]

    agent.on_request = end_and_fail
    assert client.post(copy_url(filled), json={"id": target}, headers=headers).status_code == 502
    agent.on_request = lambda _path: None

    assert client.post(copy_url(filled), json={"id": target}, headers=headers).status_code == 409
    assert store.conversations.get_many([target]) == [None]


def test_an_id_in_use_is_409_and_no_agent_is_asked(client, store, agent, filled):
    taken = str(uuid4())
    store.conversations.create(taken)
    assert client.post(copy_url(filled), json={"id": taken}).status_code == 409
    assert agent.requests == []


def test_a_sandbox_without_room_refuses_a_copy_before_its_agent_makes_one(redis_url, store, agent, sandbox, filled):
    crowded = create_app(
        Config.of(redis_url=redis_url, redis_timeout=10, secret_key=SECRET_KEY, max_conversations_per_sandbox=1)
    ).test_client()

    response = crowded.post(copy_url(filled))

    assert response.status_code == 429
    assert "MAX_CONVERSATIONS_PER_SANDBOX" in response.get_json()["detail"]
    assert agent.requests == []


def test_an_agent_server_that_makes_no_copies_leaves_the_copy_detached(client, store, agent, filled):
    target = str(uuid4())
    agent.statuses = [404]  # for the copy; it knows the conversation

    response = client.post(copy_url(filled), json={"id": target})

    assert response.status_code == 201
    assert store.conversations.sandbox_of(target) is None
    assert len(ids_of(client, target)) == 3


def test_an_agent_server_that_has_forgotten_the_conversation_is_404(client, store, agent, filled):
    agent.forgotten.add(filled)
    target = str(uuid4())
    assert client.post(copy_url(filled), json={"id": target}).status_code == 404
    assert store.conversations.get_many([target]) == [None]


# the copy


def test_a_copy_is_an_app_conversation_of_the_same_sandbox_with_its_events(client, store, agent, sandbox, filled):
    body = {"title": "Second", "tags": {"a": "b"}, "reset_metrics": False}
    made = client.post(copy_url(filled), json=body)

    assert made.status_code == 201
    target = made.get_json()["id"]
    [sent] = agent.posted(f"{filled}/fork")
    assert sent == {**body, "id": target}
    assert made.get_json()["title"] == "Second"
    assert made.get_json()["execution_status"] == "idle"
    assert made.get_json()["forked_from_conversation_id"] == filled
    assert ids_of(client, target) == ids_of(client, filled)
    state = store.conversations.in_sandboxes.get(target)
    assert (state["sandbox_id"], state["app"], state["groups"]) == (
        sandbox.id,
        {"llm_model": "some"},
        store.conversations.get(filled)["groups"],
    )
    assert state["workspace"] == {"working_dir": "/work"}
    assert store.conversations.in_sandboxes.in_sandbox(sandbox.id) == 2


def test_a_copy_runs_by_its_agent_and_takes_its_webhooks(client, store, agent, sandbox, filled):
    target = client.post(copy_url(filled)).get_json()["id"]

    assert client.post(f"/api/conversations/{target}/run").status_code == 200
    store.events.append(target, as_events([event()]), sandbox_id=sandbox.id)

    assert agent.posted(f"{target}/run") == [RUN]
    assert (len(ids_of(client, target)), len(ids_of(client, filled))) == (4, 3)


def test_what_waits_in_the_source_is_rejected_in_the_copy_before_anybody_can_run_it(
    client, store, agent, sandbox, waiting
):
    target = client.post(copy_url(waiting)).get_json()["id"]

    asked = [path.removeprefix("POST /api/conversations/") for path, _ in agent.requests]
    assert asked == [f"{waiting}/fork", f"{target}/events/respond_to_confirmation"]
    assert agent.decisions[0]["accept"] is False
    assert store.approvals.confirmations.pending(target) == []
    assert len(store.approvals.confirmations.pending(waiting)) == 1

    # The agent says so in the person's name, which is right for that action, and for no other.
    rejection = event("UserRejectObservation", "environment", action_id=agent.latest, tool_name="terminal")
    other = event("UserRejectObservation", "environment", action_id="another", tool_name="terminal")
    store.events.append(target, as_events([rejection, other]), sandbox_id=sandbox.id)
    items = client.get(f"/api/conversations/{target}/events/search").get_json()["items"]
    assert [one.get("rejection_source") for one in items[-2:]] == [None, "hook"]


@pytest.mark.faults("a race of threads")
def test_concurrent_copies_into_one_id_make_one(app, client, store, agent, sandbox, filled):
    target, found, taken = str(uuid4()), [], threading.Lock()

    def status(path: str) -> int:
        """As an agent server: a second copy into one id is refused."""
        return 409 if path.endswith("/fork") and not taken.acquire(blocking=False) else 200

    agent.status_of = status
    threads = [
        threading.Thread(target=lambda: found.append(app.test_client().post(copy_url(filled), json={"id": target})))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(response.status_code for response in found) == [201, 409, 409, 409]
    assert len(ids_of(client, target)) == 3
    assert store.conversations.in_sandboxes.in_sandbox(sandbox.id) == 2


def test_a_repeat_with_the_same_idempotency_key_finds_the_copy(client, store, agent, sandbox, filled):
    headers = {"Idempotency-Key": str(uuid4())}
    first = client.post(copy_url(filled), headers=headers)
    again = client.post(copy_url(filled), headers=headers)

    assert first.get_json()["id"] == again.get_json()["id"]
    assert len(agent.posted("/fork")) == 1


def test_an_attempt_after_a_crash_ends_the_copy_that_an_earlier_one_began(client, store, agent, sandbox, filled):
    headers, target = {"Idempotency-Key": str(uuid4())}, str(uuid4())
    agent.statuses = [200, 500]  # its copy is made, and what follows fails, as does its removal
    agent.on_request = lambda path: agent.statuses.append(500) if path.endswith("respond_to_confirmation") else None
    assert client.post(copy_url(filled), json={"id": target}, headers=headers).status_code == 502
    agent.on_request = lambda _path: None
    agent.statuses = [409]  # the copy is there

    response = client.post(copy_url(filled), json={"id": target}, headers=headers)

    assert response.status_code == 201
    assert ids_of(client, target) == ids_of(client, filled)


def test_a_detached_conversation_is_copied_as_before(client, store, conversation, agent):
    store.conversations.create(conversation)
    assert client.post(copy_url(conversation)).status_code == 201
    assert agent.requests == []
