"""Devices: owners, rights, and web push: encrypted for the browser (RFC 8291), signed (RFC 8292).

A push service sees the ciphertext, its padded length, the time and the topic, which is a digest. It is not trusted: an
attempt has a single deadline, redirects are not followed, and the address is checked, as for a webhook.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Sequence
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

import http_ece
import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from core import wire
from core.access import Principal, SettingsKeys
from core.people import Person
from core.refused import RefusalKind
from core.wire import ConversationId, Micros
from notifications.rings import test_ring
from notifications.sending import NotDelivered, Posts, TargetGone, refusal
from settings.notify import NotifySettings
from store import Store
from store.devices import Device, DeviceNotFound, DevicesUnsealed, PushAddress, public_point
from store.errors import StoreError

#: The setting that allows private push services. Every reader can add a device, so it is separate from the webhooks'.
PRIVATE = "PUSH_PRIVATE"

#: Timeout of an attempt, in seconds.
RING_SECONDS = 5.0

#: Validity of a request's signature, in seconds (RFC 8292: at most a day).
_SIGNED_SECONDS = 43_200

#: Size of padding in bytes, so that the length of a plaintext reveals little of the command.
_PADDED = 512


class EndpointRefused(StoreError):
    """No device has its push service there."""

    kind = RefusalKind.MEMBER
    member = "endpoint"


class OutOfTime(NotDelivered):
    """Raised for an outdated message to a device."""


def host_of(endpoint: str, *, private: bool) -> str:
    """Return the host of an endpoint. Its address is checked with each request. Raises EndpointRefused."""
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise EndpointRefused("Input should be the URL of a push service, as the browser gives it") from None
    if parts.scheme != "https" and not private:
        raise EndpointRefused("Input should begin with https://: push services have no other URLs")
    if not host or port == 0 or "@" in parts.netloc or any(letter.isspace() for letter in endpoint):
        raise EndpointRefused("Input should be the URL of a push service, as the browser gives it")
    try:
        reason = refusal(str(ip_address(host)), private=private, setting=PRIVATE)
    except ValueError:
        reason = "" if private or "." in host.strip(".") else f"private: {PRIVATE}=1 allows it"
    if reason:
        raise EndpointRefused(f"The host {host} is {reason}")
    return host


class DeviceStanding:
    """Checks which devices still belong to a valid owner, and may decide."""

    def __init__(self, store: Store, keys: SettingsKeys, is_open: Callable[[], bool]) -> None:
        """keys: of the settings. is_open: returns whether no key is needed."""
        self._store = store
        self._keys = keys
        self._is_open = is_open

    def proof(self, principal: Principal) -> str:
        """Return the proof in a device's address for an owner whose key is in the settings."""
        return self._keys.proof(principal.key_id)

    def live(self, device_ids: Collection[str] = ()) -> list[Device]:
        """Return the devices whose owners may still use this server, and end the others. Cost: a few round trips.

        device_ids: of the requested devices; empty: all. A device whose seal cannot be opened is neither returned nor
        ended.
        """
        found = self._store.devices.all(device_ids)
        live = self._store.access.keys.live([one.key_id for one in found if one.key_id and not one.person])
        grants = self._store.access.people.all() if any(one.person for one in found) else []

        def stands(one: Device) -> bool | None:
            if one.person:
                return any(grant.is_of(_person(one)) for grant in grants)
            if not one.key_id:
                return self._is_open()
            if proof := self._keys.proof(one.key_id):
                try:
                    return proof == self._store.devices.address_of(one).proof
                except DevicesUnsealed:
                    return None
            return one.key_id in live

        standing = {one.id: stands(one) for one in found}
        self._store.devices.end([one.id for one in found if standing[one.id] is False])
        return [one for one in found if standing[one.id]]

    def find(self, device_id: str) -> Device | None:
        """Return a device whose owner may still use this server; None otherwise."""
        return next(iter(self.live([device_id])), None)

    def may_decide(self, device: Device, conversation_id: ConversationId | None) -> bool:
        """Return whether the owner of a device may decide in a conversation; None: several conversations.

        Cost: one round trip.
        """
        if not device.person:
            return device.may("approve")
        people, person = self._store.access.people, _person(device)
        if conversation_id is None:
            return people.may_everywhere(person, "approve") or people.may_everywhere(person, "admin")
        return bool({"approve", "admin"} & people.scopes(person, conversation_id))


def _person(device: Device) -> Person:
    return Person(device.person, tuple(filter(None, device.groups)))


