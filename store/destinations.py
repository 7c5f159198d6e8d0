"""What sandboxes ask to reach, and have reached: names that nobody allowed wait for a person, as pending actions do.

All of it lies in the slot of the sandboxes, so that one script sees the sandbox, the rules and the decisions: a rule
that is revoked allows no connection that is asked for afterwards. What a sandbox asked and reached ends with it.

A decision is for one connection (`once`), for as long as the sandbox is (`conversation`), or for every sandbox
(`always`: a rule). A rule that rejects wins over one that approves, and a rule over what was decided in one sandbox.
Rejected once, or expired, a name is asked again ten minutes later. Source: docs/approvals.md, "Asking".

A budget of models that is used up waits here too (`spending.py` asks): approved once it has the same amount once more,
rejected it stays closed until it is whole again. There is no `always`: that is the setting. In the store its name is
the setting and its port 0.

The script that asks, decides or ends a wait writes the entry of the audit (`scripts/_destinations.lua`), and leaves it
to be noted: `note` brings it into the index of the audit, the stream of the inbox and the outbox, each once. Whoever
asks or decides notes; what a process that was killed left is noted within a second, by `close_over` of any other.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from core import wire
from core.access import Joiner
from core.approvals import Rule, canonical
from core.cuts import beginning
from core.egress import MOST_NAME, is_destination_name
from core.people import is_person_id
from core.refused import Kind
from core.rule_words import rule_sentence
from core.wire import ConversationId, Micros, micros, utc_time
from settings.limits import ConversationLimits
from store.approvals.audit import Actor, audit_member, said
from store.errors import SandboxNotFound, StoreError
from store.keys import MOST_CHANGES, ApprovalKeys, SandboxKeys
from store.link.attempts import minted
from store.link.commands import Redis
from store.scripts import Scripts
from store.scripts.calls import AskDestination, DecideDestination, RuleDestination

#: most destinations of one sandbox that wait for a decision, that are remembered with their decisions, and that are
#: counted by name once they were reached or refused
MOST_WAITING, MOST_REMEMBERED, MOST_REACHED = 20, 200, 500

#: most rules for destinations
MOST_DESTINATION_RULES = 1000

#: most that one sandbox asks in a day (UTC), and names whose refusals of a day are audited
MOST_ASKED, MOST_REFUSALS = 500, 200

#: waits that one script ends, and entries of the audit that are noted at once
_CLOSED, _NOTED = 20, 100

#: most characters of what a program is called
MOST_PROGRAM = 100

Decided = Literal["approve", "reject"]
Scope = Literal["once", "conversation", "always"]

_OUTCOMES = ("allowed", "refused")

#: what is counted of all sandboxes since the store began: destinations that were asked for, connections, and bytes
TOTALS = ("asked", *_OUTCOMES, "sent", "received")

_WORDS = {
    "asked": "is not allowed; a person was asked; try again when it is",
    "waiting": "is not allowed; a person was asked; try again when it is",
    "rejected": "is not allowed: a person rejected it",
    "forbidden": "is not allowed: a rule rejects it",
    "expired": "is not allowed: a person was asked, and nobody answered in time; it is asked again in ten minutes",
    "ended": "is not allowed: the sandbox has ended",
}


#: what clients are shown of a budget
BUDGET_MEMBERS = ("setting", "key_id", "day", "dollars", "tokens")

#: the change of the inbox that an entry of the audit is, by its decision; others are none
_CHANGES = {"asked": "opened", "approve": "decided", "reject": "decided", "deleted": "closed"}


class DestinationNotFound(StoreError):
    """The destination is not pending in this sandbox."""

    kind = Kind.MISSING
    words = (
        "Nothing of that name and port waits for a decision in that sandbox. GET /api/v1/destinations lists what waits"
    )


class DestinationChanged(StoreError):
    """The destination was decided, expired, or was requested again since it was shown."""

    kind = Kind.CONFLICT
    words = "This destination was decided or asked anew since it was shown: look again"


class DestinationExpired(StoreError):
    """The destination was not decided before its deadline."""

    kind = Kind.CONFLICT
    words = "This destination has expired: have the agent try again, and it is asked anew"


class BudgetScopeRefused(StoreError):
    """The budget cannot be allowed or rejected for this scope."""

    kind = Kind.MEMBER
    member = "scope"

    def __init__(self, setting: str) -> None:
        words = "to approve a budget, which adds the same amount once more, or conversation to reject it"
        super().__init__(f"Input should be once {words}: always is not offered, for that an operator raises {setting}")


class DestinationRuleNotFound(StoreError):
    """The destination rule does not exist."""

    kind = Kind.MISSING
    words = "Destination rule not found. GET /api/v1/destination-rules lists those that are there"


class DestinationRuleWasRevoked(StoreError):
    """An earlier attempt of this request made the rule, and it was revoked since."""

    kind = Kind.CONFLICT
    words = "This request made a rule that has been revoked since: make another with a new request"


class DestinationRuleExists(StoreError):
    """A rule with this name and port exists."""

    kind = Kind.CONFLICT

    def __init__(self, rule_id: str) -> None:
        super().__init__(f"There is a rule of that name and port: revoke it first ({rule_id})")


class TooManyDestinationRules(StoreError):
    """The maximum number of destination rules is reached."""

    kind = Kind.CONFLICT
    words = f"Limit of {MOST_DESTINATION_RULES} destination rules reached: revoke one first (MOST_DESTINATION_RULES)"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a sandbox may connect now. reason: a sentence for its agent. asked: this try has asked a person.

    rule_id: of the rule that allows it; empty: none does.
    """

    is_allowed: bool
    reason: str
    asked: bool
    rule_id: str = ""


