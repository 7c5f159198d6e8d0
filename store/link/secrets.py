"""Sealing of secrets, start requests and keys in Redis with SECRET_KEY, which Redis never has.

A value is sealed for one owner, a conversation or a sandbox, and does not open for another. Values with a lifetime
contain the time of sealing, by Redis' clock, which the caller passes: the hosts' clocks do not matter.
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
    "The data in Redis were sealed with another SECRET_KEY: secrets and sandboxes that were sealed with it cannot be "
    "used here. Give every host the same SECRET_KEY; it may have several keys, of which the first seals."
)


class Sealer:
    """Seals with the first of its keys and opens with any. Without a key it refuses everything."""

    def __init__(self, secret_keys: tuple[str, ...]) -> None:
        self._secret_keys = secret_keys

    def seal(self, conversation_id: ConversationId, secrets: Mapping[str, object]) -> dict[str, bytes]:
        """Seal secrets by name, as JSON. Raises SecretsRefused if there are any and no key is set."""
        if not secrets:
            return {}
        cipher = self._cipher("conversation", conversation_id)
        return {name: cipher.encrypt(json.dumps(value).encode()) for name, value in secrets.items()}

    def open(self, conversation_id: ConversationId, sealed: Mapping[str, Any]) -> dict[str, Any]:
        """Unseal secrets by name. Raises SecretsRefused if no key is set, or another key sealed them."""
        if not sealed:
            return {}
        cipher = self._cipher("conversation", conversation_id)
        try:
            return {name: json.loads(cipher.decrypt(value)) for name, value in sealed.items()}
        except InvalidToken:
            raise SecretsRefused from None

    def seal_body(self, conversation_id: ConversationId, body: Mapping[str, object]) -> bytes:
        """Seal the body of a start request. Raises SecretsRefused if no key is set."""
        return self.seal_bytes("start", conversation_id, zlib.compress(json.dumps(body).encode()))

    def open_body(self, conversation_id: ConversationId, sealed: bytes) -> dict[str, object]:
        """Unseal the body of a start request. Raises SecretsRefused as `open`."""
        body: dict[str, object] = json.loads(zlib.decompress(self.open_bytes("start", conversation_id, sealed)))
        return body

    def seal_key(self, sandbox_id: str, key: str) -> str:
        """Seal a key of a sandbox. Raises SecretsRefused if no key is set."""
        return self.seal_bytes("sandbox", sandbox_id, key.encode()).decode()

    def open_key(self, sandbox_id: str, sealed: str) -> str:
        """Unseal a key of a sandbox; empty if it has none. Raises KeyUnreadable."""
        try:
            return self.open_bytes("sandbox", sandbox_id, sealed.encode()).decode() if sealed else ""
        except SecretsRefused:
            raise KeyUnreadable(sandbox_id) from None

    def seal_bytes(self, kind: str, owner: str, content: bytes) -> bytes:
        """Seal bytes for an owner. Raises SecretsRefused if no key is set."""
        return self._cipher(kind, owner).encrypt(content)

    def open_bytes(self, kind: str, owner: str, sealed: bytes) -> bytes:
        """Unseal bytes of an owner. Raises SecretsRefused as `open`."""
        try:
            return self._cipher(kind, owner).decrypt(sealed)
        except InvalidToken:
            raise SecretsRefused from None

    def seal_for_a_time(self, kind: str, owner: str, text: str, now: Micros) -> str:
        """Seal a text that a client will send back. Raises SecretsRefused if no key is set."""
        return self._cipher(kind, owner).encrypt_at_time(text.encode(), seconds(now)).decode()

    def open_for_a_time(self, kind: str, owner: str, sealed: str, lasts: int, now: Micros) -> str | None:
        """Unseal such a text; None if it was sealed for another owner, or more than `lasts` seconds ago."""
        try:
            return self._cipher(kind, owner).decrypt_at_time(sealed.encode(), lasts, seconds(now)).decode()
        except (InvalidToken, SecretsRefused):
            return None

    @property
    def has_key(self) -> bool:
        return bool(self._secret_keys)

    def seal_word(self) -> bytes:
        """Seal a check word, which only holders of the first key can open."""
        return self._cipher("check", "").encrypt(b"sealed")

    def opens_word(self, word: bytes, *, first_alone: bool = False) -> bool:
        """Return whether one of the keys, or the first alone, opens a check word."""
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
    """Return a time in whole seconds, as seals contain it."""
    return at // 1_000_000


def fernet_for(secret_key: str, owner: str) -> Fernet:
    """Return the cipher of an owner, `conversation ID` or `sandbox ID`."""
    derived = HKDF(SHA256(), 32, salt=None, info=owner.encode())
    return Fernet(base64.urlsafe_b64encode(derived.derive(secret_key.encode())))


class SealCheck:
    """Checks that this process has the SECRET_KEY of the stored data."""

    def __init__(self, probe: Redis, sealer: Sealer) -> None:
        """probe: a client whose timeout is so short that a request may ask first."""
        self._probe = probe
        self._sealer = sealer

    def fault(self) -> str | None:
        """Describe a wrong SECRET_KEY for the operator; None if it is right, or if no key is set.

        If an older key of this process sealed the check word, the first key seals it again. At most two round trips.
        Raises one of UNAVAILABLE.
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
