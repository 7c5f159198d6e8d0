"""What a command printed: numbered lines that fold, open, are found, linked to, copied and saved."""

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.console import Browser
from tests.console.logs import action, conversation, event, message, observation, post
from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

#: as many lines as an event has room for, about
HUNDRED_THOUSAND = "\n".join(str(number) for number in range(1, 100_001))

#: whether an element of the page is in sight
IN_SIGHT = """
const {top, bottom} = document.querySelector(arguments[0])?.getBoundingClientRect() ?? {};
const around = document.querySelector('dialog[open] article') ?? document.querySelector('.timeline');
const box = around.getBoundingClientRect();
return top >= box.top - 1 && bottom <= box.bottom + 1;
"""

#: boxes within the timeline that scroll down by themselves
SCROLLING = """
return [...document.querySelectorAll('.timeline *')]
  .filter((one) => /auto|scroll/.test(getComputedStyle(one).overflowY) && one.scrollHeight > one.clientHeight + 1)
  .map((one) => one.className || one.tagName);
"""

#: milliseconds from the press of a button until the page is drawn
PRESSED = """
const [button, done] = arguments, began = performance.now();
button.click();
requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
"""


def printed(server, text: str, **members) -> str:
    """The id of a conversation with a command that has printed a text."""
    return conversation(server, message("asked"), action("act", 1), observation("seen", "act", 2, text, **members))


def lines(number: int) -> str:
    return "\n".join(f"line {place}" for place in range(1, number + 1))


def numbers(browser: Browser) -> list[int]:
    """The numbers of the lines that the page has drawn."""
    return browser.script("return [...document.querySelectorAll('.line')].map((line) => Number(line.dataset.line))")


def marked(browser: Browser) -> list[int]:
    """The numbers of the lines that the address names."""
    selector = ".printed .line.marked"
    return [int(line.get_attribute("data-line")) for line in browser.driver.find_elements("css selector", selector)]


def unfold(browser: Browser) -> None:
    """Open the folded lines: their button may stand below the bar of their output, which stays in sight."""
    button = browser.find("show-earlier")
    browser.script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    wait_until(lambda: 1 in numbers(browser), "the first line")


def sees(browser: Browser, selector: str) -> None:
    browser.wait(lambda: browser.script(IN_SIGHT, selector), f"{selector} in sight")


def focused(browser: Browser) -> str | None:
    return browser.script("return document.activeElement.dataset.number")


def test_a_long_output_shows_its_last_lines_opens_and_folds_again(browser, server):
    browser.open(f"conversations/{printed(server, lines(402))}")

    assert browser.text("show-earlier") == "388 earlier lines"
    assert numbers(browser) == list(range(389, 403))
    unfold(browser)
    browser.wait(lambda: focused(browser) == "1", "the focus at the first line")
    sees(browser, '[data-line="1"]')
    browser.find("fold").click()

    browser.find("show-earlier")
    assert numbers(browser) == list(range(389, 403))


def test_a_short_output_is_shown_whole_and_a_single_line_has_no_number(browser, server):
    events = [action("two", 3), observation("saw", "two", 4, "12 passed\n")]
    identity = printed(server, lines(14))
    post(server, identity, *events)
    browser.open(f"conversations/{identity}")

    assert len(browser.find("event-seen").find_elements("class name", "number")) == 14
    assert browser.find("event-saw").find_element("class name", "line").text == "12 passed"
    assert not browser.find("event-saw").find_elements("class name", "number")
    assert not browser.all("show-earlier")


def test_a_hundred_thousand_lines_open_in_the_time_of_a_screen(browser, server):
    browser.open(f"conversations/{printed(server, HUNDRED_THOUSAND)}")

    took = browser.driver.execute_async_script(PRESSED, browser.find("show-earlier"))

    assert browser.text("output").startswith("100,000 lines")
    assert 1 in numbers(browser)
    assert len(numbers(browser)) <= 400
    assert took < 1_000


