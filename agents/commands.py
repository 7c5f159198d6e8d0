"""What clients tell agents: written into the log where a conversation is detached, passed on where it has a sandbox.

A decision is taken in Redis and then delivered. An agent server would approve what waits by a run or a message, so
neither is passed on before the agent has received every decision about what it proposed earlier.
"""

import time
from contextlib import suppress
from typing import Any

import httpx

from agents.link import AgentRefused, AgentServer, AgentUnreachable
from store import Store
from store.confirmations import SUPERSEDED
from store.deliveries import Claim, Delivery
from store.errors import UNAVAILABLE, ConversationNotFound, SandboxNotFound, SandboxRefuses
from store.sandboxes import SandboxId
from wire import ConversationId

#: seconds that a lease is longer than the calls which it covers
_LEASE_MARGIN = 5.0

#: seconds to wait for an agent that has another delivery in hand, and between two polls of its lease
_LEASE_TIMEOUT, _LEASE_POLL = 2.0, 0.02

#: seconds until a delivery that got no response is retried, and until it is seen what an acceptance has led to
RETRY_SECONDS, ACCEPTED_SECONDS = 5.0, 1.0


class NotReachable(Exception):
    """The sandbox of a conversation does not run; status is the sandbox's."""

    def __init__(self, sandbox_id: str, status: str) -> None:
        hints = {"PAUSED": f": POST /api/v1/sandboxes/{sandbox_id}/resume first", "STARTING": ": try again shortly"}
        super().__init__(f"The conversation's sandbox is {status}{hints.get(status, '')}")
        self.status = status


