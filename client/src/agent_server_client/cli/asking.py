"""What waits, as it is asked about: the actions of a conversation, a destination, or a budget."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal, NamedTuple, Protocol

from rich.text import Text

from agent_server_client._sync import Client, Destination, PendingAction
from agent_server_client.cli.elsewhere import DecidedElsewhere, how_it_ended, key_of_destination
from agent_server_client.cli.program import CommandSession
from agent_server_client.cli.questions import NotEdited, PromptAnswer, Read, ask, confirm, edited, explain
from agent_server_client.cli.shown import (
    Card,
    amounts,
    card,
    counts,
    destination_card,
    is_in_terminal,
    is_incomplete,
    named,
    short,
    why_not,
)
from agent_server_client.errors import AgentServerError
from agent_server_client.models import AskedDestinationInfo
from agent_server_client.visible import in_line, visible

#: what the server says of a decision that it did not take, in the words of the console
PROBLEMS = {
    "not_pending": "Somebody was faster: it is decided already.",
    "expired": "Too late: its time is over, and the server rejects it.",
    "changed": "The action is not the one that was shown. Nothing was decided: look at it again.",
    "decided_alike": "The agent takes one decision for all that wait in this conversation.",
    "decided_together": "The agent takes one decision for all that wait in this conversation, another too. Look again.",
    "in_terminal": "Its terminal asks now, and only the terminal can answer.",
    "own": "You may not approve it: you asked for it, or the conversation is yours. Somebody else must.",
    "voted": "You have approved it already: others must approve it too.",
    "needs_people": "Several people must approve it, each with their own key or name.",
    "edit_of_several": "Nobody edits what several people must approve. Reject it, or leave it.",
}

#: how long a decision about a destination holds, in words
SCOPES = {"once": "once", "conversation": "for the conversation", "always": "always"}

#: what became of something that waited: `left` still waits, `gone` was decided by somebody else or before
Outcome = Literal["approved", "edited", "rejected", "left", "gone"]

#: the bound of a rule for an action of that risk, which the server sets
_UP_TO = {
    "UNKNOWN": "",
    "LOW": ", while the agent rates the risk as low",
    "MEDIUM": ", while the agent rates the risk as medium or low",
    "HIGH": ", while the agent rates the risk",
}

#: entries of the audit that are looked through for who decided a destination
_LATEST = 50

#: what the prompt calls the kinds of proposed rules
_LABELS = {"exactly": "exactly this", "like": "like this", "reads": "what only reads", "tool": "this tool"}

#: members of a rule that a decision would give a default
_OF_ALWAYS = ("arguments", "max_risk", "conversation_ids", "tags", "expires_at", "max_uses")

#: members that are sent where a rule has them alone: servers of an earlier release know none of them
_OF_LATER = ("key_id", "repository", "folder", "machine", "person", "agent", "effects", "reason")

#: a rule that holds until it is revoked
_EVER: Mapping[str, Any] = {"words": "", "seconds": None}


class PromptSubject(Protocol):
    """Something that is asked about by one prompt."""

    ids: set[str]  #: of its waits
    keys: set[str]  #: what events of the inbox name it by
    client: Client
    url: str  #: the page of the console that shows it
    is_of_run: bool  #: whether it is this conversation's alone
    later: str  #: the commands that decide it
    unattended: str  #: those that decide it where nobody is asked
    items: list[Any]  #: what the server says of it

    def cards(self) -> list[Card]:
        """What is shown before the prompt."""

    def ask(self, session: CommandSession, read: Read, check: Callable[[], None]) -> Outcome | None:
        """Ask, and do as the person says; None: ask again. check: raises DecidedElsewhere where it no longer waits."""

    def reject(self, session: CommandSession, reason: str) -> Outcome:
        """Reject it, and say so."""

    def who(self) -> str:
        """Who has decided it meanwhile, as a sentence; "" if the server does not say."""


class AskedActions:
    """Actions of one conversation that take one decision: one, or all that are decided together."""

    is_of_run = True

    def __init__(self, actions: list[PendingAction]) -> None:
        self._actions = actions
        self.ids = self.keys = {one.id for one in actions}
        self.items = [one.item for one in actions]
        if actions:
            self.client, self.url = actions[0].conversation.client, actions[0].conversation.url
        self.later = _later(short(actions[0].id)) if actions else ""
        self.unattended = _unattended([(one.id, one.item["digest"]) for one in actions])

    def cards(self) -> list[Card]:
        return [card(one.item) for one in self._actions]

    def who(self) -> str:
        found: list[Any] = []
        with suppress(AgentServerError):
            of = {one.conversation.id: one.conversation for one in self._actions}
            for identity, conversation in of.items():
                ids = [one.id for one in self._actions if one.conversation.id == identity]
                found += conversation.decisions(ids).values()
        return _ended(found[-1]) if found else ""

    def ask(self, session: CommandSession, read: Read, check: Callable[[], None]) -> Outcome | None:
        first = self._actions[0]
        answer = ask(session, self._answers(), read)
        if answer == "edit":
            try:
                arguments = self._edited(session, check)
            except NotEdited as error:
                session.err.print(f"{error} It still waits.", style="yellow")
                return None
            with session.sending(self.client):
                first.conversation.decide([first], "edit", arguments=arguments)
            session.err.print(Text.assemble("Approved with your edit: ", named(first.item["tool_name"], arguments)))
            return "edited"
        if answer == "always":
            rule = self._chosen_rule(session, read)
            return None if rule is None else self._approve(session, always=rule)
        if answer == "approve":
            return self._approve(session)
        if answer == "reject":
            session.err.print("Reason, which the agent reads (Enter: none):", end=" ", soft_wrap=True)
            return self.reject(session, read().strip())
        return "left"

    def _edited(self, session: CommandSession, check: Callable[[], None]) -> dict[str, Any]:
        """The arguments as the person has edited them. Raises NotEdited, and DecidedElsewhere if it no longer waits."""
        try:
            return edited(session, self._actions[0].item)
        finally:
            try:
                check()
            except DecidedElsewhere as gone:
                raise DecidedElsewhere(f"{gone} Your edit was not sent.") from None

    def reject(self, session: CommandSession, reason: str) -> Outcome:
        with session.sending(self.client):
            self._actions[0].conversation.decide(self._actions, "reject", **({"reason": reason} if reason else {}))
        self._say(session, "Rejected")
        return "rejected"

    def _approve(self, session: CommandSession, **members: Any) -> Outcome:
        with session.sending(self.client):
            result = self._actions[0].conversation.decide(self._actions, "approve", **members)
        held = {one["action_id"]: one for one in result.get("waiting", ())}
        self._say(session, "Approved", held)
        for rule in result["rules"]:
            said = f"Rule {rule['rule_id']} approves this from now on. To end it: agentctl rules rm {rule['rule_id']}"
            said = said if rule["rule_id"] else f"No rule was made: {rule['detail']}"
            session.err.print(said, style="dim", soft_wrap=True)
        return "left" if held else "approved"

    def _say(self, session: CommandSession, verb: str, held: Mapping[str, Any] | None = None) -> None:
        """held: what waits for other people, by the ids of actions."""
        for one in self._actions:
            item = one.item
            words = named(item["tool_name"], item["arguments"], item["summary"])
            said = counts(held[one.id]) if held and one.id in held else verb
            session.err.print(Text.assemble(f"{said}: ", words), soft_wrap=True)

    def _answers(self) -> list[PromptAnswer]:
        number, item = len(self._actions), self._actions[0].item
        all_of = "" if number == 1 else f" all {number}"
        this = "exactly this" if number == 1 else f"exactly these {number}: it takes one decision for all"
        may_approve = not any(why_not(one.item) for one in self._actions)
        approve = PromptAnswer(
            "approve", f"[a]pprove{all_of}", ("a", "y", "yes"), f"Approve: the agent does {this}. Also y."
        )
        words = "Reject: the agent does not, and reads your reason. Also n."
        reject = PromptAnswer("reject", f"[r]eject{all_of}", ("r", "n", "no"), words)
        answers = [*([approve] if may_approve else []), *([] if is_in_terminal(item) else [reject])]
        if number == 1 and "edit" in item["can"]:
            answers.append(
                PromptAnswer("edit", "[e]dit", ("e",), "Edit what will run in $VISUAL or $EDITOR, and approve that.")
            )
        if number == 1 and may_approve and isinstance(item["arguments"], dict) and not is_incomplete(item):
            answers.append(
                PromptAnswer("always", "[A]lways", ("A",), "Approve, and make a rule that approves it next time.")
            )
        return [*answers, PromptAnswer("leave", "[l]eave", ("l",), f"Leave it waiting. Decide it later: {self.later}.")]

    def _chosen_rule(self, session: CommandSession, read: Read) -> dict[str, Any] | Literal[True] | None:
        """The member `always` of the decision; None: back to the prompt.

        `w` and `u` choose the next scope and term of all proposed rules, and show them again.
        """
        offers, scopes, lasts = self._offers()
        scope, last = "", 0
        while True:
            term = lasts[last] if lasts else _EVER
            shown = [offer.in_scope(scope) for offer in offers]
            answers = [
                PromptAnswer(str(place), f"[{place}] {_LABELS.get(one.kind, one.kind)}", (str(place),), one.said(term))
                for place, one in enumerate(shown, 1)
            ]
            explain(session, answers)
            if len(scopes) > 1:
                answers.append(PromptAnswer("where", "[w]here", ("w",), "Where it holds: the next of the choices."))
            if len(lasts) > 1:
                answers.append(PromptAnswer("until", "[u]ntil", ("u",), "How long it holds: the next of the choices."))
            answers.append(PromptAnswer("back", "[b]ack", ("b",), "Back: make no rule yet."))
            answer = ask(session, answers, read)
            if answer == "where":
                scope = _after(scopes, scope or next((one.scope for one in shown), ""))
            elif answer == "until":
                last = (last + 1) % len(lasts)
            else:
                return None if answer == "back" else shown[int(answer) - 1].always(term)

    def _offers(self) -> tuple[list["_Offer"], list[str], list[Mapping[str, Any]]]:
        """The rules that the server proposes, the scopes and the terms to choose from.

        From a server that proposes none, the two rules that each server makes.
        """
        try:
            found = self._actions[0].ready_answers()
        except AgentServerError as error:
            if error.status != 404:
                raise
            return self._plain_offers(), [], []
        offers = [
            _Offer(one["kind"], one, one["of"], one.get("scopes", ())).in_scope(one.get("proposed", ""))
            for one in found["items"]
        ]
        return offers, [one["scope"] for one in found.get("scopes", ())], found.get("lasts", [])

    def _plain_offers(self) -> list["_Offer"]:
        item = self._actions[0].item
        tool, up_to = in_line(item["tool_name"]), _UP_TO[item["security_risk"]]
        exactly = f"{tool} with exactly these arguments is approved in this conversation, unasked{up_to}."
        any_of = f"Each action of {tool} in this conversation is approved unasked, whatever its arguments{up_to}."
        return [
            _Offer("exactly", {"sentence": exactly, "always": True}),
            _Offer("tool", {"sentence": any_of, "always": {"arguments": None}}),
        ]


class _Offer(NamedTuple):
    """A rule that a person may make with one key, in one scope."""

    kind: str
    answer: Mapping[str, Any]  #: `sentence`, and `rule` with `answered`, or `always` where the server proposes none
    of: int = 0  #: decisions that it was tried on
    scopes: Sequence[Mapping[str, Any]] = ()  #: the same with each `scope`

    @property
    def scope(self) -> str:
        return str(self.answer.get("scope", ""))

    def in_scope(self, scope: str) -> "_Offer":
        """The same rule in another scope; as it is where it has none of that name."""
        return self._replace(answer=next((one for one in self.scopes if one["scope"] == scope), self.answer))

    def said(self, term: Mapping[str, Any]) -> str:
        """What the rule covers, how long it holds, and what it would have done."""
        words = visible(self.answer["sentence"], prose=True)
        if term["seconds"]:
            words = f"{words.removesuffix('.')}, {in_line(term['words'])}."
        if not self.of:
            return words
        return f"{words} Would have answered {self.answer['answered']:,} of the last {self.of:,}."

    def always(self, term: Mapping[str, Any]) -> dict[str, Any] | Literal[True]:
        """The member `always` of the decision."""
        if "always" in self.answer:
            return True if self.answer["always"] is True else dict(self.answer["always"])
        members = members_of(self.answer["rule"])
        if term["seconds"]:
            members["expires_at"] = (datetime.now(UTC) + timedelta(seconds=term["seconds"])).isoformat()
        return members


def _after(names: Sequence[str], name: str) -> str:
    """The next name, and the first one after the last."""
    return names[(names.index(name) + 1) % len(names)] if name in names else names[0]


def members_of(rule: Mapping[str, Any]) -> dict[str, Any]:
    """The member `always` of a decision that makes a rule: whatever the rule does not name, `always` leaves open."""
    more = {name: rule[name] for name in _OF_LATER if rule.get(name)}
    return {name: rule.get(name) for name in _OF_ALWAYS} | more


class PromptedDestination:
    """A destination that a sandbox asks for, or a budget that is used up."""

    def __init__(self, asked: Destination) -> None:
        self._asked, self.items = asked, [asked.item]
        self.ids = {f"{asked.item['sandbox_id']} {asked.id} {asked.item['since']}"}
        self.keys, self.client = {key_of_destination(asked.item)}, asked.client
        of = asked.item["conversation_id"]
        self.url = asked.client.conversation(of).url if of else f"{asked.client.url}/console/"
        self.is_of_run = not asked.budget  # a refused budget may be that of other conversations too
        self.later = _later(in_line(asked.id))
        self.unattended = _unattended([(in_line(asked.id), asked.item["digest"])])

    def cards(self) -> list[Card]:
        item = self._asked.item
        return [destination_card(item, titles_of(self._asked.client, [item]).get(item["conversation_id"] or ""))]

    def ask(self, session: CommandSession, read: Read, check: Callable[[], None]) -> Outcome | None:  # noqa: ARG002
        answer = ask(session, self._answers(), read)
        if answer in SCOPES:
            if answer == "always":
                covers = (
                    f"A rule lets every sandbox of this server reach {in_line(self._asked.id)} from now on, unasked."
                )
                session.err.print(covers)
                if not confirm(session, "Make it?", read=read):
                    return None
            with session.sending(self.client):
                self._asked.approve(answer)
            self._say(session, "Allowed" if self._asked.budget else f"Allowed {SCOPES[answer]}")
            return "approved"
        return self.reject(session, "") if answer == "refuse" else "left"

    def who(self) -> str:
        """The audit says it, which only an admin's key reads."""
        with suppress(AgentServerError):
            budget = self._asked.budget
            name = budget["setting"] if budget else self._asked.item["name"]
            for entry in islice(self.client.audit(text=name), _LATEST):
                if self._asked.item["digest"] in entry["digests"] and entry["decision"] in ("approve", "reject"):
                    return _ended(entry)
        return ""

    def reject(self, session: CommandSession, reason: str) -> Outcome:
        with session.sending(self.client):
            self._asked.reject(reason)
        self._say(session, "Refused")
        return "rejected"

    def _say(self, session: CommandSession, words: str) -> None:
        session.err.print(Text.assemble(f"{words}: ", (in_line(self._asked.id), "bold")), soft_wrap=True)

    def _answers(self) -> list[PromptAnswer]:
        refuse, leave = ("refuse", "[r]efuse", ("r", "n", "no")), ("leave", "[l]eave", ("l",))
        later = f"Leave it waiting. Decide it later: {self.later}."
        if self._asked.budget:
            more = amounts(self._asked.budget)
            once = PromptAnswer("once", "[a]llow", ("a", "y", "yes"), f"Add {more} to the budget. Also y.")
            whole = "Refuse more until the budget is whole again. Also n."
            return [once, PromptAnswer(*refuse, whole), PromptAnswer(*leave, later)]
        return [
            PromptAnswer(
                "once",
                "[a]llow once",
                ("a", "y", "yes"),
                "Allow the next connection within 10 minutes: the one that asked has failed already. Also y.",
            ),
            PromptAnswer(
                "conversation",
                "[c]onversation",
                ("c",),
                "Allow it for this conversation, as long as its sandbox exists.",
            ),
            PromptAnswer("always", "[A]lways", ("A",), "Allow it by a rule to every sandbox of this server."),
            PromptAnswer(*refuse, "Refuse it to this conversation, as long as its sandbox exists. Also n."),
            PromptAnswer(*leave, later),
        ]


