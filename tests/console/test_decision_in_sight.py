"""What waits is decided where it is shown: the buttons are in sight, and nothing that decides otherwise is nearer."""

import pytest

from tests.conftest import action, event
from tests.console import Browser
from tests.console.logs import message
from tests.console.prompts import pending, row, steady
from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

#: of windows, a phone, one that lies, and a laptop at 200 %
SIZES = ((1440, 900), (1366, 900), (1280, 720), (1024, 768), (900, 500), (844, 390), (390, 844), (683, 450), (683, 384))

#: a window of 900 by 500 whose browser has no bars, and has some; and lower ones
LOW = ((900, 500), (900, 361), (1280, 300), (844, 390), (683, 384), (390, 300))

CAPABILITIES = {"key": "capabilities", "value": ["edit"]}

#: 3,800 characters
SUMMARY = "".join(f"Sentence {number} says what the agent means to do, and why. " for number in range(100))[:3800]


def size(browser: Browser, width: int, height: int) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)


def lines(number: int) -> str:
    return "\n".join(f"echo line {line} of a command" for line in range(number))


def edit(number: int) -> dict:
    """An action that changes every second one of so many lines of a file."""
    after = "\n".join(f"echo line {line} of a {'command' if line % 2 else 'file'}" for line in range(number))
    change = {"command": "str_replace", "path": "/work/a", "old_str": lines(number), "new_str": after}
    return action(tool_name="file_editor", action={"kind": "FileEditorAction", **change})


def said(text: str) -> list[dict]:
    return [{"type": "text", "text": text}]


def wait_here(browser: Browser, waits, *actions: dict):
    """Show the conversation in whose log the actions wait, below messages; the conversation."""
    earlier = [message(f"m{number}", number) for number in range(12)]
    waiting = waits(*earlier, event("ConversationStateUpdateEvent", "environment", **CAPABILITIES), *actions)
    browser.open(f"conversations/{waiting.id}")
    pending(browser, actions[0])
    browser.says("rejects", "composer")
    return waiting


def faults(browser: Browser, *names: str) -> list[str]:
    """What is wrong with the first buttons of these names, beside the composer's; nothing where all is right."""
    return browser.driver.execute_async_script(FAULTS, list(names))


FAULTS = """
const [names, done] = arguments;
const first = (name) => document.querySelector(`[data-testid="${name}"]`);
const middle = ({ left, right, top, bottom }) => [(left + right) / 2, (top + bottom) / 2];
requestAnimationFrame(() => requestAnimationFrame(() => {
  const found = [], send = first("send"), edge = send.getBoundingClientRect();
  const start = first(names[0]).closest("article").getBoundingClientRect();
  const away = (rect) => Math.hypot(rect.left - start.left, rect.top - start.top);
  for (const name of names) {
    const button = first(name), rect = button.getBoundingClientRect(), where = JSON.stringify(rect);
    const isInside = rect.top >= 0 && rect.left >= 0 && rect.bottom <= innerHeight && rect.right <= innerWidth;
    if (!isInside) found.push(`${name} outside: ${where}`);
    if (document.elementFromPoint(...middle(rect)) !== button) found.push(`${name} covered: ${where}`);
    if (rect.bottom > edge.top) found.push(`${name} not above "${send.textContent}": ${where}`);
    if (away(rect) >= away(edge)) found.push(`"${send.textContent}" nearer than ${name}: ${where}`);
    const looks = [button, send].map((one) => getComputedStyle(one).backgroundColor);
    if (name === names[0] && looks[0] === looks[1]) found.push(`"${send.textContent}" looks like ${name}`);
  }
  if (!send.textContent.includes("Reject")) found.push(`"${send.textContent}" does not say that it rejects`);
  done(found);
}));
"""


CASES = {
    "1 line": [action("ls")],
    "8 lines": [action(lines(8))],
    "15 lines": [action(lines(15))],
    "200 lines": [action(lines(200))],
    "a long summary": [action("ls", summary=SUMMARY)],
    "a long summary, a long thought and 200 lines": [action(lines(200), summary=SUMMARY, thought=said(SUMMARY))],
    "a thought of many lines": [action("ls", thought=said("and\n" * 60))],
    "a change of a file": [edit(60)],
    "several": [action(lines(2 + 10 * (number % 2)), summary=f"Step {number}") for number in range(5)],
}


@pytest.mark.parametrize("case", CASES)
def test_the_decision_is_in_sight_and_nearer_than_a_message_that_rejects(browser, waits, case):
    wait_here(browser, waits, *CASES[case])

    for width, height in SIZES:
        size(browser, width, height)
        assert faults(browser, "approve", "reject") == [], f"{case} at {width}×{height}"


def test_the_decision_stays_in_sight_while_what_will_run_is_read_to_its_end(browser, waits):
    one = action(lines(200), summary=SUMMARY)
    wait_here(browser, waits, one)
    size(browser, 1366, 900)
    prompt = pending(browser, one)
    browser.find("goes-on", prompt).find_element("tag name", "button").click()

    for part in (0.2, 0.5, 1):
        browser.script(
            "const box = document.querySelector('.waits-here'); box.scrollTop = box.scrollHeight * arguments[0]", part
        )
        assert faults(browser, "approve", "reject") == [], part


