"""Commands of clients to agents: the log takes a detached conversation's, the agent server takes a sandboxed one's.

Redis takes a decision first, then it is delivered. A run or a message makes an agent server approve its pending
actions, so neither is sent before the agent has received every decision about its earlier actions.

A command that needs the agent wakes a paused sandbox and waits for it. A decision asks for the same and waits for
nothing. A pause, an interrupt and a deletion wake nothing. A run or a message starts a conversation again that its
agent server has forgotten, such as one that keeps its conversations in memory alone.
"""

import copy
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import httpx

from access import Principal
from agents.link import AgentRefused, AgentServer, AgentUnreachable
from agents.reach import WAKING, NotReachable, agent_server, ask_to_wake, require_none_waits, wake
from agents.requests import restart_request
from agents.runs import start_run
from specs import Specs
from store import Store, attempts
from store.claims import message_claim, policy_claim
from store.confirmations import SUPERSEDED
from store.deliveries import Claim, Delivery
from store.errors import (
    UNAVAILABLE,
    ConversationNotFound,
    TooManySandboxes,
)
from store.sandbox_record import SandboxId
from wire import ConversationId

#: seconds that a lease is longer than the calls which it covers
_LEASE_MARGIN = 5.0

#: seconds to wait for an agent that has another delivery in hand, and between two polls of its lease
_LEASE_TIMEOUT, _LEASE_POLL = 2.0, 0.02

#: seconds until a delivery that got no response is retried, and until the effect of an acceptance is checked
RETRY_SECONDS, ACCEPTED_SECONDS = 5.0, 1.0