def _later(identity: str) -> str:
    return f"agentctl approve {identity}, or agentctl reject {identity}"


def _unattended(waiting: list[tuple[str, str]]) -> str:
    """Commands without a question. One approval names a digest; several are one decision, which takes no digest."""
    ids = " ".join(identity for identity, _ in waiting)
    shown = f"--digest {waiting[0][1]}" if len(waiting) == 1 else "--yes"
    return f"agentctl approve {ids} {shown}, or agentctl reject {ids}"


def titles_of(client: Client, items: Iterable[AskedDestinationInfo]) -> dict[str, str]:
    """The titles of the conversations whose sandboxes ask, by their ids."""
    ids = sorted({item["conversation_id"] for item in items if item["conversation_id"]})
    found = client.get("/api/v1/app-conversations", ids=ids) if ids else []
    return {identity: one["title"] or "" for identity, one in zip(ids, found, strict=False) if one}


def _ended(decision: Any) -> str:
    """Who decided, as a sentence. decision: as the server has it beside an action, or in the audit."""
    return how_it_ended("expired" if decision["actor"]["kind"] == "expiry" else "decided", decision)


def words_of(error: AgentServerError, who: str = "") -> str:
    """What a person is told of a decision that was not taken. who: has decided it, as a sentence."""
    if who and (error.status == 404 or any(one["problem"] == "not_pending" for one in error.problems)):
        return f"Somebody was faster. {who}"
    return next((PROBLEMS[one["problem"]] for one in error.problems if one["problem"] in PROBLEMS), error.detail)
