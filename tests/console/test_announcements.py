"""Notifications of the browser: asked for by the person, about what came while the page was not seen."""

from tests.conftest import action
from tests.console.prompts import pending
from tests.servers import wait_until


def test_a_hidden_page_announces_what_waits_if_the_person_wants_it(browser, waits):
    browser.command("Browser.grantPermissions", permissions=["notifications"], origin=browser.base_url)
    browser.open("inbox")
    browser.find("notify").click()
    browser.says("Notifications are on")
    browser.script(
        """
        window.announced = [];
        window.Notification = class extends Notification {
          constructor(title, options) {
            super(title, options);
            window.announced.push([title, options.body]);
          }
        };
        """
    )
    seen, one, two = action("make"), action("make test"), action("make install")
    waits(seen, title="Seen")
    pending(browser, seen)

    page = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    waits(one, two, title="The \u202ebuild")
    browser.driver.switch_to.window(page)
    wait_until(lambda: len(browser.script("return window.announced")) == 2, "two notifications")

    announced = browser.script("return window.announced")
    assert [title for title, _ in announced] == ["The \\u{202e}build"] * 2
    assert announced[0][1] == "terminal waits for your decision."
    assert announced[1][1] == "terminal waits for your decision, and 1 more."
    assert pending(browser, two).is_displayed()
