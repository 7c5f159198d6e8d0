"""Connections to Redis, durability, sealing, and signals."""

from dataclasses import dataclass

from store.link.health import Health
from store.link.secrets import SealCheck
from store.link.signals import Wakeups


@dataclass(frozen=True, slots=True)
class LinkWing:
    """The state of Redis, the check of SECRET_KEY, and the signals of supervisors."""

    health: Health
    seal_check: SealCheck
    wakeups: Wakeups
