"""Principals and their scopes. No Flask and no Redis. Source: docs/access.md."""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, NamedTuple

from core.wire import ConversationId

#: what a key may be for; `write` and `approve` include `read`, `admin` includes all. `ask` is for hooks of agents in
#: terminals, which can read it: it opens and awaits permission requests of its own, and reads and decides nothing
SCOPES = ("read", "write", "approve", "admin", "ask")

Scope = Literal["read", "write", "approve", "admin", "ask"]

#: Close reason when a key is revoked or expires during a stream.
REVOKED = "The key was revoked or has expired"

_INCLUDED: dict[str, tuple[str, ...]] = {
    "read": ("read",),
    "write": ("read", "write"),
    "approve": ("read", "approve"),
    "admin": SCOPES,
    "ask": ("ask",),
}


#: Prefix of the ids of keys from the settings. Such a key is not revoked while the server runs.
_OF_SETTINGS = "settings-"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of a request: a key, a ticket, a sandbox, or anyone on a server that needs no key."""

    name: str  #: for the audit
    key_id: str = ""  #: empty where no key was shown
    scopes: frozenset[str] = frozenset()
    sandbox_id: str | None = None  #: of a hook key: the sandbox whose webhooks bear it
    hook_hash: str = ""  #: SHA-256 of that hook key, which names a start of the sandbox's processes
    user_of: str | None = None  #: of a session key: the sandbox whose agent server it opens
    conversation_id: ConversationId | None = None  #: of a ticket: that it is for; None: for what is about all
    person: str = ""  #: of one who came through a trusted proxy: the name, as `core/people.py` reads it
    groups: tuple[str, ...] = ()  #: of a person
    belongs_to: str = ""  #: of a key: the person whose it is; empty: it counts as a person of its name
    rights: str = ""  #: of a person: what the scopes were read from, see `store/access/people.py`

    @property
    def owner(self) -> str:
        """The owner of the sandboxes that it starts: the id of its key, or of anyone on an open server."""
        return self.key_id or self.name

    def may(self, scope: Scope) -> bool:
        """Return whether the principal has a scope, by itself or by one that includes it."""
        return any(scope in _INCLUDED[held] for held in self.scopes)


class Joiner(NamedTuple):
    """A key that acts in a sandbox. It is stored with a start."""

    owner: str  #: its id, the owner of the sandboxes that it starts; empty: this server
    name: str = ""  #: for the audit
    address: str = ""  #: address of the client
    joins_any: bool = False  #: it has the scope `approve` and may act in the sandboxes of other keys


#: The callers without a key: of a server that needs one, and of an open server.
NOBODY = Principal("nobody")
ANYONE = Principal("anyone", scopes=frozenset({"admin"}))


class SettingsKeys:
    """The keys from the settings. Each has every scope."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [sha256(key.encode()).digest() for key in keys]

    def find(self, key: str) -> Principal | None:
        """Return the principal of a key. Compares every key, in constant time."""
        digest, found = sha256(key.encode("utf-8", "surrogatepass")).digest(), None
        for number, known in enumerate(self._digests, 1):
            if hmac.compare_digest(known, digest):
                found = Principal(f"{_OF_SETTINGS}{number}", f"{_OF_SETTINGS}{number}", frozenset({"admin"}))
        return found

    def proof(self, key_id: str) -> str:
        """What shows that a key of the settings is still the one that an id stood for; empty for any other id."""
        for number, known in enumerate(self._digests, 1):
            if key_id == f"{_OF_SETTINGS}{number}":
                return known.hex()
        return ""


def is_revocable(principal: Principal) -> bool:
    """Return whether the principal's key can be revoked or expire while the server runs."""
    return is_revocable_id(principal.key_id)


def is_revocable_id(owner: str) -> bool:
    """Return whether the owner of a sandbox is a key that can be revoked or expire while the server runs."""
    return owner not in ("", ANYONE.owner) and not owner.startswith(_OF_SETTINGS)
