"""Approval rules in Redis, in a slot of their own: made, listed, used and revoked. `approvals.rules` matches them.

A use is counted before the decision, by a claim: a script sees that the rule is neither revoked nor expired, by Redis'
clock, and has a use left. So an action that was appended after a revocation is never decided by that rule, and a rule
decides at most `max_uses` actions. A worker that dies between claim and decision leaves a use that the repeat of the
claim finds: it counts once. Limitation: where a person decides such an action in between, the use stays counted.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import uuid4

from redis import Redis

from approvals.rules import Rule
from store.approval_keys import RuleKeys
from store.errors import StoreError
from store.link.attempts import minted
from store.scripts import Scripts
from wire import ConversationId, Micros

#: most rules that are kept, and most bytes of one as JSON
MOST_RULES, MOST_RULE_BYTES = 1000, 16 * 1024


class RuleNotFound(StoreError):
    """There is no rule of that id."""

    def __init__(self) -> None:
        super().__init__("Approval rule not found")


class RuleWasRevoked(StoreError):
    """A rule that an earlier attempt at a request made was revoked since: the repeat makes no other."""

    def __init__(self) -> None:
        super().__init__("This request has made a rule, which was revoked since: make another with a new request")


class RuleWouldBePast(StoreError):
    """A rule would have expired before it was made."""

    def __init__(self) -> None:
        super().__init__("Must lie in the future")


class RuleTooLong(StoreError):
    """A rule has more bytes than one may have."""

    def __init__(self) -> None:
        super().__init__(f"A rule should have at most {MOST_RULE_BYTES} bytes as JSON (MOST_RULE_BYTES)")


class TooManyRules(StoreError):
    """There are as many rules as may be."""

    def __init__(self) -> None:
        super().__init__(f"There are {MOST_RULES} approval rules, which is the most (MOST_RULES): revoke one first")


@dataclass(frozen=True, slots=True)
class UsedRule:
    """A rule as it is listed."""

    rule: Rule
    uses: int
    last_used_at: Micros | None


class Use(NamedTuple):
    """The use of a rule for one action, before its decision."""

    rule: Rule
    claim: str

    @classmethod
    def of(cls, rule: Rule, conversation_id: ConversationId, *action: str) -> "Use":
        """action: what tells this wait of an action from every other, also from that of another life of an id."""
        return cls(rule, sha256(json.dumps([rule.id, conversation_id, *action]).encode()).hexdigest())


class Rules:
    """All rules. A worker remembers them, and asks for their version alone while nothing changes."""

    def __init__(self, redis: "Redis", scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts
        self._remembered: tuple[bytes, tuple[Rule, ...]] = b"", ()

    def make(self, rule: Rule, what: str = "rule") -> UsedRule:
        """Keep a rule, whose `id` and `created_at` are given here; once per request and `what`.

        Raises TooManyRules, RuleTooLong, RuleWouldBePast, RuleWasRevoked.
        """
        rule = replace(rule, id=str(minted(what)))
        members = asdict(rule)
        del members["created_at"]
        text = json.dumps(members, separators=(",", ":"))
        if len(text) > MOST_RULE_BYTES:
            raise RuleTooLong
        limits = ["" if limit is None else limit for limit in (rule.expires_at, rule.max_uses)]
        match self._scripts.make_rule([RuleKeys.root], [rule.id, text, *limits, MOST_RULES]):
            case ("made", made):
                return UsedRule(_read(made), 0, None)
            case ("full",):
                raise TooManyRules
            case ("past",):
                raise RuleWouldBePast
            case ("revoked",):
                raise RuleWasRevoked
        raise AssertionError("make_rule has no other outcome")

    def all(self) -> list[UsedRule]:
        """The rules, the newest first, expired ones and those without a use left too."""
        found = self._list([])
        return sorted(found, key=lambda one: (one.rule.created_at or 0, one.rule.id), reverse=True)

    def get(self, rule_id: str) -> UsedRule:
        """One rule. Raises RuleNotFound."""
        for found in self._list([rule_id]):
            return found
        raise RuleNotFound

    def revoke(self, rule_id: str) -> None:
        """Forget a rule: no action that is appended after this returns is decided by it. Raises RuleNotFound."""
        if not self._scripts.revoke_rule([RuleKeys.root], [rule_id, uuid4().hex]):
            raise RuleNotFound

    def current(self) -> tuple[Rule, ...]:
        """The rules, for `approvals.rules.matching`. One round trip, two after a change."""
        version: Any = self._redis.get(RuleKeys.version)
        known, rules = self._remembered
        if (version or b"") != known:
            known, found = self._scripts.list_rules([RuleKeys.root], [])
            rules = tuple(_read(rule) for rule in found[::2])
            self._remembered = known, rules
        return rules

    def claim(self, uses: Sequence[Use]) -> Use | None:
        """Count uses, all or none, each once by its claim. Returns the first one that its rule refuses."""
        refused = self._scripts.claim_rule_uses([RuleKeys.root], _words(uses)) if uses else 0
        return uses[refused - 1] if refused else None

    def give_back(self, uses: Collection[Use]) -> None:
        """Count uses as not made: their actions were decided by other means."""
        if uses:
            self._scripts.return_rule_uses([RuleKeys.root], _words(uses))

    def _list(self, ids: Sequence[str]) -> list[UsedRule]:
        _, found = self._scripts.list_rules([RuleKeys.root], [*ids])
        return [_used(rule, json.loads(use)) for rule, use in zip(found[::2], found[1::2], strict=True)]


def _words(uses: Collection[Use]) -> list[str]:
    return [word for use in uses for word in (use.rule.id, use.claim)]


def _used(rule: bytes, use: dict[str, str]) -> UsedRule:
    last_used_at = use["last_used_at"]
    return UsedRule(_read(rule), int(use["uses"]), Micros(int(last_used_at)) if last_used_at else None)


def _read(rule: bytes | str) -> Rule:
    members = json.loads(rule)
    ids = members["conversation_ids"]
    return Rule(**{**members, "conversation_ids": None if ids is None else tuple(ids)})
