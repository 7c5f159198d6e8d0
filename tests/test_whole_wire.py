"""Every operation of the wire once, on every kind of store: what one of them answers, all of them do.

One walk in-process, from a conversation's start to its deletion, and one through the whole server with a real sandbox.
"""

import re
from contextlib import closing
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest

from tests.backends import BACKENDS
from tests.chance import variants
from tests.conftest import action, event, message, oracle, recorded, status
from tests.fitting import operations
from tests.servers import supervised_server, wait_until
from tests.v1 import WireApi

CONVERSATION, V1 = "/api/conversations/{conversation_id}", "/api/v1/conversation/{conversation_id}"
APP = "/api/v1/app-conversations/{conversation_id}"
SAID = [{"type": "text", "text": "x"}]
OPERATIONS = {(one.method, one.path) for one in operations()}

#: the stores on which a whole server always walks
USUAL = ("valkey", "cluster")

#: those that the agent server of a sandbox serves; the home of clients needs none
FORWARDED = {(one.method, one.path) for one in operations() if one.is_forwarded} - {("GET", "/api/file/home")}


class WireWalk:
    """Requests by the document's paths, whose placeholders have the names of the walk; each must get its status."""

    def __init__(self, client) -> None:
        self._client = client
        self.names = dict.fromkeys(("rest", "secret_name", "command_id", "bash_event_id", "sha"), "x")
        self.names["conversation_id"] = str(uuid4())
        self.visited: set[tuple[str, str]] = set()

    def __call__(
        self, method: str, path: str, status: int = 200, query: dict | None = None, first: bool = False, **options: Any
    ) -> Any:
        """The body of a response: its JSON if it is such, the first part alone of one that goes on."""
        assert (method, path) in OPERATIONS
        self.visited.add((method, path))
        url = path.format(**self.names) + (f"?{urlencode(query, doseq=True)}" if query else "")
        with closing(self._client.open(url, method=method, **options)) as response:
            if first:
                return next(response.iter_encoded())
            assert response.status_code == status, f"{method} {url}: {response.status}: {response.get_data(True)}"
            return response.get_json() if response.mimetype == "application/json" else response.get_data()

    def stream(self, path: str, expected: str, **headers: str) -> None:
        """Read a stream until it has sent this text."""
        self.visited.add(("GET", path))
        with closing(self._client.get(path.format(**self.names), headers=headers)) as response:
            assert response.status_code == 200
            chunks, found = response.iter_encoded(), b""
            while expected.encode() not in found:
                found += next(chunks)


def of_conversations(walk: WireWalk) -> None:
    made = walk("POST", "/api/conversations", 201, json={"conversation_id": walk.names["conversation_id"]})
    assert made["execution_status"] == "idle"
    identity = walk.names["conversation_id"]
    assert walk("PATCH", CONVERSATION, json={"title": "Walked", "tags": {"a": "b"}}) == {"success": True}
    assert walk("GET", CONVERSATION)["title"] == "Walked"
    assert [one["id"] for one in walk("GET", "/api/conversations", query={"ids": identity})] == [identity]
    assert walk("GET", "/api/conversations/search", query={"limit": 1})["items"]
    assert walk("GET", "/api/conversations/count") >= 1
    assert walk("GET", "/api/v1/conversations/search", query={"text": "walked"})["items"]
    walk.stream("/api/v1/conversations/stream", "event: ready")
    for verb, body in (
        ("pause", {}),
        ("interrupt", {}),
        ("run", {}),
        ("security_analyzer", {"security_analyzer": None}),
        ("secrets", {"secrets": {"TOKEN": "x"}}),
        ("confirmation_policy", {"policy": {"kind": "AlwaysConfirm"}}),
    ):
        assert walk("POST", f"{CONVERSATION}/{verb}", json=body) == {"success": True}


