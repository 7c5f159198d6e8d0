"""Deliveries: decisions of people that the agent of a sandbox may not have received yet.

A worker opens a delivery (an entry of the due index, and the lease of the agent), decides in the conversation's slot,
calls the agent, and closes. Each step stores what the next one needs. If the worker is killed, the delivery is due when
its lease ends, and a supervisor claims it, calls the agent, and closes. An entry without a decision is deleted when it
is claimed. No decision is made after the lease of its entry has ended.

An agent (the agent server of a sandbox) receives one delivery at a time: its lease is a key that expires. All times are
those of Redis' clock.
"""

import json
import logging
import time
from typing import NamedTuple
from uuid import uuid4

from redis.exceptions import TimeoutError

from core import wire
from core.wire import ConversationId, Micros
from settings.limits import ConversationLimits, SandboxLimits
from store.approvals.audit import DecisionActor
from store.approvals.decisions import ReadQuorum, StaleDecision, check_reason, decide_pending
from store.errors import UNREADABLE, ConversationNotFound, NeedsApproval, ReasonTooLong, RightsChanged
from store.keys import ConversationKeys, SandboxKeys
from store.link.attempts import Stamp
from store.link.secrets import Sealer
from store.projections import Projections
from store.sandboxes.sandboxes import CHECK_SPAN
from store.scripts import Scripts
from telemetry import traces

_log = logging.getLogger(__name__)

#: Seconds before the end of a lease after which nothing is decided: the nodes of a cluster have their own clocks.
_MARGIN = 3.0


class DecisionDelivery(NamedTuple):
    """A decision that must reach the agent. id: of the request that decided. actions: ids of the decided actions."""

    id: str
    accept: bool
    reason: str
    actions: list[str]
    decisions: list[dict[str, object]]  #: for an agent that takes single decisions; empty: all alike
    trace: str  #: W3C traceparent of the batch that proposed the actions; empty: not traced


class Claim(NamedTuple):
    """One delivery attempt, and its sandbox at the beginning of the attempt."""

    delivery_id: str
    conversation_id: ConversationId
    sandbox_id: str
    token: str
    seconds: float  #: length of the lease
    has_lease: bool  #: False: another delivery has the lease of the agent
    lease_end: Micros
    status: str
    agent_url: str
    agent_key: str  #: sealed
    asked_at: float  #: `time.monotonic` before the request for the lease
    tried_for: float = 0.0  #: seconds for which a supervisor failed while the sandbox had this status

    @property
    def entry(self) -> str:
        """Return its member of the due index."""
        return f"{self.delivery_id} {self.conversation_id} {self.sandbox_id}"

    def is_of(self, delivery: DecisionDelivery | None) -> bool:
        """Return whether this claim was opened for this delivery. The outstanding delivery may be an earlier one."""
        return delivery is not None and delivery.id == self.delivery_id


