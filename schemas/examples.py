"""The description of the API in the OpenAPI document, and examples of the operations that a newcomer uses first.

`tests/test_openapi.py` validates each example against the schema of its operation.
"""

from typing import Any, NamedTuple

#: Description of the API, in Markdown.
DESCRIPTION = """\
Run AI agents in sandboxes, watch them work, and approve what they do.

**Begin** with `POST /api/v1/app-conversations/stream-start`: it starts an agent in a sandbox of its own and streams
the states of the start until `READY`. Follow the agent with `GET /api/conversations/{conversation_id}/events/search`,
and decide what waits in `GET /api/v1/pending-actions`. `GET /api/conversations/{conversation_id}` has the status.

**Authentication.** Send a key as `Authorization: Bearer KEY` or `X-Session-API-Key: KEY`. A server on loopback may
need none. A key has scopes: `read`, `write`, `approve`, `admin`. A wrong key is 401, a missing scope 403.

**Pages and cursors.** A list has `items` and `next_page_id`: send it back as `page_id`. null ends the list. Events
have a seq: `after_seq` reads on from it, and waits up to `wait` seconds for the next event.

**Errors.** Every error is `{"detail": …}`: a sentence, or of a 422 a list that names each wrong member. 429 and 503
have `Retry-After`. Below `/v1` errors have the shape of OpenAI's API.

**Idempotency.** Send `Idempotency-Key` with a POST and repeat it as it is: it takes effect once for 24 hours.

**More.** The console is at `/console/`, this document at `/openapi.json`, a page of it at `/docs`, OpenAI's API at
`/v1`. Times are ISO 8601 in UTC. Names and shapes are those of the OpenHands agent server and app server.
"""

_ID, _HEX = "5f1c8a52-7d0e-4c39-9a41-2f6f6a1f0021", "5f1c8a527d0e4c399a412f6f6a1f0021"
_SANDBOX, _ACTION = "3e1fd4683dre73t3tHmzFo", "4a1d20a8-a5f4-473f-81a1-e473e35237b3"
_DIGEST = "acd7196969d4dd25b09081321c2c29e2a31612feb494c4a1f0a5b348bff71604"
_COMMAND = "echo hello > hello.txt"

_MESSAGE = {"role": "user", "content": [{"type": "text", "text": f"run: {_COMMAND}"}], "run": True}
_START = {"conversation_id": _ID, "title": "Say hello", "initial_message": _MESSAGE}

_READY = {
    "id": "3e1fd4683dce4f43a11184d5599438fc",
    "created_by_user_id": None,
    "status": "READY",
    "detail": None,
    "app_conversation_id": _HEX,
    "sandbox_id": _SANDBOX,
    "agent_server_url": "http://127.0.0.1:29799",
    "request": _START,
    "created_at": "2027-01-31T09:27:43.956379Z",
    "updated_at": "2027-01-31T09:27:46.715757Z",
}
_WAITING = {
    **_READY,
    "status": "WAITING_FOR_SANDBOX",
    "app_conversation_id": None,
    "agent_server_url": None,
    "updated_at": "2027-01-31T09:27:43.966321Z",
}

_EVENT = {
    "id": "49b14e3a-4c38-4705-b88e-47eb27762661",
    "timestamp": "2027-01-31T09:27:47.527757",
    "source": "environment",
    "tool_name": "terminal",
    "tool_call_id": "call_a239f03a53c84f51931fedcc83ba2b4a",
    "action_id": _ACTION,
    "observation": {
        "content": [{"type": "text", "text": ""}],
        "is_error": False,
        "exit_code": 0,
        "command": _COMMAND,
        "kind": "TerminalObservation",
    },
    "kind": "ObservationEvent",
}

