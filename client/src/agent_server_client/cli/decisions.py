"""Commands about what waits for a decision: inbox, approve, reject. Each decision is bound to what was shown."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from itertools import groupby
from math import inf
from typing import Any

import click
from rich.text import Text

from agent_server_client._sync import Client, Destination, PendingAction
from agent_server_client.cli.asking import (
    PROBLEMS,
    SCOPES,
    AskedActions,
    Outcome,
    PromptedDestination,
    PromptSubject,
    titles_of,
    words_of,
)
from agent_server_client.cli.decided import decider
from agent_server_client.cli.elsewhere import DecidedElsewhere, Elsewhere
from agent_server_client.cli.program import (
    INTERRUPTED,
    NOT_DECIDED,
    REFUSED,
    UNATTENDED,
    CommandSession,
    Failed,
    command,
    id_from,
    known_ids,
    print_json,
    several,
)
from agent_server_client.cli.progress import took
from agent_server_client.cli.questions import Read, agrees, confirm
from agent_server_client.cli.shown import card, counts, destination_card, named, short, shortest, shown_id
from agent_server_client.errors import AgentServerError
from agent_server_client.models import Event, WaitingAction
from agent_server_client.visible import in_line, visible

#: least characters of a digest on the command line
_DIGEST = 12

#: the option that says how long a decision about a destination holds
_SCOPE = click.option(
    "--scope",
    type=click.Choice(list(SCOPES)),
    help="How long a decision about a destination holds: for the next connection, for the conversation, or always, by "
    "a rule for every sandbox. Default: `once` to approve, `conversation` to reject; a budget takes no other.",
)

#: seconds in which the inbox tells who was faster
_TOLD = 2.0

#: the reason of a rejection by `--approve never`
_NEVER = "Nothing is approved in this run."


class Approver:
    """Asks about one thing that waits at a time, and decides it as the person says.

    mode: `ask` asks, `rules` leaves it to the rules and the inbox, `never` rejects it. By default it asks at a
    terminal, and else leaves it; so does `all`, where something waits although the policy holds no action back.
    read: reads the answers. follows: whether the command goes on to show the agent until Ctrl-C. seconds: how long it
    waits for a decision that is left to others; by default for ever at a terminal, and else for an hour. asks_again:
    whether the command asks again about what still waits once a silent server answers.
    """

    def __init__(
        self,
        session: CommandSession,
        mode: str | None,
        read: Read = input,
        *,
        follows: bool = False,
        seconds: float | None = None,
        asks_again: bool = False,
    ) -> None:
        is_person = read is not input or (sys.stdin.isatty() and session.err.is_terminal)
        if mode == "ask" and not is_person:
            raise Failed(2, "--approve ask needs a terminal: `rules` leaves it to the inbox, `never` rejects it")
        self._session, self._read, self._follows, self._asks_again = session, read, follows, asks_again
        self._mode = mode if mode in ("ask", "rules", "never") else "ask" if is_person else "rules"
        self._seen: set[str] = set()
        self._decided: set[str] = set()  #: ids of the actions that were decided here
        self._elsewhere: Elsewhere | None = None
        self._is_bounded = seconds != inf and (seconds is not None or not sys.stdin.isatty())
        self._seconds = UNATTENDED if seconds is None else seconds
        self._deadline = inf
        self.left_to = ""  #: the commands that decide what was left last

    @property
    def left(self) -> float:
        """Seconds that a decision of others is still waited for."""
        return self._deadline - time.monotonic()

    def goes_on(self) -> None:
        """Wait for no decision of others: the agent goes on."""
        self._deadline = inf

    def has_decided(self, event: Event) -> bool:
        """Whether an event tells of a decision that was taken here, where the person has read it already."""
        ids = set(event.get("action_ids") or ()) if event["kind"] == "DecisionEvent" else set()
        return bool(ids) and self._decided >= ids

    def decide(self, waiting: PendingAction | Destination) -> Outcome:
        """Ask about something that waits, once, and decide it or leave it.

        Raises click.exceptions.Exit at Ctrl-C, after it has said how to decide it later.
        """
        asked: PromptSubject
        if isinstance(waiting, Destination):
            asked = PromptedDestination(waiting)
        else:
            together = waiting.item["decided_together"] and waiting.id not in self._seen
            asked = AskedActions(waiting.conversation.pending_actions() if together else [waiting])
        if not asked.ids - self._seen:
            return "gone"
        self._seen |= asked.ids
        if self._mode == "never" and asked.is_of_run:
            return self._take(asked, lambda: asked.reject(self._session, _NEVER)) or "gone"
        if self._mode == "ask" and self._read is input and self._elsewhere is None:
            self._look(asked)
        if self._mode != "ask" and self._session.notes_as_json:
            self._leave_as_json(asked)
            return "left"
        for shown in asked.cards():
            self._session.err.print(shown)
        if self._mode != "ask":
            return self._leave(asked)
        outcome = self._ask(asked)
        if outcome not in ("left", "gone"):
            self._decided |= asked.ids
        return outcome

    def _look(self, asked: PromptSubject) -> None:
        """Ask the server what the key may, and follow what others decide, before the first question."""
        self._elsewhere = Elsewhere()
        with contextlib.suppress(AgentServerError):
            if "approve" not in asked.client.user()["scopes"]:
                self._mode = "rules"
                words = (
                    "Your key may not decide this: it lacks the scope `approve`. Somebody whose key has it decides: "
                )
                self._session.err.print(f"{words}{asked.url}", style="yellow", soft_wrap=True)
        if self._mode == "ask":
            self._elsewhere.ask(asked.keys)
            self._elsewhere.follow(self._session.client(patient=True, is_quiet=True))

    def _leave_as_json(self, asked: PromptSubject) -> None:
        """The same on stderr as an object: what waits, the commands and the page that decide it, and the seconds."""
        self.left_to = asked.unattended
        seconds = self._seconds if self._bounds(asked) else None
        told = {"waits": asked.items, "decide": asked.unattended, "url": asked.url, "seconds": seconds}
        click.echo(json.dumps(told), err=True)

    def _bounds(self, asked: PromptSubject) -> bool:
        """Whether the wait for a decision of others is bounded, which begins now."""
        if self._follows and self._is_bounded and asked.is_of_run:
            self._deadline = time.monotonic() + self._seconds
            return True
        return False

    def _leave(self, asked: PromptSubject) -> Outcome:
        """Say how it is decided elsewhere, and how long that is waited for."""
        is_read = sys.stdin.isatty() and self._session.err.is_terminal
        self.left_to = asked.later if is_read else asked.unattended
        lines = [f"It waits for a decision: {self.left_to}", f"or at {asked.url}"]
        if asked.items and all(map(_only_reads, asked.items)):
            identity = short(asked.items[0]["conversation_id"])
            lines.append(f"What only reads passes unasked after: agentctl mode {identity} outside")
        if self._bounds(asked):
            lines.append(f"Waiting up to {took(self._seconds)} for it; --wait SECONDS changes that")
        for line in lines:
            self._session.err.print(line, style="yellow", soft_wrap=not self._session.err.is_terminal)
        return "left"

    def _check(self, asked: PromptSubject) -> None:
        """Raise DecidedElsewhere where somebody else was faster."""
        if self._elsewhere is not None:
            self._elsewhere.check(asked.keys)

    def say(self, words: str) -> None:
        """Tell the person something that is no question."""
        if not self._session.as_json:
            self._session.err.print(words, style="dim")

    def says_yes(self, question: str) -> bool:
        """Whether the person says yes. Nobody does where nobody is asked."""
        if self._mode != "ask":
            return False
        try:
            return confirm(self._session, question, default=True, read=self._read)
        except EOFError:
            return False

    def _ask(self, asked: PromptSubject) -> Outcome:
        outcome: Outcome | None = None
        read, is_answered = self._elsewhere.reader(asked.keys) if self._elsewhere else self._read, False

        def answer() -> str:
            nonlocal is_answered
            is_answered = False
            line = read()
            is_answered = True
            return line

        try:
            while outcome is None:
                outcome = self._take(asked, lambda: asked.ask(self._session, answer, lambda: self._check(asked)))
        except AgentServerError as error:
            if error.status is None:
                raise self._unsent(asked, error) from error
            raise
        except DecidedElsewhere as gone:
            self._session.err.print(f"\n{gone}", style="yellow", soft_wrap=not self._session.err.is_terminal)
            return "gone"
        except KeyboardInterrupt:
            words = f"It still waits. Decide it later: {asked.later}"
            if is_answered:
                words = "It is not known whether your answer arrived. What still waits: agentctl inbox"
            self._session.err.print(f"\n{words}", style="yellow")
            raise click.exceptions.Exit(INTERRUPTED) from None
        except EOFError:
            self._session.err.print()
            outcome = "left"
        if outcome == "left":
            self._session.err.print(f"It goes on waiting: {asked.later}", style="dim")
            if self._follows:
                self._session.err.print("Still following; Ctrl-C ends that, the agent goes on", style="dim")
        return outcome

    def _unsent(self, asked: PromptSubject, error: AgentServerError) -> AgentServerError:
        """The error of an answer that no response came to, with the next step of the person."""
        if self._asks_again:
            self._seen -= asked.ids
            words = "You are asked again once the server answers, if it still waits"
        elif error.may_have_arrived:
            words = "What still waits: agentctl inbox"
        else:
            words = f"Your answer was not sent, and it still waits unless somebody else decides it: {asked.later}"
        return AgentServerError(None, f"{error.detail}. {words}", may_have_arrived=error.may_have_arrived)

    def _take(self, asked: PromptSubject, decide: Callable[[], Outcome | None]) -> Outcome | None:
        """Decide. A decision of somebody else does not end the run; None after a refusal that another answer mends."""
        try:
            return decide()
        except AgentServerError as error:
            outcomes: dict[int | None, Outcome | None] = {403: "left", 404: "gone", 409: "gone", 422: None}
            if error.status not in outcomes or (self._mode != "ask" and error.status == 403):
                raise
            is_gone = outcomes[error.status] == "gone"
            who = asked.who() if is_gone else ""
            if is_gone and not who and self._elsewhere:
                who = self._elsewhere.how(asked.keys, _TOLD)
            self._session.err.print(words_of(error, who), style="yellow")
            return outcomes[error.status]


@command()
@click.option("-w", "--watch", is_flag=True, help="Follow it: show what opens and what is decided, until Ctrl-C.")
@click.option("--text", help="Only what has this text in its tool, arguments, thought or title.")
@click.option("--machine", metavar="NAME", help="Only what agents on this machine ask, by its whole name.")
@click.option("--agent", metavar="NAME", help="Only what agents of this name ask on machines of people: claude-code.")
def inbox(session: CommandSession, watch: bool, text: str | None, machine: str | None, agent: str | None) -> None:
    """Show what waits for a decision, the oldest first.

    First come actions, then destinations that sandboxes ask to reach, and budgets of models that are used up.
    """
    if watch:
        _watch(session, session.client(patient=True))
        return
    client = session.client()
    actions = client.pending_actions(text=text, machine=machine, agent=agent)
    waiting = [] if machine or agent else asked_for(client)
    destinations = [one for one in waiting if text is None or text.casefold() in one.id]
    if session.as_json:
        print_json([*(one.item for one in actions), *(one.item for one in destinations)])
        return
    ids = _shown_ids(client, actions, destinations) if session.out.is_terminal else None
    for one in actions:
        session.out.print(card(one.item, ids))
    titles = titles_of(client, [one.item for one in destinations])
    for asked in destinations:
        shown = destination_card(asked.item, titles.get(asked.item["conversation_id"] or ""), ids)
        session.out.print(shown)
    words = "agentctl approve ID, or agentctl reject ID" if actions or destinations else "Nothing waits for a decision."
    if destinations:
        words += f". The ID of what a sandbox asks for is its name: agentctl approve {in_line(destinations[0].id)}"
    session.err.print(words, style="dim", soft_wrap=True)


def _only_reads(item: dict[str, Any]) -> bool:
    """Whether the server sees nothing but reads in an action, which pass in the mode `outside`."""
    effects = [one["effect"] for one in item.get("seen", {}).get("effects", [])]
    return bool(item.get("sandbox_id")) and effects == ["reads"]


def _shown_ids(client: Client, actions: list[PendingAction], destinations: list[Destination]) -> dict[str, str]:
    """How ids are shown: an action and a conversation are named by the same argument."""
    named = {one.id for one in actions} | {one.conversation.id for one in actions}
    named |= {one.item["conversation_id"] for one in destinations if one.item["conversation_id"]}
    return shortest([*known_ids(client), *(one.id for one in client.pending_actions()), *named])


@command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True, callback=id_from("agentctl inbox"))
@click.option(
    "--digest",
    metavar="DIGEST",
    help="Approve only the action with this digest; its first 12 characters or more are enough.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_SCOPE
def approve(session: CommandSession, ids: tuple[str, ...], digest: str | None, yes: bool, scope: str | None) -> None:
    """Approve actions, destinations or budgets that wait.

    A destination is what a sandbox asks to reach, and a budget that is used up gets its amount once more. ID is that of
    an action, or of a conversation for all its actions, or the beginning of one; or NAME:PORT, as in pypi.org:443, of a
    destination; or budget:conversation, budget:key or budget:day. They are shown first. A program gives the --digest of
    what it has looked at.
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
            raise Failed(NOT_DECIDED, PROBLEMS["changed"])
        actions, destinations = [one for one in actions if one in own], [one for one in destinations if one in own]
    elif not yes and not sys.stdin.isatty():
        raise Failed(2, "Nobody can be asked here: give --digest, or --yes")
    if digest is None and not yes:
        session.require(client, "`approve`", "approve")
    shown: list[PromptSubject] = [AskedActions(actions), *map(PromptedDestination, destinations)]
    if not session.as_json:
        for panel in (panel for one in shown for panel in one.cards()):
            session.err.print(panel)
    keys = set[str]().union(*(one.keys for one in shown))
    if digest is None and not yes and not _says_yes(session, len(waiting), keys):
        raise Failed(REFUSED, "Nothing was approved: it still waits")
    decided = [_decide_destination(session, one, "approve", scope or "once") for one in destinations]
    _decide_and_say(session, actions, "approve", others=decided)


