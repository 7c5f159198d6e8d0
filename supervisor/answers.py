"""Answers that an agent has not heard: told again until it has, or until the conversation says that it never will."""

import json
import logging
from uuid import uuid4

import wire
from agents.commands import Commands, NotReachable
from agents.link import AgentRefused, AgentUnreachable
from store import Store
from store.answers import Answer
from store.errors import ConversationNotFound, NotItsSandbox
from wire import ConversationId, read_event

log = logging.getLogger("supervisor")

#: seconds after which an agent that cannot be told is given up
GIVEN_UP = 600.0


def deliver_next(store: Store, commands: Commands) -> bool:
    """Try one answer that is due; False if none is."""
    conversation_id = store.answers.claim()
    if conversation_id is None:
        return False
    answer = store.answers.get(conversation_id)
    if answer is None:
        return True
    try:
        commands.redeliver(conversation_id, answer)
        if wire.now() - answer.at > GIVEN_UP * 1e6 and store.answers.get(conversation_id) == answer:
            _give_up(store, conversation_id, answer, "it goes on to wait")
    except ConversationNotFound:
        store.answers.settle(conversation_id, answer)
    except NotReachable as error:
        if error.status in ("ERROR", "MISSING"):
            _give_up(store, conversation_id, answer, str(error))
    except AgentRefused as error:
        if error.status < 500:
            _give_up(store, conversation_id, answer, str(error))
    except AgentUnreachable as error:
        if wire.now() - answer.at > GIVEN_UP * 1e6:
            _give_up(store, conversation_id, answer, str(error))
    return True


def _give_up(store: Store, conversation_id: ConversationId, answer: Answer, reason: str) -> None:
    """Say in the log that an answer never reached its agent."""
    verb = "accepted" if answer.accept else "rejected"
    fields = {
        "id": str(uuid4()),
        "timestamp": wire.event_time(wire.now()),
        "source": "environment",
        "code": "AnswerNotDelivered",
        "detail": f"The pending action was {verb}, but its agent could not be told: {reason}",
        "kind": "ConversationErrorEvent",
    }
    log.warning("conversation %s: %s", conversation_id, fields["detail"])
    try:
        event = read_event(json.dumps(fields).encode())
        store.events.append(conversation_id, [event], sandbox_id=store.conversations.sandbox_of(conversation_id))
    except (ConversationNotFound, NotItsSandbox):
        pass
    store.answers.settle(conversation_id, answer)
