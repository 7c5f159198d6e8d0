"""POST /api/conversations with an agent: it starts in a sandbox, and the response waits for it."""

AGENT = {"kind": "Agent", "llm": {"model": "their/model", "api_key": "planted-key-of-the-model"}, "tools": []}
WORKSPACE = {"kind": "LocalWorkspace", "working_dir": "/home/somebody/project"}


def begin(api, *, status: int = 201, headers: dict[str, str] | None = None, **members):
    body = {"agent": AGENT, "workspace": WORKSPACE, **members}
    return api.call("POST", "/conversations", status=status, json=body, headers=headers or {})


def sandboxes(api) -> list[str]:
    return [one["id"] for one in api.call("GET", "/v1/sandboxes/search")["items"]]


def test_an_agent_that_a_client_brings_is_started_and_runs(api):
    message = {"role": "user", "content": [{"type": "text", "text": "run: pwd"}]}
    conversation = begin(api, initial_message=message, tags={"a": "b"}, title="Mine")

    assert (conversation["title"], conversation["tags"]) == ("Mine", {"a": "b"})
    api.until(conversation["id"], "finished")
    assert api.count(conversation["id"], kind="MessageEvent", source="user") == 1
    [state] = api.call("GET", "/v1/app-conversations", params={"ids": conversation["id"]})
    assert state["sandbox_status"] == "RUNNING"
    assert state["llm_model"] == "their/model"
