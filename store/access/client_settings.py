"""The entries of access keys: settings, profiles, connections, secrets, workspaces. Each entry is sealed.

An entry is a JSON value with a name such as `settings`, `llm NAME`, `connection ID` or `secret NAME`. Only clients of
its access key can read it, and it is deleted with that key. Changes use optimistic locking, so that two clients of a
key do not overwrite each other's changes.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from uuid import uuid4

from core.refused import RefusalKind
from core.wire import Micros
from store.errors import SecretsRefused, StoreError
from store.keys import ClientKeys
from store.link.commands import Redis
from store.link.secrets import Sealer
from store.record import HashRecord
from store.scripts import Scripts

#: Maximum number of entries of a key, and of their sealed bytes together.
MOST_ENTRIES, MOST_BYTES = 400, 1024 * 1024

#: Lifetime of a secret that `shown` has sealed for a client, in seconds. Later, the client cannot send it back.
SHOWN_SECONDS = 24 * 3600

#: Maximum number of attempts of a change, if concurrent changes keep winning.
_TRIES = 10

Result = TypeVar("Result")

Entries = dict[str, Any]


class TooManySettings(StoreError):
    """The key has the maximum number of entries."""

    kind = RefusalKind.CONFLICT
    words = f"A key keeps at most {MOST_ENTRIES} profiles, connections and secrets: delete some first"


class SettingsTooLong(StoreError):
    """The settings of the key would be too large."""

    kind = RefusalKind.TOO_LONG
    words = (
        f"The settings, profiles and secrets of a key are limited to {MOST_BYTES} bytes when they are sealed: "
        "delete some first"
    )


class SettingsBusy(StoreError):
    """Concurrent requests keep changing these settings."""

    kind = RefusalKind.BUSY
    words = "Another client of this key is changing its settings: try again"


class SettingsUnreadable(StoreError):
    """The settings of the key were sealed with another SECRET_KEY."""

    kind = RefusalKind.UNSERVED
    words = (
        "The settings of this key cannot be read: another SECRET_KEY has sealed them. Append that key to SECRET_KEY, "
        "after a comma"
    )


class SettingsUnkept(StoreError):
    """The server has no SECRET_KEY to seal settings with."""

    kind = RefusalKind.UNSERVED
    words = "Settings and secrets cannot be kept: the server has no SECRET_KEY. Its operator sets one"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord(HashRecord):
    """The entries of an access key."""

    key = ClientKeys.root("KEY")
    sealed: Annotated[Mapping[str, bytes], "of:*"]  #: name → sealed entry
    revision: int = 0
    request: str = ""  #: id of the last request that changed it


class ClientSettings:
    """The entries of all keys. owner: id of the key, as in `Principal.owner`."""

    def __init__(self, redis: Redis, scripts: Scripts, sealer: Sealer, clock: Callable[[], Micros]) -> None:
        """clock: reads Redis' clock."""
        self._redis = redis
        self._scripts = scripts
        self._sealer = sealer
        self._clock = clock

    def of(self, owner: str) -> Entries:
        """Return all entries of a key by name. One round trip. Raises SettingsUnreadable."""
        return self._read(owner)[1]

    def change(self, owner: str, change: Callable[[Entries], Result]) -> Result:
        """Let `change` modify the entries of a key in place. Return its result. It may be called several times.

        Raises the errors of `change`, and TooManySettings, SettingsTooLong, SettingsBusy, SettingsUnreadable,
        SettingsUnkept.
        """
        for _ in range(_TRIES):
            revision, entries = self._read(owner)
            before = {name: json.dumps(value) for name, value in entries.items()}
            result = change(entries)
            after = {name: json.dumps(value) for name, value in entries.items()}
            if after == before:
                return result
            changed = {name: text for name, text in after.items() if before.get(name) != text}
            outcome = self._scripts.change_settings(
                ClientKeys.root(owner),
                before=revision,
                id=uuid4().hex,
                most=MOST_ENTRIES,
                most_bytes=MOST_BYTES,
                changes=[
                    *((name, self._sealed(owner, text)) for name, text in changed.items()),
                    *((name, b"") for name in before.keys() - after.keys()),
                ],
            )
            match outcome:
                case "changed":
                    return result
                case "many":
                    raise TooManySettings
                case "long":
                    raise SettingsTooLong
        raise SettingsBusy

    def now(self) -> Micros:
        """Return the time of Redis' clock."""
        return self._clock()

    def forget(self, owner: str) -> None:
        """Delete all entries of a key."""
        self._redis.delete(ClientKeys.root(owner))

    def shown(self, owner: str, text: str) -> str:
        """Seal a secret, so that clients of a key can send it back to this server. Raises SettingsUnkept."""
        try:
            return self._sealer.seal_for_a_time("shown", owner, text, self._clock())
        except SecretsRefused:
            raise SettingsUnkept from None

    def meant(self, owner: str, shown: str) -> str | None:
        """Unseal a secret from `shown`; None if it was sealed for another key, or more than a day ago."""
        return self._sealer.open_for_a_time("shown", owner, shown, SHOWN_SECONDS, self._clock())

    def _read(self, owner: str) -> tuple[int, Entries]:
        found = ClientRecord.read(self._redis.hgetall(ClientKeys.root(owner)))
        try:
            return found.revision, {name: self._opened(owner, sealed) for name, sealed in found.sealed.items()}
        except SecretsRefused:
            raise SettingsUnreadable from None

    def _opened(self, owner: str, sealed: bytes) -> object:
        return json.loads(zlib.decompress(self._sealer.open_bytes("settings", owner, sealed)))

    def _sealed(self, owner: str, text: str) -> bytes:
        try:
            return self._sealer.seal_bytes("settings", owner, zlib.compress(text.encode()))
        except SecretsRefused:
            raise SettingsUnkept from None
