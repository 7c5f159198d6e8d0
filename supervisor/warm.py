"""Keeps the pools of warm sandboxes full, beside what clients ask for.

Every supervisor does, and one script decides, so however many hosts there are, no pool gets more than its number. The
specs of the supervisor that has begun last hold: one with other specs fills nothing, and ends nothing.
"""

from specs import Spec, Specs
from store import Store
from store.warm import Pool


def pool_of(spec: Spec) -> Pool:
    """What a spec keeps warm."""
    return Pool(spec.id, spec.version, spec.warm)


class WarmPools:
    """The pools of one supervisor's specs."""

    def __init__(self, store: Store, specs: Specs) -> None:
        self._store = store
        self._pools = [pool_of(spec) for spec in specs.all if spec.warm]
        self._is_declared = False

    def fill(self) -> None:
        """Start what is missing; the first call also ends what the specs no longer keep."""
        if not self._is_declared:
            self._store.warm.declare(self._pools)
            self._is_declared = True
        for pool in self._pools:
            outcome = self._store.warm.fill(pool)
            if outcome == "undeclared":  # the store has lost its data
                self._is_declared = False