def _says_yes(session: CommandSession, number: int, keys: set[str]) -> bool:
    """Whether the person approves what the keys name. Raises Failed where others decide it meanwhile."""
    elsewhere = Elsewhere()
    read = elsewhere.reader(keys)
    elsewhere.follow(session.client(patient=True, is_quiet=True))
    try:
        return agrees(session, f"Approve {'this' if number == 1 else f'these {number}'}?", read)
    except DecidedElsewhere as gone:
        session.err.print()
        raise Failed(NOT_DECIDED, f"{gone} Nothing was approved here") from None
    except KeyboardInterrupt:
        session.err.print("\nNothing was approved: it still waits.", style="yellow")
        raise click.exceptions.Exit(INTERRUPTED) from None


@command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True, callback=id_from("agentctl inbox"))
@click.option("-r", "--reason", default="", help="Why. The agent reads it; of a destination, the audit has it.")
@click.option("-y", "--yes", is_flag=True, help="For scripts, as with `approve`. You are never asked.")
@_SCOPE
def reject(session: CommandSession, ids: tuple[str, ...], reason: str, yes: bool, scope: str | None) -> None:  # noqa: ARG001
    """Reject actions, destinations or budgets that wait.

    You are not asked, because nothing runs after a rejection. ID is that of an action, or of a conversation for all its
    actions, or the beginning of one; or NAME:PORT of a destination; or budget:conversation, budget:key or budget:day.
    """
    client = session.client()
    destinations, others = _asked(client, ids, scope)
    actions = _named(client, others)
    told = scope or "conversation"
    decided = [_decide_destination(session, one, "reject", told, reason) for one in destinations]
    _decide_and_say(session, actions, "reject", reason, others=decided)


