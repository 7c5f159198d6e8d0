"""What keys lead to: the palette, sequences, the list of shortcuts; titles of the document, and the way back."""

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.conftest import action, message

pytestmark = pytest.mark.browser("shows the console in a browser")


def ask(browser) -> None:
    """Open the palette, as with Ctrl+K."""
    ActionChains(browser.driver).key_down(Keys.CONTROL).send_keys("k").key_up(Keys.CONTROL).perform()
    browser.find("palette-text")


def entries(browser) -> list[str]:
    return [one.find_element("class name", "text").text for one in browser.all("palette-entry")]


def chosen(browser) -> str:
    """The entry that the text field names as the active one."""
    name = browser.find("palette-text").get_attribute("aria-activedescendant")
    return browser.driver.find_element("id", name).find_element("class name", "text").text


def at(browser, place: str) -> None:
    browser.wait(lambda: browser.script("return location.hash") == f"#/{place}", f"the place {place}")


def titled(browser, title: str) -> None:
    browser.wait(lambda: browser.driver.title == title, f"the title {title!r}")


def test_the_palette_leads_to_a_view_by_some_of_its_letters(browser):
    browser.open("inbox")
    browser.find("inbox")
    ask(browser)
    browser.press("sandb")
    browser.wait(lambda: chosen(browser) == "Sandboxes", "the first result")
    assert [one.text for one in browser.driver.find_elements("css selector", ".palette [aria-selected=true] mark")] == [
        "Sandb"
    ]
    browser.press(Keys.ENTER)
    at(browser, "sandboxes")
    browser.gone("palette")


def test_arrows_choose_in_the_palette_and_escape_leaves_it_where_the_focus_was(browser):
    browser.open("conversations")
    browser.find("search").click()
    ask(browser)
    browser.wait(lambda: len(entries(browser)) > 2, "entries")
    names = entries(browser)
    assert chosen(browser) == names[0]
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)
    assert chosen(browser) == names[1]
    browser.press(Keys.ARROW_UP, Keys.ARROW_UP)
    assert chosen(browser) == names[-1]
    browser.press(Keys.ESCAPE)
    browser.gone("palette")
    assert browser.driver.switch_to.active_element == browser.find("search")


def test_the_palette_finds_conversations_by_title_and_by_what_was_said(browser, waits):
    waits(message("Count the pomegranates"), title="Mend the date parser")
    browser.open("inbox")
    browser.find("inbox")
    ask(browser)
    browser.press("date parser")
    browser.says("Mend the date parser", "palette")
    for _ in range(3):
        browser.press(*[Keys.BACKSPACE] * 4)
    browser.press("pomegran")
    browser.says("Count the pomegranates", "palette")
    browser.press(Keys.ENTER)
    browser.wait(lambda: "?event=" in browser.driver.current_url, "the message")


def test_an_empty_palette_has_the_last_conversations_first_and_the_actions_of_the_view(browser, waits):
    one, other = waits(action("make"), title="The first"), waits(action("make"), title="The second")
    for waiting in (one, other):
        browser.open(f"conversations/{waiting.id}")
        browser.find("composer")
    ask(browser)
    browser.wait(lambda: entries(browser)[:1] == ["The first"], "the conversation before")
    assert "Show Changes" in entries(browser)
    browser.press("show changes", Keys.ENTER)
    at(browser, f"conversations/{other.id}?show=changes")


def test_a_sequence_leads_to_a_view_and_says_meanwhile_what_may_follow(browser):
    browser.open("inbox")
    browser.find("inbox")
    browser.press("g")
    browser.says("Conversations", "begun")
    browser.press("c")
    at(browser, "conversations")
    for key, place in (("s", "sandboxes"), ("r", "rules"), ("a", "audit"), ("i", "inbox")):
        browser.press("g", key)
        at(browser, place)
    browser.press("n")
    at(browser, "start")


def test_the_second_key_of_a_sequence_decides_nothing(browser, waits):
    waiting = waits(one := action("make"))
    browser.open("inbox")
    prompt = browser.find(f"pending-{one['id']}")
    browser.wait(lambda: prompt.find_elements("css selector", "[data-steady]"), "buttons that stand still")
    browser.press("g", "e", "g", "a")
    at(browser, "audit")
    assert waiting.pending == [one["id"]]


def test_the_list_of_shortcuts_has_groups_and_the_keys_of_a_sequence(browser):
    browser.open("conversations")
    browser.find("search")
    browser.press("?")
    browser.says("Keyboard shortcuts")
    names = [one.text for one in browser.driver.find_elements("css selector", "dialog h3")]
    assert names == ["Go to", "Everywhere", "This view"]
    [first] = browser.driver.find_elements("css selector", "dialog section:first-child dl > div:first-child dt")
    assert [one.text for one in first.find_elements("tag name", "kbd")] == ["g", "i"]


def test_each_view_has_a_title_of_its_own_and_a_conversation_says_its_state(browser, waits):
    waiting = waits(one := action("make"), title="Mend the date parser")
    browser.open("rules")
    titled(browser, "(1) Rules – Agent Server")
    browser.go(f"conversations/{waiting.id}")
    titled(browser, "Mend the date parser · Waiting (1) – Agent Server")
    waiting.decides({"action_id": one["id"], "decision": "approve"})
    browser.wait(lambda: "Waiting" not in browser.driver.title, "no action that waits")
    browser.go("nowhere")
    titled(browser, "Not found – Agent Server")


def test_back_leads_from_the_changes_to_the_talk_and_from_there_to_the_view_before(browser, waits):
    waiting = waits(message("asked"), title="Mend the date parser")
    browser.open("conversations")
    browser.find(f"conversation-{waiting.id}").find_element("class name", "title").click()
    browser.find("changes").click()
    browser.find("changes-panel")
    browser.driver.back()
    browser.find("timeline")
    at(browser, f"conversations/{waiting.id}")
    browser.driver.forward()
    browser.find("changes-panel")
    browser.driver.back()
    browser.driver.back()
    at(browser, "conversations")


def test_back_undoes_a_filter_that_was_chosen_and_not_each_letter_that_was_typed(browser):
    browser.open("inbox")
    browser.go("conversations")
    browser.find("search").send_keys("date")
    browser.wait(lambda: "text=date" in browser.driver.current_url, "the search")
    browser.find("filter-status").find_element("css selector", "[value=running]").click()
    at(browser, "conversations?text=date&status=running")
    browser.driver.back()
    at(browser, "conversations?text=date")
    browser.driver.back()
    at(browser, "inbox")
