"""From a name to a connection: the name is looked up here, its addresses are checked, and one of them is connected to.

The address that was checked is the one that is connected to, so a name that changes in between (DNS rebinding) changes
nothing.
"""

import socket
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpcore
import psutil

from core.egress import is_public
from core.pauses import take_turns

#: seconds until a connection stands, and addresses of a name that are tried
CONNECT_SECONDS, _MOST_TRIED = 10.0, 4

#: bytes of a response that are read at once: interim responses are dropped as they are read, hundreds in a piece
_PIECE = 8192


class Unreachable(OSError):
    """A name leads nowhere that a sandbox may reach; the message is a sentence."""


def looked_up(name: str) -> list[str]:
    """The addresses of a name, by this machine's resolver. Raises OSError."""
    # The dot at its end keeps the resolver's search list away, by which the name could be another one.
    found = socket.getaddrinfo(f"{name}.", None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def own_addresses() -> frozenset[str]:
    """The addresses of this machine."""
    interfaces = psutil.net_if_addrs().values()
    return frozenset(each.address.partition("%")[0] for interface in interfaces for each in interface)


@dataclass(frozen=True)
class Roads:
    """Connects to names. look_up: raises OSError. is_open: whether an address may be reached; own: this machine's."""

    look_up: Callable[[str], list[str]] = looked_up
    is_open: Callable[[str, Collection[str]], bool] = is_public
    own: Callable[[], Collection[str]] = own_addresses
    seconds: float = field(default=CONNECT_SECONDS)

    def addresses(self, name: str) -> list[str]:
        """The addresses of a name that may be reached. Raises Unreachable."""
        try:
            found = self.look_up(name)
        except (OSError, UnicodeError):
            raise Unreachable(f"{name} has no address") from None
        own = self.own()
        if not (reached := [address for address in found if self.is_open(address, own)]):
            raise Unreachable(f"{name} has no public address: sandboxes reach no private network and not this machine")
        return reached[:_MOST_TRIED]

    def connect(self, name: str, port: int) -> socket.socket:
        """A connection to a destination. Raises Unreachable."""
        for address in self.addresses(name):
            try:
                return socket.create_connection((address, port), self.seconds)
            except OSError:
                continue
        raise Unreachable(f"{name}:{port} does not answer")


class RoadBackend(httpcore.NetworkBackend):
    """Connects a pool of httpcore by roads."""

    def __init__(self, roads: Roads) -> None:
        self._roads = roads
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Raises httpcore.ConnectError."""
        try:
            addresses = self._roads.addresses(host)
        except Unreachable as error:
            raise httpcore.ConnectError(str(error)) from None
        for address in addresses[:-1]:
            try:
                return _Stream(self._plain.connect_tcp(address, port, timeout, local_address, socket_options))
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return _Stream(self._plain.connect_tcp(addresses[-1], port, timeout, local_address, socket_options))


class _Stream(httpcore.NetworkStream):
    """A plain connection to a server that may send without end: the others get a turn between two reads."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        take_turns()
        return self._stream.read(min(max_bytes, _PIECE), timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
