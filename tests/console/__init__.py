"""A real Chromium before a real server: what a person sees and does in the console."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webelement import WebElement

from tests.console.netlink import refuse_netlink
from tests.servers import program, wait_until

#: one process for all pages, which is not started for each: to load one takes half of the processor's time
FRUGAL = ("--renderer-process-limit=1", "--disable-site-isolation-trials", "--no-zygote")

#: Chromiums that no test has now; the fixture `chromium` ends them. To start one takes longer than most tests.
_free: list[webdriver.Chrome] = []


def _start(arguments: tuple[str, ...]) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium")
    options.add_argument("--headless=new")
    options.add_argument("--no-sandbox")  # Chromium's own sandbox does not run as root
    options.add_argument("--disable-dev-shm-usage")
    for argument in (*FRUGAL, *arguments):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(program("chromedriver"), popen_kw={"preexec_fn": refuse_netlink})
    return webdriver.Chrome(options, service)


def end_browsers() -> None:
    """End the Chromiums that no test has."""
    while _free:
        _free.pop().quit()


class Browser:
    """A Chromium with one window, in which nothing is stored. Elements are found by their `data-testid`.

    arguments: of a Chromium of its own; without any it is one that earlier tests have had.
    """

    def __init__(
        self,
        base_url: str,
        *,
        dark: bool = False,
        width: int = 1280,
        height: int = 900,
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.base_url = base_url
        self._is_own = bool(arguments)
        self.driver = _free.pop() if _free and not arguments else _start(arguments)
        self.driver.set_window_rect(0, 0, width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def command(self, name: str, **members: Any) -> Any:
        """A command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, members)

    def open(self, place: str = "", *, key: str = "") -> None:
        """Load the page at a place such as "inbox", with a key as the link that the server prints has it."""
        self.driver.get("about:blank")  # another fragment alone loads nothing
        self.driver.get(f"{self.base_url}/console/#" + (f"key={key}" if key else f"/{place}"))
        if key and place:
            self.go(place)

    def go(self, place: str) -> None:
        """Go to a place within the page."""
        self.script("location.hash = arguments[0]", f"#/{place}")

    def script(self, source: str, *arguments: Any) -> Any:
        """What a script of the page returns."""
        return self.driver.execute_script(source, *arguments)

    def all(self, testid: str, within: WebElement | None = None) -> list[WebElement]:
        """The elements of a name; a name that ends in `*` is the begin of one."""
        match = f'[data-testid^="{testid[:-1]}"]' if testid.endswith("*") else f'[data-testid="{testid}"]'
        return (within or self.driver).find_elements("css selector", match)

    def wait(self, ready: Callable[[], Any], event: str) -> None:
        """Wait until the page is as expected. A failure shows what the page says, and its log."""
        try:
            wait_until(ready, event)
        except pytest.fail.Exception:
            said = self.script("return `${location.hash} ${document.readyState}: ${document.body.innerText}`")
            log = [entry["message"] for entry in self.driver.get_log("browser")]
            pytest.fail(f"{event}: the page at {said!r}, its log {log}")

    def find(self, testid: str, within: WebElement | None = None) -> WebElement:
        """The first element of a name that is shown, as soon as there is one."""
        found: list[WebElement] = []

        def look() -> bool:
            try:
                found[:] = [one for one in self.all(testid, within) if one.is_displayed()][:1]
            except StaleElementReferenceException:
                return False
            return bool(found)

        self.wait(look, f"an element {testid}")
        return found[0]

    def opens(self, *names: str) -> None:
        """Open parts of the view by their buttons, such as "filters", where they are not open."""
        for name in names:
            button = self.find(name)
            if "true" not in (button.get_attribute("aria-expanded"), button.get_attribute("aria-pressed")):
                button.click()

    def gone(self, testid: str) -> None:
        """Wait until no element of a name is there."""
        self.wait(lambda: not self.all(testid), f"no element {testid}")

    def text(self, testid: str) -> str:
        """The text of an element, as a person sees it."""
        return self.find(testid).text

    def says(self, words: str, testid: str = "") -> None:
        """Wait until the page, or an element of it, shows words."""

        def shown() -> bool:
            try:
                return words in (self.find(testid) if testid else self.driver.find_element("tag name", "body")).text
            except StaleElementReferenceException:
                return False

        self.wait(shown, f"the words {words!r}")

    def press(self, *keys: str, held: str = "") -> None:
        """Press keys, one after the other, wherever the focus is. held: a key such as Shift that is down meanwhile."""
        for key in keys:
            chain = ActionChains(self.driver)
            (chain.key_down(held).send_keys(key).key_up(held) if held else chain.send_keys(key)).perform()

    def offline(self, is_offline: bool = True) -> None:
        """Cut the network, or give it back."""
        self.command("Network.enable")
        self.command(
            "Network.emulateNetworkConditions",
            offline=is_offline,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def errors(self) -> list[str]:
        """What the browser's log has of errors since the last call: of scripts, of the content security policy."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] == "SEVERE" and "Failed to load resource" not in entry["message"]
        ]

    def requested(self) -> list[str]:
        """The addresses that the page has requested since the last call."""
        return [url for _, url in self.requests()]

    def requests(self) -> list[tuple[str, str]]:
        """The method and the address of what the page has requested since the last call."""
        return [(request["method"], request["url"]) for request in self._sent()]

    def bodies(self, end: str) -> list[dict[str, Any]]:
        """The JSON that the page has sent since the last call to addresses with this end."""
        return [json.loads(request["postData"]) for request in self._sent() if request["url"].endswith(end)]

    def _sent(self) -> list[dict[str, Any]]:
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [one["params"]["request"] for one in messages if one["method"] == "Network.requestWillBeSent"]

    def violations(self) -> list[str]:
        """What axe-core finds wrong with the page as it is shown: rules, and the elements that break them."""
        self.script((Path(__file__).parent / "axe-core" / "axe.min.js").read_text())
        found = self.driver.execute_async_script(
            """
            const done = arguments[0];
            axe.run().then(({violations}) => done(violations.flatMap(({id, nodes}) =>
              nodes.map(({html, failureSummary}) => `${id}: ${html.slice(0, 300)}: ${failureSummary}`))));
            """
        )
        return list(found)

    def close(self) -> None:
        """Leave the Chromium to the next test, with a fresh tab alone and nothing stored; one of its own ends."""
        if self._is_own:
            self.driver.quit()
            return
        try:
            self._leave()
        except WebDriverException:
            self.driver.quit()
            raise
        _free.append(self.driver)

    def _leave(self) -> None:
        """What is of a tab, such as its emulation, its scripts and its session, ends with it."""
        tabs = self.driver.window_handles
        self.driver.switch_to.new_window("tab")
        fresh = self.driver.current_window_handle
        for tab in tabs:
            self.driver.switch_to.window(tab)
            self.driver.close()
        self.driver.switch_to.window(fresh)
        self.command("Page.bringToFront")
        self.command("Storage.clearDataForOrigin", origin=self.base_url, storageTypes="all")
        self.command("Network.clearBrowserCookies")
        self.command("Network.clearBrowserCache")
        self.command("Browser.resetPermissions")
        self.command("Browser.setDownloadBehavior", behavior="default")
        self.driver.set_script_timeout(30)
        for log in ("browser", "performance"):
            self.driver.get_log(log)
