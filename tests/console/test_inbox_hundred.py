"""An inbox of a busy day by the keyboard: groups, the focus, and no key that hits another action than the one seen."""

import time
from uuid import uuid4

import pytest
from selenium.webdriver.common.keys import Keys

from tests.approvals import DecidedConversation
from tests.conftest import action
from tests.console import Browser
from tests.console.prompts import known, outcome, row, shows
from tests.console.waiting import fill_inbox
from tests.servers import supervised_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

#: milliseconds in which a row of a hundred is current after a key, on a machine that others use too
QUICK = 150


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server on which nothing waits but what these tests make."""
    with supervised_server(tmp_path_factory.mktemp("inbox-hundred")) as (client, _):
        DecidedConversation(client, str(uuid4()))  # without one the inbox is the first page
        yield client


def size(browser: Browser, width: int, height: int) -> None:
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)


@pytest.fixture
def inbox(browser):
    size(browser, 1280, 720)
    browser.open("inbox")
    known(browser)
    return browser


def current(browser) -> str:
    """The name of the current row."""
    return browser.script("return document.querySelector('.index li.current')?.dataset.testid ?? ''")


def open_group(browser) -> None:
    """Open the group of the inbox."""
    browser.script("arguments[0].click()", browser.find("open", browser.find("same-*")))
    browser.find("alike")


def is_still(browser) -> bool:
    return bool(browser.driver.find_elements("css selector", ".detail [data-steady]"))


def decide(browser, count) -> str:
    """Decide what the detail shows by keys, as a person does: what is of a high risk is rejected; the keys."""
    browser.wait(lambda: is_still(browser), "buttons that are still")
    before = current(browser)
    is_high = bool(browser.driver.find_elements("css selector", ".detail .facts .risk.high"))
    if is_high:
        browser.press("r", "Not today")
        browser.wait(lambda: is_still(browser), "a form that is still")
        browser.press(Keys.ENTER)
    else:
        if browser.all("see-group"):  # the commands of a group are seen before they are approved
            browser.press("a")
            browser.gone("see-group")
            browser.wait(lambda: is_still(browser), "buttons that are still")
        browser.press("a")
    wait_until(lambda: current(browser) != before or not count(), "the next action")
    return "r" if is_high else "a"


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_thirty_actions_of_six_kinds_are_decided_by_the_keyboard_in_less_than_a_minute(
    browser, server, waits, width, height
):
    size(browser, width, height)

    def count() -> int:
        return server.get("/api/v1/pending-actions/count").json()

    waiting, actions = fill_inbox(waits, 30)
    browser.open("inbox")
    browser.wait(lambda: browser.text("badge") == "30", "all that waits")

    items = server.get("/api/v1/pending-actions", params={"limit": 100}).json()["items"]
    high = {item["action_id"] for item in items if item["risk"] == "HIGH"}  # as it is shown
    began, keys = time.monotonic(), []
    if width < 1100:
        browser.press("j", Keys.ENTER)
    while count():
        keys.append(decide(browser, count))
    seconds = time.monotonic() - began

    print(f"\n30 actions at {width}×{height}: {len(keys)} decisions in {seconds:.1f} s")
    assert seconds < 60
    decisions = [[entry["decision"] for entry in one.entries] for one in waiting]
    assert decisions == [["reject"] if one["id"] in high else ["approve"] for one in actions]


def test_the_same_command_is_one_row_that_one_key_unfolds_and_one_decision_ends(inbox, waits):
    same = [action("make test") for _ in range(3)]
    waiting = [waits(one, title=f"Build {number}") for number, one in enumerate(same)]
    other = action("make docs")
    waits(other)
    inbox.find(f"same-{same[0]['id']}")
    row(inbox, other)
    assert not inbox.all(f"line-{same[1]['id']}")
    assert "3×" in inbox.text("same-*")
    count = inbox.find("same-*").find_element("class name", "count")
    assert count.get_attribute("title") == "The same command in 3 conversations"

    inbox.press("k", "j", "k", "o")
    row(inbox, same[1])
    inbox.press("o")
    inbox.gone(f"line-{same[1]['id']}")
    open_group(inbox)
    for number in range(3):
        inbox.says(f"Build {number}", "alike")
    wait_until(lambda: is_still(inbox), "buttons that are still")
    inbox.press("a")

    shows(inbox, other)
    assert [[entry["decision"] for entry in one.entries] for one in waiting] == [["approve"]] * 3


def test_what_joins_a_group_is_decided_only_once_its_number_has_been_shown_for_a_moment(inbox, waits):
    same = [action("make test") for _ in range(3)]
    waiting = [waits(one) for one in same[:2]]
    open_group(inbox)
    inbox.script(
        """
        window.refused = null;
        new MutationObserver(() => {
          const button = document.querySelector("[data-testid=approve-group]");
          if (button?.textContent !== "Approve all 3" || window.refused !== null) return;
          button.click();
          window.refused = document.body.textContent.includes("Nothing was decided");
        }).observe(document.body, { childList: true, subtree: true, characterData: true });
        """
    )
    wait_until(lambda: is_still(inbox), "buttons that are still")
    waiting.append(waits(same[2]))
    inbox.says("Approve all 3", "approve-group")
    inbox.says("Nothing was decided")

    assert all(one.pending for one in waiting)
    wait_until(lambda: is_still(inbox), "buttons that are still")
    inbox.press("a")
    wait_until(lambda: not any(one.pending for one in waiting), "the decision of all")


def test_no_group_approves_a_high_risk_and_of_several_it_takes_a_second_press(inbox, waits):
    same = [action("rm -rf /srv", security_risk="HIGH") for _ in range(2)]
    waiting = [waits(one) for one in same]
    open_group(inbox)
    wait_until(lambda: is_still(inbox), "buttons that are still")
    assert not inbox.all("approve-group")
    inbox.says("2 are of high risk: open each alone", "why-left")
    inbox.press("a")
    inbox.says("2 are of high risk: open each alone", "alike")
    inbox.press("x")
    assert not inbox.all("several")
    assert all(one.pending for one in waiting)

    inbox.press("o", "j", "x", "j", "x")
    bar = inbox.find("several")
    wait_until(lambda: bar.find_elements("css selector", "[data-steady]"), "a bar that is still")
    inbox.press("A")
    inbox.says("press again", "approve-all")
    assert all(one.pending for one in waiting)
    inbox.press("A")
    wait_until(lambda: not any(one.pending for one in waiting), "the decision of all")


LIKE = ("git status --short", "git status -v", "git status src")


def test_like_commands_are_one_row_that_is_approved_by_keys_once_each_of_them_is_shown(inbox, waits):
    actions = [action(text, security_risk="LOW") for text in LIKE]
    waiting = [waits(one, title=f"Number {number}") for number, one in enumerate(actions)]
    other = action("make docs")
    waits(other)
    head = inbox.find(f"same-{actions[0]['id']}")
    assert "git status *" in head.text
    assert "3×" in head.text
    count = head.find_element("class name", "count")
    assert count.get_attribute("title") == "Commands like it in 3 conversations"
    open_group(inbox)
    inbox.says("3 actions like git status *", "alike")
    assert not inbox.all("approve-group")
    assert not any(text in inbox.text("alike") for text in LIKE)

    wait_until(lambda: is_still(inbox), "buttons that are still")
    inbox.press("a")
    for one, text in zip(actions, LIKE, strict=True):
        inbox.says(text, "alike")
        row(inbox, one)
    assert all(one.pending for one in waiting)
    wait_until(lambda: is_still(inbox), "buttons that are still")
    inbox.press("a")

    shows(inbox, other)
    assert [[entry["decision"] for entry in one.entries] for one in waiting] == [["approve"]] * 3


def test_like_commands_are_approved_by_the_pointer_without_the_one_of_high_risk(inbox, waits):
    actions = [action(LIKE[0], security_risk="HIGH"), *(action(text, security_risk="LOW") for text in LIKE[1:])]
    waiting = [waits(one) for one in actions]
    open_group(inbox)
    assert "Up to high risk" in inbox.text("alike")
    inbox.find("see-group").click()
    inbox.says("One is of high risk: open it alone", "why-left")
    wait_until(lambda: is_still(inbox), "buttons that are still")
    inbox.find("approve-group").click()

    wait_until(lambda: not any(one.pending for one in waiting[1:]), "the decision of the others")
    assert waiting[0].pending == [actions[0]["id"]]


def test_the_box_of_a_folded_group_opens_its_rows_so_that_nothing_is_chosen_unseen(inbox, waits):
    actions = [action(text, security_risk="LOW") for text in LIKE]
    for one in actions:
        waits(one)
    head = inbox.find(f"same-{actions[0]['id']}")
    inbox.find("choose", head).click()

    for one in actions:
        row(inbox, one)
    assert "3 chosen" in inbox.text("several")


def test_a_rule_like_this_approves_the_group_in_its_scope_and_holds_from_then_on(inbox, waits, server):
    actions = [action(text, security_risk="LOW") for text in LIKE]
    waiting = [waits(one) for one in actions]
    open_group(inbox)
    wait_until(lambda: is_still(inbox), "buttons that are still")
    inbox.press("w")
    inbox.find("always-dialog")
    assert inbox.find("answer-like").is_selected()
    inbox.says("Approves 1 of the 3 that wait", "covered")
    inbox.find("answer-where").find_element("css selector", 'option[value="everywhere"]').click()
    inbox.says("Approves 3 of the 3 that wait", "covered")
    dialog = inbox.find("always-dialog")
    wait_until(lambda: dialog.find_elements("css selector", "[data-steady]"), "a still dialog")
    inbox.find("allow-from-now-on").click()

    wait_until(lambda: not any(one.pending for one in waiting), "the decision of all")
    [rule] = server.get("/api/v1/approval-rules").json()
    assert rule["arguments"] == {"command": {"command": "git status *"}}
    server.delete(f"/api/v1/approval-rules/{rule['id']}").raise_for_status()


def test_rows_name_their_folder_where_there_is_more_than_one(inbox, waits):
    one, two = action("make docs"), action("make test")
    waits(one, workspace={"working_dir": "/home/ada/shop"})
    row(inbox, one)
    assert not inbox.all("row-place")
    waits(two, workspace={"working_dir": "/home/ada/bank"})
    row(inbox, two)
    wait_until(lambda: len(inbox.all("row-place")) == 2, "both folders")
    assert {element.text for element in inbox.all("row-place")} == {"shop", "bank"}


def test_a_row_that_is_decided_elsewhere_says_by_whom_and_no_key_hits_the_next(inbox, waits):
    actions = [action(f"make {number}") for number in range(4)]
    waiting = waits(*actions)
    row(inbox, actions[3])
    inbox.press("j")
    shows(inbox, actions[1])

    waiting.decides({"action_id": actions[1]["id"], "decision": "reject", "reason": "No"})
    assert outcome(inbox, actions[1]).startswith("Rejected by anyone")
    inbox.press("a", "a", "r", "e", "s")

    assert len(waiting.pending) == 3
    assert current(inbox) == f"line-{actions[1]['id']}"
    inbox.says("Rejected by anyone", f"decided-{actions[1]['id']}")
    inbox.press("j")
    shows(inbox, actions[2])
    inbox.press("a")
    shows(inbox, actions[3])
    inbox.press("a")
    shows(inbox, actions[0])  # the nearest above, as nothing waits below
    assert waiting.pending == [actions[0]["id"]]


def test_the_focus_stays_in_the_list_or_in_the_detail_and_is_never_lost(inbox, waits):
    actions = [action(f"make {number}") for number in range(4)]
    waiting = waits(*actions)
    row(inbox, actions[3])
    focus = "return document.activeElement.closest('.index, .detail')?.className ?? document.activeElement.tagName"
    shows(inbox, actions[0])
    inbox.find("open", row(inbox, actions[0])).send_keys(Keys.ARROW_DOWN)
    shows(inbox, actions[1])
    assert inbox.script(focus) == "index"
    inbox.press("a")
    shows(inbox, actions[2])
    assert inbox.script(focus) == "index"
    assert inbox.script("return document.activeElement.closest('li').dataset.testid") == f"line-{actions[2]['id']}"
    inbox.press(Keys.ENTER)
    wait_until(lambda: inbox.script(focus) == "detail", "the focus in the detail")
    waiting.decides({"action_id": actions[2]["id"], "decision": "approve"})
    inbox.find(f"decided-{actions[2]['id']}")
    assert inbox.script(focus) == "detail"
    inbox.press("j")
    shows(inbox, actions[3])
    assert inbox.script(focus) == "detail"


def test_what_comes_or_ends_elsewhere_moves_neither_the_row_nor_the_detail_that_is_read(inbox, waits):
    actions = [action(f"make {number}\n" * 20) for number in range(40)]
    waiting = waits(*actions)
    row(inbox, actions[39])
    inbox.find("open", row(inbox, actions[30])).click()
    shows(inbox, actions[30])
    places = """
    const read = document.querySelectorAll(".index li.current, .detail article");
    return [...read].map((one) => one.getBoundingClientRect().top);
    """
    before = inbox.script(places)

    waiting.decides(*({"action_id": actions[number]["id"], "decision": "reject"} for number in range(5)))
    waits(action("later"))
    inbox.says("later", "index")

    assert inbox.script(places) == pytest.approx(before, abs=1)
    shows(inbox, actions[30])


def test_nothing_scrolls_within_what_scrolls_and_the_page_does_not(inbox, waits):
    waits(action("echo line\n" * 300), *(action(f"make {number}") for number in range(60)))
    shows(inbox, {"id": current_id(inbox)})
    inbox.find("goes-on").find_element("tag name", "button").click()

    assert inbox.script(SCROLLERS) == ["detail", "rows-of"]
    assert inbox.script("return document.documentElement.scrollHeight <= innerHeight")


def current_id(browser) -> str:
    browser.wait(lambda: current(browser), "a current row")
    return current(browser).removeprefix("line-")


#: what scrolls in the inbox, and whatever scrolls within that twice
SCROLLERS = """
const scrolls = (one) => /auto|scroll/.test(getComputedStyle(one).overflowY) && one.scrollHeight > one.clientHeight + 1;
return [...document.querySelectorAll("main *")].filter(scrolls).map((one) => one.className).sort();
"""


@pytest.mark.parametrize(("width", "height"), [(320, 568), (390, 844), (640, 360), (1100, 600), (1280, 720)])
def test_no_window_cuts_a_row_or_hides_a_decision(browser, waits, width, height):
    size(browser, width, height)
    _, actions = fill_inbox(waits, 18)
    browser.open("inbox")
    browser.wait(lambda: browser.text("badge") == "18", "all that waits")
    assert browser.script(CUT) == []
    assert browser.violations() == []
    if width < 1100:
        browser.press("j", Keys.ENTER)
    browser.find("alike")
    wait_until(lambda: is_still(browser), "buttons that are still")
    browser.press("a")
    browser.find("approve-group")
    assert browser.script(CUT) == []
    assert browser.violations() == []
    browser.press("o", "j", "j")
    shows(browser, actions[2])

    assert browser.script(CUT) == []
    assert browser.violations() == []
    assert browser.script(IS_HIT, browser.find("approve"))


#: what is wider than the page, and a row whose text has less than six characters of room
CUT = """
const found = document.documentElement.scrollWidth > innerWidth ? ["the page"] : [];
for (const one of document.querySelectorAll(".index .says")) {
  if (one.offsetParent && one.clientWidth < 6 * 8) found.push(one.textContent);
}
return found;
"""

IS_HIT = """
const { left, right, top, bottom } = arguments[0].getBoundingClientRect();
return top >= 0 && bottom <= innerHeight
  && document.elementFromPoint((left + right) / 2, (top + bottom) / 2) === arguments[0];
"""


def test_a_hundred_rows_follow_a_key_at_once(inbox, waits):
    fill_inbox(waits, 100)
    inbox.wait(lambda: inbox.text("badge") == "100", "all that waits")
    wait_until(lambda: is_still(inbox), "buttons that are still")

    times = inbox.driver.execute_async_script(
        """
        const done = arguments[0], times = [];
        const step = () => {
          const began = performance.now(), before = document.querySelector(".index li.current");
          document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true }));
          const look = () => {
            if (document.querySelector(".index li.current") === before) return requestAnimationFrame(look);
            times.push(performance.now() - began);
            if (times.length === 40) done(times); else requestAnimationFrame(step);
          };
          requestAnimationFrame(look);
        };
        step();
        """
    )

    print(f"\na key among 100 rows: median {sorted(times)[20]:.0f} ms, most {max(times):.0f} ms")
    assert sorted(times)[20] < QUICK
