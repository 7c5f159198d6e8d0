"""Secrets, bodies of starts and keys in Redis: sealed with SECRET_KEY, which Redis never has.

A value is sealed for one owner, a conversation or a sandbox: moved to another one it does not open. What opens for a
time alone bears the time at which it was sealed. The caller says what the time is, by Redis' clock: hosts whose clocks
differ open what another one has sealed, and a step of a host's clock opens and closes nothing.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from redis import Redis

from core.wire import ConversationId, Micros
from store.errors import KeyUnreadable, SecretsRefused
from store.keys import SEAL_CHECK

#: seconds for which a client can carry back a secret that it was shown sealed
SHOWN_SECONDS = 24 * 3600


class Sealer:
    """Seals with the first of its keys and opens with any; without a key it refuses everything."""

    def __init__(self, secret_keys: tuple[str, ...]) -> None:
        self._secret_keys = secret_keys

    def seal(self, conversation_id: ConversationId, secrets: Mapping[str, Any]) -> dict[str, bytes]:
        """Secrets by name, as JSON, sealed. Raises SecretsRefused when there are any and no key is set."""
        if not secrets:
            return {}
        cipher = self._cipher("conversation", conversation_id)
        return {name: cipher.encrypt(json.dumps(value).encode()) for name, value in secrets.items()}

    def open(self, conversation_id: ConversationId, sealed: Mapping[str, Any]) -> dict[str, Any]:
        """Secrets by name, unsealed. Raises SecretsRefused when no key is set, or another one than sealed them."""
        if not sealed:
            return {}
        cipher = self._cipher("conversation", conversation_id)
        try:
            return {name: json.loads(cipher.decrypt(value)) for name, value in sealed.items()}
        except InvalidToken:
            raise SecretsRefused from None

    def seal_body(self, conversation_id: ConversationId, body: Mapping[str, Any]) -> bytes:
        """What a request brought that starts an agent, sealed. Raises SecretsRefused when no key is set."""
        return self._cipher("start", conversation_id).encrypt(zlib.compress(json.dumps(body).encode()))

    def open_body(self, conversation_id: ConversationId, sealed: bytes) -> dict[str, Any]:
        """The same, unsealed. Raises SecretsRefused as `open`."""
        try:
            text = zlib.decompress(self._cipher("start", conversation_id).decrypt(sealed))
        except InvalidToken:
            raise SecretsRefused from None
        body: dict[str, Any] = json.loads(text)
        return body

    def seal_key(self, sandbox_id: str, key: str) -> str:
        """A key of a sandbox, sealed. Raises SecretsRefused when no key is set."""
        return self._cipher("sandbox", sandbox_id).encrypt(key.encode()).decode()

    def open_key(self, sandbox_id: str, sealed: str) -> str:
        """A key of a sandbox, unsealed; empty where it has none. Raises KeyUnreadable."""
        if not sealed:
            return ""
        try:
            return self._cipher("sandbox", sandbox_id).decrypt(sealed.encode()).decode()
        except (InvalidToken, SecretsRefused):
            raise KeyUnreadable(sandbox_id) from None

    def seal_message(self, message_id: str, body: str) -> bytes:
        """The body of a notification, sealed. Raises SecretsRefused when no key is set."""
        return self._cipher("notification", message_id).encrypt(body.encode())

    def open_message(self, message_id: str, sealed: bytes) -> str:
        """The same, unsealed. Raises SecretsRefused as `open`."""
        try:
            return self._cipher("notification", message_id).decrypt(sealed).decode()
        except InvalidToken:
            raise SecretsRefused from None

    def seal_setting(self, owner: str, text: str) -> bytes:
        """What a key keeps for its clients, sealed. Raises SecretsRefused when no key is set."""
        return self._cipher("settings", owner).encrypt(zlib.compress(text.encode()))

    def open_setting(self, owner: str, sealed: bytes) -> str:
        """The same, unsealed. Raises SecretsRefused as `open`."""
        try:
            return zlib.decompress(self._cipher("settings", owner).decrypt(sealed)).decode()
        except InvalidToken:
            raise SecretsRefused from None

    def seal_shown(self, owner: str, text: str, now: Micros) -> str:
        """A secret of a key as its clients carry it back, for SHOWN_SECONDS. Raises SecretsRefused as `seal_body`."""
        return self._cipher("shown", owner).encrypt_at_time(text.encode(), seconds(now)).decode()

    def open_shown(self, owner: str, shown: str, now: Micros) -> str | None:
        """The same, unsealed; None for a text that was not sealed for this key, or too long ago."""
        try:
            return self._cipher("shown", owner).decrypt_at_time(shown.encode(), SHOWN_SECONDS, seconds(now)).decode()
        except (InvalidToken, SecretsRefused):
            return None

    def seal_session(self, text: str, now: Micros, what: str = "") -> str:
        """What a cookie says, sealed. what: that it opens alone. Raises SecretsRefused when no key is set."""
        return self._cipher("session", what).encrypt_at_time(text.encode(), seconds(now)).decode()

    def open_session(self, cookie: str, lasts: int, now: Micros, what: str = "") -> str | None:
        """The same, unsealed; None for what is no such cookie of this server, or is older than `lasts` seconds."""
        try:
            return self._cipher("session", what).decrypt_at_time(cookie.encode(), lasts, seconds(now)).decode()
        except (InvalidToken, SecretsRefused):
            return None

    @property
    def has_key(self) -> bool:
        return bool(self._secret_keys)

    def seal_word(self) -> bytes:
        """A word that only holders of the first key open."""
        return self._cipher("check", "").encrypt(b"sealed")

    def opens_word(self, word: bytes, *, first_alone: bool = False) -> bool:
        """Whether one of the keys, or the first alone, has sealed a word."""
        try:
            (Sealer(self._secret_keys[:1]) if first_alone else self)._cipher("check", "").decrypt(word)
        except InvalidToken:
            return False
        return True

    def _cipher(self, kind: str, identity: str) -> MultiFernet:
        if not self._secret_keys:
            raise SecretsRefused
        return MultiFernet([fernet_for(key, f"{kind} {identity}") for key in self._secret_keys])


def seconds(at: Micros) -> int:
    """An instant in whole seconds, as a seal bears it."""
    return at // 1_000_000


def fernet_for(secret_key: str, owner: str) -> Fernet:
    """The cipher of one owner, `conversation ID` or `sandbox ID`."""
    derived = HKDF(SHA256(), 32, salt=None, info=owner.encode())
    return Fernet(base64.urlsafe_b64encode(derived.derive(secret_key.encode())))


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
