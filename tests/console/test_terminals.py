"""Agents outside of sandboxes in the console: whose agent asks, where else it is asked, and who answered there."""

from typing import Any
from uuid import uuid4

import pytest

from tests.approvals import DecidedConversation
from tests.console.prompts import known, outcome, pending, press
from tests.console.terminals import asks, ends
from tests.servers import supervised_server

pytestmark = pytest.mark.browser("shows the console in a browser")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server on which nothing waits but what these tests make."""
    with supervised_server(tmp_path_factory.mktemp("terminals")) as (client, _):
        DecidedConversation(client, str(uuid4()))  # without one the inbox is the first page
        yield client


@pytest.fixture
def inbox(browser):
    browser.open("inbox")
    known(browser)
    return browser


def named(request: dict[str, Any]) -> dict[str, str]:
    """A request as the tests of prompts name an action."""
    return {"id": request["action_id"]}


def test_a_request_says_whose_agent_asks_and_leaves_at_once_with_who_answered_at_the_terminal(inbox, server):
    one = asks(server, "touch proof", order="races", session=str(uuid4()))

    prompt = pending(inbox, named(one))
    for words in ("claude-code", "ada@laptop", "/home/ada/shop", "touch proof", "Also asked at its terminal"):
        assert words in prompt.text
    assert inbox.violations() == []

    ends(server, one, "allowed")
    assert outcome(inbox, named(one)).startswith("Approved by ada@laptop, at the terminal")


def test_what_only_the_terminal_can_answer_has_no_button_that_decides_it(inbox, server):
    one = asks(server, "touch proof", order="first", expires_in=1, session=str(uuid4()))

    inbox.says("Asked in the terminal", f"pending-{one['action_id']}")
    prompt = pending(inbox, named(one))
    assert "It is asked in the terminal of ada@laptop now: answer it there." in prompt.text
    for name in ("approve", "reject", "edit", "always"):
        assert not inbox.all(name, prompt)
    assert not inbox.all("badge")  # it counts what a person can decide here
    ends(server, one, "withdrawn")


def test_the_inbox_is_filtered_by_the_machine(inbox, server):
    here = asks(server, "ls", session=str(uuid4()))
    there = asks(server, "rm -r build", session=str(uuid4()), host="build-1")
    for one in (here, there):
        inbox.find(f"line-{one['action_id']}")

    inbox.script("document.querySelector('.filters details').open = true")
    inbox.find("filter-machine").find_element("css selector", 'option[value="build-1"]').click()

    inbox.gone(f"line-{here['action_id']}")
    assert "build-1" in inbox.text(f"line-{there['action_id']}")
    for one in (here, there):
        ends(server, one, "withdrawn")


def test_a_conversation_of_a_terminal_says_where_it_is_answered_and_has_no_sandbox(browser, server):
    one = asks(server, "make", session=str(uuid4()))
    browser.open(f"conversations/{one['conversation_id']}")

    assert browser.text("asker").split() == ["claude-code", "ada@laptop", "/home/ada/shop"]
    assert "runs in a terminal of ada@laptop" in browser.text("elsewhere")
    browser.opens("details")
    assert "2.1.332" in browser.text("terminal-of")
    assert browser.violations() == []
    for name in ("composer", "changes", "files", "terminal-button", "preview-button", "fork"):
        assert not browser.all(name), name
    press(browser, named(one), "approve")
    browser.says("Not seen to run", f"event-{one['action_id']}")

    ends(server, one, "ran")
    browser.gone("not-seen")