def test_lines_are_drawn_as_they_are_scrolled_to_and_few_at_once(browser, server):
    browser.open(f"conversations/{printed(server, HUNDRED_THOUSAND)}")
    unfold(browser)

    for share in (0.25, 0.5, 0.75, 1):
        scroll = "const box = document.querySelector('.timeline'); box.scrollTop = box.scrollHeight * arguments[0]"
        browser.script(scroll, share)
        wait_until(lambda share=share: max(numbers(browser), default=0) > 99_000 * share, f"lines at {share}")
        assert len(numbers(browser)) <= 400
    sees(browser, '[data-line="100000"]')


def test_the_last_of_many_lines_is_found_by_the_keyboard_alone(browser, server):
    browser.open(f"conversations/{printed(server, HUNDRED_THOUSAND)}?event=seen&line=1")
    browser.wait(lambda: focused(browser) == "1", "the focus at the line")

    browser.press("f", held=Keys.CONTROL)
    browser.find("find")
    browser.press(*"9999")
    browser.says("1 of 19", "find-count")  # 9999, 19999 to 99999, 99990 to 99998
    browser.press(Keys.ENTER, held=Keys.SHIFT)

    browser.says("19 of 19", "find-count")
    sees(browser, "mark.current")
    line = browser.driver.find_element("css selector", "mark.current").find_element("xpath", "ancestor::div[1]")
    assert line.get_attribute("data-line") == "99999"
    browser.press(Keys.ENTER)
    browser.says("1 of 19", "find-count")
    browser.press("x")
    browser.says("No match", "find-count")
    browser.press(Keys.ESCAPE)
    browser.gone("find")


def test_a_link_to_a_line_opens_marks_and_scrolls_to_it_also_after_a_reload(browser, server):
    identity = printed(server, lines(5_000))
    browser.open(f"conversations/{identity}?event=seen&line=2500")

    for _ in range(2):
        sees(browser, ".line.marked")
        assert marked(browser) == [2500]
        browser.driver.refresh()
    sees(browser, ".line.marked")

    link = browser.driver.find_element("css selector", '[data-number="2502"]')
    ActionChains(browser.driver).key_down(Keys.SHIFT).click(link).key_up(Keys.SHIFT).perform()
    browser.wait(lambda: marked(browser) == [2500, 2501, 2502], "three marked lines")
    assert browser.driver.current_url.endswith("event=seen&line=2500-2502")
    browser.driver.refresh()
    sees(browser, ".line.marked")
    assert marked(browser) == [2500, 2501, 2502]


def test_a_press_on_a_number_moves_nothing_and_an_address_beyond_the_end_is_the_last_line(browser, server):
    identity = printed(server, lines(402))
    browser.open(f"conversations/{identity}")
    browser.find("output")
    line = browser.driver.find_element("css selector", '[data-number="395"]')
    top = "return document.querySelector('[data-line=\"395\"]').getBoundingClientRect().top"
    before = browser.script(top)

    line.click()

    wait_until(lambda: marked(browser) == [395], "the marked line")
    assert browser.script(top) == before
    browser.open(f"conversations/{identity}?event=seen&line=9000")
    wait_until(lambda: marked(browser) == [402], "the last line")


def test_lines_are_chosen_by_the_arrows_enter_and_shift(browser, server):
    browser.open(f"conversations/{printed(server, lines(402))}?event=seen&line=395")
    browser.wait(lambda: focused(browser) == "395", "the focus at the line")

    browser.press(Keys.ARROW_DOWN)
    browser.wait(lambda: focused(browser) == "396", "the focus at the next line")
    browser.press(Keys.ARROW_DOWN)
    browser.wait(lambda: focused(browser) == "397", "the focus at the line below")
    browser.press(Keys.ENTER, held=Keys.SHIFT)
    browser.wait(lambda: marked(browser) == [395, 396, 397], "three marked lines")
    browser.press(Keys.ARROW_UP)
    browser.wait(lambda: focused(browser) == "396", "the focus at the line above")
    browser.press(Keys.ENTER)
    browser.wait(lambda: marked(browser) == [396], "one marked line")
    browser.press(Keys.HOME)
    browser.wait(lambda: focused(browser) == "1", "the focus at the first line")
    sees(browser, '[data-line="1"]')


