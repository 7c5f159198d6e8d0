"""A conversation of the reference agent whose files were turned back: its log, and what the agent goes on from."""

import json
from uuid import uuid4

import pytest

from reference_agent import events
from reference_agent.api import ReferenceServer
from reference_agent.conversation import TURNED_BACK
from reference_agent.events import way
from reference_agent.log import AgentWebhooks, Journal

IDENTITY = uuid4()
START = {"id": str(IDENTITY), "confirmation_policy": {"kind": "NeverConfirm"}, "created_at": "2026-11-28T00:00:00"}
START |= dict.fromkeys(("workspace", "agent", "title", "initial_message")) | {"tags": {}}


def said(source, text):
    return events.message(source, events.parts(text))


def command(text):
    call = {"id": f"call {text}", "name": "terminal", "arguments": "{}"}
    return events.action(call, {"kind": "TerminalAction", "command": text}, f"response {text}")


@pytest.fixture
def lived(tmp_path, monkeypatch):
    """The events of a conversation, and what turns it back to one of them and returns it as its next process has it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "conversations"
    first, second = command("one"), command("two")
    results = [events.observation(one, {"content": events.parts("done"), "exit_code": 0}) for one in (first, second)]
    history = [
        said("user", "begin"),
        first,
        results[0],
        said("agent", "ended"),
        said("user", "more"),
        second,
        results[1],
    ]
    Journal(folder / IDENTITY.hex).create(START, history)

    def turned_back(event, left):
        note = {"id": str(uuid4()), "event_id": event["id"], "left_event_id": left["id"]}
        (folder / IDENTITY.hex / "returned.json").write_text(json.dumps(note))
        return ReferenceServer("", folder, AgentWebhooks("", {})).find(IDENTITY)

    return history, turned_back


def test_the_agent_goes_on_from_the_event_and_its_log_keeps_what_was_left_behind(lived):
    history, turned_back = lived

    log = turned_back(history[3], history[-1]).log

    assert log.events[: len(history)] == history
    [back] = log.events[len(history) :]
    assert (back["key"], back["value"]) == (
        "returned_to",
        {"event_id": history[3]["id"], "left_event_id": history[-1]["id"]},
    )
    assert log.way == [*history[:4], back]
    assert (log.state.status, log.state.unanswered, log.state.open) == ("idle", [], [])


def test_an_action_that_was_open_at_the_event_is_closed_as_not_executed(lived):
    history, turned_back = lived

    log = turned_back(history[5], history[-1]).log

    closing = log.way[-1]
    assert (closing["kind"], closing["error"], closing["tool_call_id"]) == ("AgentErrorEvent", TURNED_BACK, "call two")
    assert events.open_actions(log.way) == []


def test_after_a_return_an_unanswered_message_is_answered(lived):
    history, turned_back = lived

    log = turned_back(history[4], history[-1]).log

    assert log.state.unanswered == [history[4]["id"]]


def test_a_return_is_noted_in_one_event_however_often_the_agent_restarts(lived, tmp_path):
    history, turned_back = lived
    log = turned_back(history[3], history[-1]).log

    again = ReferenceServer("", tmp_path / "conversations", AgentWebhooks("", {})).find(IDENTITY).log

    assert again.events == log.events
    assert again.way == log.way


def test_returning_to_an_abandoned_event_undoes_the_return(lived):
    history, turned_back = lived
    back = turned_back(history[3], history[-1]).log.events[-1]

    log = turned_back(history[-1], back).log

    assert log.way == [*history, log.events[-1]]
    assert back in log.events


def test_the_way_after_a_return_to_an_unknown_event_is_the_log():
    told = [said("user", "a"), events.change("returned_to", {"event_id": "unknown"}), said("user", "b")]

    assert way(told) == told
