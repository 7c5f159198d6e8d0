"""Commands about what waits for a decision: inbox, approve, reject. Each decision is bound to what was shown."""

import sys
from collections.abc import Iterable
from itertools import groupby

import click
from rich.text import Text

from agent_server_client._sync import Client, PendingAction
from agent_server_client.cli.program import NOT_DECIDED, NOT_FOUND, Failed, Session, command, print_json
from agent_server_client.cli.shown import card
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
def inbox(session: Session, as_json: bool, watch: bool, text: str | None) -> None:
    """Show what waits for a decision, the oldest first."""
    if watch:
        _watch(session, session.client(patient=True), as_json)
        return
    actions = session.client().pending_actions(text=text)
    if as_json:
        print_json([one.item for one in actions])
        return
    for one in actions:
        session.out.print(card(one.item))
    words = "agentctl approve ID, or agentctl reject ID" if actions else "Nothing waits for a decision."
    session.err.print(words, style="dim")


@command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--digest", help="Approve only what has this digest, or one that begins so (12 characters or more).")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def approve(session: Session, as_json: bool, ids: tuple[str, ...], digest: str | None, yes: bool) -> None:
    """Approve actions that wait.

    ID is that of an action, or of a conversation for all its actions, or the beginning of one. They are shown
    first. A program gives the --digest of what it has looked at.
    """
    actions = _named(session.client(), ids)
    if digest is not None:
        if len(actions) != 1 or len(digest) < _DIGEST:
            raise Failed(2, f"--digest is of one action, and has {_DIGEST} characters or more")
        if not actions[0].item["digest"].startswith(digest.lower()):
            raise Failed(NOT_DECIDED, _PROBLEMS["changed"])
    elif not yes and not sys.stdin.isatty():
        raise Failed(2, "Nobody can be asked here: give --digest, or --yes")
    if not as_json:
        for one in actions:
            session.err.print(card(one.item))
    if digest is None and not yes:
        _forget_typed()
        click.confirm(f"Approve {'this' if len(actions) == 1 else f'these {len(actions)}'}?", abort=True, err=True)
    _decide_and_say(session, as_json, actions, "approve")


@command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", "-r", default="", help="What the agent reads.")
def reject(session: Session, as_json: bool, ids: tuple[str, ...], reason: str) -> None:
    """Reject actions that wait.

    ID is that of an action, or of a conversation for all its actions, or the beginning of one.
    """
    _decide_and_say(session, as_json, _named(session.client(), ids), "reject", reason)


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


def _decide_and_say(session: Session, as_json: bool, actions: list[PendingAction], verb: str, reason: str = "") -> None:
    try:
        _decide(actions, verb, reason)
    except AgentServerError as error:
        if not error.problems:
            raise
        raise Failed(NOT_DECIDED, _words_of(error), status=error.status) from error
    if as_json:
        print_json([{"action_id": one.id, "digest": one.item["digest"], "decision": verb} for one in actions])
        return
    for one in actions:
        words = "Approved" if verb == "approve" else "Rejected"
        summary = in_line(one.item["summary"] or "")
        session.err.print(Text.assemble(f"{words}: ", (in_line(one.item["tool_name"]), "bold"), f"  {summary}"))


def _watch(session: Session, client: Client, as_json: bool) -> None:
    shown: set[str] = set()
    for name, data in client.inbox():
        if as_json:
            print_json({"event": name, **data})
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


def _words_of(error: AgentServerError) -> str:
    return next((_PROBLEMS[one["problem"]] for one in error.problems if one["problem"] in _PROBLEMS), error.detail)


def _forget_typed() -> None:
    """Drop what was typed before a question was shown: no key that was meant for something else decides."""
    if sys.platform != "win32":
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


COMMANDS = (inbox, approve, reject)