def of_events(walk: WireWalk) -> None:
    """Of a recorded conversation, whose counts a real agent server answered."""
    own = walk.names["conversation_id"]
    walk.names["conversation_id"] = str(uuid4())
    events = recorded("never_confirm")
    appended = walk("POST", "/api/v1/webhooks/events/{conversation_id}", json=events)
    assert appended == {"success": True, "appended": 84, "seq": 84}
    for place in (CONVERSATION, V1):
        for question in oracle("never_confirm"):
            assert walk("GET", f"{place}/events/count", query=question["query"]) == question["count"]
            page = walk("GET", f"{place}/events/search", query={**question["query"], "limit": 100})
            assert len(page["items"]) == question["search_n"]
        assert walk("GET", f"{place}/events/histogram")["total"] == 84
    walk.names["event_id"] = events[0]["id"]
    assert walk("GET", f"{CONVERSATION}/events/{{event_id}}") == events[0]
    ids = [events[5]["id"], "unknown"]
    assert walk("GET", f"{CONVERSATION}/events", query={"event_ids": ids}) == [events[5], None]
    assert walk("GET", f"{V1}/events", query={"id": ids}) == [events[5], None]
    walk.stream(f"{CONVERSATION}/events/stream", events[-1]["id"], **{"Last-Event-ID": "80"})
    assert walk("GET", f"{CONVERSATION}/agent_final_response")["response"]
    needle = uuid4().hex
    assert walk("POST", f"{CONVERSATION}/events", json={"content": [{"type": "text", "text": f"A {needle}"}]})
    assert walk("GET", f"{CONVERSATION}/events/count", query={"body": needle.upper()}) == 1
    assert len(walk("GET", "/api/v1/messages/search", query={"text": needle})["items"]) == 1
    exported = walk("GET", f"{CONVERSATION}/export")
    walk("DELETE", CONVERSATION)
    walk("GET", CONVERSATION, 404)
    walk("POST", "/api/conversations/import", 201, data=exported, content_type="application/x-ndjson")
    walk("POST", "/api/conversations/import", 200, data=exported, content_type="application/x-ndjson")
    assert walk("GET", f"{CONVERSATION}/export") == exported
    walk.names["conversation_id"] = own


def of_decisions(walk: WireWalk) -> None:
    identity = walk.names["conversation_id"]
    waits = [action("one"), action("two"), action("three")]
    walk("POST", "/api/v1/webhooks/events/{conversation_id}", json=waits)
    assert len(walk("GET", f"{CONVERSATION}/pending_actions")) == 3
    mine = {"conversation_id": identity}
    assert walk("GET", "/api/v1/pending-actions/count", query=mine) == 3
    shown = walk("GET", "/api/v1/pending-actions", query=mine)["items"]
    assert [one["action_id"] for one in shown] == [one["id"] for one in waits]
    walk.stream("/api/v1/pending-actions/stream", "event: ready")
    walk.names["action_id"] = waits[0]["id"]
    assert walk("GET", f"{V1}/pending-actions/{{action_id}}/answers")["items"]
    decisions = {"decisions": [{"action_id": waits[0]["id"], "decision": "approve", "digest": shown[0]["digest"]}]}
    walk("POST", f"{V1}/pending-actions/decisions", json=decisions)
    walk("POST", f"{V1}/pending-actions/decisions", 409, json=decisions)
    rejection = {"accept": False, "reason": "Not now."}
    assert walk("POST", f"{CONVERSATION}/events/respond_to_confirmation", json=rejection) == {"success": True}
    assert walk("POST", f"{CONVERSATION}/events/respond_to_confirmation", json=rejection) == {"success": False}
    assert [one["decision"] for one in walk("GET", f"{V1}/pending-actions/decisions")] == ["approve"]
    assert walk("GET", "/api/v1/pending-actions/count", query=mine) == 0
    assert walk("GET", f"{V1}/audit")
    assert walk("GET", "/api/v1/audit", query=mine)["items"]
    rule = {"decision": "reject", "tool_name": "terminal", "conversation_ids": [identity]}
    walk.names["rule_id"] = walk("POST", "/api/v1/approval-rules", 201, json=rule)["id"]
    walk("POST", "/api/v1/webhooks/events/{conversation_id}", json=[action("four")])
    assert walk("GET", "/api/v1/pending-actions/count", query=mine) == 0
    assert walk("GET", "/api/v1/approval-rules/{rule_id}")["uses"] == 1
    assert walk("GET", "/api/v1/approval-rules")
    walk("DELETE", "/api/v1/approval-rules/{rule_id}")


