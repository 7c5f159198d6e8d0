"""Commands about approval rules: list, add, revoke, rehearse, and keep them in a file."""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from agent_server_client._sync import Client
from agent_server_client.cli.durations import duration
from agent_server_client.cli.program import (
    REFUSED,
    STOPPED_SHORT,
    CommandSession,
    Failed,
    beginning_of,
    command,
    id_from,
    print_json,
)
from agent_server_client.cli.questions import agrees
from agent_server_client.cli.rule_files import BadFile, Difference, arguments_of, difference, in_words, read_file
from agent_server_client.cli.shown import counted, print_table, shortest, when
from agent_server_client.models import ApprovalRule
from agent_server_client.visible import in_line, visible

_Decorator = Callable[[Callable[..., None]], Callable[..., None]]

#: what lists the ids of rules
_LISTING = "agentctl rules"

#: Entries of the audit that a rehearsal reads at once; beyond them it runs in the background.
_PAGE = 100

#: Seconds between two questions about a rehearsal in the background.
_POLL = 0.5

#: what is said where there are no rules
_NO_RULES = (
    "No rules: every action that needs a decision waits for a person. Add one: "
    'agentctl rules add --decision approve --tool terminal --command "git status *"'
)

_COLOURS = {"approve": "green", "reject": "red"}

_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


