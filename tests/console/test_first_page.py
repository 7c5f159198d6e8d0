"""The first page: before the first conversation it says what this is, and lets a person begin at once."""

from uuid import uuid4

import pytest
from selenium.webdriver.common.keys import Keys

from tests.approvals import DecidedConversation
from tests.conftest import action
from tests.console import Browser
from tests.servers import supervised_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

SIZES = [(1280, 720), (390, 844), (320, 568)]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A client of a server in which nothing has happened, until the last test of this module begins a conversation."""
    with supervised_server(tmp_path_factory.mktemp("fresh")) as (client, _):
        yield client


@pytest.fixture
def first(browsers, fresh):
    """The page as it opens."""
    browser = browsers(base_url=str(fresh.base_url).rstrip("/"))
    browser.driver.get(str(fresh.base_url))
    browser.find("start")
    wait_until(lambda: len(browser.all("example")) == 3, "the examples")
    return browser


def headline(browser: Browser) -> str:
    return browser.driver.find_element("tag name", "h1").text


def test_the_first_page_asks_what_to_do_and_says_what_is_missing_and_what_happens_then(first):
    assert headline(first) == "What should an agent do?"
    first.says("No model is set", "missing")
    first.says("LLM_MODEL=gpt-5.5 LLM_API_KEY=sk-… make run", "missing")
    steps = [one.text for one in first.driver.find_elements("css selector", ".how strong")]
    assert steps == ["It runs in a sandbox", "It asks you", "You approve here"]
    assert first.driver.switch_to.active_element.get_attribute("name") == "message"
    assert not first.driver.find_elements("css selector", "details[open]")


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_first_page_fits_its_window_and_is_accessible(first, width, height):
    first.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    assert first.script("return document.documentElement.scrollWidth") <= width
    assert first.script("return document.querySelector('.start').getBoundingClientRect().width") <= 720
    assert first.violations() == []


def test_the_first_page_stays_while_a_person_types_and_tells_what_begins_to_wait(first, fresh):
    field = first.driver.find_element("name", "message")
    field.send_keys("a")
    conversation = DecidedConversation(fresh, str(uuid4()))
    conversation.appends(action("ls"))
    first.says("1 action waits for your decision.")
    field.send_keys("a")
    assert field.get_property("value") == "aa"
    assert len(conversation.pending) == 1

    first.find("to-inbox").click()
    first.find("inbox")
    assert headline(first) == "Inbox"
    fresh.delete(f"/api/conversations/{conversation.id}").raise_for_status()


def test_after_the_first_conversation_the_inbox_opens(first, fresh):
    first.all("example")[0].click()
    first.driver.find_element("name", "message").send_keys(Keys.CONTROL, Keys.ENTER)
    first.find("pending-*")
    assert "#/conversations/" in first.driver.current_url

    first.driver.get(str(fresh.base_url))
    first.find("inbox")
    assert headline(first) == "Inbox"
    first.open("start")
    first.find("start")
    assert headline(first) == "What should an agent do?"
    assert not first.driver.find_elements("css selector", ".how")
