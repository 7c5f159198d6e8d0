"""What a person sees of an agent with a model at work, in a terminal: `run` with its live lines, and `chat`."""

import contextlib
import os
import re
import subprocess
import sys
import threading
import time

import httpx
import pytest

from settings.specs import BUNDLED
from tests.agents.scripted_model import ScriptedReply, calls, chunk, ending, run, scripted_model
from tests.client.terminal import terminal
from tests.conftest import message
from tests.servers import PROJECT, agent_server, free_port, store_server, supervised_server, wait_until

pytestmark = pytest.mark.process("starts whole servers, sandboxes and terminals")

#: widths of terminals, and whether they have colours
TERMINALS = pytest.mark.parametrize(
    ("columns", "colours"), [(60, {}), (120, {"NO_COLOR": "", "COLORTERM": "truecolor", "TERM": "xterm-256color"})]
)


@pytest.fixture(scope="module")
def model():
    with scripted_model() as model:
        yield model


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("chat")


@pytest.fixture(scope="module")
def settings(home, model):
    """Specs that are not isolated: an isolated sandbox reaches no model on the host's loopback."""
    specs = home / "specs.toml"
    text = re.sub(r'\negress = "named"\n(#.*\n)hosts = .*\n', '\nisolation = "none"\n', BUNDLED.read_text())
    specs.write_text(text + text[text.index("\n[[spec]]\nid") :].replace('"reference-agent"', '"second"'))
    variables = {"LLM_MODEL": "openai/scripted", "LLM_API_KEY": "of-the-model", "LLM_BASE_URL": model.url}
    return {"SANDBOX_SPECS": str(specs), **variables}


@pytest.fixture(scope="module")
def url(home, settings):
    with supervised_server(home, **settings) as (client, _):
        yield str(client.base_url).rstrip("/")


@pytest.fixture(autouse=True)
def script(model):
    model.script.clear()
    model.asked.clear()
    return model.script


def slowly(*parts: str | threading.Event) -> ScriptedReply:
    """A message whose parts come as a test lets them."""
    made = [one if isinstance(one, threading.Event) else chunk({"content": one}) for one in parts]
    return ScriptedReply([*made, *ending("stop")])


@TERMINALS
def test_a_run_shows_that_the_model_thinks_its_text_as_it_comes_and_a_command_that_runs(url, script, columns, colours):
    begins, goes_on = threading.Event(), threading.Event()
    script += [calls(run("echo first; sleep 3; echo last")), slowly(begins, "Hello \x1b[31m", goes_on, "world.")]
    with terminal("run", "greet", columns=columns, AGENT_SERVER_URL=url, **colours) as shown:
        shown.wait_for("[l]eave [?]")
        shown.press("a\n")
        shown.wait_for("  first")
        shown.wait_for("terminal: echo first; sleep 3; echo last, ")
        shown.wait_for("result    first")
        shown.wait_for("waits for the model, 1 s")
        begins.set()
        shown.wait_for("Hello \\u{1b}[31m")
        shown.wait_for("writing")
        goes_on.set()
        shown.wait_for("agent     Hello \\u{1b}[31mworld.")
        shown.wait_for("finished")
        assert shown.end() == 0
    assert "\x1b[31mwor" not in shown.raw
    assert shown.shown.count("agent     Hello") == 1
    assert ("\x1b[36m" in shown.raw) == bool(colours)


