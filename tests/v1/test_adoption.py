"""A client begins a conversation at a sandbox's own agent server; the sandbox says so, and a call brings it here."""

from uuid import UUID, uuid4

import httpx
import pytest

from tests.servers import wait_until

pytestmark = pytest.mark.process("starts a server and a sandbox, and waits for its supervisor to ask the agent")


def test_a_conversation_of_the_agent_server_is_named_by_its_sandbox_adopted_and_decided_here(api):
    sandbox, stray = api.running_sandbox(), str(uuid4())
    [url] = [one["url"] for one in sandbox["exposed_urls"] if one["name"] == "AGENT_SERVER"]
    body = {
        "conversation_id": stray,
        "confirmation_policy": {"kind": "AlwaysConfirm"},
        "initial_message": {"content": [{"type": "text", "text": "run: echo it is $((40 + 2))"}]},
    }
    key = {"X-Session-API-Key": sandbox["session_api_key"]}
    assert httpx.post(f"{url}/api/conversations", json=body, headers=key).status_code == 201
    assert api.conversation(stray) is None

    wait_until(lambda: (api.sandbox(sandbox["id"])["stray_conversations"] or {}).get("count"), "the stray")
    assert [one["id"] for one in api.sandbox(sandbox["id"])["stray_conversations"]["newest"]] == [stray]

    adopted = api.call("POST", f"/v1/sandboxes/{sandbox['id']}/conversations/{stray}/adopt")
    assert UUID(adopted["id"]) == UUID(stray)
    assert api.sandbox(sandbox["id"])["stray_conversations"] == {"count": 0, "newest": []}
    api.until(stray, "waiting_for_confirmation")
    assert api.decide(stray, True) == {"success": True}
    wait_until(lambda: api.count(stray, kind="ObservationEvent") == 1, "the observation")
