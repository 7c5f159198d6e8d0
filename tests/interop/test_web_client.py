"""The published web client of OpenHands (npm: @openhands/agent-canvas) in Chromium, against this server.

`tests/interop/web_client.sh DIR` fetches it; AGENT_CANVAS is then DIR/package. Nothing of it lies in this repository.
"""

import os
import re
import signal

import httpx
import psutil
import pytest

from docs.make import COMPATIBILITY
from settings.specs import BUNDLED
from tests.console import end_browsers
from tests.interop import model
from tests.interop.web_client import KEY, Canvas, before, first_run, responses
from tests.servers import free_port, supervised_server, wait_until

pytestmark = pytest.mark.interop("runs a published web client in Chromium, and a server with sandboxes")

#: pages of the client beside that of a conversation
_PAGES = (
    *("settings/llm", "settings/secrets", "settings/app", "settings/condenser", "settings/verification"),
    *("settings/agents", "mcp", "skills", "plugins", "apps", "automations", "conversations"),
)


@pytest.fixture(scope="session", autouse=True)
def openhands():
    """These tests need no published agent server, as the others of this folder do."""


@pytest.fixture(scope="module")
def served(canvas, tmp_path_factory):
    """A client of this server, its master, the URL of the web client before it, and the URL of the scripted model."""
    folder, port = tmp_path_factory.mktemp("canvas"), free_port()
    page = f"http://127.0.0.1:{port}"
    specs = folder / "specs.toml"  # the model is on the machine's loopback, which an isolated sandbox does not see
    specs.write_text(re.sub(r'\negress = "named"\n(#.*\n)hosts = .*\n', '\nisolation = "none"\n', BUNDLED.read_text()))
    with (
        model.served(model.Model) as llm,
        supervised_server(
            folder, SESSION_API_KEY=KEY, ALLOWED_ORIGINS=page, SANDBOX_SPECS=str(specs), WEB_CONCURRENCY="2"
        ) as (client, master),
    ):
        client.headers["X-Session-API-Key"] = KEY
        url = str(client.base_url).rstrip("/")
        with before(canvas, port, url):
            yield client, master, page, llm
    end_browsers()


def test_a_person_works_in_the_published_web_client(served):
    client, master, page, llm = served
    browser = Canvas(page, width=1500, height=950)
    try:
        first_run(browser, page, llm)

        browser.press("action-confirm-button")  # "Continue"
        browser.find("agent-message")
        identity = browser.driver.current_url.rpartition("/")[2]
        path = f"/api/conversations/{identity}"  # the message is shown before the run has ended
        wait_until(lambda: client.get(path).json()["execution_status"] == "finished", "the end of the run")
        profile = client.get("/api/profiles").json()
        assert (profile["active_profile"], profile["profiles"][0]["api_key_set"]) == ("scripted", True)

        # A worker is killed; the client goes on with the other, and with the one that takes its place.
        workers = [one for one in psutil.Process(master.pid).children() if "gunicorn" in " ".join(one.cmdline())]
        os.kill(workers[0].pid, signal.SIGKILL)
        browser.sends("run: rm hello.txt")
        browser.press("action-reject-button")
        wait_until(lambda: _count(client, identity, "UserRejectObservation") == 1, "the rejection")

        browser.press("right-panel-toggle")
        browser.press("files-tab-refresh")
        browser.press("file-tree-file-hello.txt")
        browser.says("approved")
        browser.press("conversation-tab-commits")
        browser.says("Uncommitted")
        browser.press("conversation-tab-terminal")
        browser.wait(lambda: "approved" in browser.script("return document.body.innerText"), "the terminal")
        browser.press("conversation-tab-usage")

        browser.driver.get(page + "/conversations/" + identity)  # the history, from the server alone
        browser.says("run: rm hello.txt")
        seen = responses(browser)
        for place in _PAGES:
            seen += browser.visit(place)
        assert [path for path, status in seen if status >= 500 or status in (401, 403, 409, 422)] == []
        assert {path.partition("?")[0] for path, status in seen if status == 404} == _documented()

        _shares_a_key(browser, client)
    finally:
        browser.close()


def _documented() -> set[str]:
    """The paths that the page of compatibility says the client asks for in vain."""
    section = COMPATIBILITY.read_text().partition("\n## The published web client\n")[2]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `/api/")]
    return {path for row in rows for path in re.findall("`(/[^`]+)`", row)}


def _shares_a_key(browser: Canvas, client: httpx.Client) -> None:
    """Make a provider connection on the page of models, and see it listed."""
    browser.visit("settings/llm")
    browser.press("add-provider-connection")
    browser.fill('[data-testid="provider-connection-name-input"]', "Shared key")
    browser.press("provider-connection-provider-input")
    browser.press("provider-item-openai")
    browser.fill('[data-testid="provider-connection-api-key-input"]', "sk-shared-0123456789")
    browser.press("provider-connection-submit")
    browser.says("Shared key")
    wait_until(lambda: client.get("/api/llm/provider-connections").json(), "the connection")
    [made] = client.get("/api/llm/provider-connections").json()
    assert (made["display_name"], made["api_key_set"], "api_key" in made) == ("Shared key", True, False)


def _count(client: httpx.Client, identity: str, kind: str) -> int:
    return client.get(f"/api/conversations/{identity}/events/count", params={"kind": kind}).json()
