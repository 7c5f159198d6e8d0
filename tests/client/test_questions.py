"""The prompt for what waits: its letters, its help, what is sent, and what a person is told."""

import io
import json
import re
from datetime import UTC, datetime, timedelta
from itertools import chain

import click
import httpx
import pytest
from agent_server_client import AgentServerError, Destination, PendingAction
from agent_server_client.cli import program
from agent_server_client.cli.decisions import Approver
from agent_server_client.cli.program import CommandSession
from agent_server_client.cli.shown import card
from rich.console import Console

from tests.client.responses import responding

CONVERSATION = "5f1c8a52-0000-4000-8000-000000000001"


def waiting_action(command="git status", **members):
    arguments = {"command": command, "is_input": False, "reset": False, "timeout": None}
    return {
        **{"conversation_id": CONVERSATION, "conversation_title": "A deploy", "tags": {}},
        **{"action_id": "9c0d1e2f-act", "tool_name": "terminal", "summary": None, "thought": ""},
        **{"security_risk": "LOW", "arguments": arguments, "since": "2026-11-28T00:00:00Z", "expires_at": None},
        **{"digest": "d" * 64, "sandbox_id": "box", "can": ["approve", "reject", "edit"], "decided_together": False},
        **{"complete": True, **members},
    }


def asked_destination(**members):
    return {
        **{"subject": "destination", "sandbox_id": "box", "conversation_id": CONVERSATION},
        **{"name": "pypi.org", "port": 443, "program": "pip", "tries": 1, "since": "2026-11-28T00:00:00Z"},
        **{"tried_at": "2026-11-28T00:00:00Z", "expires_at": None, "digest": "e" * 64, "budget": None, **members},
    }


def asked_budget():
    budget = {"setting": "MODEL_BUDGET_CONVERSATION", "key_id": None, "day": None, "dollars": 5.0, "tokens": None}
    return asked_destination(subject="budget", name=None, port=None, program=None, budget=budget)


TITLES = httpx.Response(200, json=[{"title": "A deploy"}])
DECIDED = httpx.Response(200, json={"success": True, "rules": []})


class AskedInTest:
    """What an approver did with something that waits, when a person typed some lines."""

    def __init__(self, item, *typed, responses=(DECIDED,), mode="ask", retry_seconds=120.0, **options):
        self.session = CommandSession()
        self.session.err = Console(
            record=True, force_terminal=True, width=80, markup=False, emoji=False, highlight=False, quiet=False
        )
        client, self.requests = responding(*responses, retry_seconds=retry_seconds)
        is_action = "action_id" in item
        waiting = PendingAction(client, item) if is_action else Destination(client, item)
        lines = chain(typed, [EOFError()])

        def read():
            line = next(lines)
            if isinstance(line, BaseException):
                raise line
            return line

        self.left_by = None
        try:
            self.outcome = Approver(self.session, mode, read, **options).decide(waiting)
        except click.exceptions.Exit as left:
            self.left_by = left.exit_code
        self.shown = self.session.err.export_text()

    @property
    def sent(self):
        """The body of the last request."""
        return json.loads(self.requests[-1].content)


@pytest.mark.parametrize("typed", ["a", "y", "Y", "yes", "approve", " a "])
def test_a_prompt_shows_its_letters_and_says_what_was_approved_where_there_is_no_summary(typed):
    asked = AskedInTest(waiting_action(), typed)

    assert "[a]pprove [r]eject [e]dit [A]lways [l]eave [?] then Enter:" in asked.shown
    assert "Approved: terminal  git status" in asked.shown
    assert asked.outcome == "approved"
    [decision] = asked.sent["decisions"]
    assert decision == {"action_id": "9c0d1e2f-act", "decision": "approve", "digest": "d" * 64}


@pytest.mark.parametrize("typed", ["?", "help", "h", "", "what"])
def test_help_says_what_each_letter_does_and_decides_nothing(typed):
    asked = AskedInTest(waiting_action(), typed, "l")

    assert "Reject: the agent does not, and reads your reason" in asked.shown
    assert asked.outcome == "left"
    assert not asked.requests
    assert "agentctl approve 9c0d1e2f-act, or agentctl reject" in asked.shown


