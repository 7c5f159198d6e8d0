"""Questions at a terminal: a prompt that shows its letters, its help, and an editor for what is approved."""

import json
import os
import select
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click
from rich.table import Table
from rich.text import Text

from agent_server_client.calls import command_of
from agent_server_client.cli.program import CommandSession
from agent_server_client.models import WaitingAction
from agent_server_client.visible import beginning, in_line

if sys.platform != "win32":
    import termios

#: seconds between two checks of an open question
_CHECK = 0.25

#: reads the line that a person types. Raises EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C
Read = Callable[[], str]


class PromptAnswer(NamedTuple):
    """One answer of a prompt."""

    name: str
    label: str  #: as the prompt shows it: `[a]pprove`
    words: tuple[str, ...]  #: what a person may type, beside the name; a letter with its case
    help: str


class NotEdited(Exception):
    """The editor brought nothing to approve; the message says why."""


def ask(session: CommandSession, answers: Sequence[PromptAnswer], read: Read = input) -> str:
    """The name of the answer that a person chooses. `?`, an empty line and an unknown word show the help.

    What was typed before the prompt appears is dropped: no key that was meant for something else decides.
    """
    labels = Text.assemble(
        Text(" ").join([*(_bold(one.label) for one in answers), _bold("[?]")]), (" then Enter:", "dim")
    )
    while True:
        typed = _answer(session, labels, read)
        # `A` stands for more than `a`: where it is not offered, it is no answer.
        for word in (typed, typed if typed == "A" else typed.lower()):
            for one in answers:
                if word in (*one.words, one.name):
                    return one.name
        if typed.lower() not in ("", "?", "h", "help"):
            session.err.print(f"{beginning(in_line(typed), 40)} is not an answer here.", style="yellow")
        explain(session, answers)


def _answer(session: CommandSession, labels: Text, read: Read) -> str:
    """What a person types behind a prompt."""
    drop_typed()
    session.err.print(labels, end=" ", soft_wrap=True)
    session.prompt = labels
    try:
        return read().strip()
    finally:
        session.prompt = None


def explain(session: CommandSession, answers: Sequence[PromptAnswer]) -> None:
    """Print what each answer does."""
    table = Table.grid(padding=(0, 2))
    for one in answers:
        table.add_row("", Text(one.words[0], "bold"), one.help)
    session.err.print(table)


def _bold(label: str) -> Text:
    """A label whose letter in brackets is bold."""
    before, _, rest = label.partition("[")
    letter, _, after = rest.partition("]")
    return Text.assemble(f"{before}[", (letter, "bold"), f"]{after}")


def confirm(session: CommandSession, question: str, *, default: bool = False, read: Read = input) -> bool:
    """Whether a person says yes. default: what an empty line means."""
    labels = Text(f"{question} {'[Y/n]' if default else '[y/N]'}")
    while True:
        typed = _answer(session, labels, read).lower()
        if typed in ("", "y", "yes", "n", "no"):
            return typed in ("y", "yes") or (default and not typed)
        session.err.print("Type y or n.", style="yellow")


def is_asked() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def agrees(session: CommandSession, question: str, read: Read = input) -> bool:
    """Whether a person at the terminal says yes; Ctrl-D says no."""
    try:
        return confirm(session, question, read=read)
    except EOFError:
        session.err.print()
        return False


def edited(session: CommandSession, item: WaitingAction) -> dict[str, Any]:
    """The arguments of an action as a person changes them in $VISUAL or $EDITOR: a command as text, others as JSON.

    Raises NotEdited.
    """
    arguments = item["arguments"]
    if not isinstance(arguments, dict):
        raise NotEdited("These arguments have no names, so they cannot be edited.")
    command = command_of(arguments)
    before = command if command is not None else json.dumps(arguments, indent=2, ensure_ascii=False)
    try:
        with session.elsewhere():
            after = click.edit(before, extension=".json" if command is None else ".sh")
    except click.ClickException as error:
        raise NotEdited(f"{error.message}. $VISUAL or $EDITOR names the editor.") from error
    if after is not None and not before.endswith("\n"):
        after = after.removesuffix("\n")  # an editor ends the last line
    if after is None or after == before:
        raise NotEdited("Nothing was changed.")
    if command is not None:
        if not after.strip():
            raise NotEdited("The command is empty.")
        return {**arguments, "command": after}
    try:
        changed = json.loads(after)
    except ValueError as error:
        raise NotEdited(f"This is not JSON: {error}.") from error
    if not isinstance(changed, dict):
        raise NotEdited("The arguments should be a JSON object.")
    return changed


def typed_line(check: Callable[[], None]) -> str:
    """The line that a person types. check: is called until it comes, and may raise to leave the question."""
    if sys.platform == "win32":
        return input()
    line = b""
    while not line.endswith(b"\n"):
        while not select.select([sys.stdin], [], [], _CHECK)[0]:
            check()
        if not (piece := os.read(sys.stdin.fileno(), 1 << 12)):
            raise EOFError
        line += piece
    return line.decode(errors="replace")


def drop_typed() -> None:
    """Drop the input that the terminal holds."""
    if sys.platform != "win32" and sys.stdin.isatty():
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
