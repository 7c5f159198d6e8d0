"""Retries deliveries that are due, until the agent has received the decision or the delivery is given up.

The driver sends to many agents at once, one thread each: a hung agent takes one thread and delays no other agent.
A delivery that is given up leaves an event in its conversation.
"""

import logging
import threading

import wire
from agents.commands import Commands
from agents.courier import ACCEPTED_SECONDS, RETRY_SECONDS
from agents.link import AgentRefused, AgentUnreachable
from agents.reach import WAKING, NotReachable
from store import Store
from store.approvals.deliveries import Claim, Delivery
from store.errors import UNAVAILABLE, ConversationNotFound, NotItsSandbox
from store.link import traces
from wire import own_event

log = logging.getLogger("supervisor")

#: seconds after which a delivery is given up: to an agent that runs, but does not receive it, and to a sandbox that is
#: ERROR or MISSING, and that nobody has resumed
GIVEN_UP = 600.0

#: agents that one supervisor delivers to at once
MOST_AGENTS = 64


class DeliveryDriver:
    """Drives deliveries. Its threads end with the process: a delivery that they leave is due when its lease ends."""

    def __init__(self, store: Store, commands: Commands) -> None:
        self._store = store
        self._commands = commands
        self._driven: set[str] = set()  #: tokens of the leases that a thread has

    def drive_due(self) -> None:
        """Give each due delivery to a thread, at most MOST_AGENTS at once."""
        while len(self._driven) < MOST_AGENTS and (
            claim := self._store.deliveries.claim(self._commands.courier.lease_seconds)
        ):
            self._driven.add(claim.token)
            threading.Thread(target=self._drive, args=(claim,), name="delivery", daemon=True).start()

    def _drive(self, claim: Claim) -> None:
        try:
            deliver(self._store, self._commands, claim)
        except UNAVAILABLE as error:
            log.warning("the store does not answer: %s", error)
        finally:
            self._driven.discard(claim.token)


def deliver(store: Store, commands: Commands, claim: Claim) -> None:
    """Try one delivery. After a failure it is due again, or given up."""
    delivery = store.deliveries.get(claim.conversation_id)
    if delivery is None or not claim.is_of(delivery):  # settled, overtaken by a newer one, or never decided
        store.deliveries.close(claim)
        return
    with traces.continued(delivery.trace, "delivery", {"gen_ai.conversation.id": claim.conversation_id}):
        _try(store, commands, claim, delivery)


def _try(store: Store, commands: Commands, claim: Claim, delivery: Delivery) -> None:
    again_in, hopeless, waits = RETRY_SECONDS, False, False
    try:
        if commands.courier.redeliver(claim, delivery):
            store.deliveries.close(claim)
            return
        again_in, reason = ACCEPTED_SECONDS, "it goes on to wait"
    except NotReachable as error:
        hopeless, waits, reason = error.is_gone, error.status in WAKING, str(error)
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
    except Exception as error:  # a fault of ours must not be retried without end
        log.exception("a delivery to conversation %s failed", claim.conversation_id)
        reason = f"unforeseen {type(error).__name__}"
        traces.fail(type(error).__name__)
    if hopeless or (not waits and min(delivery.age, claim.status_seconds) > GIVEN_UP):
        _give_up(store, claim, delivery, reason)
    else:
        store.deliveries.close(claim, again_in=again_in)


def _give_up(store: Store, claim: Claim, delivery: Delivery, reason: str) -> None:
    """Append an event that says that the agent never received the decision, and settle the delivery."""
    verb = "accepted" if delivery.accept else "rejected"
    identity = f"{delivery.id}{0:012x}"  # a repeat appends nothing; scripts number their events from 1
    code = "AnswerNotDelivered"  # clients know it by this name. Source: docs/wire.md, 11
    detail = f"The pending action was {verb}, but its agent did not receive the decision: {reason}"
    log.warning("conversation %s: %s", claim.conversation_id, detail)
    try:
        event = own_event(identity, "ConversationErrorEvent", wire.now(), code=code, detail=detail)
        store.events.append(claim.conversation_id, [event], sandbox_id=claim.sandbox_id, made_here=True)
    except (ConversationNotFound, NotItsSandbox):
        pass
    store.deliveries.settle(claim.conversation_id, delivery)
    store.deliveries.close(claim)
