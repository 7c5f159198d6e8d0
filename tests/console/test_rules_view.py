"""Approval rules in the console: made beside a decision or in their view, shown in words first, revoked."""

import pytest

from tests.conftest import action
from tests.console.prompts import pending, press, steady

pytestmark = pytest.mark.browser("shows the console in a browser")


@pytest.fixture
def inbox(browser):
    browser.open("inbox")
    browser.find("inbox")
    return browser


def test_always_shows_its_rule_before_it_is_made_and_then_decides_the_next(inbox, waits, server):
    one, two, three = action("git status --short"), action("git status -v"), action("git push")
    waiting = waits(one)

    press(inbox, one, "always")
    assert "command is exactly git status --short" in inbox.text("rule-preview")
    select(inbox, "rule-where", "all")
    select(inbox, "how-command", "pattern")
    inbox.find("pattern-command").clear()
    inbox.find("pattern-command").send_keys("git status*")
    select(inbox, "rule-hours", "24")
    inbox.find("rule-uses").send_keys("3")
    for words in ("command fits git status*", "in all conversations", "at most 3 times, until"):
        assert words in inbox.text("rule-preview")
    steady(inbox, one)
    inbox.find("always-now").click()
    inbox.says("The rule holds from now on")
    waiting.appends(two, three)

    assert pending(inbox, three).is_displayed()
    assert waiting.pending == [three["id"]]
    inbox.go("rules")
    inbox.says("git status*", "rules")
    inbox.says("Used once")
    inbox.find("revoke").click()
    inbox.find("yes").click()
    inbox.says("The rule is revoked")
    assert server.get("/api/v1/approval-rules").json() == []


def select(inbox, testid, value) -> None:
    inbox.find(testid).find_element("css selector", f'option[value="{value}"]').click()


def test_a_rule_is_made_in_the_view_of_the_rules(browser, server):
    browser.open("rules")
    browser.says("No rules")
    browser.find("new-rule").click()
    browser.find("rule-tool").send_keys("terminal")
    browser.find("rule-argument").send_keys("command")
    browser.find("rule-pattern").send_keys("ls*")
    browser.find("make-rule").click()

    browser.says("Approves terminal", "rules")
    [rule] = server.get("/api/v1/approval-rules").json()
    assert (rule["tool_name"], rule["arguments"]) == ("terminal", {"command": {"pattern": "ls*"}})
    browser.find("revoke").click()
    browser.find("yes").click()
    browser.says("No rules")


def test_a_rule_about_a_command_or_a_path_is_shown_in_words(browser, server):
    tests = {"command": {"command": "git status *"}, "path": {"path": "src/**"}}
    made = {"decision": "approve", "tool_name": "terminal", "arguments": tests}
    assert server.post("/api/v1/approval-rules", json=made).status_code == 201
    browser.open("rules")

    browser.says("command runs git status *", "rules")
    browser.says("path is a path like src/**", "rules")
    browser.find("revoke").click()
    browser.find("yes").click()
    browser.says("No rules")
