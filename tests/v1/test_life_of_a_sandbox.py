"""The quick walk through the whole server: one sandbox lives and is deleted, one crashes."""

import contextlib
from pathlib import Path

import httpx
import psutil
import pytest

from runtimes.tree import MARK
from tests.servers import wait_until
from tests.v1 import WireApi
from tests.v1.processes import agents, in_sandboxes

pytestmark = pytest.mark.process("starts a server and a sandbox")


def processes_of(folder: Path, sandbox_id: str) -> list[psutil.Process]:
    """The processes of one sandbox."""
    found = []
    for process in in_sandboxes(folder):
        with contextlib.suppress(psutil.Error):
            found += [process] * process.environ()[MARK].endswith(f"/{sandbox_id}")
    return found


@pytest.fixture(scope="module")
def api(server):
    api = WireApi(server)
    yield api
    api.clean()


@pytest.fixture(scope="module")
def conversation(api):
    """A conversation whose agent waits for a decision, in a sandbox of its own."""
    said = {"content": [{"type": "text", "text": "run: echo it is $((40 + 2))"}]}
    conversation = api.app_conversation(initial_message=said)
    api.until(conversation["id"], "waiting_for_confirmation")
    return conversation


@pytest.fixture(scope="module")
def doomed(api, conversation, folder):
    """Another sandbox, and its agent server."""
    before = agents(folder)
    sandbox = api.running_sandbox()
    [agent] = [one for one in agents(folder) if one not in before]
    return sandbox, agent


def test_a_sandbox_runs_what_was_approved_pauses_resumes_and_ends_with_its_deletion(api, conversation):
    identity, path = conversation["id"], f"/v1/sandboxes/{conversation['sandbox_id']}"
    alive = conversation["conversation_url"].partition("/api/")[0] + "/alive"
    assert httpx.get(alive).status_code == 200

    assert api.decide(identity, True) == {"success": True}
    assert api.decide(identity, True) == {"success": False}
    wait_until(lambda: api.count(identity, kind="ObservationEvent") == 1, "the observation")
    [seen] = api.events(identity, kind__eq="ObservationEvent")
    assert seen["observation"]["content"] == [{"type": "text", "text": "it is 42\n"}]

    assert api.call("POST", f"{path}/pause") == {"success": True}
    paused = api.sandbox(conversation["sandbox_id"])
    assert (paused["status"], paused["session_api_key"], paused["exposed_urls"]) == ("PAUSED", None, None)
    with pytest.raises(httpx.TimeoutException):
        httpx.get(alive, timeout=0.1)

    assert api.call("POST", f"{path}/resume") == {"success": True}
    resumed = api.wait_for(conversation["sandbox_id"], "RUNNING")
    assert resumed["session_api_key"] == conversation["session_api_key"]

    assert api.call("DELETE", path) == {"success": True}
    assert api.sandbox(conversation["sandbox_id"]) is None
    assert api.conversation(identity)["sandbox_status"] == "MISSING"
    with pytest.raises(httpx.ConnectError):
        httpx.get(alive)
    api.call("DELETE", path, status=404)


def test_a_sandbox_whose_agent_is_killed_says_so_and_leaves_no_process(api, doomed, folder):
    sandbox, agent = doomed

    agent.kill()

    assert "SIGKILL" in api.wait_for(sandbox["id"], "ERROR")["status_detail"]
    assert "serving on" in api.call("GET", f"/v1/sandboxes/{sandbox['id']}/logs")["log"]
    wait_until(lambda: not processes_of(folder, sandbox["id"]), "the end of leftover processes")