def of_destinations(walk: WireWalk) -> None:
    rule = {"name": "*.example.org", "decision": "approve"}
    walk.names["rule_id"] = walk("POST", "/api/v1/destination-rules", 201, json=rule)["id"]
    assert [one["uses"] for one in walk("GET", "/api/v1/destination-rules")] == [0]
    walk("DELETE", "/api/v1/destination-rules/{rule_id}")
    assert walk("GET", "/api/v1/destinations", query={"sandbox_id": "none"})["items"] == []
    decision = {"sandbox_id": "none", "name": "example.org", "port": 443, "decision": "approve", "scope": "once"}
    walk("POST", "/api/v1/destinations/decisions", 404, json=decision | {"digest": 64 * "0"})


def of_forks(walk: WireWalk) -> None:
    walk("POST", "/api/v1/webhooks/events/{conversation_id}", json=[message("kept"), event()])
    fork = walk("POST", f"{CONVERSATION}/fork", 201, json={})
    assert fork["id"] != walk.names["conversation_id"]


def of_agents(walk: WireWalk) -> None:
    """What needs an agent in a sandbox, of a conversation that has none."""
    for verb, body in (
        ("ask_agent", {"question": "x"}),
        ("condense", {}),
        ("navigate", {"event_id": None}),
        ("load_plugin", {"plugin_ref": "x"}),
        ("goal", {"objective": "x"}),
        ("goal/stop", {}),
        ("goal/resume", {}),
        ("switch_llm", {"llm": {}}),
        ("switch_acp_model", {"model": "x"}),
        ("switch_profile", {"profile_name": "x"}),
        ("runtime/credentials", {}),
    ):
        walk("POST", f"{CONVERSATION}/{verb}", 409, json=body)
    walk("GET", f"{CONVERSATION}/runtime", 409)
    mine = {"cid": walk.names["conversation_id"]}
    for method, path in sorted(FORWARDED):
        walk(method, path, 409, query=mine)


def of_app_conversations(walk: WireWalk) -> None:
    """A start that no supervisor takes, and what is asked of an app conversation that is none."""
    task = walk("POST", "/api/v1/app-conversations", json={"title": "Started"})
    assert task["status"] == "WORKING"
    tasks = "/api/v1/app-conversations/start-tasks"
    assert walk("GET", tasks, query={"ids": task["id"]})[0]["id"] == task["id"]
    assert walk("GET", f"{tasks}/search")["items"]
    assert walk("GET", f"{tasks}/count") >= 1
    walk.names["receiver_id"] = f"task-{task['id']}"
    walk("POST", "/api/v1/conversations/{receiver_id}/pending-messages", 201, json={"content": SAID})
    streamed = walk("POST", "/api/v1/app-conversations/stream-start", json={}, first=True)
    assert b"WORKING" in streamed
    walk.names["start_task_id"] = task["id"]
    assert walk("DELETE", f"{tasks}/{{start_task_id}}")["status"] == "ERROR"
    assert walk("GET", "/api/v1/app-conversations", query={"ids": str(uuid4())}) == [None]
    walk("GET", "/api/v1/app-conversations/search")
    walk("GET", "/api/v1/app-conversations/count")
    for method, path in sorted(OPERATIONS):
        if path.startswith(APP):
            named = {"files": "path", "changes": "path", "diff": "path", "file": "file_path"}.get(
                path.rpartition("/")[2]
            )
            query = {named: "x"} if named else {}
            status = 200 if path.endswith("/records") else 404  # without a sandbox there are none
            body = {"undo": True} if path.endswith("/return") else {"title": "x", "content": SAID}
            body = {"title": "x", "branch": "x"} if path.endswith("/push") else body
            walk(method, path, status, query=query, json=body)