def test_a_rejection_has_the_reason_that_was_typed():
    asked = AskedInTest(waiting_action(), "n", "Not on a Friday.")

    assert asked.outcome == "rejected"
    assert asked.sent["decisions"][0]["reason"] == "Not on a Friday."
    assert "Rejected: terminal  git status" in asked.shown


def test_no_rule_is_offered_for_an_action_that_shows_less_than_will_run():
    asked = AskedInTest(waiting_action(complete=False), "A", "a")

    assert "What is shown is less than what will run" in asked.shown.partition("[a]pprove")[0]
    assert "[A]lways" not in asked.shown
    assert asked.sent["decisions"][0]["decision"] == "approve"
    assert "always" not in asked.sent["decisions"][0]


HELD = {"needed": 2, "approved_by": ["ada"], "own": False, "voted": False}


def test_a_prompt_says_before_the_first_key_who_has_approved_what_several_people_must():
    still = {"action_id": "9c0d1e2f-act", "needed": 3, "approved_by": ["ada", "bob"]}
    counted = httpx.Response(200, json={"success": True, "rules": [], "waiting": [still]})
    asked = AskedInTest(waiting_action(quorum=HELD | {"needed": 3}), "a", responses=(counted,))

    assert "1 of 3 approved: ada" in asked.shown.partition("[a]pprove")[0]
    assert "Your approval counts: 2 of 3. It waits for others: terminal  git status" in asked.shown
    assert "Approved:" not in asked.shown
    assert asked.outcome == "left"


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"quorum": HELD | {"voted": True}}, "You have approved it already"),
        ({"quorum": HELD | {"own": True}}, "You may not approve it: you asked for it"),
        ({"quorum": HELD}, "You may not decide it"),
        ({}, "You may not decide it"),
    ],
)
def test_a_prompt_offers_no_approval_to_who_may_not_approve_and_says_why(members, why):
    asked = AskedInTest(waiting_action(can=["reject"], **members), "a", "l")

    assert why in asked.shown
    assert "[a]pprove" not in asked.shown
    assert "[A]lways" not in asked.shown
    assert "[r]eject" in asked.shown
    assert not asked.requests


def rule_for(**members):
    return {"decision": "approve", "tool_name": "terminal", "conversation_ids": [CONVERSATION], **members}


PROPOSED = httpx.Response(
    200,
    json={
        "items": [
            {"kind": kind, "sentence": sentence, "rule": rule, "answered": answered, "of": 20}
            for kind, sentence, rule, answered in (
                ("exactly", "Exactly git status.", rule_for(arguments={"command": {"equals": "git status"}}), 2),
                ("like", "git status *", rule_for(arguments={"command": {"command": "git status *"}}), 14),
                ("tool", "Every action of terminal.", rule_for(max_risk="LOW"), 19),
            )
        ]
    },
)
NONE_PROPOSED = httpx.Response(404, json={"detail": "Not found"})
RULED = httpx.Response(
    200, json={"success": True, "rules": [{"action_id": "9c0d1e2f-act", "rule_id": "rule-1", "detail": None}]}
)


@pytest.mark.parametrize(
    ("typed", "arguments", "risk"),
    [
        ("1", {"command": {"equals": "git status"}}, None),
        ("2", {"command": {"command": "git status *"}}, None),
        ("3", None, "LOW"),
    ],
)
def test_always_offers_the_answers_of_the_server_by_one_key_and_says_which_rule_was_made(typed, arguments, risk):
    asked = AskedInTest(waiting_action(), "A", typed, responses=[PROPOSED, RULED])

    assert "[1] exactly this [2] like this [3] this tool [b]ack [?]" in asked.shown
    shown = " ".join(asked.shown.split())
    assert "git status * Would have answered 14 of the last 20." in shown
    always = {"arguments": arguments, "max_risk": risk, "conversation_ids": [CONVERSATION]}
    others = ("tags", "expires_at", "max_uses")
    assert asked.sent["decisions"][0]["always"] == always | dict.fromkeys(others)
    assert "Rule rule-1 approves this from now on. To end it: agentctl rules rm rule-1" in shown


