"""From a name to a connection: the name is looked up here, its addresses are checked, and one of them is connected to.

The address that was checked is the one that is connected to, so a name that changes in between (DNS rebinding) changes
nothing.

A look-up takes a thread of the resolver for as long as the name's server is silent, which may be the sandbox's own. So
look-ups have places: a few at once of each sandbox, and fewer in all than the resolver has threads.
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

#: seconds until a connection stands, and addresses of a name that are tried
CONNECT_SECONDS, _MOST_TRIED = 10.0, 4

#: names that are looked up at once for one sandbox and for all, and seconds for which the next look-up waits
MOST_LOOKUPS, MOST_LOOKUPS_IN_ALL, _LOOKUP_SECONDS = 4, 64, 10.0


class Unreachable(OSError):
    """A name leads nowhere that a sandbox may reach; the message is a sentence."""


class TooManyLookups(Exception):
    """A name that is not looked up, for others are; the message is a sentence that names the bound."""

    def __init__(self, status: int, sentence: str) -> None:
        """status: 429 where the sandbox itself looks up the others, else 503."""
        super().__init__(sentence)
        self.status = status


class Lookups:
    """The places for looking names up. Any thread or greenlet may use it."""

    def __init__(
        self, most: int = MOST_LOOKUPS, most_in_all: int = MOST_LOOKUPS_IN_ALL, seconds: float = _LOOKUP_SECONDS
    ) -> None:
        """most, most_in_all: look-ups at once. seconds: for which the next one waits."""
        self._most, self._most_in_all, self._seconds = most, most_in_all, seconds
        self._in_all = threading.BoundedSemaphore(most_in_all)
        self._lock = threading.Lock()  #: of the next
        self._shares: WeakValueDictionary[str, threading.BoundedSemaphore] = WeakValueDictionary()
        self._share: ContextVar[threading.BoundedSemaphore | None] = ContextVar("share", default=None)

    @contextlib.contextmanager
    def of(self, sandbox_id: str) -> Iterator[None]:
        """What this thread or greenlet looks up in the block is one sandbox's."""
        with self._lock:
            share = self._shares.setdefault(sandbox_id, threading.BoundedSemaphore(self._most))
        token = self._share.set(share)
        try:
            yield
        finally:
            self._share.reset(token)

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Wait for a place, and keep it for the block. Raises TooManyLookups."""
        # Whoever waits for the host's room has room of its sandbox's: one sandbox puts few before the others.
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
    """The addresses of a name, by this machine's resolver. Raises OSError."""
    # The dot at its end keeps the resolver's search list away, by which the name could be another one.
    return _resolved(f"{name}.")


def _resolved(name: str) -> list[str]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
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
    lookups: Lookups = field(default_factory=Lookups)

    def to_services(self) -> "Roads":
        """Roads to what the spec names, wherever it is, whose look-ups share these places."""
        return replace(self, look_up=_resolved, is_open=lambda *_: True, own=tuple)

    def addresses(self, name: str) -> list[str]:
        """The addresses of a name that may be reached. Raises Unreachable, TooManyLookups."""
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
        """A connection to a destination. Raises Unreachable, TooManyLookups."""
        for address in self.addresses(name):
            try:
                return socket.create_connection((address, port), self.seconds)
            except OSError:
                continue
        raise Unreachable(f"{name}:{port} does not answer")

    def backend(self) -> Backend:
        """What connects a pool of httpcore by these roads. It raises httpcore.ConnectError, TooManyLookups."""

        def addresses(name: str, _: int) -> list[str]:
            try:
                return self.addresses(name)
            except Unreachable as error:
                raise httpcore.ConnectError(str(error)) from None

        return Backend(addresses)
