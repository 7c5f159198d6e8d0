"""Commands about what waits for a decision: inbox, approve, reject. Each decision is bound to what was shown."""

import sys
from collections.abc import Iterable
from itertools import groupby
from typing import Any

import click
from rich.text import Text

from agent_server_client._sync import Client, Destination, PendingAction
from agent_server_client.cli.program import NOT_DECIDED, NOT_FOUND, Failed, Session, command, print_json
from agent_server_client.cli.shown import card, destination_card
from agent_server_client.errors import AgentServerError
from agent_server_client.visible import in_line, visible

if sys.platform != "win32":
    import termios

#: what the server says of a decision that it did not take, in the words of the console
_PROBLEMS = {
    "not_pending": "Somebody was faster: it is decided already.",
    "expired": "Too late: its time is over, and the server rejects it.",
    "changed": "The action is not the one that was shown. Nothing was decided: look at it again.",
    "decided_alike": "The agent takes one decision for all that wait in this conversation.",
    "decided_together": "The agent takes one decision for all that wait in this conversation, another too. Look again.",
}

#: least characters of a digest on the command line
_DIGEST = 12

#: how long a decision about a destination holds, in words, and the option that says it
_SCOPES = {"once": "once", "conversation": "for the conversation", "always": "always"}
_SCOPE = click.option(
    "--scope",
    type=click.Choice(list(_SCOPES)),
    help="Of a destination: the next connection, as long as its sandbox is, or a rule for all. Default: approve once, "
    "reject for the conversation, as budgets alone can be.",
)

#: the reason of a rejection by `--approve never`
_NEVER = "Nothing is approved in this run."


class Approver:
    """Decides what waits while a run is followed: `ask`, `rules` or `never`."""

    def __init__(self, session: Session, mode: str | None) -> None:
        is_person = sys.stdin.isatty() and session.err.is_terminal
        if mode == "ask" and not is_person:
            raise Failed(2, "--approve ask needs a terminal: `rules` leaves it to the inbox, `never` rejects it")
        self._session, self._mode = session, mode or ("ask" if is_person else "rules")
        self._decided: set[str] = set()

    def anew(self) -> "Approver":
        """One that has not been asked about anything."""
        return Approver(self._session, self._mode)

    def decide(self, action: PendingAction) -> None:
        """Decide an action, or leave it waiting."""
        if action.id in self._decided:
            return
        together = action.item["decided_together"]
        group = action.conversation.pending_actions() if together else [action]
        self._decided |= {one.id for one in group}
        if not group:
            return
        if self._mode == "never":
            self._tell(group, "reject", _NEVER)
            return
        for one in group:
            self._session.err.print(card(one.item))
        if self._mode == "rules":
            self._session.err.print(f"It waits for a decision: agentctl approve {action.id[:8]}", style="yellow")
            return
        choice = self._ask(len(group))
        if choice == "approve":
            self._tell(group, "approve")
        elif choice == "reject":
            self._tell(group, "reject", click.prompt("Reason", default="", show_default=False, err=True))
        else:
            self._session.err.print(f"It goes on waiting: agentctl approve {action.id[:8]}", style="dim")

    def _ask(self, number: int) -> str:
        _forget_typed()
        all_of = f" all {number}" if number > 1 else ""
        words = f"{click.style('a', bold=True)}pprove{all_of}, {click.style('r', bold=True)}eject{all_of}, or "
        answer: str = click.prompt(
            f"{words}{click.style('l', bold=True)}eave it waiting?",
            type=click.Choice(["a", "approve", "r", "reject", "l", "leave"]),
            show_choices=False,
            err=True,
        )
        return next(verb for verb in ("approve", "reject", "leave") if verb.startswith(answer))

    def _tell(self, group: list[PendingAction], verb: str, reason: str = "") -> None:
        """Decide, and report the result: somebody else's decision does not end the run."""
        try:
            _decide(group, verb, reason)
        except AgentServerError as error:
            if not error.problems:
                raise
            self._session.err.print(_words_of(error), style="yellow")
        else:
            self._session.err.print("Approved." if verb == "approve" else "Rejected.", style="dim")


@command()
@click.option("-w", "--watch", is_flag=True, help="Go on: show what opens and what is decided, until Ctrl-C.")
@click.option("--text", help="Those with this in the tool, the arguments, the thought or the title.")
def inbox(session: Session, watch: bool, text: str | None) -> None:
    """Show what waits for a decision: actions, the oldest first, then what sandboxes ask to reach, and budgets."""
    if watch:
        _watch(session, session.client(patient=True))
        return
    client = session.client()
    actions = client.pending_actions(text=text)
    destinations = [one for one in _destinations(client) if text is None or text.casefold() in one.id]
    if session.as_json:
        print_json([*(one.item for one in actions), *(one.item for one in destinations)])
        return
    for one in actions:
        session.out.print(card(one.item))
    for asked in destinations:
        session.out.print(destination_card(asked.item))
    words = "agentctl approve ID, or agentctl reject ID" if actions or destinations else "Nothing waits for a decision."
    named = ", or ".join(dict.fromkeys(one.id if one.budget else "NAME:PORT" for one in destinations))
    session.err.print(words + (f": {named}" if named else ""), style="dim")


