"""The frames of a socket that follows a conversation in a sandbox: a `full_state` only begins it or ends a run."""

from uuid import UUID

import pytest

from tests.conftest import event, status
from tests.sockets import socket
from tests.v1.processes import hook_key

pytestmark = pytest.mark.process("starts a sandbox for each test")


@pytest.fixture
def linked(api, folder):
    """A conversation in a sandbox, and what posts to a webhook of that sandbox."""
    sandbox = api.running_sandbox("free")
    headers = {"Authorization": f"Bearer {hook_key(folder, sandbox['id'])}"}

    def post(path, body):
        api.call("POST", f"/v1/webhooks{path}", json=body, headers=headers)

    return str(UUID(api.app_conversation(sandbox_id=sandbox["id"])["id"])), post


def told(frame):
    return frame.get("key"), frame["value"]["execution_status"] if frame.get("key") == "full_state" else frame["value"]


def test_reports_and_snapshots_of_an_agent_send_no_full_state_but_the_end_of_a_run_does(api, server, linked):
    conversation, post = linked
    snapshot = {"execution_status": "finished", "tags": {}}
    with socket(server, conversation) as listener:
        listener.receive()

        post(f"/events/{conversation}", [status("running")])
        post("/conversations", {"id": conversation, "title": "theirs", "stats": {"usage_to_metrics": {"a": {}}}})
        post(f"/events/{conversation}", [status("finished")])
        full = event("ConversationStateUpdateEvent", "environment", key="full_state", value=snapshot)
        post(f"/events/{conversation}", [full])
        post("/conversations", {"id": conversation, "tags": {"b": "2"}})
        post(f"/events/{conversation}", [status("idle")])

        assert [told(listener.receive()) for _ in range(4)] == [
            ("execution_status", "running"),
            ("execution_status", "finished"),
            ("full_state", "finished"),
            ("execution_status", "idle"),
        ]


def test_a_changed_title_is_told_to_a_follower_with_seqs(api, server, linked):
    conversation, post = linked
    with socket(server, conversation, after_seq=0) as listener:
        api.call("PATCH", f"/v1/app-conversations/{conversation}", json={"title": "ours"})
        post("/conversations", {"id": conversation, "title": "theirs"})
        post(f"/events/{conversation}", [status("running")])

        received = [listener.receive()["event"]]
        while received[-1].get("value") != "running":
            received.append(listener.receive()["event"])
        assert [one["value"] for one in received if one.get("key") == "title"] == ["ours"]