class Deliveries:
    def __init__(
        self,
        scripts: Scripts,
        projections: Projections,
        bounds: ConversationLimits,
        limits: SandboxLimits,
        sealer: Sealer,
        quorum: ReadQuorum,
    ) -> None:
        """quorum: reads which actions several people must approve."""
        self._quorum = quorum
        self._scripts = scripts
        self._projections = projections
        self._sealer = sealer
        self._bounds = bounds
        self._spans = limits.spans

    def session_api_key(self, claim: Claim) -> str:
        """Return the key of a claim's agent server. Raises KeyUnreadable."""
        return self._sealer.open_key(claim.sandbox_id, claim.agent_key)

    def open(self, conversation_id: ConversationId, sandbox_id: str, seconds: float) -> Claim:
        """Begin a delivery before its decision, with a lease in seconds unless another delivery has it."""
        identity = (Stamp.now().id_prefix, conversation_id, sandbox_id, uuid4().hex)
        return self.reopen(Claim(*identity, seconds, False, Micros(0), "", "", "", 0))

    def reopen(self, claim: Claim) -> Claim:
        """Try again to take the lease that another delivery had."""
        host_span, start_span = self._spans
        asked_at = time.monotonic()
        reply = self._scripts.open_delivery(
            SandboxKeys.root,
            entry=claim.entry,
            token=claim.token,
            lease=round(claim.seconds * 1000),
            host_span=host_span,
            start_span=start_span,
            check_span=CHECK_SPAN,
        )
        return claim._replace(
            has_lease=reply.taken,
            asked_at=asked_at,
            lease_end=reply.lease_end,
            status=reply.status,
            agent_url=reply.url,
            agent_key=reply.key,
        )

    def decide(
        self,
        claim: Claim,
        verb: str,
        *,
        actor: DecisionActor,
        reason: str = "",
        decisions: str = "",
        echo: str = "",
    ) -> tuple[bool, DecisionDelivery | None]:
        """Decide pending actions, with the verbs of `decide_pending.lua`.

        Nothing is listed: the agent reports the results. decisions: of single actions, from `encode_decisions`. echo:
        expected claim of the agent after it (`effects.py`), even if nothing was pending, until `Echoes.forget` with the
        token of this claim.

        Returns whether this decision took effect, and the outstanding delivery: `claim.is_of` it if this call decided
        all. Raises ReasonTooLong, ConversationNotFound, NeedsApproval if the actor may not decide, StaleDecision,
        RightsChanged, and TimeoutError if the lease has ended. After an error nothing was decided, and the claim is
        closed.
        """
        try:
            check_reason(reason, self._bounds.max_reason_bytes)
        except ReasonTooLong:
            self.close(claim)
            raise
        stamp = Stamp(wire.now(), claim.delivery_id)
        latest = claim.lease_end - round(_MARGIN * 1e6)
        try:
            reply = decide_pending(
                self._scripts,
                claim.conversation_id,
                stamp,
                verb,
                actor,
                reason=reason,
                decisions=decisions,
                sandbox_id=claim.sandbox_id,
                latest=latest,
                echo=echo and f"{echo} {claim.token}",
                quorum=self._quorum,
            )
        except (RightsChanged, ConversationNotFound):
            self.close(claim)
            raise
        if reply is None:
            self.close(claim)
            raise ConversationNotFound
        if reply.outcome in ("late", "forbidden", "stale"):
            self.close(claim)
            if reply.outcome == "stale":
                raise StaleDecision(json.loads(reply.problems))
            late = TimeoutError("The lease ended before the decision")
            raise NeedsApproval if reply.outcome == "forbidden" else late
        traces.note_decided(claim.conversation_id, reply.decided)
        if reply.state.approvals:
            self._projections.refresh(claim.conversation_id)
        return reply.outcome in ("won", "agreed"), _delivery(*reply.delivery[0]) if reply.delivery else None

    def get(self, conversation_id: ConversationId) -> DecisionDelivery | None:
        """Return the decision that a conversation's agent may not have received."""
        reply = self._scripts.read_delivery(ConversationKeys(conversation_id).root)
        return _delivery(*reply) if reply else None

    def claim(self, seconds: float) -> Claim | None:
        """Claim the delivery that has been due for longest, among those whose agent has no other delivery."""
        host_span, start_span = self._spans
        while True:
            token = uuid4().hex
            asked_at = time.monotonic()
            reply = self._scripts.claim_delivery(
                SandboxKeys.root, token=token, lease=round(seconds * 1000), host_span=host_span, start_span=start_span
            )
            if reply is None:
                return None
            try:
                delivery_id, conversation_id, sandbox_id = reply.entry.decode().split(" ")
            except UNREADABLE as error:
                _log.error("an entry of the deliveries cannot be read, and is given up: %r: %r", reply.entry, error)
                self._scripts.close_delivery(SandboxKeys.root, entry=reply.entry, token=token)
                continue
            return Claim(
                delivery_id,
                ConversationId(conversation_id),
                sandbox_id,
                token,
                seconds,
                has_lease=True,
                lease_end=reply.lease_end,
                status=reply.status,
                agent_url=reply.url,
                agent_key=reply.key,
                asked_at=asked_at,
                tried_for=reply.tried / 1e6,
            )

    def renew(self, claim: Claim) -> bool:
        """Renew the lease; False if it has ended."""
        return self._scripts.renew_delivery(
            SandboxKeys.root, entry=claim.entry, token=claim.token, lease=round(claim.seconds * 1000)
        )

    def settle(self, conversation_id: ConversationId, delivery: DecisionDelivery | Claim) -> None:
        """Delete a decision that the agent has received or never will. A claim stands for a corrupt record."""
        identity = delivery.delivery_id if isinstance(delivery, Claim) else delivery.id
        self._scripts.settle_delivery(ConversationKeys(conversation_id).root, id=identity)

    def close(self, claim: Claim, *, again_in: float | None = None) -> None:
        """End an attempt. again_in: seconds until the delivery is due again; None: never."""
        again = None if again_in is None else round(again_in * 1000)
        self._scripts.close_delivery(SandboxKeys.root, entry=claim.entry, token=claim.token, again=again)


def _delivery(identity: str, verb: str, reason: str, actions: str, each: str, trace: str) -> DecisionDelivery:
    decisions = json.loads(each or "[]")
    return DecisionDelivery(identity, verb == "accept", json.loads(reason), json.loads(actions), decisions, trace)
