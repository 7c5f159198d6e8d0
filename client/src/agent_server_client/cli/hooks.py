"""Commands for agents that run in terminals elsewhere: install, status and remove their hooks."""

import os
import sys
from contextlib import closing
from pathlib import Path

import click
from agentctl.hooks import NAMES, install, settings
from agentctl.hooks.asking import alive
from agentctl.hooks.wire import Away, ServerConnection
from rich.text import Text

from agent_server_client._sync import Client
from agent_server_client.cli.program import NOT_ALLOWED, REFUSED, CommandSession, Failed, command, print_json
from agent_server_client.cli.shown import print_table
from agent_server_client.errors import AgentServerError
from agent_server_client.visible import in_line

#: What is said of a server that takes the key of the hooks.
_ANSWERS = "it answers"

#: What nothing on this machine can hold.
_LIMIT = "An agent that may write your files can take the hook out. A sandbox or managed settings enforce; a hook asks."

_agent = click.argument("name", type=click.Choice(NAMES))
_project = click.option("--project", is_flag=True, help="The file of the project in this folder, not your own.")


@command(cls=click.Group, invoke_without_command=True)
def hook(session: CommandSession) -> None:
    """Let agents in your terminals ask in the inbox too.

    Claude Code, Codex, opencode, Copilot CLI and Qwen Code go on running where they are. `agentctl hook NAME` is the
    command that they run for each question; its settings are in ~/.config/agentctl/hooks.json.
    """
    if not click.get_current_context().invoked_subcommand:
        _show_status(session)


@command("install")
@_agent
@_project
@click.option("--gate", is_flag=True, help="Also hold calls that the agent does not ask for: for unattended runs.")
@click.option("--require/--no-require", default=None, help="Refuse while the server is away.  [default: the terminal]")
@click.option("--patience", type=click.FloatRange(1, 3600), help="Seconds before a terminal asks that asks second.")
@click.option("--key", metavar="KEY", help="A key of the scope `ask`; - reads it from stdin.  [default: made]")
def install_hook(
    session: CommandSession,
    name: str,
    project: bool,
    gate: bool,
    require: bool | None,
    patience: float | None,
    key: str | None,
) -> None:
    """Install the hook of an agent.

    It goes into the file that the agent reads, beside what you have there. The key of the hook can ask, and reads and
    decides nothing.
    """
    client = session.client()
    try:
        values = settings.read()
        is_required = bool(values.get("require")) if require is None else require
        path = install.file_of(name, Path.cwd() if project else None)
        values |= _reached(client, values, sys.stdin.readline().strip() if key == "-" else key)
        values |= {"require": is_required} | ({"patience": patience} if patience else {})
        settings.write(values)
        changed = install.install(name, path, gate=gate, require=is_required)
    except (install.CannotEdit, settings.BadSettings) as error:
        raise Failed(REFUSED, str(error)) from None
    form, version = install.FORMS[name], install.version_of(name)
    found = {"agent": name, "file": str(path), "changed": changed, "version": version, "measured": form.measured}
    if session.as_json:
        print_json({**found, "asks": form.asked, "does_unasked": form.unasked, "to_do": form.trust})
        return
    session.out.print(f"{'Installed in' if changed else 'Installed already in'} {path}", soft_wrap=True)
    rows = [("version", _version(version, form.measured)), ("order", form.order), ("asks", form.asked)]
    rows += [("unasked", form.unasked), ("to do", form.trust)]
    if name != "opencode":
        rows.append(("tells", "prompts, calls that ran, and ends: the log of the session shows them"))
    if is_required:
        rows.append(("away", "While the server is away, each question is refused."))
    for label, words in rows:
        session.out.print(Text.assemble((label.ljust(9), "dim"), words), soft_wrap=True)
    session.err.print(_LIMIT, style="dim", soft_wrap=True)


@command("status")
def hook_status(session: CommandSession) -> None:
    """Show which agents have a hook, and whether its server answers."""
    _show_status(session)


def _show_status(session: CommandSession) -> None:
    try:
        values = settings.read()
        answers = _answers(values)
        rows = []
        for name in NAMES:
            places = [install.file_of(name, None)]
            places += [install.file_of(name, Path.cwd())] if install.FORMS[name].project else []
            has = [str(one) for one in dict.fromkeys(places) if install.is_installed(name, one)]
            rows.append((name, install.version_of(name), has))
    except (install.CannotEdit, settings.BadSettings) as error:
        raise Failed(REFUSED, str(error)) from None
    if session.as_json:
        agents = [{"agent": name, "version": version, "files": has} for name, version, has in rows]
        print_json(
            {"url": values.get("url"), "server": answers, "require": bool(values.get("require")), "agents": agents}
        )
        return
    shown = [
        (
            name,
            "not found" if version is None else version or "–",
            install.FORMS[name].measured,
            ", ".join(map(in_line, has)) or "–",
        )
        for name, version, has in rows
    ]
    print_table(session.out, ("AGENT", "VERSION", "MEASURED", "HOOK"), shown)
    session.err.print(f"The server of the hooks: {answers}", soft_wrap=True)


@command("remove")
@_agent
@_project
def remove_hook(session: CommandSession, name: str, project: bool) -> None:
    """Take the hook of an agent out again, and nothing else.

    The key stays: `agentctl keys` shows it, and `agentctl keys revoke ID` ends it.
    """
    try:
        path = install.file_of(name, Path.cwd() if project else None)
        changed = install.remove(name, path)
    except (install.CannotEdit, settings.BadSettings) as error:
        raise Failed(REFUSED, str(error)) from None
    words = f"Removed from {path}" if changed else f"{path} has no hook of ours"
    session.tell({"agent": name, "file": str(path), "changed": changed}, words, style="dim")


def _version(version: str | None, measured: str) -> str:
    if version is None:
        return f"not found on the PATH; measured with {measured}"
    same = version == measured
    return f"{version}, measured" if same else f"{version or 'not told'}; measured with {measured}, others may differ"


def _reached(client: Client, values: dict[str, object], key: str | None) -> dict[str, object]:
    """Return the server and the key of the hooks. Raises Failed where nobody may make one here."""
    url = client.url.rstrip("/")
    if key:
        return {"url": url, "key": key}
    if values.get("url") == url and values.get("key") and _answers(values) == _ANSWERS:
        return {}
    auth = client.server_info().get("auth", "keys")
    # With a stored key, a server that is open until a key asks for one from its next start.
    if auth == "open" or (auth == "open_until_key" and not client.keys()):
        return {"url": url, "key": ""}
    try:
        made = client.make_key(f"hooks of {os.environ.get('USER') or 'a user'} at {os.uname().nodename}", ["ask"], None)
    except AgentServerError as error:
        if error.status != 403:
            raise
        words = (
            "Your key may not make the key of a hook. An admin makes one by `agentctl keys new NAME --scope ask`; "
            "give it by --key -"
        )
        raise Failed(NOT_ALLOWED, words, status=403) from None
    return {"url": url, "key": made["key"]}


def _answers(values: dict[str, object]) -> str:
    """Return whether the server of the settings takes their key, in words."""
    url, key = str(values.get("url") or ""), str(values.get("key") or "")
    if not url:
        return "none: agentctl hook install NAME"
    try:
        with closing(ServerConnection(url, key)) as server:
            alive(server)
    except Away as error:
        return str(error)
    return _ANSWERS


if isinstance(hook, click.Group):
    for _command in (install_hook, hook_status, remove_hook):
        hook.add_command(_command)

COMMANDS = (hook,)
