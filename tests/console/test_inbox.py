"""The inbox: what waits in all conversations, live, decided by hand and by keyboard, here and elsewhere."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from selenium.webdriver.common.keys import Keys

from tests.approvals import DecidedConversation
from tests.conftest import action
from tests.console.prompts import click_here, hold, known, outcome, pending, press, rest_on, row, shows, steady
from tests.servers import supervised_server, wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server on which nothing waits but what these tests make: the keys go through all that waits."""
    with supervised_server(tmp_path_factory.mktemp("inbox")) as (client, _):
        DecidedConversation(client, str(uuid4()))  # without one the inbox is the first page
        yield client


@pytest.fixture
def inbox(browser):
    """The inbox, as soon as it knows what waits: what comes from then on stands in the order in which it came."""
    browser.open("inbox")
    known(browser)
    return browser


def test_a_prompt_comes_and_goes_as_it_happens(inbox, waits):
    one, two = action("make clean", summary="Clean up", security_risk="HIGH"), action("make")
    waiting = waits(one, two, title="The build")

    prompt = pending(inbox, one)
    for words in ("The build", "make clean", "High risk", "Clean up", "terminal"):
        assert words in prompt.text
    pending(inbox, two)
    number = int(inbox.text("badge"))
    assert inbox.driver.title.startswith(f"({number}) ")

    waiting.decides({"action_id": one["id"], "decision": "approve"})
    inbox.gone(f"pending-{one['id']}")
    wait_until(lambda: int(inbox.text("badge")) == number - 1, "a badge of one less")
    assert pending(inbox, two).is_displayed()


def test_a_prompt_is_approved_and_another_is_rejected_with_a_reason(inbox, waits):
    one, two = action("make"), action("rm -r build")
    waiting = waits(one, two)

    press(inbox, one, "approve")
    assert outcome(inbox, one).startswith("Approved by you")
    press(inbox, two, "reject")
    inbox.find("reason").send_keys("Not <b>now</b>")
    steady(inbox, two)
    inbox.find("reject-now").click()

    assert outcome(inbox, two).startswith("Rejected by you")
    assert waiting.approved == [one["id"]]
    entries = [(entry["decision"], entry["reason"]) for entry in waiting.entries]
    assert entries == [("approve", ""), ("reject", "Not <b>now</b>")]


@pytest.mark.parametrize("own", ["HIGH", "LOW"])
def test_what_is_of_a_high_risk_by_its_agent_or_by_the_server_is_approved_by_a_second_press(inbox, waits, own):
    one = action("rm -rf /srv", security_risk=own)
    waiting = waits(one)
    shown = pending(inbox, one)
    assert inbox.find("seen", shown).text == "Deletes · Writes outside the folder"
    assert [said.text for said in inbox.all("agents-word")] == (["The agent says: low risk"] if own == "LOW" else [])

    press(inbox, one, "approve")
    wait_until(lambda: "press again" in inbox.find("approve", pending(inbox, one)).text, "the question")
    assert waiting.pending == [one["id"]]
    press(inbox, one, "approve")

    assert outcome(inbox, one).startswith("Approved by you")
    assert waiting.approved == [one["id"]]


def test_a_rejection_with_a_reason_lets_the_agent_go_on(inbox, waits):
    one = action("make")
    waiting = waits(one)

    press(inbox, one, "reject")
    inbox.find("reason").send_keys("Run the tests first")
    steady(inbox, one)
    inbox.press(Keys.ENTER)

    outcome(inbox, one)
    wait_until(lambda: waiting.status == "running", "the run")


def test_the_keyboard_alone_does_all(inbox, waits):
    one, two, three = action("make"), action("rm -r build"), action("make test")
    waiting = waits(one, two, three)
    row(inbox, three)
    shows(inbox, one)
    inbox.press("a")
    shows(inbox, two)
    assert outcome(inbox, one).startswith("Approved by you")
    inbox.press("s")
    shows(inbox, three)
    inbox.press("r")
    inbox.find("reason").send_keys("Later")
    steady(inbox, three)
    inbox.press(Keys.ENTER)
    shows(inbox, two)
    assert outcome(inbox, three).startswith("Rejected by you")
    inbox.press("k", "?")

    inbox.says("Approve the prompt")
    inbox.press(Keys.ESCAPE)
    assert [entry["action_ids"] for entry in waiting.entries] == [[one["id"]], [three["id"]]]
    assert waiting.pending == [two["id"]]


