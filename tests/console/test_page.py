"""The page itself: how it is reached, what it loads, and what it asks for first."""


def test_a_browser_that_opens_the_address_of_the_server_is_at_the_inbox(browser, server):
    browser.driver.get(str(server.base_url))

    browser.says("Inbox")
    assert browser.driver.current_url.startswith(f"{str(server.base_url).rstrip('/')}/console/")
    assert browser.find("connection").get_attribute("data-state") == "live"
