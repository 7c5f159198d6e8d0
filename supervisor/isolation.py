"""Says what isolates the process sandboxes of a host: in the log, and to the workers for `/server_info`."""

import logging
import time

from runtimes.isolation import BUBBLEWRAP, Isolation, decided
from runtimes.isolation.abilities import abilities
from specs import unsupported
from store import Store
from store.errors import UNAVAILABLE
from wire import API_VERSION

log = logging.getLogger("supervisor")

#: seconds between two tries while the store does not answer
_DELAY = 5.0


def announce(store: Store, host: str) -> None:
    """Probe what works on this host, and say what a spec with `isolation = "auto"` gets. Takes about a second."""
    if unsupported("process"):
        return
    isolation = decided("auto", "internet", abilities())
    say = log.info if isolation.kind == BUBBLEWRAP and not isolation.lacks else log.warning
    sentences = " ".join([*isolation.lacks, *isolation.reaches])
    say("process sandboxes are isolated by %s, with network %s. %s", isolation.kind, isolation.network, sentences)
    while not _noted(store, host, isolation):
        time.sleep(_DELAY)


def _noted(store: Store, host: str, isolation: Isolation) -> bool:
    try:
        store.hosts.note(host, isolation.described(), API_VERSION)
    except UNAVAILABLE:
        return False
    return True
