"""One prompt: the whole of what will run, strictly visible, and each way to decide it."""

import json
from pathlib import Path

import pytest

from core.visible import is_seen
from tests.conftest import action, event
from tests.console.prompts import pending, press, rest_on, row, shows, steady
from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")

AXE = (Path(__file__).parent / "axe-core" / "axe.min.js").read_text()

SCRIPT = '<img src=x onerror="window.ran=1"><script>window.ran=1</script><b>bold</b> {{7*7}} ${7*7}'
TRICKS = "\x1b[2J\x1b]8;;http://evil\x07 a\u202eb\u2066c \u200b\ufeff\x00 \u0a00" + "\u0301" * 300

CAPABILITIES = {"key": "capabilities", "value": ["edit"]}


@pytest.fixture
def inbox(browser):
    browser.open("inbox")
    browser.find("inbox")
    return browser


def edit(**members) -> dict:
    """An action that changes a file."""
    return action(tool_name="file_editor", action={"kind": "FileEditorAction", **members})


def shown(inbox, one) -> str:
    """What a prompt shows of what will run."""
    return pending(inbox, one).find_element("class name", "arguments").text


def test_a_command_is_shown_whole_and_with_its_other_arguments(inbox, waits):
    one = action(
        action={"kind": "TerminalAction", "command": "make\ttest", "timeout": 12345678901234567890, "is_input": False}
    )
    waits(one)

    text = shown(inbox, one)
    assert "make\\u{9}test" in text
    assert '"timeout": 12345678901234567890' in text
    assert "1 more" in text
    assert "is_input" not in text


def test_a_silent_argument_of_an_unknown_tool_is_shown_as_it_may_mean_something(inbox, waits):
    one = action(tool_name="deploy", action={"kind": "DeployAction", "dry_run": False, "region": None})
    waits(one)

    text = shown(inbox, one)
    assert '"dry_run": false' in text
    assert '"region": null' in text


def test_a_prompt_says_first_that_less_is_shown_than_will_run_and_offers_no_rule(inbox, waits):
    data = {"kind": "execute", "title": "touch proof", "_incomplete": "The agent shows words."}
    part = action(tool_name="execute", action={"kind": "MCPToolAction", "data": data})
    whole = action(tool_name="execute", action={"kind": "MCPToolAction", "data": {"command": "make", "cwd": "/w"}})
    waits(part, whole)

    assert shown(inbox, part).startswith("What is shown is less than what will run.")
    assert not pending(inbox, part).find_elements("css selector", '[data-testid="always"]')
    assert "Shown in part" in row(inbox, part).get_property("textContent")
    assert shown(inbox, whole).startswith("make")
    assert pending(inbox, whole).find_elements("css selector", '[data-testid="always"]')


def test_a_change_of_a_file_is_shown_as_a_diff_and_a_new_file_whole(inbox, waits):
    change = edit(
        command="str_replace", path="/work/a.py", old_str="one\ntwo\nthree\n", new_str="one\n2\nthree\nfour\n"
    )
    insert = edit(command="insert", path="/work/a.py", insert_line=3, new_str="five")
    whole = edit(command="create", path="/work/b.py", file_text="print('<b>')\nexit()")
    other = action(tool_name="Edit", action={"kind": "X", "file_path": "/c", "old_string": "x", "new_string": "y"})
    waits(change, insert, whole, other)

    text = shown(inbox, change)
    assert "Change the file /work/a.py" in text
    spans = pending(inbox, change).find_elements("css selector", ".diff > span")
    assert "\n".join(span.get_property("textContent") for span in spans) == "  one\n- two\n+ 2\n  three\n+ four"
    assert "+ five" in shown(inbox, insert)
    assert '"insert_line": 3' in shown(inbox, insert)
    assert "Write the file /work/b.py\nprint('<b>')\nexit()" in shown(inbox, whole)
    assert "- x\n+ y" in shown(inbox, other)


def test_a_large_change_of_a_file_is_all_that_goes_and_all_that_comes(inbox, waits):
    before, after = ("\n".join(f"{word} {number}" for number in range(700)) for word in ("old", "new"))
    one = edit(command="str_replace", path="/work/a.py", old_str=before, new_str=after)
    waits(one)

    spans = pending(inbox, one).find_elements("css selector", ".diff > span")
    assert [span.get_attribute("class") for span in spans] == ["removed", "added"]
    assert "It goes on below: 1,400 lines" in pending(inbox, one).text


