"""What agentctl shows: tables on terminals of every width."""

import io

import pytest
from agent_server_client.cli.shown import print_table
from rich.console import Console

HEADS = ("ID", "TITLE", "STATUS", "WAITING", "EVENTS", "CHANGED")
ROW = (
    "50533ba2",
    "A title that goes on for longer than a narrow terminal has room",
    "waits for you",
    "2",
    "5",
    "21 s ago",
)


def table(width: int) -> list[str]:
    shown = io.StringIO()
    print_table(Console(file=shown, width=width, force_terminal=True, color_system=None), HEADS, [ROW])
    return [line.rstrip() for line in shown.getvalue().splitlines()]


@pytest.mark.parametrize("width", [40, 50, 60, 80, 100, 200])
def test_a_table_shows_an_id_and_a_status_whole_and_is_no_wider_than_the_terminal(width):
    head, line = table(width)

    assert max(len(head), len(line)) <= width
    assert line.startswith("50533ba2   A title t")
    assert "waits for you" in line
    assert "WAITI…" not in head


def test_a_narrow_terminal_does_without_the_columns_that_say_least():
    assert table(60)[0].split() == ["ID", "TITLE", "STATUS", "WAITING", "CHANGED"]
    assert table(50)[0].split() == ["ID", "TITLE", "STATUS", "WAITING"]
    assert table(100)[0].split() == list(HEADS)
