"""Commands of clients to agents. A detached conversation's log takes them, or else the agent server of the sandbox.

Redis records a decision first, then the courier delivers it. An agent receives one delivery at a time, under a lease. A
supervisor retries a delivery without a response. A run or a message makes an agent server approve its pending actions.
So neither is sent before the agent has received every decision about its earlier actions.

A command that needs the agent resumes a paused sandbox and waits for it. A decision resumes it without waiting. A
pause, an interrupt and a deletion do not resume it. A run or a message restarts a conversation that its agent server
has forgotten, for instance because it keeps conversations in memory.

Guarantee: after the response to a message, a pause or an interrupt, a read on any worker shows its effect. The agent
posts the effect by a webhook shortly after its own response, and the command waits for that. Limitation: it waits for
at most SHOWN_SECONDS, because an agent may be slow to post. A supervisor fetches what an agent never posts.

Redis records a change of title or tags, and that the agent has not received it. A paused sandbox is not resumed for
that: the agent gets the labels when its sandbox runs again, or with the next change. Until then its own reports of tags
are ignored.
"""

import copy
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import httpx

from agents.client import AgentRefused, AgentServer, AgentUnreachable, start_run
from agents.starts import restart_request
from agents.waking import WAKING, NotReachable, agent_server, ask_to_wake, require_none_waits, wake, woken_agent
from core.wire import ConversationId, acts_unasked
from settings.egress import secrets_inside
from settings.specs import Specs
from store import Store
from store.approvals.audit import SERVER, ActorKind, DecisionActor
from store.approvals.decisions import SUPERSEDED, Decision
from store.approvals.deliveries import Claim, DecisionDelivery
from store.approvals.effects import message_claim, policy_claim
from store.errors import UNAVAILABLE, ActionsWait, ActsUnasked, ConversationNotFound, NeedsApproval, TooManySandboxes
from store.link import attempts
from store.sandboxes.sandboxes import SandboxId

log = logging.getLogger(__name__)


#: Maximum wait of a client's command for the agent to post its effect, in seconds.
SHOWN_SECONDS = 1.0

#: First and longest interval between two polls for that effect, in seconds. Each is twice the previous.
_SHOWN_POLL, _LONGEST_SHOWN_POLL = 0.004, 0.064

#: Margin of a lease beyond the calls that it covers, in seconds.
_LEASE_MARGIN = 5.0

#: Maximum wait for an agent's other delivery, and interval between two polls of its lease, in seconds.
_LEASE_TIMEOUT, _LEASE_POLL = 2.0, 0.02

#: Delays in seconds: of a delivery's retry, and of the check of an acceptance's effect.
RETRY_SECONDS, ACCEPTED_SECONDS = 5.0, 1.0