def test_no_press_hits_the_prompt_that_follows(inbox, waits):
    one, two = action("make"), action("make build")
    waiting = waits(one, two)
    row(inbox, two)
    button = inbox.find("approve", steady(inbox, one))

    number = inbox.driver.execute_async_script(PRESS_ON, button, f"pending-{two['id']}")

    assert number > 0
    inbox.says("Nothing was decided")
    assert waiting.pending == [two["id"]]
    assert [entry["action_ids"] for entry in waiting.entries] == [[one["id"]]]
    shows(inbox, two)
    inbox.press("a")
    outcome(inbox, two)


#: presses a button, and on what takes its place until 400 ms after that has come, by hand and by key; how often
PRESS_ON = """
const [button, next, done] = arguments;
const { left, top, width, height } = button.getBoundingClientRect();
let since = 0, number = 0;
const press = () => {
  since ||= document.querySelector(`[data-testid="${next}"]`) ? performance.now() : 0;
  if (since && performance.now() - since > 400) return done(number);
  number += since ? 1 : 0;
  document.elementFromPoint(left + width / 2, top + height / 2).click();
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "a", bubbles: true }));
  requestAnimationFrame(press);
};
press();
"""


def test_a_prompt_that_is_decided_elsewhere_keeps_its_place_under_the_pointer(inbox, waits):
    one, two = action("make"), action("rm -r build")
    waiting = waits(one, two)
    place = row(inbox, two).location

    rest_on(inbox, inbox.find("approve", steady(inbox, one)))
    waiting.decides({"action_id": one["id"], "decision": "reject", "reason": "No"})
    assert outcome(inbox, one).startswith("Rejected by anyone")
    click_here(inbox, times=2)

    inbox.press("a")
    inbox.says("It is decided already")
    assert waiting.pending == [two["id"]]
    assert row(inbox, two).location == place
    inbox.press("j")
    shows(inbox, two)
    inbox.gone(f"outcome-{one['id']}")


def test_a_prompt_that_has_just_moved_takes_no_press(inbox, waits):
    one = action("make")
    waiting = waits(one)

    button = inbox.find("approve", steady(inbox, one))
    inbox.script("document.querySelector('h1').style.marginTop = '90px'; arguments[0].click()", button)

    inbox.says("Nothing was decided")
    assert waiting.pending == [one["id"]]
    press(inbox, one, "approve")
    outcome(inbox, one)


def test_a_prompt_that_the_person_scrolls_to_takes_a_press_at_once(inbox, waits):
    one = action("make\n" * 50, thought=[{"type": "text", "text": "and so on\n" * 50}])
    waiting = waits(one)
    prompt = pending(inbox, one)
    inbox.script("arguments[0].querySelector('.thought button').click()", prompt)
    button = inbox.find("approve", steady(inbox, one))

    inbox.driver.execute_async_script(
        """
        const [button, done] = arguments;
        document.querySelector(".detail").scrollBy(0, 40);
        requestAnimationFrame(() => requestAnimationFrame(() => done(button.click())));
        """,
        button,
    )

    outcome(inbox, one)
    assert waiting.pending == []


def test_a_reason_of_two_lines_is_told_whole(inbox, waits):
    one = action("make")
    waiting = waits(one)

    press(inbox, one, "reject")
    inbox.find("reason").send_keys("Not now", Keys.SHIFT, Keys.ENTER, Keys.NULL, "Ask the others first")
    steady(inbox, one)
    inbox.press(Keys.ENTER)

    outcome(inbox, one)
    assert [entry["reason"] for entry in waiting.entries] == ["Not now\nAsk the others first"]


