"""Whether the servers of one Redis share a SECRET_KEY: one leaves a word that it has sealed, and the others open it."""

from typing import Any

from redis import Redis

from store.keys import SEAL_CHECK
from store.link.secrets import Sealer

DIFFERS = (
    "SECRET_KEY is not the key that the data in Redis were sealed with: secrets and sandboxes that are sealed with "
    "the other key cannot be used here. Give every host the same SECRET_KEY; it may have several keys, the first seals."
)


class SealCheck:
    """The check of one process."""

    def __init__(self, probe: "Redis", sealer: Sealer) -> None:
        """probe: a client that waits so briefly that a request may ask first."""
        self._probe = probe
        self._sealer = sealer

    def fault(self) -> str | None:
        """A sentence for the operator where another key has sealed; None where all is well, or no key is set.

        The word is sealed again by a process whose first key has not sealed it, and which can open it. Two round trips
        at most. Raises one of UNAVAILABLE.
        """
        if not self._sealer.has_key:
            return None
        word: Any = self._probe.get(SEAL_CHECK)
        if word is None:
            self._probe.set(SEAL_CHECK, self._sealer.seal_word(), nx=True)
            word = self._probe.get(SEAL_CHECK) or b""
        if not self._sealer.opens_word(word):
            return DIFFERS
        if not self._sealer.opens_word(word, first_alone=True):
            self._probe.set(SEAL_CHECK, self._sealer.seal_word())
        return None
