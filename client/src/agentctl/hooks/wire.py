"""Requests to the agent server, with the standard library alone: a hook starts at each call of a tool."""

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

from agentctl.hooks import VERSION

#: Seconds for a connection and for a response, beside the seconds of a long poll.
_CONNECT, _RESPONSE = 3.0, 10.0


class Away(Exception):
    """The server does not answer, or not yet; the message says why."""


class RequestRefused(Exception):
    """The server refuses a request."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(f"{status}: {body.get('detail', '')}")
        self.status, self.body = status, body


class ServerConnection:
    """One server, by a connection that stays open between requests."""

    def __init__(self, url: str, key: str) -> None:
        self.url, self._key = url.rstrip("/"), key
        self._connection: http.client.HTTPConnection | None = None

    def call(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, once: str = "", waits: float = 0.0
    ) -> dict[str, Any]:
        """Send a request and return the JSON of its response.

        once: its Idempotency-Key. waits: seconds for which the server may hold the response.
        Raises Away and RequestRefused.
        """
        headers = {"Accept": "application/json", "Connection": "keep-alive"}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Authorization": f"Bearer {self._key}"} if self._key else {}
        headers["User-Agent"] = f"agentctl/{VERSION} hook"
        headers |= {"Idempotency-Key": once} if once else {}
        data = None if body is None else json.dumps(body).encode()
        try:
            connection = self._connected()
            if connection.sock is not None:
                connection.sock.settimeout(_RESPONSE + waits)
            connection.request(method, urlsplit(self.url).path + path, data, headers)
            response = connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Away(f"{self.url} does not answer: {str(error) or type(error).__name__}") from None
        try:
            found = json.loads(raw) if raw else {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Away(f"{self.url} answers {response.status} without a JSON object")
        if response.status in (429, 502, 503, 504) or response.getheader("Retry-After"):
            raise Away(f"{self.url} answers {response.status}: {found.get('detail', '')}")
        if response.status >= 300:
            raise RequestRefused(response.status, found)
        return found

    def again(self) -> "ServerConnection":
        """Return the same server with a connection of its own."""
        return ServerConnection(self.url, self._key)

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            address = urlsplit(self.url)
            host = address.hostname or ""
            if address.scheme == "https":
                context = ssl.create_default_context()
                made: http.client.HTTPConnection = http.client.HTTPSConnection(
                    host, address.port, timeout=_CONNECT, context=context
                )
            else:
                made = http.client.HTTPConnection(host, address.port, timeout=_CONNECT)
            made.connect()
            self._connection = made
        return self._connection
