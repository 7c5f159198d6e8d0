"""What is deleted takes its keys along: of one of everything, no key is left that the data model says it ends."""

from collections.abc import Iterator

import pytest
from redis import Redis

from core.access import Principal
from docs import data_model
from store.approvals.audit import DecisionActor
from store.devices import PushAddress
from store.notifications import Targets
from tests.conftest import action, as_events, event, message, status
from tests.data_model import pattern_of
from tests.store.conftest import ALWAYS, WAITING, forget, running_sandbox
from tests.store.sandboxes.test_start_tasks import fresh

ME = DecisionActor("key", "me", may_decide=True)
SAID = [{"type": "text", "text": "hello"}]


@pytest.fixture
def store(redis_url):
    """A store with one living host, and nothing else in it."""
    store = fresh(redis_url)
    forget(store.sandboxes._redis, "{sandboxes}*")
    store.sandboxes.beat("h", "supervisor")
    return store


@pytest.fixture
def redis(store) -> Redis:
    return store.sandboxes._redis


def names(redis: Redis, *ids: str) -> Iterator[str]:
    """The keys whose names have one of some ids, and which do not expire."""
    for identity in ids:
        for name in redis.scan_iter(f"*{identity}*", count=10_000):
            if redis.ttl(name) == -1:
                yield name.decode()


def unmade(redis: Redis, ends: str, *ids: str) -> list[str]:
    """The keys of an end that the test has not made: to a new one, something must be added that makes it."""
    made = list(names(redis, *ids))
    return [
        key.name
        for key in data_model.keys()  # noqa: SIM118, as it is no dict
        if key.ends == ends and not any(pattern_of(key).fullmatch(name) for name in made)
    ]


def test_a_deleted_conversation_leaves_nothing(store, redis, conversation):
    # Given one with secrets, the start of its agent, a message to echo, a log, actions that are decided and that wait
    store.conversations.create(
        conversation,
        confirmation_policy=ALWAYS,
        initial_message=SAID,
        secrets={"TOKEN": "sesame-1"},
        sandbox_id="box",
        app={},
        start_body=b"sealed",
    )
    log = [message("hello", "agent"), *(event() for _ in range(40)), event(id="short"), action(), status(WAITING)]
    store.events.append(conversation, as_events(log), sandbox_id="box")
    goes_on = [status("running"), action(), status(WAITING)]  # by itself, which is audited as a decision
    store.events.append(conversation, as_events(goes_on), sandbox_id="box")
    assert unmade(redis, "with the conversation", conversation) == []
    assert unmade(redis, "with the last action", conversation) == []

    store.conversations.delete(conversation)

    assert list(names(redis, conversation)) == []


def test_a_removed_sandbox_leaves_nothing(store, redis, conversation):
    # Given one that has a log, two conversations, one of which was deleted, destinations, and what it spent
    sandbox = running_sandbox(store.sandboxes).id
    store.conversations.create(conversation, sandbox_id=sandbox, app={})
    store.conversations.delete(conversation)
    assert store.sandboxes.places.take(sandbox, conversation, made=False)
    store.destinations.verdict(sandbox, "example.org", 443)
    store.destinations.record(sandbox, "example.org", 443, "allowed", 1, 1)
    redis.hset(f"{{sandboxes}}:spent:{sandbox}", "calls", 1)
    store.sandboxes.report(sandbox, "h", "supervisor", "", log="its last words")
    assert unmade(redis, "with its sandbox", sandbox) == []

    store.sandboxes.ask(sandbox, "delete")
    assert store.sandboxes.report(sandbox, "h", "supervisor", "GONE")

    assert list(names(redis, sandbox)) == []


def test_a_forgotten_start_and_its_queue_leave_no_keys(store, redis, conversation):
    start, _ = store.start_tasks.create_once(conversation, {}, {"agent": {}}, echo={})
    store.conversations.queued_messages.put_for_start(start.id, content=SAID, actor=ME)
    for end in ("START_TASK_DAYS after its end", "with the end of its start", "with the last message"):
        assert unmade(redis, end, start.id, conversation) == []

    _, lease = store.start_tasks.claim()
    assert store.start_tasks.finish(start.id, lease, "READY")
    assert unmade(redis, "with the end of its start", start.id) != []
    assert store.conversations.queued_messages.settle(store.conversations.queued_messages.claim())
    assert unmade(redis, "with the last message", start.id) != []
    store.start_tasks.forget(start.id)

    assert list(names(redis, start.id, conversation)) == []


def test_a_revoked_key_leaves_nothing(store, redis):
    key, _ = store.access.keys.make("someone", ["read"], None)
    store.access.settings.change(key.id, lambda entries: entries.update(settings={}))
    assert unmade(redis, "when it is revoked", key.id) == unmade(redis, "with its key", key.id) == []

    store.access.keys.revoke(key.id)
    store.access.settings.forget(key.id)

    assert list(names(redis, key.id)) == []


def test_a_notification_target_without_a_supervisor_leaves_no_keys(store, redis):
    known = store.notifications.targets
    targets = Targets(redis, known._scripts, known._sealer, given_up=-1)  # each message is over at once
    targets.open({"target": "its name"}, again=True)
    targets.add(["target"], [("message", ["body"])])
    assert targets.claim("target", "token", 1)
    assert unmade(redis, "three days after its target", "target") == []

    assert targets.open({}, again=False) == {"its name": 1}

    assert [name for name in names(redis, "target") if not name.endswith(":targets")] == []


def test_a_device_that_ends_leaves_nothing(store, redis):
    device = store.devices.keep(
        Principal("ada", "ada-key", frozenset({"read"})),
        PushAddress("https://push.example.org", "key", "auth"),
        label="Pixel",
        host="push.example.org",
        shows="nothing",
    )
    store.notifications.targets.add((), [("ring", ["{}"])], device_ids=[device.id])
    assert store.devices.claim("token", 1)
    assert unmade(redis, "with its owner's key, or when it expires", device.id) == []

    assert store.devices.end([device.id]) == 1

    assert list(names(redis, device.id)) == []


def test_every_kind_of_end_in_the_data_model_is_a_time_or_tested_here():
    times = {"AUDIT_DAYS", "AUDIT_DAYS after the deletion", "SPENT_DAYS"}
    made = {
        "with the conversation",
        "with the last action",
        "with its sandbox",
        "START_TASK_DAYS after its end",
        "with the end of its start",
        "with the last message",
        "when it is revoked",
        "with its key",
        "three days after its target",
        "with its owner's key, or when it expires",
    }
    assert set(data_model.model()["enders"]) == made | times
