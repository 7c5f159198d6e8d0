"""Commands about the server: status, profiles, keys, completion."""

import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from click.shell_completion import get_completion_class
from rich.text import Text

from agent_server_client._sync import Client
from agent_server_client.cli.decisions import asked_for
from agent_server_client.cli.durations import duration
from agent_server_client.cli.profiles import BadProfile, are_private, file_of, listed, unchosen, without_password
from agent_server_client.cli.program import (
    REFUSED,
    CommandSession,
    Failed,
    agentctl,
    command,
    id_from,
    key_places,
    print_json,
)
from agent_server_client.cli.questions import agrees
from agent_server_client.cli.shown import counted, moment, print_table, size, when
from agent_server_client.models import KeyInfo, OwnGrant, SpecIsolation
from agent_server_client.visible import in_line, visible

_SCOPES = ("read", "write", "approve", "admin", "ask")

#: what a first key changes for a server that is open, and what to do before
_FIRST_KEY = (
    "This server is open now. With a first key, it asks for a key from its next start, and this one is not an admin's. "
    "Make yourself an admin key first: agentctl keys new me --scope admin"
)


#: what isolates the sandboxes of a spec, and what they reach
_KINDS = {
    "bubblewrap": "isolated by bubblewrap",
    "landlock": "confined by Landlock alone",
    "container": "in containers",
    "none": "NOT ISOLATED",
}
_NETWORKS = {
    "internet": "the internet",
    "named": "by name what the spec allows",
    "none": "no network",
    "host": "the network of that machine",
}


@command()
def whoami(session: CommandSession) -> None:
    """Show who you are to the server, and what you may do."""
    client = session.client()
    user = client.user()
    if session.as_json:
        members = ("id", "name", "scopes", "person", "groups", "grants")
        print_json({"url": client.url, **{name: user.get(name) for name in members}})
        return
    person = user.get("person")
    rows: list[tuple[str, str | Text]] = [
        ("server", Text(client.url, "bold")),
        ("person" if person else "key", in_line(person or user["name"])),
        ("scopes", ", ".join(user["scopes"]) or "none"),
    ]
    if groups := user.get("groups"):
        rows.append(("groups", ", ".join(map(in_line, groups))))
    rows += [("grant", _grant_of(one)) for one in user.get("grants") or ()]
    if person and not user.get("grants"):
        rows.append(("grant", "none: an admin gives one, for you or a group of yours"))
    _print_rows(session, rows)


def _grant_of(grant: OwnGrant) -> str:
    """What a grant lets a person do, and where."""
    tags = ", ".join(f"{in_line(name)}={in_line(str(value))}" for name, value in (grant["tags"] or {}).items())
    of = f", by the group {in_line(grant['group'])}" if grant["group"] else ""
    return f"{grant['role']} {f'in conversations with {tags}' if tags else 'in all conversations'}{of}"


@command()
def status(session: CommandSession) -> None:
    """Show the server, its hosts, and who you are.

    The command asks once. It ends with exit code 3 if the server is silent for 5 seconds.
    """
    client = session.client(once=True)
    if choice := unchosen(session.profile):
        session.err.print(f"No server is chosen, so this is {in_line(client.url)}. {choice}", style="yellow")
    with session.waiting(f"Waiting for {in_line(client.url)}"):
        info, user, waiting = client.server_info(), client.user(), client.get("/api/v1/pending-actions/count")
        asked = len(asked_for(client))
    if session.as_json:
        print_json({"url": client.url, "server": info, "user": user, "pending_actions": waiting, "destinations": asked})
        return
    rows: list[tuple[str, str | Text]] = [("server", Text(client.url, "bold"))]
    hosts = info["hosts"] or []
    rows += [("version", one["version"] or "–") for one in hosts[:1]]
    is_open = info.get("auth", "keys") != "keys"
    you = f"{in_line(user['name'])}: {', '.join(user['scopes'])}"
    rows.append(("you", f"{you} (the server is open: it needs no key)" if is_open else you))
    if store := info["store"]:
        kept = "durable" if store["durable"] else "not durable"
        memory = size(store["used_memory_bytes"])
        rows.append(("store", f"{store['kind']} {store['version'] or ''}, {kept} ({store['durability']}), {memory}"))
    rows.append(("workers", str(info["workers"])))
    if (places := info["sandboxes"]) is not None:
        number, most = places["running"], places["most"]
        told = f"{number} of {most} run (MAX_SANDBOXES)"
        if (others := sum(host["sandboxes"] for host in hosts) - number) > 0:
            told += f", {others} more {'is' if others == 1 else 'are'} paused or stopped"
        rows.append(("sandboxes", Text(told, "yellow" if number >= most else "")))
    isolation = {one["host"]: one.get("specs", []) for one in info["isolation"] or []}
    for host in hosts:
        seen = when(session.out, host["seen_at"])
        rows.append(
            ("host", f"{in_line(host['id'])}: {counted(host['sandboxes'], 'sandbox')} of any status, seen {seen}")
        )
        rows += [("", _isolation_of(one)) for one in isolation.get(host["id"], [])]
    if not hosts:
        rows.append(("host", Text("none: nothing can start in a sandbox", "bold red")))
    kinds = [counted(waiting, "action")] if waiting else []
    kinds += [f"{asked} {'destination or budget' if asked == 1 else 'destinations or budgets'}"] if asked else []
    words = f"{' and '.join(kinds)} for your decision: agentctl inbox"
    rows.append(("waiting", Text(words, "bold yellow") if kinds else "nothing"))
    if info["notice"]:
        rows.append(("notice", Text(visible(info["notice"], prose=True), "yellow")))
    _print_rows(session, rows)


