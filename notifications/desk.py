"""What operators see of notifications, and their tests."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from uuid import uuid4

from core import wire
from core.refused import Kind
from notifications.messages import body_of_test
from notifications.sending import Sender
from notifications.targets import NotDelivered, Target
from store import Store
from store.errors import UNAVAILABLE, StoreError
from store.notifications import TargetState


class NoTargets(StoreError):
    """The settings name no target."""

    kind = Kind.CONFLICT
    words = "There is no target to test: neither NOTIFY_URLS nor NOTIFY_WEBHOOKS is set"


class UnknownTarget(StoreError):
    """The settings name no target of that id."""

    kind = Kind.MEMBER
    member = "target"

    def __init__(self, known: Sequence[str]) -> None:
        super().__init__(f"Input should be the id of a target: one of {', '.join(known)}")


class Outcome(NamedTuple):
    """The result of a test of a target."""

    id: str
    name: str
    delivered: bool
    detail: str  #: why not; empty


class Desk:
    """Shows the queues, and sends test messages from this process."""

    def __init__(self, store: Store, targets: Sequence[Target], sender: Sender) -> None:
        self._store = store
        self._targets = targets
        self._sender = sender

    def overview(self) -> dict[str, Any]:
        """The targets of the settings in their order, then others that have a queue; and the outboxes."""
        known = self._store.notifications.targets.states()
        kinds = {target.id: target.kind for target in self._targets}
        ours = [known.pop(one.id, TargetState(one.id, one.name)) for one in self._targets]
        return {
            "items": [{"kind": kinds.get(state.id), "state": state} for state in (*ours, *known.values())],
            "outboxes": self._store.notifications.outboxes.states(),
        }

    def test(self, target_id: str | None) -> list[Outcome]:
        """Send a test message to one target or to all at once. What waits for a target that took it is due at once.

        Raises NoTargets, UnknownTarget.
        """
        if not self._targets:
            raise NoTargets
        chosen = [target for target in self._targets if target_id in (None, target.id)]
        if not chosen:
            raise UnknownTarget([target.id for target in self._targets])
        with ThreadPoolExecutor(len(chosen)) as pool:
            return list(pool.map(self._test, chosen))

    def _test(self, target: Target) -> Outcome:
        at = wire.now()
        try:
            self._sender.send(target, f"msg_test-{uuid4()}", body_of_test(wire.utc_time(at)), at)
            self._store.notifications.targets.hurry(target.id)
        except NotDelivered as error:
            return Outcome(target.id, target.name, False, str(error))
        except UNAVAILABLE:
            pass  # the test itself has succeeded
        return Outcome(target.id, target.name, True, "")
