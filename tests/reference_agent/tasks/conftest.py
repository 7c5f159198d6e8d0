"""Plays a task: an agent in a process of its own, in a real folder, with a model that reacts to what it reads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reference_agent.program import reference_agent
from tests.reference_agent.tasks.vocabulary import MOST_CHARACTERS, End, Player
from tests.servers import wait_until

#: statuses in which a run has ended
ENDS = ("finished", "error", "stuck")


@pytest.fixture(scope="module")
def agent(tmp_path_factory, model):
    """An agent whose home has no settings, and whose PATH begins with the Python of the tests."""
    home = tmp_path_factory.mktemp("tasks")
    environment = {"LLM_MODEL": "scripted", "LLM_BASE_URL": model.url, "HOME": str(home), "NO_PROXY": "127.0.0.1"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with reference_agent(home, **environment, PATH=path) as agent:
        yield agent


@pytest.fixture
def folder(agent, request):
    """The folder in which the task is done."""
    folder = agent.home / request.node.name
    folder.mkdir()
    return folder


@pytest.fixture
def git(folder):
    """Runs Git in the folder, as a person does it; returns what it prints."""
    person = {"GIT_AUTHOR_NAME": "Pat", "GIT_AUTHOR_EMAIL": "pat@example.org"}
    person |= {"GIT_COMMITTER_NAME": "Pat", "GIT_COMMITTER_EMAIL": "pat@example.org"}

    def git(*words: str) -> str:
        environment = {**os.environ, **person}
        done = subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    return git


@pytest.fixture
def play(agent, model, folder):
    """Has the agent do a task with a model; fails if the model read something that it did not expect."""

    def play(request, plan, *, sub_tasks=None, most=MOST_CHARACTERS, **members) -> End:
        model.react = player = Player({request: plan, **(sub_tasks or {})}, most)
        conversation = agent.begin(workspace={"kind": "LocalWorkspace", "working_dir": str(folder)}, **members)
        agent.send(conversation, request)
        wait_until(lambda: agent.status(conversation) in ENDS, "the end of the task")
        log = agent.events(conversation)
        details = [event["detail"] for event in log if event["kind"] == "ConversationErrorEvent"]
        actions = [event["action"] for event in log if event["kind"] == "ActionEvent" and event["action"]]
        last = [one["message"] for one in actions if one["kind"] == "FinishAction"]
        assert not player.fault, player.fault
        return End(agent.status(conversation), "".join(details[-1:]), "".join(last[-1:]), player.read, log)

    return play
