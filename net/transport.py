"""An httpx transport over connections with a deadline. The egress proxy uses these connections without httpx."""

import ssl

import httpcore
import httpx

from net.connections import Backend


class Transport(httpx.HTTPTransport):
    """httpx's own transport without proxies, over connections with a deadline."""

    def __init__(
        self,
        limits: httpx.Limits,
        backend: httpcore.NetworkBackend | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """backend: opens the connections, if only some addresses are allowed."""
        # httpx has no parameter for the network backend, so replace its pool, which then needs no certificates.
        super().__init__(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust_env=False)
        self._pool = httpcore.ConnectionPool(
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=backend or Backend(),
            ssl_context=ssl_context,
        )