def asked_for(client: Client) -> list[Destination]:
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
    waiting = asked_for(client) if named else []
    for one in named:
        if all(asked.id != one for asked in waiting):
            raise _nothing(f"No sandbox asks for {one}")
    return [asked for asked in waiting if asked.id in named], others


def _decide_destination(
    session: CommandSession, asked: Destination, verb: str, scope: str, reason: str = ""
) -> dict[str, Any]:
    try:
        decided = asked.approve(scope) if verb == "approve" else asked.reject(reason, scope)
    except AgentServerError as error:
        if error.status not in (404, 409):
            raise
        raise Failed(NOT_DECIDED, words_of(error, PromptedDestination(asked).who()), status=error.status) from error
    if not session.as_json:
        words = f"{'Approved' if verb == 'approve' else 'Rejected'}{'' if asked.budget else f' {SCOPES[scope]}'}: "
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


def _nothing(words: str) -> Failed:
    return Failed(NOT_DECIDED, f"{words}: it is decided already, or never waited. `agentctl inbox` shows what waits")


def _named(client: Client, starts: Iterable[str]) -> list[PendingAction]:
    """The pending actions of ids, or of beginnings of them. Raises Failed."""
    waiting, found = client.pending_actions(), dict[str, PendingAction]()
    for start in starts:
        exact = [one for one in waiting if one.id == start]
        own = exact or [one for one in waiting if one.id.startswith(start)]
        if len({one.id for one in own}) > 1:
            raise several("actions", start, [one.id for one in own])
        conversations = {one.conversation.id for one in waiting if one.conversation.id.startswith(start)}
        if not own and len(conversations) > 1:
            raise several("conversations", start, sorted(conversations))
        matched = own or [one for one in waiting if one.conversation.id in conversations]
        if not matched:
            raise _nothing(f"Nothing waits under {start}")
        together = {one.conversation.id for one in matched if one.item["decided_together"]}
        matched += [one for one in waiting if one.conversation.id in together]
        found |= {one.id: one for one in matched}
    return list(found.values())


