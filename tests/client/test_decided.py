"""A log shows who decided each action, how and when, beside the action."""

import io

import pytest
from agent_server_client.cli.audit import what
from agent_server_client.cli.decided import decision_words, whole_log
from agent_server_client.cli.shown import print_entry, print_talk
from agent_server_client.errors import AgentServerError
from agent_server_client.wire import Entry
from rich.console import Console
from rich.text import Text

from tests.conftest import action, event, message


def decision(verb="approve", *, kind="key", name="ada", reason="", **members):
    return {
        "action_ids": ["a1"],
        "actor": {"kind": kind, "name": name},
        "decision": verb,
        "reason": reason,
        "seq": 3,
        "time": "2026-11-28T16:00:00.000000Z",
        **members,
    }


class DecidedLog:
    """A conversation with a log, and the decisions that its server tells."""

    def __init__(self, decisions, number=1):
        self._decisions, self.asked = decisions, []
        self._entries = [Entry(seq, action("ls", id=f"a{seq}")) for seq in range(1, number + 1)]
        self._entries.append(Entry(number + 1, message("done", "agent")))

    def log(self, after):
        return iter([one for one in self._entries if one.seq > after])

    def events(self, after):
        self.asked.append(after)
        yield Entry(after + 1, message("later", "agent"))

    def decisions(self, ids):
        if self._decisions is None:
            raise AgentServerError(404, "no such page")
        self.asked.append(len(ids))
        return {one: self._decisions[one] for one in ids if one in self._decisions}


def kinds(entries):
    return [(one.seq, one.event["kind"]) for one in entries]


def test_a_decision_follows_its_action_and_the_log_goes_on_after_it():
    log = DecidedLog({"a1": decision()})
    assert kinds(whole_log(log, 0, follows=False)) == [(1, "ActionEvent"), (None, "DecisionEvent"), (2, "MessageEvent")]
    assert kinds(whole_log(log, 1, follows=True)) == [(2, "MessageEvent"), (3, "MessageEvent")]


def test_who_changed_the_mode_follows_the_event_of_the_change():
    log = DecidedLog({"m1": decision("mode_changed")})
    change = event("ConversationStateUpdateEvent", "environment", id="m1", key="approval_mode", value={"mode": "risky"})
    log._entries[0] = Entry(1, change)
    assert kinds(whole_log(log, 0, follows=False))[:2] == [(1, change["kind"]), (None, "DecisionEvent")]


def test_the_decisions_of_a_long_log_are_asked_for_a_hundred_entries_at_a_time():
    log = DecidedLog({}, number=250)
    assert len(list(whole_log(log, 0, follows=False))) == 251
    assert log.asked == [100, 100, 50]


def test_a_server_that_tells_no_decisions_has_a_log_all_the_same():
    assert kinds(whole_log(DecidedLog(None), 0, follows=False)) == [(1, "ActionEvent"), (2, "MessageEvent")]


EDIT = {"edited_shown": [{"tool_name": "terminal", "text": "rm -r build/old", "summary": None}]}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (decision(), "approved  by ada"),
        (decision(reason="It is safe."), "approved  by ada: It is safe."),
        (decision("reject", reason="It is needed."), "rejected  by ada"),
        (decision("edit", **EDIT), "edited    by ada: to rm -r build/old"),
        (decision(kind="rule", name="1f2e"), "approved  by rule 1f2e"),
        (decision("reject", kind="expiry", name=""), "rejected  by its deadline"),
        (decision("unapproved", kind="agent", name="", reason="It went on."), "unasked   by the agent: It went on."),
        (decision("mode_changed", reason="“Ask nothing”."), "mode set  by ada: “Ask nothing”."),
        (decision(name="a\u202eb\nc"), "approved  by a\\u{202e}b\\u{a}c"),
    ],
)
def test_a_decision_is_one_line_of_a_log(told, words):
    [_, entry, _] = whole_log(DecidedLog({"a1": told}), 0, follows=False)
    shown = io.StringIO()
    print_entry(Console(file=shown, width=100), entry)
    assert shown.getvalue().rstrip().endswith(words)


def test_a_decision_is_a_line_of_a_talk():
    [_, entry, _] = whole_log(DecidedLog({"a1": decision("edit", **EDIT)}), 0, follows=False)
    shown = io.StringIO()
    print_talk(Console(file=shown, width=100), entry, "agentctl logs")
    assert shown.getvalue().rstrip() == "edited by ada: to rm -r build/old"


def test_the_audit_says_what_an_edit_made_of_an_action():
    entry = {"shown": [{"text": "rm -r build"}], "action_ids": ["a1"], "reason": ""}
    assert what({**entry, **EDIT}) == "rm -r build → rm -r build/old"
    assert what(entry) == "rm -r build"


def test_what_ran_unasked_in_a_terminal_is_told_without_anybody_who_decided_it():
    ran = decision("unapproved", kind="terminal", name="ada@laptop", reason="It ran, and nobody had been asked.")
    assert decision_words(ran)[::2] == ("unasked", Text("It ran, and nobody had been asked."))
    allowed = decision(kind="terminal", name="ada@laptop")
    assert decision_words(allowed)[2].plain == "by ada@laptop, at the terminal"
