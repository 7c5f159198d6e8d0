"""Retries due deliveries until the agent has received the decision or the delivery is given up.

The driver uses one thread per agent, so a hung agent delays no other agent. A delivery that is given up leaves an event
in its conversation.
"""

import logging
from functools import partial

from agents.client import AgentRefused, AgentUnreachable
from agents.commands import ACCEPTED_SECONDS, RETRY_SECONDS, Commands
from agents.waking import NotReachable
from core import wire
from core.wire import ConversationId, own_event
from store import Store
from store.approvals.deliveries import Claim, DecisionDelivery
from store.errors import UNAVAILABLE, UNREADABLE, ConversationNotFound, NotItsSandbox
from supervisor.presence import in_thread
from telemetry import traces

log = logging.getLogger("supervisor")

#: Time of retries in seconds after which a delivery is given up: to a running agent that does not receive it, and to a
#: sandbox in ERROR that nobody has resumed. Time without retries, or with a lost host, does not count.
GIVEN_UP = 600.0

#: Time of retries in seconds if each failed with a bug of ours: later deliveries must not wait until it is fixed.
UNFORESEEN = 30.0

#: Maximum number of agents that a supervisor delivers to at once.
MOST_AGENTS = 64


class DeliveryDriver:
    """Drives deliveries. Its threads end with the process; their deliveries are due when the lease expires."""

    def __init__(self, store: Store, commands: Commands) -> None:
        self._store = store
        self._commands = commands
        self._driven: set[str] = set()  #: sandboxes with a delivery in a thread

    def drive_due(self) -> None:
        """Give each due delivery to a thread, at most MOST_AGENTS at once.

        If a lease expires while a thread still delivers, as after a clock step, that agent gets no second delivery.
        """
        while len(self._driven) < MOST_AGENTS and (
            claim := self._store.approvals.deliveries.claim(self._commands.courier.lease_seconds)
        ):
            if claim.sandbox_id in self._driven:
                self._store.approvals.deliveries.close(claim, again_in=RETRY_SECONDS)
                continue
            self._driven.add(claim.sandbox_id)
            in_thread(self._drive, claim, name="delivery", undo=partial(self._driven.discard, claim.sandbox_id))

    def _drive(self, claim: Claim) -> None:
        try:
            deliver(self._store, self._commands, claim)
        except UNAVAILABLE as error:
            log.warning("the store does not answer: %s", error)
        finally:
            self._driven.discard(claim.sandbox_id)


def deliver(store: Store, commands: Commands, claim: Claim) -> None:
    """Try a delivery. After a failure it is due again, or given up."""
    try:
        delivery = store.approvals.deliveries.get(claim.conversation_id)
    except UNREADABLE as error:
        log.exception("the decision about conversation %s cannot be read", claim.conversation_id)
        _give_up(store, claim, None, f"its record cannot be read: {type(error).__name__}")
        return
    if delivery is None or not claim.is_of(delivery):  # settled, superseded by a newer decision, or never decided
        store.approvals.deliveries.close(claim)
        return
    with traces.continued(delivery.trace, "delivery", {"gen_ai.conversation.id": claim.conversation_id}):
        _try(store, commands, claim, delivery)


def _try(store: Store, commands: Commands, claim: Claim, delivery: DecisionDelivery) -> None:
    again_in, hopeless, waits, most = RETRY_SECONDS, False, False, GIVEN_UP
    try:
        if commands.courier.redeliver(claim, delivery):
            store.approvals.deliveries.close(claim)
            return
        again_in, reason = ACCEPTED_SECONDS, "it is still waiting"
    except NotReachable as error:
        hopeless, waits, reason = error.is_gone, error.is_awaited, str(error)
        traces.fail(type(error).__name__)
        if error.status == "PAUSED":
            commands.courier.ask_to_wake(claim)
    except AgentRefused as error:
        hopeless, reason = error.status < 500, str(error)
        traces.fail(str(error.status))
    except AgentUnreachable as error:
        reason = str(error)
        traces.fail(type(error).__name__)
    except UNAVAILABLE:
        raise
    except Exception as error:  # a bug of ours must not be retried forever
        log.exception("a delivery to conversation %s failed", claim.conversation_id)
        most, reason = UNFORESEEN, f"unforeseen {type(error).__name__}"
        traces.fail(type(error).__name__)
    if hopeless or (not waits and claim.tried_for > most):
        _give_up(store, claim, delivery, reason)
    else:
        store.approvals.deliveries.close(claim, again_in=again_in)


def _give_up(store: Store, claim: Claim, delivery: DecisionDelivery | None, reason: str) -> None:
    """Append an event that the agent never received the decision, and settle the delivery.

    delivery: None if its record cannot be read.
    """
    verb = "decided" if delivery is None else "accepted" if delivery.accept else "rejected"
    identity = f"{claim.delivery_id}{0:012x}"  # a repeat appends nothing; scripts number their events from 1
    code = "AnswerNotDelivered"  # clients know this name. Source: docs/wire.md, 11
    detail = f"The pending action was {verb}, but its agent did not receive the decision: {reason}"
    log.warning("conversation %s: %s", claim.conversation_id, detail)
    tell(store, claim.conversation_id, claim.sandbox_id, identity, code, detail)
    store.approvals.deliveries.settle(claim.conversation_id, delivery or claim)
    store.approvals.deliveries.close(claim)


def tell(
    store: Store, conversation_id: ConversationId, sandbox_id: str | None, identity: str, code: str, detail: str
) -> None:
    """Append an event about something that was given up, once per identity. Raises one of UNAVAILABLE.

    If the conversation's log is full, or a bug prevents the event, only the supervisor's log reports it, because the
    entry must leave its queue.
    """
    try:
        event = own_event(identity, "ConversationErrorEvent", wire.now(), code=code, detail=detail)
        store.events.append(conversation_id, [event], sandbox_id=sandbox_id, made_here=True)
    except (ConversationNotFound, NotItsSandbox):
        pass
    except UNAVAILABLE:
        raise
    except Exception:
        log.exception("conversation %s: its log refuses the event of this: %s", conversation_id, detail)
