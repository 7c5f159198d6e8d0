"""The command about what was decided: audit."""

from itertools import islice
from typing import get_args, get_type_hints

import click
from rich.text import Text

from agent_server_client.cli.program import CommandSession, command, print_json
from agent_server_client.cli.shown import print_table, when
from agent_server_client.models import AuditEntry
from agent_server_client.visible import in_line

#: decisions that an entry may have, and their look
_DECISIONS = get_args(get_type_hints(AuditEntry)["decision"])
_COLOURS = {"approve": "green", "edit": "green", "reject": "red", "refused": "red", "unapproved": "bold red"}

#: kinds of actors whose name says who they are
_NAMED = ("key", "link", "message", "run", "person", "terminal")

#: most characters of a title in a row
_MOST_TITLE = 24


@command()
@click.argument("text", required=False)
@click.option("--conversation", metavar="ID", help="Decisions about one conversation.")
@click.option("--who", metavar="NAME", help="Decisions of one key, by its whole name.")
@click.option("--decision", type=click.Choice(_DECISIONS), help="Decisions of one kind.")
@click.option("--tool", metavar="NAME", help="Decisions about actions of one tool.")
@click.option("-n", "--limit", type=click.IntRange(1), default=30, show_default=True, help="Entries to show.")
def audit(
    session: CommandSession,
    text: str | None,
    conversation: str | None,
    who: str | None,
    decision: str | None,
    tool: str | None,
    limit: int,
) -> None:
    """Show who decided what, the newest first.

    TEXT is a part of the command, the summary, the destination, the reason or the title. It needs an admin's key.
    """
    client = session.client()
    if conversation:
        conversation = session.conversation(client, conversation).id
    filters = {"actor": who, "decision": decision, "tool_name": tool, "conversation_id": conversation}
    found = list(islice(client.audit(text=text, **filters), limit + 1))
    if len(found) > limit:
        found.pop()
        session.err.print(f"{limit:,} shown, and there are more; -n shows more", style="dim")
    if session.as_json:
        print_json(found)
    elif found:
        print_table(
            session.out, ("WHEN", "DECISION", "WHO", "WHAT", "CONVERSATION"), [_row(session, one) for one in found]
        )
    else:
        session.err.print("No decisions. Leave out a filter to see more", style="dim")


def _row(session: CommandSession, entry: AuditEntry) -> tuple[str, Text, str, str, str]:
    decision, actor = entry["decision"], entry["actor"]
    name = actor["name"] if actor["kind"] in _NAMED else f"{actor['kind']} {actor['name']}".strip()
    name += ", at the terminal" if actor["kind"] == "terminal" else ""
    title = entry.get("conversation_title") or entry["conversation_id"] or ""
    return (
        when(session.out, entry["time"]),
        Text(decision, _COLOURS.get(decision, "")),
        in_line(name),
        in_line(what(entry)),
        in_line(title if len(title) <= _MOST_TITLE or not session.out.is_terminal else f"{title[: _MOST_TITLE - 1]}…"),
    )


def what(entry: AuditEntry) -> str:
    """What an entry is about, in words: the commands, the destination or the budget; else its reason."""
    if shown := [one["text"] for one in entry.get("shown") or () if one]:
        if edited := entry.get("edited_shown"):
            return f"{shown[0]} → {edited[0]['text']}"
        more = len(entry["action_ids"]) - 1
        return f"{shown[0]} (and {more} more)" if more else shown[0]
    if destination := entry.get("destination"):
        return f"{destination['name']}:{destination['port']}"
    if budget := entry.get("budget"):
        return f"more of {budget['setting']}"
    return entry["reason"] or ", ".join(entry["action_ids"])


COMMANDS = (audit,)
