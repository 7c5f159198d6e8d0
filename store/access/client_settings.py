"""What a key keeps for its clients: settings, profiles, connections, secrets, workspaces. Each is sealed.

An entry is a JSON value below a name such as `settings`, `llm NAME`, `connection ID` or `secret NAME`. Nobody but the
key it belongs to reads it, and it ends with the key. A change is written only if nothing else has changed since it was
read, so that two clients of a key do not undo each other's.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from uuid import uuid4

from core.refused import Kind
from core.wire import Micros
from store.errors import SecretsRefused, StoreError
from store.keys import ClientKeys
from store.link.commands import Redis
from store.link.secrets import Sealer
from store.record import Record
from store.scripts import Scripts

#: most entries of a key, and most bytes of them all as they are sealed
MOST_ENTRIES, MOST_BYTES = 400, 1024 * 1024

#: seconds for which a client can carry back a secret that it was shown sealed
SHOWN_SECONDS = 24 * 3600

#: times that a change is made again where another one came between
_TRIES = 10

Result = TypeVar("Result")

Entries = dict[str, Any]


class TooManySettings(StoreError):
    """The key has the maximum number of entries."""

    kind = Kind.CONFLICT
    words = f"A key keeps at most {MOST_ENTRIES} profiles, connections and secrets: delete some first"


class SettingsTooLong(StoreError):
    """The settings of the key would be too large."""

    kind = Kind.TOO_LONG
    words = (
        f"All that a key keeps, settings, profiles and secrets, has at most {MOST_BYTES} bytes when it is sealed: "
        "delete some first"
    )


class SettingsBusy(StoreError):
    """Other requests keep changing the same settings."""

    kind = Kind.BUSY
    words = "Another client of this key changes its settings at the moment: try again"


class SettingsUnreadable(StoreError):
    """The settings of the key were sealed with another SECRET_KEY."""

    kind = Kind.UNSERVED
    words = (
        "The settings of this key cannot be read: another SECRET_KEY has sealed them. Append that key to SECRET_KEY, "
        "after a comma"
    )


class SettingsUnkept(StoreError):
    """The server has no SECRET_KEY to seal settings with."""

    kind = Kind.UNSERVED
    words = "Settings and secrets cannot be kept: the server has no SECRET_KEY. Its operator sets one"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord(Record):
    """What a key keeps."""

    key = ClientKeys.root("KEY")
    sealed: Annotated[Mapping[str, bytes], "of:*"]  #: an entry
    revision: int = 0
    request: str = ""  #: id of the last request that changed it


class ClientSettings:
    """What every key keeps. owner: id of the key, as `Principal.owner` has it."""

    def __init__(self, redis: Redis, scripts: Scripts, sealer: Sealer, clock: Callable[[], Micros]) -> None:
        """clock: Redis'."""
        self._redis = redis
        self._scripts = scripts
        self._sealer = sealer
        self._clock = clock

    def of(self, owner: str) -> Entries:
        """All entries of a key, by name. One round trip. Raises SettingsUnreadable."""
        return self._read(owner)[1]

    def change(self, owner: str, change: Callable[[Entries], Result]) -> Result:
        """Change the entries of a key in place, and return what the change returns; it may be called again.

        Raises what the change raises, TooManySettings, SettingsTooLong, SettingsBusy, SettingsUnreadable,
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
        """The time by Redis' clock."""
        return self._clock()

    def forget(self, owner: str) -> None:
        """Forget all that a key keeps."""
        self._redis.delete(ClientKeys.root(owner))

    def shown(self, owner: str, text: str) -> str:
        """A secret as the clients of a key may carry it back to this server. Raises SettingsUnkept."""
        try:
            return self._sealer.seal_for_a_time("shown", owner, text, self._clock())
        except SecretsRefused:
            raise SettingsUnkept from None

    def meant(self, owner: str, shown: str) -> str | None:
        """The secret that `shown` has sealed for a key; None for what it has not, or longer ago than a day."""
        return self._sealer.open_for_a_time("shown", owner, shown, SHOWN_SECONDS, self._clock())

    def _read(self, owner: str) -> tuple[int, Entries]:
        """The revision and the entries."""
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
