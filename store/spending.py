"""Spending of sandboxes on models, from the models' responses: tokens, and dollars if a price is known.

Before each call, the egress proxy reads the spending so far (`so_far`) and compares it with the budgets of the
settings. It books each call before the sandbox has all of its response. A budget is thus exceeded only by calls that
are already in progress. Spending is counted per sandbox for its life, per key (that started the sandbox) and in total
per day in UTC, for SPENT_DAYS, and per model. All keys lie in the slot of the sandboxes.

A call that a budget refuses asks a person for the same amount once more. The request waits beside the destinations
(`destinations.py`). Approved amounts are stored beside the spending, so that both end together.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime

from core import wire
from core.prices import NO_BUDGET, SPENT_DAYS, ModelBudget, Used
from core.wire import utc_time
from settings.limits import ConversationLimits
from store.approvals.audit import DecisionActor, canonical_text
from store.destinations import Destinations
from store.keys import SandboxKeys
from store.link.commands import Redis
from store.record import HashRecord
from store.scripts import Scripts

_EPOCH, _DAY_SECONDS = date(1970, 1, 1), 86_400

#: Maximum length of a stored model name, in characters.
MOST_MODEL = 200


#: Maximum number of pending destinations and budgets of all sandboxes. Beyond it no budget is requested.
MOST_ASKING = 10_000

#: Sentences of a refused call about the person who may allow more, by the outcome of the request.
_ASKED = {
    "asked": "a person was asked to allow as much once more; try again when it is",
    "waiting": "a person was asked to allow as much once more; try again when it is",
    "rejected": "a person was asked for more, and rejected it",
    "expired": "a person was asked for more, and nobody answered in time; it is asked again in ten minutes",
    "full": f"nobody was asked for more: {MOST_ASKING} destinations and budgets wait already (MOST_ASKING)",
    "changed": "there is room in it again meanwhile: try again",
    "untold": "",
}


@dataclass(frozen=True, slots=True)
class StoredSpending(HashRecord):
    """The spending on models."""

    key = SandboxKeys.spent("ID")
    calls: int = 0
    refused: int = 0  #: calls that a budget refused
    estimated: int = 0  #: calls whose response did not report its usage
    input: int = 0  #: tokens that were neither read from nor written to a cache
    output: int = 0
    cached: int = 0  #: tokens that were read from a cache
    written: int = 0  #: tokens that were written to a cache
    tokens: int = 0  #: tokens of all four kinds
    nanos: int = 0  #: billionths of a dollar
    unpriced: int = 0  #: tokens of models without a known price, which cost no dollars here
    allowed_nanos: int = 0  #: billionths of a dollar that people have approved beyond the budget
    allowed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Unpriced(HashRecord):
    """The last model without a price."""

    key = StoredSpending.key
    model: str = ""  #: last model without a known price


@dataclass(frozen=True, slots=True)
class SoFar:
    """The amounts to compare with a budget. model: the last one without a known price; empty: none."""

    nanos: int
    tokens: int
    unpriced: int
    model: str
    allowed_nanos: int = 0  #: amount that people have approved beyond the budget
    allowed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """The spending of a sandbox, and today's spending of its key's sandboxes and of all."""

    owner: str  #: id of the key that started it; empty: none
    conversation: SoFar
    key: SoFar
    day: SoFar
    today: int = 0  #: days since 1970, in UTC


@dataclass(frozen=True, slots=True)
class DailySpending:
    """The spending of a day: in total, and by key, the most expensive first."""

    day: date
    all: StoredSpending
    keys: list[tuple[str, StoredSpending]]


class ModelSpending:
    def __init__(self, redis: Redis, scripts: Scripts, destinations: Destinations, bounds: ConversationLimits) -> None:
        self._redis, self._scripts, self._destinations = redis, scripts, destinations
        self._span = bounds.confirmation_seconds * 1_000_000
        self._audit_kept = bounds.audit_days * _DAY_SECONDS * 1000

    def so_far(self, sandbox_id: str) -> Account | None:
        """Return the spending so far; None for an unknown sandbox. One round trip. Raises UNAVAILABLE."""
        reply = self._scripts.read_spending(SandboxKeys.root, sandbox=sandbox_id)
        if reply is None:
            return None
        return Account(reply.owner, SoFar(*reply.conversation), SoFar(*reply.key), SoFar(*reply.day), reply.today)

    def book(
        self,
        sandbox_id: str,
        owner: str,
        label: str,
        used: Used,
        nanos: int | None,
        *,
        model: str,
        calls: int,
        estimated: int,
    ) -> None:
        """Count the usage of a call. One round trip. Raises UNAVAILABLE.

        label: the model, from a limited set. nanos: None without a known price. model: name in its response. calls,
        estimated: see `StoredSpending`.
        """
        numbers = {"input": used.input, "output": used.output, "cached": used.cached, "written": used.written}
        numbers |= {
            "tokens": used.tokens,
            "nanos": nanos or 0,
            "unpriced": used.tokens if nanos is None else 0,
            "calls": calls,
            "estimated": estimated,
        }
        unpriced = model[:MOST_MODEL] if numbers["unpriced"] else ""
        self._scripts.book_call(
            SandboxKeys.root,
            sandbox=sandbox_id,
            owner=owner,
            model=label,
            kept=SPENT_DAYS * _DAY_SECONDS,
            unpriced=unpriced,
            numbers=numbers.items(),
        )

    def refuse(
        self,
        sandbox_id: str,
        owner: str,
        setting: str,
        name: str,
        port: int,
        why: str,
        *,
        more: ModelBudget = NO_BUDGET,
        day: int = 0,
        allowed: tuple[int, int] = (0, 0),
    ) -> str:
        """Count a call that a budget refuses, and ask a person for more. Returns a sentence about that, or "".

        The first refusal of a day per sandbox and budget is audited. setting: of the budget. name, port: of the model.
        more: amount that an approval adds; without a limit nobody is asked. day, allowed: from the account that was
        compared, so that nobody is asked for what has become possible since. Raises UNAVAILABLE.
        """
        allowed_nanos, allowed_tokens = allowed
        reply = self._scripts.refuse_call(
            SandboxKeys.root,
            sandbox=sandbox_id,
            owner=owner,
            setting=setting,
            name=name,
            port=port,
            why=canonical_text(why),
            time=utc_time(wire.now()),
            kept=self._audit_kept,
            actor=DecisionActor("sandbox", sandbox_id).json,
            days=SPENT_DAYS * _DAY_SECONDS,
            nanos=more.nanos,
            tokens=more.tokens,
            day=day,
            seen_nanos=allowed_nanos,
            seen_tokens=allowed_tokens,
            span=self._span,
            most=MOST_ASKING,
        )
        if reply.unnoted:
            self._destinations.note()
        return _ASKED[reply.outcome]

    def of_sandbox(self, sandbox_id: str) -> StoredSpending:
        """Return the spending of a sandbox so far. One round trip."""
        stored = self._redis.hgetall(SandboxKeys.spent(sandbox_id))
        return StoredSpending.read(stored)

    def of_day(self, day: date | None = None) -> DailySpending:
        """Return the spending of a day in UTC; None: today. One round trip, and another one for today's date."""
        if day is None:
            clock = self._redis.time()
            day = datetime.fromtimestamp(clock[0], UTC).date()
        stored = self._redis.hgetall(SandboxKeys.spent_on((day - _EPOCH).days))
        by_key: dict[str, dict[bytes, bytes]] = {}
        for name, number in stored.items():
            member, blank, owner = name.partition(b" ")
            if blank:
                by_key.setdefault(owner.decode(), {})[member] = number
        keys = [(owner, StoredSpending.read(numbers)) for owner, numbers in by_key.items()]
        keys.sort(key=lambda one: (-one[1].nanos, -one[1].tokens, one[0]))
        return DailySpending(day, StoredSpending.read(stored), keys)


def by_model(stored: dict[bytes, bytes]) -> dict[str, StoredSpending]:
    """Return the spending of all sandboxes by model, from the hash `SandboxKeys.models`."""
    found: dict[str, dict[bytes, bytes]] = {}
    for name, number in stored.items():
        model, blank, member = name.rpartition(b" ")
        if blank:
            found.setdefault(model.decode(), {})[member] = number
    return {model: StoredSpending.read(numbers) for model, numbers in sorted(found.items())}
