"""The page itself: how it is reached, what it loads, and what it asks for first."""

import pytest

pytestmark = pytest.mark.browser("shows the console in a browser")


def test_a_browser_that_opens_the_address_of_the_server_is_at_the_inbox(browser, server):
    browser.driver.get(str(server.base_url))

    browser.says("Inbox")
    assert browser.driver.current_url.startswith(f"{str(server.base_url).rstrip('/')}/console/")
    assert browser.find("connection").get_attribute("data-state") == "live"


def test_a_page_of_which_a_module_did_not_come_loads_again_by_itself(browsers):
    browser = browsers()
    browser.command("Network.enable")
    browser.command("Network.setBlockedURLs", urls=["*/lib/router.js"])
    browser.open("inbox")
    assert browser.all("inbox") == []

    browser.command("Network.setBlockedURLs", urls=[])

    browser.find("inbox")
