"""What this agent server shows nobody: the secrets of all its conversations, and credentials among its variables.

The conversations share files and processes, so a command in one may print a secret of another.
"""

import os
import threading
from collections.abc import Iterable

from core.masking import Mask
from core.redaction import credentials_in


class Hidden:
    """Any thread may use it. The values are in memory alone, each as long as its conversation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, set[str]] = {}
        self._mask = Mask(credentials_in(os.environ))

    @property
    def mask(self) -> Mask:
        """The mask of all present values."""
        return self._mask

    def texts(self) -> list[str]:
        """The secrets of conversations."""
        with self._lock:
            return [text for texts in self._of.values() for text in texts]

    def add(self, conversation_id: str, secrets: Iterable[str]) -> None:
        """Hide secrets of a conversation from now on."""
        with self._lock:
            self._set(conversation_id, {*self._of.get(conversation_id, ()), *secrets})

    def drop(self, conversation_id: str) -> None:
        """Forget the secrets of a conversation that is deleted."""
        with self._lock:
            self._set(conversation_id, set())

    def _set(self, conversation_id: str, secrets: set[str]) -> None:
        self._of.pop(conversation_id, None)
        if secrets:
            self._of[conversation_id] = secrets
        texts = [text for texts in self._of.values() for text in texts]
        self._mask = Mask([*texts, *credentials_in(os.environ)])
