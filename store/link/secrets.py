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

from core.wire import ConversationId, Micros
from store.errors import KeyUnreadable, SecretsRefused
from store.keys import SEAL_CHECK
from store.link.commands import Redis

DIFFERS = (
    "SECRET_KEY is not the key that the data in Redis were sealed with: secrets and sandboxes that are sealed with "
    "the other key cannot be used here. Give every host the same SECRET_KEY; it may have several keys, the first seals."
)


class Sealer:
    """Seals with the first of its keys and opens with any; without a key it refuses everything."""

    def __init__(self, secret_keys: tuple[str, ...]) -> None:
        self._secret_keys = secret_keys

    def seal(self, conversation_id: ConversationId, secrets: Mapping[str, object]) -> dict[str, bytes]:
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

    def seal_body(self, conversation_id: ConversationId, body: Mapping[str, object]) -> bytes:
        """What a request brought that starts an agent, sealed. Raises SecretsRefused when no key is set."""
        return self.seal_bytes("start", conversation_id, zlib.compress(json.dumps(body).encode()))

    def open_body(self, conversation_id: ConversationId, sealed: bytes) -> dict[str, object]:
        """The same, unsealed. Raises SecretsRefused as `open`."""
        body: dict[str, object] = json.loads(zlib.decompress(self.open_bytes("start", conversation_id, sealed)))
        return body

    def seal_key(self, sandbox_id: str, key: str) -> str:
        """A key of a sandbox, sealed. Raises SecretsRefused when no key is set."""
        return self.seal_bytes("sandbox", sandbox_id, key.encode()).decode()

    def open_key(self, sandbox_id: str, sealed: str) -> str:
        """A key of a sandbox, unsealed; empty where it has none. Raises KeyUnreadable."""
        try:
            return self.open_bytes("sandbox", sandbox_id, sealed.encode()).decode() if sealed else ""
        except SecretsRefused:
            raise KeyUnreadable(sandbox_id) from None

    def seal_bytes(self, kind: str, owner: str, content: bytes) -> bytes:
        """Anything of one owner, sealed. Raises SecretsRefused when no key is set."""
        return self._cipher(kind, owner).encrypt(content)

    def open_bytes(self, kind: str, owner: str, sealed: bytes) -> bytes:
        """The same, unsealed. Raises SecretsRefused as `open`."""
        try:
            return self._cipher(kind, owner).decrypt(sealed)
        except InvalidToken:
            raise SecretsRefused from None

    def seal_for_a_time(self, kind: str, owner: str, text: str, now: Micros) -> str:
        """What a client carries back, sealed. Raises SecretsRefused when no key is set."""
        return self._cipher(kind, owner).encrypt_at_time(text.encode(), seconds(now)).decode()

    def open_for_a_time(self, kind: str, owner: str, sealed: str, lasts: int, now: Micros) -> str | None:
        """The same, unsealed; None for what was not sealed for this owner, or longer than `lasts` seconds ago."""
        try:
            return self._cipher(kind, owner).decrypt_at_time(sealed.encode(), lasts, seconds(now)).decode()
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


class SealCheck:
    """The check of one process."""

    def __init__(self, probe: Redis, sealer: Sealer) -> None:
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
        word = self._probe.get(SEAL_CHECK)
        if word is None:
            self._probe.set(SEAL_CHECK, self._sealer.seal_word(), nx=True)
            word = self._probe.get(SEAL_CHECK) or b""
        if not self._sealer.opens_word(word):
            return DIFFERS
        if not self._sealer.opens_word(word, first_alone=True):
            self._probe.set(SEAL_CHECK, self._sealer.seal_word())
        return None