def _decide(actions: list[PendingAction], verb: str, reason: str = "") -> dict[str, Any]:
    """Decide actions, those of a conversation all or none. Returns what waits for other people, by ids of actions."""
    held = dict[str, Any]()
    by_conversation = sorted(actions, key=lambda one: one.conversation.id)
    for _, some in groupby(by_conversation, key=lambda one: one.conversation.id):
        group = list(some)
        result = group[0].conversation.decide(group, verb, **({"reason": reason} if reason else {}))
        held |= {one["action_id"]: one for one in result.get("waiting", ())}
    return held


def _decide_and_say(
    session: CommandSession,
    actions: list[PendingAction],
    verb: str,
    reason: str = "",
    others: Iterable[dict[str, Any]] = (),
) -> None:
    """others: of the JSON, what was decided beside the actions."""
    try:
        held = _decide(actions, verb, reason)
    except AgentServerError as error:
        if not error.problems:
            raise
        raise Failed(NOT_DECIDED, words_of(error, AskedActions(actions).who()), status=error.status) from error
    if session.as_json:
        own = [
            {"action_id": one.id, "digest": one.item["digest"], "decision": verb}
            | ({"waiting": held[one.id]} if one.id in held else {})
            for one in actions
        ]
        print_json([*own, *others])
        return
    for one in actions:
        words = counts(held[one.id]) if one.id in held else "Approved" if verb == "approve" else "Rejected"
        item = one.item
        said = named(item["tool_name"], item["arguments"], item["summary"])
        session.err.print(Text.assemble(f"{words}: ", said), soft_wrap=True)


