"""Places: at most MAX_SANDBOXES run, and an idle one makes room for one more.

With SANDBOX_OVERFLOW=pause the sandbox is paused that nobody has used for longest: first those in which no agent works,
then those whose actions wait for a decision. A sandbox whose agent runs is never paused, nor one in which a
conversation begins. Its files stay, and the next use wakes it.

With SANDBOX_OVERFLOW=refuse only a sandbox makes room that was started for a client's own agent (`gives_way`): such a
client does not pause its sandbox, and may never delete it.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from core.wire import Micros
from store import Store
from store.errors import SandboxNotFound, SandboxRefuses, TooManySandboxes
from store.sandboxes.sandboxes import Sandbox, SandboxId

Reply = TypeVar("Reply")

#: seconds without use after which a sandbox makes room whose agents rest, and one that clients use without an agent
RESTS, GIVES_WAY = 2.0, 30.0

#: seconds without use after which a sandbox is paused that gives way, where its spec names none
IDLE_PAUSE = 1200.0

#: sandboxes that are read at once
_PAGE = 100


def after_making_room(store: Store, ask: Callable[[], Reply]) -> Reply:
    """The reply to a start or a resume; while there is no room for it, sandboxes make room, one after the other.

    Raises what ask raises, TooManySandboxes where none makes room.
    """
    there_may_be_room = True
    while there_may_be_room:
        with suppress(TooManySandboxes):
            return ask()
        there_may_be_room = _one_made_room(store)
    return ask()  # another process may have paused one meanwhile


def after_those_that_wait(store: Store, start: Callable[[], Reply]) -> Reply:
    """As `after_making_room`, of a new sandbox: start tasks that wait for a place get the next one.

    Raises TooManySandboxes while one waits.
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
    """Seconds since the last use of a sandbox."""
    return (sandbox.seen_at - sandbox.active_at) / 1e6


def _makes_way(store: Store, sandbox: Sandbox) -> bool:
    """Pause a sandbox, unless somebody has used it since it was read."""
    with suppress(SandboxNotFound, SandboxRefuses):
        store.sandboxes.make_way(sandbox)
        return True
    return False


def _running(store: Store) -> Iterator[Sandbox]:
    """The bound sandboxes that run: a warm one makes room in the script."""
    start: tuple[Micros, SandboxId] | None = None
    while True:
        page, start = store.sandboxes.search(status="RUNNING", spec_id=None, limit=_PAGE, start=start)
        yield from (one for one in page if one.wanted == "running" and not one.warm)
        if start is None:
            return