def test_a_card_says_what_the_server_sees_and_the_agents_word_where_that_is_another():
    effects = [{"effect": "deletes", "risk": "HIGH", "words": "Deletes", "because": "rm a"}]
    seen = {"risk": "HIGH", "seen": {"risk": "HIGH", "effects": effects}}
    shown = " ".join(AskedInTest(waiting_action(**seen), "l").shown.split())
    assert "High risk · Deletes · the agent says: low risk" in shown
    assert "Low risk · asked" in " ".join(AskedInTest(waiting_action(), "l").shown.split())


def scoped_answer(kind, what, *scopes, proposed="conversation"):
    """A ready answer in some scopes: of each its name, words, members of the rule, and what it would have answered."""
    found = [
        {
            "scope": name,
            "sentence": f"{what}, {words}.",
            "rule": {"decision": "approve", "tool_name": "terminal", "arguments": {}, **members},
            "answered": answered,
        }
        for name, words, members, answered in scopes
    ]
    return {**found[0], "kind": kind, "of": 20, "proposed": proposed, "scopes": found}


HERE = ("conversation", "in this conversation", {"conversation_ids": [CONVERSATION]}, 3)
FOLDER = ("folder", "in every conversation in the folder `/w/shop`", {"folder": "/w/shop"}, 9)
ALL = ("everywhere", "in every conversation", {}, 14)
SCOPED = httpx.Response(
    200,
    json={
        "items": [
            scoped_answer("like", "Allows `git status`", HERE, FOLDER, ALL, proposed="folder"),
            scoped_answer("tool", "Allows everything", HERE),
        ],
        "scopes": [
            {"scope": one, "words": words, "members": members} for one, words, members, _ in (HERE, FOLDER, ALL)
        ],
        "lasts": [
            {"name": "ever", "words": "until it is revoked", "seconds": None},
            {"name": "hour", "words": "for 1 hour", "seconds": 3600},
        ],
    },
)


@pytest.mark.parametrize(
    ("typed", "members", "covers"),
    [
        (["1"], {"folder": "/w/shop"}, "in every conversation in the folder `/w/shop`. Would have answered 9 of"),
        (["w", "1"], {}, "Allows `git status`, in every conversation. Would have answered 14 of the last 20."),
        (["w", "w", "1"], {"conversation_ids": [CONVERSATION]}, "in this conversation. Would have answered 3 of"),
        (["2"], {"conversation_ids": [CONVERSATION]}, "Allows everything, in this conversation."),
        (["w", "2"], {"conversation_ids": [CONVERSATION]}, "Allows everything, in this conversation."),
    ],
)
def test_one_key_chooses_where_a_rule_holds_and_the_answer_that_was_shown_last_is_made(typed, members, covers):
    asked = AskedInTest(waiting_action(), "A", *typed, responses=[SCOPED, RULED])

    assert "[1] like this [2] this tool [w]here [u]ntil [b]ack [?]" in asked.shown
    assert covers in " ".join(asked.shown.split())
    always = asked.sent["decisions"][0]["always"]
    found = {name: always.get(name) for name in ("conversation_ids", "folder", "repository", "key_id")}
    assert found == dict.fromkeys(found) | members
    assert always["expires_at"] is None


def test_another_key_chooses_how_long_a_rule_holds():
    asked = AskedInTest(waiting_action(), "A", "u", "1", responses=[SCOPED, RULED])

    assert "in the folder `/w/shop`, for 1 hour. Would have answered" in " ".join(asked.shown.split())
    ends = datetime.fromisoformat(asked.sent["decisions"][0]["always"]["expires_at"])
    assert timedelta(minutes=59) < ends - datetime.now(UTC) < timedelta(minutes=61)


@pytest.mark.parametrize(
    ("typed", "always", "covers"),
    [
        ("1", True, "terminal with exactly these arguments is approved in this conversation"),
        ("2", {"arguments": None}, "Each action of terminal in this conversation is approved unasked"),
    ],
)
def test_always_offers_this_action_or_this_tool_where_the_server_proposes_nothing(typed, always, covers):
    asked = AskedInTest(waiting_action(), "A", typed, responses=[NONE_PROPOSED, RULED])

    assert covers in asked.shown
    assert "while the agent rates the risk as low" in asked.shown
    assert asked.sent["decisions"][0]["always"] == always


