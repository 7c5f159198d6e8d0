"""Who speaks, and what that sandbox may reach: what the proxy asks the store. All state is there, none in the proxy."""

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
from store.destinations import Verdict
from store.errors import UNAVAILABLE, SecretsRefused, StoreError
from store.sandboxes.sandboxes import SandboxId

log = logging.getLogger("egress")

#: sandboxes whose spec is remembered: it never changes
_MOST_REMEMBERED = 10_000

_BY_SPEC = Verdict(True, "", False)

_NOT_NOTED: tuple[type[Exception], ...] = (StoreError, *UNAVAILABLE)

#: outcomes of a try
ALLOWED, REFUSED, FAILED = "allowed", "refused", "failed"


class Speaker(NamedTuple):
    """A sandbox, and what its spec says."""

    sandbox_id: SandboxId
    spec: Spec

    def service(self, name: str) -> Service | None:
        return next((service for service in self.spec.services if service.name == name), None)

    def model_of(self, service: Service) -> str:
        """The model that the spec names for a service; empty: it names none."""
        return self.spec.environment.get("LLM_MODEL", "") if service.name == MODEL_SERVICE else ""


class Gate:
    """Any thread may use it. `speaker` raises UNAVAILABLE."""

    def __init__(self, store: Store, specs: Specs, budgets: Budgets = NO_BUDGETS, prices: Prices | None = None) -> None:
        self._store, self._specs = store, specs
        self.accounts = Accounts(store.spending, budgets, prices or Prices())
        self._lock = threading.Lock()
        self._spec_ids: OrderedDict[SandboxId, str] = OrderedDict()

    def speaker(self, key: str) -> Speaker | None:
        """The sandbox of a hook key, whose way out is by name; None: there is none, or not any more."""
        try:
            identity = self._store.sandboxes.of_hook_key(key)
            spec = self._specs.find(self._spec_id(identity)) if identity else None
        except StoreError:  # it posted too much, or is gone by now
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
        """A service with the secrets of the sandbox's conversations in its headers. Raises UnusableSecret, UNAVAILABLE.

        The values of the sandbox's owner count: a conversation of another key that has joined adds names alone, and
        neither replaces a value nor makes it ambiguous. Two round trips for a service whose headers name secrets, none
        for others. Secrets that were sealed by another SECRET_KEY are none.
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
            with suppress(UnusableSecret):  # of a joiner: the owner's agent goes on without it
                values |= header_values(others, {name})
        return service.with_secrets(values)

    def verdict(self, speaker: Speaker, name: str, port: int, program: str = "") -> Verdict:
        """Whether a sandbox may reach a destination now; a person is asked where neither spec nor rule says so.

        Raises UNAVAILABLE.
        """
        if allows(speaker.spec.allowed_hosts, name, port):
            return _BY_SPEC
        return self._store.destinations.verdict(speaker.sandbox_id, name, port, program or None)

    def standing(self, rule_ids: Collection[str]) -> set[str]:
        """Those of these rules that nobody has revoked. Raises UNAVAILABLE."""
        return self._store.destinations.standing(rule_ids)

    def record(self, speaker: Speaker, name: str, port: int, outcome: str, sent: int = 0, received: int = 0) -> None:
        """Note what was reached or refused, in the store and in the log. sent, received: bytes."""
        text = "sandbox %s: %s:%s %s, %s bytes sent, %s received"
        log.info(text, speaker.sandbox_id, name, port, outcome, sent, received)
        if not is_destination_name(name) or not port:  # what is no destination stands in the log alone
            return
        noted = REFUSED if outcome == REFUSED else ALLOWED
        try:
            self._store.destinations.record(speaker.sandbox_id, name, port, noted, sent, received)
        except _NOT_NOTED as error:  # what has passed has passed
            log.warning("sandbox %s: %s:%s is not noted: %s", speaker.sandbox_id, name, port, error)