class Commands:
    """Each method raises ConversationNotFound and, of a conversation with a sandbox, NotReachable, AgentUnreachable
    and AgentRefused; one that wakes a sandbox also TooManySandboxes. A message or a run that would decide what waits
    raises NeedsApproval where the one who commands may not."""

    def __init__(self, store: Store, client: httpx.Client, specs: Specs, *, wake_seconds: float = 0) -> None:
        """wake_seconds: how long a command waits for a sandbox that is paused or starting; 0: it wakes none."""
        self.store = store
        self._client = client
        self._specs = specs
        self._wake_seconds = wake_seconds
        self._may_decide = True
        #: length of a delivery's lease: a call, whose tries have one deadline, and a margin
        self.lease_seconds = (client.timeout.read or 0) + _LEASE_MARGIN

    def of(self, principal: Principal) -> "Commands":
        """The commands of one who asks."""
        theirs = copy.copy(self)
        theirs._may_decide = principal.may("approve")
        return theirs

    def agent_in(self, sandbox_id: SandboxId, *, seconds: float = 0) -> AgentServer:
        """The agent server of a sandbox, woken in so many seconds; the call counts as a use. Raises NotReachable."""
        sandbox = wake(self.store, sandbox_id, seconds)
        return agent_server(self._client, sandbox.agent_url, lambda: sandbox.session_api_key)

    def awake_agent_of(self, conversation_id: ConversationId) -> AgentServer | None:
        """The agent server that a conversation lives on, woken if need be; None if the conversation is detached."""
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        return self.agent_in(SandboxId(sandbox_id), seconds=self._wake_seconds) if sandbox_id else None

    def send(self, conversation_id: ConversationId, *, content: list[dict[str, Any]], run: bool) -> None:
        """Send the agent a user's message. The pending actions are rejected first; the message never approves them.

        Where the agent does not receive the rejection, the message is not sent. The agent may have received a message
        that got no response, so this method never repeats a message.
        """
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            self.store.events.send(conversation_id, content=content, run=run, may_decide=self._may_decide)
        else:
            self._send(conversation_id, sandbox_id, content, run)

    def send_to_agent(self, conversation_id: ConversationId, *, content: list[dict[str, Any]], run: bool) -> None:
        """As `send`; of a detached conversation it raises ConversationNotFound."""
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            raise ConversationNotFound
        self._send(conversation_id, sandbox_id, content, run)

    def decide(self, conversation_id: ConversationId, *, accept: bool, reason: str) -> bool:
        """Accept or reject the pending actions; True only for the decision that took effect.

        A decision takes effect in Redis: `supervisor/deliveries.py` retries until the agent has received it.
        """
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            return self.store.confirmations.decide(conversation_id, accept=accept, reason=reason)
        claim = self.store.deliveries.open(conversation_id, sandbox_id, self.lease_seconds)
        attempts.note_reach()
        delivery = self.store.deliveries.decide(claim, accept=accept, reason=reason)
        if delivery is None or not claim.is_of(delivery):
            self.store.deliveries.close(claim)
            attempts.refuse_later()  # an earlier attempt may have decided, and its delivery may be settled by now
            return False
        if attempts.is_later():  # an earlier attempt may have delivered: a supervisor asks the agent before it repeats
            self.store.deliveries.close(claim, again_in=ACCEPTED_SECONDS)
            return True
        if claim.status == "PAUSED":
            self.ask_to_wake(claim)
        self._deliver(claim, delivery)
        return True

    def change_status(self, conversation_id: ConversationId, verb: str) -> None:
        """Run, pause or interrupt. A run accepts the pending actions. Raises IllegalMove."""
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            self.store.conversations.change_status(conversation_id, verb, may_decide=self._may_decide)
        elif verb == "run":
            self._run(conversation_id, sandbox_id)
        else:
            self.agent_in(SandboxId(sandbox_id)).post(conversation_id, verb, {}, repeatable=True)

    def set_policy(self, conversation_id: ConversationId, policy: dict[str, Any]) -> None:
        """Set the policy that holds back the actions from now on."""
        if agent := self.awake_agent_of(conversation_id):
            self.store.echoes.expect(conversation_id, [policy_claim(policy)])
            agent.post(conversation_id, "confirmation_policy", {"policy": policy}, repeatable=True)
        self.store.confirmations.set_policy(conversation_id, policy)

    def set_security_analyzer(self, conversation_id: ConversationId, security_analyzer: dict[str, Any] | None) -> None:
        """Set the analyzer that rates the risk of the agent's actions."""
        if agent := self.awake_agent_of(conversation_id):
            body = {"security_analyzer": security_analyzer}
            agent.post(conversation_id, "security_analyzer", body, repeatable=True)
        self.store.conversations.update(conversation_id, security_analyzer=security_analyzer)

    def put_secrets(self, conversation_id: ConversationId, secrets: dict[str, Any]) -> None:
        """Keep secrets for the agent. Raises SecretsRefused."""
        if agent := self.awake_agent_of(conversation_id):
            agent.post(conversation_id, "secrets", {"secrets": secrets}, repeatable=True)
        self.store.conversations.put_secrets(conversation_id, secrets)

    def ask_to_wake(self, claim: Claim) -> None:
        """Ask for the resume of a delivery's sandbox, which is paused. The next try repeats a refused one."""
        with suppress(NotReachable, TooManySandboxes):
            ask_to_wake(self.store, SandboxId(claim.sandbox_id))

    def redeliver(self, claim: Claim, delivery: Delivery) -> bool:
        """Send a decision again unless the agent has received it; True if the delivery is settled now.

        An agent that no longer waits has received the decision. So has an agent that waits about a later action, and
        it would apply this decision to that action. Our own state is read first: a busy agent may respond slowly.
        """
        if delivery.awaited:
            agent = self._agent(claim)
            waits = agent.state(claim.conversation_id).get("execution_status") == "waiting_for_confirmation"
            self._renew(claim)
            if waits and agent.latest_action(claim.conversation_id) in delivery.actions:
                return self._send_decision(claim, delivery)
        self.store.deliveries.settle(claim.conversation_id, delivery)
        return True

    def _send(self, conversation_id: ConversationId, sandbox_id: str, content: list[dict[str, Any]], run: bool) -> None:
        attempts.refuse_later()
        echo, may_be_sent = message_claim(content), False
        agent, claim, delivery = self._overtake(conversation_id, sandbox_id, accept=False, reason=SUPERSEDED, echo=echo)
        again_in = RETRY_SECONDS if claim.is_of(delivery) else None
        try:
            if delivery:
                self._catch_up(claim, delivery)
            again_in, may_be_sent = None, True
            self._or_again(agent, claim, partial(agent.send, conversation_id, content, run))
        except AgentRefused:
            may_be_sent = False
            raise
        finally:
            self.store.deliveries.close(claim, again_in=again_in)
            if not may_be_sent:
                self.store.echoes.forget(conversation_id, echo, claim.token)

    def _run(self, conversation_id: ConversationId, sandbox_id: str) -> None:
        attempts.refuse_later()
        agent, claim, delivery = self._overtake(conversation_id, sandbox_id, accept=True, reason="")
        if delivery and claim.is_of(delivery):
            self._deliver(claim, delivery)
            return
        try:
            if delivery is None or self._catch_up(claim, delivery):  # else the agent runs by an earlier acceptance
                self._or_again(agent, claim, partial(start_run, agent, conversation_id))
        finally:
            self.store.deliveries.close(claim)

    def _or_again(self, agent: AgentServer, claim: Claim, command: Callable[[], None]) -> None:
        """Send a command. Where the agent server has forgotten the conversation, start it again there first."""
        try:
            command()
        except AgentRefused as refusal:
            [sandbox] = self.store.sandboxes.get_many([SandboxId(claim.sandbox_id)])
            spec = self._specs.find(sandbox.spec_id) if sandbox and refusal.status == 404 else None
            if sandbox is None or spec is None:
                raise
            body = restart_request(self.store, claim.conversation_id, sandbox, spec)
            agent.start(body, self.store.sandboxes.limits.start_seconds)
            command()

    def _overtake(
        self, conversation_id: ConversationId, sandbox_id: str, **decision: Any
    ) -> tuple[AgentServer, Claim, Delivery | None]:
        """Decide the pending actions if the agent can be reached, else nothing. Returns the outstanding delivery."""
        claim = self.store.deliveries.open(conversation_id, sandbox_id, self.lease_seconds)
        if claim.status in WAKING and self._wake_seconds:  # others may be delivered to meanwhile
            self.store.deliveries.close(claim)
            wake(self.store, SandboxId(sandbox_id), self._wake_seconds)
            claim = self.store.deliveries.open(conversation_id, sandbox_id, self.lease_seconds)
        try:
            agent = self._agent(claim)
        except (NotReachable, AgentUnreachable):
            self.store.deliveries.close(claim)
            raise
        attempts.note_reach()
        delivery = self.store.deliveries.decide(claim, may_decide=self._may_decide, **decision)
        if delivery is None and not self._may_decide:
            try:
                require_none_waits(agent, conversation_id)
            except BaseException:
                self.store.deliveries.close(claim)
                raise
        return agent, claim, delivery

    def _deliver(self, claim: Claim, delivery: Delivery) -> None:
        """Send the agent the decision just taken. After any failure the delivery is due again."""
        again_in: float | None = RETRY_SECONDS
        with suppress(NotReachable, AgentUnreachable, AgentRefused, *UNAVAILABLE):
            self._await_lease(claim)
            again_in = None if self._send_decision(claim, delivery) else ACCEPTED_SECONDS
        with suppress(*UNAVAILABLE):  # it is due when its lease ends
            self.store.deliveries.close(claim, again_in=again_in)

    def _catch_up(self, claim: Claim, delivery: Delivery) -> bool:
        """Send the agent the outstanding decision before another command; True if the delivery is settled now."""
        if claim.is_of(delivery):
            self._await_lease(claim)
            return self._send_decision(claim, delivery)
        if not claim.has_lease:
            self._await_lease(claim)
            known = self.store.deliveries.get(claim.conversation_id)
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
        self._agent(claim).decide(claim.conversation_id, delivery.accept, delivery.reason)
        if not delivery.accept:
            self.store.deliveries.settle(claim.conversation_id, delivery)
        return not delivery.accept

    def _agent(self, claim: Claim) -> AgentServer:
        """Raises NotReachable, AgentUnreachable."""
        if claim.status == "RUNNING":
            return agent_server(self._client, claim.agent_url, partial(self.store.deliveries.session_api_key, claim))
        return self.agent_in(SandboxId(claim.sandbox_id))

    def _renew(self, claim: Claim) -> None:
        """Raises AgentUnreachable if the lease has ended: another driver may have sent the decision."""
        if not self.store.deliveries.renew(claim):
            raise AgentUnreachable("The lease of the delivery ended before the agent server was called")

    def _await_lease(self, claim: Claim) -> None:
        """Wait at most _LEASE_TIMEOUT for the agent's other delivery to end. Raises NotReachable, AgentUnreachable."""
        self._agent(claim)
        deadline = time.monotonic() + _LEASE_TIMEOUT
        while not claim.has_lease:
            if time.monotonic() > deadline:
                raise AgentUnreachable("The agent server has not responded to an earlier decision yet")
            time.sleep(_LEASE_POLL)
            claim = self.store.deliveries.reopen(claim)
