"""The calls of the unmodified Python client of the agent-server wire, and the members that it requires.

Source: the client's own requests, in their order, as recorded from its release 1.43.1 and driven with 1.58.
"""

import pytest

from tests.conftest import action, event, message, observation, status
from tests.shared import shared_server
from tests.sockets import socket

pytestmark = pytest.mark.process("opens sockets to a real server")

AGENT = {
    "kind": "Agent",
    "llm": {"model": "openai/scripted", "base_url": "http://127.0.0.1:9999/v1", "api_key": "x", "usage_id": "agent"},
    "tools": [{"name": "terminal", "params": {}}],
}
WORKSPACE = {"kind": "LocalWorkspace", "working_dir": "/tmp/ws"}


@pytest.fixture(scope="module")
def server():
    return shared_server().client


@pytest.fixture
def url(server, conversation):
    """A conversation as the client starts it, but without an agent: these tests stand in for it."""
    body = {
        **{"conversation_id": conversation, "agent": None, "workspace": WORKSPACE, "max_iterations": 500},
        **{"stuck_detection": True, "stuck_detection_thresholds": {"x": 1}, "initial_message": None, "secrets": None},
        **{"tool_module_qualnames": {"terminal": "openhands.tools.terminal"}, "client_tools": [], "plugins": None},
    }
    response = server.post("/api/conversations", json=body)
    assert (response.status_code, response.json()["id"]) == (201, conversation)
    return f"/api/conversations/{conversation}"


@pytest.fixture
def agent(server, conversation):
    """The webhook that stands in for the agent."""
    return lambda *events: server.post(f"/api/v1/webhooks/events/{conversation}", json=list(events)).raise_for_status()


def test_the_server_is_of_a_release_that_clients_accept(server):
    version = server.get("/server_info").json()["version"]

    assert tuple(map(int, version.split("."))) >= (1, 28, 0)
    assert server.get("/health").json() == {"status": "ok"}


def test_the_client_starts_a_conversation_listens_and_reads_all_pages(server, conversation, url, agent):
    agent(*(event() for _ in range(150)))

    with socket(server, conversation) as listener:
        # the client waits for the state before its first request
        first = listener.receive()
        assert (first["kind"], first["key"]) == ("ConversationStateUpdateEvent", "full_state")
        found, page_id, pages = [], None, 0
        while pages == 0 or page_id:
            query = {"limit": 100, **({"page_id": page_id} if page_id else {})}
            page = server.get(f"{url}/events/search", params=query).json()
            found, page_id, pages = found + page["items"], page["next_page_id"], pages + 1

    assert (len(found), pages, page_id) == (150, 2, None)


def test_the_client_attaches_to_the_agent_or_receives_404(server, conversation, url):
    state = server.get(url).json()

    assert state["id"] == conversation
    assert state["workspace"] == WORKSPACE
    assert (state["max_iterations"], state["client_tools"]) == (500, [])
    assert state["tool_module_qualnames"] == {"terminal": "openhands.tools.terminal"}
    assert server.get(f"/api/conversations/{conversation[:-4]}0000").status_code == 404


def test_every_member_that_the_client_reads_is_there_also_over_the_socket(server, conversation, url):
    members = {
        *("execution_status", "confirmation_policy", "agent", "workspace", "persistence_dir", "stats", "hook_config"),
        *("activated_knowledge_skills", "invoked_skills", "secret_registry", "security_analyzer", "updated_at"),
    }
    assert members - set(server.get(url).json()) == set()
    with socket(server, conversation) as listener:
        assert members - set(listener.receive()["value"]) == set()


