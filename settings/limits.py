"""The limits of conversations and sandboxes, for every process of a Redis."""

from dataclasses import dataclass

from core.wire import MOST_CONFIRMATION_SECONDS
from settings import check_bounds, check_rate, limit, setting

#: Seconds of the units of a rate limit.
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}


@dataclass(frozen=True, slots=True)
class ConversationLimits:
    """Conversations: their maximum size and lifetime.

    The limits keep the scripts of a conversation short, because Redis serves nobody else meanwhile.
    """

    confirmation_seconds: int = setting(
        0,
        "Seconds after which a pending action is rejected, unless its conversation or the spec "
        "of its sandbox has a value; 0: never.",
        least=0,
        most=MOST_CONFIRMATION_SECONDS,
    )
    audit_days: int = setting(
        400,
        "Days for which the audit of a deleted conversation is kept, and each entry in the audit of all conversations.",
        least=1,
        most=36_500,
    )
    max_pending_actions: int = setting(
        256,
        "Maximum number of pending actions of a conversation; 409 beyond. While none is pending, "
        "maximum number of actions without a result.",
        least=1,
        most=1000,
    )
    max_conversation_bytes: int = setting(
        1 << 30,
        "Maximum size of a conversation's log in Redis, in bytes as stored (packed); 413 beyond.",
        least=1 << 20,
        most=1 << 40,
    )
    max_event_kinds: int = limit(
        256,
        "Maximum number of pairs of kind and source among the events of a conversation; 422 beyond.",
        least=1,
        most=1000,
    )
    max_reason_bytes: int = limit(
        2048, "Maximum reason of a rejection, in bytes of UTF-8; 422 beyond.", least=64, most=32_768
    )
    cold_max_bytes: int = limit(
        256 * 1024 * 1024,
        "Maximum memory of a conversation in Redis, in bytes, at which it is still moved. A "
        "conversation of 8 MiB or more is moved in pieces, so that Redis serves others "
        "meanwhile. A request that needs its events waits for all of them.",
        least=1024,
        most=16 * 1024 * 1024 * 1024,
    )

    def __post_init__(self) -> None:
        check_bounds(self)


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Sandboxes: their number on all hosts, and their start, idle and retention times."""

    max_sandboxes: int = setting(
        20, "Maximum number of running and starting sandboxes on all hosts.", least=1, most=10_000
    )
    sandbox_overflow: str = setting(
        "pause",
        "If a start needs a place: `pause` the sandbox that has been idle for longest, or `refuse` the start (429).",
        choices=("pause", "refuse"),
    )
    place_seconds: float = setting(
        300.0,
        "Seconds that a start waits for a place while MAX_SANDBOXES run and none is idle; 429 beyond.",
        least=0,
        most=86_400,
    )
    keep_failed_days: float = setting(
        30.0, "Days after which a failed sandbox is deleted with its files; 0: never.", least=0, most=36_500
    )
    sandbox_sharing: str = setting(
        "per_conversation",
        "`per_conversation`: each app conversation starts a sandbox; `shared`: a sandbox serves several.",
        choices=("per_conversation", "shared"),
    )
    sandbox_start_seconds: float = setting(
        120.0, "Seconds in which the agent server of a new sandbox must respond.", least=1, most=3600
    )
    host_seconds: float = setting(
        10.0,
        "Seconds without a heartbeat after which a host's sandboxes are MISSING.",
        least=2,
        most=3600,
    )
    max_stopped: int = limit(
        1000,
        "Maximum number of stored sandboxes that do not run (paused, failed, missing). Beyond "
        "it a new sandbox is refused (429).",
        least=1,
        most=100_000,
    )
    workspace_seconds: float = limit(
        3600.0,
        "Seconds without use after which a workspace sandbox, created before its client's first "
        "conversation, is deleted with its files.",
        least=60,
        most=31_536_000,
    )
    start_task_days: float = limit(
        7.0, "Days after which a finished start task of an app conversation is deleted.", least=0.001, most=36_500
    )
    max_conversations_per_sandbox: int = limit(
        100, "Maximum number of conversations in a sandbox, including starting ones; 429 beyond.", least=1, most=100_000
    )
    max_starts: int = limit(
        1000,
        "Maximum number of unfinished starts of app conversations on all hosts; 429 beyond.",
        least=1,
        most=1_000_000,
    )
    max_sandbox_bytes: int = limit(
        16 << 30, "Maximum total size of a sandbox's posts, in bytes; 507 beyond.", least=1 << 20, most=1 << 50
    )
    rate_limit_hook_bytes: str = limit(
        "200000000/minute",
        "Rate limit of a sandbox's posts in bytes, in the form of RATE_LIMIT_WRITES; 429 "
        "beyond, before the body is read.",
    )
    wake_seconds: float = limit(
        25.0,
        "Seconds that a message, a run or a setting waits for the sandbox that it resumes; 0: "
        "it resumes none and gets 503.",
        least=0,
        most=600,
    )
    agent_seconds: float = limit(
        10.0, "Deadline of a call to a sandbox's agent server, in seconds.", least=0.1, most=600
    )

    def __post_init__(self) -> None:
        check_bounds(self)
        check_rate("RATE_LIMIT_HOOK_BYTES", self.rate_limit_hook_bytes)

    @property
    def pauses_idlest(self) -> bool:
        """Return whether the longest idle sandbox is paused for a new one."""
        return self.sandbox_overflow == "pause"

    @property
    def posting(self) -> list[int]:
        """Return the bytes that a sandbox may post in total and within a window, and the window in µs; 0: no limit."""
        if self.rate_limit_hook_bytes == "none":
            return [self.max_sandbox_bytes, 0, 0]
        number, _, unit = self.rate_limit_hook_bytes.partition("/")
        return [self.max_sandbox_bytes, int(number), _UNITS[unit] * 1_000_000]

    @property
    def spans(self) -> list[int]:
        """Return the times in µs after which a host is lost, and after which an unclaimed sandbox has failed."""
        return [round(self.host_seconds * 1e6), round(self.sandbox_start_seconds * 1e6)]
