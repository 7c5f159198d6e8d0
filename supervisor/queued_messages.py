"""Delivers queued messages to conversations: in order, once each, as soon as the conversation can receive them.

A driver records that it is about to send a message. After a kill, the next driver therefore looks for the message in
the agent's own log, and only sends it if the log lacks it. A suspended driver checks its lease directly before sending,
and sends nothing if another driver has the lease. A message that the agent refuses, or that cannot be delivered for ten
minutes, leaves an event in the conversation, and the next message follows. If every attempt ends in an
unforeseen error, the message is given up after half a minute.

Limitation: a message is sent twice in two cases. Its driver is suspended, between checking the lease and sending, for
longer than the lease. Or the agent server reads the request only after the next driver has read the log.
"""

import logging
from contextlib import suppress
from functools import partial
from uuid import uuid4

from agents.client import AgentRefused, AgentServer, AgentUnreachable
from agents.commands import RETRY_SECONDS, Commands
from agents.waking import WAKING, NotReachable, ask_to_wake
from core import wire
from core.cuts import beginning
from store import Store
from store.approvals.audit import DecisionActor
from store.approvals.effects import message_claim
from store.conversations.queued_messages import LEASE, QueuedMessage
from store.errors import UNAVAILABLE, ConversationNotFound, NeedsApproval, TooManySandboxes
from store.sandboxes.sandboxes import SandboxId
from supervisor.deliveries import UNFORESEEN, tell
from supervisor.presence import LeaseLost, in_thread, renewed

log = logging.getLogger("supervisor")

#: Time of attempts after which a message is given up, in seconds. The clock stops while no supervisor tries, the
#: sandbox resumes, its host is lost, or an action is pending.
GIVEN_UP = 600.0

#: Retry delay in seconds for a message to a sandbox that is resuming.
_WAKING_SECONDS = 1.0

#: Statuses of an agent that is inactive and was not paused by a person.
WAITS_TO_BE_TOLD = ("idle", "finished", "error", "stuck")

#: Maximum number of queues that a supervisor drives at once, and maximum number of these for one sandbox. One slow
#: agent must not take all of them.
MOST_QUEUES, MOST_OF_ONE = 64, 16

#: Events per page of an agent's log, and maximum number of pages that are read for a message.
_PAGE, _MOST_PAGES = 100, 100

#: Maximum number of characters of a message in the event about its failure.
_SHOWN = 1000


class Overtaken(Exception):
    """Raised if this server's own message has lost its purpose: the agent works, was paused, or has a newer message."""


class MessageDriver:
    """Drives queues. Its threads end with the process; their queues are due when the lease expires."""

    def __init__(self, store: Store, commands: Commands) -> None:
        self._store = store
        self._commands = commands
        self._driven: dict[str, str] = {}  #: conversations with a driven queue → their sandboxes

    def drive_due(self) -> None:
        """Give each due queue to a thread, at most MOST_QUEUES at once.

        A queue may be due although its thread still runs, because the lease has expired. Start no second thread: the
        first may be sending. The queue is due again when the new lease expires. Postpone queues of a sandbox that
        already has MOST_OF_ONE threads.
        """
        while len(self._driven) < MOST_QUEUES and (queued := self._store.conversations.queued_messages.claim()):
            if queued.conversation_id in self._driven:
                continue
            sandbox_id = self._sandbox_of(queued)
            if sandbox_id and list(self._driven.values()).count(sandbox_id) >= MOST_OF_ONE:
                self._store.conversations.queued_messages.postpone(queued, _WAKING_SECONDS, untried=True)
                continue
            self._driven[queued.conversation_id] = sandbox_id
            in_thread(self._drive, queued, name="queue", undo=partial(self._driven.pop, queued.conversation_id))

    def _sandbox_of(self, queued: QueuedMessage) -> str:
        """Return the sandbox of a message's conversation; empty if the conversation is gone."""
        with suppress(ConversationNotFound):
            return self._store.conversations.sandbox_of(queued.conversation_id) or ""
        return ""

    def _drive(self, queued: QueuedMessage) -> None:
        try:
            deliver(self._store, self._commands, queued)
        except UNAVAILABLE as error:
            log.warning("the store does not answer: %s", error)
        finally:
            self._driven.pop(queued.conversation_id, None)


def deliver(store: Store, commands: Commands, queued: QueuedMessage) -> None:
    """Try to deliver the first message of a queue. After a failure it is due again, or given up."""
    again_in, hopeless, waits, most = RETRY_SECONDS, False, False, GIVEN_UP
    if queued.fault:
        _give_up(store, queued, queued.fault)
        return
    try:
        with renewed(lambda: store.conversations.queued_messages.renew(queued), LEASE):
            _send(store, commands, queued)
        store.conversations.queued_messages.settle(queued)
        return
    except LeaseLost:
        return
    except Overtaken:
        store.conversations.queued_messages.settle(queued)
        return
    except ConversationNotFound:
        store.conversations.queued_messages.drop(queued.conversation_id)
        return
    except NeedsApproval as error:  # the message waits until a person has decided the pending actions
        waits, reason = True, str(error)
    except NotReachable as error:
        hopeless, waits, reason = error.is_gone, error.is_awaited, str(error)
        if error.status in WAKING:
            again_in = _WAKING_SECONDS
            _wake(store, queued)
    except AgentRefused as error:
        hopeless, reason = error.status < 500 and error.status not in (409, 429), str(error)
    except AgentUnreachable as error:
        reason = str(error)
    except UNAVAILABLE:
        raise
    except Exception as error:  # a bug of ours must not be retried forever
        log.exception("a message to conversation %s failed", queued.conversation_id)
        most, reason = UNFORESEEN, f"unforeseen {type(error).__name__}"
    if hopeless or (not waits and queued.tried_for > most):
        _give_up(store, queued, reason)
    else:
        store.conversations.queued_messages.postpone(queued, again_in, waits=waits)


