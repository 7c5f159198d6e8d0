"""A push service with one browser behind it, which decrypts what comes by the text of RFC 8291 and RFC 8188 alone."""

import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.notifications import WebhookReceiver


def b64(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt, info).derive(secret)


def opened(body: bytes, key: ec.EllipticCurvePrivateKey, auth: bytes) -> bytes:
    """The plaintext of a body of one record. Sources: RFC 8188, 2.1; RFC 8291, 3.4."""
    salt, size, length = body[:16], int.from_bytes(body[16:20]), body[20]
    sender, record = body[21 : 21 + length], body[21 + length :]
    assert len(record) <= size
    theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
    info = b"WebPush: info\0" + point(key) + sender
    ikm = derived(key.exchange(ec.ECDH(), theirs), auth, info, 32)
    content_key = derived(ikm, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = derived(ikm, salt, b"Content-Encoding: nonce\0", 12)
    plain = AESGCM(content_key).decrypt(nonce, record, None).rstrip(b"\0")
    assert plain.endswith(b"\x02"), "the delimiter of the last record"
    return plain[:-1]


@dataclass
class PushService(WebhookReceiver):
    """`taken` has the rings of its one browser."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    auth: bytes = field(default_factory=lambda: os.urandom(16))
    claims: list[dict[str, Any]] = field(default_factory=list)  #: of the verified signatures

    @property
    def subscription(self) -> dict[str, Any]:
        """What the browser's `PushSubscription.toJSON()` gives."""
        keys = {"p256dh": b64(point(self.key)), "auth": b64(self.auth)}
        return {"endpoint": self.url, "expirationTime": None, "keys": keys}

    def take(self, headers: dict[str, str], body: bytes) -> None:
        assert headers["content-encoding"] == "aes128gcm"
        assert len(body) <= 4096
        scheme, _, words = headers["authorization"].partition(" ")
        signature, public = (part.strip()[2:] for part in words.split(","))
        assert scheme == "vapid"
        known = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), unb64(public))
        audience = f"http://127.0.0.1:{self.port}"
        self.claims.append(jwt.decode(signature, known, algorithms=["ES256"], audience=audience))
        self.taken.append(json.loads(opened(body, self.key, self.auth)))
        self.ids.append(headers.get("topic", ""))
