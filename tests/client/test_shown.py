"""What agentctl shows: tables on terminals of every width."""

import io

import pytest
from agent_server_client.cli.progress import EventProgress
from agent_server_client.cli.shown import card, diff_text, named, print_entry, print_table, print_talk, short, shortest
from agent_server_client.wire import Entry
from rich.console import Console

from tests.client.test_questions import waiting_action
from tests.conftest import action, event, message, status

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


def shown_diff(original, modified, status="UPDATED"):
    change = {"path": "a.txt", "status": status}
    return diff_text(change, {"original": original, "modified": modified}).plain.split("\n")


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85", "\f", "\v", "\x1c", "\r"])
def test_a_difference_between_an_odd_end_of_a_line_and_a_real_one_is_shown(end):
    lines = shown_diff(f"one{end}two\n", "one\ntwo\n")

    assert [line[:4] for line in lines if line[:1] in "+-" and line][-3:] == ["-one", "+one", "+two"]


def test_an_end_of_a_file_that_only_one_of_two_has_is_a_difference_and_none_otherwise():
    assert "+" in shown_diff("one", "one\n")
    assert shown_diff("one\n", "one\n") == [""]
    assert shown_diff("", "one\n")[3:] == ["+one", ""]


def test_an_empty_file_that_is_new_or_gone_is_shown_by_its_name():
    assert shown_diff(None, "", "ADDED") == ["--- /dev/null", "+++ b/a.txt", ""]
    assert shown_diff("", None, "DELETED") == ["--- a/a.txt", "+++ /dev/null", ""]
    assert shown_diff(None, "one\n", "ADDED")[0] == "--- /dev/null"


def test_an_id_is_as_short_as_it_is_unique_and_has_eight_characters_at_least():
    first, second, other = "5f1c8a52-0000-a", "5f1c8a52-0001-b", "5f1c8a53-0000-c"
    assert shortest([first, second, other, first]) == {
        first: "5f1c8a52-0000",
        second: "5f1c8a52-0001",
        other: "5f1c8a53",
    }
    assert shortest(["act-1", "act-10"]) == {"act-1": "act-1", "act-10": "act-10"}
    assert shortest([]) == {}
    assert shortest(["5f1c8a52-0000-4000-8000-000000000001"]) == {"5f1c8a52-0000-4000-8000-000000000001": "5f1c8a52"}


def test_only_a_uuid_is_shown_by_its_beginning_alone():
    assert short("5f1c8a52-0000-4000-8000-000000000001") == "5f1c8a52"
    assert short("action-number-1") == "action-number-1"


EDIT = {"kind": "FileEditorAction", "command": "str_replace", "path": "a.txt", "old_str": "x", "new_str": "y"}


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"command": "rm -rf build", "is_input": False, "timeout": None}, "terminal  rm -rf build  — List the files"),
        ({"command": "rm -rf a", "path": "b"}, 'terminal  b  {"command": "rm -rf a"}  — List the files'),
        (EDIT, 'terminal  str_replace a.txt  {"old_str": "x", "new_str": "y"}  — List the files'),
        ({"url": "http://x"}, 'terminal  {"url": "http://x"}  — List the files'),
        ({}, "terminal  {}  — List the files"),
        ({"data": {"command": "make", "cwd": "/w"}}, 'terminal  make  {"cwd": "/w"}  — List the files'),
    ],
)
def test_an_action_is_named_by_what_runs_and_the_summary_stands_beside_it(arguments, shown):
    assert named("terminal", arguments, "List the files").plain == shown
    assert [str(one.style) for one in named("terminal", arguments, "List the files").spans] == ["bold", "dim"]


def logged(event: dict, width: int = 0, *, full: bool = False) -> str:
    """An entry of a log: at a terminal of that width, or in a pipe."""
    shown = io.StringIO()
    options = {"force_terminal": True, "color_system": None, "width": width} if width else {}
    print_entry(Console(file=shown, **options), Entry(1, event), full=full)
    return shown.getvalue()


@pytest.mark.parametrize("width", [0, 120])
def test_a_log_shows_the_command_that_runs_and_not_what_the_model_calls_it(width):
    shown = logged(action("rm -rf build", summary="List the files"), width)
    assert "action    terminal  rm -rf build  — List the files\n" in shown

    lines = logged(action("cd a\nrm -rf b", summary="List\nthe files"), width).splitlines()
    assert [line.strip() for line in lines[1:]] == ["rm -rf b", "— List\\u{a}the files"]

    written = logged(action(action=EDIT, tool_name="file_editor", summary="Look at a file"), width)
    assert 'file_editor  str_replace a.txt  {"old_str": "x", "new_str": "y"}  — Look at a file' in written


