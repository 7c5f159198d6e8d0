"""The published web client of OpenHands (npm: @openhands/agent-canvas) in Chromium, against this server.

`tests/interop/web_client.sh DIR` fetches it; AGENT_CANVAS is then DIR/package. Nothing of it lies in this repository.
"""

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.keys import Keys

from docs.make import COMPATIBILITY
from settings.specs import BUNDLED
from tests.console import Browser, end_browsers
from tests.interop import model
from tests.interop.published_agents import SCRIPTED, asks, installed, serving
from tests.servers import free_port, program, running, supervised_server, wait_until

pytestmark = pytest.mark.interop("runs a published web client in Chromium, and a server with sandboxes")

KEY = "a-key-for-tests-only"

#: paths that the client's own static server passes on to this server
_PASSED_ON = ("/api", "/sockets", "/server_info", "/health", "/alive", "/ready")

#: pages of the client beside that of a conversation
_PAGES = (
    *("settings/llm", "settings/secrets", "settings/app", "settings/condenser", "settings/verification"),
    *("settings/agents", "mcp", "skills", "plugins", "apps", "automations", "conversations"),
)

#: seconds without a response after which a page has asked for all it asks for
_QUIET_SECONDS = 2


@pytest.fixture(scope="session", autouse=True)
def openhands():
    """These tests need no published agent server, as the others of this folder do."""


@pytest.fixture(scope="module")
def canvas():
    """The folder of the web client. Skips the tests where there is none: it is fetched by hand."""
    folder = Path(os.environ.get("AGENT_CANVAS", ""))
    if not os.environ.get("AGENT_CANVAS") or not (folder / "build/index.html").exists():
        pytest.skip("AGENT_CANVAS is not the folder of @openhands/agent-canvas: tests/interop/web_client.sh fetches it")
    program("node"), program("chromium"), program("chromedriver")
    return folder


@pytest.fixture(scope="module")
def served(canvas, tmp_path_factory):
    """A client of this server, its master, the URL of the web client before it, and the URL of the scripted model."""
    folder, port = tmp_path_factory.mktemp("canvas"), free_port()
    page = f"http://127.0.0.1:{port}"
    specs = folder / "specs.toml"  # the model is on the machine's loopback, which an isolated sandbox does not see
    specs.write_text(re.sub(r'\negress = "named"\n(#.*\n)hosts = .*\n', '\nisolation = "none"\n', BUNDLED.read_text()))
    with (
        model.served(model.InteropModel) as llm,
        supervised_server(
            folder, SESSION_API_KEY=KEY, ALLOWED_ORIGINS=page, SANDBOX_SPECS=str(specs), WEB_CONCURRENCY="2"
        ) as (client, master),
    ):
        client.headers["X-Session-API-Key"] = KEY
        with _shown(canvas, port, client):
            yield client, master, page, llm
    end_browsers()


@contextlib.contextmanager
def _shown(canvas: Path, port: int, client: httpx.Client) -> Iterator[None]:
    """The web client on a port, before the server of a client."""
    command = ["node", str(canvas / "scripts/static-server.mjs"), "--port", str(port), "--host", "127.0.0.1"]
    command += ["--dir", str(canvas / "build"), "--session-api-key", KEY, "--disable-telemetry"]
    for path in _PASSED_ON:
        command += ["--route", f"{path}={str(client.base_url).rstrip('/')}"]
    with running(command):
        wait_until(lambda: _answers(f"http://127.0.0.1:{port}/server_info"), "the web client's static server")
        yield


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, headers={"X-Session-API-Key": KEY}).status_code == 200
    except httpx.TransportError:
        return False


