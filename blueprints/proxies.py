"""What a proxy says of its client: believed of the proxies that TRUSTED_PROXIES names, and of nobody else."""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from werkzeug.middleware.proxy_fix import ProxyFix


class TrustedProxies:
    """Sets the client's address, scheme and host from the `X-Forwarded-` headers of a trusted proxy.

    Of each header the last value counts, which the proxy has added itself: what a client has sent before it does not.
    """

    def __init__(self, app: Any, networks: Iterable[str]) -> None:
        """networks: addresses or networks of proxies."""
        self._app = app
        self._behind_a_proxy = ProxyFix(app, x_for=1, x_proto=1, x_host=1)
        self._networks = [ip_network(network) for network in networks]

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        is_trusted = self._trusts(environ.get("REMOTE_ADDR", ""))
        return (self._behind_a_proxy if is_trusted else self._app)(environ, start_response)

    def _trusts(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:  # a Unix socket has none
            return False
        if isinstance(address, IPv6Address):
            address = address.ipv4_mapped or address
        return any(address in network for network in self._networks)
