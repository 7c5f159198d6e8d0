"""What a talk shows of a log, and which typed lines are commands."""

import asyncio
import io
from types import SimpleNamespace

import pytest
from agent_server_client.cli.chat import _Talk, parsed
from agent_server_client.cli.shown import print_talk
from agent_server_client.errors import AgentServerError
from agent_server_client.wire import Entry
from rich.cells import cell_len
from rich.console import Console

from tests.conftest import action, event, message, observation, status


def talk(*events: dict, width: int = 60) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    for seq, one in enumerate(events, 1):
        print_talk(console, Entry(seq, one), "agentctl logs ID --full")
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def printed(text: str, **members) -> dict:
    return observation({"id": "a"}, observation={"content": [{"type": "text", "text": text}], **members})


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("/help", ("/help", "")),
        ("/diff src/app", ("/diff", "src/app")),
        ("  /quit ", ("/quit", "")),
        ("/nothing", ("/nothing", "")),
        ("/etc/hosts is wrong", None),
        ("/nothing is there", None),
        ("fix /help", None),
        ("/help\nme", None),
    ],
)
def test_a_line_is_a_command_where_it_names_one_and_else_a_message(line, command):
    assert parsed(line) == command


def test_what_was_said_is_shown_whole_and_what_was_done_by_its_ends():
    said = [{"type": "text", "text": "I count."}]
    shown = talk(
        message("count\nto 2,000"),
        status("running"),
        action("seq 2000", id="a", thought=said),
        printed("\n".join(str(number) for number in range(1, 2001))),
        message("Done.", "agent"),
        status("finished"),
    )
    assert shown[:6] == ["", "> count", "  to 2,000", "  I count.", "• terminal  seq 2000", "  │ 1"]
    assert shown[8:12] == ["  │ 4", "  │ … 1,989 more lines: agentctl logs ID --full", "  │ 1994", "  │ 1995"]
    assert shown[-2:] == ["  │ 2000", "  Done."]


def test_a_failure_a_rejection_and_a_stop_are_shown_in_words():
    rejected = event("UserRejectObservation", "environment", action_id="a", rejection_reason="Not here.")
    shown = talk(
        printed("no such file", exit_code=2),
        rejected,
        event("InterruptEvent", "user"),
        status("paused"),
        status("idle"),
    )
    assert shown == ["  │ exit 2", "  │ no such file", "rejected: Not here.", "— paused"]


def test_an_answer_that_finishes_is_said_once():
    done = action(action={"kind": "FinishAction", "message": "All is well."}, tool_name="finish")
    assert talk(done, observation(done, observation={}) | {"tool_name": "finish"}) == ["  All is well."]


@pytest.mark.parametrize("width", [20, 60, 120])
def test_no_line_is_wider_than_the_terminal_and_no_code_reaches_it(width):
    text = "漢字 \x1b[31mred\x1b]0;title\x07 \u202e " * 20 + "x" * 300
    shown = talk(message(text), message(text, "agent"), action(text), printed(text), width=width)
    assert all(line[:2] in ("", "> ", "  ", "• ", "↳ ") for line in shown)
    assert max(cell_len(line) for line in shown) <= width
    assert not any(code in "".join(shown) for code in ("\x1b", "\x07", "\u202e"))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AgentServerError(409, "It waits no more"), "Refused: It waits no more"),
        (
            AgentServerError(None, "No answer from URL: it is not known whether this took effect"),
            "No answer from URL: it is not known whether this took effect. `agentctl logs ID` shows it",
        ),
    ],
    ids=["refused", "not answered"],
)
def test_a_request_that_was_not_answered_is_not_called_refused(error, told):
    async def failing():
        raise error

    said = []
    here = SimpleNamespace(_found=SimpleNamespace(id="ID"), _say=lambda words, *_: said.append(words))
    asyncio.run(_Talk._or_said(here, failing()))
    assert said == [told]
