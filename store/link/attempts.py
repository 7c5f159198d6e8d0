"""The ids that the server mints for a request.

A request with an Idempotency-Key derives them from a seed that all its attempts share. An attempt after a crash thus
finds what an earlier attempt created, and does not create it again.
"""

import string
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from uuid import UUID, uuid4, uuid5

from core import wire
from core.refused import RefusalKind
from core.wire import Micros
from store.errors import StoreError

_DIGITS = string.digits + string.ascii_letters


class OutcomeUnknown(StoreError):
    """An earlier attempt may have reached the agent, which must not receive the request twice."""

    kind = RefusalKind.CONFLICT
    words = (
        "An earlier request with this Idempotency-Key was interrupted, and may have reached the agent. "
        "Check the conversation, then send what is missing with a new key"
    )


@dataclass(slots=True)
class Attempt:
    """One attempt at a request with an Idempotency-Key."""

    seed: UUID
    token: str = ""  #: token of the claim; empty if the record is finished
    is_later: bool = False  #: an earlier attempt may have reached an agent, with unknown outcome
    is_finished: bool = False  #: an earlier attempt succeeded, and its response was not stored
    reached_agent: bool = False  #: this attempt may have reached an agent


_present: ContextVar[Attempt | None] = ContextVar("attempt", default=None)


def enter(attempt: Attempt | None) -> None:
    """Make an attempt the current one of this thread; None ends it."""
    _present.set(attempt)


@contextmanager
def aside() -> Iterator[None]:
    """Run the block outside of the current request: what the server does on its own has its own ids."""
    token = _present.set(None)
    try:
        yield
    finally:
        _present.reset(token)


def minted(what: str) -> UUID:
    """Return the id of `what` in this request: random, or derived from the seed of the current attempt."""
    attempt = _present.get()
    return uuid5(attempt.seed, what) if attempt else uuid4()


def minted_text(what: str) -> str:
    """Return the id of `minted` as 22 letters and digits."""
    number, text = minted(what).int, ""
    for _ in range(22):
        number, digit = divmod(number, len(_DIGITS))
        text += _DIGITS[digit]
    return text


def is_later() -> bool:
    """Return whether an earlier attempt at this request may have reached an agent."""
    attempt = _present.get()
    return attempt is not None and attempt.is_later


def is_finished() -> bool:
    """Return whether an earlier attempt at this request succeeded. The current one then reads what it created."""
    attempt = _present.get()
    return attempt is not None and attempt.is_finished


def refuse_later() -> None:
    """Raise OutcomeUnknown where an agent might receive a message or a run twice."""
    if is_later():
        raise OutcomeUnknown


def note_reach() -> None:
    """Record that an agent may have received this request, which it must not receive twice."""
    if attempt := _present.get():
        attempt.reached_agent = True


@dataclass(frozen=True, slots=True)
class Stamp:
    """The time of a request, and the ids of the events that it may write."""

    at: Micros
    id_prefix: str  #: 24 characters; the scripts append a number of twelve digits, which makes a UUID

    @classmethod
    def now(cls) -> "Stamp":
        return cls(wire.now(), str(minted("event"))[:24])

    @property
    def args(self) -> tuple[str, str, Micros, str]:
        """Return the first four arguments of every script that writes events."""
        return self.id_prefix, self.event_time, self.at, self.utc_time

    @property
    def event_time(self) -> str:
        return wire.event_time(self.at)

    @property
    def utc_time(self) -> str:
        return wire.utc_time(self.at)