def test_a_long_text_says_how_much_of_it_is_folded(inbox, waits):
    one = action("x" * 1_000_000 + "; rm -r /")
    waits(one)

    prompt = pending(inbox, one)
    assert "980,009 of 1,000,009 characters are folded" in inbox.find("not-all", prompt).text
    inbox.find("not-all", prompt).find_element("tag name", "button").click()
    inbox.says("780,009 of 1,000,009 characters are folded")


@pytest.mark.parametrize("width", [1400, 380])
def test_hostile_texts_are_shown_and_never_run_or_break_the_page(browsers, waits, width):
    hostile = SCRIPT + TRICKS
    thought = [{"type": "text", "text": hostile + "y" * 100_000}]
    actions = [
        action(hostile, summary=hostile, thought=thought),
        edit(command="create", path=SCRIPT, file_text=hostile + "z" * 1_000_000),
        action(tool_name="tool" + "w" * 60, action={"kind": "X", SCRIPT: hostile, "list": [[hostile]] * 50}),
    ]
    waits(*actions, title=(SCRIPT + "\u202etitle" + "m" * 200)[:200])
    inbox = browsers(width=width)
    inbox.open("inbox")

    for one in actions:
        text = pending(inbox, one).text
        assert '<img src=x onerror="window.ran=1">' in text
        assert "\\u{202e}" in text
    for name in ("\\u{1b}[2J", "\\u{200b}\\u{feff}\\u{0}", "a\\u{202e}b\\u{2066}c"):
        assert name in shown(inbox, actions[0])
    assert inbox.script("return window.ran") is None
    assert inbox.script("return document.documentElement.scrollWidth <= innerWidth")
    assert inbox.script("return [...document.querySelectorAll('main *')].every((one) => one.tagName !== 'IMG')")
    assert inbox.errors() == []


def test_the_page_escapes_the_characters_that_the_server_escapes(inbox):
    seen = inbox.driver.execute_async_script(
        """
        const done = arguments[0], address = document.querySelector("script[type=module]").src;
        import(new URL("lib/visible.js", address)).then(({visible}) => {
          const seen = [];
          for (let point = 0; point < 0x110000; point++) {
            const character = String.fromCodePoint(point);
            if (visible(character) === character) seen.push(point);
            else if (visible(character) !== `\\\\u{${point.toString(16)}}`) return done(`wrong: ${point}`);
          }
          done(seen);
        });
        """
    )

    # a browser may know characters that this Python does not: the server escapes those
    assert {point for point in range(0x110000) if is_seen(chr(point))} <= set(seen)
    assert not {point for point in seen if not is_seen(chr(point)) and chr(point).isprintable()}


def test_an_edit_is_approved_in_place_of_the_command(inbox, waits):
    one = action("rm -r /")
    waiting = waits(event("ConversationStateUpdateEvent", "environment", **CAPABILITIES), one)

    press(inbox, one, "edit")
    field = inbox.find("edited")
    assert field.get_property("value") == "rm -r /"
    field.clear()
    field.send_keys("rm -r build")
    steady(inbox, one)
    inbox.find("approve-edited").click()

    inbox.says("Approved with changes by you")
    [taken] = waiting.server.get(waiting.decisions).json()
    assert taken["arguments"] == {"command": "rm -r build"}


def test_an_edit_that_is_no_json_is_told_and_cannot_be_sent(inbox, waits):
    one = action(tool_name="browse", action={"kind": "X", "url": "https://example.org", "depth": 2})
    waits(event("ConversationStateUpdateEvent", "environment", **CAPABILITIES), one)

    press(inbox, one, "edit")
    assert json.loads(inbox.find("edited").get_property("value")) == {"url": "https://example.org", "depth": 2}
    inbox.find("edited").send_keys("}")

    inbox.says("This is not JSON of the arguments")
    assert not inbox.all("approve-edited")


