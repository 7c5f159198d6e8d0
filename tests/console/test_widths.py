"""From a phone to a large screen: no page scrolls sideways, and nothing moves after it was shown."""

import pytest

from tests.console import Browser
from tests.console.furnished import Furnished, show

pytestmark = pytest.mark.browser("shows the console in a browser")

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
        assert browser.script(WIDE) == [], f"{place} at {width}"
        browser.script(READS_AGAIN)
        assert browser.script(WIDE) == [], f"{place} at {width}, while its list reads again"


#: what a list bears while it reads, as when it reconnects
READS_AGAIN = 'for (const list of document.querySelectorAll("main [aria-busy]")) list.setAttribute("aria-busy", "true")'

#: what makes a page scroll sideways, innermost first: elements beyond its edge, or whose lines are, but none within one
#: that scrolls or clips by itself
WIDE = """
const width = document.documentElement.clientWidth, reached = document.documentElement.scrollWidth;
if (reached <= width) return [];
const isHolder = (one) => getComputedStyle(one).overflowX !== "visible";
const isHeld = ({ parentElement: one }) => one !== document.body && (isHolder(one) || isHeld(one));
const end = (one) => one.getBoundingClientRect().left + Math.max(one.scrollWidth, one.getBoundingClientRect().width);
const wide = [...document.querySelectorAll("body *")].filter((one) => end(one) > width + 1 && !isHeld(one));
const shown = wide.reverse().slice(0, 8).map((one) => `${one.outerHTML.slice(0, 100)} to ${end(one)}`);
return [`the page to ${reached}`, ...shown];
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


#: has the page tell something, and returns what moved, whether it is in sight, and what is pressed in its middle
TELL = """
const done = arguments[0];
const drawn = () => new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
const header = document.querySelector("#console > header"), main = document.querySelector("main");
const places = () => [header.getBoundingClientRect().bottom, main.getBoundingClientRect().top];
(async () => {
  const before = places(), page = document.querySelector("script[type=module]").src;
  const { tell } = await import(page.replace("main.js", "parts/notices.js"));
  tell("The rule is revoked.");
  while (!document.querySelector(".notice")) await drawn();
  await drawn();
  const { left, right, top, bottom } = document.querySelector(".notice").getBoundingClientRect();
  const isInSight = left >= 0 && right <= innerWidth && top >= innerHeight / 2 && bottom <= innerHeight;
  const below = document.elementFromPoint((left + right) / 2 - 40, (top + bottom) / 2);
  done([String(before) === String(places()), isInSight, below.closest(".notice") === null]);
})();
"""


@pytest.mark.parametrize("width", [390, 1280])
def test_a_notice_stands_at_the_bottom_moves_nothing_and_lets_presses_through(browser, furnished, width):
    resize(browser, width)
    browser.open("inbox")
    show(browser, "status")
    assert browser.driver.execute_async_script(TELL) == [True, True, True]
