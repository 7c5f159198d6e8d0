"""The rows of the inbox: to find an action, to filter and group them, and to choose several."""

from uuid import uuid4

import pytest
from selenium.webdriver.common.keys import Keys

from tests.approvals import DecidedConversation
from tests.conftest import action
from tests.console.prompts import known, row, shows
from tests.servers import supervised_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server on which nothing waits but what these tests make: the list counts all that waits."""
    with supervised_server(tmp_path_factory.mktemp("inbox-list")) as (client, _):
        DecidedConversation(client, str(uuid4()))  # without one the inbox is the first page
        yield client


LOW, HIGH = action("ls\nls src", security_risk="LOW"), action("rm -r build", security_risk="HIGH")
EDIT = action(security_risk="LOW", tool_name="file_editor", action={"kind": "X", "command": "edit", "path": "a.py"})


@pytest.fixture
def two(waits):
    """Two conversations, of which one has a tag: three actions, in the order in which they came."""
    return waits(LOW, HIGH, title="The build", tags={"team": "web"}), waits(EDIT, title="The docs")


@pytest.fixture
def inbox(two, browser):
    browser.open("inbox")
    known(browser)
    lists(browser, LOW, HIGH, EDIT)
    return browser


def listed(browser) -> list[str]:
    """The ids of the actions in the list, from top to bottom."""
    return browser.script(
        "return [...document.querySelectorAll('[data-testid^=line-]')].map((line) => line.dataset.testid.slice(5))"
    )


def lists(browser, *actions) -> None:
    """Wait until the list has these actions alone."""
    ids = [one["id"] for one in actions]
    browser.wait(lambda: listed(browser) == ids, f"a list of {len(ids)}")


def select(browser, name: str, words: str) -> None:
    """Choose what begins with these words."""
    [option] = [one for one in browser.find(name).find_elements("tag name", "option") if one.text.startswith(words)]
    option.click()


def test_a_row_opens_its_prompt_beside_the_list(inbox):
    assert "The docs" in row(inbox, EDIT).text
    assert "ls …" in row(inbox, LOW).text
    shows(inbox, LOW)

    inbox.find("open", row(inbox, EDIT)).click()

    shows(inbox, EDIT)
    assert "current" in row(inbox, EDIT).get_attribute("class").split()
    assert row(inbox, EDIT).size["height"] <= 46
    assert not inbox.all("back")


@pytest.mark.parametrize(
    ("name", "words", "left"),
    [
        ("security_risk", "Low risk", [LOW, EDIT]),
        ("tool_name", "file_editor", [EDIT]),
        ("conversation_id", "The build", [LOW, HIGH]),
        ("tag", "team=web", [LOW, HIGH]),
    ],
)
def test_a_filter_leaves_what_passes_and_the_address_keeps_it(inbox, name, words, left):
    inbox.find("index").find_element("css selector", "details summary").click()

    select(inbox, f"filter-{name}", words)

    lists(inbox, *left)
    inbox.driver.refresh()
    lists(inbox, *left)
    inbox.find("clear-filters").click()
    lists(inbox, LOW, HIGH, EDIT)


def test_a_search_looks_into_commands_and_titles(inbox):
    inbox.press("/")
    inbox.press(*"BUILD")
    lists(inbox, LOW, HIGH)
    inbox.press(*" -x")
    inbox.says("Nothing that waits matches")


def test_groups_stand_in_the_order_of_their_risk(inbox):
    select(inbox, "group-by", "By risk")

    lists(inbox, HIGH, LOW, EDIT)
    assert [head.text for head in inbox.find("index").find_elements("tag name", "h2")] == [
        "High risk\n1",
        "Low risk\n2",
    ]
    inbox.find("choose-group-LOW").click()
    assert "2 chosen" in inbox.text("several")


def test_all_of_low_risk_are_chosen_and_approved_and_no_other(inbox, two):
    inbox.find("choose-low").click()
    assert "2 low risk" in inbox.text("several")
    bar = inbox.find("several")
    wait_until(lambda: bar.find_elements("css selector", "[data-steady]"), "a bar that is still")

    inbox.find("approve-all").click()

    lists_open = [HIGH["id"]]
    wait_until(lambda: [one for each in two for one in each.pending] == lists_open, "the decisions")


def test_what_a_filter_hides_is_not_decided(inbox, two):
    inbox.find("choose-all").click()
    assert "1 high, 2 low risk" in inbox.text("several")

    inbox.go("inbox?tool_name=file_editor")

    lists(inbox, EDIT)
    inbox.says("1 chosen", "several")
    bar = inbox.find("several")
    wait_until(lambda: bar.find_elements("css selector", "[data-steady]"), "a bar that is still")
    inbox.find("approve-all").click()
    wait_until(lambda: not two[1].pending, "the decision")
    assert two[0].pending == [LOW["id"], HIGH["id"]]


def test_a_window_without_room_opens_a_row_on_a_page_of_its_own_with_a_way_back(two, browsers):
    browser = browsers(width=900)
    browser.open("inbox")
    known(browser)
    browser.press("j")
    browser.press("a")
    browser.says("Open it first: press Enter.")
    browser.press(Keys.ENTER)
    shows(browser, LOW)
    assert not row_is_shown(browser, HIGH)
    assert "1 of 3" in browser.driver.find_element("class name", "back").text

    browser.press("j")
    shows(browser, HIGH)
    browser.driver.refresh()
    shows(browser, HIGH)
    browser.find("back").click()

    lists(browser, LOW, HIGH, EDIT)
    assert row_is_shown(browser, HIGH)
    assert not browser.all("pending-*")
    browser.find("open", row(browser, EDIT)).click()
    shows(browser, EDIT)
    browser.driver.back()
    browser.gone("back")
    assert row_is_shown(browser, EDIT)


def row_is_shown(browser, one) -> bool:
    return any(found.is_displayed() for found in browser.all(f"line-{one['id']}"))


def test_an_inbox_in_which_nothing_waits_has_no_list(browser):
    browser.open("inbox")
    browser.says("Nothing waits for you")
    assert not browser.find("inbox").find_elements("css selector", ".index:not([hidden] *)")
