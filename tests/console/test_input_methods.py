"""Keys of a composition, by which people write Chinese, Japanese, Korean and much else: they are the input method's."""

import pytest

from tests.conftest import action as proposed
from tests.console import Browser
from tests.console.logs import conversation
from tests.console.prompts import press, steady
from tests.console.test_conversation import said
from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

#: the keys of the protocol, and their numbers
CODES = {"Enter": 13, "Escape": 27}

#: how browsers tell that a key is an input method's: while it composes, and by the number alone after it has
WAYS = ("composing", "229")


def compose(browser: Browser, text: str) -> None:
    """Write a text that the input method has not finished."""
    browser.command("Input.imeSetComposition", text=text, selectionStart=len(text), selectionEnd=len(text))


def key(browser: Browser, name: str, code: int = 0) -> None:
    """Press a key, as the browser has it; code: the number that it says instead."""
    members = {"key": name, "code": name, "windowsVirtualKeyCode": code or CODES[name]}
    browser.command("Input.dispatchKeyEvent", type="rawKeyDown", **members)
    browser.command("Input.dispatchKeyEvent", type="keyUp", **members)


def composed_key(browser: Browser, name: str, way: str) -> None:
    """A key of a composition, and then the end of it."""
    if way == "composing":
        compose(browser, "にほん")
        assert browser.script(LISTEN) is None
        key(browser, name)
        assert browser.script("return window.wasComposing") is True
        browser.command("Input.insertText", text="日本")
    else:
        browser.command("Input.insertText", text="日本")
        key(browser, name, 229)


LISTEN = "addEventListener('keyup', (event) => (window.wasComposing = event.isComposing), {capture: true, once: true})"


@pytest.mark.parametrize("way", WAYS)
def test_enter_of_a_composition_sends_no_message_and_the_next_one_does(browser, server, way):
    identity = conversation(server)
    browser.open(f"conversations/{identity}")
    field = browser.find("composer").find_element("tag name", "textarea")
    field.click()

    composed_key(browser, "Enter", way)
    browser.command("Input.insertText", text="語")

    assert field.get_property("value") == "日本語"
    assert said(server, identity) == []
    key(browser, "Enter")
    wait_until(lambda: said(server, identity) == ["日本語"], "the message")


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("way", WAYS)
def test_no_key_of_a_composition_rejects_or_loses_a_reason(browser, waits, name, way):
    one = proposed("make")
    waiting = waits(one)
    browser.open("inbox")
    press(browser, one, "reject")
    field = browser.find("reason")
    field.click()
    steady(browser, one)  # from then on Enter would count

    composed_key(browser, name, way)
    browser.command("Input.insertText", text="語")

    assert field.get_property("value") == "日本語"
    assert browser.script("return document.activeElement.dataset.testid") == "reason"
    assert len(waiting.pending) == 1
    key(browser, "Escape")
    browser.gone("reason")


@pytest.mark.parametrize("way", WAYS)
def test_escape_of_a_composition_keeps_the_form_of_a_title(browser, server, way):
    browser.open(f"conversations/{conversation(server)}")
    browser.opens("more")
    browser.find("edit-title").click()
    browser.find("title").click()

    composed_key(browser, "Escape", way)

    assert browser.find("title").get_property("value").endswith("日本")
    assert browser.script("return document.activeElement.dataset.testid") == "title"
    key(browser, "Escape")
    browser.gone("title")