def _watch(session: CommandSession, client: Client) -> None:
    shown: set[str] = set()
    for name, data in client.inbox(destinations=True):
        if session.as_json:
            print_json({"event": name, **data})
            continue
        if name.startswith("destination"):
            _tell_destination(session, client, name, data)
            continue
        for item in data.get("items", [data] if name == "opened" and "digest" in data else []):
            if item["action_id"] not in shown:
                shown.add(item["action_id"])
                session.out.print(card(item))
        if name == "changed" and "digest" in data:
            session.out.print(card(WaitingAction(data)))
        if name in ("decided", "expired", "closed"):
            shown.discard(data["action_id"])
            who = decider(data.get("actor") or {})
            words = {"decided": f"{data.get('decision')} by {who}", "expired": "rejected by its deadline"}
            reason = visible(data.get("reason") or "", prose=True)
            named_as = shown_id(session.out, data["action_id"])
            told = f"{named_as}  {words.get(name, 'waits no longer')}  {reason}"
            session.out.print(Text(told, "dim"), soft_wrap=True)


def _tell_destination(session: CommandSession, client: Client, name: str, data: Any) -> None:
    items = data["items"] if name == "destinations" else [data] if name == "destination_opened" else []
    titles = titles_of(client, items)
    for item in items:
        shown = destination_card(item, titles.get(item["conversation_id"] or ""))
        session.out.print(shown)
    if name in ("destination_decided", "destination_expired", "destination_closed"):
        who = in_line((data.get("actor") or {}).get("name") or "")
        words = {"destination_decided": f"{data.get('decision')} by {who}", "destination_expired": "it expired"}
        of = data["budget"]["setting"] if data["subject"] == "budget" else f"{data['name']}:{data['port']}"
        told = f"{in_line(of)}  {words.get(name, 'its sandbox has ended')}"
        session.out.print(Text(told, "dim"), soft_wrap=True)


COMMANDS = (inbox, approve, reject)