def test_no_decision_is_in_sight_without_the_begin_of_what_it_is_about(browser, waits):
    wait_here(browser, waits, *(action(lines(12), summary=f"Step {number}") for number in range(4)))
    size(browser, 1280, 720)

    near = browser.driver.execute_async_script(
        """
        const done = arguments[0], box = document.querySelector(".waits-here"), found = [];
        const look = () => {
          for (const card of box.querySelectorAll("article")) {
            const button = card.querySelector("[data-testid=approve]").getBoundingClientRect();
            const begin = card.querySelector(".arguments pre").getBoundingClientRect();
            if (button.top < begin.top + 15) found.push([box.scrollTop, button.top, begin.top]);
          }
          const before = box.scrollTop;
          box.scrollTop += 20;
          if (box.scrollTop > before) requestAnimationFrame(look);
          else done([found, box.scrollTop]);
        };
        look();
        """
    )

    assert near[0] == []
    assert near[1] > 100


# "Always" opens a dialog over the page, which has nothing beside it.
@pytest.mark.parametrize(("button", "decides"), [("reject", "reject-and-continue"), ("edit", "approve-edited")])
def test_the_form_of_a_decision_has_its_buttons_in_sight(browser, waits, button, decides):
    one = action(lines(200), summary=SUMMARY, thought=said(SUMMARY))
    wait_here(browser, waits, one)
    size(browser, 1366, 900)
    browser.find(button, steady(browser, one)).click()
    browser.find(decides)
    if button == "reject":
        browser.find("reason").send_keys("Because. " * 200)

    for width, height in SIZES:
        size(browser, width, height)
        assert [fault for fault in faults(browser, decides) if "nearer" not in fault] == [], f"{width}×{height}"


@pytest.mark.parametrize(("width", "height"), [(1366, 900), (900, 500), (390, 844)])
def test_the_inbox_has_the_decision_of_a_long_action_in_sight_also_beside_what_is_chosen(browser, waits, width, height):
    size(browser, width, height)
    one = action(lines(200), summary=SUMMARY, thought=said(SUMMARY))
    waits(one)
    browser.open("inbox")
    browser.find("choose", row(browser, one))
    prompt = steady(browser, one)
    browser.script("for (const box of [window, document.querySelector('.detail')]) box.scrollTo(0, 0)")

    def in_sight() -> list[bool]:
        return [browser.script(IS_HIT, browser.find(name, prompt)) for name in ("approve", "reject")]

    assert in_sight() == [True, True]
    browser.press("x")
    browser.find("several")
    assert in_sight() == [True, True]


IS_HIT = """
const { left, right, top, bottom } = arguments[0].getBoundingClientRect();
return top >= 0 && bottom <= innerHeight
  && document.elementFromPoint((left + right) / 2, (top + bottom) / 2) === arguments[0];
"""


def test_a_long_summary_is_folded_until_it_is_opened(browser, waits):
    one = action("ls", summary=SUMMARY, thought=said("😀" * 1000))
    wait_here(browser, waits, one)
    summary = pending(browser, one).find_element("class name", "summary")

    assert len(summary.text) < 300
    assert "\\u{d83d}" not in pending(browser, one).text
    [more] = summary.find_elements("tag name", "button")
    assert more.text == "Show more (3,600 characters)"
    more.click()

    wait_until(lambda: summary.text == SUMMARY.strip(), "the whole summary")
    size(browser, 1366, 900)
    assert faults(browser, "approve", "reject") == []


def test_a_key_decides_nothing_that_is_scrolled_out_of_sight(browser, waits):
    actions = [action(lines(12)) for _ in range(4)]
    waiting = wait_here(browser, waits, *actions)
    size(browser, 1280, 720)
    steady(browser, actions[0])
    browser.script("arguments[0].focus()", pending(browser, actions[0]))
    browser.script("const box = document.querySelector('.waits-here'); box.scrollTop = box.scrollHeight")

    browser.press("a")

    browser.says("the action was out of sight")
    assert len(waiting.pending) == 4


def test_a_message_is_prominent_again_once_nothing_waits(browser, waits):
    one = action("ls")
    waiting = wait_here(browser, waits, one)
    assert "secondary" in browser.find("send").get_attribute("class").split()
    assert browser.text("send") == "Reject and send"

    waiting.decides({"action_id": one["id"], "decision": "reject"})

    wait_until(lambda: browser.text("send") == "Send", "the button of a message")
    assert "secondary" not in browser.find("send").get_attribute("class").split()


@pytest.mark.parametrize(("width", "height"), LOW)
def test_the_navigation_overlaps_nothing_in_a_low_window(browser, width, height):
    size(browser, width, height)
    browser.open("inbox")
    browser.find("inbox")

    assert browser.script(OVERLAPS) == []


#: pairs of parts of the page's head that are shown on one another
OVERLAPS = """
const nav = document.querySelector("#console header nav");
const parts = [...document.querySelectorAll("#console > header > :not(nav), #console > header li a")];
const clip = (rect, by) => ({ left: Math.max(rect.left, by.left), right: Math.min(rect.right, by.right),
  top: Math.max(rect.top, by.top), bottom: Math.min(rect.bottom, by.bottom) });
const isClipped = getComputedStyle(nav).overflowX !== "visible";
const shown = parts.map((part) => {
  const rect = part.getBoundingClientRect();
  return [part.textContent, isClipped && nav.contains(part) ? clip(rect, nav.getBoundingClientRect()) : rect];
}).filter(([, rect]) => rect.right > rect.left && rect.bottom > rect.top);
const found = [];
shown.forEach(([name, one], index) => shown.slice(index + 1).forEach(([other, two]) => {
  const common = clip(one, two);
  if (common.right - common.left > 1 && common.bottom - common.top > 1) found.push(`${name} and ${other}`);
}));
return found;
"""
