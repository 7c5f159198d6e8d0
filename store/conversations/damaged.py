"""Conversations whose hash in Redis cannot be read: a page goes on without them, and the log names each.

A request for such a conversation alone still fails: there is nothing true that it could be answered with.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from core.wire import ConversationId
from store.errors import UNREADABLE

log = logging.getLogger(__name__)

#: conversations that one process remembers to have named
_MOST_NAMED = 1000

_named: OrderedDict[ConversationId, None] = OrderedDict()


class Damaged:
    """In the place of the state of a conversation that cannot be read, whose entry in the listing stays as it is."""


def readable(
    conversation_id: ConversationId, read: Callable[..., dict[str, Any]], *stored: Any
) -> dict[str, Any] | Damaged:
    """What `read` makes of what is stored: a state; or Damaged, which the log names once for each process."""
    try:
        state = read(*stored)
        int(state["revision"])  # every listing compares it
    except UNREADABLE as error:
        name_in_log(conversation_id, error)
        return Damaged()
    return state


def name_in_log(conversation_id: ConversationId, error: Exception) -> None:
    """Name a conversation that cannot be read in the log, once for each process."""
    if conversation_id not in _named:
        _named[conversation_id] = None
        while len(_named) > _MOST_NAMED:
            _named.popitem(last=False)
        log.error("the conversation %s cannot be read: lists and sweeps pass it over", conversation_id, exc_info=error)
