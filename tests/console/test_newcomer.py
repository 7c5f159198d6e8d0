"""The newcomer's way: open the page, start an agent, approve what it proposes, see what came of it."""

import platform

from selenium.webdriver.common.keys import Keys

from tests.console import Browser
from tests.servers import wait_until

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


def test_a_newcomer_starts_an_agent_approves_and_sees_the_observation(browser, server):
    browser.driver.get(str(server.base_url))
    browser.find("connection")
    browser.driver.find_element("css selector", 'nav a[href="#/start"]').click()
    browser.find("start")
    browser.driver.find_element("name", "message").send_keys(TASK)
    browser.find("start").click()

    browser.find("timeline")
    prompt = browser.find("pending-*")
    assert "uname -a" in prompt.text
    approve = browser.find("approve", prompt)
    _press_until(browser, approve.click, lambda: _is_decided(browser), "the decision")
    browser.says(platform.release(), "timeline")


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
