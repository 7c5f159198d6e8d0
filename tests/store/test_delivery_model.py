"""Deliveries against a plain model: late, repeated and reordered calls lose no decision and no lease is held twice."""

import itertools
from uuid import uuid4

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from store.approvals.audit import SERVER
from tests.agents import DUE, lease_key, propose, running_sandbox
from tests.conftest import action, as_events, status

#: seconds; no lease ends by itself during a test
LEASE = 3600.0


class DeliveryMachine(RuleBasedStateMachine):
    """Workers and supervisors that stop at any point; a lease ends when the test ends it.

    A claim is held while its lease is: `held` has the claim of each agent, or None.
    """

    store = None
    boxes: tuple[str, ...] = ()

    claims = Bundle("claims")

    def __init__(self):
        super().__init__()
        self.conversations = {str(uuid4()): box for box in self.boxes for _ in range(2)}
        for conversation, box in self.conversations.items():
            propose(self.store, conversation, box)
        self.held = dict.fromkeys(self.boxes)
        self.outstanding = dict.fromkeys(self.conversations)  #: id of the delivery of each
        self.pending = dict.fromkeys(self.conversations, True)
        self.opened = {}  #: delivery id → claim: may still be decided
        self.ended = set()  #: tokens of leases that have ended or were given back

    def _take(self, claim):
        self.held[claim.sandbox_id] = claim

    @rule(target=claims, number=st.integers(0, 3))
    def a_worker_opens(self, number):
        conversation, box = list(self.conversations.items())[number]
        claim = self.store.approvals.deliveries.open(conversation, box, LEASE)
        assert claim.has_lease == (self.held[box] is None)
        if claim.has_lease:
            self._take(claim)
        self.opened[claim.delivery_id] = claim
        return claim

    @rule(claim=claims)
    def a_worker_opens_again(self, claim):
        # As redis-py retries a command, also one that waits for its turn.
        if claim.delivery_id not in self.opened or claim.token in self.ended:
            return
        holder = self.held[claim.sandbox_id]
        again = self.store.approvals.deliveries.reopen(claim)
        assert again.has_lease == (holder is None or holder.token == claim.token)
        if again.has_lease:
            self._take(claim)

    @rule(claim=claims, accept=st.booleans())
    def a_worker_decides(self, claim, accept):
        if claim.delivery_id not in self.opened or claim.token in self.ended:
            return
        conversation = claim.conversation_id
        before = self.outstanding[conversation]
        delivery = self.store.approvals.deliveries.decide(
            claim, "approve" if accept else "reject", actor=SERVER, reason=""
        )[1]
        if before == claim.delivery_id:
            assert claim.is_of(delivery)
        elif self.pending[conversation]:
            assert claim.is_of(delivery)
            self.outstanding[conversation], self.pending[conversation] = claim.delivery_id, False
        else:
            assert (delivery.id if delivery else None) == before

    @rule(number=st.integers(0, 3))
    def the_agent_proposes_again(self, number):
        conversation, box = list(self.conversations.items())[number]
        batch = as_events([status("running"), action("next"), status("waiting_for_confirmation")])
        self.store.events.append(conversation, batch, sandbox_id=box)
        self.pending[conversation] = True

    @rule(target=claims)
    def a_supervisor_claims(self):
        claim = self.store.approvals.deliveries.claim(LEASE)
        if claim is None:
            return multiple()
        assert self.held[claim.sandbox_id] is None
        self._take(claim)
        return claim

    @rule(claim=claims)
    def a_driver_renews(self, claim):
        holder = self.held[claim.sandbox_id]
        if not self.store.approvals.deliveries.renew(claim):
            assert holder is None or holder.token != claim.token or claim.entry not in self._entries()
        else:
            assert holder.token == claim.token

    @rule(claim=claims, again=st.booleans())
    def a_driver_settles_and_closes(self, claim, again):
        # A late or repeated call as well: it touches its own delivery and lease alone.
        delivery = self.store.approvals.deliveries.get(claim.conversation_id)
        if delivery and claim.is_of(delivery) and not again:
            self.store.approvals.deliveries.settle(claim.conversation_id, delivery)
            self.outstanding[claim.conversation_id] = None
        self._close(claim, 0 if again else None)

    @rule(claim=consumes(claims))
    def a_driver_that_lost_closes(self, claim):
        if self.outstanding[claim.conversation_id] != claim.delivery_id:
            self._close(claim, None)

    def _close(self, claim, again_in):
        self.store.approvals.deliveries.close(claim, again_in=again_in)
        self.ended.add(claim.token)
        self.opened.pop(claim.delivery_id, None)
        holder = self.held[claim.sandbox_id]
        if holder and holder.token == claim.token:
            self.held[claim.sandbox_id] = None

    @rule(number=st.integers(0, 1))
    def a_lease_ends(self, number):
        # The holder of the claim was killed, or is stalled.
        box = self.boxes[number]
        self._redis.delete(lease_key(box))
        if holder := self.held[box]:
            self.ended.add(holder.token)
            self.opened.pop(holder.delivery_id, None)
        self.held[box] = None
        for entry in self._entries():
            if entry.endswith(box):
                self._redis.zadd(DUE, {entry: 0})
                if (claim := self.opened.pop(entry.split(" ")[0], None)) is not None:
                    self.ended.add(claim.token)

    @property
    def _redis(self):
        return self.store.events._redis

    def _entries(self):
        return {entry.decode() for entry in self._redis.zrange(DUE, 0, -1)}

    @invariant()
    def every_decision_that_is_outstanding_is_due(self):
        entries = self._entries()
        for conversation, delivery_id in self.outstanding.items():
            if delivery_id is not None:
                assert f"{delivery_id} {conversation} {self.conversations[conversation]}" in entries

    @invariant()
    def the_last_decision_is_outstanding(self):
        for conversation, delivery_id in self.outstanding.items():
            delivery = self.store.approvals.deliveries.get(conversation)
            assert (delivery.id if delivery else None) == delivery_id

    @invariant()
    def an_agent_has_one_lease(self):
        for box, holder in self.held.items():
            token = self._redis.get(lease_key(box))
            assert (token.decode() if token else None) == (holder.token if holder else None)

    def teardown(self):
        for entry, box in itertools.product(self._entries(), self.boxes):
            if entry.endswith(box):
                self._redis.zrem(DUE, entry)
        for box in self.boxes:
            self._redis.delete(lease_key(box))


def test_deliveries_agree_with_a_plain_model(store, examples):
    with running_sandbox(store, "http://127.0.0.1:9") as one, running_sandbox(store, "http://127.0.0.1:9") as other:
        store.events._redis.delete(DUE)  # the deliveries of other tests
        machine = type("OfThisStore", (DeliveryMachine,), {"store": store, "boxes": (one.id, other.id)})
        of_machine = settings(
            max_examples=examples(8), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        )
        run_state_machine_as_test(machine, settings=of_machine)
