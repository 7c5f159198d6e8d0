"""The command mode: which actions of a conversation wait for a decision, as the server names it."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.text import Text

from agent_server_client.cli.program import Session, command, conversation_id, ids_completed, print_json
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
def mode(session: Session, conversation: str | None, mode: str | None) -> None:
    """Show or set which actions wait for a decision.

    Without MODE the modes of the server are listed, with that of the conversation marked. A new one holds from the next
    action on.
    """
    client = session.client()
    if conversation is None:
        modes = client.modes()
        print_json(modes) if session.as_json else session.out.print(modes_text(modes, ""))
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
    session.out.print(modes_text(client.modes(), present))


def modes_text(modes: Sequence[Mapping[str, Any]], present: str | None) -> Text:
    """The modes of a server, a line each, with the present one marked."""
    width = max((len(one["name"]) for one in modes), default=0)
    lines = [
        Text.assemble(
            "* " if one["name"] == present else "  ",
            (in_line(one["name"]).ljust(width), "bold"),
            f"  {visible(one['words'], prose=True)}. ",
            (visible(one["detail"], prose=True), "dim"),
        )
        for one in modes
    ]
    if present is None:
        lines.append(Text("It has a policy of its own, which is none of these", "dim"))
    return Text("\n").join(lines)


COMMANDS = (mode,)
