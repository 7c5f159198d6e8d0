"""The published `openai` package against this server, with the bundled agent in a sandbox that thinks by a model."""

import json
import subprocess

import httpx
import pytest

from docs.examples.openhands_agent import VENV
from tests.interop.sides import KEY, LINE_SECONDS, environment
from tests.servers import PROJECT, running, supervised_server, wait_until

pytestmark = pytest.mark.interop("runs the published openai package against a server")

SPEC = """
[[spec]]
id = "thinks"
command = ["{{PYTHON}}", "-m", "reference_agent", "--host", "127.0.0.1", "--port", "{{AGENT_SERVER}}"]
created_at = 2026-11-21T00:00:00Z
isolation = "none" # it reaches the model on this machine's loopback
initial_env = {{ PYTHONPATH = "{{PROJECT}}", PATH = "/usr/local/bin:/usr/bin:/bin", LANG = "C.UTF-8", \
LLM_MODEL = "scripted", LLM_BASE_URL = "{model}" }}
secret_env = {{ LLM_API_KEY = "key-of-the-model" }}

[spec.conversation]
confirmation_policy = {{ kind = "AlwaysConfirm" }}
"""


@pytest.fixture
def server(tmp_path, scripted):
    """This server with two workers, and the bundled agent as its one spec."""
    (tmp_path / "specs.toml").write_text(SPEC.format(model=scripted))
    settings = {"SANDBOX_SPECS": str(tmp_path / "specs.toml"), "SESSION_API_KEY": KEY, "WEB_CONCURRENCY": "2"}
    with supervised_server(tmp_path, **settings) as (client, _):
        yield client


def approve(server: httpx.Client, conversation: str) -> None:
    """Approve what waits in a conversation."""
    headers = {"X-Session-API-Key": KEY}
    path = f"/api/conversations/{conversation}"
    wait_until(lambda: server.get(f"{path}/pending_actions", headers=headers).json(), "what waits")
    decided = server.post(f"{path}/events/respond_to_confirmation", headers=headers, json={"accept": True})
    assert decided.json() == {"success": True}


def test_the_openai_package_holds_a_conversation_in_which_a_person_approves(tmp_path, server):
    program = [f"{VENV}/bin/python", str(PROJECT / "tests/interop/openai_client.py")]
    url = str(server.base_url).rstrip("/")
    told: dict[str, list[dict]] = {}
    with (
        (tmp_path / "client.log").open("wb") as log,
        running(
            [*program, url, KEY, "openhands_thinks"], env=environment(tmp_path), stdout=subprocess.PIPE, stderr=log
        ) as process,
    ):
        for line in process.stdout:
            step = json.loads(line)
            told.setdefault(step["step"], []).append(step)
            if step["step"] == "waits" and len(told["waits"]) == 1:
                approve(server, told["begins"][0]["conversation"])
        assert process.wait(LINE_SECONDS) == 0, (tmp_path / "client.log").read_text()[-3000:]

    assert told["models"][0]["ids"] == ["openhands_thinks"]
    assert '"command": "echo $((40 + 2))"' in told["waits"][0]["answer"]
    assert "**Approved**" in told["streamed"][0]["answer"]
    assert told["chat"][0]["answer"]
    assert told["chat"][0]["reason"] == "stop"
    assert (told["response"][0]["status"], bool(told["response"][0]["answer"])) == ("completed", True)
    assert (told["response streamed"][0]["kind"], bool(told["response streamed"][0]["answer"])) == (
        "response.completed",
        True,
    )
    assert [(one["kind"], one["code"]) for one in told["refused"]] == [
        ("NotFoundError", "model_not_found"),
        ("UnprocessableEntityError", "value_error"),
        ("AuthenticationError", "invalid_api_key"),
    ]
