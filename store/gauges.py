"""The state of the store in numbers for a monitor: sizes of queues, and ages of their oldest entries.

Every number is the size of an index or its first entry, so the cost does not depend on the numbers.
"""

from dataclasses import dataclass

from redis.exceptions import RedisError

from core.wire import EXECUTION_STATUSES, SANDBOX_STATUSES, Micros
from settings.limits import SandboxLimits
from store.destinations import TOTALS
from store.errors import UNAVAILABLE
from store.keys import OUTBOXES, ApprovalKeys, ColdKeys, ListingKeys, SandboxKeys, StartKeys, outbox_dropped
from store.link.commands import Redis
from store.spending import StoredSpending, by_model

#: Maximum number of hosts whose heartbeat is shown, the newest first.
MOST_HOSTS = 100


@dataclass(frozen=True, slots=True)
class StoreGauges:
    """The store at one time. Ages are in seconds by Redis' clock; 0 if nothing waits."""

    at: Micros  #: by Redis' clock
    conversations: dict[str, int]  #: by status
    objects: int  #: objects of cold storage
    pending_actions: int
    oldest_pending: float
    sandboxes: dict[str, int]  #: by status
    deliveries: int
    overdue_delivery: float  #: age of the longest overdue delivery
    starts: dict[str, int]  #: `unfinished`, `finished`, and `to_clear`: failed ones that a supervisor must clean up
    overdue_start: float  #: age of the start task whose lease ended first and that no supervisor has claimed
    outboxes: dict[str, int]
    dropped: dict[str, int]  #: entries that full outboxes dropped
    asking: int  #: pending destinations and budgets
    destinations: dict[str, int]  #: totals of all sandboxes: see TOTALS
    models: dict[str, StoredSpending]  #: spending of all sandboxes, by model
    refused_calls: int  #: calls that a budget refused
    hosts: dict[str, float]  #: age of the last heartbeat of each host's supervisor, until a lost host is removed
    living_hosts: int  #: hosts with a heartbeat within HOST_SECONDS
    used_memory_bytes: int | None  #: None: not reported by Redis
    max_memory_bytes: int | None  #: 0: no limit of its own


class Gauges:
    """Reads the state of the store, with the client that has half of the timeout."""

    def __init__(self, redis: Redis, limits: SandboxLimits) -> None:
        self._redis = redis
        self._limits = limits

    def read(self) -> StoreGauges:
        """Read the state of the store. Three round trips. Raises one of UNAVAILABLE."""
        clock = self._redis.time()  # a cluster's client does not pipeline it
        now = clock[0] + clock[1] / 1e6
        with self._redis.pipeline(transaction=False) as pipe:
            for index in (ApprovalKeys.waiting, SandboxKeys.deliveries, StartKeys.due):
                pipe.zcard(index)
                pipe.zrange(index, 0, 0, withscores=True)
            pipe.zcard(StartKeys.failed)
            pipe.zcard(StartKeys.created())
            pipe.zrange(SandboxKeys.hosts, 0, MOST_HOSTS - 1, desc=True, withscores=True)
            for status in EXECUTION_STATUSES:
                pipe.zcard(ListingKeys.index("created", status))
            for status in SANDBOX_STATUSES:
                pipe.zcard(SandboxKeys.created_in(status))
            for outbox in OUTBOXES.values():
                pipe.llen(outbox)
                pipe.get(outbox_dropped(outbox))
            pipe.zcard(ColdKeys.objects)
            pipe.zcard(SandboxKeys.asking)
            pipe.hgetall(SandboxKeys.destinations)
            pipe.hgetall(SandboxKeys.models)
            found = pipe.execute()
        pending, oldest, deliveries, due, unfinished, lease, to_clear, kept, hosts, *numbers = found
        *numbers, objects, asking, tried, models = numbers
        conversations, numbers = numbers[: len(EXECUTION_STATUSES)], numbers[len(EXECUTION_STATUSES) :]
        sandboxes, outboxes = numbers[: len(SANDBOX_STATUSES)], numbers[len(SANDBOX_STATUSES) :]
        ages = {name.decode(): max(0.0, now - at / 1e6) for name, at in hosts}
        return StoreGauges(
            Micros(round(now * 1_000_000)),
            dict(zip(EXECUTION_STATUSES, conversations, strict=True)),
            objects,
            pending,
            _age(now, oldest),
            dict(zip(SANDBOX_STATUSES, sandboxes, strict=True)),
            deliveries,
            _age(now, due),
            {"unfinished": unfinished, "finished": max(0, kept - unfinished), "to_clear": to_clear},
            _age(now, lease),
            dict(zip(OUTBOXES, outboxes[::2], strict=True)),
            {name: int(number or 0) for name, number in zip(OUTBOXES, outboxes[1::2], strict=True)},
            asking,
            {name: int(tried.get(name.encode(), 0)) for name in TOTALS},
            by_model(models),
            int(models.get(b"refused", 0)),
            ages,
            sum(age <= self._limits.host_seconds for age in ages.values()),
            *self._memory(),
        )

    def _memory(self) -> tuple[int | None, int | None]:
        try:
            info = self._redis.info("memory")
        except UNAVAILABLE:
            raise
        except RedisError:  # fakeredis has no INFO, and a managed Redis may forbid it
            return None, None
        return info.get("used_memory"), info.get("maxmemory")


def _age(now: float, first: list[tuple[bytes, float]]) -> float:
    """Return the seconds since the time of an index' first entry; 0 for a time in the future."""
    return max(0.0, now - first[0][1] / 1e6) if first else 0.0
