"""Starts of agents that clients bring: a start task for each, which the request waits for.

However many requests name one id, one start task is made, and all get its conversation. A request that ends early, as
its client hangs up, leaves the start task to its driver; the next request of that id finds it.
"""

import time
from collections.abc import Callable
from typing import Any

from store import Store
from store.sandboxes.start_tasks import FINISHED, Failure, StartTask
from wire import ConversationId

#: seconds between two polls of a start task
_POLL = 0.05

#: status of the failure of a start whose id was taken meanwhile
_TAKEN = 409


class StartFailed(Exception):
    """The start of an agent ended as ERROR; nothing of it is kept."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure.detail))
        self.failure = failure


class StartNotDone(Exception):
    """The start of an agent takes longer than a request waits; it goes on."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"The agent did not start within {seconds:g} s (SANDBOX_START_SECONDS): this goes on, repeat the request"
        )


def started(
    store: Store, conversation_id: ConversationId, create: Callable[[], tuple[StartTask, bool]]
) -> tuple[dict[str, Any], bool]:
    """The state of a conversation whose agent has started, and whether this call created it.

    create: the start task of it, and whether it is new; called where the id is free. A conversation whose start has
    failed is waited for until it is gone. Raises StartFailed, StartNotDone and what create raises.
    """
    seconds = store.sandboxes.limits.start_seconds
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        [state] = store.conversations.get_many([conversation_id])
        start, is_new = create() if state is None else (_start_of(store, state), False)
        if state is not None and (start is None or start.status == "READY"):
            return state, False
        if state is not None and start is not None and start.status == "ERROR":
            time.sleep(_POLL)  # its driver removes it
            continue
        ended = start and _ended(store, start, deadline)
        if ended is not None and ended.status == "READY":
            return store.conversations.get(conversation_id), is_new
        if ended is not None and ended.failure and ended.failure.status != _TAKEN:
            raise StartFailed(ended.failure)
    raise StartNotDone(seconds)


def _start_of(store: Store, state: dict[str, Any]) -> StartTask | None:
    """The start task that made a conversation; None where there was none, or it is forgotten."""
    start_id = state["app"].get("start_id")
    return store.start_tasks.get_many([start_id])[0] if start_id else None


def _ended(store: Store, start: StartTask, deadline: float) -> StartTask | None:
    """A start task at its end; None if it does not come in time, or the start task is gone with its conversation."""
    while start.status not in FINISHED and time.monotonic() < deadline:
        time.sleep(_POLL)
        [now] = store.start_tasks.get_many([start.id])
        if now is None:
            return None
        start = now
    return start if start.status in FINISHED else None
