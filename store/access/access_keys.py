"""Access keys that admins make, and tickets. Redis has only the SHA-256 of each.

A worker caches each lookup for half a second, also of an unknown key. A request therefore costs no round trip for its
key, and a revoked key stops working within half a second.
"""

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from core.access import Principal
from core.refused import RefusalKind
from core.wire import ConversationId, Micros
from store.errors import SecretsRefused, StoreError
from store.keys import AccessRoot
from store.link.secrets import Sealer, seconds
from store.record import HashRecord, pairs
from store.sandboxes.sandboxes import key_hash, random_text
from store.scripts import Scripts

MOST_KEYS = 1000

#: Seconds for which a worker caches a lookup, and maximum number of cached lookups.
REMEMBERED, _MOST_REMEMBERED = 0.5, 10_000

#: Lifetime of a ticket, in seconds.
TICKET_SECONDS = 30

#: Cookie by which a browser shows files of workspaces, and lifetime of this cookie and of a preview's, in seconds.
WORKSPACE_COOKIE, SESSION_SECONDS = "workspace_session", 8 * 3600

#: Length of the random part of a key, in letters and digits (256 bits); prefixes of keys and tickets.
_LENGTH, _KEY, _TICKET = 43, "key_", "ticket_"


class KeyNotFound(StoreError):
    """The key does not exist."""

    kind = RefusalKind.MISSING
    words = "Key not found. GET /api/v1/keys lists all keys"


class KeyWouldBePast(StoreError):
    """The key would already have expired."""

    kind = RefusalKind.MEMBER
    member = "expires_at"
    words = "Must lie in the future"


class TooManyKeys(StoreError):
    """The maximum number of keys is reached."""

    kind = RefusalKind.CONFLICT

    def __init__(self, most: int) -> None:
        super().__init__(f"Limit of {most} keys reached: revoke one first")


class CookieUnsealed(StoreError):
    """The server has no SECRET_KEY to seal the browser's cookie with."""

    kind = RefusalKind.UNSERVED
    words = "A browser's cookie cannot be sealed: the server has no SECRET_KEY. Its operator sets one"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKey(HashRecord):
    """An access key, without its secret."""

    key = f"{AccessRoot.root}:key:ID"
    id: str
    name: str
    scopes: tuple[str, ...]
    created_at: Micros  #: µs
    expires_at: Micros | None = None  #: µs; empty: never
    used_at: Micros | None = None  #: µs; empty: never
    person: str = ""  #: owner of the key; missing: the key counts as a person of its name


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessKeyUpkeep(HashRecord):
    """The stored digest of an access key."""

    key = AccessKey.key
    digest: str  #: SHA-256 of the key


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTicket(HashRecord):
    """One use of an access key, or of none where no key is required."""

    key = f"{AccessRoot.root}:ticket:SHA-256"
    content: list[object]  #: principal: name, id of the key, scopes, `about`; name and groups of a person
    about: str  #: the conversation or the preview that it opens; empty: the inbox and the lists
    taken: str = ""  #: id of the request that used it


