"""The settings about Redis: which one, how long it is waited for, what it must keep. A part of `config.Config`."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from settings import ConfigError
from settings import setting as _setting
from settings.approvals import ApprovalSettings

#: schemes of a REDIS_URL; `store/link/connection.py` explains each
REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")

_DURABILITY = re.compile(r"none|fsync|replicas:([1-9][0-9]?)")


@dataclass(frozen=True, slots=True)
class StoreSettings(ApprovalSettings):
    """What `config.Config` has of Redis. The name of a setting is its field's name in capitals."""

    redis_url: str = _setting(
        "",
        "The Redis to use: `redis://`, `rediss://`, `unix://`, `redis+sentinel://HOST,HOST/NAME` or "
        "`redis+cluster://HOST,HOST`, users and passwords percent-encoded; those of the sentinels themselves as "
        "`?sentinel_username=…&sentinel_password=…`. Unset: an embedded one.",
        secret=True,  # it may hold a password
    )
    redis_timeout: float = _setting(
        1.0, "Timeout of one try of a command, in seconds; a command is tried twice.", least=0.05, most=60
    )
    redis_connections: int = _setting(
        64, "Most connections to Redis per worker, in a cluster to each of its nodes.", least=1, most=10_000
    )
    durability: str = _setting(
        "",
        "What must hold before a write is acknowledged: `fsync`: it is on the disk of Redis; `replicas:N`: N replicas "
        "have it; `none`: Redis has it. A write of which this is not known gets 503. Unset: `fsync` with the embedded "
        "store, `none` with a REDIS_URL.",
    )

    def check_store(self) -> None:
        """Raises ConfigError."""
        if self.redis_url and urlsplit(self.redis_url).scheme not in REDIS_SCHEMES:
            schemes = ", ".join(f"{scheme}://" for scheme in REDIS_SCHEMES)
            raise ConfigError(f"REDIS_URL must begin with one of {schemes}")
        if self.durability and not _DURABILITY.fullmatch(self.durability):
            raise ConfigError(
                f"DURABILITY must be fsync, none or replicas:N with N from 1 to 99, not {self.durability!r}"
            )

    @property
    def replicas(self) -> int:
        """How many replicas must have a write before it is acknowledged."""
        found = _DURABILITY.fullmatch(self.durability)
        return int(found[1] or 0) if found else 0