def test_a_policy_and_an_analyzer_are_set_and_reported(server, conversation, url):
    with socket(server, conversation) as listener:
        listener.receive()

        assert server.post(f"{url}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}}).is_success
        assert server.post(
            f"{url}/security_analyzer", json={"security_analyzer": {"kind": "LLMSecurityAnalyzer"}}
        ).is_success

        reported = [listener.receive(), listener.receive()]
    assert [(one["key"], one["value"]) for one in reported] == [
        ("confirmation_policy", {"kind": "AlwaysConfirm"}),
        ("security_analyzer", {"kind": "LLMSecurityAnalyzer"}),
    ]
    assert server.get(url).json()["confirmation_policy"] == {"kind": "AlwaysConfirm"}


def test_a_message_is_sent_without_a_run(server, url):
    content = [{"cache_prompt": False, "type": "text", "text": "run: echo first"}]

    response = server.post(f"{url}/events", json={"role": "user", "content": content, "run": False, "sender": "x"})

    assert response.json() == {"success": True}
    assert server.get(url).json()["execution_status"] == "idle"


def test_a_run_ends_for_the_client_when_the_following_state_no_longer_runs(server, conversation, url, agent):
    with socket(server, conversation) as listener:
        listener.receive()
        assert server.post(f"{url}/run").status_code in (200, 201, 204, 409)
        assert server.get(url).json()["execution_status"] == "running"

        agent(message("done", "agent"), status("finished"))

        state = listener.receive_until(key="full_state")[-1]
        assert state["value"]["execution_status"] == "finished"


def test_a_second_run_is_409_which_the_client_takes_for_success(server, url):
    server.post(f"{url}/run")

    again = server.post(f"{url}/run")

    assert again.status_code == 409
    assert again.json()["detail"].startswith("Cannot run: the conversation is running")


def test_a_run_ends_for_the_client_at_a_pending_action_which_the_client_rejects_or_accepts_by_a_run(
    server, conversation, url, agent
):
    server.post(f"{url}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}})
    with socket(server, conversation) as listener:
        listener.receive()
        server.post(f"{url}/run")
        agent(action())
        state = listener.receive_until(key="full_state")[-1]
        assert state["value"]["execution_status"] == "waiting_for_confirmation"

        decision = {"accept": False, "reason": "not today"}
        assert server.post(f"{url}/events/respond_to_confirmation", json=decision).is_success
        assert listener.receive_until(kind="UserRejectObservation")[-1]["rejection_reason"] == "not today"

        # The client has no call for an acceptance: a run accepts
        accepted = action()
        server.post(f"{url}/run")
        agent(accepted)
        listener.receive_until(key="full_state")
        assert server.post(f"{url}/run").is_success
        agent(observation(accepted), status("finished"))
        state = listener.receive_until(key="full_state")[-1]
        assert state["value"]["execution_status"] == "finished"

    kinds = [one["kind"] for one in server.get(f"{url}/events/search").json()["items"]]
    assert (kinds.count("UserRejectObservation"), kinds.count("ObservationEvent")) == (1, 1)


@pytest.mark.parametrize(("verb", "kind"), [("pause", "PauseEvent"), ("interrupt", "InterruptEvent")])
def test_the_client_pauses_and_interrupts(server, conversation, url, verb, kind):
    server.post(f"{url}/run")
    with socket(server, conversation) as listener:
        listener.receive()

        assert server.post(f"{url}/{verb}").is_success

        reported, changed, state = listener.receive(), listener.receive(), listener.receive()
    assert (reported["kind"], reported["source"]) == (kind, "user")
    assert (changed["value"], state["value"]["execution_status"]) == ("paused", "paused")


def test_the_client_sends_secrets(server, url):
    assert server.post(f"{url}/secrets", json={"secrets": {"TOKEN": "hush", "OTHER": {"value": "hush"}}}).is_success

    state = server.get(url)
    assert sorted(state.json()["secret_registry"]["secret_sources"]) == ["OTHER", "TOKEN"]
    assert "hush" not in state.text


def test_the_client_forks(server, url):
    copy = server.post(f"{url}/fork", json={"title": "copy", "tags": {"a": "b"}})

    assert copy.status_code == 201
    assert copy.json()["tags"] == {"a": "b"}
    assert server.get(f"/api/conversations/{copy.json()['id']}").json()["title"] == "copy"


def test_the_client_deletes_on_close(server, url):
    assert server.delete(url).is_success
    assert server.get(url).status_code == 404


def test_events_have_no_member_that_the_client_does_not_know(server, conversation, url, agent):
    server.post(f"{url}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}})
    server.post(f"{url}/run")
    agent(action())
    server.post(f"{url}/events/respond_to_confirmation", json={"accept": False})
    server.post(f"{url}/run")
    server.post(f"{url}/interrupt")
    known = {
        "ConversationStateUpdateEvent": {"key", "value"},
        "UserRejectObservation": {"tool_name", "tool_call_id", "rejection_reason", "rejection_source", "action_id"},
        "InterruptEvent": set(),
    }

    for one in server.get(f"{url}/events/search").json()["items"]:
        if one["kind"] in known:
            assert set(one) - {"id", "timestamp", "source", "kind"} == known[one["kind"]]
