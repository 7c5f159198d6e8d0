"""Deliveries: one decision takes effect, its delivery is due until it is settled, and one driver at a time has it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from redis.exceptions import TimeoutError

from core import wire
from store.approvals.audit import SERVER
from store.errors import ConversationNotFound
from tests.agents import DUE, claimed, end_leases, lease_key, propose, running_sandbox
from tests.conftest import action, as_events, observation, status
from tests.servers import wait_until
from tests.store.conftest import present_for, silent_for, stepped

LEASE = 30.0


@pytest.fixture
def box(store):
    """A sandbox that runs; nothing listens at its agent's URL."""
    with running_sandbox(store, "http://127.0.0.1:9") as sandbox:
        yield sandbox.id


@pytest.fixture
def waiting(store, conversation, box):
    """A conversation in that sandbox whose agent waits for a decision about one action, and that action."""
    return conversation, propose(store, conversation, box)


def decided(store, conversation, sandbox_id, *, accept=True, reason=""):
    """A claim and the delivery that is outstanding after its decision."""
    claim = store.approvals.deliveries.open(conversation, sandbox_id, LEASE)
    verb = "approve" if accept else "reject"
    return claim, store.approvals.deliveries.decide(claim, verb, actor=SERVER, reason=reason)[1]


def due_at(store, conversation):
    """The due times of a conversation's deliveries, by id."""
    entries = store.events._redis.zrange(DUE, 0, -1, withscores=True)
    words = [(entry.decode().split(" "), at) for entry, at in entries]
    return {delivery_id: at for (delivery_id, of, _), at in words if of == conversation}


@pytest.mark.parametrize("accept", [True, False])
def test_a_decision_is_taken_once_and_changes_no_status(store, waiting, box, accept):
    conversation, proposed = waiting
    before, known = store.events.count(conversation), store.conversations.get(conversation)["revision"]

    claim, delivery = decided(store, conversation, box, accept=accept, reason="line\nbreak é😀")

    assert claim.is_of(delivery)
    assert (delivery.accept, delivery.reason, delivery.actions) == (accept, "line\nbreak é😀", [proposed["id"]])
    assert store.approvals.deliveries.get(conversation) == delivery
    later, outstanding = decided(store, conversation, box, accept=not accept)
    assert not later.is_of(outstanding)
    assert outstanding.id == delivery.id
    assert store.approvals.confirmations.pending(conversation) == []
    assert store.events.count(conversation) == before  # the agent reports the next status
    assert store.conversations.get(conversation)["revision"] == known


@pytest.mark.faults("a race of threads")
def test_many_concurrent_decisions_have_one_winner(store, waiting, box):
    conversation, _ = waiting

    with ThreadPoolExecutor(8) as pool:
        results = list(
            pool.map(lambda number: decided(store, conversation, box, accept=number % 2 == 0), range(16), timeout=60)
        )

    [(claim, delivery)] = [(claim, delivery) for claim, delivery in results if claim.is_of(delivery)]
    assert store.approvals.deliveries.get(conversation).id == delivery.id
    assert claim.delivery_id in due_at(store, conversation)


def test_a_repeated_decision_that_took_effect_takes_effect_again(store, waiting, box):
    # As when redis-py retries a command that timed out.
    conversation, _ = waiting
    claim, delivery = decided(store, conversation, box, reason="once")

    assert store.approvals.deliveries.decide(claim, "approve", actor=SERVER, reason="once")[1] == delivery
    assert store.approvals.deliveries.reopen(claim).has_lease


def test_a_delivery_is_noted_before_its_decision_and_due_when_the_lease_of_its_worker_ends(store, waiting, box):
    conversation, _ = waiting
    claim = store.approvals.deliveries.open(conversation, box, LEASE)
    assert list(due_at(store, conversation)) == [claim.delivery_id]
    store.approvals.deliveries.decide(claim, "approve", actor=SERVER)[1]
    assert claimed(store, conversation) is None  # the worker of the decision delivers it first

    end_leases(store, conversation)  # the worker was killed

    found = claimed(store, conversation)
    assert (found.delivery_id, found.conversation_id, found.sandbox_id) == (claim.delivery_id, conversation, box)
    assert found.status == "RUNNING"
    assert found.has_lease
    assert claimed(store, conversation) is None  # one driver at a time