def of_openai(walk: WireWalk) -> None:
    """A turn that another worker began: both calls follow it, and send nothing."""
    [model, *_] = walk("GET", "/v1/models")["data"]
    walk.names["model"] = model["id"]
    assert walk("GET", "/v1/models/{model}") == model
    turn = [message("asked"), status("running"), message("answered", "agent"), status("finished")]
    walk("POST", "/api/v1/webhooks/events/{conversation_id}", json=turn)
    repeat = {"X-OpenHands-ServerConversation-ID": walk.names["conversation_id"], "X-Stainless-Retry-Count": "1"}
    chat = {"model": model["id"], "messages": [{"role": "user", "content": "asked"}]}
    completion = walk("POST", "/v1/chat/completions", json=chat, headers=repeat)
    assert completion["choices"][0]["message"]["content"] == "answered"
    more = [*chat["messages"], {"role": "assistant", "content": "answered"}, {"role": "user", "content": "asked"}]
    chats = walk("POST", "/v1/chat/completions", json={**chat, "messages": more}, headers=repeat)
    assert chats["id"] != completion["id"]
    response = walk("POST", "/v1/responses", json={"model": model["id"], "input": "asked"}, headers=repeat)
    assert response["output"][0]["content"][0]["text"] == "answered"


def of_sandboxes(walk: WireWalk) -> None:
    """A sandbox that no supervisor takes, and its spec."""
    [spec, *_] = walk("GET", "/api/v1/sandbox-specs/search")["items"]
    assert walk("GET", "/api/v1/sandbox-specs", query={"id": spec["id"]}) == [spec]
    sandbox = walk("POST", "/api/v1/sandboxes")
    walk.names["sandbox_id"] = sandbox["id"]
    assert sandbox["status"] == "STARTING"
    assert [one["id"] for one in walk("GET", "/api/v1/sandboxes", query={"id": sandbox["id"]})] == [sandbox["id"]]
    assert walk("GET", "/api/v1/sandboxes/search")["items"]
    walk.stream("/api/v1/sandboxes/stream", "event: ready")
    walk("GET", "/api/v1/sandboxes/{sandbox_id}/logs")
    assert walk("GET", "/api/v1/sandboxes/{sandbox_id}/destinations") == []
    assert walk("GET", "/api/v1/sandboxes/{sandbox_id}/spending")["calls"] == 0
    assert walk("GET", "/api/v1/spending")["keys"] == []
    walk("GET", "/api/v1/sandboxes/{sandbox_id}/archive", 409)
    walk("GET", "/api/v1/sandboxes/{sandbox_id}/settings/secrets", 401)
    walk("GET", "/api/v1/sandboxes/{sandbox_id}/settings/secrets/{secret_name}", 401)
    walk("POST", "/api/v1/sandboxes/{sandbox_id}/conversations/{conversation_id}/adopt", 409)
    walk("POST", "/api/v1/sandboxes/{sandbox_id}/pause", 409)
    walk("POST", "/api/v1/sandboxes/{sandbox_id}/resume")
    walk("POST", "/api/v1/webhooks/{sandbox_id}/events/{conversation_id}", 401, json=[])
    walk("POST", "/api/v1/webhooks/{sandbox_id}/conversations", 401, json={})
    walk("POST", "/api/v1/webhooks/conversations", 401, json={})
    walk("DELETE", "/api/v1/sandboxes/{sandbox_id}")
    walk("GET", "/api/v1/sandboxes/{sandbox_id}/ports", 404)
    walk("POST", "/api/v1/sandboxes/{sandbox_id}/previews", 404, json={"port": 8000})


def of_keys(walk: WireWalk) -> None:
    key = walk("POST", "/api/v1/keys", 201, json={"name": "walk", "scopes": ["read"]})
    walk.names["key_id"] = key["id"]
    assert key["id"] in [one["id"] for one in walk("GET", "/api/v1/keys")]
    walk("DELETE", "/api/v1/keys/{key_id}")
    assert walk("POST", "/api/v1/tickets", 201, json={"conversation_id": walk.names["conversation_id"]})