def test_the_text_is_copied_without_its_colours_and_saved_with_them(browser, server, tmp_path):
    text = "\x1b[32mok\x1b[0m\n" + lines(20)
    browser.open(f"conversations/{printed(server, text)}")
    browser.command("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    row = browser.find("event-seen")

    browser.find("copy", row).click()
    browser.says("Copied", "event-seen")
    read = "navigator.clipboard.readText().then(arguments[0])"
    assert browser.driver.execute_async_script(read) == "ok\n" + lines(20)
    browser.find("raw", row).click()

    saved = tmp_path / "output-seen.txt"
    wait_until(saved.is_file, "the file")
    assert saved.read_text() == text


def test_a_colour_goes_on_in_the_next_lines_also_where_the_first_is_not_drawn(browser, server):
    text = "\x1b[31m" + lines(300) + "\x1b[0m\nplain"
    browser.open(f"conversations/{printed(server, text)}")

    browser.wait(lambda: browser.driver.find_elements("css selector", ".run"), "a colour")
    red = browser.driver.find_elements("css selector", ".line .run")
    assert [one.text for one in red] == [f"line {number}" for number in range(288, 301)]


def test_a_full_screen_has_its_own_search_and_nothing_else_scrolls_within_the_timeline(browser, server):
    events = [action("write", 3, action={"kind": "TerminalAction", "command": lines(200)}), event("Odd", "odd", 4, a=1)]
    identity = printed(server, lines(402))
    post(server, identity, *events)
    browser.open(f"conversations/{identity}")
    unfold(browser)
    assert browser.script(SCROLLING) == []

    browser.find("full-screen").click()
    dialog = browser.driver.find_element("css selector", "dialog[open]")
    browser.find("find-open", dialog).click()
    browser.press(*"line 402", Keys.ENTER)
    sees(browser, "dialog mark.current")
    assert browser.driver.find_element("css selector", "dialog mark.current").text == "line 402"
    browser.press(Keys.ESCAPE)  # closes the search
    browser.wait(lambda: not browser.all("find", dialog), "no search")
    browser.press(Keys.ESCAPE)
    browser.wait(lambda: not browser.driver.find_elements("css selector", "dialog[open]"), "no dialog")


def test_a_wide_line_is_broken_or_not_as_the_person_says_and_a_very_long_one_is_cut(browser, server):
    identity = printed(server, lines(20) + "\n" + "x" * 300_000)
    browser.open(f"conversations/{identity}")
    height = "return document.querySelector('[data-line=\"21\"]').getBoundingClientRect().height"
    assert browser.text("line-more") == "Show more (298,000 characters)"
    wrapped = browser.script(height)

    browser.find("wrap").click()

    wait_until(lambda: browser.script(height) < wrapped / 3, "a line of one row")
    assert browser.script("return document.documentElement.scrollWidth <= innerWidth")
    browser.find("line-more").click()
    browser.says("Show more (98,000 characters)")
    browser.open(f"conversations/{identity}")
    assert browser.find("wrap").get_attribute("aria-pressed") == "false"


def test_what_was_opened_stays_where_it_is_while_events_come(browser, server):
    identity = printed(server, lines(402))
    browser.open(f"conversations/{identity}")
    unfold(browser)
    top = "return document.querySelector('[data-line=\"1\"]').getBoundingClientRect().top"
    before = browser.script(top)

    post(server, identity, *(message(f"more-{number}", 10 + number) for number in range(5)))

    browser.says("5 new events")
    assert browser.script(top) == before