def test_the_lease_of_a_killed_driver_is_over_after_redis_clock_stepped_back(store, waiting, box):
    conversation, _ = waiting
    decided(store, conversation, box)  # and its worker is killed
    redis = store.events._redis

    stepped(redis, -3600)

    [entry] = [entry for entry in redis.zrange(DUE, 0, -1) if conversation.encode() in entry]
    redis.zadd(DUE, {entry: 0})
    assert claimed(store, conversation).has_lease
    redis.zadd(DUE, {entry: 0})
    assert claimed(store, conversation) is None  # one driver at a time


def test_a_lease_that_began_before_redis_clock_stepped_back_is_renewed_by_its_driver(store, waiting, box):
    conversation, _ = waiting
    claim, _ = decided(store, conversation, box)

    stepped(store.events._redis, -3600)

    assert store.approvals.deliveries.renew(claim)
    assert not store.approvals.deliveries.open(conversation, box, LEASE).has_lease


def test_no_decision_is_taken_after_the_lease_of_its_delivery(store, waiting, box):
    conversation, _ = waiting
    claim = store.approvals.deliveries.open(conversation, box, LEASE)

    with pytest.raises(TimeoutError):
        store.approvals.deliveries.decide(
            claim._replace(lease_end=claim.lease_end - 30_000_000), "approve", actor=SERVER
        )

    assert store.approvals.deliveries.get(conversation) is None
    assert len(store.approvals.confirmations.pending(conversation)) == 1
    assert due_at(store, conversation) == {}


def test_a_decision_that_loses_postpones_nothing_and_takes_no_lease(store, waiting, box):
    conversation, _ = waiting
    winner, _ = decided(store, conversation, box)
    store.approvals.deliveries.close(winner, again_in=5)
    before = due_at(store, conversation)

    for _ in range(50):
        loser, _ = decided(store, conversation, box)
        store.approvals.deliveries.close(loser)

    assert due_at(store, conversation) == before
    end_leases(store, conversation)
    assert claimed(store, conversation).delivery_id == winner.delivery_id


@pytest.mark.faults("a race of threads")
def test_twenty_claimers_get_a_delivery_once(store, box):
    with ThreadPoolExecutor(20) as pool:
        for _ in range(40):
            conversation = str(uuid4())
            propose(store, conversation, box)
            claim, delivery = decided(store, conversation, box)
            store.approvals.deliveries.close(claim, again_in=0)
            barrier = threading.Barrier(20)

            def claim_one(_, barrier=barrier):
                barrier.wait(30)
                return store.approvals.deliveries.claim(LEASE)

            claims = []
            while conversation not in [one.conversation_id for one in claims]:  # those of other tests may come first
                claims += [one for one in pool.map(claim_one, range(20)) if one is not None]

            assert [one.delivery_id for one in claims if one.conversation_id == conversation] == [delivery.id]
            for one in claims:
                store.approvals.deliveries.close(one)


def test_an_agent_has_one_delivery_in_hand_and_others_are_claimed_meanwhile(store, box):
    first, second, elsewhere = (str(uuid4()) for _ in range(3))
    with running_sandbox(store, "http://127.0.0.1:9") as other:
        for conversation, sandbox_id in ((first, box), (second, box), (elsewhere, other.id)):
            propose(store, conversation, sandbox_id)
            claim, _ = decided(store, conversation, sandbox_id)
            store.approvals.deliveries.close(claim, again_in=0)

        taken = claimed(store, first)
        assert claimed(store, second) is None
        assert not store.approvals.deliveries.open(second, box, LEASE).has_lease  # nor does a worker get it
        assert claimed(store, elsewhere) is not None
        store.approvals.deliveries.close(taken)

        end_leases(store, second)
        assert claimed(store, second) is not None


def test_a_delivery_to_a_paused_sandbox_is_claimed_and_stays_unclaimed_while_the_sandbox_starts(store, waiting, box):
    conversation, _ = waiting
    claim, _ = decided(store, conversation, box)
    store.sandboxes.ask(box, "pause")
    store.sandboxes.report(box, "scripted", "supervisor", "PAUSED")
    store.approvals.deliveries.close(claim, again_in=0)
    taken = claimed(store, conversation)
    assert taken.status == "PAUSED"

    store.sandboxes.ask(box, "resume")
    store.approvals.deliveries.close(taken, again_in=0)
    assert claimed(store, conversation) is None

    store.sandboxes.report(box, "scripted", "supervisor", "RUNNING")
    end_leases(store, conversation)
    assert claimed(store, conversation).status == "RUNNING"


