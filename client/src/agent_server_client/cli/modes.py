"""The command mode: which actions of a conversation wait for a decision, as the server names it."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from agent_server_client.cli.program import CommandSession, command, conversation_id, ids_completed, print_json
from agent_server_client.cli.shown import shown_id
from agent_server_client.visible import in_line, visible

#: the option that chooses the mode of a start
mode_option = click.option(
    "--mode",
    metavar="MODE",
    help="Which actions wait for a decision; `agentctl mode` lists the modes.  [default: as the agent's spec says]",
)


@command()
@click.argument("conversation", metavar="[ID]", required=False, callback=conversation_id, shell_complete=ids_completed)
@click.argument("mode", metavar="[MODE]", required=False)
def mode(session: CommandSession, conversation: str | None, mode: str | None) -> None:
    """Show or set which actions wait for a decision.

    Without MODE the modes of the server are listed, with that of the conversation marked. A new one holds from the next
    action on.
    """
    client = session.client()
    if conversation is None:
        modes = client.modes()
        print_json(modes) if session.as_json else session.out.print(modes_text(session.out, modes, ""))
        return
    found = session.conversation(client, conversation)
    if mode is not None:
        found.set_mode(mode)
        said = f"From the next action on: {mode}: {shown_id(session.err, found.id)}"
        session.tell({"conversation_id": found.id, "mode": mode}, said, style="dim")
        return
    present = found.info()["approval_mode"]
    if session.as_json:
        print_json({"conversation_id": found.id, "mode": present})
        return
    session.out.print(modes_text(session.out, client.modes(), present))


def modes_text(console: Console, modes: Sequence[Mapping[str, Any]], present: str | None) -> Text:
    """The modes of a server with the present one marked: in a pipe a line each, else below their names."""
    width = max((len(one["name"]) for one in modes), default=0)
    indent = len("* ") + width + len("  ")
    room = max(20, console.width - indent) if console.is_terminal else 1 << 20
    lines = []
    for one in modes:
        head = Text.assemble(
            "* " if one["name"] == present else "  ", (in_line(one["name"]).ljust(width), "bold"), "  "
        )
        detail = visible(one["detail"], prose=True)
        words = Text.assemble(f"{visible(one['words'], prose=True)}. ", (detail, "dim"))
        for line in words.wrap(console, room):
            lines.append(head + line)
            head = Text(" " * indent)
    if present is None:
        lines.append(Text("It has a policy of its own, which is none of these", "dim"))
    return Text("\n").join(lines)


COMMANDS = (mode,)
