"""Approval rules in the console: made beside a decision or in their view, shown in words first, revoked."""

import pytest

from tests.conftest import action
from tests.console.prompts import pending, press
from tests.servers import wait_until

pytestmark = pytest.mark.browser("shows the console in a browser")


@pytest.fixture
def inbox(browser):
    browser.open("inbox")
    browser.find("inbox")
    return browser


def test_always_offers_the_answers_of_the_server_and_one_press_allows_what_is_like_it(inbox, waits, server):
    one, two, three = action("git status --short"), action("git status -v"), action("git push")
    waiting = waits(one)

    press(inbox, one, "always")
    assert inbox.find("answer-exactly").is_selected()
    assert "Allows git status with any words after it" in inbox.text("always-dialog")
    inbox.find("answer-like").click()
    still(inbox)
    inbox.find("allow-from-now-on").click()
    inbox.says("The rule is active")
    waiting.appends(two, three)

    assert pending(inbox, three).is_displayed()
    assert waiting.pending == [three["id"]]
    [rule] = server.get("/api/v1/approval-rules").json()
    assert (rule["arguments"], rule["uses"]) == ({"command": {"command": "git status *"}}, 1)
    server.delete(f"/api/v1/approval-rules/{rule['id']}").raise_for_status()


def test_an_answer_for_all_that_only_reads_allows_nothing_else(inbox, waits, server):
    one, two, three = action("git status --short"), action("ls | wc -l"), action("rm -r build")
    waiting = waits(one, workspace={"working_dir": "/home/ada/shop"})

    press(inbox, one, "always")
    inbox.find("answer-reads").click()
    assert "every command that only reads, inside the folder" in inbox.text("always-dialog")
    still(inbox)
    inbox.find("allow-from-now-on").click()
    inbox.says("The rule is active")
    waiting.appends(two, three)

    assert pending(inbox, three).is_displayed()
    assert waiting.pending == [three["id"]]
    [rule] = server.get("/api/v1/approval-rules").json()
    assert (rule["effects"], rule["uses"]) == (["reads"], 1)
    server.delete(f"/api/v1/approval-rules/{rule['id']}").raise_for_status()


def test_where_and_how_long_an_answer_holds_is_chosen_beside_it(inbox, waits, server):
    one = action("git status --short")
    waits(one, workspace={"working_dir": "/home/ada/shop"})

    press(inbox, one, "always")
    inbox.find("answer-like").click()
    assert "in every conversation in the folder /home/ada/shop" in inbox.text("always-dialog")
    assert inbox.find("answer-where").get_attribute("value") == "folder"
    select(inbox, "answer-where", "everywhere")
    assert "with any words after it, in every conversation." in inbox.text("always-dialog")
    select(inbox, "answer-where", "folder")
    select(inbox, "answer-until", "2")
    still(inbox)
    inbox.find("allow-from-now-on").click()
    inbox.says("The rule is active")

    [rule] = server.get("/api/v1/approval-rules").json()
    assert (rule["folder"], rule["conversation_ids"]) == ("/home/ada/shop", None)
    assert rule["expires_at"]
    inbox.go("rules")
    inbox.says("in every conversation in the folder /home/ada/shop", "rules")
    server.delete(f"/api/v1/approval-rules/{rule['id']}").raise_for_status()


def test_the_rule_of_a_person_is_shown_before_it_is_made_and_then_decides_the_next(inbox, waits, server):
    one, two, three = action("git status --short"), action("git status -v"), action("git push")
    waiting = waits(one)

    press(inbox, one, "always")
    open_conditions(inbox)
    select(inbox, "rule-where", "everywhere")
    select(inbox, "how-command", "command")
    inbox.find("pattern-command").clear()
    inbox.find("pattern-command").send_keys("git status *")
    select(inbox, "rule-hours", "24")
    inbox.find("rule-uses").send_keys("3")
    for words in ("command is a command like git status *", "in all conversations", "at most 3 times, until"):
        assert words in inbox.text("rule-preview")
    still(inbox)
    inbox.find("always-now").click()
    inbox.says("The rule is active")
    waiting.appends(two, three)

    assert pending(inbox, three).is_displayed()
    assert waiting.pending == [three["id"]]
    inbox.go("rules")
    inbox.says("git status *", "rules")
    inbox.says("Used once")
    inbox.find("revoke").click()
    inbox.find("yes").click()
    inbox.says("The rule is revoked")
    assert server.get("/api/v1/approval-rules").json() == []


def test_conditions_name_no_argument_at_its_default_and_compare_a_command_as_one(inbox, waits):
    one = action("", action={"kind": "X", "command": "ls -la", "is_input": False, "timeout": 0, "reset": None, "n": 1})
    waits(one)

    press(inbox, one, "always")
    open_conditions(inbox)

    shown = inbox.find("always-dialog").find_elements("css selector", "[data-testid^=how-]")
    assert {select.get_attribute("data-testid") for select in shown} >= {"how-command", "how-n"}
    assert not {select.get_attribute("data-testid") for select in shown} & {"how-is_input", "how-timeout", "how-reset"}
    assert inbox.find("how-command").get_attribute("value") == "command"


def open_conditions(inbox) -> None:
    """Open the form behind the ready answers."""
    inbox.find("more-conditions").click()
    inbox.find("rule-preview")


def still(inbox) -> None:
    """Wait until a press in the dialog counts."""
    wait_until(lambda: inbox.all("always-dialog")[0].find_elements("css selector", "[data-steady]"), "a still dialog")


def select(inbox, testid, value) -> None:
    inbox.find(testid).find_element("css selector", f'option[value="{value}"]').click()


