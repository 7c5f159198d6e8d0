"""What the settings bound: the sandboxes and their starts, one conversation, and what a write waits for."""

from dataclasses import dataclass

#: most secrets of a conversation, and bytes of JSON of them, in one request and in all: the commands of an agent have
#: them in their environment, for which, and for the arguments of a command, Linux has 2 MiB
MOST_SECRETS, MOST_SECRETS_BYTES = 100, 1024 * 1024

#: seconds of the units of a rate limit
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}

#: the least port of a sandbox that has a preview: below are the ways out of it, which speak in its name
LEAST_PREVIEW_PORT = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of sandboxes and of start tasks. Times are in seconds or days, as their names say; 0 days: never."""

    most: int
    pause_idlest: bool
    host_seconds: float
    start_seconds: float
    place_seconds: float = 300.0  #: that a start waits for a place
    most_stopped: int = 1_000_000
    keep_failed_days: float = 0.0
    workspace_seconds: float = 3600.0
    start_task_days: float = 36_500.0
    most_conversations: int = 1_000_000  #: in one sandbox
    most_starts: int = 1_000_000  #: that are under way
    posted_bytes: int = 1 << 50  #: by one sandbox in all
    posting_rate: str = "none"  #: in bytes, as a rate limit of the settings

    @property
    def posting(self) -> list[int]:
        """Bytes that a sandbox may post in all, those within a window, and the window's length in µs; 0: no bound."""
        if self.posting_rate == "none":
            return [self.posted_bytes, 0, 0]
        number, _, unit = self.posting_rate.partition("/")
        return [self.posted_bytes, int(number), _UNITS[unit] * 1_000_000]

    @property
    def spans(self) -> list[int]:
        """µs after which a host is lost, and a sandbox that no host takes has failed."""
        return [round(self.host_seconds * 1e6), round(self.start_seconds * 1e6)]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that one conversation may hold: so no script about a conversation blocks Redis for long."""

    pending_actions: int  #: actions that wait for a decision, and open actions that are remembered
    event_kinds: int  #: pairs of kind and source
    reason_bytes: int  #: of a rejection's reason, UTF-8
    log_bytes: int = 1 << 30  #: of a conversation's events and their texts in Redis
    confirmation_seconds: int = 0  #: until a pending action expires; 0: it does not
    audit_days: int = 400  #: for which the audit of a deleted conversation is kept
    cold_bytes: int = 256 * 1024 * 1024  #: of a log in Redis that may become cold; a longer one stays


@dataclass(frozen=True, slots=True)
class Durability:
    """fsync: on the disk of its server; replicas: number of replicas that have it. Neither: as Redis acknowledges."""

    fsync: bool = False
    replicas: int = 0

    def __str__(self) -> str:
        """The value of the setting DURABILITY."""
        return "fsync" if self.fsync else f"replicas:{self.replicas}" if self.replicas else "none"

    @property
    def is_proven(self) -> bool:
        """Whether a write needs a proof."""
        return self.fsync or self.replicas > 0


#: DURABILITY=none
AS_REDIS = Durability()