class AccessKeys:
    """All access keys. Redis' clock decides when they expire."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts
        #: SHA-256 → end of the cache entry in seconds of the monotonic clock, and the principal
        self._remembered: dict[str, tuple[float, Principal | None]] = {}

    def make(
        self, name: str, scopes: Collection[str], expires_at: Micros | None, person: str = ""
    ) -> tuple[AccessKey, str]:
        """Make a key. Only this response has it. Raises TooManyKeys, KeyWouldBePast.

        person: owner of the key.
        """
        identity, key = uuid4().hex, _KEY + random_text(_LENGTH)
        ordered, digest = tuple(sorted(scopes)), key_hash(key)
        reply = self._scripts.make_access_key(
            AccessRoot.root,
            id=identity,
            digest=digest,
            expires_at=expires_at,
            most=MOST_KEYS,
            fields=AccessKey.fields_of(id=identity, name=name, scopes=ordered, person=person)
            | AccessKeyUpkeep.fields_of(digest=digest),
        )
        if reply == "full":
            raise TooManyKeys(MOST_KEYS)
        if reply == "past":
            raise KeyWouldBePast
        made = AccessKey(
            id=identity, name=name, scopes=ordered, created_at=reply.created_at, expires_at=expires_at, person=person
        )
        return made, key

    def all(self) -> list[AccessKey]:
        """Return the keys, the newest first, with the expired ones."""
        return [AccessKey.read(pairs(one)) for one in self._scripts.list_access_keys(AccessRoot.root)]

    def revoke(self, key_id: str) -> None:
        """Delete a key. Raises KeyNotFound."""
        if not self._scripts.revoke_access_key(AccessRoot.root, id=key_id, request=uuid4().hex):
            raise KeyNotFound
        self._remembered = {}

    def live(self, key_ids: Collection[str]) -> set[str]:
        """Return the ids whose keys are neither revoked nor expired. One round trip."""
        return set(self._scripts.live_access_keys(AccessRoot.root, ids=key_ids)) if key_ids else set()

    def of_admins(self) -> int:
        """Return the number of admin keys that have not expired."""
        return len(self.live([one.id for one in self.all() if "admin" in one.scopes]))

    def find(self, key: str) -> Principal | None:
        """Return the principal of a key; None for an unknown, revoked or expired key. At most one round trip."""
        digest, now = key_hash(key), time.monotonic()
        until, known = self._remembered.get(digest, (0.0, None))
        if now < until:
            return known
        found = self._scripts.find_access_key(AccessRoot.root, digest=digest)
        until, principal = now + REMEMBERED, None
        if found:
            principal = Principal(found.name, found.id, frozenset(found.scopes.split(",")), belongs_to=found.person)
            until = until if found.left is None else min(until, now + found.left / 1e6)
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered = {}
        self._remembered[digest] = until, principal
        return principal


class Tickets:
    """Tickets. Each serves one request within TICKET_SECONDS: about one conversation, or the inbox and the lists."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def make(self, principal: Principal, about: ConversationId | str | None, scopes: Collection[str]) -> str:
        """Make a ticket for one request as the principal, with these scopes.

        about: the conversation of the request, or the label of a preview; None for the inbox and the lists.
        """
        ticket = _TICKET + random_text(_LENGTH)
        content = [principal.name, principal.key_id, sorted(scopes), about, principal.person, principal.groups]
        fields = AccessTicket.fields_of(content=content, about=about or "")
        self._scripts.make_ticket(AccessRoot.root, digest=key_hash(ticket), span=TICKET_SECONDS * 1000, fields=fields)
        return ticket

    def take(self, ticket: str, about: ConversationId | str | None) -> Principal | None:
        """Use a ticket and return its principal. One round trip.

        Returns None for an unknown, expired or used ticket. A ticket about something else stays valid: the caller
        compares the principal's `conversation_id` and refuses. about: as in `make`.
        """
        content = self._scripts.take_ticket(
            AccessRoot.root, digest=key_hash(ticket), request=uuid4().hex, about=about or ""
        )
        if not content:
            return None
        name, key_id, scopes, conversation_id, *who = json.loads(content)
        return replace(_principal(name, key_id, who), scopes=frozenset(scopes), conversation_id=conversation_id)


class Sessions:
    """Browser cookies: a principal and an expiry time, sealed for the files of workspaces or for one preview.

    Limitation: the cookie of a key from the settings stays valid until it expires, even if the settings change the key.
    """

    def __init__(self, sealer: Sealer, clock: Callable[[], Micros]) -> None:
        """clock: reads Redis' clock. Both methods raise its errors."""
        self._sealer = sealer
        self._clock = clock

    def make(self, principal: Principal, about: str = "") -> str:
        """Make the cookie of a principal. about: label of a preview; "" for files. Raises CookieUnsealed."""
        now = self._clock()
        who = [principal.person, principal.groups] if principal.person else []
        content = [principal.name, principal.key_id, seconds(now) + SESSION_SECONDS, *who]
        try:
            return self._sealer.seal_for_a_time("session", about, json.dumps(content), now)
        except SecretsRefused:
            raise CookieUnsealed from None

    def find(self, cookie: str, about: str = "") -> tuple[Principal, float] | None:
        """Return the principal of a cookie and its remaining seconds; None if it is invalid or expired.

        The principal has no key if the server required none when it made the cookie.
        """
        now = self._clock()
        opened = self._sealer.open_for_a_time("session", about, cookie, SESSION_SECONDS, now)
        if opened is None:
            return None
        name, key_id, until, *who = json.loads(opened)
        left = until - now / 1e6
        return (_principal(name, key_id, who), left) if left > 0 else None


def _principal(name: str, key_id: str, who: list[Any]) -> Principal:
    """Make a principal without scopes. who: name and groups of a person, as in a ticket; empty for a key."""
    person, groups = who or ("", ())
    return Principal(name, key_id, person=person, groups=tuple(groups))
