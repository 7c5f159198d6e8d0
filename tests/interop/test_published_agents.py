"""Published agents that speak ACP, in sandboxes of this server: each step of docs/agents.md, and what each cannot.

`make agent NAME=…` installs them; those that are not installed are skipped.
"""

import contextlib

import pytest

from tests.console import end_browsers
from tests.interop.published_agents import NAMES, installed, serving, through
from tests.interop.web_client import Canvas, before, first_run
from tests.servers import free_port, wait_until

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


@pytest.mark.parametrize("name", ["claude", "opencode"])
def test_a_person_decides_in_the_published_web_client(canvas, tmp_path, name):
    if name not in installed():
        pytest.skip(f"{name} is not installed: make agent NAME={name}")
    port = free_port()
    page = f"http://127.0.0.1:{port}"
    with (
        serving(tmp_path, [name], ALLOWED_ORIGINS=page) as client,
        before(canvas, port, str(client.base_url).rstrip("/")),
        contextlib.closing(Canvas(page, width=1500, height=950)) as browser,
    ):

        def count(kind: str) -> int:
            return client.get(f"/api/conversations/{identity}/events/count", params={"kind": kind}).json()

        first_run(browser, page, "http://127.0.0.1:9/v1", "run: touch one")
        browser.press("action-confirm-button")
        browser.find("agent-message")
        identity = browser.driver.current_url.rpartition("/")[2]
        wait_until(lambda: count("ObservationEvent") == 1, "the observation")
        browser.sends("run: touch two")
        browser.press("action-reject-button")
        wait_until(lambda: count("UserRejectObservation") == 1, "the rejection")
        browser.driver.get(f"{page}/conversations/{identity}")
        browser.says("touch two")
    end_browsers()
    assert [one.name for one in tmp_path.rglob("work/*") if one.name in ("one", "two")] == ["one"]