def _print_rows(session: CommandSession, rows: list[tuple[str, str | Text]]) -> None:
    """Print names and what they are, in two columns."""
    width = max(20, session.out.width - 10) if session.out.is_terminal else 1 << 20
    for name, shown in rows:
        for place, line in enumerate(Text.assemble(shown).wrap(session.out, width)):
            session.out.print(Text.assemble((("" if place else name).ljust(10), "dim"), line), soft_wrap=True)


def _isolation_of(held: SpecIsolation) -> Text:
    kind, network = _KINDS.get(held["kind"], held["kind"]), _NETWORKS.get(held["network"], held["network"])
    colour = {"none": "bold red", "landlock": "yellow"}.get(held["kind"], "")
    return Text.assemble(f"{in_line(held['spec'])}: ", (kind, colour), f", reaches {network}")


@command()
def agents(session: CommandSession) -> None:
    """List the agents that the server offers, the default one first.

    `agentctl run --agent ID` starts one. On the machine of the server, `make agent` lists what can be installed, and
    `make agent NAME=…` installs it.
    """
    found = list(session.client().specs())
    if session.as_json:
        print_json(found)
        return
    rows = []
    for spec in found:
        agent: dict[str, Any] = spec["agent"] or {}
        title, version, holds, passes = (
            in_line(agent.get(name) or "–") for name in ("title", "version", "holds", "passes")
        )
        rows.append((spec["id"], title, version, holds if agent.get("asks", True) else "never asks", passes))
    print_table(session.out, ("ID", "NAME", "VERSION", "ASKS ABOUT", "DOES UNASKED"), rows)
    session.err.print("More agents: `make agent` on the machine of the server", style="dim")


@command()
def profiles(session: CommandSession) -> None:
    """List the servers of your configuration, without their keys.

    The file is ~/.config/agentctl/config.toml.
    """
    try:
        found = listed(session.profile)
    except BadProfile as error:
        raise Failed(2, str(error)) from None
    if session.as_json:
        print_json([one._asdict() for one in found])
    elif found:
        rows = [
            (in_line(one.name), in_line(one.url or "–"), "yes" if one.has_key else "no", "yes" if one.is_used else "–")
            for one in found
        ]
        print_table(session.out, ("NAME", "URL", "KEY", "USED"), rows)
    else:
        session.err.print(
            f"No profiles. Write a table [default] with `url` and `key` to {file_of(os.environ)}",
            style="dim",
            soft_wrap=True,
        )
    if any(one.has_key for one in found) and not are_private():
        session.err.print(f"Others can read the keys: chmod 600 {file_of(os.environ)}", style="yellow", soft_wrap=True)
    if not session.profile and (url := os.environ.get("AGENT_SERVER_URL")):
        session.err.print(
            f"AGENT_SERVER_URL comes first: {in_line(without_password(url))}", style="dim", soft_wrap=True
        )