@command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--digest", help="Approve only what has this digest, or one that begins so (12 characters or more).")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_SCOPE
def approve(session: Session, ids: tuple[str, ...], digest: str | None, yes: bool, scope: str | None) -> None:
    """Approve actions that wait, what sandboxes ask to reach, or a budget that is used up once more.

    ID is that of an action, or of a conversation for all its actions, or the beginning of one; or NAME:PORT, as in
    pypi.org:443, of a destination; or budget:conversation, budget:key or budget:day. They are shown first. A program
    gives the --digest of what it has looked at.
    """
    client = session.client()
    destinations, others = _asked(client, ids, scope)
    actions = _named(client, others)
    waiting: list[PendingAction | Destination] = [*actions, *destinations]
    if digest is not None:
        own = [one for one in waiting if one.item["digest"].startswith(digest.lower())]
        if len(digest) < _DIGEST or (len(waiting) != 1 and not (destinations and len(own) == 1)):
            raise Failed(2, f"--digest is of one action or destination, and has {_DIGEST} characters or more")
        if not own:
            raise Failed(NOT_DECIDED, _PROBLEMS["changed"])
        actions, destinations = [one for one in actions if one in own], [one for one in destinations if one in own]
    elif not yes and not sys.stdin.isatty():
        raise Failed(2, "Nobody can be asked here: give --digest, or --yes")
    if not session.as_json:
        for one in actions:
            session.err.print(card(one.item))
        for asked in destinations:
            session.err.print(destination_card(asked.item))
    if digest is None and not yes:
        _forget_typed()
        click.confirm(f"Approve {'this' if len(waiting) == 1 else f'these {len(waiting)}'}?", abort=True, err=True)
    decided = [_decide_destination(session, one, "approve", scope or "once") for one in destinations]
    _decide_and_say(session, actions, "approve", others=decided)


@command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", "-r", default="", help="What the agent reads; of a destination, what the audit has.")
@_SCOPE
def reject(session: Session, ids: tuple[str, ...], reason: str, scope: str | None) -> None:
    """Reject actions that wait, what sandboxes ask to reach, or more of a budget that is used up.

    ID is that of an action, or of a conversation for all its actions, or the beginning of one; or NAME:PORT of a
    destination; or budget:conversation, budget:key or budget:day.
    """
    client = session.client()
    destinations, others = _asked(client, ids, scope)
    actions = _named(client, others)
    told = scope or "conversation"
    decided = [_decide_destination(session, one, "reject", told, reason) for one in destinations]
    _decide_and_say(session, actions, "reject", reason, others=decided)


def _destinations(client: Client) -> list[Destination]:
    """What sandboxes ask to reach; nothing at a server that does not know of it."""
    try:
        return client.destinations()
    except AgentServerError as error:
        if error.status == 404:
            return []
        raise


def _asked(client: Client, ids: tuple[str, ...], scope: str | None) -> tuple[list[Destination], list[str]]:
    """What waits under those ids that are NAME:PORT, and the other ids. Raises Failed."""
    named = [one.lower() for one in ids if ":" in one]
    others = [one for one in ids if ":" not in one]
    if scope is not None and others:
        raise Failed(2, "--scope is of destinations alone, which are NAME:PORT, and of budgets")
    waiting = _destinations(client) if named else []
    for one in named:
        if all(asked.id != one for asked in waiting):
            raise Failed(NOT_FOUND, f"No sandbox asks for {one}: it may be decided already. agentctl inbox")
    return [asked for asked in waiting if asked.id in named], others


def _decide_destination(
    session: Session, asked: Destination, verb: str, scope: str, reason: str = ""
) -> dict[str, Any]:
    try:
        decided = asked.approve(scope) if verb == "approve" else asked.reject(reason, scope)
    except AgentServerError as error:
        if error.status not in (404, 409):
            raise
        raise Failed(NOT_DECIDED, error.detail, status=error.status) from error
    if not session.as_json:
        words = f"{'Approved' if verb == 'approve' else 'Rejected'}{'' if asked.budget else f' {_SCOPES[scope]}'}: "
        session.err.print(Text.assemble(words, (in_line(asked.id), "bold"), f"  sandbox {asked.item['sandbox_id']}"))
    item = asked.item
    shown = {"sandbox_id": item["sandbox_id"], "name": item["name"], "port": item["port"], "digest": item["digest"]}
    return {
        "subject": item["subject"],
        **shown,
        "budget": asked.budget,
        "decision": verb,
        "scope": scope,
        "rule_id": decided["rule_id"],
    }


