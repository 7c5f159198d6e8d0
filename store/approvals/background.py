"""Rehearsals over all recorded decisions, in the background. A process runs each, and any worker shows it.

The state lies in Redis. The process that runs a rehearsal, its runner, renews a lease with each report. If the lease
has ended, the next request for the rehearsal starts another runner, which continues at the last report. A rehearsal has
at most MOST_TRIES runners, and expires an hour after its last report.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from core.approvals import Rule
from core.refused import RefusalKind
from core.wire import Micros, now
from store.approvals.audit import Audit, AuditPosition, is_by_person
from store.approvals.rules import Rules, read_rule, written_rule
from store.approvals.trials import Decisions, Trial
from store.errors import StoreError
from store.keys import RuleKeys
from store.link.attempts import minted
from store.link.commands import Redis
from store.record import HashRecord
from store.scripts import Scripts

#: Maximum number of concurrent rehearsals of a store, and of runners of a rehearsal.
MOST_AT_ONCE, MOST_TRIES = 2, 3

#: Lease of a runner, and expiry of a rehearsal after its last report, in ms.
LEASE, KEPT = 15_000, 3_600_000

#: Number of entries per read, and seconds between two reports.
_CHUNK, _REPORT_SECONDS = 500, 0.5

#: Timeout of a runner, in seconds.
MOST_SECONDS = 900.0

#: Detail of a rehearsal whose runners were all killed.
_FAILED = "The rehearsal was interrupted too often. Start another one"

State = Literal["running", "done", "failed"]


class RehearsalNotFound(StoreError):
    """The rehearsal does not exist, or has expired."""

    kind = RefusalKind.MISSING
    words = "Rehearsal not found: it may have expired, an hour after its end. Start another one"


class TooManyRehearsals(StoreError):
    """The maximum number of rehearsals is running."""

    kind = RefusalKind.TAKEN
    words = f"{MOST_AT_ONCE} rehearsals are running, the most at once. Try again when one has ended"


@dataclass(frozen=True, slots=True)
class _StoredRehearsal(HashRecord):
    """A stored rehearsal."""

    key = RuleKeys.rehearsal("ID")
    state: str
    runner: str
    draft: str  #: JSON of the rule
    tries: int = 1  #: number of its runners so far
    found: dict[str, Any] | None = None


class RehearsalProgress(NamedTuple):
    """A rehearsal as clients see it."""

    id: str
    state: str
    detail: str  #: why it ended early; empty: it did not
    decided: int
    answered: int
    rejected: int
    unread: int
    read: int  #: number of audit entries that were read
    of: int  #: number of audit entries when it began
    examples: list[dict[str, Any]]


def _parsed(entries: Iterable[bytes]) -> list[dict[str, Any]]:
    """Parse entries together, which takes two thirds of the time, because names are shared."""
    found: list[dict[str, Any]] = json.loads(b"[%s]" % b",".join(entries))
    return found


class BackgroundRehearsals:
    def __init__(self, redis: Redis, scripts: Scripts, audit: Audit, rules: Rules) -> None:
        self._redis = redis
        self._scripts = scripts
        self._decisions = Decisions(redis, scripts)
        self._audit = audit
        self._rules = rules

    def open(self, draft: Rule) -> tuple[str, str | None]:
        """Store a rehearsal, and return its id and that of the runner to start; None for a repeat.

        Raises TooManyRehearsals.
        """
        rehearsal_id, runner = str(minted("rehearsal")), uuid4().hex
        reply = self._scripts.open_rehearsal(
            RuleKeys.root,
            id=rehearsal_id,
            runner=runner,
            draft=written_rule(draft),
            most=MOST_AT_ONCE,
            lease=LEASE,
            kept=KEPT,
        )
        if reply == "full":
            raise TooManyRehearsals
        return rehearsal_id, runner if reply == "opened" else None

    def take_up(self, rehearsal_id: str) -> str | None:
        """Return the id of a runner to start if the last one is gone, or None."""
        runner = uuid4().hex
        reply = self._scripts.claim_rehearsal(
            RuleKeys.root,
            id=rehearsal_id,
            runner=runner,
            most=MOST_AT_ONCE,
            most_tries=MOST_TRIES,
            lease=LEASE,
            kept=KEPT,
        )
        return runner if reply == "claimed" else None

    def get(self, rehearsal_id: str) -> RehearsalProgress:
        """Return a rehearsal as of its last report. One round trip. Raises RehearsalNotFound."""
        kept = self._read(rehearsal_id)
        found = kept.found or {}
        detail = found.get("detail", "") if kept.state != "failed" else found.get("detail") or _FAILED
        numbers = {name: found.get(name, 0) for name in ("decided", "answered", "rejected", "unread", "read", "of")}
        return RehearsalProgress(rehearsal_id, kept.state, detail, **numbers, examples=found.get("examples", []))

    def run(self, rehearsal_id: str, runner: str, goes_on: Callable[[], bool]) -> None:
        """Run a rehearsal to its end, from its last report on, as its runner.

        goes_on: called between two reads; if it returns false, another runner may continue. Raises RehearsalNotFound.
        """
        kept = self._read(rehearsal_id)
        draft = read_rule(kept.draft)
        trial = Trial(self._decisions, draft, self._rules.in_force(now()))
        found = kept.found or {}
        trial.resume(found)
        place = AuditPosition(Micros(found["place"][0]), *found["place"][1:]) if found.get("place") else None
        read, of = found.get("read", 0), found.get("of") or self._audit.size()
        ends = time.monotonic() + MOST_SECONDS
        due = 0.0

        def report(state: State, detail: str = "") -> bool:
            more = {"read": read, "of": max(of, read), "place": place, "detail": detail}
            return self._report(rehearsal_id, runner, state, trial.sums() | more)

        while goes_on():
            if time.monotonic() >= due:
                if not report("running"):
                    return
                due = time.monotonic() + _REPORT_SECONDS
            if time.monotonic() > ends:
                report("done", f"It stopped after {MOST_SECONDS:.0f} s and {read:,} of {of:,} entries")
                return
            entries = self._audit.before(place, _CHUNK)
            trial.take([entry for entry in _parsed(raw for _, raw in entries if raw) if is_by_person(entry)])
            read += len(entries)
            if len(entries) < _CHUNK:
                report("done")
                return
            place = entries[-1][0]

    def fail(self, rehearsal_id: str, runner: str, detail: str) -> None:
        """End a rehearsal with an error, as its runner."""
        found = self._read(rehearsal_id).found or {}
        self._report(rehearsal_id, runner, "failed", found | {"detail": detail})

    def _report(self, rehearsal_id: str, runner: str, state: State, found: dict[str, Any]) -> bool:
        return self._scripts.report_rehearsal(
            RuleKeys.root,
            id=rehearsal_id,
            runner=runner,
            state=state,
            found=json.dumps(found),
            lease=LEASE,
            kept=KEPT,
        )

    def _read(self, rehearsal_id: str) -> _StoredRehearsal:
        fields = self._redis.hgetall(RuleKeys.rehearsal(rehearsal_id))
        if not fields:
            raise RehearsalNotFound
        return _StoredRehearsal.read(fields)
