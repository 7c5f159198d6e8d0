"""The newcomer's way: open the page, start an agent, approve what it proposes, see the result."""

import platform
import re

import pytest
from selenium.webdriver.common.keys import Keys

from tests.console import Browser
from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

TASK = "run: uname -a"


def _press_until(browser: Browser, press, is_done, event: str) -> None:
    """Press again where a press did not count: the page passes over presses while something has just moved."""

    def done() -> bool:
        if is_done():
            return True
        press()
        return bool(is_done())

    wait_until(done, event)


def _is_decided(browser: Browser) -> bool:
    return not browser.all("pending-*") or bool(browser.all("decided-*"))


@pytest.fixture(scope="module")
def approved(server):
    """The page of a newcomer who has started an agent and approved what it proposed; the text of that prompt."""
    browser = Browser(str(server.base_url).rstrip("/"))
    try:
        browser.driver.get(str(server.base_url))
        browser.find("connection")
        browser.driver.find_element("css selector", 'nav a[href="#/start"]').click()
        browser.find("start")
        browser.driver.find_element("name", "message").send_keys(TASK)
        browser.find("start").click()

        browser.find("timeline")
        prompt = browser.find("pending-*")
        proposed = prompt.text
        _press_until(browser, browser.find("approve", prompt).click, lambda: _is_decided(browser), "the decision")
        yield browser, proposed
    finally:
        browser.close()


def test_a_newcomer_starts_an_agent_approves_and_sees_the_observation(approved):
    browser, proposed = approved

    assert "uname -a" in proposed
    browser.says(platform.release(), "timeline")
    assert browser.errors() == []
    [decision] = browser.bodies("/pending-actions/decisions")[0]["decisions"]
    assert re.fullmatch("[0-9a-f]{64}", decision["digest"])  # bound to what the page showed


@pytest.mark.browser("takes the same way a second time")
def test_a_newcomer_does_it_by_the_keyboard_alone(browser, server):
    browser.driver.get(str(server.base_url))
    browser.find("connection")
    active = "return document.activeElement.getAttribute('href') ?? document.activeElement.name"
    wait_until(lambda: bool(browser.driver.find_elements("css selector", "nav a")), "the views")
    while browser.script(active) != "#/start":
        browser.press(Keys.TAB)
    browser.press(Keys.ENTER)
    wait_until(lambda: browser.script(active) == "message", "the field for the message")
    browser.press(*TASK, Keys.TAB)
    while browser.script("return document.activeElement.dataset.testid") != "start":
        browser.press(Keys.TAB)
    browser.press(Keys.ENTER)

    browser.find("timeline")
    browser.find("pending-*")
    browser.script("document.activeElement.blur()")
    browser.press("j")
    _press_until(browser, lambda: browser.press("a"), lambda: _is_decided(browser), "the decision")
    browser.says(platform.release(), "timeline")
