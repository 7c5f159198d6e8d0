"""Agents that clients bring go on after `python -m admin restore`, in their folders and with what waited."""

import subprocess
import sys
from contextlib import contextmanager
from uuid import uuid4

import pytest

from tests.backups import backup, restore
from tests.servers import PROJECT, running, supervised_server, wait_until
from tests.v1 import WireApi

pytestmark = pytest.mark.process("starts a server with agents, and another one on what was restored of it")

FIRST, SECOND = "run: echo hello > note.txt", "run: cat note.txt && pwd"


@contextmanager
def served(folder):
    folder.mkdir(exist_ok=True)
    with supervised_server(folder, REDIS_URL="", SECRET_KEY="") as (client, _):
        yield WireApi(client)


@contextmanager
def outside_agent(api, conversation, home):
    """The agent of `make agent`, a program outside of the server; home: its working folder."""
    command = [
        "env",
        "-C",
        str(home),
        sys.executable,
        str(PROJECT / "docs/examples/echo_agent.py"),
        conversation,
        str(api.client.base_url),
    ]
    with running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        yield


def ask(api, conversation, text):
    """Send a message, and return the ids of the actions that wait then."""
    body = {"content": [{"type": "text", "text": text}], "run": True}
    api.call("POST", f"/conversations/{conversation}/events", json=body)
    return waiting(api, conversation)


def waiting(api, conversation):
    path = f"/conversations/{conversation}/pending_actions"
    wait_until(lambda: api.call("GET", path), "the action")
    return [one["id"] for one in api.call("GET", path)]


def approve(api, conversation):
    api.call("POST", f"/conversations/{conversation}/events/respond_to_confirmation", json={"accept": True})
    path = f"/conversations/{conversation}"
    wait_until(lambda: api.call("GET", path)["execution_status"] == "finished", "the end of the run")


def last_output(api, conversation):
    found = api.call("GET", f"/conversations/{conversation}/events/search?kind=ObservationEvent")["items"]
    return found[-1]["observation"]["content"][0]["text"]


def files(api, conversation):
    return api.call("GET", f"/v1/app-conversations/{conversation}/files")


@pytest.mark.parametrize("asked", ["project", "/home/somebody/project"])
def test_an_agent_that_a_client_brought_goes_on_in_its_folder(tmp_path, asked):
    conversation, old, new = str(uuid4()), tmp_path / "old", tmp_path / "new"
    with served(old) as api:
        members = {"agent": {"kind": "Agent", "tools": []}, "confirmation_policy": {"kind": "AlwaysConfirm"}}
        place = {"kind": "LocalWorkspace", "working_dir": asked}
        body = {"conversation_id": conversation, "workspace": place, **members}
        api.call("POST", "/conversations", json=body, status=201)
        ask(api, conversation, FIRST)
        approve(api, conversation)
        asked_before = ask(api, conversation, SECOND)
        backup(old, tmp_path / "one.backup")
    restore(tmp_path / "one.backup", new)

    with served(new) as api:
        assert waiting(api, conversation) == asked_before
        assert files(api, conversation) == ["note.txt"]  # before the sandbox has started
        approve(api, conversation)
        text, folder = last_output(api, conversation).split()
        assert (text, folder.startswith(str(new))) == ("hello", True)
        assert files(api, conversation) == ["note.txt"]
        changes = api.call("GET", f"/v1/app-conversations/{conversation}/git/changes?path=.&since=start")
        assert [one["path"] for one in changes] == ["note.txt"]
        assert api.call("GET", f"/conversations/{conversation}")["workspace"]["working_dir"] == folder


def test_an_agent_outside_of_the_server_goes_on_with_the_decision_that_it_waited_for(tmp_path):
    conversation, old, new, home = str(uuid4()), tmp_path / "old", tmp_path / "new", tmp_path / "home"
    home.mkdir()
    with served(old) as api:
        body = {"conversation_id": conversation, "confirmation_policy": {"kind": "AlwaysConfirm"}}
        api.call("POST", "/conversations", json=body, status=201)
        with outside_agent(api, conversation, home):
            ask(api, conversation, FIRST)
            approve(api, conversation)
            asked_before = ask(api, conversation, SECOND)
        backup(old, tmp_path / "one.backup")
    restore(tmp_path / "one.backup", new)

    with served(new) as api, outside_agent(api, conversation, home):
        assert waiting(api, conversation) == asked_before
        approve(api, conversation)
        assert last_output(api, conversation).split() == ["hello", str(home)]
