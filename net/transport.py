"""The transport of httpx over connections that know their deadline. The way out has these connections without httpx."""

import ssl

import httpcore
import httpx

from net.connections import Backend


class Transport(httpx.HTTPTransport):
    """httpx's own transport without proxies, over connections that know the deadline."""

    def __init__(
        self,
        limits: httpx.Limits,
        backend: httpcore.NetworkBackend | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """backend: what opens the connections, where not every address may be connected to."""
        # httpx has no parameter for the network backend of its pool: its own pool goes, and needs no certificates.
        super().__init__(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust_env=False)
        self._pool = httpcore.ConnectionPool(
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=backend or Backend(),
            ssl_context=ssl_context,
        )