def test_not_now_goes_to_the_end_and_still_counts(inbox, waits):
    one, two = action("make"), action("make test")
    waiting = waits(one, two)

    def is_later() -> bool:
        return row(inbox, one).location["y"] > row(inbox, two).location["y"]

    assert not is_later()
    press(inbox, one, "skip")
    wait_until(is_later, "the later place")
    shows(inbox, two)
    inbox.driver.refresh()

    wait_until(is_later, "the later place")
    assert int(inbox.text("badge")) >= 2
    assert len(waiting.pending) == 2


def test_the_address_of_a_waiting_action_leads_to_its_prompt(browser, waits):
    actions = [action(f"make {number}") for number in range(4)]
    waiting = waits(*actions)
    browser.open(f"conversations/{waiting.id}?event={actions[2]['id']}")
    prompt = pending(browser, actions[2])
    browser.wait(lambda: browser.script("return document.activeElement === arguments[0]", prompt), "the focus")
    top, bottom = browser.script(
        "const box = arguments[0].getBoundingClientRect(); return [box.top, box.bottom]", prompt
    )
    assert 0 <= top < bottom <= browser.script("return innerHeight")


def test_a_rejection_that_goes_on_is_not_offered_while_a_run_would_approve_another_action(inbox, waits):
    one, two = action("make"), action("rm -r /")
    waiting = waits(one, two)

    press(inbox, one, "reject")
    inbox.find("reason", pending(inbox, one))
    assert not inbox.all("reject-and-continue")
    steady(inbox, one)
    inbox.find("reject-now").click()
    inbox.says("Rejected by you")
    assert len(waiting.pending) == 1

    press(inbox, two, "reject")  # the last one: a run approves nothing
    inbox.find("reject-and-continue")


def test_a_reason_that_was_typed_stays_when_the_network_fails(inbox, waits):
    one = action("make")
    waiting = waits(one)

    press(inbox, one, "reject")
    inbox.find("reason").send_keys("Because")
    inbox.offline()
    steady(inbox, one)
    inbox.find("reject-now").click()
    inbox.says("The server does not respond", "problem")
    assert inbox.find("reason").get_property("value") == "Because"
    inbox.offline(False)
    steady(inbox, one)
    inbox.find("reject-now").click()

    inbox.says("Rejected by you")
    assert waiting.entries[0]["reason"] == "Because"


def test_a_deadline_counts_down_and_its_end_is_told(inbox, waits):
    one, two = action("make"), action("make test")
    waits(one, confirmation_seconds=3030)
    waits(two, confirmation_seconds=6)

    rest_on(inbox, row(inbox, two))
    assert "Rejected in 50 min" in pending(inbox, one).text
    inbox.says("Rejected: it expired", f"outcome-{two['id']}")


def test_many_prompts_of_a_conversation_are_drawn_in_parts(browser, waits):
    waiting = waits(*(action(f"make {number}") for number in range(100)))
    browser.open(f"conversations/{waiting.id}")

    browser.says("(70 wait below)")
    assert len(browser.all("pending-*")) == 30
    browser.find("show-more").click()
    wait_until(lambda: len(browser.all("pending-*")) == 60, "60 prompts")
    assert len(waiting.pending) == 100


def test_a_prompt_has_no_violation_of_accessibility(browsers, waits):
    one, two = (
        action("make", security_risk="HIGH", summary="Make it"),
        edit(command="create", path="/a", file_text="b\n" * 999),
    )
    change = edit(command="str_replace", path="/a", old_str="b\nc", new_str="b\nd")
    waits(event("ConversationStateUpdateEvent", "environment", **CAPABILITIES), one, two, change)
    for dark in (False, True):
        inbox = browsers(dark=dark)
        inbox.open("inbox")
        assert violations(inbox, steady(inbox, change)) == []
        for button in ("reject", "edit", "always"):
            press(inbox, one, button)
            assert violations(inbox, steady(inbox, one)) == []
            inbox.press("\ue00c")
        inbox.go("rules")
        inbox.find("new-rule").click()
        assert violations(inbox, inbox.find("rules")) == []


def violations(browser, _shown) -> list[str]:
    browser.script(AXE)
    return browser.driver.execute_async_script(
        "axe.run().then(({violations}) => arguments[0](violations.map((one) => one.id + one.nodes[0].html)))"
    )
