"""`agentctl mode`, and `--mode` of a start: the names and words are those of the server."""

import json

import pytest
from agent_server_client.cli.modes import modes_text
from rich.console import Console

from core.modes import MODES


def test_the_modes_of_the_server_are_listed_and_that_of_a_conversation_is_marked(ctl, started):
    one = started(confirmation_policy={"kind": "AlwaysConfirm"})
    every = ctl("mode").stdout.splitlines()
    assert [line.split()[0] for line in every] == [mode.name for mode in MODES]
    assert MODES[0].words in every[0]

    marked = [line for line in ctl("mode", one).stdout.splitlines() if line.startswith("*")]
    assert [line.split()[1] for line in marked] == ["everything"]


def test_a_mode_is_set_and_one_that_cannot_hold_is_refused_in_words(ctl, started):
    one = started(confirmation_policy={"kind": "AlwaysConfirm"})
    assert "From the next action on: risky" in ctl("mode", one, "risky").stderr
    assert json.loads(ctl("mode", one, "--json").stdout) == {"conversation_id": one, "mode": "risky"}

    refused = ctl("mode", one, "nothing", code=1)
    assert "is for conversations in a sandbox" in refused.stderr
    assert "everything, risky" in ctl("mode", one, "yolo", code=1).stderr


def test_approve_all_and_a_mode_are_not_both_given(ctl):
    assert "leave one of them out" in ctl("run", "x", "--approve", "all", "--mode", "risky", code=2).stderr


@pytest.mark.parametrize("columns", [60, 120])
def test_at_a_terminal_what_a_mode_means_stands_below_its_words(columns):
    console = Console(force_terminal=True, width=columns, color_system=None)
    rows = modes_text(console, [one._asdict() for one in MODES], "outside").plain.splitlines()
    assert all(len(row.rstrip()) <= columns for row in rows)
    begun = [row for row in rows if row[2] != " "]
    assert [row[2:].split()[0] for row in begun] == [mode.name for mode in MODES]
    assert [row for row in rows if row[:2] == "* "] == [row for row in begun if "outside" in row]
    assert {row[: len("* everything  ")] for row in rows if row not in begun} == {" " * len("* everything  ")}