def test_always_can_be_taken_back_and_no_rule_is_offered_for_actions_that_are_decided_together():
    assert AskedInTest(waiting_action(), "A", "b", "l", responses=[PROPOSED]).outcome == "left"
    item = waiting_action(decided_together=True, can=["approve", "reject"])
    other = {**item, "action_id": "other"}
    both = httpx.Response(200, json={"items": [item, other], "next_page_id": None})

    asked = AskedInTest(item, "A", "a", responses=[both, DECIDED])

    assert "[a]pprove all 2 [r]eject all 2 [l]eave [?]" in asked.shown
    assert "A is not an answer here" in asked.shown
    assert len(asked.sent["decisions"]) == 2


def test_a_command_is_edited_as_text_and_other_arguments_as_json(monkeypatch):
    texts = []

    def edit(text, extension):
        texts.append((text, extension))
        return text.replace("status", "log") + ("\n" if extension == ".sh" else "")

    monkeypatch.setattr(click, "edit", edit)
    asked = AskedInTest(waiting_action(), "e")
    assert texts == [("git status", ".sh")]
    assert asked.outcome == "edited"
    [decision] = asked.sent["decisions"]
    assert (decision["decision"], decision["arguments"]["command"]) == ("edit", "git log")
    assert decision["arguments"]["is_input"] is False
    assert "Approved with your edit: terminal  git log" in asked.shown

    asked = AskedInTest(waiting_action(arguments={"path": "status.txt", "command": "view"}), "e")
    assert asked.sent["decisions"][0]["arguments"] == {"path": "log.txt", "command": "view"}


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "Nothing was changed"), ("", "The command is empty"), ("git status", "Nothing was changed")],
)
def test_an_edit_that_brings_nothing_leaves_it_waiting(monkeypatch, text, words):
    monkeypatch.setattr(click, "edit", lambda *_, **__: text)
    asked = AskedInTest(waiting_action(), "e", "l")
    assert words in asked.shown
    assert asked.outcome == "left"
    assert not asked.requests


def test_an_edit_that_the_server_refuses_is_asked_about_again(monkeypatch):
    monkeypatch.setattr(click, "edit", lambda *_, **__: "git log")
    refused = httpx.Response(422, json={"detail": [{"loc": ["body", "arguments"], "msg": "Name its variable."}]})
    asked = AskedInTest(waiting_action(), "e", "a", responses=[refused, DECIDED])
    assert "Name its variable" in asked.shown
    assert asked.outcome == "approved"


def test_an_agent_without_edits_is_offered_none():
    asked = AskedInTest(waiting_action(can=["approve", "reject"]), "e", "l")
    assert "[e]dit" not in asked.shown
    assert "e is not an answer here" in asked.shown


def test_ctrl_c_says_that_it_still_waits_and_how_to_decide_it():
    asked = AskedInTest(waiting_action(), KeyboardInterrupt())
    assert asked.left_by == 130
    assert "It still waits. Decide it later: agentctl approve 9c0d1e2f" in asked.shown
    assert not asked.requests


def test_ctrl_c_after_an_answer_says_that_it_may_have_arrived():
    asked = AskedInTest(waiting_action(), "a", responses=[KeyboardInterrupt()])
    assert asked.left_by == 130
    assert "It is not known whether your answer arrived. What still waits: agentctl inbox" in asked.shown
    assert "It still waits" not in asked.shown


def test_a_decision_of_somebody_else_is_told_and_ends_nothing():
    refused = {"detail": "No", "problems": [{"action_id": "9c0d1e2f-act", "problem": "not_pending"}]}
    by = {"actor": {"kind": "key", "name": "ada"}, "decision": "reject", "reason": "Not on a Friday"}
    found = httpx.Response(200, json=[{**by, "action_ids": ["9c0d1e2f-act"], "seq": 1, "time": "2026-11-28T00:00:00Z"}])
    asked = AskedInTest(waiting_action(), "a", responses=[httpx.Response(409, json=refused), found])
    assert asked.outcome == "gone"
    assert "Somebody was faster. It was rejected by ada: Not on a Friday." in asked.shown

    nothing = httpx.Response(200, json=[None])
    asked = AskedInTest(waiting_action(), "a", responses=[httpx.Response(409, json=refused), nothing])
    assert "Somebody was faster: it is decided already." in asked.shown


