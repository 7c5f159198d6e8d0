"""An empty store of sandboxes, an empty index of pending actions, and counters of round trips to Redis."""

import contextlib
import functools
import json
from collections.abc import Iterator
from uuid import uuid4

import pytest
from redis.exceptions import ResponseError

from store.approvals.inbox import InboxFilter
from store.keys import ListingKeys
from store.link.signals import MAYBE_MISSED
from tests.backends import DEFAULT, SCRIPTED, each, runs_on_scripted
from tests.conftest import as_events, limits_of, store_of
from tests.round_trips import leave_to_callers

ALWAYS = {"kind": "AlwaysConfirm"}
WAITING = "waiting_for_confirmation"


def pytest_generate_tests(metafunc):
    if "redis_url" in metafunc.fixturenames and runs_on_scripted(metafunc.definition.path):
        metafunc.parametrize("redis_url", each(SCRIPTED), indirect=True, scope="session")


@pytest.fixture(scope="session")
def store(app):
    """The store that the tests of a process share. It has its version, lest a server takes its data for old ones."""
    app.extensions["server"].store.data_version.ensure()
    return app.extensions["server"].store


@pytest.fixture
def alone(monkeypatch):
    """A listing of this test's own: the other one has every test's conversations."""
    monkeypatch.setattr(ListingKeys, "root", f"conversations:{{{uuid4()}}}")


def poll(stream) -> None:
    """Have a stream read without a signal, as it does every two seconds."""
    stream._follower.feed.receive(MAYBE_MISSED)