def _send(store: Store, commands: Commands, queued: QueuedMessage) -> None:
    """Send a message unless its agent has it. Raises LeaseLost and the errors of `Commands.send_to_agent`."""
    sandbox_id = store.conversations.sandbox_of(queued.conversation_id)
    if sandbox_id is None:
        raise ConversationNotFound
    _require_purpose(store, queued)
    agent = commands.agent_in(SandboxId(sandbox_id))
    if queued.was_sent and _has_received(agent, queued):
        return
    if not store.conversations.queued_messages.note_sent(queued, _last_event(agent, queued.conversation_id)):
        raise LeaseLost

    def check() -> None:
        """Check the lease: another driver may have sent the message while this process was suspended."""
        if not store.conversations.queued_messages.renew(queued):
            raise LeaseLost
        _require_purpose(store, queued)

    sender = commands.of(DecisionActor("message", queued.sender, may_decide=queued.may_decide))
    sender.send_to_agent(queued.conversation_id, content=queued.content, run=True, check=check)


def _require_purpose(store: Store, queued: QueuedMessage) -> None:
    """Raise Overtaken if this server's own message is no longer wanted."""
    if queued.only_after is None:
        return
    status = store.conversations.get(queued.conversation_id)["execution_status"]
    if status not in WAITS_TO_BE_TOLD or last_message(store, queued.conversation_id)[0] != queued.only_after:
        raise Overtaken


def last_message(store: Store, conversation_id: wire.ConversationId) -> tuple[str, wire.Micros | None]:
    """Return the id and the time of the last message to a conversation's agent; "" and None if there is none.

    A message that a client sent to the agent server directly has the source `environment`. Cost: two round trips.
    """
    messages: list[wire.ReceivedEvent] = []
    for source in ("user", "environment"):
        found, _ = store.events.search(conversation_id, kind="MessageEvent", source=source, descending=True, limit=1)
        messages += map(wire.read_event, found)
    last = max(messages, key=lambda one: one.at, default=None)
    return (last.id, last.at) if last else ("", None)


def _last_event(agent: AgentServer, conversation_id: wire.ConversationId) -> str:
    """Return the id of the last event in the agent's own log; "" if the log is empty or the agent does not know it."""
    try:
        events, _ = agent.events(conversation_id, limit=1, newest_first=True)
    except AgentRefused as refusal:
        if refusal.status != 404:
            raise
        return ""
    return events[0].id if events else ""


def _has_received(agent: AgentServer, queued: QueuedMessage) -> bool:
    """Return whether the agent's own log has the message after `queued.after`.

    After 10,000 newer events the message counts as received, because sending it twice would be worse.
    """
    page_id, wanted = None, message_claim(queued.content)
    for _ in range(_MOST_PAGES):
        try:
            events, page_id = agent.events(queued.conversation_id, limit=_PAGE, newest_first=True, page_id=page_id)
        except AgentRefused as refusal:
            if refusal.status != 404:
                raise
            return False
        for event in events:
            if event.id == queued.after:
                return False
            message = event.fields.get("llm_message")
            if event.source == "user" and isinstance(message, dict) and message_claim(message.get("content")) == wanted:
                return True
        if page_id is None:
            return False
    return True


def _wake(store: Store, queued: QueuedMessage) -> None:
    """Resume a conversation's sandbox if it is paused. If that is refused, the next attempt asks again."""
    sandbox_id = store.conversations.sandbox_of(queued.conversation_id)
    if sandbox_id is not None:
        try:
            ask_to_wake(store, SandboxId(sandbox_id))
        except (NotReachable, TooManySandboxes) as error:
            log.info("a message waits for sandbox %s: %s", sandbox_id, error)


def _give_up(store: Store, queued: QueuedMessage, reason: str) -> None:
    """Append an event which says that the agent did not receive the message. Remove the message from its queue."""
    text = "\n".join(str(part["text"]) for part in queued.content if isinstance(part.get("text"), str))
    detail = f"A message was queued, but its agent did not receive it: {reason}\nThe message: {beginning(text, _SHOWN)}"
    log.warning("conversation %s: a queued message was not delivered: %s", queued.conversation_id, reason)
    with suppress(ConversationNotFound):
        sandbox_id = store.conversations.sandbox_of(queued.conversation_id)
        identity = queued.id or str(uuid4())  # an unreadable record may lack its id
        tell(store, queued.conversation_id, sandbox_id, identity, "MessageNotDelivered", detail)
    store.conversations.queued_messages.settle(queued)
