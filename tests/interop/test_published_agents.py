"""Published agents that speak ACP, in sandboxes of this server: each step of docs/agents.md, and what each cannot.

`make agent NAME=…` installs them; those that are not installed are skipped.
"""

import pytest

from tests.interop.published_agents import NAMES, installed, serving, through

pytestmark = pytest.mark.interop("runs published agents in isolated sandboxes")

#: what comes of each step where docs/agents.md says nothing else
USUAL = {
    "approved": "ok",
    "rejected": "ok",
    "by_rule": "ok",
    "edited": "ok",
    "cancelled": "ok",
    "killed": "remembers",
    "restarted": "remembers",
    "pictured": "ok",
}

#: what an agent cannot
EXCEPT = {
    "codex": {"edited": "ok, incomplete"},
    "gemini": {
        "approved": "ok, incomplete",
        "by_rule": "no rule: not shown in full",
        "edited": "ok, incomplete",
        "restarted": "begins anew, and says so",
    },
}


@pytest.fixture(scope="session", autouse=True)
def openhands():
    """These tests need no published agent server, as the others of this folder do."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("agents")


@pytest.fixture(scope="module")
def client(folder):
    """A client of a server that offers the installed agents."""
    if not installed():
        pytest.skip("no agent is installed: make agent NAME=…")
    with serving(folder, installed()) as client:
        yield client


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_does_what_was_decided_and_nothing_else(client, folder, name):
    if name not in installed():
        pytest.skip(f"{name} is not installed: make agent NAME={name}")

    found = dict(through(client, folder, name))

    expected = USUAL | EXCEPT.get(name, {})
    assert {step: found.get(step) for step in expected} == expected
    assert found["answered_once"].endswith("none lasting")
    assert found["keyless"] == "bubblewrap, named"