_PENDING = {
    "conversation_id": _ID,
    "conversation_title": "Say hello",
    "tags": {},
    "action_id": _ACTION,
    "tool_name": "terminal",
    "summary": _COMMAND,
    "thought": "",
    "security_risk": "UNKNOWN",
    "arguments": {"command": _COMMAND, "is_input": False, "reset": False},
    "since": "2027-01-31T09:27:46.898874Z",
    "expires_at": None,
    "digest": _DIGEST,
    "sandbox_id": _SANDBOX,
    "can": ["approve", "reject", "edit"],
    "decided_together": False,
    "complete": True,
    "risk": "LOW",
    "seen": {
        "risk": "LOW",
        "effects": [{"effect": "writes_inside", "risk": "LOW", "words": "Writes files", "because": "> hello.txt"}],
    },
    "like": None,
    "folder": "/workspace/project",
    "repository": None,
    "asked_from": None,
}

_BOX = {
    "id": _SANDBOX,
    "created_by_user_id": None,
    "sandbox_spec_id": "reference-agent",
    "status": "RUNNING",
    "session_api_key": "the-session-key-of-this-sandbox",
    "exposed_urls": [{"name": "AGENT_SERVER", "url": "http://127.0.0.1:29799", "port": 29799}],
    "created_at": "2027-01-31T09:27:43.968887Z",
    "status_detail": None,
    "status_since": "2027-01-31T09:27:46.565558Z",
    "host": "host-1",
    "disk_bytes": 36864,
    "memory_bytes": 51728384,
    "cpu_cores": None,
    "isolation": {"kind": "bubblewrap", "network": "named", "reaches": [], "lacks": []},
    "stray_conversations": {"count": 0, "newest": []},
}


class OperationExample(NamedTuple):
    """A request and a response of an operation; None if there is none in JSON."""

    response: Any
    request: Any = None
    status: str = "200"


#: By method and path.
EXAMPLES = {
    ("post", "/api/v1/app-conversations"): OperationExample(_WAITING, _START),
    ("post", "/api/v1/app-conversations/stream-start"): OperationExample([_WAITING, _READY], _START),
    ("get", "/api/v1/app-conversations/start-tasks"): OperationExample([_READY]),
    ("post", "/api/conversations/{conversation_id}/events"): OperationExample({"success": True}, _MESSAGE),
    ("get", "/api/conversations/{conversation_id}/events/search"): OperationExample(
        {"items": [_EVENT], "next_page_id": None}
    ),
    ("get", "/api/conversations/{conversation_id}/events/count"): OperationExample(42),
    ("get", "/api/v1/pending-actions"): OperationExample({"items": [_PENDING], "next_page_id": None}),
    ("get", "/api/v1/pending-actions/count"): OperationExample(1),
    ("post", "/api/v1/conversation/{conversation_id}/pending-actions/decisions"): OperationExample(
        {"success": True, "rules": []},
        {"decisions": [{"action_id": _ACTION, "decision": "approve", "digest": _DIGEST}]},
    ),
    ("post", "/api/conversations/{conversation_id}/events/respond_to_confirmation"): OperationExample(
        {"success": True}, {"accept": False, "reason": "Use the folder reports instead."}
    ),
    ("get", "/api/v1/sandboxes/search"): OperationExample({"items": [_BOX], "next_page_id": None}),
    ("post", "/api/v1/sandboxes/{sandbox_id}/pause"): OperationExample({"success": True}),
    ("post", "/api/v1/sandboxes/{sandbox_id}/resume"): OperationExample({"success": True}),
    ("get", "/api/v1/app-conversations/{conversation_id}/files"): OperationExample(["hello.txt", "reports/2027.md"]),
    ("get", "/api/v1/app-conversations/{conversation_id}/file"): OperationExample("hello\n"),
}


def add_examples(document: dict[str, Any]) -> None:
    """Add the description and the examples to an OpenAPI document."""
    document["info"]["description"] = DESCRIPTION
    for (method, path), example in EXAMPLES.items():
        operation = document["paths"][path][method]
        operation["responses"][example.status]["content"]["application/json"]["example"] = example.response
        if example.request is not None:
            operation["requestBody"]["content"]["application/json"]["example"] = example.request