def of_client_settings(walk: WireWalk) -> None:
    """What a key keeps: settings, profiles, secrets and folders, each from its making to its end."""
    walk.names |= {"settings_key": "tracker", "name": "walked", "profile_id": str(uuid4()), "file_path": "x"}
    llm = {"model": "openai/gpt-walk", "api_key": "sk-walked-key"}
    shown = walk("PATCH", "/api/settings", json={"agent_settings_diff": {"llm": llm}})
    assert shown["agent_settings"]["llm"] == {**llm, "api_key": "**********"}
    assert walk("GET", "/api/settings")["llm_api_key_is_set"] is True
    for form in ("agent", "conversation"):
        assert walk("GET", f"/api/settings/{form}-schema")["sections"]
    server = {"transport": "http", "url": "https://mcp.example/mcp"}
    walk("POST", "/api/settings/mcp/{settings_key}", 201, json=server)
    walk("PATCH", "/api/settings/mcp/{settings_key}", json={"timeout": 5})
    kept = walk("DELETE", "/api/settings/mcp/{settings_key}")
    assert kept["agent_settings"]["mcp_config"] == {}
    walk("PUT", "/api/settings/secrets", json={"name": "walked", "value": "hush hush"})
    assert walk("GET", "/api/settings/secrets") == {"secrets": [{"name": "walked", "description": None}]}
    assert walk("DELETE", "/api/settings/secrets/{name}") == {"deleted": True}

    walk("POST", "/api/profiles/{name}", 201, json={"llm": llm})
    assert walk("POST", "/api/profiles/{name}/validate", json={"llm": llm}) == {"valid": True, "error": None}
    assert walk("GET", "/api/profiles/{name}")["api_key_set"] is True
    assert walk("POST", "/api/profiles/{name}/activate")["llm_applied"] is True
    assert walk("GET", "/api/profiles")["active_profile"] == "walked"
    walk("POST", "/api/profiles/{name}/rename", json={"new_name": "walked"})
    assert walk("GET", "/api/llm/models")["models"] == ["openai/gpt-walk"]
    assert walk("GET", "/api/llm/models/verified") == {"models": {"openai": ["gpt-walk"]}}
    assert walk("GET", "/api/llm/providers") == {"providers": ["openai"]}

    walk("POST", "/api/agent-profiles/{name}", 201, json={"llm_profile_ref": "walked"})
    walk.names["profile_id"] = walk("GET", "/api/agent-profiles/{name}")["profile"]["id"]
    walk("POST", "/api/agent-profiles/{profile_id}/activate")
    assert walk("GET", "/api/agent-profiles")["active_agent_profile_id"] == walk.names["profile_id"]
    assert walk("POST", "/api/agent-profiles/{name}/materialize")["valid"] is True
    walk("POST", "/api/agent-profiles/{name}/rename", json={"new_name": "walked"})
    walk("DELETE", "/api/profiles/{name}", 409)
    walk("DELETE", "/api/agent-profiles/{name}")
    walk("DELETE", "/api/profiles/{name}")

    shared = {"display_name": "Shared", "api_key": "sk-shared-key", "base_url": "https://shared.example/v1"}
    connection = walk("POST", "/api/llm/provider-connections", 201, json=shared)
    assert walk("GET", "/api/llm/provider-connections") == [connection]
    walk.names["connection_id"] = connection["id"]
    moved = walk("PATCH", "/api/llm/provider-connections/{connection_id}", json={"base_url": None})
    assert (moved["base_url"], moved["api_key_set"]) == (None, True)
    assert walk("DELETE", "/api/llm/provider-connections/{connection_id}")["api_key_set"] is False

    folder = {"id": "/w", "name": "w", "path": "/w"}
    for path, member in (("/api/workspaces", "workspaces"), ("/api/workspaces/parents", "parents")):
        walk("POST", path, json={member: [folder]})
        walk("DELETE", path, query={"path": "/w"})
    assert walk("GET", "/api/workspaces") == {"workspaces": [], "workspaceParents": []}
    assert "terminal" in walk("GET", "/api/tools/")
    assert walk("GET", "/api/tools/catalog")["tools"]
    assert walk("POST", "/api/skills") == {"skills": [], "sources": {}}
    assert walk("POST", "/api/hooks") == {"hook_config": None}
    assert walk("GET", "/api/file/home")["home"] == "/workspace"
    walk("POST", "/api/auth/workspace-session", 204)
    walk("DELETE", "/api/auth/workspace-session", 204)
    walk("GET", f"{CONVERSATION}/workspace", 409)
    walk("GET", f"{CONVERSATION}/workspace/{{file_path}}", 409)
    walk("GET", "/api/file/download-trajectory/{conversation_id}", 404)


