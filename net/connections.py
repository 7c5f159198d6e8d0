"""Connections to untrusted servers, with a deadline for a whole call.

httpx limits single reads and writes, so a server that sends a byte per second could hold a call forever. A call without
a deadline, such as a stream, may have a pulse instead, which ends it when nobody waits. The process yields between
reads, however fast the server sends.
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

#: Deadline of this thread's call, in seconds of `time.monotonic`.
_deadline: ContextVar[float] = ContextVar("deadline")

#: Called by this thread's reads while they wait. It raises to end the call.
_pulse: ContextVar[Callable[[], None]] = ContextVar("pulse")

#: Seconds between two calls of a pulse.
_BEAT = 0.5

#: Maximum size of a write, in bytes: small enough that the kernel takes it whole or blocks.
_CHUNK = 16384

#: Maximum number of interim responses (1xx) before a response. Source: RFC 9110, 15.2
_MOST_INTERIM = 100

#: First bytes of an interim response, and the end of its head as h11 reads it.
_INTERIM, _BEGINNING, _HEAD_END = re.compile(rb"HTTP/[0-9]\.[0-9] 1"), 10, re.compile(rb"\n\r?\n")


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Set a timeout in seconds for all calls inside the block together. Raises httpx.TimeoutException."""
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def pulse(beat: Callable[[], None]) -> Iterator[None]:
    """Call `beat` every half second while the block reads or waits for bytes. An exception from it ends the read."""
    token = _pulse.set(beat)
    try:
        yield
    finally:
        _pulse.reset(token)


class Backend(httpcore.NetworkBackend):
    """Opens connections whose reads and writes end at the deadline."""

    def __init__(self, addresses: Callable[[str, int], Sequence[str]] = lambda host, _: (host,)) -> None:
        """addresses: the allowed addresses of a host and port. The first one that answers is used."""
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
        """Connect. Raises httpcore.ConnectError, ConnectTimeout, and the errors of `addresses`."""

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
        self._head = bytearray()  #: the head received so far, without interim responses
        self._interim = 0
        self._is_head_awaited = False

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        take_turns()  # a read of buffered bytes does not wait, and so does not yield
        data = self._read(max_bytes, timeout)
        if self._is_head_awaited:
            self._count_interim(data)
        return data

    def _count_interim(self, data: bytes) -> None:
        """Count interim responses. Raises RemoteProtocolError for too many, which the caller would skip forever."""
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
        if time.monotonic() - self._beaten_at > _BEAT:  # also if the server sends slowly, or sends an endless head
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
    """Return the seconds left for a read or write. Raises `error` after the deadline."""
    left = _deadline.get(float("inf")) - time.monotonic()
    if left <= 0:
        raise error("the deadline of the call has passed")
    return timeout if left == float("inf") else min(left, timeout or left)
