"""Messages that wait until their conversation can receive them: during its start, and while its sandbox resumes.

A supervisor delivers them in order, once each. A driver has the lease of a queue. It records a message as `sent` before
an agent receives it, so that the next driver looks for it at the agent instead of sending it twice. The queue is
dropped if the start fails or the conversation is deleted.
"""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from core.refused import RefusalKind
from core.wire import ConversationId
from store.approvals.audit import DecisionActor
from store.conversations.conversations import Conversations
from store.errors import UNREADABLE, ConversationNotFound, StartTaskNotFound, StoreError
from store.keys import StartKeys
from store.link.attempts import minted
from store.record import HashRecord, pairs
from store.sandboxes.start_tasks import FINISHED, StartTask, StartTasks, in_micros
from store.scripts import Scripts
from store.scripts.calls import QueueMessage

#: Maximum number of messages of a queue. Source: the app-server wire.
MOST_QUEUED = 10

#: Seconds after which another driver may take a queue, and between two polls of an unfinished start task.
LEASE, _POLL = 5.0, 0.2

#: Seconds for which a repeated request is recognised.
_KEPT = 60


class NobodyReceives(StoreError):
    """The start task failed, so no conversation will receive the message."""

    kind = RefusalKind.CONFLICT

    def __init__(self, detail: str) -> None:
        super().__init__(f"The start of the conversation has failed: {detail or 'no reason known'}")


class TooManyQueued(StoreError):
    """The queue of messages for the conversation is full."""

    kind = RefusalKind.FULL

    def __init__(self, number: int) -> None:
        super().__init__(
            f"Limit of {MOST_QUEUED} queued messages reached ({number} wait for this conversation): try again later"
        )


class QueuedMessage(NamedTuple):
    """The first message of a queue, for the driver that has the queue's lease."""

    id: str
    conversation_id: ConversationId
    content: list[dict[str, object]]
    sender: str  #: name of the sender's key
    may_decide: bool  #: the sender may decide pending actions on delivery
    tried_for: float  #: seconds of failed delivery attempts
    was_sent: bool  #: an agent may have received it
    after: str  #: last event of the agent's log before it was sent; empty: none
    lease: str
    only_after: str | None = None  #: required last user message; "": none; None: any
    fault: str = ""  #: why its record is corrupt, so that it must be dropped; empty: it is not


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(HashRecord):
    """The state of a conversation's queue."""

    key = f"{StartKeys.root}:queued:ID"
    start_id: str = ""  #: the start task, until it is READY
    lease: str = ""
    tried: str = ""  #: attempts for the first message, see `store/scripts/_tried.lua`; missing: it only waits
    sent: str = ""  #: id of the first message, once an agent may have it
    after: str = ""  #: last event of the agent's log before that


