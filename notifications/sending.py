"""Sends a message to a target: a webhook, signed (source: Standard Webhooks), or a service of Apprise.

A webhook is not trusted: an attempt has a single deadline, redirects are not followed, and the address is checked.
Failures are described in our own words, because a response could repeat the URL, which may be secret. Limitation:
Apprise resolves the host of a URL again after the check, follows redirects, and reports no reason for a failure.

The settings name the targets. A host is resolved once and each of its addresses is checked, so that a name cannot lead
to the metadata service of a cloud or, without NOTIFY_PRIVATE, into the network of the server.

The `Desk` shows notifications to operators, and sends their tests.
"""

import logging
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import scrypt
from importlib import import_module
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
from standardwebhooks import Webhook

from core import wire
from core.refused import RefusalKind
from core.wire import Micros
from net.addresses import Reach, reach
from net.connections import Backend, deadline
from net.transport import Transport
from notifications.messages import body_of_test, text_of
from settings.notify import NotifySettings
from store import Store
from store.errors import UNAVAILABLE, StoreError
from store.notifications import TargetState

if TYPE_CHECKING:
    from apprise import NotifyBase

#: Schemes of Apprise whose URLs have a host. Other schemes have a token in its place.
_WITH_HOST = ("form", "json", "mailto", "xml")


#: Timeout of an attempt in seconds, and maximum number of bytes of a response that are read.
TRY_SECONDS, _MOST_BYTES = 10.0, 64 * 1024

#: Descriptions of failures; the first matching class counts.
_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (httpx.ConnectTimeout, "it took no connection in time"),
    (httpx.ConnectError, "it takes no connection"),
    (httpx.TimeoutException, "it sent no complete response in time"),
    (httpx.RemoteProtocolError, "it ended the connection within the response, or the response is no HTTP"),
    (httpx.NetworkError, "the connection broke"),
)

#: Timeout of an attempt by Apprise, in seconds.
SERVICE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class SendingTarget:
    """A webhook or a service of Apprise. Its id and its name contain no secret."""

    id: str  #: of its URL: independent of restarts and of its secret
    name: str  #: scheme and host
    url: str = field(repr=False)
    secret: str = field(default="", repr=False)  #: `whsec_…`; empty: Apprise sends

    @property
    def kind(self) -> str:
        """Return `webhook` or `apprise`."""
        return "webhook" if self.secret else "apprise"


def targets_of(settings: NotifySettings) -> tuple[SendingTarget, ...]:
    """Return the targets in the order of the settings, each URL once."""
    pairs = [one.rpartition("|")[::2] for one in settings.notify_webhooks.split()]
    found = [SendingTarget(_id(url), _name(url), url, secret) for url, secret in pairs]
    found += [SendingTarget(_id(url), _name(url), url) for url in settings.notify_urls.split()]
    return tuple({target.id: target for target in found}.values())


@cache
def _id(url: str) -> str:
    # A slow hash, so that nobody can guess a URL's password from its id.
    return scrypt(url.encode(), salt=b"agent-server target", n=2**13, r=8, p=1, dklen=6).hex()


