"""What sandboxes spend on models, as the models' responses say it: tokens, and dollars where a price is known.

The proxy of the way out asks what was spent before each call (`so_far`), compares it with the budgets of the settings,
and books each call before the sandbox has the whole of its response. So calls that were admitted and are under way are
all by which a budget is overshot. It is counted by sandbox for as long as that is, by key (who started the sandbox) and
in all by day in UTC, for SPENT_DAYS, and by model. All of it lies in the slot of the sandboxes.

A call that a budget refuses asks a person for as much once more, which waits beside the destinations
(`destinations.py`). What was allowed stands beside what was spent, so that both end together.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime

from core import wire
from core.prices import NO_BUDGET, SPENT_DAYS, Budget, Used
from core.wire import utc_time
from settings.limits import ConversationLimits
from store.approvals.audit import Actor, said
from store.destinations import Destinations
from store.keys import SandboxKeys
from store.link.commands import Redis
from store.record import Record
from store.scripts import Scripts

_EPOCH, _DAY_SECONDS = date(1970, 1, 1), 86_400

#: most characters of a model's name that is kept
MOST_MODEL = 200


#: most destinations and budgets of all sandboxes that wait, beyond which no budget is asked for
MOST_ASKING = 10_000

#: what a refused call says about the person who may allow more, by the outcome of asking
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
class Spending(Record):
    """What was spent on models."""

    key = SandboxKeys.spent("ID")
    calls: int = 0
    refused: int = 0  #: calls that a budget refused
    estimated: int = 0  #: calls whose response did not say what it used
    input: int = 0  #: tokens that were neither read from a cache nor written to one
    output: int = 0
    cached: int = 0  #: tokens that were read from a cache
    written: int = 0  #: tokens that were written to one
    tokens: int = 0  #: of all four kinds
    nanos: int = 0  #: billionths of a dollar
    unpriced: int = 0  #: tokens of models whose price is not known, which no dollars are counted for
    allowed_nanos: int = 0  #: billionths of a dollar that people have allowed beyond the budget
    allowed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Unpriced(Record):
    """What was spent without a price."""

    key = Spending.key
    model: str = ""  #: last model whose price is not known


@dataclass(frozen=True, slots=True)
class SoFar:
    """What a budget is compared with. model: the last whose price was not known; empty: there was none."""

    nanos: int
    tokens: int
    unpriced: int
    model: str
    allowed_nanos: int = 0  #: what people have allowed beyond the budget
    allowed_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """A sandbox's: what it has spent, and what its key's sandboxes and all have today."""

    owner: str  #: id of the key that started it; empty: nobody's
    conversation: SoFar
    key: SoFar
    day: SoFar
    today: int = 0  #: in UTC, in days since 1970


@dataclass(frozen=True, slots=True)
class DaySpending:
    """What was spent on one day: in all, and by key, the most expensive first."""

    day: date
    all: Spending
    keys: list[tuple[str, Spending]]


class ModelSpending:
    """What all sandboxes spend on models."""

    def __init__(self, redis: Redis, scripts: Scripts, destinations: Destinations, bounds: ConversationLimits) -> None:
        self._redis, self._scripts, self._destinations = redis, scripts, destinations
        self._span = bounds.confirmation_seconds * 1_000_000
        self._audit_kept = bounds.audit_days * _DAY_SECONDS * 1000

    def so_far(self, sandbox_id: str) -> Account | None:
        """What was spent so far; None: there is no such sandbox. One round trip. Raises UNAVAILABLE."""
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
        """Count what a call has used. One round trip. Raises UNAVAILABLE.

        label: the model, of a bounded set. nanos: None where its price is not known. model: as its response names it.
        calls, estimated: as `Spending` has them.
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
        more: Budget = NO_BUDGET,
        day: int = 0,
        allowed: tuple[int, int] = (0, 0),
    ) -> str:
        """Count a call that a budget refuses, and ask a person for more; a sentence about that, empty where nobody is.

        The first of a day of a sandbox and a budget is audited. setting: of the budget. name, port: where the model is.
        more: what an approval adds; without a bound nobody is asked. day, allowed: as the account had them that it was
        refused by: nobody is asked for what has become possible since. Raises UNAVAILABLE.
        """
        allowed_nanos, allowed_tokens = allowed
        reply = self._scripts.refuse_call(
            SandboxKeys.root,
            sandbox=sandbox_id,
            owner=owner,
            setting=setting,
            name=name,
            port=port,
            why=said(why),
            time=utc_time(wire.now()),
            kept=self._audit_kept,
            actor=Actor("sandbox", sandbox_id).json,
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

    def of_sandbox(self, sandbox_id: str) -> Spending:
        """What a sandbox has spent so far. One round trip."""
        stored = self._redis.hgetall(SandboxKeys.spent(sandbox_id))
        return Spending.read(stored)

    def of_day(self, day: date | None = None) -> DaySpending:
        """What was spent on a day in UTC; None: today. One round trip, and another for today's date."""
        if day is None:
            clock = self._redis.time()
            day = datetime.fromtimestamp(clock[0], UTC).date()
        stored = self._redis.hgetall(SandboxKeys.spent_on((day - _EPOCH).days))
        by_key: dict[str, dict[bytes, bytes]] = {}
        for name, number in stored.items():
            member, blank, owner = name.partition(b" ")
            if blank:
                by_key.setdefault(owner.decode(), {})[member] = number
        keys = [(owner, Spending.read(numbers)) for owner, numbers in by_key.items()]
        keys.sort(key=lambda one: (-one[1].nanos, -one[1].tokens, one[0]))
        return DaySpending(day, Spending.read(stored), keys)


def by_model(stored: dict[bytes, bytes]) -> dict[str, Spending]:
    """What all sandboxes have spent by model, of the hash `SandboxKeys.models`."""
    found: dict[str, dict[bytes, bytes]] = {}
    for name, number in stored.items():
        model, blank, member = name.rpartition(b" ")
        if blank:
            found.setdefault(model.decode(), {})[member] = number
    return {model: Spending.read(numbers) for model, numbers in sorted(found.items())}
