"""Sends one message to one webhook, signed. Source: Standard Webhooks.

A webhook is not trusted: one deadline covers the whole try, a redirect is not followed, and the connection goes to an
address that was checked. What fails is said in words of our own: a response could repeat the URL, which may be secret.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import httpcore
import httpx
from standardwebhooks import Webhook

from agents.transport import Backend, Transport, deadline
from notifications.addresses import AddressRefused, checked
from notifications.failures import NotDelivered, TargetGone
from notifications.targets import Target
from wire import Micros

#: seconds of one try, and most bytes of a response that are read
TRY_SECONDS, _MOST_BYTES = 10.0, 64 * 1024

#: what is said of a failure; the first class that fits counts
_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (httpx.ConnectTimeout, "it took no connection in time"),
    (httpx.ConnectError, "it takes no connection"),
    (httpx.TimeoutException, "it sent no whole response in time"),
    (httpx.RemoteProtocolError, "it ended the connection within the response, or the response is no HTTP"),
    (httpx.NetworkError, "the connection broke"),
)


class Webhooks:
    """All webhooks. Any number of threads may use it."""

    def __init__(self, *, private: bool, seconds: float = TRY_SECONDS) -> None:
        """private: they may have private addresses. seconds: of one try."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        # Certificates that SSL_CERT_FILE or SSL_CERT_DIR names count, as within a company.
        self._transport = Transport(limits, _CheckedBackend(private), httpx.create_ssl_context())
        self._seconds = seconds

    def send(self, target: Target, message_id: str, body: str, at: Micros) -> None:
        """Try once. at: the time of the try, which the signature covers. Raises NotDelivered, TargetGone."""
        time = datetime.fromtimestamp(at // 1_000_000, UTC)
        headers = {
            "content-type": "application/json",
            "user-agent": "agent-server",
            "webhook-id": message_id,
            "webhook-timestamp": str(at // 1_000_000),
            "webhook-signature": Webhook(target.secret).sign(message_id, time, body),
        }
        timeout = httpx.Timeout(self._seconds).as_dict()
        request = httpx.Request(
            "POST", target.url, headers=headers, content=body.encode(), extensions={"timeout": timeout}
        )
        try:
            with deadline(self._seconds):
                status = self._status_of(request)
        except AddressRefused as error:
            raise NotDelivered(str(error)) from None
        except httpx.HTTPError as error:
            words = next((words for kind, words in _WORDS if isinstance(error, kind)), "the request failed")
            raise NotDelivered(f"{words} ({type(error).__name__})") from None
        if status == 410:
            raise TargetGone("it answered 410: it wants no more")
        if not 200 <= status < 300:
            redirected = ", and redirects are not followed" if 300 <= status < 400 else ""
            raise NotDelivered(f"it answered {status}{redirected}")

    def _status_of(self, request: httpx.Request) -> int:
        """The status of a response that came whole, or of which as much came as is read."""
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


class _CheckedBackend(httpcore.NetworkBackend):
    """Connects to an address that was checked, and resolves no name twice."""

    def __init__(self, private: bool) -> None:
        self._private = private
        self._backend = Backend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        *others, last = checked(host, port, private=self._private)
        for address in others:
            try:
                return self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except httpcore.ConnectError:
                continue
        return self._backend.connect_tcp(last, port, timeout, local_address, socket_options)