def _named(client: Client, starts: Iterable[str]) -> list[PendingAction]:
    """The pending actions of ids, or of beginnings of them. Raises Failed."""
    waiting, found = client.pending_actions(), dict[str, PendingAction]()
    for start in starts:
        own = [one for one in waiting if one.id.startswith(start)]
        if len({one.id for one in own}) > 1:
            raise Failed(2, f"Several actions begin with {start}: {', '.join(one.id for one in own[:5])}")
        conversations = {one.conversation.id for one in waiting if one.conversation.id.startswith(start)}
        if not own and len(conversations) > 1:
            raise Failed(2, f"Several conversations begin with {start}: {', '.join(sorted(conversations)[:5])}")
        matched = own or [one for one in waiting if one.conversation.id in conversations]
        if not matched:
            raise Failed(NOT_FOUND, f"Nothing waits under {start}: it may be decided already. agentctl inbox")
        together = {one.conversation.id for one in matched if one.item["decided_together"]}
        matched += [one for one in waiting if one.conversation.id in together]
        found |= {one.id: one for one in matched}
    return list(found.values())


def _decide(actions: list[PendingAction], verb: str, reason: str = "") -> None:
    """Decide actions, those of a conversation all or none."""
    by_conversation = sorted(actions, key=lambda one: one.conversation.id)
    for _, some in groupby(by_conversation, key=lambda one: one.conversation.id):
        group = list(some)
        group[0].conversation.decide(group, verb, **({"reason": reason} if reason else {}))


def _decide_and_say(
    session: Session,
    actions: list[PendingAction],
    verb: str,
    reason: str = "",
    others: Iterable[dict[str, Any]] = (),
) -> None:
    """others: of the JSON, what was decided beside the actions."""
    try:
        _decide(actions, verb, reason)
    except AgentServerError as error:
        if not error.problems:
            raise
        raise Failed(NOT_DECIDED, _words_of(error), status=error.status) from error
    if session.as_json:
        own = [{"action_id": one.id, "digest": one.item["digest"], "decision": verb} for one in actions]
        print_json([*own, *others])
        return
    for one in actions:
        words = "Approved" if verb == "approve" else "Rejected"
        summary = in_line(one.item["summary"] or "")
        session.err.print(Text.assemble(f"{words}: ", (in_line(one.item["tool_name"]), "bold"), f"  {summary}"))


def _watch(session: Session, client: Client) -> None:
    shown: set[str] = set()
    for name, data in client.inbox(destinations=True):
        if session.as_json:
            print_json({"event": name, **data})
            continue
        if name.startswith("destination"):
            _tell_destination(session, name, data)
            continue
        for item in data.get("items", [data] if name == "opened" and "digest" in data else []):
            if item["action_id"] not in shown:
                shown.add(item["action_id"])
                session.out.print(card(item))
        if name in ("decided", "expired", "closed"):
            shown.discard(data["action_id"])
            who = in_line((data.get("actor") or {}).get("name") or "")
            words = {"decided": f"{data.get('decision')} by {who}", "expired": "rejected by its deadline"}
            reason = visible(data.get("reason") or "", prose=True)
            told = f"{data['action_id'][:8]}  {words.get(name, 'waits no longer')}  {reason}"
            session.out.print(Text(told, "dim"), soft_wrap=True)


def _tell_destination(session: Session, name: str, data: Any) -> None:
    for item in data["items"] if name == "destinations" else [data] if name == "destination_opened" else []:
        session.out.print(destination_card(item))
    if name in ("destination_decided", "destination_expired", "destination_closed"):
        who = in_line((data.get("actor") or {}).get("name") or "")
        words = {"destination_decided": f"{data.get('decision')} by {who}", "destination_expired": "it expired"}
        of = data["budget"]["setting"] if data["subject"] == "budget" else f"{data['name']}:{data['port']}"
        told = f"{in_line(of)}  {words.get(name, 'its sandbox has ended')}"
        session.out.print(Text(told, "dim"), soft_wrap=True)


def _words_of(error: AgentServerError) -> str:
    return next((_PROBLEMS[one["problem"]] for one in error.problems if one["problem"] in _PROBLEMS), error.detail)


def _forget_typed() -> None:
    """Drop what was typed before a question was shown: no key that was meant for something else decides."""
    if sys.platform != "win32":
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


COMMANDS = (inbox, approve, reject)