class Commands:
    """Each method raises ConversationNotFound and, of a conversation with a sandbox, NotReachable, AgentUnreachable
    and AgentRefused."""

    def __init__(self, store: Store, client: httpx.Client) -> None:
        self._store = store
        self._client = client
        #: length of a delivery's lease: a call, whose tries have one deadline, and a margin
        self.lease_seconds = (client.timeout.read or 0) + _LEASE_MARGIN

    def agent_of(self, conversation_id: ConversationId) -> AgentServer | None:
        """The agent server that a conversation lives on; None if it is detached."""
        sandbox_id = self._store.conversations.sandbox_of(conversation_id)
        return self.agent_in(SandboxId(sandbox_id)) if sandbox_id else None

    def agent_in(self, sandbox_id: SandboxId) -> AgentServer:
        """The agent server of a sandbox, which is in use by that. Raises NotReachable."""
        sandbox = self._store.sandboxes.use(sandbox_id)
        if sandbox is None or sandbox.status != "RUNNING":
            raise NotReachable(sandbox_id, sandbox.status if sandbox else "MISSING")
        return AgentServer(self._client, sandbox.agent_url, sandbox.session_api_key)

    def send(self, conversation_id: ConversationId, *, content: list[dict[str, Any]], run: bool) -> None:
        """Give the agent a user's message. What waits for a decision is rejected first, never approved by it.

        A message whose rejection the agent did not receive is not sent. The agent may have a message that got no
        response, so it is never repeated here.
        """
        sandbox_id = self._store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            self._store.events.send(conversation_id, content=content, run=run)
        else:
            self._send(conversation_id, sandbox_id, content, run)

    def send_to_agent(self, conversation_id: ConversationId, *, content: list[dict[str, Any]], run: bool) -> None:
        """As `send`; of a detached conversation it raises ConversationNotFound."""
        sandbox_id = self._store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            raise ConversationNotFound
        self._send(conversation_id, sandbox_id, content, run)

    def decide(self, conversation_id: ConversationId, *, accept: bool, reason: str) -> bool:
        """Accept or reject what waits; True only for the decision that took effect.

        It has taken effect when it is decided: `supervisor/deliveries.py` retries until the agent has received it.
        """
        sandbox_id = self._store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            return self._store.confirmations.decide(conversation_id, accept=accept, reason=reason)
        claim = self._store.deliveries.open(conversation_id, sandbox_id, self.lease_seconds)
        delivery = self._store.deliveries.decide(claim, accept=accept, reason=reason)
        if delivery is None or not claim.is_of(delivery):
            self._store.deliveries.close(claim)
            return False
        self._deliver(claim, delivery)
        return True

    def change_status(self, conversation_id: ConversationId, verb: str) -> None:
        """Run, pause or interrupt. To run what waits for a decision is to accept it. Raises IllegalMove."""
        sandbox_id = self._store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            self._store.conversations.change_status(conversation_id, verb)
        elif verb == "run":
            self._run(conversation_id, sandbox_id)
        else:
            self.agent_in(SandboxId(sandbox_id)).tell(conversation_id, verb, {}, repeatable=True)

    def set_policy(self, conversation_id: ConversationId, policy: dict[str, Any]) -> None:
        """Set which actions wait for a decision from now on."""
        if agent := self.agent_of(conversation_id):
            agent.tell(conversation_id, "confirmation_policy", {"policy": policy}, repeatable=True)
        self._store.confirmations.set_policy(conversation_id, policy)

    def set_security_analyzer(self, conversation_id: ConversationId, security_analyzer: dict[str, Any] | None) -> None:
        """Set what rates the risk of the agent's actions."""
        if agent := self.agent_of(conversation_id):
            body = {"security_analyzer": security_analyzer}
            agent.tell(conversation_id, "security_analyzer", body, repeatable=True)
        self._store.conversations.update(conversation_id, security_analyzer=security_analyzer)

    def put_secrets(self, conversation_id: ConversationId, secrets: dict[str, Any]) -> None:
        """Keep secrets for the agent. Raises SecretsRefused."""
        if agent := self.agent_of(conversation_id):
            agent.tell(conversation_id, "secrets", {"secrets": secrets}, repeatable=True)
        self._store.conversations.put_secrets(conversation_id, secrets)

    def delete(self, conversation_id: ConversationId) -> None:
        """Remove a conversation and everything of it, also from its agent if that can be reached.

        Its sandbox goes with the last conversation in it.
        """
        sandbox_id = self._store.conversations.sandbox_of(conversation_id)
        with suppress(NotReachable, AgentUnreachable, AgentRefused):  # it is gone here; what its agent sends is refused
            if sandbox_id:
                self.agent_in(SandboxId(sandbox_id)).delete(conversation_id)
        self._store.conversations.delete(conversation_id)
        if sandbox_id and not self._store.app_conversations.in_sandbox(SandboxId(sandbox_id)):
            with suppress(SandboxNotFound, SandboxRefuses):
                self._store.sandboxes.ask(SandboxId(sandbox_id), "delete")

    def delete_with_children(self, conversation_id: ConversationId) -> None:
        """Remove an app conversation, its children and the start tasks of all, each conversation as `delete` does.

        The parent is the last: where a worker is killed in between, the client's repeat removes the rest.
        Raises ConversationNotFound, also of a detached conversation.
        """
        parent = self._store.conversations.get(conversation_id)
        if "sandbox_id" not in parent:
            raise ConversationNotFound
        for each in (*self._store.app_conversations.children(conversation_id), parent):
            if start_id := each["app"].get("start_id"):
                self._store.start_tasks.forget(start_id)
            with suppress(ConversationNotFound):  # another request was faster
                self.delete(ConversationId(each["id"]))

    def redeliver(self, claim: Claim, delivery: Delivery) -> bool:
        """Send an agent a decision once more, unless it has received it; whether the delivery is settled by that.

        An agent that no longer waits has received it, and one that waits for a decision about another action too: it
        would take this decision for that action's. Our own state comes first: an agent at work may be slow to respond.
        """
        if delivery.awaited:
            agent = self._agent(claim)
            waits = agent.state(claim.conversation_id).get("execution_status") == "waiting_for_confirmation"
            self._renew(claim)
            if waits and agent.latest_action(claim.conversation_id) in delivery.actions:
                return self._tell(claim, delivery)
        self._store.deliveries.settle(claim.conversation_id, delivery)
        return True

    def _send(self, conversation_id: ConversationId, sandbox_id: str, content: list[dict[str, Any]], run: bool) -> None:
        agent, claim, delivery = self._overtake(conversation_id, sandbox_id, accept=False, reason=SUPERSEDED)
        again_in = RETRY_SECONDS if claim.is_of(delivery) else None
        try:
            if delivery:
                self._catch_up(claim, delivery)
            again_in = None
            agent.send(conversation_id, content, run)
        finally:
            self._store.deliveries.close(claim, again_in=again_in)

    def _run(self, conversation_id: ConversationId, sandbox_id: str) -> None:
        agent, claim, delivery = self._overtake(conversation_id, sandbox_id, accept=True, reason="")
        if delivery and claim.is_of(delivery):
            self._deliver(claim, delivery)
            return
        try:
            if delivery is None or self._catch_up(claim, delivery):  # else the agent runs by an earlier acceptance
                agent.tell(conversation_id, "run", {}, repeatable=False)
        finally:
            self._store.deliveries.close(claim)

    def _overtake(
        self, conversation_id: ConversationId, sandbox_id: str, *, accept: bool, reason: str
    ) -> tuple[AgentServer, Claim, Delivery | None]:
        """Decide what waits where the agent can be reached, and nothing elsewhere; the delivery that is outstanding."""
        claim = self._store.deliveries.open(conversation_id, sandbox_id, self.lease_seconds)
        try:
            agent = self._agent(claim)
        except NotReachable:
            self._store.deliveries.close(claim)
            raise
        return agent, claim, self._store.deliveries.decide(claim, accept=accept, reason=reason)

    def _deliver(self, claim: Claim, delivery: Delivery) -> None:
        """Send the agent what was decided just now. Whatever fails: the delivery is due again."""
        again_in: float | None = RETRY_SECONDS
        with suppress(NotReachable, AgentUnreachable, AgentRefused, *UNAVAILABLE):
            self._await_lease(claim)
            again_in = None if self._tell(claim, delivery) else ACCEPTED_SECONDS
        with suppress(*UNAVAILABLE):  # it is due when its lease ends
            self._store.deliveries.close(claim, again_in=again_in)

    def _catch_up(self, claim: Claim, delivery: Delivery) -> bool:
        """Send the agent the decision that is outstanding, before anything else; whether that settles it."""
        if claim.is_of(delivery):
            self._await_lease(claim)
            return self._tell(claim, delivery)
        if not claim.has_lease:
            self._await_lease(claim)
            known = self._store.deliveries.get(claim.conversation_id)
            if known is None:
                return True
            delivery = known
        return self.redeliver(claim, delivery)

    def _tell(self, claim: Claim, delivery: Delivery) -> bool:
        """Send the agent a decision; whether that settles it.

        An agent server that says it waits, but is not quite at the end of its run, takes an acceptance for a run that
        is going on already, and drops it. So an acceptance stays due until the agent is seen to move.
        """
        if time.monotonic() - claim.asked_at > _LEASE_MARGIN:  # this process stood still, or the agent was slow
            self._renew(claim)
        self._agent(claim).answer(claim.conversation_id, delivery.accept, delivery.reason)
        if not delivery.accept:
            self._store.deliveries.settle(claim.conversation_id, delivery)
        return not delivery.accept

    def _agent(self, claim: Claim) -> AgentServer:
        """Raises NotReachable."""
        if claim.status == "RUNNING":
            return AgentServer(self._client, claim.agent_url, claim.session_api_key)
        return self.agent_in(SandboxId(claim.sandbox_id))

    def _renew(self, claim: Claim) -> None:
        """Raises AgentUnreachable: so much time has passed that another driver may have delivered."""
        if not self._store.deliveries.renew(claim):
            raise AgentUnreachable("The lease of the delivery ended before the agent server was called")

    def _await_lease(self, claim: Claim) -> None:
        """Wait a little while the agent has another delivery in hand. Raises NotReachable, AgentUnreachable."""
        self._agent(claim)
        deadline = time.monotonic() + _LEASE_TIMEOUT
        while not claim.has_lease:
            if time.monotonic() > deadline:
                raise AgentUnreachable("The agent server has not responded to an earlier decision yet")
            time.sleep(_LEASE_POLL)
            claim = self._store.deliveries.reopen(claim)
