"""Connections to servers that are not trusted, which know the deadline of the call that they serve.

httpx limits each single read and write: a server that sends one byte a second would hold a call forever. A call without
a deadline, such as one that streams, may have a pulse instead: it ends when nobody waits. Between two reads the other
requests of the process get a turn, however fast the server sends.
"""

import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import httpcore

from core.pauses import take_turns

#: when the call of this thread ends, in seconds of `time.monotonic`
_deadline: ContextVar[float] = ContextVar("deadline")

#: what a read of this thread calls while it waits; it raises to end the call
_pulse: ContextVar[Callable[[], None]] = ContextVar("pulse")

#: seconds between two calls of a pulse
_BEAT = 0.5

#: bytes of one write: so few that the system takes them whole or makes the writer wait
_CHUNK = 16384

#: most interim responses (1xx) before a response. Source: RFC 9110, 15.2
_MOST_INTERIM = 100

#: how an interim response begins, in its first bytes, and what ends its head, as h11 reads it
_INTERIM, _BEGINNING, _HEAD_END = re.compile(rb"HTTP/[0-9]\.[0-9] 1"), 10, re.compile(rb"\n\r?\n")


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Limit the calls inside the block to so many seconds together; a longer call raises httpx.TimeoutException."""
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def pulse(beat: Callable[[], None]) -> Iterator[None]:
    """Call `beat` every half second while the block reads, or waits for bytes; what it raises ends the read."""
    token = _pulse.set(beat)
    try:
        yield
    finally:
        _pulse.reset(token)


class Backend(httpcore.NetworkBackend):
    """Opens connections whose every read and write ends at the deadline."""

    def __init__(self, addresses: Callable[[str, int], Sequence[str]] = lambda host, _: (host,)) -> None:
        """addresses: of a host and port, those that may be connected to; the first one that answers is."""
        self._addresses = addresses
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Raises httpcore.ConnectError, ConnectTimeout, and what `addresses` raises."""

        def connect(address: str) -> _Stream:
            left = _left(timeout, httpcore.ConnectTimeout)
            return _Stream(self._backend.connect_tcp(address, port, left, local_address, socket_options))

        *others, last = self._addresses(host, port)
        for address in others:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return connect(address)
        return connect(last)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._beaten_at = time.monotonic()
        self._head = bytearray()  #: what has come of it, without the interim responses before
        self._interim = 0
        self._is_head_awaited = False

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        take_turns()  # no read waits for bytes that are there already
        data = self._read(max_bytes, timeout)
        if self._is_head_awaited:
            self._count_interim(data)
        return data

    def _count_interim(self, data: bytes) -> None:
        """Raises RemoteProtocolError of interim responses without end, each of which would be read and dropped."""
        self._head += data
        while _INTERIM.match(self._head) and (end := _HEAD_END.search(self._head)):
            del self._head[: end.end()]
            self._interim += 1
            if self._interim > _MOST_INTERIM:
                raise httpcore.RemoteProtocolError(f"more than {_MOST_INTERIM} interim responses")
        self._is_head_awaited = len(self._head) < _BEGINNING or _INTERIM.match(self._head) is not None
        if not self._is_head_awaited:
            self._head.clear()

    def _read(self, max_bytes: int, timeout: float | None) -> bytes:
        beat = _pulse.get(None)
        if beat is None:
            return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))
        if time.monotonic() - self._beaten_at > _BEAT:  # also of one that drips, or sends a head without end
            self._beaten_at = time.monotonic()
            beat()
        last = time.monotonic() + (timeout or float("inf"))
        while True:
            left = _left(max(min(_BEAT, last - time.monotonic()), 0.001), httpcore.ReadTimeout)
            try:
                return self._stream.read(max_bytes, left)
            except httpcore.ReadTimeout:
                beat()
                if time.monotonic() >= last:
                    raise

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._head.clear()
        self._interim, self._is_head_awaited = 0, True
        for start in range(0, len(buffer), _CHUNK):
            self._stream.write(buffer[start : start + _CHUNK], _left(timeout, httpcore.WriteTimeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left))

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left(timeout: float | None, error: type[httpcore.TimeoutException]) -> float | None:
    """The seconds that a read or write may take. Raises `error` when the deadline has passed."""
    left = _deadline.get(float("inf")) - time.monotonic()
    if left <= 0:
        raise error("the deadline of the call has passed")
    return timeout if left == float("inf") else min(left, timeout or left)