@dataclass(frozen=True, slots=True)
class AskedBudget:
    """A budget that waits for as much once more. key_id, day: of whom and of which day in UTC, where it is of one."""

    setting: str
    key_id: str | None
    day: str | None
    dollars: float | None  #: what an approval adds; None: the budget bounds none
    tokens: int | None
    place: tuple[str, str] = ("", "")  #: who asks and for what, as the scripts have it


@dataclass(frozen=True, slots=True)
class AskedDestination:
    """A destination, or a budget, that waits for a decision."""

    sandbox_id: str  #: of a budget the one whose call was refused first
    conversation_id: str | None  #: the one in the sandbox; None where there is none, or several share it
    name: str | None  #: None, as the port: it is a budget
    port: int | None
    program: str | None
    tries: int
    since: Micros
    tried_at: Micros
    expires_at: Micros | None
    budget: AskedBudget | None = None

    @property
    def subject(self) -> str:
        return "budget" if self.budget else "destination"

    @property
    def place(self) -> tuple[str, str]:
        """Who asks, and "NAME:PORT", as the scripts have it."""
        return self.budget.place if self.budget else (self.sandbox_id, f"{self.name}:{self.port}")

    @property
    def digest(self) -> str:
        """SHA-256 of what a person is shown, and of since when it waits: a decision is bound to it."""
        of = (self.budget.setting, 0) if self.budget else (self.name, self.port)
        shown = {"name": of[0], "port": of[1], "sandbox_id": self.sandbox_id, "since": str(self.since)}
        return sha256(canonical(shown)).hexdigest()

    @property
    def shown(self) -> dict[str, Any]:
        """What clients are shown of it."""
        return {
            "subject": self.subject,
            **{name: getattr(self, name) for name in ("sandbox_id", "conversation_id", "name", "port", "program")},
            "tries": self.tries,
            "since": utc_time(self.since),
            "tried_at": utc_time(self.tried_at),
            "expires_at": None if self.expires_at is None else utc_time(self.expires_at),
            "digest": self.digest,
            "budget": self.budget and {name: getattr(self.budget, name) for name in BUDGET_MEMBERS},
        }


