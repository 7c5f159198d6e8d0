"""The time and the ids that a request writes with: chosen before Redis is called, so that a repeat writes the same."""

from dataclasses import dataclass

import wire
from store.link.attempts import minted
from wire import Micros


@dataclass(frozen=True, slots=True)
class Stamp:
    """One request's instant, and the ids of the events that it may write."""

    at: Micros
    id_prefix: str  #: 24 characters; the scripts add a number of twelve, which makes a UUID

    @classmethod
    def now(cls) -> "Stamp":
        return cls(wire.now(), str(minted("event"))[:24])

    @property
    def args(self) -> tuple[str, str, Micros, str]:
        """The first four arguments of every script that writes events."""
        return self.id_prefix, self.event_time, self.at, self.utc_time

    @property
    def event_time(self) -> str:
        return wire.event_time(self.at)

    @property
    def utc_time(self) -> str:
        return wire.utc_time(self.at)
