"""The published web client of OpenHands (npm: @openhands/agent-canvas) in Chromium, and its static server.

`tests/interop/web_client.sh DIR` fetches it; AGENT_CANVAS is then DIR/package. Nothing of it lies in this repository.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.keys import Keys

from tests.console import Browser
from tests.servers import running, wait_until

KEY = "a-key-for-tests-only"

#: the first message of a first run
TASK = "run: echo approved > hello.txt; git init -q; cat hello.txt"

#: paths that the client's own static server passes on to this server
_PASSED_ON = ("/api", "/sockets", "/server_info", "/health", "/alive", "/ready")

#: seconds without a response after which a page has asked for all it asks for
_QUIET_SECONDS = 2


@contextlib.contextmanager
def before(canvas: Path, port: int, url: str) -> Iterator[None]:
    """The web client's static server at a port, before this server at a URL."""
    page = f"http://127.0.0.1:{port}"
    command = ["node", str(canvas / "scripts/static-server.mjs"), "--port", str(port), "--host", "127.0.0.1"]
    command += ["--dir", str(canvas / "build"), "--session-api-key", KEY, "--disable-telemetry"]
    for path in _PASSED_ON:
        command += ["--route", f"{path}={url}"]
    with running(command):
        wait_until(lambda: _answers(f"{page}/server_info"), "the web client's static server")
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
            if more := responses(self):
                found, quiet_since = [*found, *more], time.monotonic()
            time.sleep(0.1)
        return found


def first_run(browser: Canvas, page: str, llm: str, task: str = TASK) -> None:
    """From the first page to a model that is set and a first message."""
    browser.driver.get(page)
    browser.press("confirm-telemetry-preferences")
    browser.press("onboarding-agent-next")
    browser.press("sdk-section-advanced-toggle")
    browser.fill('[data-testid="llm-custom-model-input"]', "openai/scripted")
    browser.fill('[data-testid="llm-api-key-input"]', "sk-scripted-0123456789")
    browser.fill('[placeholder="https://api.openai.com"]', llm)
    browser.press("onboarding-llm-next")
    browser.fill('[data-testid="onboarding-hello-input"]', task)
    browser.click('[data-testid="onboarding-hello-input-form"] [data-testid="submit-button"]')


def responses(browser: Canvas) -> list[tuple[str, int]]:
    """Path and status of every response that the page has had of this server since the log was read last."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance"))
    received = (one["params"]["response"] for one in messages if one["method"] == "Network.responseReceived")
    return [(one["url"].removeprefix(browser.base_url), one["status"]) for one in received]
