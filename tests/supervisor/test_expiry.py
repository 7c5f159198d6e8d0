"""Pending actions are rejected at their deadline, once each, whichever processes are killed or hang."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from redis import Redis

from agents.commands import Commands
from agents.expiry import ExpiryDriver
from tests.agents import SPECS, agent_client, running_sandbox, scripted_agent
from tests.conftest import BOUNDS, action, as_events, limits_of, status, store_of, unchecked
from tests.servers import agent_server, store_server, wait_until
from tests.supervisor import supervisor
from tests.supervisor.test_stand_by import another_supervisor

LIMITS = limits_of(most=100, pause_idlest=False, host_seconds=3600, start_seconds=3600)
ALWAYS = {"kind": "AlwaysConfirm"}


def store_with(url: str, seconds: float):
    """A store in which an action expires so many seconds after it began to wait."""
    return store_of(url, LIMITS, bounds=unchecked(BOUNDS, confirmation_seconds=seconds))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with store_server(tmp_path_factory.mktemp("expiry")) as (url, _):
        yield url


@pytest.fixture
def url(server):
    """A store in which nothing is due."""
    with Redis.from_url(server) as redis:
        redis.flushall()
    return server


@pytest.fixture
def store(url):
    return store_with(url, 0.05)


@pytest.fixture
def driver(store):
    return ExpiryDriver(store, Commands(store, agent_client(1), SPECS))


def begin(store, *actions: dict, **info) -> str:
    conversation = str(uuid4())
    store.conversations.create(conversation, confirmation_policy=ALWAYS, **info)
    store.events.append(conversation, as_events(list(actions)), sandbox_id=info.get("sandbox_id"))
    return conversation


def entries(store, conversation: str) -> list[dict]:
    return [json.loads(raw) for raw in store.approvals.audit.of(conversation, limit=100)]


def rejected(store, conversation: str) -> list[dict]:
    raws, _ = store.events.search(conversation, kind="UserRejectObservation")
    return [json.loads(raw) for raw in raws]


def assert_expired_once(store, conversation: str, *actions: dict) -> None:
    [entry] = entries(store, conversation)
    assert (entry["decision"], entry["actor"]["kind"]) == ("reject", "expiry")
    assert sorted(entry["action_ids"]) == sorted(one["id"] for one in actions)
    assert [one["action_id"] for one in rejected(store, conversation)] == [one["id"] for one in actions]


def expire_until(driver, done) -> None:
    with ThreadPoolExecutor(4) as pool:
        wait_until(lambda: driver.expire_due(pool) or done(), "the expiry")


@pytest.mark.process("waits for what threads do")
def test_an_action_that_nobody_decided_is_rejected_and_told_as_expired(store, driver, url):
    one = action()
    conversation = begin(store, one)
    expire_until(driver, lambda: entries(store, conversation))

    assert_expired_once(store, conversation, one)
    kinds = [fields[b"kind"] for _, fields in Redis.from_url(url).xrange("{approvals}:stream")]
    assert kinds == [b"opened", b"expired"]
    assert store.approvals.checks.due() == []


@pytest.mark.process("waits for what threads do")
def test_what_a_sandbox_asks_to_reach_expires_though_nobody_looks(url, store, driver):
    def kinds() -> list[bytes]:
        return [fields[b"kind"] for _, fields in Redis.from_url(url).xrange("{approvals}:stream")]

    with running_sandbox(store, "http://agent") as sandbox:
        store.destinations.verdict(sandbox.id, "example.org", 443)
        expire_until(driver, lambda: len(kinds()) == 2)
        assert store.destinations.waiting() == []
    assert kinds() == [b"destination_opened", b"destination_expired"]


def test_nothing_is_rejected_before_its_deadline(url, driver):
    later = store_with(url, 3600)
    conversation = begin(later, action())
    Redis.from_url(url).zadd("{approvals}:due", {conversation: 1})  # an index that is wrong
    with ThreadPoolExecutor(1) as pool:
        driver.expire_due(pool)

    assert entries(later, conversation) == []
    assert later.approvals.checks.due() == []  # it was corrected


@pytest.mark.faults("many drivers race")
def test_many_drivers_at_once_reject_each_action_once(store, url):
    groups = [[action() for _ in range(3)] for _ in range(30)]
    conversations = [begin(store, *group) for group in groups]
    stop = threading.Event()
    commands = [Commands(store_with(url, 1), agent_client(1), SPECS) for _ in range(4)]
    drivers = [ExpiryDriver(store_with(url, 1), one) for one in commands]
    threads = [threading.Thread(target=one.run, args=(stop,)) for one in drivers]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: all(entries(store, one) for one in conversations), "every expiry")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for conversation, group in zip(conversations, groups, strict=True):
        assert_expired_once(store, conversation, *group)


@pytest.mark.process("waits for what threads do")
def test_a_conversation_that_cannot_be_decided_delays_no_other(store, driver, url, monkeypatch):
    broken, one = begin(store, action()), action()
    expire = Commands.expire

    def fail(self, conversation_id):
        if conversation_id == broken:
            raise RuntimeError("as the test has it")
        expire(self, conversation_id)

    monkeypatch.setattr(Commands, "expire", fail)
    conversation = begin(store, one)
    expire_until(driver, lambda: entries(store, conversation))
    assert_expired_once(store, conversation, one)
    assert store.approvals.checks.due() == [broken]


def test_a_conversation_that_was_deleted_is_due_no_longer(store, driver, url):
    redis, gone = Redis.from_url(url), str(uuid4())
    redis.zadd("{approvals}:due", {gone: 1})
    with ThreadPoolExecutor(1) as pool:
        driver.expire_due(pool)
    assert redis.zcard("{approvals}:due") == 0


@pytest.mark.process("waits for what threads do")
def test_an_agent_that_hangs_delays_no_expiry_and_is_told_by_a_supervisor(store, driver):
    with scripted_agent() as agent, running_sandbox(store, agent.url) as sandbox:
        agent.on_request = lambda _: pytest.fail("a request")
        conversation = begin(store, action(), status("waiting_for_confirmation"), sandbox_id=sandbox.id, app={})
        expire_until(driver, lambda: entries(store, conversation))

        assert agent.requests == []
        claim = store.approvals.deliveries.claim(10)
        assert claim is not None
        assert claim.conversation_id == conversation
        delivery = store.approvals.deliveries.get(conversation)
        assert (claim.is_of(delivery), delivery.accept) == (True, False)


@pytest.mark.process("starts a store again")
def test_what_was_due_while_the_store_was_away_expires_afterwards(tmp_path):
    one = action()
    with store_server(tmp_path, "", "--appendfsync", "always") as (url, _):
        store = store_with(url, 1)
        conversation = begin(store, one)
        with supervisor(Redis.from_url(url), tmp_path / "a", CONFIRMATION_SECONDS="1") as (process, log):
            wait_until(lambda: "supervising" in log.read_text(), "the supervisor")
            later = action()
            other = begin(store_with(url, 2), later)
            Redis.from_url(url).shutdown(nosave=True)
            with store_server(tmp_path):
                for waiting, its in ((conversation, one), (other, later)):
                    wait_until(lambda waiting=waiting: entries(store, waiting), "the expiry")
                    assert_expired_once(store, waiting, its)
            assert process.poll() is None


@pytest.mark.process("starts two supervisors")
def test_a_supervisor_that_stands_by_rejects_what_expires(tmp_path, url, store):
    with another_supervisor(Redis.from_url(url)), supervisor(Redis.from_url(url), tmp_path / "b", "--stand-by"):
        one = action()
        conversation = begin(store, one)
        wait_until(lambda: entries(store, conversation), "the expiry")
        assert_expired_once(store, conversation, one)


@pytest.mark.faults("kills one supervisor after the other")
def test_what_expires_is_rejected_while_one_supervisor_after_the_other_is_killed(tmp_path, url):
    """Two supervisors of one host, of which one stands by, and a server with two workers and no supervisor."""
    redis, store = Redis.from_url(url), store_with(url, 2)
    with (
        supervisor(redis, tmp_path / "a", "--stand-by") as (first, _),
        supervisor(redis, tmp_path / "b", "--stand-by") as (second, _),
        agent_server(tmp_path / "log", REDIS_URL=url),
    ):
        for victim in (first, second):
            one = action()
            conversation = begin(store, one)
            victim.kill()
            wait_until(lambda conversation=conversation: entries(store, conversation), "the expiry")
            assert_expired_once(store, conversation, one)
