"""Places: at most MAX_SANDBOXES run. An idle sandbox makes room for another.

With SANDBOX_OVERFLOW=pause the least recently used sandbox is paused: first sandboxes without a working agent, then
those with pending actions. A sandbox is never paused while its agent runs or a conversation starts in it. Its files
stay, and the next use resumes it.

With SANDBOX_OVERFLOW=refuse only a sandbox of a client's own agent (`gives_way`) makes room. Such a client does not
pause its sandbox, and may never delete it.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from core.wire import Micros
from store import Store
from store.errors import SandboxNotFound, SandboxRefuses, TooManySandboxes
from store.sandboxes.sandboxes import Sandbox, SandboxId

Reply = TypeVar("Reply")

#: Idle time in seconds after which a sandbox makes room: with inactive agents, and without an agent.
RESTS, GIVES_WAY = 2.0, 30.0

#: Idle time in seconds after which a `gives_way` sandbox is paused, unless its spec has a value.
IDLE_PAUSE = 1200.0

#: Number of sandboxes that are read at once.
_PAGE = 100


def after_making_room(store: Store, ask: Callable[[], Reply]) -> Reply:
    """Return the reply to a start or a resume. While there is no place, pause other sandboxes one by one.

    Raises the errors of `ask`, and TooManySandboxes if no sandbox makes room.
    """
    there_may_be_room = True
    while there_may_be_room:
        with suppress(TooManySandboxes):
            return ask()
        there_may_be_room = _one_made_room(store)
    return ask()  # another process may have paused one meanwhile


def after_those_that_wait(store: Store, start: Callable[[], Reply]) -> Reply:
    """Start a new sandbox as in `after_making_room`, but after the start tasks that wait for a place.

    Raises TooManySandboxes while a start task waits.
    """
    if store.start_tasks.first_waiting():
        most = store.sandboxes.limits.max_sandboxes
        raise TooManySandboxes(most, most)
    return after_making_room(store, start)


def _one_made_room(store: Store) -> bool:
    limits, begun = store.sandboxes.limits, store.start_tasks.sandboxes_under_way()
    unused = [
        one
        for one in _running(store)
        if (limits.pauses_idlest or one.gives_way) and one.id not in begun and _unused(one) > RESTS
    ]
    asking = []
    for sandbox in sorted(unused, key=lambda one: one.active_at):
        work = store.conversations.in_sandboxes.work_in(sandbox.id)
        if work == "asks":
            asking.append(sandbox)
        elif (work == "rests" or (not work and _unused(sandbox) > GIVES_WAY)) and _makes_way(store, sandbox):
            return True
    return any(_makes_way(store, sandbox) for sandbox in asking)


def _unused(sandbox: Sandbox) -> float:
    """Return the seconds since the last use of a sandbox."""
    return (sandbox.seen_at - sandbox.active_at) / 1e6


def _makes_way(store: Store, sandbox: Sandbox) -> bool:
    """Pause a sandbox, unless it has been used since it was read. Return whether it was paused."""
    with suppress(SandboxNotFound, SandboxRefuses):
        store.sandboxes.make_way(sandbox)
        return True
    return False


def _running(store: Store) -> Iterator[Sandbox]:
    """Yield the running bound sandboxes. The script handles warm ones."""
    start: tuple[Micros, SandboxId] | None = None
    while True:
        page, start = store.sandboxes.search(status="RUNNING", spec_id=None, limit=_PAGE, start=start)
        yield from (one for one in page if one.wanted == "running" and not one.warm)
        if start is None:
            return