def test_a_long_argument_is_cut_at_a_terminal_and_whole_in_a_pipe_and_a_command_is_whole():
    write = {"kind": "FileEditorAction", "command": "create", "path": "a.txt", "file_text": "x" * 1000}
    assert "x" * 300 not in logged(action(action=write), 2000)
    assert "x" * 1000 in logged(action(action=write), 2000, full=True)
    assert "x" * 1000 in logged(action(action=write))
    assert "x" * 1000 in logged(action("x" * 1000), 2000)
    assert "s" * 300 not in logged(action("ls", summary="s" * 1000), 2000)
    assert "s" * 1000 in logged(action("ls", summary="s" * 1000))


def test_a_talk_shows_the_command_that_runs_before_what_the_model_calls_it():
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, color_system=None, width=80)
    print_talk(console, Entry(1, action("rm -rf build", summary="List the files")), "/log")
    assert "• terminal  rm -rf build  — List the files" in shown.getvalue()


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("ls", "ls"),
        ("ls\n", "ls"),
        ("cd a\nrm -rf b", "cd a … (+1 line)"),
        ("cd a\nrm \x1b\n\nls", "cd a … (+3 lines)"),
        ("x" * 300 + "\ny", "x" * 187 + "… … (+1 line)"),
        ("a\x1b\tb", "a\\u{1b}\\u{9}b"),
    ],
)
def test_a_command_in_one_line_is_its_first_line_and_the_number_of_the_others(command, shown):
    assert named("terminal", {"command": command}).plain == f"terminal  {shown}"
    assert running(command) == f"terminal: {shown}, 0 s"


def running(command: str) -> str:
    """What a live line of a wide terminal says of a command that runs."""
    progress = EventProgress()
    progress.take(status("running"))
    progress.take(action(command))
    return progress._doing(200 + len("terminal: , 0 s"))


def carded(command: str, width: int, encoding: str = "utf-8") -> list[str]:
    """The lines of a card of a command, without its frame."""
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding, errors="replace")
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    console.print(card(waiting_action(command)))
    file.flush()
    lines = written.getvalue().decode(encoding).splitlines()
    return [line[1:-1].rstrip() for line in lines[1:-1]]


def test_a_card_marks_a_wrapped_line_where_no_text_can_stand():
    assert carded("echo first\n↳echo second", 60)[2:4] == [" echo first", " ↳echo second"]
    assert carded("echo " + "x" * 60, 40)[2:5] == [" echo", f"↳{'x' * 36}", f"↳{'x' * 24}"]
    assert carded("echo " + "x" * 34, 40, "ascii")[2:4] == [" echo", f"+{'x' * 34}"]
    words = "git commit -m 'a sentence of several words'\ngit push"
    assert carded(words, 40)[2:5] == [" git commit -m 'a sentence of several", "↳words'", " git push"]


@pytest.mark.parametrize(("complete", "times"), [(True, 0), (False, 1)])
def test_a_card_says_first_that_less_is_shown_than_will_run(complete, times):
    console = Console(file=io.StringIO(), width=160, force_terminal=True, color_system=None)
    console.print(card(waiting_action(complete=complete, summary="Lists")))
    shown = console.file.getvalue().partition("Lists")[0]
    assert shown.count("What is shown is less than what will run") == times


def test_a_log_says_to_which_event_a_conversation_returned():
    value = {"event_id": "e-45", "left_event_id": "e-94"}
    returned = event("ConversationStateUpdateEvent", "environment", key="returned_to", value=value)
    assert logged(returned).rstrip().endswith("returned  to the event e-45, with its files")
    assert logged(event("ConversationStateUpdateEvent", "environment", key="returned_to", value="x")) == ""


def test_a_log_and_a_talk_mark_a_wrapped_line_of_an_action_and_none_of_a_message():
    command = "echo " + "x" * 70
    assert logged(action(command), 60).splitlines()[1].strip().startswith("↳ x")
    assert "↳" not in logged(message(command, "agent"), 60)
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, color_system=None, width=60)
    print_talk(console, Entry(1, action(command)), "/log")
    assert shown.getvalue().splitlines()[1].startswith("↳ x")


def shown_card(**members) -> str:
    shown = io.StringIO()
    Console(file=shown, width=120).print(card(waiting_action(**members)))
    return shown.getvalue()


def test_a_card_says_whose_agent_asks_on_which_machine_and_in_which_folder():
    asked = {"agent": "claude-code", "person": "ada", "machine": "laptop", "folder": "/home/ada/shop"}
    terminal = {"kind": "permission", "order": "races", "answerable_until": "2027-01-31T09:27:46Z"}
    terminal |= {"in_terminal": False}
    races, there = (shown_card(asked_from=asked | terminal | more) for more in ({}, {"in_terminal": True}))

    assert "claude-code · ada@laptop · /home/ada/shop  ·  also asked at its terminal" in races
    assert "asked in the terminal: answer it there" in there
    assert "It is asked in its terminal now" in there
    assert "ada@laptop" not in shown_card(asked_from=None)
