"""Notifications of the browser: asked for by the person, about what came while the page was not seen."""

import pytest

from tests.conftest import action
from tests.console.prompts import pending
from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")


def test_a_hidden_page_announces_what_waits_if_the_person_wants_it(browser, waits):
    browser.command("Browser.grantPermissions", permissions=["notifications"], origin=browser.base_url)
    browser.open("inbox")
    browser.find("notify").click()
    browser.says("Notifications are on")
    browser.script(
        """
        const tell = (name, value) => localStorage.setItem(name, JSON.stringify(value));
        const announced = [];
        window.Notification = class extends Notification {
          constructor(title, options) {
            super(title, options);
            announced.push([title, options.body]);
            tell("announced", announced);
          }
        };
        addEventListener("visibilitychange", () => tell("hidden", document.hidden));
        """
    )
    seen, one, two = action("make"), action("make test"), action("make install")
    waits(seen, title="Seen")
    pending(browser, seen)

    # Another tab of the same origin reads what the page tells: to go back to the page would show it.
    told = "return JSON.parse(localStorage.getItem(arguments[0]) ?? 'null')"
    page = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    browser.driver.get(f"{browser.base_url}/alive")
    wait_until(lambda: browser.script(told, "hidden"), "a page that is not seen")
    waits(one, two, title="The \u202ebuild")
    wait_until(lambda: len(browser.script(told, "announced")) == 2, "two notifications")

    announced = browser.script(told, "announced")
    browser.driver.switch_to.window(page)
    assert [title for title, _ in announced] == ["The \\u{202e}build"] * 2
    assert announced[0][1] == "terminal waits for your decision."
    assert announced[1][1] == "terminal waits for your decision, and 1 more."
    assert pending(browser, two).is_displayed()
