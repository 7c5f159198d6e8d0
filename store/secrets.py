"""Secrets in Redis: sealed with a key that only the server's settings hold."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from store.errors import SecretsRefused
from wire import ConversationId


class Sealer:
    """Seals secrets, each for one conversation; without a key it refuses every secret."""

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key

    def seal(self, conversation_id: ConversationId, secrets: Mapping[str, Any]) -> dict[str, bytes]:
        """Secrets by name, as JSON, sealed. Raises SecretsRefused when there are any and no key is set."""
        if not secrets:
            return {}
        if not self._secret_key:
            raise SecretsRefused
        fernet = fernet_for(self._secret_key, conversation_id)
        return {name: fernet.encrypt(json.dumps(value).encode()) for name, value in secrets.items()}

    def open(self, conversation_id: ConversationId, sealed: Mapping[str, Any]) -> dict[str, Any]:
        """Secrets by name, unsealed. Raises SecretsRefused when no key is set, or another one than sealed them."""
        if not sealed:
            return {}
        if not self._secret_key:
            raise SecretsRefused
        fernet = fernet_for(self._secret_key, conversation_id)
        try:
            return {name: json.loads(fernet.decrypt(value)) for name, value in sealed.items()}
        except InvalidToken:
            raise SecretsRefused from None


def fernet_for(secret_key: str, conversation_id: ConversationId) -> Fernet:
    """The cipher of one conversation's secrets: a secret that is moved to another conversation does not open there."""
    derived = HKDF(SHA256(), 32, salt=None, info=b"conversation " + conversation_id.encode())
    return Fernet(base64.urlsafe_b64encode(derived.derive(secret_key.encode())))