def test_a_rule_is_made_in_the_view_of_the_rules(browser, server):
    browser.open("rules")
    browser.says("No rules")
    browser.find("new-rule").click()
    browser.find("rule-tool").send_keys("terminal")
    browser.find("rule-argument").send_keys("command")
    browser.find("rule-pattern").send_keys("ls *")
    browser.find("make-rule").click()

    browser.says("Approves terminal", "rules")
    [rule] = server.get("/api/v1/approval-rules").json()
    assert (rule["tool_name"], rule["arguments"]) == ("terminal", {"command": {"command": "ls *"}})
    browser.find("revoke").click()
    browser.find("yes").click()
    browser.says("No rules")


def test_a_rule_about_a_command_or_a_path_is_shown_in_words(browser, server):
    tests = {"command": {"command": "git status *"}, "path": {"path": "src/**"}}
    made = {"decision": "approve", "tool_name": "terminal", "arguments": tests}
    assert server.post("/api/v1/approval-rules", json=made).status_code == 201
    browser.open("rules")

    browser.says("command is a command like git status *", "rules")
    browser.says("path is a path like src/**", "rules")
    browser.find("revoke").click()
    browser.find("yes").click()
    browser.says("No rules")


def decided(server, waiting, **decisions):
    """Decide actions of a conversation: approve=[…], reject=[…]."""
    path = f"/api/v1/conversation/{waiting.id}/pending-actions/decisions"
    for decision, actions in decisions.items():
        body = {"decisions": [{"action_id": one["id"], "decision": decision} for one in actions]}
        server.post(path, json=body).raise_for_status()


def test_a_draft_is_tried_on_what_people_have_decided_and_shows_what_a_person_rejected(browser, waits, server):
    fetch, status, push = action("git fetch"), action("git status"), action("git push --force")
    decided(server, waits(fetch, status, push, title="Mend the build"), approve=[fetch, status], reject=[push])
    browser.open("rules")
    browser.find("new-rule").click()
    browser.find("rule-tool").send_keys("terminal")
    browser.find("rule-argument").send_keys("command")
    browser.find("rule-pattern").send_keys("git status *")
    browser.says("none of them was decided otherwise", "rehearsal")
    browser.find("rule-pattern").clear()
    browser.find("rule-pattern").send_keys("git *")
    browser.says("1 of them a person decided otherwise", "rehearsal")
    assert "git push --force" in browser.text("rehearsal")
    assert "rejected by" in browser.text("rehearsal")
    assert server.get("/api/v1/approval-rules").json() == []


def test_where_until_when_and_with_which_effects_a_rule_holds_is_chosen_and_tried(browser, waits, server):
    shop, bank = action("git status"), action("git status")
    decided(server, waits(shop, workspace={"working_dir": "/home/ada/shop"}), approve=[shop])
    decided(server, waits(bank, workspace={"working_dir": "/home/ada/bank"}), reject=[bank])
    browser.open("rules")
    browser.find("new-rule").click()
    browser.find("rule-tool").send_keys("terminal")
    browser.find("rule-argument").send_keys("command")
    browser.find("rule-pattern").send_keys("git status")
    browser.says("1 of them a person decided otherwise", "rehearsal")
    select(browser, "rule-scope", "folder")
    browser.says("Name the folder to try the rule", "rule-preview")
    browser.find("rule-place").send_keys("/home/ada/shop")
    browser.says("none of them was decided otherwise", "rehearsal")
    browser.find("rule-effects").find_element("tag name", "summary").click()
    browser.find("effect-reads").click()
    select(browser, "rule-hours", "at")
    browser.script(
        """
        const field = document.querySelector("[data-testid=rule-until]");
        field.value = "2031-01-31T12:00";
        field.dispatchEvent(new Event("input", { bubbles: true }));
        """
    )
    for words in ("in the folder /home/ada/shop", "with no other effect than reads", "until 31 Jan 2031"):
        browser.says(words, "rule-preview")
    browser.find("make-rule").click()

    browser.says("The rule is active")
    [rule] = server.get("/api/v1/approval-rules").json()
    assert (rule["folder"], rule["effects"], rule["expires_at"][:4]) == ("/home/ada/shop", ["reads"], "2031")
    server.delete(f"/api/v1/approval-rules/{rule['id']}").raise_for_status()


def test_a_fault_of_a_new_rule_stands_beside_the_field_that_has_it(browser, server):
    browser.open("rules")
    browser.find("new-rule").click()
    browser.find("rule-tool").send_keys("terminal")
    browser.find("rule-argument").send_keys("command")
    browser.find("rule-pattern").send_keys("git status")
    select(browser, "rule-scope", "repository")
    browser.find("rule-place").send_keys("shop")
    browser.find("make-rule").click()
    browser.says("Input should be HOST/OWNER/NAME", "fault-repository")
    select(browser, "rule-scope", "key")
    browser.gone("fault-repository")
    assert server.get("/api/v1/approval-rules").json() == []


def test_what_is_approved_again_and_again_is_proposed_and_one_press_makes_the_rule(browser, waits, server):
    logs = [action(f"git shortlog -{number}") for number in range(4)]
    decided(server, waits(*logs), approve=logs)
    browser.open("rules")
    browser.says("git shortlog -0", "proposals")
    cards = browser.driver.find_elements("css selector", "[data-testid=proposal]")
    [card] = [one for one in cards if "git shortlog" in one.text]
    assert "Approved 4 times and never rejected" in card.text
    card.find_element("css selector", "[data-testid=make-proposal]").click()
    browser.says("The rule is active")
    [rule] = server.get("/api/v1/approval-rules").json()
    assert rule["arguments"] == {"command": {"command": "git shortlog *"}}
    wait_until(lambda: "git shortlog -0" not in browser.driver.page_source, "the proposal to go")
    server.delete(f"/api/v1/approval-rules/{rule['id']}").raise_for_status()
