"""The proxy's queries to the store: which sandbox is connected, and what it may reach. The proxy has no other state."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from core.egress import allows, is_destination_name
from core.prices import NO_BUDGETS, Budgets, Prices
from egress.spending import Accounts
from settings.egress import MODEL_SERVICE, NAMED, Service, UnusableSecret, header_values
from settings.specs import Spec, Specs
from store import Store
from store.destinations import DestinationVerdict
from store.errors import UNAVAILABLE, SecretsRefused, StoreError
from store.sandboxes.sandboxes import SandboxId

log = logging.getLogger("egress")

#: Maximum number of sandboxes whose spec is cached. A sandbox's spec never changes.
_MOST_REMEMBERED = 10_000

_BY_SPEC = DestinationVerdict(True, "", False)

_NOT_NOTED: tuple[type[Exception], ...] = (StoreError, *UNAVAILABLE)

#: Outcomes of an attempt.
ALLOWED, REFUSED, FAILED = "allowed", "refused", "failed"


class Speaker(NamedTuple):
    """A connected sandbox and its spec."""

    sandbox_id: SandboxId
    spec: Spec

    def service(self, name: str) -> Service | None:
        return next((service for service in self.spec.services if service.name == name), None)

    def model_of(self, service: Service) -> str:
        """Return the model that the spec names for a service, or an empty text."""
        return self.spec.environment.get("LLM_MODEL", "") if service.name == MODEL_SERVICE else ""


class Gate:
    """Access decisions for sandboxes. Thread-safe. `speaker` raises UNAVAILABLE."""

    def __init__(self, store: Store, specs: Specs, budgets: Budgets = NO_BUDGETS, prices: Prices | None = None) -> None:
        self._store, self._specs = store, specs
        self.accounts = Accounts(store.spending, budgets, prices or Prices())
        self._lock = threading.Lock()
        self._spec_ids: OrderedDict[SandboxId, str] = OrderedDict()

    def speaker(self, key: str) -> Speaker | None:
        """Return the sandbox of a hook key; None if it is gone, or if its egress is not `named`."""
        try:
            identity = self._store.sandboxes.of_hook_key(key)
            spec = self._specs.find(self._spec_id(identity)) if identity else None
        except StoreError:  # the sandbox posted too much, or is gone
            return None
        return Speaker(identity, spec) if identity and spec and spec.egress == NAMED else None

    def _spec_id(self, sandbox_id: SandboxId) -> str:
        with self._lock:
            known = self._spec_ids.get(sandbox_id)
        if known is None:
            known = self._store.sandboxes.get(sandbox_id).spec_id
            with self._lock:
                self._spec_ids[sandbox_id] = known
                while len(self._spec_ids) > _MOST_REMEMBERED:
                    self._spec_ids.popitem(last=False)
        return known

    def with_secrets(self, speaker: Speaker, service: Service) -> Service:
        """Fill in the secrets of the sandbox's conversations in a service's headers.

        Secrets of the sandbox's owner win: a conversation of another key that has joined can only add names. Secrets
        that were sealed with another SECRET_KEY are skipped.

        Raises UnusableSecret and UNAVAILABLE. Cost: two round trips if the headers name secrets, otherwise none.
        """
        if not (names := service.secret_names):
            return service
        try:
            own, others = self._store.conversations.secrets_in(speaker.sandbox_id)
        except SecretsRefused as refusal:
            log.warning("sandbox %s: its secrets cannot be read: %s", speaker.sandbox_id, refusal)
            own, others = [], []
        values = header_values(own, names)
        for name in names - values.keys():
            with suppress(UnusableSecret):  # a joiner's secret must not stop the owner's agent
                values |= header_values(others, {name})
        return service.with_secrets(values)

    def verdict(self, speaker: Speaker, name: str, port: int, program: str = "") -> DestinationVerdict:
        """Decide whether a sandbox may reach a destination. Ask a person if neither spec nor rule decides.

        Raises UNAVAILABLE.
        """
        if allows(speaker.spec.allowed_hosts, name, port):
            return _BY_SPEC
        return self._store.destinations.verdict(speaker.sandbox_id, name, port, program or None)

    def standing(self, rule_ids: Collection[str]) -> set[str]:
        """Return the rules that are still in force. Raises UNAVAILABLE."""
        return self._store.destinations.standing(rule_ids)

    def record(self, speaker: Speaker, name: str, port: int, outcome: str, sent: int = 0, received: int = 0) -> None:
        """Record an attempt in the store and in the log. sent, received: bytes."""
        text = "sandbox %s: %s:%s %s, %s bytes sent, %s received"
        log.info(text, speaker.sandbox_id, name, port, outcome, sent, received)
        if not is_destination_name(name) or not port:  # an invalid destination is only logged
            return
        noted = REFUSED if outcome == REFUSED else ALLOWED
        try:
            self._store.destinations.record(speaker.sandbox_id, name, port, noted, sent, received)
        except _NOT_NOTED as error:  # the traffic has already passed
            log.warning("sandbox %s: %s:%s is not noted: %s", speaker.sandbox_id, name, port, error)
