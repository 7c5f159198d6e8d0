"""An empty store of sandboxes, an empty index of pending actions, and counters of round trips to Redis."""

import contextlib
from collections.abc import Iterator
from uuid import uuid4

import pytest
from redis.exceptions import ResponseError

from store import Limits
from store.approvals.inbox import Filter
from tests.conftest import as_events, store_of

ALWAYS = {"kind": "AlwaysConfirm"}
WAITING = "waiting_for_confirmation"


@pytest.fixture
def sandboxes(redis_url):
    """A store with no sandbox and one living host "h", on which three may run."""
    return fresh_sandboxes(redis_url)


def fresh_sandboxes(
    url: str, *, pause_idlest: bool = False, most: int = 3, host_seconds: float = 60, start_seconds: float = 120
):
    limits = Limits(most=most, pause_idlest=pause_idlest, host_seconds=host_seconds, start_seconds=start_seconds)
    store = store_of(url, limits)
    redis = store.sandboxes._redis
    for key in redis.scan_iter("{sandboxes}*"):
        redis.delete(key)
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
    """Set the last heartbeat of a host to so many seconds ago, by Redis' clock."""
    sandboxes._redis.zincrby("{sandboxes}:hosts", -round(seconds * 1e6), host)


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
    client = store.inbox._redis
    for key in client.scan_iter("{approvals}*"):
        client.delete(key)
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


def shown(store, **filters) -> list[str]:
    """Ids of the actions of the inbox, the oldest first."""
    items, following = store.inbox.page(Filter(**filters), descending=False, limit=1000, start=None)
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
def killed(store):
    """Calls within the block end as if their worker were killed before it settled the index."""
    settle = store.inbox.settle

    class Killed:
        def __enter__(self):
            self.listing = store.conversations._listing
            self.listing.on_approvals = lambda _: None

        def __exit__(self, *_):
            self.listing.on_approvals = settle

    return Killed()
