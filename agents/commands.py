"""Commands of clients to agents: the log takes a detached conversation's, the agent server takes a sandboxed one's.

Redis takes a decision first, then it is delivered. A run or a message makes an agent server approve its pending
actions, so neither is sent before the agent has received every decision about its earlier actions.

A command that needs the agent wakes a paused sandbox and waits for it. A decision asks for the same and waits for
nothing. A pause, an interrupt and a deletion wake nothing. A run or a message starts a conversation again that its
agent server has forgotten, such as one that keeps its conversations in memory alone.
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import httpx

from agents.courier import RETRY_SECONDS, Courier
from agents.link import AgentRefused, AgentServer, AgentUnreachable
from agents.reach import WAKING, NotReachable, require_none_waits, wake, woken_agent
from agents.requests import restart_request
from agents.runs import start_run
from specs import Specs
from store import Store
from store.approvals.audit import SERVER, Actor, ActorKind
from store.approvals.claims import message_claim, policy_claim
from store.approvals.confirmations import SUPERSEDED
from store.approvals.decisions import Decision
from store.approvals.deliveries import Claim, Delivery
from store.errors import ConversationNotFound
from store.link import attempts
from store.sandboxes.sandbox_record import SandboxId
from wire import ConversationId


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
        self._actor = SERVER
        self.courier = Courier(store, client)

    def of(self, actor: Actor) -> "Commands":
        """The commands of one who asks, whom the audit names."""
        theirs = copy.copy(self)
        theirs._actor = actor
        return theirs

    def agent_in(self, sandbox_id: SandboxId, *, seconds: float = 0) -> AgentServer:
        """The agent server of a sandbox, woken in so many seconds; the call counts as a use. Raises NotReachable."""
        return woken_agent(self.store, self._client, sandbox_id, seconds)

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
            self.store.events.send(conversation_id, content=content, run=run, actor=self._actor)
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
            return self.store.confirmations.decide(conversation_id, accept=accept, reason=reason, actor=self._actor)
        verb = "approve" if accept else "reject"
        return self.courier.decide(conversation_id, sandbox_id, verb, reason=reason, actor=self._actor)

    def decide_each(self, conversation_id: ConversationId, decisions: Sequence[Decision]) -> None:
        """Decide single pending actions, all or none. The agent receives the decisions when the last one is taken.

        Raises ConversationNotFound, ReasonTooLong, StaleDecision. Source: docs/approvals.md.
        """
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            self.store.confirmations.decide_each(conversation_id, decisions, self._actor)
            return
        words = self.store.confirmations.words(conversation_id, decisions)
        self.courier.decide(conversation_id, sandbox_id, "each", decisions=words, actor=self._actor)

    def expire(self, conversation_id: ConversationId) -> None:
        """Reject the pending actions whose deadline has passed by Redis' clock; of others nothing changes."""
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            self.store.confirmations.expire(conversation_id)
        else:
            self.courier.expire(conversation_id, sandbox_id)

    def change_status(self, conversation_id: ConversationId, verb: str) -> None:
        """Run, pause or interrupt. A run accepts the pending actions. Raises IllegalMove."""
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            self.store.conversations.change_status(conversation_id, verb, actor=self._actor)
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

    def delete(self, conversation_id: ConversationId) -> None:
        """Remove a conversation from the store alone."""
        self.store.conversations.delete(conversation_id, self._actor)

    def _send(self, conversation_id: ConversationId, sandbox_id: str, content: list[dict[str, Any]], run: bool) -> None:
        attempts.refuse_later()
        echo, may_be_sent = message_claim(content), False
        agent, claim, delivery = self._overtake(
            conversation_id, sandbox_id, "overtake", "message", reason=SUPERSEDED, echo=echo
        )
        again_in = RETRY_SECONDS if claim.is_of(delivery) else None
        try:
            if delivery:
                self.courier.catch_up(claim, delivery)
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
        agent, claim, delivery = self._overtake(conversation_id, sandbox_id, "approve", "run")
        if delivery and claim.is_of(delivery) and delivery.accept:
            self.courier.deliver(claim, delivery)
            return
        try:
            if delivery is None or self.courier.catch_up(
                claim, delivery
            ):  # else the agent runs by an earlier acceptance
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
        self, conversation_id: ConversationId, sandbox_id: str, verb: str, kind: ActorKind, **decision: Any
    ) -> tuple[AgentServer, Claim, Delivery | None]:
        """Decide the pending actions if the agent can be reached, else nothing. Returns the outstanding delivery."""
        claim = self.store.deliveries.open(conversation_id, sandbox_id, self.courier.lease_seconds)
        if claim.status in WAKING and self._wake_seconds:  # others may be delivered to meanwhile
            self.store.deliveries.close(claim)
            wake(self.store, SandboxId(sandbox_id), self._wake_seconds)
            claim = self.store.deliveries.open(conversation_id, sandbox_id, self.courier.lease_seconds)
        try:
            agent = self.courier.agent(claim)
        except (NotReachable, AgentUnreachable):
            self.store.deliveries.close(claim)
            raise
        attempts.note_reach()
        _, delivery = self.store.deliveries.decide(claim, verb, actor=self._actor.by(kind), **decision)
        if delivery is None and not self._actor.may_decide:
            try:
                require_none_waits(agent, conversation_id)
            except BaseException:
                self.store.deliveries.close(claim)
                raise
        return agent, claim, delivery