def _rule_options(function: Callable[..., None], *, required: bool = True) -> Callable[..., None]:
    """The options that say what a rule decides."""
    options: list[_Decorator] = [
        click.option(
            "--decision",
            type=click.Choice(["approve", "reject"]),
            required=required,
            help="What the rule does, unasked.",
        ),
        click.option("--tool", required=required, metavar="NAME", help="The tool, as the agent names it: terminal."),
        click.option(
            "--command",
            "line",
            metavar="PATTERN",
            help='A command of a shell line: "git status *". Each command of a line needs such a rule.',
        ),
        click.option("--path", metavar="PATTERN", help='The path of a file tool, whatever is written there: "src/**".'),
        click.option("--any", "others", multiple=True, metavar="NAME", help="An argument that may be anything."),
        click.option(
            "--risk",
            type=click.Choice(["low", "medium", "high"], case_sensitive=False),
            help="The highest risk, as the agent rates it and as the server sees it. Without it: any.",
        ),
        click.option(
            "--effect",
            "effects",
            multiple=True,
            metavar="NAME",
            help="An effect that the server sees: reads, writes_inside, network, deletes. A rule that approves allows "
            "no other, one that rejects needs one of them. Without it: any.",
        ),
        click.option("--conversation", metavar="ID", help="In one conversation. Without it: in all."),
        click.option("--folder", metavar="PATH", help="In conversations that work in this folder or below it."),
        click.option("--repository", metavar="NAME", help="In conversations about a repository: github.com/ada/shop."),
        click.option("--machine", metavar="NAME", help="In conversations of agents that say they run on this machine."),
        click.option("--person", metavar="NAME", help="In conversations of agents that say they run for this user."),
        click.option("--agent", metavar="NAME", help="In conversations of agents of this name: claude-code."),
        click.option("--key", metavar="ID", help="In conversations that this key starts. `agentctl keys` lists ids."),
        click.option(
            "--for",
            "lasts",
            metavar="TIME",
            callback=duration,
            help="How long it holds: 30m, 12h, 7d. Without it: ever.",
        ),
        click.option("--uses", type=click.IntRange(1), metavar="N", help="How many actions it decides at most."),
        click.option("--reason", default="", help="Why. The list of rules shows it."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _body(
    session: CommandSession,
    client: Client,
    *,
    decision: str,
    tool: str,
    line: str | None,
    path: str | None,
    others: tuple[str, ...],
    risk: str | None,
    effects: tuple[str, ...],
    conversation: str | None,
    folder: str | None,
    repository: str | None,
    machine: str | None,
    person: str | None,
    agent: str | None,
    key: str | None,
    lasts: timedelta | None,
    uses: int | None,
    reason: str,
) -> dict[str, Any]:
    """The rule of the options, as the server takes it."""
    try:
        ends = (datetime.now(UTC) + lasts).isoformat() if lasts else None
    except OverflowError:
        raise Failed(2, "The rule would end after the year 9999. Leave --for out for one that never ends") from None
    wanted = {
        "decision": decision,
        "tool_name": tool,
        "arguments": arguments_of(line, path, others),
        "max_risk": risk and risk.upper(),
        "effects": list(effects) or None,
        "conversation_ids": None if conversation is None else [session.conversation(client, conversation).id],
        "folder": folder,
        "repository": repository,
        "machine": machine,
        "person": person,
        "agent": agent,
        "key_id": key,
        "expires_at": ends,
        "max_uses": uses,
        "reason": reason,
    }
    return {name: value for name, value in wanted.items() if value not in (None, "")}


@command(cls=click.Group, invoke_without_command=True)
def rules(session: CommandSession) -> None:
    """List, add, rehearse and revoke approval rules."""
    if not click.get_current_context().invoked_subcommand:
        _list(session)


@command("ls")
@click.option("-a", "--all", "is_all", is_flag=True, help="Then those that were revoked: by whom, and when.")
def list_rules(session: CommandSession, is_all: bool) -> None:
    """List the rules, the newest first."""
    _list(session, is_all)


def _list(session: CommandSession, is_all: bool = False) -> None:
    found = session.client().rules(ended=is_all)
    if session.as_json:
        print_json(found)
    elif not found:
        session.err.print(_NO_RULES, style="dim")
    else:
        heads = ("ID", "DECISION", "WHAT", "USES", "UNTIL", "WHO")
        ids = shortest(one["id"] for one in found) if session.out.is_terminal else {}
        print_table(session.out, heads, [(ids.get(one["id"], one["id"]), *_row(session, one)) for one in found])


def _row(session: CommandSession, rule: ApprovalRule) -> tuple[str | Text, ...]:
    uses = f"{rule['uses']:,}" + (f" of {most:,}" if (most := rule["max_uses"]) else "")
    ends = rule["expires_at"]
    until = "until revoked" if not ends else ends[:16].replace("T", " ") if session.out.is_terminal else ends
    if rule.get("ended_at"):
        until = f"{'revoked' if rule['ended_by'] else 'expired'} {when(session.out, rule['ended_at'])}"
    decision = Text(rule["decision"], _COLOURS.get(rule["decision"], ""))
    return decision, in_words(rule), uses, until, _people(rule)


def _people(rule: ApprovalRule) -> str:
    """Who made a rule, and who revoked it."""
    maker, ender = in_line(rule["created_by"] or "–"), in_line(rule.get("ended_by") or "")
    return f"{maker}, revoked by {ender}" if ender else maker


@command("add")
@_rule_options
def add_rule(session: CommandSession, **options: Any) -> None:
    """Add a rule, which decides from now on, unasked.

    Without --command and --path it holds whatever the arguments are. A rule that rejects wins over rules that approve.
    `agentctl rules rehearse` with the same options says what it would have decided.
    """
    client = session.client()
    made = client.make_rule(_body(session, client, **options))
    session.tell(made, _said("Added", made))


def _said(verb: str, rule: ApprovalRule) -> str:
    return f"{verb} rule {rule['id']}: {_does(rule)}"


def _does(rule: Any) -> str:
    return f"{'approves' if rule['decision'] == 'approve' else 'rejects'} {in_words(rule)}"


@command("rm")
@click.argument("ids", metavar="ID...", nargs=-1, required=True, callback=id_from(_LISTING))
def revoke_rule(session: CommandSession, ids: tuple[str, ...]) -> None:
    """Revoke rules.

    Such actions wait for a person again. ID is that of a rule, or its beginning.
    """
    client = session.client()
    known = [one["id"] for one in client.rules()]
    whole = [beginning_of("rules", known, one) for one in ids]
    for one in whole:
        client.revoke_rule(one)
    session.tell(whole, f"Revoked: {', '.join(whole)}", style="dim")


@command("rehearse")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@partial(_rule_options, required=False)
def rehearse_rule(session: CommandSession, file: Path | None, **options: Any) -> None:
    """Say what rules would have decided, without making them.

    FILE is a TOML file of rules: those that the server does not have are rehearsed. Without FILE the options say what
    the rule decides. A rule is tried on the decisions of people that the server has recorded. Exit code 1: people
    decided some of what it answers otherwise, by a rejection or an edit. These are shown.
    """
    client = session.client()
    drafts = _drafts(session, client, file, options)
    if not drafts:
        session.err.print("The server has every rule of the file: there is nothing to rehearse", style="dim")
    is_contrary = False
    for number, body in enumerate(drafts):
        total = _rehearsed(session, client, body)
        is_contrary = is_contrary or total["rejected"] > 0
        if session.as_json:
            print_json({"rule": body, **total})
        else:
            if number:
                session.out.print()
            _print_rehearsal(session, body, total)
    if is_contrary:
        raise click.exceptions.Exit(REFUSED)


def _drafts(
    session: CommandSession, client: Client, file: Path | None, options: dict[str, Any]
) -> list[dict[str, Any]]:
    """The rules to rehearse. Raises Failed where neither or both of a file and options name them."""
    given = any(value not in (None, "", ()) for value in options.values())
    if file is not None and given:
        raise Failed(2, "Give a file of rules, or the options of one rule, not both")
    if file is not None:
        return difference(_read(file), client.rules()).missing
    if options["decision"] is None or options["tool"] is None:
        raise Failed(2, "Give a file of rules, or --decision and --tool of one rule")
    return [_body(session, client, **options)]


def _rehearsed(session: CommandSession, client: Client, body: dict[str, Any]) -> dict[str, Any]:
    """The sums of a rehearsal on all decisions: at once where one page has them, else in the background."""
    with session.waiting("Reading what was decided") as update:
        found = client.post(f"/api/v1/approval-rules/rehearse?limit={_PAGE}", body)
        if found["next_page_id"]:
            found = client.post("/api/v1/approval-rules/rehearsals", body)
            while found["state"] == "running":
                update(f"Read {found['read']:,} of {found['of']:,} entries of the audit")
                time.sleep(_POLL)
                found = client.get(f"/api/v1/approval-rules/rehearsals/{found['id']}")
            if found["state"] == "failed":
                raise Failed(STOPPED_SHORT, found["detail"])
            if found["detail"]:
                session.err.print(in_line(found["detail"]), style="yellow")
    return {name: found[name] for name in ("decided", "answered", "rejected", "unread", "examples")}


def _print_rehearsal(session: CommandSession, body: dict[str, Any], total: dict[str, Any]) -> None:
    decided, answered, rejected = total["decided"], total["answered"], total["rejected"]
    session.out.print(f"This rule {_does(body)}.")
    session.out.print(f"It would have answered {answered:,} of {counted(decided, 'decision')} of people.")
    if rejected:
        session.out.print(f"People decided {rejected:,} of them otherwise:", style="bold red")
    shown = [one for one in total["examples"] if one["decision"] != body["decision"]]
    if shown:
        rows = [
            (
                when(session.out, one["time"]),
                one["decision"],
                in_line(one["actor"]["name"] or "–"),
                in_line(one["text"]),
            )
            for one in shown
        ]
        print_table(session.out, ("WHEN", "DECISION", "WHO", "WHAT"), rows)
    if total["unread"]:
        words = "could not be read: the conversations are deleted or in cold storage"
        session.err.print(f"{counted(total['unread'], 'decision')} {words}", style="dim")


@command("diff")
@_FILE
def diff_rules(session: CommandSession, file: Path) -> None:
    """Compare the rules of a TOML file with those of the server.

    Rules are compared by what they decide, not by their ids and reasons. Exit code 1: they differ.
    """
    found = difference(_read(file), session.client().rules())
    session.tell(_as_json(found), _in_lines(found, is_whole=True))
    if found.missing or found.extra:
        raise click.exceptions.Exit(REFUSED)


@command("apply")
@_FILE
@click.option("--prune", is_flag=True, help="Revoke the rules that the file does not have.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def apply_rules(session: CommandSession, file: Path, prune: bool, yes: bool) -> None:
    """Make the rules of a TOML file that the server does not have."""
    wanted, client = _read(file), session.client()
    found = difference(wanted, client.rules())
    revoked = found.extra if prune else []
    if not session.as_json:
        session.err.print(_in_lines(found, is_whole=prune))
    if found.missing or revoked:
        if not yes and not sys.stdin.isatty():
            raise Failed(2, "Nobody can be asked here: give --yes")
        if not yes and not agrees(session, "Apply this?"):
            raise Failed(REFUSED, "No rule was changed")
    made, gone = _apply(client, found.missing, revoked)
    if session.as_json:
        print_json({"made": [one["id"] for one in made], "revoked": gone, "same": found.same})
        return
    for one in made:
        session.err.print(_said("Added", one))
    if gone:
        session.err.print(f"Revoked: {', '.join(gone)}", style="dim")


def _apply(
    client: Client, missing: list[dict[str, Any]], revoked: list[ApprovalRule]
) -> tuple[list[ApprovalRule], list[str]]:
    """Make and revoke rules: those made, and the ids of those revoked.

    What forbids comes first and goes last, so that no moment approves what neither the server nor the file approves.
    """
    made, gone = [], []
    for decision, other in (("reject", "approve"), ("approve", "reject")):
        made += [client.make_rule(one) for one in missing if one["decision"] == decision]
        for one in revoked:
            if one["decision"] == other:
                client.revoke_rule(one["id"])
                gone.append(one["id"])
    return made, gone


def _read(file: Path) -> list[dict[str, Any]]:
    try:
        return read_file(file)
    except BadFile as error:
        raise Failed(2, str(error)) from None


def _as_json(found: Difference) -> dict[str, Any]:
    return {"missing": found.missing, "extra": found.extra, "same": found.same}


def _in_lines(found: Difference, *, is_whole: bool) -> Text:
    """The difference as lines of + and -. is_whole: with the rules that the file does not have."""
    lines = [Text(f"+ {visible(_does(one))}", "green") for one in found.missing]
    if is_whole:
        lines += [Text(f"- {visible(_does(one))}  {one['id']}", "red") for one in found.extra]
    elif found.extra:
        lines.append(Text(f"{counted(len(found.extra), 'rule')} of the server stay; --prune revokes them", "dim"))
    return Text("\n").join([*lines, Text(f"{counted(found.same, 'rule')} as in the file", "dim")])


if isinstance(rules, click.Group):
    for _one in (list_rules, add_rule, revoke_rule, rehearse_rule, diff_rules, apply_rules):
        rules.add_command(_one)

COMMANDS = (rules,)