@TERMINALS
def test_a_person_talks_steers_approves_and_comes_back(url, script, model, columns, colours):
    begins, goes_on = threading.Event(), threading.Event()
    script += [slowly(begins, "Hello ", goes_on, "there."), calls(run("echo of-the-command")), slowly("It ran.")]
    environment = {"AGENT_SERVER_URL": url, **colours}
    with terminal("chat", "--agent", "second", columns=columns, **environment) as shown:
        shown.wait_for("/help lists the commands")
        shown.wait_for("new")
        shown.press("greet me\r")
        shown.wait_for("> greet me")
        wait_until(lambda: model.asked, "the request to the model")
        time.sleep(0.5)  # the agent tells what came in the first moment with what comes next
        begins.set()
        shown.wait_for("Hello")
        shown.press("and run it\r")  # while the model writes
        shown.wait_for("> and run it")
        goes_on.set()
        shown.wait_for("Hello there.")
        shown.wait_for("[a]pprove")
        shown.press("a\n")
        shown.wait_for("Approved: terminal")
        shown.wait_for("│ of-the-command")
        shown.wait_for("It ran.")
        shown.wait_for("finished")
        shown.press("/quit\r")
        shown.wait_for("Come back: agentctl chat ")
        assert shown.end() == 0
        [identity] = set(re.findall(r"Come back: agentctl chat ([0-9a-f]{8})", shown.shown))
        assert ("\x1b[36m" in shown.raw or "\x1b[0;36" in shown.raw) == bool(colours)
    assert "and run it" in model.told("user")
    sandboxes = httpx.get(f"{url}/api/v1/sandboxes/search").json()["items"]
    assert "second" in [one["sandbox_spec_id"] for one in sandboxes]

    with terminal("chat", identity, columns=columns, **environment) as shown:
        for words in ("> greet me", "Hello there.", "│ of-the-command", "It ran.", "finished"):
            shown.wait_for(words)
        shown.press("/nothing\r")
        shown.wait_for("There is no /nothing")
        shown.press("/undo\r")
        shown.wait_for("has no way to turn it back")
        shown.press("\x03")
        shown.wait_for("Nothing runs.")
        shown.press("\x04")
        shown.wait_for("Come back")
        assert shown.end() == 0


@TERMINALS
def test_a_mode_is_seen_and_chosen_before_the_first_line_and_later(url, script, columns, colours):
    script += [calls(run("ls")), slowly("It read.")]
    with terminal("chat", columns=columns, AGENT_SERVER_URL=url, **colours) as shown:
        shown.wait_for("new")
        shown.press("/mode\r")
        shown.wait_for("Ask nothing. ")
        shown.press("/mode yolo\r")
        shown.wait_for("There is no mode yolo")
        shown.press("/mode outside\r")
        shown.wait_for("From the first line on: Ask what leaves the folder")
        shown.press("read\r")
        shown.wait_for("It read.")  # unasked
        shown.wait_for("finished")
        shown.press("/mode everything\r")
        shown.wait_for("From the next action on: Ask everything")
        shown.press("/mode\r")
        shown.wait_for("* everything  Ask everything. ")
        shown.press("\x04")
        shown.wait_for("Come back")
        assert shown.end() == 0


def test_a_talk_goes_on_through_a_restart_of_the_server_and_sends_once_what_was_typed_meanwhile(tmp_path):
    with store_server(tmp_path) as (redis_url, _):
        settings = {"REDIS_URL": redis_url, "PORT": str(free_port())}
        with contextlib.ExitStack() as stack:
            with agent_server(tmp_path / "log", **settings) as (client, _):
                identity = client.post("/api/conversations", json={}).json()["id"]
                path = f"/api/v1/webhooks/events/{identity}"
                client.post(path, json=[message("number one", "agent")]).raise_for_status()
                url = str(client.base_url).rstrip("/")
                shown = stack.enter_context(terminal("chat", identity, columns=60, AGENT_SERVER_URL=url))
                shown.wait_for("number one")
                shown.wait_for("leaves")
            shown.wait_for("connection lost, trying again")
            shown.press("kept meanwhile\r")
            shown.wait_for("… kept meanwhile")
            with agent_server(tmp_path / "log", **settings) as (client, _):
                shown.wait_for("> kept meanwhile")
                client.post(path, json=[message("number two", "agent")]).raise_for_status()
                shown.wait_for("number two")
                shown.press("/quit\r")
                shown.wait_for("Come back")
                assert shown.end() == 0
                found = client.get(f"/api/conversations/{identity}/events/search", params={"source": "user"}).json()
    assert [one["llm_message"]["content"][0]["text"] for one in found["items"]] == ["kept meanwhile"]
    assert [shown.shown.count(words) for words in ("number one", "number two", "> kept meanwhile")] == [1, 1, 1]


def test_without_a_terminal_it_says_what_to_use_instead():
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "client/src")}
    words = [sys.executable, "-m", "agentctl", "chat"]

    ran = subprocess.run(words, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)

    assert ran.returncode == 2
    assert "agentctl send -f ID TEXT" in ran.stderr
