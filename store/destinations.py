"""Destinations of sandboxes: requests that wait for a person, like pending actions, and connections so far.

All keys lie in the slot of the sandboxes, so that one script sees the sandbox, the rules and the decisions. A revoked
rule allows no connection that is requested afterwards. The data of a sandbox end with it.

A decision holds for one connection (`once`), for the life of the sandbox (`conversation`), or for every sandbox
(`always`: a rule). A rule that rejects wins over one that approves, and a rule wins over a decision in one sandbox.
After a rejection for `once`, or an expiry, a person is asked again ten minutes later. Source: docs/approvals.md,
"Asking".

A budget for models that is used up also waits here (`spending.py` asks). An approval adds the same amount once more. A
rejection keeps it closed until it is full again. There is no `always`: that is the setting. In the store its name is
the setting, and its port is 0.

The script that asks, decides or ends a wait writes the audit entry (`scripts/_destinations.lua`) and queues it. `note`
adds it to the index of the audit, the stream of the inbox and the outbox, each once. The caller of the script calls
`note`. If it is killed before, another process does so within a second, in `close_over`.
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
from core.refused import RefusalKind
from core.rule_words import rule_sentence
from core.wire import ConversationId, Micros, micros, utc_time
from settings.limits import ConversationLimits
from store.approvals.audit import DecisionActor, audit_member, canonical_text
from store.errors import SandboxNotFound, StoreError
from store.keys import MOST_CHANGES, ApprovalKeys, SandboxKeys
from store.link.attempts import minted
from store.link.commands import Redis
from store.scripts import Scripts
from store.scripts.calls import AskDestination, DecideDestination, RuleDestination

#: Maximum number of pending destinations of a sandbox, of destinations with stored decisions, and of names whose
#: connections and refusals are counted.
MOST_WAITING, MOST_REMEMBERED, MOST_REACHED = 20, 200, 500

MOST_DESTINATION_RULES = 1000

#: Maximum number of requests of a sandbox in a day (UTC), and of names whose refusals of a day are audited.
MOST_ASKED, MOST_REFUSALS = 500, 200

#: Number of waits that one script ends, and of audit entries that are noted at once.
_CLOSED, _NOTED = 20, 100

#: Maximum length of a program's name, in characters.
MOST_PROGRAM = 100

Decided = Literal["approve", "reject"]
Scope = Literal["once", "conversation", "always"]

_OUTCOMES = ("allowed", "refused")

#: Totals of all sandboxes since the store began: requested destinations, connections, and bytes.
TOTALS = ("asked", *_OUTCOMES, "sent", "received")

_WORDS = {
    "asked": "is not allowed; a person was asked; try again when it is",
    "waiting": "is not allowed; a person was asked; try again when it is",
    "rejected": "is not allowed: a person rejected it",
    "forbidden": "is not allowed: a rule rejects it",
    "expired": "is not allowed: a person was asked, and nobody answered in time; it is asked again in ten minutes",
    "ended": "is not allowed: the sandbox has ended",
}


#: Members of a budget for clients.
BUDGET_MEMBERS = ("setting", "key_id", "day", "dollars", "tokens")

#: Change of the inbox by the decision of an audit entry. Other entries are no change.
_CHANGES = {"asked": "opened", "approve": "decided", "reject": "decided", "deleted": "closed"}


class DestinationNotFound(StoreError):
    """The destination is not pending in this sandbox."""

    kind = RefusalKind.MISSING
    words = (
        "Nothing of that name and port waits for a decision in that sandbox. GET /api/v1/destinations lists what waits"
    )


class DestinationChanged(StoreError):
    """The destination was decided, expired, or was requested again since it was shown."""

    kind = RefusalKind.CONFLICT
    words = "This destination was decided or requested again since it was shown: read it again"


class DestinationExpired(StoreError):
    """The destination was not decided before its deadline."""

    kind = RefusalKind.CONFLICT
    words = "This destination has expired: let the agent try again, which asks you again"


class BudgetScopeRefused(StoreError):
    """The budget cannot be allowed or rejected for this scope."""

    kind = RefusalKind.MEMBER
    member = "scope"

    def __init__(self, setting: str) -> None:
        words = "to approve a budget, which adds the same amount once more, or conversation to reject it"
        super().__init__(f"Input should be once {words}: always is not offered, for that an operator raises {setting}")


class DestinationRuleNotFound(StoreError):
    """The destination rule does not exist."""

    kind = RefusalKind.MISSING
    words = "Destination rule not found. GET /api/v1/destination-rules lists all rules"


class DestinationRuleWasRevoked(StoreError):
    """An earlier attempt of this request made the rule, and it was revoked since."""

    kind = RefusalKind.CONFLICT
    words = "This request made a rule that has been revoked since: make another with a new request"


class DestinationRuleExists(StoreError):
    """A rule with this name and port exists."""

    kind = RefusalKind.CONFLICT

    def __init__(self, rule_id: str) -> None:
        super().__init__(f"A rule with this name and port exists: revoke it first ({rule_id})")


class TooManyDestinationRules(StoreError):
    """The maximum number of destination rules is reached."""

    kind = RefusalKind.CONFLICT
    words = f"Limit of {MOST_DESTINATION_RULES} destination rules reached: revoke one first (MOST_DESTINATION_RULES)"


@dataclass(frozen=True, slots=True)
class DestinationVerdict:
    """Whether a sandbox may connect now. reason: a sentence for its agent. asked: this attempt has asked a person.

    rule_id: of the rule that allows it; empty: none.
    """

    is_allowed: bool
    reason: str
    asked: bool
    rule_id: str = ""


@dataclass(frozen=True, slots=True)
class AskedBudget:
    """A budget that waits for an approval of the same amount once more.

    key_id, day: if it is of a key, or of a day in UTC.
    """

    setting: str
    key_id: str | None
    day: str | None
    dollars: float | None  #: amount that an approval adds; None: without limit
    tokens: int | None
    place: tuple[str, str] = ("", "")  #: asker and subject, as in the scripts


@dataclass(frozen=True, slots=True)
class AskedDestination:
    """A destination, or a budget, that waits for a decision."""

    sandbox_id: str  #: id of the sandbox; of a budget: whose call was refused first
    conversation_id: str | None  #: conversation in the sandbox; None: none or several
    name: str | None  #: None, like the port: it is a budget
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
        """Return the asker and "NAME:PORT", as in the scripts."""
        return self.budget.place if self.budget else (self.sandbox_id, f"{self.name}:{self.port}")

    @property
    def digest(self) -> str:
        """Return the SHA-256 of what a person is shown, and of the start of the wait. A decision is bound to it."""
        of = (self.budget.setting, 0) if self.budget else (self.name, self.port)
        shown = {"name": of[0], "port": of[1], "sandbox_id": self.sandbox_id, "since": str(self.since)}
        return sha256(canonical(shown)).hexdigest()

    @property
    def shown(self) -> dict[str, Any]:
        """Return its representation for clients."""
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


#: The cursor of a page: start of its first destination's wait, and "SANDBOX NAME:PORT".
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
    """The connections of a sandbox to a name and port. Both are None for all names beyond MOST_REACHED."""

    name: str | None
    port: int | None
    allowed: int
    refused: int
    sent: int  #: bytes, like the next
    received: int
    first_at: Micros
    last_at: Micros


class Destinations:
    def __init__(self, redis: Redis, scripts: Scripts, bounds: ConversationLimits) -> None:
        self._redis = redis
        self._scripts = scripts
        self._span = bounds.confirmation_seconds * 1_000_000
        self._kept = bounds.audit_days * 86_400  #: seconds for which an audit entry is kept

    @property
    def _chain_kept(self) -> int:
        """Return the ms for which a day's chain of the audit is kept."""
        return self._kept * 1000

    def verdict(self, sandbox_id: str, name: str, port: int, program: str | None = None) -> DestinationVerdict:
        """Decide whether a sandbox may connect to a name and port now. Asks a person if nobody has decided.

        One round trip, three if a person is asked. Raises StoreFull, and ValueError unless name is a lower-case DNS
        name and port a port.
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
            actor=DecisionActor("sandbox", sandbox_id).json,
            said=canonical_text(program) if program else "",
            most_asked=MOST_ASKED,
            most_refused=MOST_REFUSALS,
        )
        match reply:
            case AskDestination.Allowed(rule_id):
                return DestinationVerdict(True, f"{name}:{port} is allowed", False, rule_id)
            case AskDestination.Full(number):
                why = f"is not allowed, and nobody was asked: {number} destinations of this sandbox wait already"
                return DestinationVerdict(False, f"{name}:{port} {why} (MOST_WAITING)", False)
            case AskDestination.Many(number):
                why = f"is not allowed, and nobody was asked: this sandbox has asked for {number} destinations"
                return DestinationVerdict(False, f"{name}:{port} {why} (MOST_REMEMBERED)", False)
            case AskDestination.Often(number):
                why = f"is not allowed, and nobody was asked: this sandbox has asked {number} times today"
                return DestinationVerdict(False, f"{name}:{port} {why} (MOST_ASKED)", False)
        if reply == "asked":
            self.note()
        return DestinationVerdict(False, f"{name}:{port} {_WORDS[reply]}", reply == "asked")

    def page(
        self, sandbox_id: str = "", *, limit: int, start: Cursor | None = None
    ) -> tuple[list[AskedDestination], Cursor | None]:
        """Return the pending destinations and budgets of a sandbox or of all, and the next cursor.

        The longest wait comes first. One round trip.
        """
        at, member = start or (None, "")
        page = self._scripts.list_destinations(
            SandboxKeys.root, most=limit, only=sandbox_id, cursor=at, cursor_member=member
        )
        following = page.following[0] if page.following else None
        return [_pending(*item) for item in page.items], following

    def waiting(self, sandbox_id: str = "") -> list[AskedDestination]:
        """Return the first 1,000 pending destinations and budgets, which are all of a sandbox."""
        return self.page(sandbox_id, limit=1000)[0]

    def of_conversation(self, conversation_id: ConversationId, sandbox_id: str) -> list[AskedDestination]:
        """Return the pending destinations of a conversation's sandbox, and budgets that have refused its calls.

        Destinations of another conversation in the sandbox are omitted.
        """
        return [one for one in self.waiting(sandbox_id) if one.budget or one.conversation_id in (None, conversation_id)]

    def decide(
        self, asked: AskedDestination, decision: Decided, scope: Scope, actor: DecisionActor, reason: str = ""
    ) -> DestinationRule | None:
        """Decide a destination or budget as it was shown. The first decision wins.

        Returns the rule that `always` makes. Raises DestinationNotFound, DestinationChanged, DestinationExpired, for a
        budget BudgetScopeRefused, and for `always` the errors of `make_rule`.
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
            reason=canonical_text(reason),
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

    def make_rule(self, name: str, port: int, decision: Decided, actor: DecisionActor) -> DestinationRule:
        """Store a rule, once per request.

        Raises ValueError, DestinationRuleExists, DestinationRuleWasRevoked, TooManyDestinationRules.
        """
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
        """End waits whose deadline has passed, whose sandbox has ended, or that a rule decides. Returns their number.

        Also calls `note`. Several processes may call it at once. One round trip if there is nothing to do.
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
        """Add queued audit entries to the index of the audit, the stream of the inbox and the outbox.

        Several processes may call it at once: each entry is added once.
        """
        while True:
            found = self._redis.xrange(SandboxKeys.unnoted, count=_NOTED)
            if not found:
                return
            self._scripts.note_destinations(
                ApprovalKeys.root,
                most=MOST_CHANGES,
                entries=[_row(place, fields) for place, fields in found],
            )
            self._redis.xdel(SandboxKeys.unnoted, *(place for place, _ in found))

    def join(self, joiner: Joiner, sandbox_id: str, join_id: str, conversation_id: str, reason: str) -> bool:
        """Audit that a key joins a sandbox, once per join_id; False if another key started it and this one may not.

        conversation_id: of the conversation in which it acts. Two round trips. Raises SandboxNotFound.
        """
        outcome = self._scripts.join_sandbox(
            SandboxKeys.root,
            sandbox=sandbox_id,
            key=joiner.owner,
            may_join_any=joiner.joins_any,
            id=join_id,
            conversation=conversation_id,
            actor=DecisionActor("person" if is_person_id(joiner.owner) else "key", joiner.name, joiner.address).json,
            reason=canonical_text(reason),
            time=utc_time(wire.now()),
            kept=self._chain_kept,
        )
        if outcome is None:
            raise SandboxNotFound
        self.note()
        return outcome == "joined"

    def note_rule(self, actor: DecisionActor, what: str, rule: Rule) -> None:
        """Audit that an approval rule without conversations was made or revoked.

        what: `rule_made` or `rule_revoked`. Two round trips.
        """
        self._scripts.note_rule(
            SandboxKeys.root,
            time=utc_time(wire.now()),
            kept=self._chain_kept,
            actor=actor.json,
            what=what,
            id=rule.id,
            reason=canonical_text(f"Rule {rule.id}. {rule_sentence(rule)}."),
        )
        self.note()

    def rules(self) -> list[DestinationRule]:
        """Return the rules for destinations with their uses, the newest first. One round trip."""
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.hvals(SandboxKeys.destination_rules)
            pipe.hgetall(SandboxKeys.destination_uses)
            rules, uses = pipe.execute()
        found = [_rule(rule, int(uses.get(json.loads(rule)["id"].encode(), 0))) for rule in rules]
        return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)

    def standing(self, rule_ids: Collection[str]) -> set[str]:
        """Return the ids of rules that are still in force. One round trip."""
        asked = list(rule_ids)
        found = self._redis.hmget(SandboxKeys.destination_rules, asked) if asked else []
        return {rule_id for rule_id, rule in zip(asked, found, strict=True) if rule is not None}

    def revoke(self, rule_id: str, actor: DecisionActor) -> None:
        """Delete a rule. It decides no connection that is requested after this returns.

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
        """Count a connection or a refusal of a sandbox. outcome: `allowed` or `refused`. sent, received: bytes.

        Ignores an ended sandbox. One round trip. Raises ValueError as `verdict`, and for an unknown outcome.
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
        """Return the connections and refusals of a sandbox, the latest first. One round trip."""
        stored = self._redis.hgetall(SandboxKeys.reached(sandbox_id))
        return sorted(_reached(stored), key=lambda one: one.last_at, reverse=True)


def _check(name: str, port: int) -> None:
    if not is_destination_name(name):
        raise ValueError(f"Not a lower-case DNS name: {beginning(name, MOST_NAME)!r}")
    if not 1 <= port <= 65535:
        raise ValueError(f"Not a port: {port}")


def _not_made(reply: "DecideDestination.Known | RuleDestination.Known | Literal['full', 'revoked']") -> StoreError:
    if reply == "full":
        return TooManyDestinationRules()
    return DestinationRuleWasRevoked() if reply == "revoked" else DestinationRuleExists(reply.id)


def _row(place: bytes, fields: dict[bytes, bytes]) -> tuple[str, str, int, str, str, str, str, str]:
    """Return an audit entry for `note_destinations.lua`. place: its id "MS-N" in the stream."""
    entry = json.loads(fields[b"entry"])
    kind = _CHANGES.get(entry["decision"], "")
    if entry["actor"]["kind"] == "expiry":
        kind = "expired"
    data, notice = _change_and_notice(entry, kind, fields[b"item"]) if kind else ("", "")
    milliseconds, number = (int(part) for part in place.split(b"-"))
    known = (f"{milliseconds:020d} {number:020d}", audit_member(entry["chain"], entry["seq"]), micros(entry["time"]))
    digest = entry["digests"][0] if entry["digests"] else ""
    return *known, kind and f"destination_{kind}", entry["conversation_id"] or "", digest, data, notice


def _change_and_notice(entry: dict[str, Any], kind: str, stored: bytes) -> tuple[str, str]:
    """Return the data of a change of the inbox, and its notification: "" for none."""
    of = "budget" if "budget" in entry else "destination"
    subject = {"subject": of, "conversation_id": entry["conversation_id"], "digest": entry["digests"][0]}
    members = {name: value for name, value in entry[of].items() if name not in ("program", "sandbox_id")}
    subject |= {"sandbox_id": entry[of]["sandbox_id"], **(members if of == "destination" else {"budget": members})}
    if kind == "closed":
        return json.dumps(subject), ""
    if kind == "opened":
        shown = _pending(subject["sandbox_id"], entry["conversation_id"] or "", stored).shown
        notice = {"type": f"{of}.pending", "time": entry["time"], **shown}
        return json.dumps(shown), json.dumps({**notice, "tries": str(shown["tries"])})
    decided = {name: entry[name] for name in ("decision", "reason", "time")}
    decided |= {"actor": {name: entry["actor"][name] for name in ("kind", "name")}, "scope": entry.get("scope")}
    decision = {"decision": decided["decision"], "actor": decided["actor"], "detail": decided["reason"]}
    notice = {"type": f"{of}.{kind}", "time": entry["time"], **subject, **decision}
    return json.dumps(subject | decided), json.dumps(notice)


def _pending(sandbox_id: str, conversation_id: str, stored: str | bytes) -> AskedDestination:
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
