"""The way to Redis: connections, what a write waits for, what is sealed, signals."""

from dataclasses import dataclass

from store.link.health import Health
from store.link.secrets import SealCheck
from store.link.signals import Wakeups


@dataclass(frozen=True, slots=True)
class LinkWing:
    """The state of the Redis that is used, and what a supervisor is woken by."""

    health: Health
    seal_check: SealCheck
    wakeups: Wakeups