class Commands:
    """Commands on behalf of an actor.

    Each method raises ConversationNotFound and, for a conversation with a sandbox, NotReachable, AgentUnreachable and
    AgentRefused; with a resume also TooManySandboxes. A message or a run that would decide pending actions raises
    NeedsApproval if the actor may not decide.
    """

    def __init__(
        self, store: Store, client: httpx.Client, specs: Specs, *, wake_seconds: float = 0, shown_seconds: float = 0
    ) -> None:
        """wake_seconds: maximum wait for a paused or starting sandbox; 0: do not resume it. shown_seconds: maximum wait
        for the agent to post the effect; 0: nobody reads at once.
        """
        self.store = store
        self._client = client
        self._specs = specs
        self._wake_seconds = wake_seconds
        self._shown_seconds = shown_seconds
        self._actor = SERVER
        self.courier = Courier(store, client)

    def of(self, actor: DecisionActor) -> "Commands":
        """Return these commands on behalf of an actor, whom the audit names."""
        theirs = copy.copy(self)
        theirs._actor = actor
        return theirs

    @property
    def actor(self) -> DecisionActor:
        """Return the actor of these commands."""
        return self._actor

    def agent_in(self, sandbox_id: SandboxId, *, seconds: float = 0) -> AgentServer:
        """Return the agent server of a sandbox, resumed within `seconds`. Counts as a use. Raises NotReachable."""
        return woken_agent(self.store, self._client, sandbox_id, seconds)

    def awake_agent_of(self, conversation_id: ConversationId) -> AgentServer | None:
        """Return the agent server of a conversation, resumed if necessary; None if the conversation is detached."""
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        return self.agent_in(SandboxId(sandbox_id), seconds=self._wake_seconds) if sandbox_id else None

    def send(
        self, conversation_id: ConversationId, *, content: list[dict[str, Any]], run: bool, rejects: bool = True
    ) -> None:
        """Send the agent a user's message. First reject the pending actions; the message never approves them.

        rejects: false: reject nothing, and raise ActionsWait while an action is pending. If the agent does not receive
        the rejection, the message is not sent. This method never retries, because the agent may have received a message
        without a response.
        """
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        with self._which_decide(rejects) as commands:
            if sandbox_id is None:
                self.store.events.send(conversation_id, content=content, run=run, actor=commands._actor)
            else:
                commands._send(conversation_id, sandbox_id, content, run)

    def send_to_agent(
        self,
        conversation_id: ConversationId,
        *,
        content: list[dict[str, Any]],
        run: bool,
        rejects: bool = True,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Send a message as `send` does. Raises ConversationNotFound for a detached conversation.

        check: called directly before the request; its errors stop the message.
        """
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            raise ConversationNotFound
        with self._which_decide(rejects) as commands:
            commands._send(conversation_id, sandbox_id, content, run, check)

    def decide(self, conversation_id: ConversationId, *, accept: bool, reason: str) -> bool:
        """Accept or reject the pending actions. Return whether this decision took effect.

        A decision takes effect in Redis. `supervisor/deliveries.py` retries until the agent has received it.
        """
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            return self.store.approvals.confirmations.decide(
                conversation_id, accept=accept, reason=reason, actor=self._actor
            )
        verb = "approve" if accept else "reject"
        return self.courier.decide(conversation_id, sandbox_id, verb, reason=reason, actor=self._actor)

    def decide_each(self, conversation_id: ConversationId, decisions: Sequence[Decision]) -> None:
        """Decide pending actions, all or none. The agent receives the decisions when no action is pending.

        Raises ConversationNotFound, ReasonTooLong, StaleDecision. Source: docs/approvals.md.
        """
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            self.store.approvals.confirmations.decide_each(conversation_id, decisions, self._actor)
            return
        words = self.store.approvals.confirmations.encode_decisions(conversation_id, decisions)
        self.courier.decide(conversation_id, sandbox_id, "each", decisions=words, actor=self._actor)

    def expire(self, conversation_id: ConversationId) -> None:
        """Reject the pending actions whose deadline has passed by Redis' clock."""
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        if sandbox_id is None:
            self.store.approvals.confirmations.expire(conversation_id)
        else:
            self.courier.expire(conversation_id, sandbox_id)

    def change_status(self, conversation_id: ConversationId, verb: str, *, accepts: bool = True) -> None:
        """Run, pause or interrupt. A run accepts the pending actions. Raises IllegalMove.

        accepts: false: a run accepts nothing, and raises ActionsWait while an action is pending.
        """
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        if verb == "run":
            with self._which_decide(accepts) as commands:
                if sandbox_id is None:
                    self.store.conversations.change_status(conversation_id, verb, actor=commands._actor)
                else:
                    commands._run(conversation_id, sandbox_id)
        elif sandbox_id is None:
            self.store.conversations.change_status(conversation_id, verb, actor=self._actor)
        else:
            agent = self.agent_in(SandboxId(sandbox_id))
            agent.post(conversation_id, verb, {}, repeatable=True)
            self._await_status(agent, conversation_id)

    def set_policy(
        self, conversation_id: ConversationId, policy: dict[str, Any], *, approves_inside: bool = False
    ) -> None:
        """Set the policy of which actions wait from now on, and audit that. Raises ActsUnasked.

        approves_inside: this server approves actions that stay inside the folder.
        """
        before = self.store.conversations.get(conversation_id)
        if policy["kind"] != "NeverConfirm" and acts_unasked(before.get("agent")):
            raise ActsUnasked
        if agent := self.awake_agent_of(conversation_id):
            self.store.sandboxes.echoes.expect(conversation_id, [policy_claim(policy)])
            agent.post(conversation_id, "confirmation_policy", {"policy": policy}, repeatable=True)
        self.store.approvals.confirmations.set_policy(
            conversation_id, policy, approves_inside=approves_inside, before=before, actor=self._actor
        )

    def set_security_analyzer(self, conversation_id: ConversationId, security_analyzer: dict[str, Any] | None) -> None:
        """Set the analyzer that rates the risk of the agent's actions."""
        if agent := self.awake_agent_of(conversation_id):
            body = {"security_analyzer": security_analyzer}
            agent.post(conversation_id, "security_analyzer", body, repeatable=True)
        self.store.conversations.update(conversation_id, security_analyzer=security_analyzer)

    def put_secrets(self, conversation_id: ConversationId, secrets: dict[str, Any]) -> None:
        """Store secrets for the agent, and then send them, so that none of its output is stored unmasked.

        Raises SecretsRefused, TooManySecrets.
        """
        sandbox_id = self.store.conversations.sandbox_of(conversation_id)
        agent = self.agent_in(SandboxId(sandbox_id), seconds=self._wake_seconds) if sandbox_id else None
        self.store.conversations.put_secrets(conversation_id, secrets, sandbox_id)
        if agent:
            body = {"secrets": self._inside(secrets, SandboxId(str(sandbox_id)))}
            agent.post(conversation_id, "secrets", body, repeatable=True)

    def _inside(self, secrets: dict[str, Any], sandbox_id: SandboxId) -> Any:
        """Return the secrets for the agent of a sandbox. Cost: one round trip; none if no spec names a secret."""
        if not any(service.secret_names for spec in self._specs.all for service in spec.services):
            return secrets
        [sandbox] = self.store.sandboxes.get_many([sandbox_id])
        spec = self._specs.find(sandbox.spec_id) if sandbox else None
        return secrets_inside(secrets, spec.services if spec else ())

    def delete(self, conversation_id: ConversationId) -> None:
        """Delete a conversation only from the store."""
        self.store.conversations.delete(conversation_id, self._actor)

    @contextmanager
    def _which_decide(self, decides: bool) -> Iterator["Commands"]:
        """Yield these commands. With `decides=False`, raise `ActionsWait` instead of deciding pending actions."""
        try:
            yield self if decides else self.of(self._actor._replace(may_decide=False))
        except NeedsApproval:
            if decides:
                raise
            raise ActionsWait from None

    def _send(
        self,
        conversation_id: ConversationId,
        sandbox_id: str,
        content: list[dict[str, Any]],
        run: bool,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        attempts.refuse_later()
        echo, may_be_sent = message_claim(content), False
        agent, claim, delivery = self._overtake(
            conversation_id, sandbox_id, "overtake", "message", reason=SUPERSEDED, echo=echo
        )
        again_in = RETRY_SECONDS if claim.is_of(delivery) else None

        def send() -> None:
            nonlocal may_be_sent
            may_be_sent = False
            check()
            may_be_sent = True
            agent.send(conversation_id, content, run)

        try:
            if delivery:
                self.courier.catch_up(claim, delivery)
            again_in = None
            self._or_again(agent, claim, send)
        except AgentRefused:
            may_be_sent = False
            raise
        finally:
            self.store.approvals.deliveries.close(claim, again_in=again_in)
            if not may_be_sent:
                self.store.sandboxes.echoes.forget(conversation_id, echo, claim.token)
        self._await(lambda: not self.store.sandboxes.echoes.is_expected(conversation_id, echo, claim.token))

    def _run(self, conversation_id: ConversationId, sandbox_id: str) -> None:
        attempts.refuse_later()
        agent, claim, delivery = self._overtake(conversation_id, sandbox_id, "approve", "run")
        if delivery and claim.is_of(delivery) and delivery.accept:
            self.courier.deliver(claim, delivery)
            return
        try:
            if delivery is None or self.courier.catch_up(
                claim, delivery
            ):  # else an earlier acceptance makes the agent run
                self._or_again(agent, claim, partial(start_run, agent, conversation_id))
        finally:
            self.store.approvals.deliveries.close(claim)

    def _await_status(self, agent: AgentServer, conversation_id: ConversationId) -> None:
        """Wait until the log has the status of a stopped agent. A working agent posts its status later."""
        if not self._shown_seconds:
            return
        with suppress(AgentUnreachable, AgentRefused):
            status = agent.state(conversation_id).get("execution_status")
            if status != "running":
                self._await(lambda: self.store.conversations.get(conversation_id)["execution_status"] == status)

    def _await(self, is_shown: Callable[[], bool]) -> None:
        """Wait until the agent has posted the effect.

        An unavailable store ends the wait, because the command has succeeded.
        """
        deadline, pause = time.monotonic() + self._shown_seconds, _SHOWN_POLL
        with suppress(*UNAVAILABLE, ConversationNotFound):
            while (left := deadline - time.monotonic()) > 0 and not is_shown():
                time.sleep(min(pause, left))
                pause = min(2 * pause, _LONGEST_SHOWN_POLL)

    def _or_again(self, agent: AgentServer, claim: Claim, command: Callable[[], None]) -> None:
        """Send a command. If the agent server has forgotten the conversation, restart it there first."""
        try:
            command()
        except AgentRefused as refusal:
            [sandbox] = self.store.sandboxes.get_many([SandboxId(claim.sandbox_id)])
            spec = self._specs.find(sandbox.spec_id) if sandbox and refusal.status == 404 else None
            if sandbox is None or spec is None:
                raise
            body = restart_request(self.store, claim.conversation_id, sandbox, spec)
            agent.start(body, self.store.sandboxes.limits.sandbox_start_seconds)
            command()

    def _overtake(
        self, conversation_id: ConversationId, sandbox_id: str, verb: str, kind: ActorKind, **decision: Any
    ) -> tuple[AgentServer, Claim, DecisionDelivery | None]:
        """Decide the pending actions if the agent is reachable. Return the outstanding delivery."""
        claim = self.store.approvals.deliveries.open(conversation_id, sandbox_id, self.courier.lease_seconds)
        if claim.status in WAKING and self._wake_seconds:  # other deliveries may proceed meanwhile
            self.store.approvals.deliveries.close(claim)
            wake(self.store, SandboxId(sandbox_id), self._wake_seconds)
            claim = self.store.approvals.deliveries.open(conversation_id, sandbox_id, self.courier.lease_seconds)
        try:
            agent = self.courier.agent(claim)
        except (NotReachable, AgentUnreachable):
            self.store.approvals.deliveries.close(claim)
            raise
        attempts.note_reach()
        _, delivery = self.store.approvals.deliveries.decide(claim, verb, actor=self._actor.by(kind), **decision)
        if delivery is None and not self._actor.may_decide:
            try:
                require_none_waits(agent, conversation_id)
            except BaseException:
                self.store.approvals.deliveries.close(claim)
                if echo := decision.get("echo"):
                    self.store.sandboxes.echoes.forget(conversation_id, echo, claim.token)
                raise
        return agent, claim, delivery


class Courier:
    """Delivers decisions to agents."""

    def __init__(self, store: Store, client: httpx.Client) -> None:
        """client: for the agent servers."""
        self._store = store
        self._client = client
        #: Length of a delivery's lease in seconds: the deadline of a call, and a margin.
        self.lease_seconds = (client.timeout.read or 0) + _LEASE_MARGIN

    def decide(self, conversation_id: ConversationId, sandbox_id: str, verb: str, **decision: Any) -> bool:
        """Decide, and return whether the decision took effect.

        It is delivered unless other actions are still pending.
        """
        claim = self._store.approvals.deliveries.open(conversation_id, sandbox_id, self.lease_seconds)
        attempts.note_reach()
        won, delivery = self._store.approvals.deliveries.decide(claim, verb, **decision)
        if delivery is None or not claim.is_of(delivery):
            self._store.approvals.deliveries.close(claim)
            if not won:
                attempts.refuse_later()  # an earlier attempt may have decided, and its delivery may be settled by now
            return won
        if attempts.is_later():  # an earlier attempt may have delivered: a supervisor asks the agent before it repeats
            self._store.approvals.deliveries.close(claim, again_in=ACCEPTED_SECONDS)
            return won
        if claim.status == "PAUSED":
            self.ask_to_wake(claim)
        self.deliver(claim, delivery)
        return won

    def expire(self, conversation_id: ConversationId, sandbox_id: str) -> None:
        """Reject expired actions.

        A supervisor delivers it, so that a hung agent delays no other conversation's expiry.
        """
        claim = self._store.approvals.deliveries.open(conversation_id, sandbox_id, self.lease_seconds)
        _, delivery = self._store.approvals.deliveries.decide(claim, "expire", actor=SERVER)
        self._store.approvals.deliveries.close(claim, again_in=0 if claim.is_of(delivery) else None)

    def ask_to_wake(self, claim: Claim) -> None:
        """Resume the paused sandbox of a delivery. The next attempt repeats a refused request."""
        with suppress(NotReachable, TooManySandboxes):
            ask_to_wake(self._store, SandboxId(claim.sandbox_id))

    def redeliver(self, claim: Claim, delivery: DecisionDelivery) -> bool:
        """Send a decision again unless the agent has received it. Return whether the delivery is settled.

        An agent that no longer waits has received the decision. So has an agent that waits for a later action, and it
        would apply this decision to that action. Only the agent knows its status: our log may have the last status of
        an agent that was killed before the decision arrived.
        """
        agent = self.agent(claim)
        waits = agent.state(claim.conversation_id).get("execution_status") == "waiting_for_confirmation"
        self._renew(claim)
        if waits and self._is_about(delivery, claim.conversation_id, agent.latest_action(claim.conversation_id)):
            return self._send_decision(claim, delivery)
        self._store.approvals.deliveries.settle(claim.conversation_id, delivery)
        return True

    def _is_about(self, delivery: DecisionDelivery, conversation_id: ConversationId, latest: str | None) -> bool:
        """Return whether a waiting agent, with its latest action, waits for the actions of a delivery.

        It may have ended its latest action by itself. Then our log has that action, no action is open there, and no
        later decision has superseded this one, which is read last.
        """
        if latest is None or latest in delivery.actions:
            return latest is not None
        if self._store.events.unknown(conversation_id, [latest]) or self._store.approvals.confirmations.open_ids(
            conversation_id
        ):
            return False
        outstanding = self._store.approvals.deliveries.get(conversation_id)
        return outstanding is not None and outstanding.id == delivery.id

    def deliver(self, claim: Claim, delivery: DecisionDelivery) -> None:
        """Send the agent the decision just made. After any failure the delivery is due again."""
        again_in: float | None = RETRY_SECONDS
        with suppress(NotReachable, AgentUnreachable, AgentRefused, *UNAVAILABLE):
            self._await_lease(claim)
            again_in = None if self._send_decision(claim, delivery) else ACCEPTED_SECONDS
        with suppress(*UNAVAILABLE):  # it is due when its lease expires
            self._store.approvals.deliveries.close(claim, again_in=again_in)

    def catch_up(self, claim: Claim, delivery: DecisionDelivery) -> bool:
        """Send the agent the outstanding decision before another command. Return whether the delivery is settled."""
        if claim.is_of(delivery):
            self._await_lease(claim)
            return self._send_decision(claim, delivery)
        if not claim.has_lease:
            self._await_lease(claim)
            known = self._store.approvals.deliveries.get(claim.conversation_id)
            if known is None:
                return True
            delivery = known
        return self.redeliver(claim, delivery)

    def _send_decision(self, claim: Claim, delivery: DecisionDelivery) -> bool:
        """Send the agent a decision. Return whether the delivery is settled.

        An agent server reports shortly before the end of its run that it waits, and drops an acceptance that arrives in
        between. So an acceptance stays due until the agent has left `waiting_for_confirmation`.
        """
        if time.monotonic() - claim.asked_at > _LEASE_MARGIN:  # this process was suspended, or the agent was slow
            self._renew(claim)
        self.agent(claim).decide(claim.conversation_id, delivery.accept, delivery.reason, delivery.decisions)
        if not delivery.accept:
            self._store.approvals.deliveries.settle(claim.conversation_id, delivery)
        return not delivery.accept

    def agent(self, claim: Claim) -> AgentServer:
        """Return the agent server of a delivery. Raises NotReachable, AgentUnreachable."""
        if claim.status == "RUNNING":
            return agent_server(
                self._client, claim.agent_url, partial(self._store.approvals.deliveries.session_api_key, claim)
            )
        return woken_agent(self._store, self._client, SandboxId(claim.sandbox_id))

    def _renew(self, claim: Claim) -> None:
        """Renew the lease.

        Raises AgentUnreachable if it has expired, because another driver may have sent the decision.
        """
        if not self._store.approvals.deliveries.renew(claim):
            raise AgentUnreachable("The lease of the delivery ended before the agent server was called")

    def _await_lease(self, claim: Claim) -> None:
        """Wait at most _LEASE_TIMEOUT for the agent's other delivery. Raises NotReachable, AgentUnreachable."""
        self.agent(claim)
        deadline = time.monotonic() + _LEASE_TIMEOUT
        while not claim.has_lease:
            if time.monotonic() > deadline:
                raise AgentUnreachable("The agent server has not responded to an earlier decision yet")
            time.sleep(_LEASE_POLL)
            claim = self._store.approvals.deliveries.reopen(claim)


def relabel(
    commands: Commands, conversation_id: ConversationId, app: Mapping[str, Any] | None = None, **labels: Any
) -> None:
    """Set title, tags or confirmation_seconds of a conversation, or members of app conversations.

    Its agent gets the labels. The change is stored even if the agent cannot be reached. Raises ConversationNotFound;
    with `app` also for a detached conversation.
    """
    store = commands.store
    if app is None:
        is_due = store.conversations.update(conversation_id, **labels)
    else:
        is_due = store.conversations.in_sandboxes.update(conversation_id, app=app, **labels)
    if is_due:
        with suppress(ConversationNotFound, NotReachable, AgentUnreachable):
            state = store.conversations.get(conversation_id)
            tell(store, commands.agent_in(SandboxId(state["sandbox_id"])), state)


def tell(store: Store, agent: AgentServer, state: Mapping[str, Any]) -> None:
    """Send an agent its pending title and tags. They stay pending if it refuses them. Raises AgentUnreachable."""
    if (due := state.get("labels_due")) is None:
        return
    identity = ConversationId(state["id"])
    title = (state["title"] or "").strip()
    try:
        agent.label(identity, {"tags": state["tags"]} | ({"title": title} if title else {}))
    except AgentRefused as refusal:
        log.warning("conversation %s: its agent refuses its title and tags: %s", identity, refusal)
    else:
        store.conversations.settle_labels(identity, due)
