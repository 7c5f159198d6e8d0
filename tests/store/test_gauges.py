"""The state of the store in numbers: each follows what it counts, and ages are those of what has waited for longest."""

import pytest
from redis.exceptions import ConnectionError

from store.approvals.audit import SERVER
from store.errors import UNAVAILABLE
from tests.agents import end_leases, propose, running_sandbox
from tests.conftest import as_events, status, store_of
from tests.notifications import entry, forget_notifications, push
from tests.servers import free_port
from tests.store.sandboxes.test_start_tasks import LIMITS, fresh, let_pass, made

LEASE = 30.0


@pytest.fixture
def box(store):
    with running_sandbox(store, "http://127.0.0.1:9") as sandbox:
        yield sandbox.id


def test_conversations_are_counted_by_status(store, conversation):
    before = store.gauges.read().conversations

    store.events.append(conversation, as_events([status("running")]))

    assert store.gauges.read().conversations == {**before, "running": before["running"] + 1}


def test_a_pending_action_is_counted_until_it_is_decided_and_its_delivery_until_it_is_settled(store, conversation, box):
    before = store.gauges.read()
    propose(store, conversation, box)

    waiting = store.gauges.read()
    assert waiting.pending_actions == before.pending_actions + 1
    assert waiting.oldest_pending > 0

    claim = store.approvals.deliveries.open(conversation, box, LEASE)
    delivery = store.approvals.deliveries.decide(claim, "approve", actor=SERVER)[1]
    decided = store.gauges.read()
    assert (decided.pending_actions, decided.deliveries) == (before.pending_actions, before.deliveries + 1)

    end_leases(store, conversation)
    assert store.gauges.read().overdue_delivery > 0

    store.approvals.deliveries.settle(conversation, delivery)
    store.approvals.deliveries.close(claim)
    assert store.gauges.read().deliveries == before.deliveries


def test_sandboxes_are_counted_by_status_and_hosts_by_their_heartbeats(store, box):
    before = store.gauges.read()
    store.sandboxes.report(box, "scripted", "supervisor", "ERROR")

    after = store.gauges.read()

    moved = {"RUNNING": before.sandboxes["RUNNING"] - 1, "ERROR": before.sandboxes["ERROR"] + 1}
    assert after.sandboxes == {**before.sandboxes, **moved}
    assert after.hosts["scripted"] == 0
    assert after.living_hosts >= 1


def test_a_host_whose_heartbeats_end_grows_older_and_counts_as_living_no_more(redis_url):
    store = fresh(redis_url)
    store.sandboxes.beat("aging", "supervisor")
    before = store.gauges.read()
    store.approvals.inbox._redis.zincrby("{sandboxes}:hosts", -round((LIMITS.host_seconds + 60) * 1e6), "aging")

    after = store.gauges.read()

    store.approvals.inbox._redis.zrem("{sandboxes}:hosts", "aging")
    assert before.hosts["aging"] < 60 <= after.hosts["aging"]
    assert after.living_hosts == before.living_hosts - 1


def test_start_tasks_are_counted_and_are_overdue_when_no_supervisor_claims_them(redis_url):
    store = fresh(redis_url)
    start = made(store)
    assert store.gauges.read().starts == {"unfinished": 1, "finished": 0, "to_clear": 0}

    let_pass(store, start, 1000)
    assert store.gauges.read().overdue_start > 900

    claimed, lease = store.start_tasks.claim()
    assert store.gauges.read().overdue_start == 0
    assert store.start_tasks.finish(claimed.id, lease, "ERROR", "why")
    assert store.gauges.read().starts == {"unfinished": 0, "finished": 1, "to_clear": 1}


def test_entries_of_outboxes_are_counted_with_those_that_were_dropped(store):
    forget_notifications(store)
    push(store, "approvals", entry(1), entry(2))
    store.notifications.outboxes._redis.set("{sandboxes}:outbox:dropped", 3)

    found = store.gauges.read()

    forget_notifications(store)
    assert found.outboxes == {"approvals": 2, "conversations": 0, "sandboxes": 0}
    assert found.dropped == {"approvals": 0, "conversations": 0, "sandboxes": 3}


def test_a_store_that_is_away_is_told_from_an_empty_one():
    away = store_of(f"redis://127.0.0.1:{free_port()}", LIMITS)

    with pytest.raises(UNAVAILABLE) as fault:
        away.gauges.read()

    assert isinstance(fault.value, ConnectionError)


def test_destinations_are_counted_as_they_wait_and_as_they_are_reached(store, box):
    before = store.gauges.read()
    store.destinations.verdict(box, "example.org", 443)
    store.destinations.record(box, "example.org", 443, "refused", 3, 4)

    after = store.gauges.read()
    assert after.asking == before.asking + 1
    grown = {name: after.destinations[name] - number for name, number in before.destinations.items()}
    assert grown == {"asked": 1, "allowed": 0, "refused": 1, "sent": 3, "received": 4}
