"""The list beside the prompts of the inbox: to find an action, to filter and group them, and to choose several."""

import pytest

from tests.conftest import action
from tests.console.prompts import known, pending
from tests.servers import supervised_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server on which nothing waits but what these tests make: the list counts all that waits."""
    with supervised_server(tmp_path_factory.mktemp("inbox-list")) as (client, _):
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
    """Wait until the list has these actions alone, and so have the prompts."""
    ids = [one["id"] for one in actions]
    browser.wait(lambda: listed(browser) == ids, f"a list of {len(ids)}")
    shown = [prompt.get_attribute("data-testid") for prompt in browser.all("pending-*")]
    assert shown == [f"pending-{one}" for one in ids]


def select(browser, name: str, words: str) -> None:
    """Choose what begins with these words."""
    [option] = [one for one in browser.find(name).find_elements("tag name", "option") if one.text.startswith(words)]
    option.click()


def test_a_line_brings_its_prompt_into_view(inbox):
    line = inbox.find(f"line-{EDIT['id']}")
    assert "The docs" in line.text
    assert "ls …" in inbox.find(f"line-{LOW['id']}").text

    line.find_element("tag name", "button").click()

    prompt = pending(inbox, EDIT)
    wait_until(lambda: "current" in prompt.get_attribute("class").split(), "the prompt of the line")
    assert "current" in inbox.find(f"line-{EDIT['id']}").get_attribute("class").split()


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
    select(inbox, "group-by", "Risk")

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


def test_a_window_without_room_has_the_list_closed_above_the_prompts(two, browsers):
    browser = browsers(width=900)
    browser.open("inbox")
    known(browser)
    pending(browser, EDIT)

    assert not browser.find("index").get_attribute("open")
    browser.find("index").find_element("tag name", "summary").click()
    assert browser.find(f"line-{HIGH['id']}").is_displayed()


def test_a_line_of_a_prompt_that_is_not_drawn_yet_draws_it(waits, browser):
    actions = [action(f"make {number}") for number in range(35)]
    waits(*actions)
    browser.open("inbox")
    browser.wait(lambda: len(listed(browser)) == 35, "a list of 35")
    assert not browser.all(f"pending-{actions[-1]['id']}")

    browser.find(f"line-{actions[0]['id']}").find_element("tag name", "button").click()
    browser.find(f"line-{actions[-2]['id']}").find_element("tag name", "button").click()
    pending(browser, actions[-2])
    browser.press("j")

    prompt = pending(browser, actions[-1])
    wait_until(lambda: "current" in prompt.get_attribute("class").split(), "the prompt after it")


def test_an_inbox_in_which_nothing_waits_has_no_list(browser):
    browser.open("inbox")
    browser.says("Nothing waits for you")
    assert not browser.all("index")
