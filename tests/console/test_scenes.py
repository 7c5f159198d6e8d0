"""Every state of the console in four sizes of window: it can be read, it has what it says, and axe finds nothing."""

import pytest

from tests.console import Browser
from tests.console.scenes import Day, day_server

pytestmark = pytest.mark.browser("shows the console in a browser")

#: a laptop, a phone, a small phone, and a window of 1280 by 720 at 200 %
SIZES = ((1280, 720), (390, 844), (320, 568), (640, 360))


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    with day_server(tmp_path_factory.mktemp("day")) as one:
        yield one


@pytest.fixture
def browsers(day: Day):
    """Makes browsers before that server, which end with the test."""
    made = []

    def make(**options) -> Browser:
        made.append(Browser(day.base_url, **options))
        return made[-1]

    yield make
    for one in made:
        one.offline(False)
        one.close()


def resize(browser: Browser, width: int, height: int) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
    browser.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def test_every_state_is_full_and_can_be_read_at_every_size(browsers, day):
    browser, found = browsers(), []
    for scene in day.scenes:
        resize(browser, *SIZES[0])
        scene.appear(browser, day.key)
        for width, height in SIZES:
            resize(browser, width, height)
            found += [f"{scene.name} at {width}×{height}: {fault}" for fault in browser.script(FAULTS)]
    assert found == []


@pytest.mark.parametrize(
    ("is_dark", "size"), [(False, SIZES[0]), (True, SIZES[0]), (False, SIZES[1])], ids=["light", "dark", "phone"]
)
def test_no_state_has_a_violation(browsers, day, is_dark, size):
    assert len(day.scenes) >= 32
    browser, found = browsers(dark=is_dark), []
    resize(browser, *size)
    for scene in day.scenes:
        scene.appear(browser, day.key)
        found += [f"{scene.name}: {fault}" for fault in browser.violations()]
    assert found == []


#: what cannot be read: letters in a column, a scroller in a scroller, a page that scrolls sideways, a talk without room
FAULTS = r"""
const found = [], page = document.scrollingElement, style = (one) => getComputedStyle(one);
const named = (one) => `${one.localName}.${one.className} “${one.textContent.trim().slice(0, 30)}”`;
const own = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
const layers = [...document.querySelectorAll("dialog[open]")];
const shown = [...(layers.at(-1) ?? document.body).querySelectorAll("*")].filter((one) => one.checkVisibility());

const isHidden = (one) => one !== null && (style(one).clipPath !== "none" || isHidden(one.parentElement));
const ruler = document.createElement("canvas").getContext("2d");
for (const one of shown) {
  if (!own(one) || one.closest("svg, .xterm, .hidden, .skips, [aria-hidden=true]")) continue;
  const { width, height } = one.getBoundingClientRect(), { fontSize, fontFamily, lineHeight } = style(one);
  ruler.font = `${fontSize} ${fontFamily}`;
  const line = parseFloat(lineHeight) || 1.5 * parseFloat(fontSize);
  const isNarrow = width > 1 && width < 6 * ruler.measureText("0").width;
  if (isNarrow && !isHidden(one) && height > 3.3 * line) found.push(`letters in a column: ${named(one)}`);
}

const scrolls = (one) => /auto|scroll/.test(style(one).overflowY) && one.scrollHeight > one.clientHeight + 1;
const isApart = (one) => one.localName === "dialog" || style(one).position === "fixed";
const pageScrolls = page.scrollHeight > innerHeight + 1;
for (const one of shown.filter((one) => scrolls(one) && !one.closest("textarea, select, .xterm"))) {
  let outer = one.parentElement, apart = isApart(one);
  while (outer && !apart && !(outer !== document.body && outer !== page && scrolls(outer))) {
    apart = isApart(outer);
    outer = outer.parentElement;
  }
  if (apart || !(outer || pageScrolls)) continue;
  found.push(`scrolls within ${outer ? named(outer) : "the page"}: ${named(one)}`);
}

if (page.scrollWidth > page.clientWidth) found.push(`the page scrolls sideways, to ${page.scrollWidth}`);
const talk = document.querySelector(".timeline");
if (talk && talk.offsetHeight < 60) found.push(`the talk has ${talk.offsetHeight} px`);
return found;
"""
