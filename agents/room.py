"""Room among the sandboxes that run: one that gives way is paused for another one, whatever SANDBOX_OVERFLOW says.

A sandbox gives way that was started for a client's own agent: such a client knows no pause, and may never delete. It is
paused only while no agent runs in it and nobody has used it for GIVES_WAY seconds.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from store import Store
from store.errors import SandboxNotFound, SandboxRefuses, TooManySandboxes
from store.sandboxes.sandbox_record import Sandbox, SandboxId
from wire import Micros

Reply = TypeVar("Reply")

#: seconds without use after which a sandbox gives way, and after which it is paused where its spec names none
GIVES_WAY, IDLE_PAUSE = 30.0, 1200.0

#: sandboxes that are read at once
_PAGE = 100


def with_room(store: Store, ask: Callable[[], Reply]) -> Reply:
    """The reply to a start or a resume, for which sandboxes give way one after the other as far as that is needed.

    Raises what ask raises, TooManySandboxes where none gives way.
    """
    there_may_be_room = True
    while there_may_be_room:
        with suppress(TooManySandboxes):
            return ask()
        there_may_be_room = _one_gave_way(store)
    return ask()  # another process may have paused one meanwhile


def _one_gave_way(store: Store) -> bool:
    idle = [one for one in _running(store) if one.gives_way and one.seen_at - one.active_at > GIVES_WAY * 1e6]
    for sandbox in sorted(idle, key=lambda one: one.active_at):
        if not store.app_conversations.runs_in(sandbox.id):
            with suppress(SandboxNotFound, SandboxRefuses):
                store.sandboxes.ask(sandbox.id, "pause")
                return True
    return False


def _running(store: Store) -> Iterator[Sandbox]:
    start: tuple[Micros, SandboxId] | None = None
    while True:
        page, start = store.sandboxes.search(status="RUNNING", spec_id=None, limit=_PAGE, start=start)
        yield from (one for one in page if one.wanted == "running")
        if start is None:
            return