@pytest.fixture
def examples(request):
    """How many of so many examples a backend gets: fewer than the default one, and a script takes fakeredis long."""
    backend = request.node.callspec.params["redis_url"]
    part = {DEFAULT: 1, "fakeredis": 15}.get(backend, 4)
    return lambda most: -(-most // part)


def keys(redis, pattern: str) -> list[bytes]:
    """The keys of a pattern, in few round trips."""
    return list(redis.scan_iter(pattern, count=10_000))


def forget(redis, pattern: str) -> None:
    """Delete the keys of a pattern, which are of one slot."""
    if found := keys(redis, pattern):
        redis.delete(*found)


@pytest.fixture
def sandboxes(redis_url):
    """A store with no sandbox and one living host "h", on which three may run."""
    fresh = fresh_sandboxes(redis_url)
    yield fresh
    forget(fresh._redis, "{sandboxes}*")


#: the store of a URL and limits, which tests share: to open one costs more than most tests
of_limits = functools.cache(store_of)


def fresh_sandboxes(
    url: str,
    *,
    pause_idlest: bool = False,
    most: int = 3,
    host_seconds: float = 60,
    start_seconds: float = 120,
    **bounds,
):
    limits = limits_of(most, pause_idlest, host_seconds, start_seconds, **bounds)
    store = of_limits(url, limits)
    redis = store.sandboxes._redis
    forget(redis, "{sandboxes}*")
    assert store.sandboxes.beat("h", "supervisor")
    return store.sandboxes


def running_sandbox(sandboxes, host: str = "h"):
    """A sandbox that its host has brought to RUNNING."""
    started = sandboxes.start("spec")
    assert sandboxes.claim(host) == started.id
    assert sandboxes.report(
        started.id, host, "supervisor", "RUNNING", handle={"pid": 1}, urls=[], agent_url="http://agent"
    )
    return sandboxes.get(started.id)


def hook_key_of(sandboxes, sandbox) -> str:
    """The hook key of a new start of a running sandbox's processes."""
    hook_key = sandboxes.begin(sandbox.id, "h", "supervisor", "scripted")
    assert sandboxes.report(sandbox.id, "h", "supervisor", "", handle={"pid": 2}, agent_url="http://agent")
    return hook_key


def in_status(sandboxes, status: str):
    sandbox = sandboxes.start("spec") if status == "STARTING" else running_sandbox(sandboxes)
    if status == "STARTING":
        sandboxes.claim("h")
    elif status == "PAUSED":
        sandboxes.ask(sandbox.id, "pause")
        assert sandboxes.report(sandbox.id, "h", "supervisor", "PAUSED")
    elif status != "RUNNING":
        assert sandboxes.report(sandbox.id, "h", "supervisor", status)
    return sandboxes.get(sandbox.id)


def silent_for(sandboxes, seconds: float, host: str = "h"):
    """Have a host be silent for so many seconds, by Redis' clock, in which somebody looked."""
    redis = sandboxes._redis
    beat = redis.zincrby("{sandboxes}:hosts", -round(seconds * 1e6), host)
    redis.hset("{sandboxes}:silent", host, f"{beat:.0f} {beat + 2e6:.0f}")


def stepped(redis, seconds: float) -> None:
    """Have the clock of Redis make a step after all that it has: forward, or back where seconds are negative."""
    step = round(seconds * 1e6)
    for key in (
        "{sandboxes}:hosts",
        "{sandboxes}:unclaimed",
        "{starts}:due",
        "{starts}:queues",
        "{sandboxes}:deliveries",
    ):
        for member in redis.zrange(key, 0, -1):
            redis.zincrby(key, -step, member)
    for key in ("{sandboxes}:present", "{starts}:present"):
        if known := redis.get(key):
            redis.set(key, " ".join(str(int(at) - step) for at in known.split()))
    for host, known in redis.hgetall("{sandboxes}:silent").items():
        redis.hset("{sandboxes}:silent", host, " ".join(str(int(at) - step) for at in known.split()))
    for key in redis.scan_iter("{sandboxes}:box:*", count=10_000):
        for name in ("active_at", "changed_at", "created_at", "starting_at", "window_ends"):
            if known := redis.hget(key, name):
                redis.hset(key, name, int(known) - step)
    for key in redis.scan_iter("once:*:key:*", count=10_000):
        if lease := redis.hget(key, "lease"):
            redis.hset(key, "lease", int(lease) - step)
    for pattern in ("{sandboxes}:agent:*", "rate:*", "{cold}:turn:*"):  # Redis ends a key by the time of day
        for key in redis.scan_iter(pattern, count=10_000):
            redis.pexpire(key, redis.pttl(key) - round(seconds * 1000))


def present_for(redis, root: str, seconds: float) -> None:
    """Have supervisors be there for so many seconds without a gap."""
    at, micro = redis.time()
    now = at * 1_000_000 + micro
    redis.set(f"{root}:present", f"{now - round(seconds * 1e6)} {now}")


@contextlib.contextmanager
def round_trips(redis, monkeypatch) -> Iterator[list[str]]:
    """The commands and pipelines that one client sends within the block, each a round trip."""
    sent: list[str] = []
    execute, pipeline = redis.execute_command, redis.pipeline

    def counted(*words, **options):
        sent.append(str(words[0]))
        return execute(*words, **options)

    def counted_pipeline(*args, **options):
        sent.append("pipeline")
        return pipeline(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(redis, "execute_command", counted)
        patch.setattr(redis, "pipeline", counted_pipeline)
        yield sent


def hashes_read(redis) -> int | None:
    """The number of whole hashes that a Redis has read so far; None where it does not count them (fakeredis)."""
    try:
        stats = redis.info("commandstats")
    except ResponseError:
        return None
    return int(stats.get("cmdstat_hgetall", {"calls": 0})["calls"])


@pytest.fixture
def index(store):
    """A client of the store, whose index of approvals is empty."""
    client = store.approvals.inbox._redis
    forget(client, "{approvals}*")
    return client


@pytest.fixture
def begin(store, index):
    """Begin a conversation in which these actions wait; its id."""

    def do(*actions: dict, conversation_id: str = "", **info) -> str:
        identity = conversation_id or str(uuid4())
        assert store.conversations.create(identity, confirmation_policy=ALWAYS, **info)
        store.events.append(identity, as_events(list(actions)), sandbox_id=info.get("sandbox_id"))
        return identity

    return do


def expire(store, conversation: str, one: dict) -> None:
    """Have the deadline of a pending action be over."""
    redis, key = store.approvals.inbox._redis, f"conv:{{{conversation}}}:pending"
    record = json.loads(redis.hget(key, one["id"]))
    redis.hset(key, one["id"], json.dumps({**record, "expires": "1"}))


def shown(store, **filters) -> list[str]:
    """Ids of the actions of the inbox, the oldest first."""
    items, following = store.approvals.inbox.page(InboxFilter(**filters), descending=False, limit=1000, start=None)
    assert following is None
    return [one.action_id for one in items]


def told(index, conversation: str = "") -> list[tuple[str, str]]:
    """Kind and action of each change of the stream, of all conversations or of one."""
    changes = [one for _, one in index.xrange("{approvals}:stream")]
    return [
        (one[b"kind"].decode(), one[b"action_id"].decode())
        for one in changes
        if not conversation or one[b"conversation_id"].decode() == conversation
    ]


@pytest.fixture
def in_parts(store, monkeypatch):
    """What follows a change of a conversation is left to its caller, as in a cluster."""
    leave_to_callers(store, monkeypatch.setattr)


@pytest.fixture
def killed(store, in_parts):
    """Calls within the block end as if their worker were killed before it refreshed the index."""

    class Killed:
        def __enter__(self):
            store.approvals.rule_decisions.refresh = lambda _: None

        def __exit__(self, *_):
            del store.approvals.rule_decisions.refresh

    return Killed()