def of_terminals(walk: WireWalk) -> None:
    """A request of an agent in a terminal, what became of it, and what its hook tells."""
    session = {"id": "s", "cwd": "/home/ada/shop", "host": "laptop", "user": "ada"}
    whole = {"agent": {"name": "claude-code"}, "session": session}
    call = {"tool_name": "Bash", "arguments": {"command": "ls"}}
    walk.names["request_id"] = walk("POST", "/api/v1/permission-requests", 201, json={**whole, **call})["id"]
    assert walk("GET", "/api/v1/permission-requests/{request_id}")["state"] == "pending"
    told = {"outcome": "allowed", "by": "terminal"}
    assert walk("POST", "/api/v1/permission-requests/{request_id}/outcome", json=told)["state"] == "approved"
    walk("POST", "/api/v1/permission-requests/outcomes", json={**whole, **call, "outcome": "ran", "by": "terminal"})
    walk("POST", "/api/v1/permission-requests/reports", 204, json={**whole, "kind": "end"})
    walk.names["agent"] = "claude"
    event = {"hook_event_name": "SessionEnd", "session_id": "s", "cwd": "/home/ada/shop"}
    walk("POST", "/api/v1/hooks/{agent}", json=event)


#: the order in which the operations of a resource are visited, from its making to its end
LIFE = ("POST", "GET", "PUT", "PATCH", "DELETE")


def of_others(walk: WireWalk) -> None:
    """What is visited nowhere above: each with its smallest request, which succeeds as the document says.

    The id of what a POST makes stands in the paths below it.
    """
    walk("POST", "/api/v1/notifications/test", 409)
    left = [one for one in operations() if (one.method, one.path) not in walk.visited]
    for one in sorted(left, key=lambda one: (LIFE.index(one.method), one.path)):
        status = min(map(int, one.content["responses"]))
        body = {"json": one.body()} if one.takes_json() else {}
        made = walk(one.method, one.path, status, query=one.query(), **body)
        if one.method == "POST" and isinstance(made, dict) and "id" in made:
            own = [name for other in left for name in below(one.path, other.path)]
            walk.names |= dict.fromkeys(own, made["id"])


def below(path: str, other: str) -> list[str]:
    """The parameter that follows a path in another."""
    return re.findall(rf"^{re.escape(path)}/{{(\w+)}}", other)


def test_every_operation_answers_the_same_on_every_backend(client, store):
    walk = WireWalk(client)
    of_conversations(walk)
    of_events(walk)
    of_decisions(walk)
    of_destinations(walk)
    of_forks(walk)
    of_agents(walk)
    of_openai(walk)
    of_terminals(walk)
    for part in (of_app_conversations, of_sandboxes):
        assert store.sandboxes.beat("walked", "supervisor")  # a host that takes nothing
        part(walk)
    of_keys(walk)
    of_client_settings(walk)
    of_others(walk)

    assert sorted(OPERATIONS - walk.visited) == []


@pytest.mark.process("starts a whole server and a sandbox")
@pytest.mark.parametrize("backend", variants(USUAL, [one for one in BACKENDS if one not in USUAL]))
def test_a_sandbox_lives_and_ends_on_every_backend(tmp_path, backend):
    with BACKENDS[backend](tmp_path) as (url, _), supervised_server(tmp_path, REDIS_URL=url) as (client, _):
        api = WireApi(client)
        conversation = api.app_conversation(title="On " + backend, secrets={"TOKEN": "x"})
        api.send(conversation["id"], "run: echo done")
        api.until(conversation["id"], "waiting_for_confirmation")
        sandbox = f"/v1/sandboxes/{conversation['sandbox_id']}"
        api.call("POST", f"{sandbox}/pause")
        assert api.decide(conversation["id"], True) == {"success": True}
        assert "serving on" in api.call("GET", f"{sandbox}/logs")["log"]
        api.call("POST", f"{sandbox}/resume")
        wait_until(lambda: api.count(conversation["id"], kind="ObservationEvent") == 1, "the observation")
        assert api.call("GET", "/v1/app-conversations/count") == 1
        api.call("DELETE", f"/v1/app-conversations/{conversation['id']}")
        wait_until(lambda: api.sandbox(conversation["sandbox_id"]) is None, "the end of the sandbox")