class QueuedMessages:
    def __init__(self, scripts: Scripts, start_tasks: StartTasks, conversations: Conversations) -> None:
        self._scripts = scripts
        self._start_tasks = start_tasks
        self._conversations = conversations

    def put(
        self, conversation_id: ConversationId, *, content: list[dict[str, object]], actor: DecisionActor
    ) -> tuple[UUID, int]:
        """Queue a message for a conversation in a sandbox, or for one that is starting.

        Returns its id and its position. Raises ConversationNotFound, NobodyReceives, TooManyQueued.
        """
        try:
            is_app = self._conversations.sandbox_of(conversation_id) is not None
        except ConversationNotFound:
            found, _ = self._start_tasks.search(by="created", descending=True, limit=1, conversation_id=conversation_id)
            if not found:
                raise
            return self._put_for_start(found[0], content, actor)
        if not is_app:
            raise ConversationNotFound
        return self._put(conversation_id, "", content, actor)

    def put_own(
        self, conversation_id: ConversationId, identity: UUID, text: str, actor: DecisionActor, *, only_after: str
    ) -> None:
        """Queue a message of this server for a conversation in a sandbox, once per identity.

        only_after: id of the last user message; the message is dropped if another one has arrived since. Raises
        TooManyQueued.
        """
        content: list[dict[str, object]] = [{"type": "text", "text": text}]
        self._put(conversation_id, "", content, actor, identity=identity, only_after=only_after)

    def put_for_start(
        self, start_id: str, *, content: list[dict[str, object]], actor: DecisionActor
    ) -> tuple[UUID, int]:
        """Queue a message for the conversation of a start task. Returns its id and its position.

        Raises StartTaskNotFound, NobodyReceives, TooManyQueued.
        """
        [start] = self._start_tasks.get_many([start_id])
        if start is None:
            raise StartTaskNotFound
        return self._put_for_start(start, content, actor)

    def _put_for_start(
        self, start: StartTask, content: list[dict[str, object]], actor: DecisionActor
    ) -> tuple[UUID, int]:
        if start.status == "ERROR":
            raise NobodyReceives(start.detail)
        return self._put(start.conversation_id, "" if start.status in FINISHED else start.id, content, actor)

    def _put(
        self,
        conversation_id: ConversationId,
        start_id: str,
        content: list[dict[str, object]],
        actor: DecisionActor,
        *,
        identity: UUID | None = None,
        only_after: str | None = None,
    ) -> tuple[UUID, int]:
        identity = identity or minted("message")
        kept = {"content": content, "may_decide": actor.may_decide, "sender": actor.name}
        message = json.dumps(kept if only_after is None else {**kept, "only_after": only_after})
        reply = self._scripts.queue_message(
            StartKeys.root,
            conversation=conversation_id,
            start_id=start_id,
            id=str(identity),
            message=message,
            most=MOST_QUEUED,
            seconds=_KEPT,
        )
        if isinstance(reply, QueueMessage.Full):
            raise TooManyQueued(reply.number)
        return identity, reply.position

    def drop(self, conversation_id: ConversationId) -> None:
        """Delete the queue of a deleted conversation."""
        self._scripts.drop_queue(StartKeys.root, conversation=conversation_id)

    def waiting_for(self, conversation_id: ConversationId) -> int:
        """Return the number of queued messages of a conversation. One round trip."""
        return self._scripts.count_queue(StartKeys.root, conversation=conversation_id)

    # called by drivers

    def claim(self) -> QueuedMessage | None:
        """Claim the first message of a due queue, with the queue's lease; None if there is none."""
        lease = str(uuid4())
        reply = self._scripts.claim_queue(StartKeys.root, lease=lease, span=in_micros(LEASE), poll=in_micros(_POLL))
        if reply is None:
            return None
        queue = Queue.read(pairs(reply.queue))
        identity, _, message = reply.entry.decode(errors="replace").partition(" ")
        read: dict[str, Any] = {"content": [], "sender": "", "may_decide": False}
        fault = ""
        try:
            stored = json.loads(message)
            read = {name: stored[name] for name in read} | {"only_after": stored.get("only_after")}
        except UNREADABLE as error:
            fault = f"its record in the queue cannot be read: {type(error).__name__}"
        return QueuedMessage(
            id=identity,
            conversation_id=ConversationId(reply.conversation),
            **read,
            tried_for=reply.tried / 1e6,
            was_sent=queue.sent == identity,
            after=queue.after,
            lease=lease,
            fault=fault,
        )

    def renew(self, queued: QueuedMessage) -> bool:
        """Renew the lease of a queue; False if another driver has it, or the queue is gone."""
        return self.postpone(queued, LEASE)

    def postpone(self, queued: QueuedMessage, seconds: float, *, waits: bool = False, untried: bool = False) -> bool:
        """Make a queue due again after some seconds; False as `renew`.

        waits: its message cannot be delivered yet, which does not count as a failed attempt. untried: no attempt was
        made, and the count of earlier attempts stays.
        """
        tried = "" if waits else f"{in_micros(queued.tried_for)} 0"  # gaps since 0 do not count, see `_tried.lua`
        return self._postpone(queued, seconds, **({"tried": tried} if waits or untried else {}))

    def _postpone(self, queued: QueuedMessage, seconds: float, **state: str) -> bool:
        return self._scripts.postpone_queue(
            StartKeys.root,
            conversation=queued.conversation_id,
            lease=queued.lease,
            span=in_micros(seconds),
            state=Queue.fields_of(**state),
        )

    def note_sent(self, queued: QueuedMessage, after: str) -> bool:
        """Record that an agent may have the message now, and the last event of its log before; False as `renew`."""
        return self._postpone(queued, LEASE, sent=queued.id, after=after)

    def settle(self, queued: QueuedMessage) -> bool:
        """Remove a message from its queue, because it was delivered or dropped. False as `renew`."""
        identity = "" if queued.fault else queued.id
        return self._scripts.settle_message(
            StartKeys.root, conversation=queued.conversation_id, lease=queued.lease, id=identity
        )
