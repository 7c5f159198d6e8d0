"""No request leaves the server, whatever view is shown and whatever its texts name; no policy of the page is broken."""

from urllib.parse import urlsplit

import pytest

from tests.console import Browser
from tests.console.furnished import Furnished, show

pytestmark = pytest.mark.browser("shows the console in a browser")

#: collects what the content security policy has refused
LISTEN = """
window.refused = [];
addEventListener("securitypolicyviolation", (event) => refused.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


def test_no_view_asks_another_host_for_anything_and_breaks_no_policy(furnished: Furnished):
    browser = Browser(furnished.base_url)
    try:
        browser.command("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)
        browser.open("inbox")
        browser.find("inbox")
        urls = browser.requested()
        for place in furnished.places:
            show(browser, place)
            urls += browser.requested()

        hosts = {urlsplit(url).netloc for url in urls if not url.startswith(("data:", "about:", "blob:"))}
        assert hosts == {urlsplit(furnished.base_url).netloc}
        assert len(urls) > 50
        assert browser.script("return window.refused") == []
        assert browser.errors() == []
    finally:
        browser.close()


def test_the_page_runs_without_any_store_of_the_browser_but_its_keys(furnished: Furnished):
    browser = Browser(furnished.base_url)
    try:
        browser.open("inbox")
        browser.find("inbox")
        for place in furnished.places:
            show(browser, place)
        kept = browser.script("return [...Object.keys(localStorage), ...Object.keys(sessionStorage), document.cookie]")
        assert [name for name in kept if name and not name.startswith("agent-server-")] == []
    finally:
        browser.close()