@command(cls=click.Group, invoke_without_command=True)
def keys(session: CommandSession) -> None:
    """List, make and revoke keys."""
    if click.get_current_context().invoked_subcommand:
        return
    found = session.client().keys()
    if session.as_json:
        print_json(found)
        return
    if not found:
        session.err.print("No keys were made. Make one: agentctl keys new NAME", style="dim")
        return
    rows = []
    for key in found:
        ends, used = key["expires_at"], key["used_at"]
        row = (key["id"], in_line(key["name"]), " ".join(key["scopes"]), when(session.out, used) if used else "–")
        until = "never" if not ends else ends[:16].replace("T", " ") if session.out.is_terminal else ends
        rows.append((*row, until))
    print_table(session.out, ("ID", "NAME", "SCOPES", "USED", "ENDS"), rows)


@command("new")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    default=("read",),
    show_default=True,
    help="What the key may do. Repeat it for several.",
)
@click.option(
    "--for", "lasts", metavar="TIME", callback=duration, help="How long it is valid: 30m, 12h, 7d.  [default: forever]"
)
@click.option("--days", type=click.IntRange(1), help="The same as --for, in days.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before the first key of an open server.")
def new_key(
    session: CommandSession, name: str, scopes: tuple[str, ...], lasts: timedelta | None, days: int | None, yes: bool
) -> None:
    """Make a key. It is shown once, here.

    A server that is open asks for a key from its next start, once one is stored: make an admin key first.
    """
    if lasts and days:
        raise Failed(2, "--for and --days say the same. Leave one of them out")
    lasts = lasts or (timedelta(days=days) if days else None)
    try:
        ends = (datetime.now(UTC) + lasts).isoformat() if lasts else None
    except OverflowError:
        raise Failed(
            2, "The key would end after the year 9999. Leave --for and --days out for a key that never ends"
        ) from None
    client = session.client()
    live = _live_keys(client)
    if alike := [key["id"] for key in live if key["name"] == name]:
        more = f"agentctl keys revoke {' '.join(alike)}"
        session.err.print(f"Another key has the name {in_line(name)} and stays. To end it: {more}", style="yellow")
    is_first = "admin" not in scopes and _locks_admins_out(client, live)
    if is_first:
        session.err.print(_FIRST_KEY, style="yellow")
        is_asked = not yes and sys.stdin.isatty() and session.err.is_terminal
        if is_asked and not agrees(session, f"Make the key {in_line(name)} all the same?"):
            raise Failed(REFUSED, "No key was made")
    key = client.make_key(name, list(scopes), ends)
    if (notice := key.get("notice")) and not is_first:
        session.err.print(visible(notice, prose=True), style="yellow")
    if session.as_json:
        print_json(key)
    else:
        session.err.print(f"Key {key['id']} for {in_line(name)}. It is not shown again:", style="dim", soft_wrap=True)
        click.echo(key["key"])
        to_use = f"To use it here: {key_places(session.profile)}"
        session.err.print(to_use, style="dim")


def _live_keys(client: Client) -> list[KeyInfo]:
    """The keys that have not expired."""
    now, stored = datetime.now(UTC), client.keys()
    return [key for key in stored if not key["expires_at"] or moment(key["expires_at"]) > now]


def _locks_admins_out(client: Client, live: list[KeyInfo]) -> bool:
    """Whether the server is open until a first key is made, and none of the live ones is an admin's."""
    if any("admin" in key["scopes"] for key in live):
        return False
    return client.server_info().get("auth") == "open_until_key"


@command("revoke")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, callback=id_from("agentctl keys"))
def revoke_key(session: CommandSession, ids: tuple[str, ...]) -> None:
    """Revoke keys: they open nothing any more."""
    client = session.client()
    for one in ids:
        client.revoke_key(one)
    session.tell(list(ids), f"Revoked: {', '.join(ids)}", style="dim")


@command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(session: CommandSession, shell: str) -> None:
    """Print a script that completes commands and ids in a shell.

    bash: eval "$(agentctl completion bash)"; the same for zsh; fish: agentctl completion fish | source
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise Failed(2, f"click has no completion for {shell}")
    script = kind(agentctl, {}, "agentctl", "_AGENTCTL_COMPLETE").source()
    if session.as_json:
        print_json({"shell": shell, "script": script})
    else:
        session.out.out(script, highlight=False)


if isinstance(keys, click.Group):
    keys.add_command(new_key)
    keys.add_command(revoke_key)

COMMANDS = (status, whoami, agents, profiles, keys, completion)
