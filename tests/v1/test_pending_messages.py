"""Messages to conversations that still start: none is lost, none comes twice, and each comes in its order."""

import os
import signal
from uuid import UUID

import pytest

from tests.servers import wait_until
from tests.v1 import WireApi
from tests.v1.processes import supervisor_of

pytestmark = pytest.mark.faults("starts a sandbox for each test, and kills a supervisor")


def put(api: WireApi, receiver: str, text: str = "hello", *, status: int = 201, **members):
    body = {"content": [{"type": "text", "text": text}], **members}
    return api.call("POST", f"/v1/conversations/{receiver}/pending-messages", json=body, status=status)


def said(api: WireApi, conversation: str) -> list[str]:
    """The texts of the user's messages, in the order of the log."""
    events = api.events(conversation, kind__eq="MessageEvent")
    return [one["llm_message"]["content"][0]["text"] for one in events if one["source"] == "user"]


def test_a_start_that_has_failed_takes_no_message(api):
    task = api.start_task(sandbox_spec_id="broken")
    put(api, f"task-{task['id']}")
    assert api.finished(task["id"])["status"] == "ERROR"

    assert "The start of the conversation has failed" in put(api, f"task-{task['id']}", status=409)["detail"]


def test_the_eleventh_message_is_429_and_names_the_bound(api):
    task = api.start_task(sandbox_spec_id="silent")  # which never becomes ready

    found = [put(api, f"task-{UUID(task['id'])}", str(number)) for number in range(10)]

    assert [one["position"] for one in found] == list(range(1, 11))
    assert all(one["queued"] and UUID(one["id"]) for one in found)
    assert put(api, f"task-{task['id']}", status=429)["detail"].startswith("Limit of 10 queued messages")


def test_messages_that_were_queued_during_the_start_come_in_their_order(api):
    task = api.start_task(sandbox_spec_id="free")
    for number in range(5):
        put(api, f"task-{task['id']}", str(number))

    conversation = api.finished(task["id"])["app_conversation_id"]

    wait_until(lambda: len(said(api, conversation)) >= 5, "the messages")
    assert said(api, conversation) == [str(number) for number in range(5)]


def test_a_message_to_a_paused_conversation_wakes_it(api):
    conversation = api.app_conversation(sandbox_spec_id="free")
    api.call("POST", f"/v1/sandboxes/{conversation['sandbox_id']}/pause")

    put(api, conversation["id"], "wake up")

    wait_until(lambda: said(api, conversation["id"]) == ["wake up"], "the message")
    assert api.sandbox(conversation["sandbox_id"])["status"] == "RUNNING"


def test_a_killed_supervisor_loses_no_message_and_repeats_none(supervised):
    api, master, _ = supervised
    conversation = api.app_conversation(sandbox_spec_id="free")["id"]
    for number in range(6):
        put(api, conversation, str(number))
        if number in (1, 3):
            os.kill(supervisor_of(master).pid, signal.SIGKILL)

    wait_until(lambda: len(said(api, conversation)) >= 6, "the messages")
    assert said(api, conversation) == [str(number) for number in range(6)]
