"""Commands about grants, which say what people may do where: list, add, revoke."""

from typing import Any

import click

from agent_server_client.cli.program import CommandSession, Failed, beginning_of, command, id_from, print_json
from agent_server_client.cli.shown import print_table, shortest, when
from agent_server_client.models import GrantInfo
from agent_server_client.visible import in_line

#: what lists the ids of grants
_LISTING = "agentctl grants"

#: what is said where there are no grants
_NO_GRANTS = (
    "No grants: nobody who comes through a proxy may do anything. Add one: "
    "agentctl grants add --person ada@example.org --role approve"
)

_ROLES = ("ask", "steer", "approve", "admin")


@command(cls=click.Group, invoke_without_command=True)
def grants(session: CommandSession) -> None:
    """List, add and revoke grants, which say what people may do where."""
    if not click.get_current_context().invoked_subcommand:
        _list(session)


@command("ls")
def list_grants(session: CommandSession) -> None:
    """List the grants, the newest first."""
    _list(session)


def _list(session: CommandSession) -> None:
    found = session.client().grants()
    if session.as_json:
        print_json(found)
    elif not found:
        session.err.print(_NO_GRANTS, style="dim")
    else:
        heads = ("ID", "WHO", "ROLE", "WHERE", "SINCE", "BY")
        ids = shortest(one["id"] for one in found) if session.out.is_terminal else {}
        rows = [
            (
                ids.get(one["id"], one["id"]),
                _who(one),
                one["role"],
                _where(one),
                when(session.out, one["created_at"]) if one["created_at"] else "–",
                in_line(one["created_by"] or "–"),
            )
            for one in found
        ]
        print_table(session.out, heads, rows)


@command("add")
@click.option("--person", metavar="NAME", help="The person, as the proxy names them. Or --group.")
@click.option("--group", metavar="NAME", help="Everybody in this group, as the proxy names it.")
@click.option(
    "--role",
    type=click.Choice(_ROLES),
    required=True,
    help="What they may do: `ask` starts and steers own conversations, `steer` all, `approve` decides, `admin` all.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="In conversations with this tag. Repeat it for several, of which each is needed. Without it: everywhere.",
)
def add_grant(session: CommandSession, person: str | None, group: str | None, role: str, tags: tuple[str, ...]) -> None:
    """Give a person, or everybody in a group, a role.

    Everybody with a grant reads all conversations.
    """
    if (person is None) == (group is None):
        raise Failed(2, "Give --person or --group, one of them")
    wanted: dict[str, Any] = {"person": person, "group": group, "role": role}
    pairs = [tag.partition("=") for tag in tags]
    wanted["tags"] = {name: value if sign else None for name, sign, value in pairs} or None
    made = session.client().make_grant({name: value for name, value in wanted.items() if value is not None})
    session.tell(made, f"Added grant {made['id']}: {_who(made)}, {made['role']} {_where(made)}")


@command("rm")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, callback=id_from(_LISTING))
def revoke_grant(session: CommandSession, ids: tuple[str, ...]) -> None:
    """Revoke grants.

    They open nothing from the next request on, and what their people have open ends. ID is that of a grant, or its
    beginning.
    """
    client = session.client()
    known = [one["id"] for one in client.grants()]
    whole = [beginning_of("grants", known, one) for one in ids]
    for one in whole:
        client.revoke_grant(one)
    session.tell(whole, f"Revoked: {', '.join(whole)}", style="dim")


def _who(grant: GrantInfo) -> str:
    return in_line(grant["person"] or f"@{grant['group']}")


def _where(grant: GrantInfo) -> str:
    tags = [name if value is None else f"{name}={value}" for name, value in sorted((grant["tags"] or {}).items())]
    return in_line(f"where {' and '.join(tags)}" if tags else "everywhere")


if isinstance(grants, click.Group):
    for _one in (list_grants, add_grant, revoke_grant):
        grants.add_command(_one)

COMMANDS = (grants,)
