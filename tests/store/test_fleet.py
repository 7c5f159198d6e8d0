"""What a host's supervisor asks of Redis costs the same, however many sandboxes the other hosts have."""

from redis import Redis

from store.sandboxes.sandboxes import SandboxId
from tests.conftest import limits_of, store_of
from tests.servers import store_server

HOSTS = 100

#: µs of the clock of Redis, long after this test
FAR = 1 << 52


def commands(redis: Redis) -> int:
    """The commands that the server has run, those inside scripts included."""
    return sum(one["calls"] for name, one in redis.info("commandstats").items() if name != "cmdstat_info")


def start_one(store, host: str) -> None:
    """A sandbox that its host has brought to RUNNING."""
    sandbox = store.sandboxes.start("spec")
    assert store.sandboxes.claim(host) == sandbox.id
    details = {"handle": {"pid": 1}, "urls": [], "agent_url": "http://127.0.0.1:9"}
    assert store.sandboxes.report(SandboxId(sandbox.id), host, "supervisor", "RUNNING", **details)


#: what a supervisor does in its heartbeats and rounds, on a host that has one sandbox, and how sandboxes start
OPERATIONS = {
    "heartbeat": lambda store: store.sandboxes.beat("one", "supervisor"),
    "round": lambda store: store.sandboxes.of_host("one"),
    "claim of no sandbox": lambda store: store.sandboxes.claim("one"),
    "claim of no start task": lambda store: store.start_tasks.claim(),
    "claim of no failed start task": lambda store: store.start_tasks.claim_failed(),
    "claim of no delivery": lambda store: store.approvals.deliveries.claim(1.0),
    "claim of no queue": lambda store: store.conversations.queued_messages.claim(),
    "claim of no check": lambda store: store.sandboxes.checks.claim("one", 1.0, 10),
    "removals": lambda store: store.sandboxes.removals("one"),
    "expiry": lambda store: store.sandboxes.expire_failed(),
    "start, claim and report": lambda store: start_one(store, "another"),
}


def cost(store, redis: Redis, act) -> int:
    # Every host is alive for as long as this takes: who finds one silent notes it.
    redis.zadd("{sandboxes}:hosts", dict.fromkeys(redis.zrange("{sandboxes}:hosts", 0, -1), FAR))
    before = commands(redis)
    act(store)
    return commands(redis) - before


def costs(store, redis: Redis) -> dict[str, int]:
    """The least of three times: the first loads scripts, and one after a second notes that somebody is there."""
    return {name: min(cost(store, redis, act) for _ in range(3)) for name, act in OPERATIONS.items()}


def test_the_costs_of_a_host_do_not_grow_with_the_sandboxes_of_other_hosts(tmp_path):
    with store_server(tmp_path) as (url, _), Redis.from_url(url) as redis:
        limits = limits_of(most=100_000, pause_idlest=False, host_seconds=3600, start_seconds=3600, keep_failed_days=1)
        store = store_of(url, limits)
        for host in ("one", "another", *(f"h{number}" for number in range(HOSTS))):
            assert store.sandboxes.beat(host, "supervisor")
        start_one(store, "one")
        found = []
        for size in (10, 300):
            while redis.zcard("{sandboxes}:created") < size:
                start_one(store, f"h{size % HOSTS}")
            found.append(costs(store, redis))

        assert found[0] == found[1]
        assert found[0]["heartbeat"] <= 10
