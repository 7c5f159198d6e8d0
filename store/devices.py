"""Devices: browsers that receive notifications by web push (RFC 8030).

A device belongs to the person or key that added it. It ends with the key, after DEVICE_DAYS without a renewal, and when
its push service reports that it is gone. Its address and its keys are sealed. Its queue, state and leases are those of
a target (`store/notifications.py`).

Push services identify this server by a key (VAPID, RFC 8292). The first worker that needs the key creates it.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from core.access import Principal
from core.refused import RefusalKind
from core.wire import Micros
from store.errors import SecretsRefused, StoreError
from store.keys import NotifyKeys
from store.link.commands import Redis
from store.link.secrets import Sealer
from store.notifications import TargetState, Try, target_state
from store.record import BESIDE, HashRecord, pairs
from store.scripts import Scripts
from store.scripts.calls import KeepDevice

#: Maximum number of devices in all, and of one owner.
MOST_DEVICES, MOST_OWN = 1000, 10

#: Days for which a device receives notifications without a renewal. The console renews it whenever it opens.
DEVICE_DAYS = 90


class DeviceNotFound(StoreError):
    """The caller has no device with this id."""

    kind = RefusalKind.MISSING
    words = "Device not found. GET /api/v1/devices lists yours"


class TooManyDevices(StoreError):
    """The maximum number of devices is reached."""

    kind = RefusalKind.CONFLICT

    def __init__(self, *, own: bool) -> None:
        if own:
            super().__init__(f"You have {MOST_OWN} devices that ring: end one first, by DELETE /api/v1/devices/ID")
        else:
            super().__init__(f"Limit of {MOST_DEVICES} devices of all people reached: end one first")


class DevicesUnsealed(StoreError):
    """The server has no SECRET_KEY for the addresses of devices, or another one than sealed them."""

    kind = RefusalKind.UNSERVED
    words = (
        "Devices cannot ring: the server has no SECRET_KEY, or another SECRET_KEY has sealed its push key. Its "
        "operator sets SECRET_KEY, or appends the earlier one after a comma"
    )


class PushAddress(NamedTuple):
    """Where a push service accepts messages for a device, and the keys that they are encrypted for. All are secret."""

    endpoint: str
    p256dh: str  #: public key of the browser, base64url
    auth: str  #: secret shared by the browser, base64url
    proof: str = ""  #: digest of the owner's key if it is from the settings, with which the device ends

    @property
    def id(self) -> str:
        """Return the id of its device, which depends on the browser alone."""
        return sha256("\n".join(self[:3]).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device(HashRecord):
    """A browser that receives notifications."""

    key = NotifyKeys.device("ID")
    id: str = field(metadata=BESIDE)
    owner: str  #: id of the key, or of the person, that added it
    name: str  #: name of that key or person
    person: str = ""  #: id of a person from a trusted proxy; empty: a key
    groups: tuple[str, ...] = ()  #: groups of that person, at the last renewal
    scopes: tuple[str, ...] = ()
    key_id: str = ""  #: empty: no key was required
    label: str
    host: str  #: host of its push service
    shows: str  #: `everything`, or `nothing` except that something waits
    added_at: Micros | None = None  #: None: added before the store recorded this
    renewed_at: Micros
    expires_at: Micros
    address: bytes  #: a PushAddress, sealed
    state: TargetState = field(metadata=BESIDE)

    def may(self, scope: str) -> bool:
        return Principal(self.name, scopes=frozenset(filter(None, self.scopes))).may(scope)  # type: ignore[arg-type]


class Devices:
    def __init__(self, redis: Redis, scripts: Scripts, sealer: Sealer) -> None:
        self._redis = redis
        self._scripts = scripts
        self._sealer = sealer
        self._key: ec.EllipticCurvePrivateKey | None = None

    def keep(self, principal: Principal, address: PushAddress, *, label: str, host: str, shows: str) -> Device:
        """Store a device of the caller, or renew it. Raises TooManyDevices, DevicesUnsealed."""
        fields = dict(
            name=principal.name,
            person=principal.person,
            groups=principal.groups,
            scopes=() if principal.person else tuple(sorted(principal.scopes)),
            key_id=principal.key_id,
            label=label,
            host=host,
            shows=shows,
            address=self._sealed("device", address.id, json.dumps(address).encode()),
        )
        reply = self._scripts.keep_device(
            NotifyKeys.root,
            id=address.id,
            owner=principal.owner,
            lasts=DEVICE_DAYS * 86_400,
            most=MOST_DEVICES,
            most_own=MOST_OWN,
            fields=Device.fields_of(**fields),
        )
        if not isinstance(reply, KeepDevice.Kept):
            raise TooManyDevices(own=reply == "own full")
        return self.all([address.id])[0]

    def all(self, device_ids: Collection[str] = ()) -> list[Device]:
        """Return the devices that have not expired, all or by id. One round trip."""
        return [
            Device.read(pairs(row.device), id=row.id, state=target_state(row.id, "", row.queued, row.oldest, row.state))
            for row in self._scripts.read_devices(NotifyKeys.root, ids=device_ids)
        ]

    def number(self) -> int:
        """Return the number of devices, including expired ones. One round trip."""
        return int(self._redis.zcard(NotifyKeys.devices))

    def end(self, device_ids: Collection[str]) -> int:
        """Delete devices with their queues. Returns how many existed."""
        return self._scripts.end_devices(NotifyKeys.root, ids=device_ids) if device_ids else 0

    def address_of(self, device: Device) -> PushAddress:
        """Return the address of a device. Raises DevicesUnsealed."""
        return PushAddress(*json.loads(self._opened("device", device.id, device.address)))

    def claim(self, token: str, seconds: float) -> Try | None:
        """Take the lease of a device whose oldest message is due. One round trip."""
        reply = self._scripts.claim_ring(NotifyKeys.root, token=token, span=round(seconds * 1000))
        return None if reply is None else Try(reply.device, token, *reply[1:])

    def push_key(self) -> ec.EllipticCurvePrivateKey:
        """Return the key by which push services identify this server. One worker creates it. Raises DevicesUnsealed."""
        if self._key is None:
            sealed = self._redis.get(NotifyKeys.push_key)
            if sealed is None:
                made = ec.generate_private_key(ec.SECP256R1())
                text = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
                self._redis.set(NotifyKeys.push_key, self._sealed("push", "key", text), nx=True)
                sealed = self._redis.get(NotifyKeys.push_key)
            opened = load_pem_private_key(self._opened("push", "key", sealed or b""), None)
            assert isinstance(opened, ec.EllipticCurvePrivateKey)
            self._key = opened
        return self._key

    def _sealed(self, kind: str, owner: str, content: bytes) -> bytes:
        try:
            return self._sealer.seal_bytes(kind, owner, content)
        except SecretsRefused:
            raise DevicesUnsealed from None

    def _opened(self, kind: str, owner: str, sealed: bytes) -> bytes:
        try:
            return self._sealer.open_bytes(kind, owner, sealed)
        except SecretsRefused:
            raise DevicesUnsealed from None


def public_point(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the public key as an uncompressed point, for browsers and push services."""
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
