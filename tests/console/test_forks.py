"""A fork from one event of the timeline, by mouse and by keyboard."""

import pytest
from selenium.webdriver.common.action_chains import ActionChains

from tests.console import Browser
from tests.console.logs import action, conversation, message, observation
from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

EVENTS = [
    message("asks", 0, text="First question"),
    action("acts", 1, command="make test"),
    observation("seen", "acts", 2),
    message("later", 3, text="Second question"),
]


@pytest.fixture
def identity(browser, server):
    """A conversation of EVENTS, which the browser shows."""
    identity = conversation(server, *EVENTS, title="Source")
    browser.open(f"conversations/{identity}")
    browser.find("event-later")
    return identity


def focused(browser: Browser) -> str:
    """The event that has the focus."""
    return browser.script("return document.activeElement.closest('li.event')?.dataset.testid.slice(6) ?? ''")


def fork(browser: Browser, server, identity: str) -> dict:
    """Say yes to the question, and return the fork that the page shows then."""
    browser.find("yes").click()
    wait_until(lambda: identity not in browser.driver.current_url, "the address of the fork")
    browser.says("This is the fork.")
    return server.get(f"/api/conversations/{browser.driver.current_url.rpartition('/')[2]}").json()


def copied(server, copy: dict) -> list[str]:
    """The ids of the events of a fork."""
    page = server.get(f"/api/conversations/{copy['id']}/events/search").json()
    return [event["id"] for event in page["items"]]


def test_a_mouse_forks_from_a_row_with_the_action_and_its_result(browser, server, identity):
    row = browser.find("event-acts")
    ActionChains(browser.driver).move_to_element(row).perform()
    browser.find("fork-here", row).click()

    assert browser.text("fork-event").startswith("Result")
    copy = fork(browser, server, identity)
    browser.find("event-seen")
    browser.gone("event-later")
    assert copied(server, copy) == ["asks", "acts", "seen"]
    assert (copy["title"], copy["forked_from_event_id"]) == ("Fork of Source", "seen")
    assert copy["forked_from_conversation_id"] == identity


def test_keys_choose_an_event_and_fork_from_it(browser, server, identity):
    browser.press("J")
    assert focused(browser) == "asks"
    browser.press("J", "J")
    assert focused(browser) == "later"
    browser.press("K", "K")
    assert focused(browser) == "asks"
    browser.press("f")

    assert browser.text("fork-event").startswith("You")
    assert copied(server, fork(browser, server, identity)) == ["asks"]


def test_without_a_chosen_event_the_key_forks_the_whole_conversation(browser, server, identity):
    browser.press("f")
    browser.says("a copy of all events")
    assert browser.all("fork-event") == []

    copy = fork(browser, server, identity)
    assert copied(server, copy) == [event["id"] for event in EVENTS]
    assert copy["forked_from_event_id"] is None


def test_the_question_has_no_fault_that_axe_finds_and_escape_leaves_the_row_chosen(browser, identity):
    browser.press("J", "J", "f")
    browser.find("fork-event")
    assert browser.violations() == []
    browser.press("\ue00c")

    browser.gone("fork-event")
    browser.wait(lambda: focused(browser) == "acts", "the focus on the row again")
    assert browser.violations() == []