def test_a_delivery_to_a_paused_sandbox_of_a_lost_host_finds_it_missing(store, waiting, box):
    conversation, _ = waiting
    claim, _ = decided(store, conversation, box)
    store.sandboxes.ask(box, "pause")
    store.sandboxes.report(box, "scripted", "supervisor", "PAUSED")
    store.approvals.deliveries.close(claim, again_in=0)

    silent_for(store.sandboxes, 3600 + 60, "scripted")

    assert claimed(store, conversation).status == "MISSING"


@pytest.mark.process("waits for what threads do")
def test_a_lease_that_has_ended_is_not_renewed(store, waiting, box):
    conversation, _ = waiting
    claim, _ = decided(store, conversation, box)
    assert store.approvals.deliveries.renew(claim)
    assert not store.approvals.deliveries.open(conversation, box, LEASE).has_lease
    assert store.approvals.deliveries.renew(claim._replace(seconds=0.05))
    wait_until(lambda: not store.approvals.deliveries.renew(claim._replace(seconds=0.001)), "the end of the lease")

    driver = claimed(store, conversation)

    assert driver.delivery_id == claim.delivery_id
    assert not store.approvals.deliveries.renew(claim)
    store.approvals.deliveries.close(claim, again_in=0)
    assert store.approvals.deliveries.renew(driver)  # the late renewal took nothing from the newer claim


def test_a_step_of_the_clock_ends_no_lease_of_a_delivery(store, waiting, box):
    conversation, _ = waiting
    claim, _ = decided(store, conversation, box)
    store.approvals.deliveries.close(claim, again_in=0)
    redis = store.events._redis
    present_for(redis, "{sandboxes}", 2)
    assert claimed(store, conversation, LEASE) is not None

    stepped(redis, 3600)
    redis.delete(lease_key(box))  # which has ended by that clock

    assert claimed(store, conversation, LEASE) is None


def test_a_late_renewal_revives_no_delivery(store, waiting, box):
    conversation, _ = waiting
    claim, delivery = decided(store, conversation, box)
    store.approvals.deliveries.settle(conversation, delivery)
    store.approvals.deliveries.close(claim)

    assert not store.approvals.deliveries.renew(claim)
    store.approvals.deliveries.close(claim, again_in=0)

    assert due_at(store, conversation) == {}
    assert store.approvals.deliveries.open(conversation, box, LEASE).has_lease


def test_an_older_delivery_settles_no_newer_one(store, waiting, box):
    conversation, _ = waiting
    old, older = decided(store, conversation, box)
    store.approvals.deliveries.close(old, again_in=1)
    batch = as_events([status("running"), action("next"), status("waiting_for_confirmation")])
    store.events.append(conversation, batch, sandbox_id=box)
    new, newer = decided(store, conversation, box, accept=False)
    assert new.is_of(newer)
    before = due_at(store, conversation)[new.delivery_id]

    store.approvals.deliveries.settle(conversation, older)
    store.approvals.deliveries.close(old)

    assert store.approvals.deliveries.get(conversation).id == newer.id
    assert due_at(store, conversation) == {new.delivery_id: before}


def test_a_decision_without_pending_actions_has_no_effect(store, conversation, box):
    store.conversations.create(conversation, sandbox_id=box, app={})
    claim, delivery = decided(store, conversation, box)
    assert delivery is None
    store.approvals.deliveries.close(claim)
    with pytest.raises(ConversationNotFound):
        decided(store, str(uuid4()), box)


def test_a_decision_finds_no_conversation_of_another_sandbox(store, waiting, box):
    conversation, _ = waiting
    with pytest.raises(ConversationNotFound):
        decided(store, conversation, "another")
    with pytest.raises(ConversationNotFound):
        store.approvals.confirmations.decide(conversation, accept=True, reason="")
    assert len(store.approvals.confirmations.pending(conversation)) == 1


def test_an_action_that_the_agent_observed_meanwhile_can_not_be_decided(store, waiting, box):
    conversation, proposed = waiting
    store.events.append(conversation, as_events([observation(proposed)]), sandbox_id=box)
    _, delivery = decided(store, conversation, box)
    assert delivery is None


def test_a_callers_clock_changes_no_due_time(store, waiting, box, monkeypatch):
    conversation, _ = waiting
    real = wire.now
    monkeypatch.setattr("core.wire.now", lambda: real() + 3_600_000_000)

    claim, _ = decided(store, conversation, box)
    store.approvals.deliveries.close(claim, again_in=0)

    assert abs(due_at(store, conversation)[claim.delivery_id] - real()) < 60e6
    monkeypatch.setattr("core.wire.now", lambda: real() - 3_600_000_000)
    found = claimed(store, conversation)
    assert (found.delivery_id, found.status) == (claim.delivery_id, "RUNNING")