def test_a_key_that_is_held_down_decides_nothing(inbox, waits):
    one = action("make")
    waiting = waits(one)
    pending(inbox, one).click()
    steady(inbox, one)

    hold(inbox, "a")
    hold(inbox, "s")

    assert waiting.pending == [one["id"]]
    assert inbox.find("approve", pending(inbox, one)).is_displayed()


def test_several_are_decided_at_once_in_one_request_for_each_conversation(inbox, waits):
    actions = [action("make one"), action("make two"), action("make three")]
    first, second = waits(*actions[:2]), waits(actions[2])

    for one in actions:
        inbox.find("choose", row(inbox, one)).click()
    bar = inbox.find("several")
    assert "3 chosen" in bar.text
    inbox.find("reject-chosen").click()
    inbox.find("reason-for-all").send_keys("All wrong")
    wait_until(lambda: bar.find_elements("css selector", "form[data-steady]"), "a form that is still")
    inbox.find("reject-all").click()

    for one in actions:
        assert outcome(inbox, one).startswith("Rejected by you")
    assert [len(entry["action_ids"]) for entry in first.entries + second.entries] in ([2, 1], [1, 1, 1])
    assert {entry["reason"] for entry in first.entries + second.entries} == {"All wrong"}


#: holds what the page decides on its way to the server, until `release` is called
HOLD_DECISIONS = """
const send = window.fetch;
window.fetch = async (...sent) => {
  if (String(sent[0]).endsWith("/decisions")) await new Promise((release) => { window.release = release; });
  return send(...sent);
};
"""


def test_of_two_persons_who_decide_at_once_one_reads_that_the_other_was_faster(browsers, waits):
    one = action("make")
    waiting = waits(one)
    pair = [browsers(), browsers()]
    for browser in pair:
        browser.open("inbox")
        browser.find("inbox")
    buttons = [browser.find("approve", steady(browser, one)) for browser in pair]
    for browser, button in zip(pair, buttons, strict=True):
        browser.script(HOLD_DECISIONS)
        button.click()
        browser.wait(lambda browser=browser: browser.script("return Boolean(window.release)"), "a decision under way")

    with ThreadPoolExecutor(2) as hands:
        list(hands.map(lambda browser: browser.script("window.release()"), pair))

    winner, loser = sorted(pair, key=lambda browser: "by you" not in outcome(browser, one))
    assert len(waiting.entries) == 1
    assert outcome(winner, one).startswith("Approved by you")
    wait_until(lambda: "was faster: approved" in outcome(loser, one), "words that the other was faster")


def test_a_decision_shows_in_the_other_browser_at_once(browsers, waits):
    actions = [action(f"make {number}") for number in range(12)]
    waits(*actions)
    here, there = browsers(), browsers()
    for browser in (here, there):
        browser.open("inbox")
        row(browser, actions[-1])
    there.script(
        """
        window.ended = {};
        new MutationObserver(() => {
          for (const id of arguments[0]) {
            const isShown = document.querySelector(`[data-testid="line-${id}"]:not(.ended)`);
            if (!isShown) window.ended[id] ??= Date.now();
          }
        }).observe(document.body, {childList: true, subtree: true, attributes: true});
        """,
        [one["id"] for one in actions],
    )
    here.script(
        """
        window.answered = [];
        const send = window.fetch;
        window.fetch = async (...sent) => {
          const response = await send(...sent);
          if (String(sent[0]).endsWith("/decisions")) window.answered.push(Date.now());
          return response;
        };
        """
    )
    for one in actions:
        press(here, one, "approve")
        there.wait(lambda one=one: there.script("return arguments[0] in window.ended", one["id"]), "the end")

    ended = there.script("return window.ended")
    answered = here.script("return window.answered")
    assert len(answered) == len(actions) == len(ended)
    delays = sorted(ended[one["id"]] - at for one, at in zip(actions, answered, strict=True))
    print(f"\nfrom the response to the other browser: median {delays[len(delays) // 2]} ms, most {delays[-1]} ms")
