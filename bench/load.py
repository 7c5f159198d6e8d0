"""The load generator: keep-alive connections, prebuilt requests, and no more parsing than a length needs.

It runs in the bench's own process, beside one worker and one Redis; `Load.busy` shows whether it had time to spare.
"""

import select
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

#: seconds without a response after which the run ends
_TIMEOUT = 30.0


@dataclass(frozen=True)
class Load:
    """The number of responses and the seconds they took; busy is the generator's own share of a core."""

    requests: int
    seconds: float
    busy: float

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds


def get(path: str, *headers: str) -> bytes:
    """A GET request as bytes."""
    more = "".join(f"{header}\r\n" for header in headers)
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n{more}\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    """A POST request of JSON as bytes."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def ask(port: int, request: bytes) -> bytes:
    """The body of one response. Raises RuntimeError for any status but 200."""
    with closing(Connection(port)) as connection:
        connection.send_next(iter([request]))
        while (body := connection.receive()) is None:
            pass
        return body


def create(port: int, path: str, body: bytes) -> None:
    """Post a request that creates something. Raises RuntimeError for any status but 201."""
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT) as connection:
        connection.sendall(post(path, body))
        if not (answer := connection.recv(65536)).startswith(b"HTTP/1.1 201"):
            raise RuntimeError(f"not answered with 201: {answer[:500]!r}")


def drive(
    port: int, requests: Iterable[bytes], *, connections: int, seconds: float = 600.0, expect: bytes | None = None
) -> Load:
    """Keep every connection busy until the requests or the seconds end.

    Raises RuntimeError for a status but 200, and for a body other than the one expected.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(Connection(port))) for _ in range(connections)]
        cpu, start = time.process_time(), time.perf_counter()
        answered = _exchange(opened, iter(requests), start + seconds, expect)
        elapsed = time.perf_counter() - start
        return Load(answered, elapsed, (time.process_time() - cpu) / elapsed)


def _exchange(opened: list["Connection"], queue: Iterator[bytes], until: float, expect: bytes | None) -> int:
    """Send from the queue on every connection whenever it is free; returns the number of responses."""
    poll, by_number = select.poll(), {connection.number: connection for connection in opened}
    answered = in_flight = 0
    for connection in opened:
        poll.register(connection.number, select.POLLIN)
        in_flight += connection.send_next(queue)
    while in_flight:
        for number, _ in poll.poll(_TIMEOUT * 1000) or _give_up():
            body = by_number[number].receive()
            if body is None:
                continue
            if expect is not None and body != expect:
                raise RuntimeError(f"expected {expect!r}, got {body!r}")
            answered += 1
            in_flight -= 1
            if time.perf_counter() < until:
                in_flight += by_number[number].send_next(queue)
    return answered


def _give_up() -> list[tuple[int, int]]:
    raise RuntimeError(f"no answer within {_TIMEOUT:g} s")


class Connection:
    """One keep-alive connection with at most one request under way."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self.number = self._socket.fileno()

    def send_next(self, queue: Iterator[bytes]) -> bool:
        """Send the next request; False if there is none."""
        request = next(queue, None)
        if request is not None:
            self._socket.sendall(request)
        return request is not None

    def receive(self) -> bytes | None:
        """Read the bytes that came; returns the response's body once it is complete, else None."""
        read = self._socket.recv(65536)
        if not read:
            raise RuntimeError("the server closed the connection")
        reply = self._received + read
        head, end, body = reply.partition(b"\r\n\r\n")
        at = head.lower().find(b"\r\ncontent-length:")
        if not end or at < 0 or len(body) < int(head[at + 17 :].split(b"\r\n", 1)[0]):
            self._received = reply
            return None
        if not reply.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"not answered with 200: {reply[:500]!r}")
        self._received = b""
        return body

    def close(self) -> None:
        self._socket.close()
