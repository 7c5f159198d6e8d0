"""Texts that mean harm, in every field that a person or an agent fills: shown, never run, and the layout holds."""

import pytest

from tests.console import Browser
from tests.console.furnished import HTML, Furnished, show
from tests.console.prompts import pending
from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

#: how the page shows what would not show as itself
SHOWN = "\\u{202e}gnp.exe\\u{202c}"


HARMED = """
const all = document.documentElement, found = [], has = (selector) => document.querySelector(selector);
if (window.hostile !== undefined || document.title.includes("title")) found.push("it ran");
if (has("main script, main iframe, main object, main embed, #console [style*=fixed]")) found.push("it is HTML");
if (has("#console a[href^='javascript:' i], #console [src^='http' i], #console [onerror]")) found.push("it leads");
if (all.scrollWidth > innerWidth) found.push(`it is ${all.scrollWidth} wide`);
return found;
"""


def is_harmed(browser: Browser) -> list[str]:
    """What a hostile text has done to the page."""
    return browser.script(HARMED)


def unfold(browser: Browser) -> None:
    """Open all that is folded."""
    browser.script("""
        for (const one of document.querySelectorAll("main details:not([open]) > summary")) one.click();
    """)


def test_hostile_texts_are_shown_on_every_view_and_never_run(furnished: Furnished):
    browser = Browser(furnished.base_url)
    try:
        browser.open("inbox")
        browser.find("inbox")
        for place in furnished.places:
            show(browser, place)
            unfold(browser)
            assert is_harmed(browser) == [], place
        for place, words in {
            "inbox": SHOWN,
            "conversations": HTML[:40],  # a row of one line shows no more
            f"conversations/{furnished.hostile}": SHOWN,
            f"conversations/{furnished.calm}": "uname -sr",
            "rules": SHOWN,
            "keys": HTML[:40],
            "audit": SHOWN,
        }.items():
            show(browser, place)
            browser.says(words)
        assert browser.errors() == []
        assert [url for url in browser.requested() if "elsewhere" in url] == []
    finally:
        browser.close()


def test_the_log_of_a_sandbox_is_shown_as_text(furnished: Furnished):
    browser = Browser(furnished.base_url)
    try:
        browser.open(f"sandboxes/{furnished.sandbox}")
        show(browser, f"sandboxes/{furnished.sandbox}")
        unfold(browser)
        browser.says("the end")
        browser.find("more").click()
        browser.find("logs").click()
        browser.says(HTML[:40], "log")
        assert is_harmed(browser) == []
        assert browser.errors() == []
    finally:
        browser.close()


def test_a_prompt_with_a_line_of_a_megabyte_takes_a_reason(furnished: Furnished):
    browser = Browser(furnished.base_url)
    try:
        browser.open("inbox")
        prompt = pending(browser, {"id": "odd"})
        wait_until(lambda: (browser.find("reject", prompt).click(), browser.all("reason", prompt))[1], "the form")
        browser.find("reason", prompt).send_keys("Not this one")
        assert is_harmed(browser) == []
    finally:
        browser.close()
