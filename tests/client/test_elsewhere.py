"""A question at a terminal that others answer, or that nobody here may answer."""

import io
import sys

import click
import httpx
import pytest
from agent_server_client import PendingAction
from agent_server_client.cli import decisions, questions
from agent_server_client.cli import elsewhere as elsewhere_module
from agent_server_client.cli.decisions import Approver
from agent_server_client.cli.elsewhere import DecidedElsewhere, Elsewhere
from agent_server_client.cli.program import CommandSession
from agent_server_client.cli.watching import watched
from rich.console import Console

from tests.client.responses import responding
from tests.client.test_questions import CONVERSATION, asked_destination, waiting_action
from tests.client.test_watching import WatchedServer, entry

ACTION = {"conversation_id": CONVERSATION, "action_id": "act"}
BY_ADA = {"decision": "reject", "actor": {"kind": "key", "name": "ada"}, "reason": "Not today."}


def ended(*events, keys=("act",)):
    """What a question about these keys is told after events of the inbox."""
    elsewhere = Elsewhere()
    elsewhere.ask(set(keys))
    for name, data in events:
        elsewhere.take(name, data)
    try:
        elsewhere.check(set(keys))
    except DecidedElsewhere as gone:
        return str(gone)
    return None


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([("decided", ACTION | BY_ADA)], "It was rejected by ada: Not today."),
        (
            [("decided", ACTION | BY_ADA | {"decision": "approve", "reason": ""})],
            "It was approved by ada.",
        ),
        (
            [("decided", ACTION | BY_ADA | {"actor": {"kind": "terminal", "name": "ada@laptop"}, "reason": ""})],
            "It was rejected by ada@laptop, at the terminal.",
        ),
        (
            [("decided", ACTION | BY_ADA | {"decision": "withdrawn"})],
            "Its agent asks no more: it has ended, or was stopped.",
        ),
        ([("expired", ACTION | BY_ADA)], "Its time is over: the server has rejected it."),
        ([("closed", ACTION)], "It no longer waits, and nobody has decided it: the agent was stopped or deleted."),
        ([("reset", {}), ("ready", {})], "It no longer waits: somebody has decided it, or its agent was stopped."),
        ([("reset", {}), ("snapshot", {"items": [ACTION]}), ("ready", {})], None),
        ([("decided", ACTION | BY_ADA | {"action_id": "another"})], None),
        ([("decided", ACTION | BY_ADA), ("opened", ACTION)], None),
    ],
)
def test_a_question_is_left_with_who_decided_it(events, told):
    assert ended(*events) == told


def test_a_destination_is_told_apart_by_its_sandbox():
    decided = asked_destination() | BY_ADA
    assert ended(("destination_decided", decided), keys=["box pypi.org:443"]) == "It was rejected by ada: Not today."
    assert ended(("destination_decided", decided), keys=["other pypi.org:443"]) is None


class AtTerminal:
    """An approver at a terminal, at a server that gives some responses. typed: lines before nobody types any more."""

    def __init__(
        self, monkeypatch, *responses, is_terminal=True, stream=(), typed=(), edits=None, action=None, **options
    ):
        monkeypatch.setattr(sys.stdin, "isatty", lambda: is_terminal, raising=False)
        self.session = CommandSession()
        self.session.err = Console(record=True, force_terminal=True, width=300, file=io.StringIO())
        client, self.requests = responding(*responses)

        lines = iter(typed)

        def typed_line(check):
            if line := next(lines, None):
                return line
            for name, data in stream:
                approver._elsewhere.take(name, data)
            check()
            pytest.fail("the question stays open")

        monkeypatch.setattr(elsewhere_module, "typed_line", typed_line)
        monkeypatch.setattr(questions, "drop_typed", lambda: None)
        monkeypatch.setattr(decisions.Elsewhere, "follow", lambda *_: None)
        monkeypatch.setattr(self.session, "client", lambda **_: client)
        self.hear = lambda name, data: approver._elsewhere.take(name, data)
        monkeypatch.setattr(click, "edit", lambda text, **_: edits(self, text))
        self.approver = approver = Approver(self.session, None, follows=True, **options)
        self.outcome = approver.decide(PendingAction(client, waiting_action(**(action or {}))))
        self.shown = self.session.err.export_text()


def user(*scopes):
    return httpx.Response(200, json={"scopes": list(scopes)})


def test_an_open_question_says_who_was_faster_and_ends(monkeypatch):
    decided = ACTION | BY_ADA | {"action_id": "9c0d1e2f-act"}
    asked = AtTerminal(monkeypatch, user("read", "write", "approve"), stream=[("decided", decided)])
    assert asked.outcome == "gone"
    assert "[l]eave [?]" in asked.shown
    assert "It was rejected by ada: Not today." in asked.shown


@pytest.mark.parametrize("brings", [None, "git log"], ids=["unchanged", "changed"])
def test_what_others_decide_while_an_editor_is_open_is_told_and_no_edit_is_sent(monkeypatch, brings):
    def edits(asked, text):
        asked.hear("decided", ACTION | BY_ADA | {"action_id": "9c0d1e2f-act"})
        asked.session.say("The server has not answered for 4 s")
        assert "has not answered" not in asked.session.err.export_text(clear=False)
        return brings

    asked = AtTerminal(monkeypatch, user("read", "write", "approve"), typed=["e"], edits=edits)

    assert asked.outcome == "gone"
    assert "It was rejected by ada: Not today. Your edit was not sent." in asked.shown
    assert "The server has not answered for 4 s" in asked.shown
    assert len(asked.requests) == 1  # that for the scopes


def test_a_key_that_may_not_approve_is_told_so_and_not_asked(monkeypatch):
    asked = AtTerminal(monkeypatch, user("read", "write"))
    assert asked.outcome == "left"
    assert "[a]pprove" not in asked.shown
    assert "Your key may not decide this: it lacks the scope `approve`" in asked.shown
    assert f"http://server/console/#/conversations/{CONVERSATION}" in asked.shown


def test_without_a_terminal_a_wait_for_a_decision_has_an_end_and_names_the_ways_to_decide(monkeypatch):
    asked = AtTerminal(monkeypatch, is_terminal=False)
    assert f"agentctl approve 9c0d1e2f-act --digest {'d' * 64}" in asked.shown
    assert f"http://server/console/#/conversations/{CONVERSATION}" in asked.shown
    assert "Waiting up to 1 h 0 min for it; --wait SECONDS changes that" in asked.shown
    assert 3590 < asked.approver.left <= 3600
    asked.approver.goes_on()
    assert asked.approver.left > 3600


@pytest.mark.parametrize(
    ("effects", "is_told"),
    [(["reads"], True), (["writes_inside", "reads"], False), (["reads_outside"], False), ([], False)],
)
def test_what_only_reads_is_left_with_the_mode_in_which_it_passes(monkeypatch, effects, is_told):
    seen = {"risk": "LOW", "effects": [{"effect": one, "risk": "LOW", "words": one, "because": ""} for one in effects]}
    asked = AtTerminal(monkeypatch, is_terminal=False, action={"seen": seen, "risk": "LOW"})
    assert (f"passes unasked after: agentctl mode {CONVERSATION[:8]} outside" in asked.shown) == is_told


def test_a_log_is_followed_no_longer_than_a_decision_is_waited_for():
    server = WatchedServer()
    left = iter([60.0, 0.0])
    followed = watched(server, server.followed, [entry(1)], 0, left=lambda: next(left))
    assert next(followed).seq == 1
    with pytest.raises(TimeoutError):
        next(followed)