#: the cursor of a page: since when its first destination waits, and "SANDBOX NAME:PORT"
Cursor = tuple[Micros, str]


@dataclass(frozen=True, slots=True)
class DestinationRule:
    """A rule for destinations. name: a name, or `*.` and a suffix of at least two labels."""

    id: str
    name: str
    port: int
    decision: Decided
    created_by: str
    created_at: Micros
    uses: int


@dataclass(frozen=True, slots=True)
class ReachedDestination:
    """What a sandbox did at one name and port; at all names beyond MOST_REACHED where both are None."""

    name: str | None
    port: int | None
    allowed: int
    refused: int
    sent: int  #: in bytes, as is the next
    received: int
    first_at: Micros
    last_at: Micros


class Destinations:
    """The destinations of all sandboxes."""

    def __init__(self, redis: Redis, scripts: Scripts, bounds: ConversationLimits) -> None:
        self._redis = redis
        self._scripts = scripts
        self._span = bounds.confirmation_seconds * 1_000_000
        self._kept = bounds.audit_days * 86_400  #: seconds for which an entry of the audit stays

    @property
    def _chain_kept(self) -> int:
        """The ms for which the chain of a day of the audit stays."""
        return self._kept * 1000

    def verdict(self, sandbox_id: str, name: str, port: int, program: str | None = None) -> Verdict:
        """Whether a sandbox may connect to a name and port now; asks a person where nobody has decided.

        One round trip, and three where a person is asked. Raises StoreFull, and ValueError for what is no lower-case
        DNS name, or no port.
        """
        _check(name, port)
        program = beginning(program or "", MOST_PROGRAM)
        reply = self._scripts.ask_destination(
            SandboxKeys.root,
            sandbox=sandbox_id,
            name=name,
            port=port,
            program=program,
            most_open=MOST_WAITING,
            most_known=MOST_REMEMBERED,
            span=self._span,
            time=utc_time(wire.now()),
            kept=self._chain_kept,
            actor=Actor("sandbox", sandbox_id).json,
            said=said(program) if program else "",
            most_asked=MOST_ASKED,
            most_refused=MOST_REFUSALS,
        )
        match reply:
            case AskDestination.Allowed(rule_id):
                return Verdict(True, f"{name}:{port} is allowed", False, rule_id)
            case AskDestination.Full(number):
                why = f"is not allowed, and nobody was asked: {number} destinations of this sandbox wait already"
                return Verdict(False, f"{name}:{port} {why} (MOST_WAITING)", False)
            case AskDestination.Many(number):
                why = f"is not allowed, and nobody was asked: this sandbox has asked for {number} destinations"
                return Verdict(False, f"{name}:{port} {why} (MOST_REMEMBERED)", False)
            case AskDestination.Often(number):
                why = f"is not allowed, and nobody was asked: this sandbox has asked {number} times today"
                return Verdict(False, f"{name}:{port} {why} (MOST_ASKED)", False)
        if reply == "asked":
            self.note()
        return Verdict(False, f"{name}:{port} {_WORDS[reply]}", reply == "asked")

    def page(
        self, sandbox_id: str = "", *, limit: int, start: Cursor | None = None
    ) -> tuple[list[AskedDestination], Cursor | None]:
        """What waits for a decision, of one sandbox or of all, the longest wait first, and the next page's cursor.

        One round trip.
        """
        at, member = start or (None, "")
        page = self._scripts.list_destinations(
            SandboxKeys.root, most=limit, only=sandbox_id, cursor=at, cursor_member=member
        )
        following = page.following[0] if page.following else None
        return [_asked(*item) for item in page.items], following

    def waiting(self, sandbox_id: str = "") -> list[AskedDestination]:
        """The first 1,000 of what waits: of one sandbox all."""
        return self.page(sandbox_id, limit=1000)[0]

    def of_conversation(self, conversation_id: ConversationId, sandbox_id: str) -> list[AskedDestination]:
        """What waits in a conversation: of its sandbox, unless it is another conversation's; and budgets that have
        refused a call of the sandbox."""
        return [one for one in self.waiting(sandbox_id) if one.budget or one.conversation_id in (None, conversation_id)]

    def decide(
        self, asked: AskedDestination, decision: Decided, scope: Scope, actor: Actor, reason: str = ""
    ) -> DestinationRule | None:
        """Decide what waits, as it was shown; the first decision wins. Returns the rule that `always` makes.

        Raises DestinationNotFound, DestinationChanged, DestinationExpired, of a budget BudgetScopeRefused, and of
        `always` what `make_rule` raises.
        """
        if asked.budget and (decision, scope) not in (("approve", "once"), ("reject", "conversation")):
            raise BudgetScopeRefused(asked.budget.setting)
        asker, at = asked.place
        reply = self._scripts.decide_destination(
            SandboxKeys.root,
            asker=asker,
            at=at,
            since=asked.since,
            decision=decision,
            scope=scope,
            rule_id=str(minted("destination rule")),
            maker=actor.name,
            most=MOST_DESTINATION_RULES,
            time=utc_time(wire.now()),
            kept=self._chain_kept,
            actor=actor.json,
            reason=said(reason),
        )
        if scope == "always":
            self.close_over()
        else:
            self.note()
        match reply:
            case "decided":
                return None
            case DecideDestination.Made(rule):
                return _rule(rule, 0)
            case "missing":
                raise DestinationNotFound
            case "expired":
                raise DestinationExpired
            case "changed":
                raise DestinationChanged
            case _:
                raise _not_made(reply)

    def make_rule(self, name: str, port: int, decision: Decided, actor: Actor) -> DestinationRule:
        """Keep a rule; once per request. Raises ValueError, DestinationRuleExists, DestinationRuleWasRevoked,
        TooManyDestinationRules."""
        _check(name.removeprefix("*."), port)
        reply = self._scripts.rule_destination(
            SandboxKeys.root,
            time=utc_time(wire.now()),
            kept=self._chain_kept,
            actor=actor.json,
            id=str(minted("destination rule")),
            name=name,
            port=port,
            decision=decision,
            maker=actor.name,
            most=MOST_DESTINATION_RULES,
        )
        self.close_over()
        if isinstance(reply, RuleDestination.Made):
            return _rule(reply.rule, 0)
        raise _not_made(reply)

    def close_over(self) -> int:
        """Have what waits wait no longer where its deadline has passed, its sandbox has ended, or a rule decides it.

        Also notes what the audit has got. Any number of processes may do so at once. Returns how many were closed. One
        round trip where there is nothing to do.
        """
        number = 0
        while True:
            reply = self._scripts.close_destinations(
                SandboxKeys.root, time=utc_time(wire.now()), kept=self._chain_kept, most=_CLOSED
            )
            number += reply.closed
            if reply.unnoted:
                self.note()
            if not reply.closed:
                return number

    def note(self) -> None:
        """Bring what the audit has got into its index, the stream of the inbox and the outbox. Any process may do so
        at once: each entry is noted once."""
        while True:
            found = self._redis.xrange(SandboxKeys.unnoted, count=_NOTED)
            if not found:
                return
            self._scripts.note_destinations(
                ApprovalKeys.root,
                most=MOST_CHANGES,
                entries=[_noted(place, fields) for place, fields in found],
            )
            self._redis.xdel(SandboxKeys.unnoted, *(place for place, _ in found))

    def join(self, joiner: Joiner, sandbox_id: str, join_id: str, conversation_id: str, reason: str) -> bool:
        """Audit that a key joins a sandbox, once per join_id; False if another key started it and this one may not.

        conversation_id: of the conversation that it acts in. Two round trips. Raises SandboxNotFound.
        """
        outcome = self._scripts.join_sandbox(
            SandboxKeys.root,
            sandbox=sandbox_id,
            key=joiner.owner,
            may_join_any=joiner.joins_any,
            id=join_id,
            conversation=conversation_id,
            actor=Actor("person" if is_person_id(joiner.owner) else "key", joiner.name, joiner.address).json,
            reason=said(reason),
            time=utc_time(wire.now()),
            kept=self._chain_kept,
        )
        if outcome is None:
            raise SandboxNotFound
        self.note()
        return outcome == "joined"

    def note_rule(self, actor: Actor, what: str, rule: Rule) -> None:
        """Audit that an approval rule which names no conversation is made or revoked, in one sentence.

        what: `rule_made` or `rule_revoked`. Two round trips.
        """
        self._scripts.note_rule(
            SandboxKeys.root,
            time=utc_time(wire.now()),
            kept=self._chain_kept,
            actor=actor.json,
            what=what,
            id=rule.id,
            reason=said(f"Rule {rule.id}. {rule_sentence(rule)}."),
        )
        self.note()

    def rules(self) -> list[DestinationRule]:
        """The rules for destinations with their uses, the newest first. One round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.hvals(SandboxKeys.destination_rules)
            pipe.hgetall(SandboxKeys.destination_uses)
            rules, uses = pipe.execute()
        found = [_rule(rule, int(uses.get(json.loads(rule)["id"].encode(), 0))) for rule in rules]
        return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)

    def standing(self, rule_ids: Collection[str]) -> set[str]:
        """Those of these rules that nobody has revoked. One round trip."""
        asked = list(rule_ids)
        found = self._redis.hmget(SandboxKeys.destination_rules, asked) if asked else []
        return {rule_id for rule_id, rule in zip(asked, found, strict=True) if rule is not None}

    def revoke(self, rule_id: str, actor: Actor) -> None:
        """Forget a rule: no connection that is asked for after this returns is decided by it.

        Raises DestinationRuleNotFound.
        """
        is_revoked = self._scripts.revoke_destination_rule(
            SandboxKeys.root,
            id=rule_id,
            time=utc_time(wire.now()),
            kept=self._chain_kept,
            actor=actor.json,
            request=str(minted("revocation")),
        )
        self.note()
        if not is_revoked:
            raise DestinationRuleNotFound

    def record(self, sandbox_id: str, name: str, port: int, outcome: str, sent: int, received: int) -> None:
        """Count what a sandbox has reached, or was refused. outcome: `allowed` or `refused`. sent, received: bytes.

        Of a sandbox that has ended nothing is kept. One round trip. Raises ValueError as `verdict`, and for an outcome.
        """
        _check(name, port)
        if outcome not in _OUTCOMES:
            raise ValueError(f"outcome should be one of {', '.join(_OUTCOMES)}")
        self._scripts.record_destination(
            SandboxKeys.root,
            sandbox=sandbox_id,
            name=name,
            port=port,
            outcome=outcome,
            sent=sent,
            received=received,
            most=MOST_REACHED,
        )

    def reached(self, sandbox_id: str) -> list[ReachedDestination]:
        """What a sandbox has reached and was refused, the last first. One round trip."""
        stored = self._redis.hgetall(SandboxKeys.reached(sandbox_id))
        return sorted(_reached(stored), key=lambda one: one.last_at, reverse=True)


def _check(name: str, port: int) -> None:
    if not is_destination_name(name):
        raise ValueError(f"No lower-case DNS name: {beginning(name, MOST_NAME)!r}")
    if not 1 <= port <= 65535:
        raise ValueError(f"No port: {port}")


def _not_made(reply: "DecideDestination.Known | RuleDestination.Known | Literal['full', 'revoked']") -> StoreError:
    """Why a rule was not made."""
    if reply == "full":
        return TooManyDestinationRules()
    return DestinationRuleWasRevoked() if reply == "revoked" else DestinationRuleExists(reply.id)


def _noted(place: bytes, fields: dict[bytes, bytes]) -> tuple[str, str, int, str, str, str, str, str]:
    """An entry of the audit as `note_destinations.lua` takes it. place: its id "MS-N" in the stream."""
    entry = json.loads(fields[b"entry"])
    kind = _CHANGES.get(entry["decision"], "")
    if entry["actor"]["kind"] == "expiry":
        kind = "expired"
    data, notice = _told(entry, kind, fields[b"item"]) if kind else ("", "")
    milliseconds, number = (int(part) for part in place.split(b"-"))
    known = (f"{milliseconds:020d} {number:020d}", audit_member(entry["chain"], entry["seq"]), micros(entry["time"]))
    digest = entry["digests"][0] if entry["digests"] else ""
    return *known, kind and f"destination_{kind}", entry["conversation_id"] or "", digest, data, notice


def _told(entry: dict[str, Any], kind: str, stored: bytes) -> tuple[str, str]:
    """The data of a change of the inbox, and its notice: "" where nobody is notified."""
    of = "budget" if "budget" in entry else "destination"
    subject = {"subject": of, "conversation_id": entry["conversation_id"], "digest": entry["digests"][0]}
    members = {name: value for name, value in entry[of].items() if name not in ("program", "sandbox_id")}
    subject |= {"sandbox_id": entry[of]["sandbox_id"], **(members if of == "destination" else {"budget": members})}
    if kind == "closed":
        return json.dumps(subject), ""
    if kind == "opened":
        shown = _asked(subject["sandbox_id"], entry["conversation_id"] or "", stored).shown
        notice = {"type": f"{of}.pending", "time": entry["time"], **shown}
        return json.dumps(shown), json.dumps({**notice, "tries": str(shown["tries"])})
    decided = {name: entry[name] for name in ("decision", "reason", "time")}
    decided |= {"actor": {name: entry["actor"][name] for name in ("kind", "name")}, "scope": entry.get("scope")}
    told = {"decision": decided["decision"], "actor": decided["actor"], "detail": decided["reason"]}
    notice = {"type": f"{of}.{kind}", "time": entry["time"], **subject, **told}
    return json.dumps(subject | decided), json.dumps(notice)


def _asked(sandbox_id: str, conversation_id: str, stored: str | bytes) -> AskedDestination:
    item = json.loads(stored)
    budget = _budget(item) if "sandbox" in item else None
    return AskedDestination(
        sandbox_id=sandbox_id,
        conversation_id=conversation_id or None,
        name=None if budget else item["name"],
        port=None if budget else int(item["port"]),
        program=item["program"] or None,
        tries=int(item["tries"]),
        since=Micros(int(item["since"])),
        tried_at=Micros(int(item["tried_at"])),
        expires_at=Micros(int(item["until_at"])) if item["until_at"] else None,
        budget=budget,
    )


def _budget(item: dict[str, str]) -> AskedBudget:
    setting, key_id, day = item["name"], item["key"], item["day"]
    is_of_key = setting == "MODEL_BUDGET_KEY"
    return AskedBudget(
        setting=setting,
        key_id=key_id if is_of_key else None,
        day=utc_time(Micros(int(day) * 86_400_000_000))[:10] if day else None,
        dollars=int(item["nanos"]) / 1e9 if item["nanos"] else None,
        tokens=int(item["tokens"]) if item["tokens"] else None,
        place=(f"day.{day}" if day else item["sandbox"], f"{setting}.{key_id}:0" if is_of_key else f"{setting}:0"),
    )


def _rule(stored: str | bytes, uses: int) -> DestinationRule:
    rule = json.loads(stored)
    return DestinationRule(
        **{**rule, "port": int(rule["port"]), "created_at": Micros(int(rule["created_at"])), "uses": uses}
    )


def _reached(stored: dict[bytes, bytes]) -> Iterator[ReachedDestination]:
    for at, raw in stored.items():
        name, _, port = at.decode().rpartition(":")
        seen: Any = {member: int(number) for member, number in json.loads(raw).items()}
        yield ReachedDestination(name=name or None, port=int(port) if name else None, **seen)
