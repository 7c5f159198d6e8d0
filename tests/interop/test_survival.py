"""A conversation of the published agent server survives what happens to its sandbox, and its log stays complete."""

import json
from contextlib import suppress
from typing import Any
from uuid import UUID

import psutil
import pytest

from tests.interop.comparison import compare_with_agent
from tests.servers import wait_until
from tests.v1 import WireApi
from tests.v1.processes import in_sandboxes, launchers

pytestmark = pytest.mark.interop("kills and pauses the published agent server in sandboxes")

#: seconds in which a sandbox starts again on a busy machine
START_SECONDS = 120


@pytest.fixture
def api(our_side):
    with our_side.http as http:
        yield WireApi(http)


def kill(side, api: WireApi, conversation: str, *, restarts: int) -> None:
    """Kill every process of the sandbox, and wait until its supervisor has started it again.

    Not its launcher: nothing else shows that they have ended.
    """
    sandbox, spared = api.conversation(conversation)["sandbox_id"], launchers(side.folder)
    for process in in_sandboxes(side.folder):
        with suppress(psutil.Error):
            if sandbox in json.dumps(process.environ()) and process not in spared:
                process.kill()
    wait_until(lambda: len(restarted(api, conversation)) == restarts, "the reason in the log", seconds=START_SECONDS)
    wait_until(lambda: api.sandbox(sandbox)["status"] == "RUNNING", "the sandbox", seconds=START_SECONDS)


def restarted(api: WireApi, conversation: str) -> list[dict[str, Any]]:
    errors = api.events(conversation, kind__eq="ConversationErrorEvent")
    return [error for error in errors if error["code"] == "AgentServerRestarted"]


@pytest.fixture
def conversation(api) -> str:
    """The id of an app conversation of the spec, in which an action waits."""
    first = {"content": [{"type": "text", "text": "run: echo hi"}]}
    task = api.start_task(title="Interop", initial_message=first)
    wait_until(lambda: api.task(task["id"])["status"] in ("READY", "ERROR"), "the start", seconds=START_SECONDS)
    task = api.task(task["id"])
    assert (task["status"], task["detail"]) == ("READY", None)
    identity = str(UUID(task["app_conversation_id"]))
    api.until(identity, "waiting_for_confirmation")
    yield identity
    api.client.delete(f"/api/v1/app-conversations/{identity}")


def test_a_decision_takes_effect_once(our_side, api, conversation):
    assert api.decide(conversation, False, reason="not today") == {"success": True}
    assert api.decide(conversation, False) == {"success": False}
    wait_until(lambda: api.count(conversation, kind="UserRejectObservation") == 1, "the rejection")

    api.send(conversation, "run: echo once more")
    api.until(conversation, "waiting_for_confirmation")
    assert api.decide(conversation, True) == {"success": True}
    api.until(conversation, "finished")

    observed = [event["observation"]["kind"] for event in api.events(conversation, kind__eq="ObservationEvent")]
    assert observed == ["TerminalObservation", "FinishObservation"]
    compare_with_agent(our_side, conversation)


def test_a_conversation_goes_on_after_the_agent_server_was_killed_while_an_action_waited_and_while_a_command_ran(
    our_side, api, conversation
):
    kill(our_side, api, conversation, restarts=1)
    assert api.conversation(conversation)["execution_status"] == "waiting_for_confirmation"
    compare_with_agent(our_side, conversation)

    api.decide(conversation, False)
    api.send(conversation, "run: sleep 600")
    api.until(conversation, "waiting_for_confirmation")
    assert api.decide(conversation, True) == {"success": True}
    api.until(conversation, "running")
    kill(our_side, api, conversation, restarts=2)
    assert api.conversation(conversation)["execution_status"] != "running"
    told = [error["code"] for error in api.events(conversation, kind__eq="ConversationErrorEvent")]
    assert told == ["AgentServerRestarted", "AgentServerRestarted", "ActionInterrupted"]

    goes_on(our_side, conversation)


def test_a_run_whose_sandbox_is_paused_goes_on_after_a_resume_and_the_next_use_wakes_a_paused_sandbox(
    our_side, api, conversation
):
    api.decide(conversation, True)
    api.until(conversation, "finished")
    with our_side.client("resume", conversation, "run: sleep 5; echo slept") as client:
        client.until("runs")
        wait_until(lambda: api.count(conversation, kind="ActionEvent") == 3, "the action")
        sandbox = api.conversation(conversation)["sandbox_id"]
        api.call("POST", f"/v1/sandboxes/{sandbox}/pause")
        api.wait_for(sandbox, "PAUSED")
        client.process.kill()

    wait_until(lambda: api.conversation(conversation)["execution_status"] != "running", "a true status")
    api.call("POST", f"/v1/sandboxes/{sandbox}/resume")
    api.until(conversation, "finished")
    observed = api.events(conversation, kind__eq="ObservationEvent")
    assert "slept" in json.dumps(observed[-2]["observation"])

    api.call("POST", f"/v1/sandboxes/{sandbox}/pause")
    api.wait_for(sandbox, "PAUSED")
    goes_on(our_side, conversation)  # use wakes it


def goes_on(side, conversation: str) -> None:
    """The SDK sends a message and runs: the agent acts, and the log is complete and in order."""
    *_, ran = side.played("resume", conversation, "run: echo and on")
    assert ran["status"] == "finished"
    assert ran["observed"][-2:] == ["and on", "done"]
    compare_with_agent(side, conversation)
