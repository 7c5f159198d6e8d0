"""Name resolution, address checks, and connections.

The proxy connects to the address that it has checked, so DNS rebinding has no effect.

A lookup occupies a resolver thread until the name's server answers, and that server may be the sandbox's own. Therefore
the number of concurrent lookups is limited, per sandbox and in total, to fewer than the resolver has threads.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

import httpcore
import psutil

from net.addresses import is_public
from net.connections import Backend

#: Timeout of a connection attempt in seconds, and maximum number of addresses that are tried.
CONNECT_SECONDS, _MOST_TRIED = 10.0, 4

#: Maximum number of concurrent lookups of a sandbox and of all, and seconds for which another lookup waits.
MOST_LOOKUPS, MOST_LOOKUPS_IN_ALL, _LOOKUP_SECONDS = 4, 64, 10.0


class Unreachable(OSError):
    """A name has no address that a sandbox may reach. The message is a sentence."""


class TooManyLookups(Exception):
    """The limit of concurrent lookups is reached. The message is a sentence that names it."""

    def __init__(self, status: int, sentence: str) -> None:
        """status: 429 for the sandbox's own limit, 503 for the total."""
        super().__init__(sentence)
        self.status = status


class Lookups:
    """Limits concurrent lookups. Thread-safe, also for greenlets."""

    def __init__(
        self, most: int = MOST_LOOKUPS, most_in_all: int = MOST_LOOKUPS_IN_ALL, seconds: float = _LOOKUP_SECONDS
    ) -> None:
        """most, most_in_all: concurrent lookups, of a sandbox and in total. seconds: for which another one waits."""
        self._most, self._most_in_all, self._seconds = most, most_in_all, seconds
        self._in_all = threading.BoundedSemaphore(most_in_all)
        self._lock = threading.Lock()  #: of the next
        self._shares: WeakValueDictionary[str, threading.BoundedSemaphore] = WeakValueDictionary()
        self._share: ContextVar[threading.BoundedSemaphore | None] = ContextVar("share", default=None)

    @contextlib.contextmanager
    def of(self, sandbox_id: str) -> Iterator[None]:
        """Count the lookups of this thread or greenlet in the block for a sandbox."""
        with self._lock:
            share = self._shares.setdefault(sandbox_id, threading.BoundedSemaphore(self._most))
        token = self._share.set(share)
        try:
            yield
        finally:
            self._share.reset(token)

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Hold one lookup of the limit during the block. Raises TooManyLookups."""
        # Take the sandbox's limit first, so that one sandbox has few lookups in the queue of all.
        share = self._share.get() or threading.BoundedSemaphore(1)
        with (
            self._room(share, 429, f"This sandbox is already looking up {self._most} names, the most allowed at once"),
            self._room(
                self._in_all,
                503,
                f"{self._most_in_all} names are being looked up on this host, the most allowed at once",
            ),
        ):
            yield

    @contextlib.contextmanager
    def _room(self, room: threading.BoundedSemaphore, status: int, full: str) -> Iterator[None]:
        if not room.acquire(timeout=self._seconds):
            raise TooManyLookups(status, f"{full}, and none was answered within {self._seconds:g} s: try again")
        try:
            yield
        finally:
            room.release()


def looked_up(name: str) -> list[str]:
    """Resolve a name with this machine's resolver. Raises OSError."""
    # A final dot disables the resolver's search list, which could turn the name into another.
    return _resolved(f"{name}.")


def _resolved(name: str) -> list[str]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def own_addresses() -> frozenset[str]:
    """Return the addresses of this machine."""
    interfaces = psutil.net_if_addrs().values()
    return frozenset(each.address.partition("%")[0] for interface in interfaces for each in interface)


@dataclass(frozen=True)
class Resolver:
    """Connects to names. look_up: raises OSError. is_open: whether an address is allowed. own: this machine's."""

    look_up: Callable[[str], list[str]] = looked_up
    is_open: Callable[[str, Collection[str]], bool] = is_public
    own: Callable[[], Collection[str]] = own_addresses
    seconds: float = field(default=CONNECT_SECONDS)
    lookups: Lookups = field(default_factory=Lookups)

    def to_services(self) -> "Resolver":
        """Return a resolver for a spec's services, which may have any address. It shares the limit of lookups."""
        return replace(self, look_up=_resolved, is_open=lambda *_: True, own=tuple)

    def addresses(self, name: str) -> list[str]:
        """Return the allowed addresses of a name. Raises Unreachable and TooManyLookups."""
        try:
            with self.lookups.place():
                found = self.look_up(name)
        except (OSError, UnicodeError):
            raise Unreachable(f"{name} has no address") from None
        own = self.own()
        if not (reached := [address for address in found if self.is_open(address, own)]):
            raise Unreachable(f"{name} has no public address: sandboxes reach no private network and not this machine")
        return reached[:_MOST_TRIED]

    def connect(self, name: str, port: int) -> socket.socket:
        """Connect to a destination. Raises Unreachable and TooManyLookups."""
        for address in self.addresses(name):
            try:
                return socket.create_connection((address, port), self.seconds)
            except OSError:
                continue
        raise Unreachable(f"{name}:{port} does not answer")

    def backend(self) -> Backend:
        """Return a network backend for httpcore. It raises httpcore.ConnectError and TooManyLookups."""

        def addresses(name: str, _: int) -> list[str]:
            try:
                return self.addresses(name)
            except Unreachable as error:
                raise httpcore.ConnectError(str(error)) from None

        return Backend(addresses)