def test_who_was_faster_about_a_destination_is_read_in_the_audit():
    gone = httpx.Response(404, json={"detail": "Nothing of that name and port waits"})
    entry = {"actor": {"kind": "link", "name": "a mailbox"}, "decision": "approve", "reason": "", "digests": ["e" * 64]}
    audit = httpx.Response(200, json={"items": [{**entry, "digests": ["f" * 64]}, entry], "next_page_id": None})
    asked = AskedInTest(asked_destination(), "a", responses=[TITLES, gone, audit])
    assert asked.outcome == "gone"
    assert "Somebody was faster. It was approved by a mailbox." in asked.shown

    hidden = httpx.Response(403, json={"detail": "That needs admin"})
    asked = AskedInTest(asked_destination(), "a", responses=[TITLES, gone, hidden])
    assert "Nothing of that name and port waits" in asked.shown


def test_a_key_that_may_not_approve_is_told_so_and_what_is_followed_goes_on():
    asked = AskedInTest(waiting_action(), "a", responses=[httpx.Response(403, json={"detail": "Needs approve"})])
    assert asked.outcome == "left"
    assert "Needs approve" in asked.shown
    with pytest.raises(AgentServerError):
        AskedInTest(waiting_action(), mode="never", responses=[httpx.Response(403, json={"detail": "Needs approve"})])


@pytest.mark.parametrize(
    ("typed", "scope", "words"),
    [
        (["y"], "once", "Allowed once: pypi.org:443"),
        (["c"], "conversation", "Allowed for the conversation: pypi.org:443"),
        (["A", "y"], "always", "A rule lets every sandbox of this server reach pypi.org:443"),
    ],
)
def test_a_destination_is_asked_about_by_the_same_prompt(typed, scope, words):
    allowed = httpx.Response(200, json={"success": True, "rule_id": None})
    asked = AskedInTest(asked_destination(), *typed, responses=[TITLES, allowed])

    assert "[a]llow once [c]onversation [A]lways [r]efuse [l]eave [?]" in asked.shown
    assert "A deploy (5f1c8a52)" in asked.shown
    assert "This try has failed already. Once allowed, the next passes." in " ".join(
        asked.shown.replace("│", "").split()
    )
    assert words in asked.shown
    assert (asked.sent["decision"], asked.sent["scope"]) == ("approve", scope)


def test_a_destination_is_refused_left_and_ruled_only_after_a_second_yes():
    refused = httpx.Response(200, json={"success": True, "rule_id": None})
    asked = AskedInTest(asked_destination(), "r", responses=[TITLES, refused])
    assert (asked.sent["decision"], asked.sent["scope"]) == ("reject", "conversation")
    assert "Refused: pypi.org:443" in asked.shown

    asked = AskedInTest(asked_destination(), "A", "n", "l", responses=[TITLES])
    assert asked.outcome == "left"
    assert "agentctl approve pypi.org:443" in asked.shown


def test_a_budget_is_asked_about_without_scopes():
    allowed = httpx.Response(200, json={"success": True, "rule_id": None})
    asked = AskedInTest(asked_budget(), "?", "a", responses=[TITLES, allowed])
    assert "[a]llow [r]efuse [l]eave [?]" in asked.shown
    assert "Add $5 to the budget" in asked.shown
    assert "Allowed: budget:conversation" in asked.shown
    assert (asked.sent["budget"], asked.sent["scope"]) == ("MODEL_BUDGET_CONVERSATION", "once")


def test_never_rejects_actions_and_destinations_and_leaves_budgets():
    reason = "Nothing is approved in this run."
    asked = AskedInTest(waiting_action(), mode="never")
    assert asked.sent["decisions"][0] | {"reason": reason} == asked.sent["decisions"][0]
    decided = httpx.Response(200, json={"success": True, "rule_id": None})
    asked = AskedInTest(asked_destination(), mode="never", responses=[decided])
    assert (asked.sent["decision"], asked.sent["reason"]) == ("reject", reason)
    assert AskedInTest(asked_budget(), mode="never", responses=[TITLES]).outcome == "left"