def _name(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme in ("http", "https"):
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"
    scheme = url.partition("://")[0].lower()
    return f"{scheme}://{parts.hostname or ''}" if scheme.removesuffix("s") in _WITH_HOST else f"{scheme}://…"


class AddressRefused(Exception):
    """Raised for a host that must not be contacted. The message names no path."""


class HostUnknown(AddressRefused):
    """Raised for a host without an address."""


def checked(host: str, port: int, *, private: bool, setting: str = "NOTIFY_PRIVATE") -> list[str]:
    """Return the addresses of a host, after checking each. private: allow private networks. setting: named in errors.

    Raises AddressRefused if an address is not allowed, HostUnknown if the host has none.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise HostUnknown(f"The host {host} does not resolve") from None
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    for address in addresses:
        if reason := refusal(address, private=private, setting=setting):
            raise AddressRefused(f"The host {host} has the address {address}, which is {reason}")
    return addresses


def refusal(address: str, *, private: bool, setting: str = "NOTIFY_PRIVATE") -> str:
    """Return why an address must not be contacted; empty if it may. setting: allows private addresses."""
    match reach(ip_address(address.partition("%")[0])):
        case Reach.NEVER:
            return "link-local, multicast or reserved: none is sent there"
        case Reach.PRIVATE if not private:
            return f"private: {setting}=1 allows it"
    return ""


class NotDelivered(Exception):
    """Raised if a target did not accept a message. The message has the reason."""


class TargetGone(NotDelivered):
    """Raised if a target rejects further messages."""


class Posts:
    """Sends requests to untrusted hosts. Thread-safe."""

    def __init__(self, *, private: bool, seconds: float = TRY_SECONDS, setting: str = "NOTIFY_PRIVATE") -> None:
        """private: allow private addresses. seconds: timeout of an attempt. setting: that allows private addresses."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        # Certificates of SSL_CERT_FILE or SSL_CERT_DIR are trusted, for instance a company's.
        backend = Backend(partial(checked, private=private, setting=setting))  # it resolves each name once
        self._transport = Transport(limits, backend, httpx.create_ssl_context())
        self._seconds = seconds

    def send(self, url: str, headers: dict[str, str], content: bytes) -> int:
        """Send a request once, and return the status: of success, 404 or 410. Raises NotDelivered."""
        timeout = httpx.Timeout(self._seconds).as_dict()
        headers = {"user-agent": "agent-server", **headers}
        request = httpx.Request("POST", url, headers=headers, content=content, extensions={"timeout": timeout})
        try:
            with deadline(self._seconds):
                status = self._status_of(request)
        except AddressRefused as error:
            raise NotDelivered(str(error)) from None
        except httpx.HTTPError as error:
            words = next((words for kind, words in _WORDS if isinstance(error, kind)), "the request failed")
            raise NotDelivered(f"{words} ({type(error).__name__})") from None
        if not 200 <= status < 300 and status not in (404, 410):
            redirected = ", and redirects are not followed" if 300 <= status < 400 else ""
            raise NotDelivered(f"it answered {status}{redirected}")
        return status

    def _status_of(self, request: httpx.Request) -> int:
        """Return the status of a response, after reading its body up to the maximum."""
        response = self._transport.handle_request(request)
        received = 0
        try:
            for chunk in response.iter_raw():
                received += len(chunk)
                if received > _MOST_BYTES:
                    break
        finally:
            response.close()
        return response.status_code


class Webhooks:
    """All webhooks. Thread-safe."""

    def __init__(self, *, private: bool, seconds: float = TRY_SECONDS) -> None:
        """Arguments: as for Posts."""
        self._posts = Posts(private=private, seconds=seconds)

    def send(self, target: SendingTarget, message_id: str, body: str, at: Micros) -> None:
        """Send a message once. at: the current time, which the signature covers. Raises NotDelivered, TargetGone."""
        time = datetime.fromtimestamp(at // 1_000_000, UTC)
        headers = {
            "content-type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": str(at // 1_000_000),
            "webhook-signature": Webhook(target.secret).sign(message_id, time, body),
        }
        status = self._posts.send(target.url, headers, body.encode())
        if status == 410:
            raise TargetGone("it responded 410: it rejects further messages")
        if status == 404:
            raise NotDelivered("it answered 404")


class Services:
    """All services of Apprise. Threads may use it for different targets at the same time."""

    def __init__(self, *, private: bool, seconds: float = SERVICE_SECONDS) -> None:
        """private: services with their own host may have private addresses. seconds: timeout of an attempt."""
        self._private = private
        self._seconds = seconds
        self._hanging: set[str] = set()  #: targets whose last attempt has not ended
        # Their logs contain URLs, paths and tokens.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        logging.getLogger("urllib3").setLevel(logging.ERROR)

    def send(self, target: SendingTarget, title: str, text: str) -> None:
        """Send a message once, in a thread that is abandoned on timeout. Raises NotDelivered."""
        if target.id in self._hanging:
            raise NotDelivered("the try before it still hangs")
        delivered: list[bool] = []
        reasons: list[str] = []
        self._hanging.add(target.id)

        def notify() -> None:
            try:
                delivered.append(self._service(target).notify(body=text, title=title))
            except NotDelivered as refusal:
                reasons.append(str(refusal))
            except Exception as error:  # an error of a plugin; its text may contain a secret
                reasons.append(f"its plugin raised {type(error).__name__}")
            finally:
                self._hanging.discard(target.id)

        thread = threading.Thread(target=notify, name=f"apprise {target.id}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no free thread
            self._hanging.discard(target.id)
            raise NotDelivered("this server has no thread for it") from None
        thread.join(self._seconds)
        if thread.is_alive():
            raise NotDelivered(f"it did not end within {self._seconds:g} seconds")
        if not any(delivered):
            raise NotDelivered(reasons[0] if reasons else "Apprise could not deliver it")

    def _service(self, target: SendingTarget) -> "NotifyBase":
        """Return the service of a URL, after checking its hosts. Raises NotDelivered."""
        apprise = import_module("apprise")  # takes a tenth of a worker's start, and few servers have such a target
        asset = apprise.AppriseAsset(app_id="agent-server", app_desc="agent-server", secure_logging=True)
        service: NotifyBase | None = apprise.Apprise.instantiate(target.url, asset=asset)
        if service is None:
            raise NotDelivered("Apprise knows no such URL")
        templates: tuple[str, ...] = service.templates
        has_host = any("{host}" in template for template in templates)
        for host in filter(None, (has_host and service.host, getattr(service, "smtp_host", None))):
            try:
                checked(host.strip("[]"), 0, private=self._private)
            except HostUnknown:
                continue  # some services have a topic there, and an unresolved host is not reached
            except AddressRefused:
                raise NotDelivered("its host has a forbidden address") from None
        return service


class NotificationSender:
    """Sends to all targets. Threads may use it for different targets at the same time."""

    def __init__(self, webhooks: Webhooks, services: Services) -> None:
        self._webhooks = webhooks
        self._services = services

    def send(self, target: SendingTarget, message_id: str, body: str, at: Micros) -> None:
        """Send a message once. at: the current time. Raises NotDelivered, TargetGone."""
        if target.kind == "webhook":
            self._webhooks.send(target, message_id, body, at)
        else:
            self._services.send(target, *text_of(body))


def open_sender(*, private: bool) -> NotificationSender:
    """Make the sender for all targets of this process. private: targets may have private addresses."""
    return NotificationSender(Webhooks(private=private), Services(private=private))


class NoTargets(StoreError):
    """The settings have no notification target."""

    kind = RefusalKind.CONFLICT
    words = "There is no target to test: neither NOTIFY_URLS nor NOTIFY_WEBHOOKS is set"


class UnknownTarget(StoreError):
    """The settings have no notification target with this id."""

    kind = RefusalKind.MEMBER
    member = "target"

    def __init__(self, known: Sequence[str]) -> None:
        super().__init__(f"Input should be the id of a target: one of {', '.join(known)}")


class TargetTestOutcome(NamedTuple):
    """The result of a test of a target."""

    id: str
    name: str
    delivered: bool
    detail: str  #: why it failed, or empty


class Desk:
    """Shows the queues, and sends test messages from this process."""

    def __init__(self, store: Store, targets: Sequence[SendingTarget], sender: NotificationSender) -> None:
        self._store = store
        self._targets = targets
        self._sender = sender

    def overview(self) -> dict[str, Any]:
        """Return the targets of the settings in order, other targets with a queue, the devices, and the outboxes."""
        known = self._store.notifications.targets.states()
        kinds = {target.id: target.kind for target in self._targets}
        ours = [known.pop(one.id, TargetState(one.id, one.name)) for one in self._targets]
        items = [{"kind": kinds.get(state.id), "state": state} for state in (*ours, *known.values())]
        for one in self._store.devices.all():
            items.append({"kind": "device", "state": replace(one.state, name=f"{one.name}: {one.label} ({one.host})")})
        return {
            "items": items,
            "outboxes": self._store.notifications.outboxes.states(),
        }

    def test(self, target_id: str | None) -> list[TargetTestOutcome]:
        """Send a test message to one target or to all in parallel. A success makes the target's queue due at once.

        Raises NoTargets, UnknownTarget.
        """
        if not self._targets:
            raise NoTargets
        chosen = [target for target in self._targets if target_id in (None, target.id)]
        if not chosen:
            raise UnknownTarget([target.id for target in self._targets])
        with ThreadPoolExecutor(len(chosen)) as pool:
            return list(pool.map(self._test, chosen))

    def _test(self, target: SendingTarget) -> TargetTestOutcome:
        at = wire.now()
        try:
            self._sender.send(target, f"msg_test-{uuid4()}", body_of_test(wire.utc_time(at)), at)
            self._store.notifications.targets.hurry(target.id)
        except NotDelivered as error:
            return TargetTestOutcome(target.id, target.name, False, str(error))
        except UNAVAILABLE:
            pass  # the test itself has succeeded
        return TargetTestOutcome(target.id, target.name, True, "")
