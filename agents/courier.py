"""Carries decisions to the agents of sandboxes: Redis takes a decision first, then it is delivered.

An agent receives one delivery at a time, under a lease. A supervisor retries what gets no response.
"""

import time
from contextlib import suppress
from functools import partial
from typing import Any

import httpx

from agents.link import AgentRefused, AgentServer, AgentUnreachable
from agents.reach import NotReachable, agent_server, ask_to_wake, woken_agent
from store import Store
from store.approvals.audit import SERVER
from store.approvals.deliveries import Claim, Delivery
from store.errors import UNAVAILABLE, TooManySandboxes
from store.link import attempts
from store.sandboxes.sandbox_record import SandboxId
from wire import ConversationId

#: seconds that a lease is longer than the calls which it covers
_LEASE_MARGIN = 5.0

#: seconds to wait for an agent that has another delivery in hand, and between two polls of its lease
_LEASE_TIMEOUT, _LEASE_POLL = 2.0, 0.02

#: seconds until a delivery that got no response is retried, and until the effect of an acceptance is checked
RETRY_SECONDS, ACCEPTED_SECONDS = 5.0, 1.0


class Courier:
    """The way of decisions to agents."""

    def __init__(self, store: Store, client: httpx.Client) -> None:
        """client: for the agent servers."""
        self._store = store
        self._client = client
        #: length of a delivery's lease: a call, whose tries have one deadline, and a margin
        self.lease_seconds = (client.timeout.read or 0) + _LEASE_MARGIN

    def decide(self, conversation_id: ConversationId, sandbox_id: str, verb: str, **decision: Any) -> bool:
        """Whether the decision took effect. What it decided is delivered, unless single actions still wait."""
        claim = self._store.deliveries.open(conversation_id, sandbox_id, self.lease_seconds)
        attempts.note_reach()
        won, delivery = self._store.deliveries.decide(claim, verb, **decision)
        if delivery is None or not claim.is_of(delivery):
            self._store.deliveries.close(claim)
            if not won:
                attempts.refuse_later()  # an earlier attempt may have decided, and its delivery may be settled by now
            return won
        if attempts.is_later():  # an earlier attempt may have delivered: a supervisor asks the agent before it repeats
            self._store.deliveries.close(claim, again_in=ACCEPTED_SECONDS)
            return won
        if claim.status == "PAUSED":
            self.ask_to_wake(claim)
        self.deliver(claim, delivery)
        return won

    def expire(self, conversation_id: ConversationId, sandbox_id: str) -> None:
        """Reject what has expired. A supervisor delivers it: a hung agent delays no other conversation's expiry."""
        claim = self._store.deliveries.open(conversation_id, sandbox_id, self.lease_seconds)
        _, delivery = self._store.deliveries.decide(claim, "expire", actor=SERVER)
        self._store.deliveries.close(claim, again_in=0 if claim.is_of(delivery) else None)

    def ask_to_wake(self, claim: Claim) -> None:
        """Ask for the resume of a delivery's sandbox, which is paused. The next try repeats a refused one."""
        with suppress(NotReachable, TooManySandboxes):
            ask_to_wake(self._store, SandboxId(claim.sandbox_id))

    def redeliver(self, claim: Claim, delivery: Delivery) -> bool:
        """Send a decision again unless the agent has received it; True if the delivery is settled now.

        An agent that no longer waits has received the decision. So has an agent that waits about a later action, and
        it would apply this decision to that action. Our own state is read first: a busy agent may respond slowly.
        """
        if delivery.awaited:
            agent = self.agent(claim)
            waits = agent.state(claim.conversation_id).get("execution_status") == "waiting_for_confirmation"
            self._renew(claim)
            if waits and self._is_about(delivery, claim.conversation_id, agent.latest_action(claim.conversation_id)):
                return self._send_decision(claim, delivery)
        self._store.deliveries.settle(claim.conversation_id, delivery)
        return True

    def _is_about(self, delivery: Delivery, conversation_id: ConversationId, latest: str | None) -> bool:
        """Whether an agent that waits, and that proposed this action last, waits for the actions of a delivery.

        It may have ended its latest action by itself. Then our log has that action, nothing is open there, and no later
        decision has taken the place of this one, which is read last.
        """
        if latest is None or latest in delivery.actions:
            return latest is not None
        if self._store.events.unknown(conversation_id, [latest]) or self._store.confirmations.open_ids(conversation_id):
            return False
        outstanding = self._store.deliveries.get(conversation_id)
        return outstanding is not None and outstanding.id == delivery.id

    def deliver(self, claim: Claim, delivery: Delivery) -> None:
        """Send the agent the decision just taken. After any failure the delivery is due again."""
        again_in: float | None = RETRY_SECONDS
        with suppress(NotReachable, AgentUnreachable, AgentRefused, *UNAVAILABLE):
            self._await_lease(claim)
            again_in = None if self._send_decision(claim, delivery) else ACCEPTED_SECONDS
        with suppress(*UNAVAILABLE):  # it is due when its lease ends
            self._store.deliveries.close(claim, again_in=again_in)

    def catch_up(self, claim: Claim, delivery: Delivery) -> bool:
        """Send the agent the outstanding decision before another command; True if the delivery is settled now."""
        if claim.is_of(delivery):
            self._await_lease(claim)
            return self._send_decision(claim, delivery)
        if not claim.has_lease:
            self._await_lease(claim)
            known = self._store.deliveries.get(claim.conversation_id)
            if known is None:
                return True
            delivery = known
        return self.redeliver(claim, delivery)

    def _send_decision(self, claim: Claim, delivery: Delivery) -> bool:
        """Send the agent a decision; True if the delivery is settled now.

        An agent server reports that it waits a moment before its run has ended, and drops an acceptance that it
        receives in between. So an acceptance stays due until the agent has left `waiting_for_confirmation`.
        """
        if time.monotonic() - claim.asked_at > _LEASE_MARGIN:  # this process stood still, or the agent was slow
            self._renew(claim)
        self.agent(claim).decide(claim.conversation_id, delivery.accept, delivery.reason, delivery.decisions)
        if not delivery.accept:
            self._store.deliveries.settle(claim.conversation_id, delivery)
        return not delivery.accept

    def agent(self, claim: Claim) -> AgentServer:
        """Raises NotReachable, AgentUnreachable."""
        if claim.status == "RUNNING":
            return agent_server(self._client, claim.agent_url, partial(self._store.deliveries.session_api_key, claim))
        return woken_agent(self._store, self._client, SandboxId(claim.sandbox_id))

    def _renew(self, claim: Claim) -> None:
        """Raises AgentUnreachable if the lease has ended: another driver may have sent the decision."""
        if not self._store.deliveries.renew(claim):
            raise AgentUnreachable("The lease of the delivery ended before the agent server was called")

    def _await_lease(self, claim: Claim) -> None:
        """Wait at most _LEASE_TIMEOUT for the agent's other delivery to end. Raises NotReachable, AgentUnreachable."""
        self.agent(claim)
        deadline = time.monotonic() + _LEASE_TIMEOUT
        while not claim.has_lease:
            if time.monotonic() > deadline:
                raise AgentUnreachable("The agent server has not responded to an earlier decision yet")
            time.sleep(_LEASE_POLL)
            claim = self._store.deliveries.reopen(claim)
