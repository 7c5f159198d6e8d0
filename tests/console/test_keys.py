"""The view of keys: made with scopes and an expiry, shown once, revoked after a question."""

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")


@pytest.fixture
def keys(server):
    """Lists the keys that were made; those of a test end with it."""
    yield lambda: server.get("/api/v1/keys").json()
    for one in server.get("/api/v1/keys").json():
        server.delete(f"/api/v1/keys/{one['id']}")


def opened_dialog(browser):
    """The dialog that makes a key, as soon as it is drawn."""
    browser.find("make-key").click()
    browser.wait(lambda: browser.driver.find_elements("css selector", "dialog[open]"), "the dialog")
    return browser.driver.find_element("css selector", "dialog[open]")


def make(browser, name: str, *scopes: str, expiry: str = "Never") -> str:
    """Make a key in the view; the key as it is shown."""
    dialog = opened_dialog(browser)
    dialog.find_element("name", "name").send_keys(name)
    for scope in ("read", "write", "approve", "admin"):
        box = dialog.find_element("name", scope)
        if box.is_selected() is not (scope in scopes):
            box.click()
    Select(dialog.find_element("name", "expiry")).select_by_visible_text(expiry)
    dialog.find_element("css selector", "[type=submit]").click()
    return browser.find("new-key").get_attribute("value")


def test_a_key_is_made_shown_once_copied_and_revoked_after_a_question(browser, server, keys):
    browser.open("keys")
    browser.says("No keys yet")
    browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])

    key = make(browser, "dashboard", "read", "approve")

    [made] = keys()
    assert (made["name"], sorted(made["scopes"]), made["expires_at"]) == ("dashboard", ["approve", "read"], None)
    me = server.get("/api/v1/users/me", headers={"X-Session-API-Key": key})
    assert me.status_code == 200
    browser.press(Keys.ESCAPE, Keys.ESCAPE)  # what is shown once does not go by a slip
    assert browser.find("new-key").get_attribute("value") == key
    browser.find("copy").click()
    browser.says("Copied.")
    assert browser.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == key
    browser.find("done").click()
    browser.gone("new-key")
    row = browser.find(f"key-{made['id']}")
    assert all(word in row.text for word in ("dashboard", "read", "approve", "Never"))
    assert key not in browser.script("return document.documentElement.outerHTML")

    browser.find(f"revoke-{made['id']}").click()
    browser.find("yes")
    browser.press(Keys.ESCAPE)
    browser.gone("yes")
    assert len(keys()) == 1
    browser.find(f"revoke-{made['id']}").click()
    browser.find("yes").click()

    browser.says("No keys yet")
    assert keys() == []


def test_the_first_key_of_an_open_server_is_an_admins_unless_the_person_says_otherwise(browser, server, keys):
    browser.open("keys")
    dialog = opened_dialog(browser)

    browser.says("This server is open now. With a first key, it asks for one from its next start.", "first-key")
    boxes = {scope: dialog.find_element("name", scope).is_selected() for scope in ("read", "write", "approve", "admin")}
    assert [scope for scope, is_chosen in boxes.items() if is_chosen] == ["admin"]
    assert Select(dialog.find_element("name", "expiry")).first_selected_option.text == "Never"
    assert browser.violations() == []
    dialog.find_element("name", "name").send_keys("me")
    dialog.find_element("css selector", "[type=submit]").click()
    key = browser.find("new-key").get_attribute("value")
    browser.says("From its next start it asks for a key")
    browser.find("use-key").click()
    browser.says("This browser shows the key from now on.")
    assert browser.script("return Object.values(localStorage)") == [key]
    browser.find("done").click()

    browser.gone("new-key")
    opened_dialog(browser)
    assert not browser.all("first-key")
    assert [one["scopes"] for one in keys()] == [["admin"]]


def test_a_key_has_the_expiry_that_was_chosen(browser, keys):
    browser.open("keys")

    make(browser, "for a month", "write", expiry="After 30 days")
    browser.find("done").click()

    [made] = keys()
    assert made["expires_at"] is not None
    browser.says("in 30 days", f"key-{made['id']}")


def test_a_name_that_the_server_refuses_is_told_in_words_and_stays(browser, keys):
    browser.open("keys")
    dialog = opened_dialog(browser)
    dialog.find_element("name", "name").send_keys("two​names")
    dialog.find_element("css selector", "[type=submit]").click()

    wait_until(lambda: "name: String should be printable" in dialog.text, "the refusal")
    assert dialog.find_element("name", "name").get_attribute("value") == "two​names"
    assert keys() == []