def test_where_nobody_is_asked_the_command_that_decides_it_needs_no_question():
    asked = AskedInTest(waiting_action(), mode="rules")
    command = f"agentctl approve 9c0d1e2f-act --digest {'d' * 64}, or agentctl reject 9c0d1e2f-act"
    assert command in " ".join(asked.shown.split())


def test_a_follower_says_that_it_goes_on_after_what_is_left():
    goes_on = "Still following; Ctrl-C ends that, the agent goes on"
    assert goes_on in AskedInTest(waiting_action(), "l", follows=True).shown
    assert goes_on not in AskedInTest(waiting_action(), "l").shown


def shown_card(item, width=80):
    console = Console(record=True, width=width)
    console.print(card(item))
    return console.export_text()


def test_a_card_tells_ages_by_the_clock_of_the_server():
    console = program._Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    since = datetime.now(UTC) - timedelta(seconds=30)
    item = waiting_action(since=since.isoformat(), expires_at=(since + timedelta(seconds=3600)).isoformat())
    console.ahead = lambda: 300.5
    console.print(card(item))
    shown = console.file.getvalue()
    assert "asked 5 min ago" in shown
    assert re.search(r"rejected in 3(26|27)\d s", shown)


def test_a_card_names_the_conversation_and_leaves_out_what_is_unset():
    shown = shown_card(waiting_action())
    assert "A deploy" in shown
    assert CONVERSATION in shown
    assert not any(word in shown for word in ("is_input", "reset", "timeout"))


def test_a_card_shows_every_argument_that_says_something():
    arguments = {"command": "x", "is_input": True, "reset": False, "verify": False, "note": ""}
    shown = shown_card(waiting_action(arguments=arguments))
    assert '"is_input": true' in shown
    assert 'verify: false, note: ""' in shown
    assert "reset: false" in shown_card(waiting_action(tool_name="deploy", arguments={"reset": False}))


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (
            httpx.ConnectError("refused"),
            "Your answer was not sent, and it still waits unless somebody else decides it: agentctl approve 9c0d1e2f",
        ),
        (httpx.ReadTimeout("timed out"), "Look before you repeat it. What still waits: agentctl inbox"),
    ],
    ids=["not sent", "sent"],
)
@pytest.mark.parametrize("typed", [("a",), ("r", "No."), ("A", "1")], ids=["approved", "rejected", "ruled"])
def test_an_answer_that_no_server_took_ends_with_whether_it_still_waits(fault, told, typed):
    with pytest.raises(AgentServerError) as raised:
        AskedInTest(
            waiting_action(), *typed, responses=[*([PROPOSED] if "A" in typed else []), fault], retry_seconds=0.0
        )
    assert told in raised.value.detail
    assert raised.value.status is None


def test_a_command_that_goes_on_asks_again_about_what_a_silent_server_did_not_take(monkeypatch):
    client, _ = responding(httpx.ConnectError("refused"), DECIDED, retry_seconds=0.0)
    approver = Approver(CommandSession(), "ask", lambda: "a", asks_again=True)
    waiting = PendingAction(client, waiting_action())

    with pytest.raises(AgentServerError, match="You are asked again once the server answers, if it still waits"):
        approver.decide(waiting)

    assert approver.decide(waiting) == "approved"


def test_a_wait_for_the_server_says_once_of_an_answer_that_it_is_sent_again(capsys, monkeypatch):
    session, (client, _) = CommandSession(), responding()
    refusal = AgentServerError(None, "http://server does not answer: refused")
    with session.sending(client):
        for spent in (0.3, 1.2, 4.0):
            session._tell_retry(refusal, spent, 120 - spent)
        session._answer.is_told = False
        monkeypatch.setattr(program, "get_ident", lambda: -1)  # a log that is followed in another thread
        session._tell_retry(refusal, 9.0, 291.0)
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("does not answer") == 1
    assert "Your answer is sent again for up to 2 min 0 s; Ctrl-C ends that. What still waits: agentctl inbox" in told
