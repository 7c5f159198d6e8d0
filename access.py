"""Who asks, and what they may do. No Flask and no Redis. Source: docs/access.md."""

from dataclasses import dataclass
from typing import Literal

from wire import ConversationId

#: what a key may be for; `write` and `approve` include `read`, `admin` includes all
SCOPES = ("read", "write", "approve", "admin")

Scope = Literal["read", "write", "approve", "admin"]

_INCLUDED: dict[str, tuple[str, ...]] = {
    "read": ("read",),
    "write": ("read", "write"),
    "approve": ("read", "approve"),
    "admin": SCOPES,
}


@dataclass(frozen=True, slots=True)
class Principal:
    """The one who asks: a key, a ticket, a sandbox, or anyone where no key is needed."""

    name: str  #: for the audit
    key_id: str = ""  #: empty where no key was shown
    scopes: frozenset[str] = frozenset()
    sandbox_id: str | None = None  #: of a hook key: the sandbox whose webhooks bear it
    conversation_id: ConversationId | None = None  #: of a ticket: the one conversation that it opens

    def may(self, scope: Scope) -> bool:
        """Whether one of the scopes includes this one."""
        return any(scope in _INCLUDED[held] for held in self.scopes)


#: one who has shown no key where keys are needed, and one where none is needed
NOBODY = Principal("nobody")
ANYONE = Principal("anyone", scopes=frozenset({"admin"}))
