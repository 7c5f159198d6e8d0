"""From a phone to a large screen: no page scrolls sideways, and nothing moves after it was shown."""

import pytest

from tests.console import Browser
from tests.console.furnished import Furnished, show

WIDTHS = (380, 768, 1400, 3840)

#: collects what moved without a person's doing
WATCH = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.hadRecentInput) continue;
    const moved = entry.sources.map(({node}) => (node?.outerHTML ?? node?.textContent ?? "?").slice(0, 80));
    shifts.push({value: entry.value, moved});
  }
}).observe({type: "layout-shift", buffered: true});
"""


@pytest.fixture(scope="module")
def browser(furnished: Furnished):
    one = Browser(furnished.base_url)
    one.command("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    yield one
    one.close()


def resize(browser: Browser, width: int) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_view_scrolls_sideways(browser, furnished, width):
    resize(browser, width)
    browser.open("inbox")
    browser.find("inbox")

    for place in furnished.places:
        show(browser, place)
        wide = browser.script(WIDE)
        assert wide == [], f"{place} at {width}"


#: the widest elements of a page that scrolls sideways
WIDE = """
const width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth <= width) return [];
return [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > width + 1)
  .map((one) => `${one.outerHTML.slice(0, 100)} to ${one.getBoundingClientRect().right}`).slice(0, 8);
"""


@pytest.mark.parametrize("width", [380, 1400])
def test_what_waits_does_not_move_once_it_is_shown(browser, furnished, width, capsys):
    resize(browser, width)
    moved = {}
    for place in ("inbox", "conversations", f"conversations/{furnished.calm}", "sandboxes", "audit", "status"):
        browser.open(place)
        show(browser, place)
        shifts = browser.script("return window.shifts")
        moved[place] = round(sum(shift["value"] for shift in shifts), 4)
        if place == "inbox":
            assert [shift for shift in shifts if "prompt" in str(shift["moved"])] == []

    with capsys.disabled():
        print(f"\nlayout shift at {width} pixels: {moved}")