class Rings:
    """Sends messages to devices. Thread-safe."""

    def __init__(self, store: Store, posts: Posts, *, contact: str) -> None:
        """contact: URL of the operator for push services; empty: none."""
        self._store = store
        self._posts = posts
        self._contact = contact

    def send(self, device: Device, body: str, at: Micros) -> None:
        """Send a message once. at: the current time. Raises NotDelivered, TargetGone, DevicesUnsealed."""
        ring = json.loads(body)
        left = (ring.pop("until") - at) // 1_000_000
        if left <= 0:
            raise OutOfTime("it came too late: its subject has ended")
        address, key = self._store.devices.address_of(device), self._store.devices.push_key()
        headers = {
            "authorization": f"vapid t={self._signed(address.endpoint, key, at)}, k={_text(public_point(key))}",
            "content-encoding": "aes128gcm",
            "content-type": "application/octet-stream",
            "ttl": str(left),
            "urgency": "normal" if ring["quiet"] else "high",
            "topic": ring["tag"][:32],
        }
        if ring["tag"].startswith("test"):
            del headers["topic"]
        status = self._posts.send(address.endpoint, headers, _sealed(json.dumps(ring), address))
        if status in (404, 410):
            raise TargetGone(f"its push service responded {status}: the device gets no more notifications")

    def _signed(self, endpoint: str, key: ec.EllipticCurvePrivateKey, at: Micros) -> str:
        parts = urlsplit(endpoint)
        claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": at // 1_000_000 + _SIGNED_SECONDS}
        return jwt.encode(claims | ({"sub": self._contact} if self._contact else {}), key, algorithm="ES256")


def open_rings(store: Store, settings: NotifySettings, public_url: str) -> Rings:
    """Make the sender for devices. public_url: the operator's URL for push services, unless a setting has one."""
    posts = Posts(private=bool(settings.push_private), seconds=RING_SECONDS, setting=PRIVATE)
    return Rings(store, posts, contact=settings.push_contact or (public_url if public_url[:6] == "https:" else ""))


def _sealed(text: str, address: PushAddress) -> bytes:
    """Encrypt the body of a request. JSON may end in spaces, which pad it."""
    padded = text.encode().ljust(-(-len(text) // _PADDED) * _PADDED)
    own = ec.generate_private_key(ec.SECP256R1())
    sealed: bytes = http_ece.encrypt(
        padded, private_key=own, dh=_bytes(address.p256dh), auth_secret=_bytes(address.auth), version="aes128gcm"
    )
    return sealed


def _text(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text.rstrip("=") + "==")


class RingOutcome(NamedTuple):
    """The result of a test of a device."""

    id: str
    name: str
    delivered: bool
    detail: str  #: why it failed, or empty


class DeviceDesk:
    """The operations of owners on their devices."""

    def __init__(self, store: Store, standing: DeviceStanding, sender: Rings, *, private: bool) -> None:
        """private: push services may have private addresses."""
        self.standing = standing
        self._store = store
        self._sender = sender
        self._private = private

    def push_key(self) -> str:
        """Return the public key with which a browser subscribes. Raises DevicesUnsealed."""
        return _text(public_point(self._store.devices.push_key()))

    def add(self, principal: Principal, endpoint: str, p256dh: str, auth: str, *, label: str, shows: str) -> Device:
        """Add or renew a device of the caller. Raises EndpointRefused, TooManyDevices, DevicesUnsealed."""
        host = host_of(endpoint, private=self._private)
        address = PushAddress(endpoint, p256dh, auth, self.standing.proof(principal))
        made = self._store.devices.keep(principal, address, label=label, host=host, shows=shows)
        self._store.notifications.outboxes.want()
        return made

    def own(self, principal: Principal) -> Sequence[Device]:
        """Return the devices of the caller, the latest renewal first."""
        found = [one for one in self.standing.live() if one.owner == principal.owner]
        return sorted(found, key=lambda one: one.renewed_at, reverse=True)

    def end(self, principal: Principal, device_id: str) -> None:
        """End a device of the caller. Raises DeviceNotFound."""
        self._store.devices.end([self._own(principal, device_id).id])

    def end_of(self, owner: str) -> None:
        """End the devices of a revoked key."""
        self._store.devices.end([one.id for one in self._store.devices.all() if one.owner == owner])

    def test(self, principal: Principal, device_id: str) -> RingOutcome:
        """Notify a device of the caller, from this process. Raises DeviceNotFound, DevicesUnsealed."""
        device, at = self._own(principal, device_id), wire.now()
        try:
            self._sender.send(device, test_ring(at), at)
        except NotDelivered as error:
            if isinstance(error, TargetGone):
                self._store.devices.end([device.id])
            return RingOutcome(device.id, device.label, False, str(error))
        return RingOutcome(device.id, device.label, True, "")

    def _own(self, principal: Principal, device_id: str) -> Device:
        for one in self.own(principal):
            if one.id == device_id:
                return one
        raise DeviceNotFound
