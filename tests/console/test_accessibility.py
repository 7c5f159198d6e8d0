"""axe-core finds nothing wrong with any view and any dialog, light and dark."""

import pytest

from tests.console import Browser
from tests.console.furnished import Furnished, show
from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")


@pytest.fixture(scope="module", params=["light", "dark"])
def browser(request, furnished: Furnished):
    one = Browser(furnished.base_url, dark=request.param == "dark", width=1400)
    yield one
    one.close()


def test_no_view_has_a_violation(browser, furnished):
    browser.open("inbox")
    browser.find("inbox")

    for place in furnished.places:
        show(browser, place)
        assert browser.violations() == [], place


def test_no_view_has_a_violation_on_a_phone(browser, furnished):
    browser.command("Emulation.setDeviceMetricsOverride", width=380, height=800, deviceScaleFactor=1, mobile=False)
    browser.open("inbox")
    browser.find("inbox")

    for place in ("inbox", "conversations", f"conversations/{furnished.calm}", "sandboxes", "keys", "audit"):
        show(browser, place)
        assert browser.violations() == [], place
    browser.command("Emulation.clearDeviceMetricsOverride")


def test_no_dialog_has_a_violation(browser, furnished):
    browser.open("keys")
    for opens in ("make-key", "revoke-*"):
        browser.find(opens).click()
        wait_until(lambda: browser.driver.find_elements("css selector", "dialog[open]"), "a dialog")
        assert browser.violations() == [], opens
        browser.press("\ue00c")
        wait_until(lambda: not browser.driver.find_elements("css selector", "dialog[open]"), "no dialog")
    browser.press("?")
    browser.says("Keyboard shortcuts")
    assert browser.violations() == []
    browser.press("\ue00c")
    wait_until(lambda: not browser.driver.find_elements("css selector", "dialog[open]"), "no dialog")
    browser.script("dispatchEvent(new KeyboardEvent('keydown', {key: 'k', ctrlKey: true, bubbles: true}))")
    browser.find("palette-entry")
    assert browser.violations() == []


def test_no_form_of_a_prompt_has_a_violation(browser, furnished):
    for form in ("reject", "edit", "always"):
        browser.open("inbox")
        prompt = browser.find("pending-*")
        if buttons := browser.all(form, prompt):
            wait_until(lambda found=buttons[0]: found.is_enabled(), "the button")
            buttons[0].click()
            wait_until(lambda shown=prompt: shown.find_elements("css selector", ".panel, dialog form"), "the form")
            assert browser.violations() == [], form
