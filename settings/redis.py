"""The settings of the store: its Redis, its durability, and the memory of each process for it."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from core.bounds import Durability
from settings import ConfigError, check_bounds, limit, read_secret_keys, setting
from settings.data_dir import folder_of

#: Schemes of a REDIS_URL; `store/link/connection.py` explains each.
REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "redis+cluster")

#: Default of the setting.
DATA_DIR = "data"

_DURABILITY = re.compile(r"none|fsync|replicas:([1-9][0-9]?)")


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The store: a Redis, or the embedded one in DATA_DIR, and the key that seals its secrets."""

    redis_url: str = setting(
        "",
        "The Redis: `redis://`, `rediss://`, `unix://`, `redis+sentinel://HOST,HOST/NAME` or "
        "`redis+cluster://HOST,HOST`, with users and passwords percent-encoded, and those of "
        "the sentinels as `?sentinel_username=…&sentinel_password=…`. Unset: an embedded store.",
        secret=True,  # it may contain a password
    )
    data_dir: str = setting(
        DATA_DIR, "Folder of the embedded store's append-only file and of the sandboxes. Only its owner can read it."
    )
    durability: str = setting(
        "",
        "When a write is acknowledged: `fsync`: after it is on the disk of Redis; "
        "`replicas:N`: after N replicas have it; `none`: after Redis has it. If that is not "
        "known, the response is 503. Unset: `fsync` with the embedded store, `none` with a REDIS_URL.",
    )
    max_store_bytes: int = setting(
        0,
        "Maximum memory of the embedded store, in bytes; 507 before it is used up. 0: half of "
        "the memory of the machine or the container. Your own Redis has its own `maxmemory`.",
        least=0,
        most=1 << 44,
    )
    secret_key: str = setting(
        "",
        "Key of at least 16 characters that seals the secrets of conversations and the keys of "
        "sandboxes. Several are separated by commas: the first seals, and all open. Hosts of a "
        "Redis need the same value. Unset: the key in `DATA_DIR/secret_key`, which is made at "
        "the first start.",
        secret=True,
    )
    redis_timeout: float = limit(
        1.0,
        "Timeout of a try of a command, in seconds. A command is tried twice. Checks for `/ready` wait half of it.",
        least=0.05,
        most=60,
    )
    redis_connections: int = limit(
        64,
        "Maximum number of connections to Redis per worker, in a cluster to each of its nodes.",
        least=1,
        most=10_000,
    )
    max_followers: int = setting(
        2000, "Maximum number of sockets, streams and long polls per worker. Others are refused.", least=1, most=100_000
    )
    follower_bytes: int = limit(
        4 * 1024 * 1024,
        "Maximum size of the events that a worker keeps for the slowest follower of a "
        "conversation, in bytes. A slower follower is dropped.",
        least=64 * 1024,
    )
    text_cache_bytes: int = limit(
        64 * 1024 * 1024,
        "Maximum size of the message text that a worker keeps for the `body` filter, in bytes.",
        least=0,
    )
    max_idempotency_keys: int = limit(
        50_000,
        "Maximum number of a client's remembered Idempotency-Keys, each for 24 hours; 429 beyond.",
        least=1,
        most=10_000_000,
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        if self.redis_url and urlsplit(self.redis_url).scheme not in REDIS_SCHEMES:
            schemes = ", ".join(f"{scheme}://" for scheme in REDIS_SCHEMES)
            raise ConfigError(f"REDIS_URL must begin with one of {schemes}")
        if self.durability and not _DURABILITY.fullmatch(self.durability):
            raise ConfigError(
                f"DURABILITY must be fsync, none or replicas:N with N from 1 to 99, not {self.durability!r}"
            )
        if any(len(key) < 16 for key in self.secret_keys):
            raise ConfigError("Each key of SECRET_KEY must have at least 16 characters")

    @property
    def embedded_folder(self) -> Path | None:
        """Return DATA_DIR if the store of REDIS_URL is the embedded one, which keeps its file there."""
        return folder_of(self.redis_url, Path(self.data_dir))

    @property
    def secret_keys(self) -> tuple[str, ...]:
        """Return the keys of SECRET_KEY. The first seals, and all open."""
        return read_secret_keys(self.secret_key)

    @property
    def write_durability(self) -> Durability:
        """Return the durability of an acknowledged write, from DURABILITY."""
        found = _DURABILITY.fullmatch(self.durability)
        return Durability(fsync=self.durability == "fsync", replicas=int(found[1] or 0) if found else 0)
