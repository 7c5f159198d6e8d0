"""Keeps the pools of warm sandboxes full, beside what clients ask for.

Every supervisor does, and one script decides, so however many hosts there are, no pool gets more than its number. The
specs of the supervisor that has begun last hold: one with other specs fills nothing, and ends nothing.
"""

import logging

from specs import Spec, Specs
from store import Store
from store.sandboxes.warm import Pool

log = logging.getLogger("supervisor")


def pool_of(spec: Spec) -> Pool:
    """What a spec keeps warm."""
    return Pool(spec.id, spec.version, spec.warm)


class WarmPools:
    """The pools of one supervisor's specs."""

    def __init__(self, store: Store, specs: Specs) -> None:
        self._store = store
        self._pools = [pool_of(spec) for spec in specs.all if spec.warm]
        self._is_declared = False
        self._told: set[str] = set()  #: specs of which the log says that another supervisor's hold

    def fill(self) -> None:
        """Start what is missing; the first call also ends what the specs no longer keep."""
        if not self._is_declared:
            self._store.warm.declare(self._pools)
            self._is_declared = True
        for pool in self._pools:
            outcome = self._store.warm.fill(pool)
            if outcome == "undeclared":  # the store has lost its data
                self._is_declared = False
            elif outcome == "other" and pool.spec_id not in self._told:
                self._told.add(pool.spec_id)
                log.warning(
                    "The warm sandboxes of spec %s are kept by a supervisor that began later, on which the spec or a "
                    "variable that it names with {env:…} has another value: this one fills none of them",
                    pool.spec_id,
                )
