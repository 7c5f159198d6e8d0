"""The lines of docs/agents.md lead from a checkout to a conversation with an agent in an isolated sandbox."""

import json
import os
import re
import signal
import subprocess
from uuid import uuid4

import httpx
import pytest

from tests.interop.elsewhere import model_elsewhere
from tests.servers import PROJECT, free_port, program, wait_until
from tests.v1 import WireApi

pytestmark = pytest.mark.interop("follows the page with the published agent server in sandboxes")

#: the part of the page that is about the OpenHands agent
PAGE = (PROJECT / "docs" / "agents.md").read_text().partition("\n## Another agent\n")[0]
SETUP, RUN, *CONVERSATION = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)

#: seconds in which an agent server starts on a busy machine
START_SECONDS = 180


@pytest.fixture(scope="module")
def secret():
    """The key of the model, which nothing may show."""
    return f"sk-{uuid4().hex}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def server(folder, secret):
    """The URL of the server that the page's line starts, with the scripted model."""
    line = re.sub(r"LLM_MODEL=\S+ LLM_API_KEY=\S+", f"LLM_MODEL=openai/scripted LLM_API_KEY={secret}", RUN)
    url = f"http://127.0.0.1:{(port := free_port())}"
    with model_elsewhere() as model:
        settings = {"LLM_BASE_URL": model, "PORT": str(port), "DATA_DIR": str(folder / "data"), "WEB_CONCURRENCY": "2"}
        settings |= {"SANDBOX_START_SECONDS": str(START_SECONDS), "SESSION_API_KEY": ""}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-ec", line],
                cwd=PROJECT,
                env=os.environ | settings,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                wait_until(
                    lambda: process.poll() or httpx.get(f"{url}/ready").is_success, "the server", seconds=START_SECONDS
                )
                assert process.poll() is None, (folder / "log").read_text()
                yield url
            finally:
                os.killpg(process.pid, signal.SIGINT)  # Ctrl-C
                process.wait(60)


@pytest.fixture(scope="module")
def said(server):
    """What the blocks of the conversation print, one after the other."""
    program("curl")
    said, script = [], ""
    for block in CONVERSATION:
        script = "".join(re.findall(r"^(?:ID|API)=.*\n", script + block, re.M)) if script else ""
        lines = (script + block).replace("curl -s ", "curl -sS -w '\\n' ")
        env = os.environ | {"PORT": server.rpartition(":")[2]}
        ran = subprocess.run(["bash", "-ec", lines], capture_output=True, text=True, timeout=START_SECONDS, env=env)
        assert ran.returncode == 0, ran.stderr
        said.append(ran.stdout)
        script += block
    return said


def test_the_packages_of_the_page_exist():
    [install] = re.findall(r"sudo (apt-get install .*)", SETUP)
    program("apt-get")

    ran = subprocess.run([*install.split(), "--simulate"], capture_output=True, text=True)

    assert ran.returncode == 0, ran.stderr


def test_a_repeated_set_up_keeps_what_is_installed():
    ran = subprocess.run(["bash", "-ec", "make openhands"], cwd=PROJECT, capture_output=True, text=True)

    assert "openhands.toml has the specs." in ran.stdout, ran.stderr
    assert "make openhands\n" in SETUP


def test_the_lines_start_a_conversation_and_the_agent_asks_before_it_acts(said):
    started, decided, sent = said
    statuses = re.findall(r'"status": "([A-Z_]+)"', started)
    assert (statuses[0], statuses[-1]) == ("WORKING", "READY")
    pending, accepted, page = filter(None, decided.splitlines())
    assert [action["arguments"]["command"] for action in json.loads(pending)] == ["date > today.txt && cat today.txt"]
    assert json.loads(accepted) == {"success": True}
    terminal, _ = json.loads(page)["items"]
    assert re.search(r"\d\d:\d\d:\d\d", terminal["observation"]["content"][0]["text"])
    assert json.loads(sent)["success"] is True


def test_the_sandbox_is_isolated(said, server):
    [sandbox] = httpx.get(f"{server}/api/v1/sandboxes/search").json()["items"]

    assert (sandbox["isolation"]["kind"], sandbox["isolation"]["network"]) == ("bubblewrap", "internet")


def test_nothing_shows_or_keeps_the_key_of_the_model(said, server, folder, secret):
    identity = re.findall(r"^ID=(.*)$", CONVERSATION[0], re.M)[0]
    with httpx.Client(base_url=server) as client:
        wait_until(lambda: WireApi(client).count(identity, body="What did you do") == 2, "the reply")
        shown = [
            client.get(f"/api{path}").text
            for path in (
                f"/conversations/{identity}",
                f"/conversations/{identity}/events/search?limit=100",
                f"/v1/app-conversations?ids={identity}",
                "/v1/sandbox-specs/search",
                "/v1/sandboxes/search",
            )
        ]
    assert [text for text in shown if secret in text] == []

    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    assert any(path.name == "today.txt" for path in files)  # so the agent's folder is among them


def test_every_block_of_the_page_is_known_here():
    assert len(CONVERSATION) == 3
    assert PAGE.count("```sh\n") == 2 + len(CONVERSATION)  # the others are configurations