class Canvas(Browser):
    """The web client's window."""

    def fill(self, css: str, text: str) -> None:
        """Replace the text of an input."""
        self.click(css)
        [element] = self._within_reach(css)
        element.send_keys(Keys.CONTROL, "a")
        element.send_keys(text)

    def press(self, testid: str) -> None:
        self.click(f'[data-testid="{testid}"]')

    def click(self, css: str) -> None:
        """Click an element as soon as it can be clicked: slides move, and dialogues cover what lies below them."""

        def clicked() -> bool:
            try:
                self._within_reach(css)[0].click()
            except (IndexError, WebDriverException):
                return False
            return True

        self.wait(clicked, f"a click on {css}")

    def _within_reach(self, css: str) -> list:
        return [one for one in self.driver.find_elements("css selector", css) if one.is_displayed()][:1]

    def says(self, text: str) -> None:
        self.wait(lambda: text in self.script("return document.body.innerText"), f"the text {text!r}")

    def sends(self, text: str) -> None:
        self.press("chat-input")
        self.find("chat-input").send_keys(text)
        self.press("submit-button")

    def visit(self, path: str) -> list[tuple[str, int]]:
        """Open a page, and return path and status of each response until no more come."""
        self.driver.get(f"{self.base_url}/{path}")
        found, quiet_since = [], time.monotonic()
        while time.monotonic() - quiet_since < _QUIET_SECONDS:
            if more := _responses(self):
                found, quiet_since = [*found, *more], time.monotonic()
            time.sleep(0.1)
        return found


def _first_run(browser: Canvas, page: str, llm: str, message: str) -> None:
    """From the first page to a model that is set and a first message."""
    browser.driver.get(page)
    browser.press("confirm-telemetry-preferences")
    browser.press("onboarding-agent-next")
    browser.press("sdk-section-advanced-toggle")
    browser.fill('[data-testid="llm-custom-model-input"]', "openai/scripted")
    browser.fill('[data-testid="llm-api-key-input"]', "sk-scripted-0123456789")
    browser.fill('[placeholder="https://api.openai.com"]', llm)
    browser.press("onboarding-llm-next")
    browser.fill('[data-testid="onboarding-hello-input"]', message)
    browser.click('[data-testid="onboarding-hello-input-form"] [data-testid="submit-button"]')


def test_a_person_works_in_the_published_web_client(served):
    client, master, page, llm = served
    browser = Canvas(page, width=1500, height=950)
    try:
        _first_run(browser, page, llm, "run: echo approved > hello.txt; git init -q; cat hello.txt")

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
        seen = _responses(browser)
        for place in _PAGES:
            seen += browser.visit(place)
        assert _refused(seen) == []
        assert {path.partition("?")[0] for path, status in seen if status == 404} == _documented()

        _shares_a_key(browser, client)
    finally:
        browser.close()


@pytest.mark.parametrize("name", [SCRIPTED, "claude", "opencode"])
def test_a_person_decides_for_an_agent_that_speaks_acp(canvas, tmp_path, name):
    if name not in installed((name,)):
        pytest.skip(f"{name} is not installed: make agent NAME={name}")
    port = free_port()
    page = f"http://127.0.0.1:{port}"
    with serving(tmp_path, [name], ALLOWED_ORIGINS=page) as client, _shown(canvas, port, client):
        browser = Canvas(page, width=1500, height=950)
        try:
            _first_run(browser, page, f"{page}/v1", asks(name, "echo done-$((6*7)) | tee one"))
            browser.says("tee one")  # the action that waits
            browser.press("action-confirm-button")
            identity = browser.driver.current_url.rpartition("/")[2]
            path = f"/api/conversations/{identity}"
            wait_until(lambda: client.get(path).json()["execution_status"] == "finished", "the end of the run")
            browser.press("right-panel-toggle")
            browser.press("conversation-tab-terminal")
            browser.says("done-42")

            browser.sends(asks(name, "touch two"))
            browser.press("action-reject-button")
            wait_until(lambda: _count(client, identity, "UserRejectObservation") == 1, "the rejection")

            browser.driver.get(f"{page}/conversations/{identity}")  # the history, from the server alone
            browser.says("tee one")
            browser.says("touch two")
            assert _refused(_responses(browser)) == []
        finally:
            browser.close()
    end_browsers()
    [work] = (tmp_path / "sandboxes").rglob("work/one")
    assert not work.with_name("two").exists()


def _refused(seen: list[tuple[str, int]]) -> list[str]:
    """The paths of responses that show a fault of this server or of what it understands."""
    return [path for path, status in seen if status >= 500 or status in (401, 403, 409, 422)]


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


def _responses(browser: Canvas) -> list[tuple[str, int]]:
    """Path and status of every response that the page has had of this server since the log was read last."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance"))
    received = (one["params"]["response"] for one in messages if one["method"] == "Network.responseReceived")
    return [(one["url"].removeprefix(browser.base_url), one["status"]) for one in received]
