"""What sandboxes ask to reach, and have reached: names that nobody allowed wait for a person, as pending actions do.

All of it lies in the slot of the sandboxes, so that one script sees the sandbox, the rules and the decisions: a rule
that is revoked allows no connection that is asked for afterwards. What a sandbox asked and reached ends with it.

A decision is for one connection (`once`), for as long as the sandbox is (`conversation`), or for every sandbox
(`always`: a rule). A rule that rejects wins over one that approves, and a rule over what was decided in one sandbox.
Rejected once, or expired, a name is asked again ten minutes later. Source: docs/approvals.md, "Asking".
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from redis import Redis

from core.approvals import canonical
from core.bounds import Bounds
from core.cuts import beginning
from core.egress import MOST_NAME, is_destination_name
from core.refused import Kind
from core.wire import Micros
from store.errors import StoreError
from store.keys import SandboxKeys
from store.link.attempts import minted
from store.scripts import Scripts

#: most destinations of one sandbox that wait for a decision, that are remembered with their decisions, and that are
#: counted by name once they were reached or refused
MOST_WAITING, MOST_REMEMBERED, MOST_REACHED = 20, 200, 500

#: most rules for destinations
MOST_DESTINATION_RULES = 1000

#: most characters of what a program is called
MOST_PROGRAM = 100

Decided = Literal["approve", "reject"]
Scope = Literal["once", "conversation", "always"]

_OUTCOMES = ("allowed", "refused")

#: what is counted of all sandboxes: destinations that were asked for, connections, and bytes
TOTALS = ("asked", *_OUTCOMES, "sent", "received")

_WORDS = {
    "asked": "is not allowed; a person was asked; try again when it is",
    "waiting": "is not allowed; a person was asked; try again when it is",
    "rejected": "is not allowed: a person rejected it",
    "forbidden": "is not allowed: a rule rejects it",
    "expired": "is not allowed: a person was asked, and nobody answered in time; it is asked again in ten minutes",
    "ended": "is not allowed: the sandbox has ended",
}


class DestinationNotFound(StoreError):
    """No destination of that name and port waits in that sandbox."""

    kind = Kind.MISSING
    words = "Nothing of that name and port waits for a decision in that sandbox"


class DestinationChanged(StoreError):
    """A destination was decided, has expired, or was asked anew since it was shown."""

    kind = Kind.CONFLICT
    words = "This destination was decided or asked anew since it was shown: look again"


class DestinationExpired(StoreError):
    """A destination was not decided before its deadline."""

    kind = Kind.CONFLICT
    words = "This destination has expired: it is asked again when the sandbox tries again"


class DestinationRuleNotFound(StoreError):
    """There is no rule for destinations of that id."""

    kind = Kind.MISSING
    words = "Destination rule not found"


class DestinationRuleExists(StoreError):
    """There is a rule of the same name and port."""

    kind = Kind.CONFLICT

    def __init__(self, rule_id: str) -> None:
        super().__init__(f"There is a rule of that name and port: revoke it first ({rule_id})")


class TooManyDestinationRules(StoreError):
    """There are as many rules for destinations as may be."""

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
class AskedDestination:
    """A destination that waits for a decision."""

    sandbox_id: str
    conversation_id: str | None  #: the one in the sandbox; None where there is none, or several share it
    name: str
    port: int
    program: str | None
    tries: int
    since: Micros
    tried_at: Micros
    expires_at: Micros | None

    @property
    def digest(self) -> str:
        """SHA-256 of what a person is shown, and of since when it waits: a decision is bound to it."""
        shown = {"name": self.name, "port": self.port, "sandbox_id": self.sandbox_id, "since": str(self.since)}
        return sha256(canonical(shown)).hexdigest()


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

    def __init__(self, redis: "Redis", scripts: Scripts, bounds: Bounds) -> None:
        self._redis = redis
        self._scripts = scripts
        self._span = bounds.confirmation_seconds * 1_000_000

    def verdict(self, sandbox_id: str, name: str, port: int, program: str | None = None) -> Verdict:
        """Whether a sandbox may connect to a name and port now; asks a person where nobody has decided. One round trip.

        Raises ValueError for what is no lower-case DNS name, or no port.
        """
        _check(name, port)
        args = [sandbox_id, name, port, beginning(program or "", MOST_PROGRAM)]
        reply = self._scripts.ask_destination([SandboxKeys.root], [*args, MOST_WAITING, MOST_REMEMBERED, self._span])
        match reply:
            case ("allowed", rule_id):
                return Verdict(True, f"{name}:{port} is allowed", False, rule_id)
            case ("full", number):
                why = f"is not allowed, and nobody was asked: {number} destinations of this sandbox wait already"
                return Verdict(False, f"{name}:{port} {why} (MOST_WAITING)", False)
            case ("many", number):
                why = f"is not allowed, and nobody was asked: this sandbox has asked for {number} destinations"
                return Verdict(False, f"{name}:{port} {why} (MOST_REMEMBERED)", False)
            case (outcome,):
                return Verdict(False, f"{name}:{port} {_WORDS[outcome]}", outcome == "asked")
        raise AssertionError("ask_destination has no other outcome")

    def waiting(self, sandbox_id: str = "", *, limit: int = 1000) -> list[AskedDestination]:
        """What waits for a decision, of one sandbox or of all, the longest wait first. One round trip."""
        reply = self._scripts.list_destinations([SandboxKeys.root], [limit, sandbox_id])
        return [_asked(*reply[at : at + 3]) for at in range(0, len(reply), 3)]

    def decide(self, asked: AskedDestination, decision: Decided, scope: Scope, by: str) -> DestinationRule | None:
        """Decide what waits, as it was shown; the first decision wins. Returns the rule that `always` makes.

        Raises DestinationNotFound, DestinationChanged, DestinationExpired, and of `always` what `make_rule` raises.
        """
        rule = [str(minted("destination rule")), by, MOST_DESTINATION_RULES]
        args = [asked.sandbox_id, asked.name, asked.port, asked.since, decision, scope, *rule]
        match self._scripts.decide_destination([SandboxKeys.root], args):
            case ("decided",):
                return None
            case ("made", made):
                return _rule(made, 0)
            case ("known", other):
                raise DestinationRuleExists(other)
            case ("full",):
                raise TooManyDestinationRules
            case ("missing",):
                raise DestinationNotFound
            case ("expired",):
                raise DestinationExpired
        raise DestinationChanged

    def make_rule(self, name: str, port: int, decision: Decided, by: str) -> DestinationRule:
        """Keep a rule; once per request. Raises ValueError, DestinationRuleExists, TooManyDestinationRules."""
        _check(name.removeprefix("*."), port)
        args = [str(minted("destination rule")), name, port, decision, by, MOST_DESTINATION_RULES]
        match self._scripts.rule_destination([SandboxKeys.root], args):
            case ("made", made):
                return _rule(made, 0)
            case ("known", other):
                raise DestinationRuleExists(other)
        raise TooManyDestinationRules

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
        found: Any = self._redis.hmget(SandboxKeys.destination_rules, asked) if asked else []
        return {rule_id for rule_id, rule in zip(asked, found, strict=True) if rule is not None}

    def revoke(self, rule_id: str) -> None:
        """Forget a rule: no connection that is asked for after this returns is decided by it.

        Raises DestinationRuleNotFound.
        """
        if not self._scripts.revoke_destination_rule([SandboxKeys.root], [rule_id]):
            raise DestinationRuleNotFound

    def record(self, sandbox_id: str, name: str, port: int, outcome: str, sent: int, received: int) -> None:
        """Count what a sandbox has reached, or was refused. outcome: `allowed` or `refused`. sent, received: bytes.

        Of a sandbox that has ended nothing is kept. One round trip. Raises ValueError as `verdict`, and for an outcome.
        """
        _check(name, port)
        if outcome not in _OUTCOMES:
            raise ValueError(f"outcome should be one of {', '.join(_OUTCOMES)}")
        args = [sandbox_id, name, port, outcome, sent, received, MOST_REACHED]
        self._scripts.record_destination([SandboxKeys.root], args)

    def reached(self, sandbox_id: str) -> list[ReachedDestination]:
        """What a sandbox has reached and was refused, the last first. One round trip."""
        stored: Any = self._redis.hgetall(SandboxKeys.reached(sandbox_id))
        return sorted(_reached(stored), key=lambda one: one.last_at, reverse=True)

    def totals(self) -> dict[str, int]:
        """What all sandboxes did since the store began: `asked`, `allowed`, `refused`, and bytes `sent`, `received`."""
        stored: Any = self._redis.hgetall(SandboxKeys.destinations)
        return {name: int(stored.get(name.encode(), 0)) for name in TOTALS}


def _check(name: str, port: int) -> None:
    if not is_destination_name(name):
        raise ValueError(f"No lower-case DNS name: {name[:MOST_NAME]!r}")
    if not 1 <= port <= 65535:
        raise ValueError(f"No port: {port}")


def _asked(sandbox_id: bytes, conversation_id: bytes, stored: bytes) -> AskedDestination:
    item = json.loads(stored)
    return AskedDestination(
        sandbox_id=sandbox_id.decode(),
        conversation_id=conversation_id.decode() or None,
        name=item["name"],
        port=int(item["port"]),
        program=item["program"] or None,
        tries=int(item["tries"]),
        since=Micros(int(item["since"])),
        tried_at=Micros(int(item["tried_at"])),
        expires_at=Micros(int(item["until_at"])) if item["until_at"] else None,
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
