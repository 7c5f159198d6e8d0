"""The load generator: keep-alive connections, prebuilt requests, and minimal parsing.

It runs in the bench's own process, beside one worker and one Redis. `Load.busy` shows whether it had spare time.
"""

import multiprocessing
import multiprocessing.connection
import resource
import select
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

#: Timeout of a response, which ends the run, and of a delivery, which then counts as lost, in seconds.
TIMEOUT = 30.0

Item = TypeVar("Item")


@dataclass(frozen=True)
class Load:
    """The responses and their latencies. busy: the generator's share of a core."""

    latencies: list[float]  #: seconds per request
    seconds: float
    busy: float

    @property
    def requests(self) -> int:
        return len(self.latencies)

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


def get(path: str, *headers: str) -> bytes:
    more = "".join(f"{header}\r\n" for header in headers)
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n{more}\r\n".encode()


def post(path: str, body: bytes, *headers: str) -> bytes:
    """Return a POST request of JSON as bytes."""
    more = "".join(f"{header}\r\n" for header in headers)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def ask(port: int, request: bytes) -> bytes:
    """Return the body of one response. Raises RuntimeError for any status except 200."""
    with closing(BenchConnection(port)) as connection:
        return connection.exchange(request)


def create(port: int, path: str, body: bytes) -> None:
    """Post a request that creates something. Raises RuntimeError for any status except 201."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as connection:
        connection.sendall(post(path, body))
        if not (answer := connection.recv(65536)).startswith(b"HTTP/1.1 201"):
            raise RuntimeError(f"not answered with 201: {answer[:500]!r}")


def paced(items: Iterable[Item], rate: float | None) -> Iterator[Item]:
    """Yield items at a rate per second; without a rate, as fast as they are consumed."""
    start = time.monotonic()
    for number, item in enumerate(items):
        if rate is not None:
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
        yield item


def drive(
    port: int, requests: Iterable[bytes], *, connections: int, seconds: float = 600.0, expect: bytes | None = None
) -> Load:
    """Keep every connection busy until the requests or the seconds end.

    Raises RuntimeError for a status except 200, and for an unexpected body.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(BenchConnection(port))) for _ in range(connections)]
        cpu, start = time.process_time(), time.perf_counter()
        latencies = _exchange(opened, iter(requests), start + seconds, expect)
        elapsed = time.perf_counter() - start
        return Load(latencies, elapsed, (time.process_time() - cpu) / elapsed)


def _exchange(
    opened: list["BenchConnection"], queue: Iterator[bytes], until: float, expect: bytes | None
) -> list[float]:
    """Send from the queue on every free connection. Return the seconds of each request."""
    poll, by_number = select.poll(), {connection.number: connection for connection in opened}
    latencies, in_flight = list[float](), 0
    for connection in opened:
        poll.register(connection.number, select.POLLIN)
        in_flight += connection.send_next(queue)
    while in_flight:
        for number, _ in poll.poll(TIMEOUT * 1000) or _give_up():
            body = by_number[number].receive()
            if body is None:
                continue
            if expect is not None and body != expect:
                raise RuntimeError(f"expected {expect!r}, got {body!r}")
            now = time.perf_counter()
            latencies.append(now - by_number[number].sent_at)
            in_flight -= 1
            if now < until:
                in_flight += by_number[number].send_next(queue)
    return latencies


def _give_up() -> list[tuple[int, int]]:
    raise RuntimeError(f"no response within {TIMEOUT:g} s")


class BenchConnection:
    """One keep-alive connection with at most one request in progress.

    any_status: accept a response of any status. Otherwise raises RuntimeError for a status except 200.
    """

    def __init__(self, port: int, *, any_status: bool = False) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._any_status = any_status
        self.number = self._socket.fileno()
        self.sent_at = 0.0  #: by `time.perf_counter`

    def send_next(self, queue: Iterator[bytes]) -> bool:
        """Send the next request. Return False if there is none."""
        request = next(queue, None)
        if request is not None:
            self.sent_at = time.perf_counter()
            self._socket.sendall(request)
        return request is not None

    def exchange(self, request: bytes) -> bytes:
        """Send a request, and return the body of its response."""
        self.send_next(iter([request]))
        while (body := self.receive()) is None:
            pass
        return body

    def receive(self) -> bytes | None:
        """Read the received bytes. Return the response's body once it is complete, otherwise None."""
        read = self._socket.recv(65536)
        if not read:
            raise RuntimeError("the server closed the connection")
        reply = self._received + read
        head, end, body = reply.partition(b"\r\n\r\n")
        at = head.lower().find(b"\r\ncontent-length:")
        if not end or at < 0 or len(body) < int(head[at + 17 :].split(b"\r\n", 1)[0]):
            self._received = reply
            return None
        if not self._any_status and not reply.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"not answered with 200: {reply[:500]!r}")
        self._received = b""
        return body

    def close(self) -> None:
        self._socket.close()


class Received:
    """The deliveries of one measurement: seconds from sending to receiving, and total seconds."""

    def __init__(self, latencies: list[float], seconds: float) -> None:
        self.latencies = sorted(latencies)
        self.seconds = seconds

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        """Return a percentile, in milliseconds."""
        return 1000 * self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]


class LoadListener(Protocol):
    socket: socket.socket
    received: list[Any]

    @property
    def is_wrong(self) -> bool:
        """Return whether it received anything unexpected."""

    def receive(self, latencies: list[float]) -> None:
        """Read the received bytes, and add the latency of each delivery in seconds."""


def received(open_all: Callable[[], Sequence[LoadListener]], deliveries: int, append: Callable[[], None]) -> Received:
    """Open the listeners in another process, then append, and wait for `deliveries` deliveries in all.

    Raises RuntimeError if a delivery is missing, doubled or out of order.
    """
    with beside(_listen, open_all, deliveries) as pipe:
        start = time.monotonic()
        append()
        if not pipe.poll(TIMEOUT):
            raise RuntimeError(f"the listeners did not receive everything within {TIMEOUT:g} s")
        answer = pipe.recv()
    if isinstance(answer, str):
        raise RuntimeError(answer)
    return Received(answer, time.monotonic() - start)


def _listen(
    pipe: multiprocessing.connection.Connection, open_all: Callable[[], Sequence[LoadListener]], left: int
) -> None:
    """Receive every delivery. Send back the latencies in seconds, or the error."""
    listeners = open_all()
    selector = selectors.DefaultSelector()
    for listener in listeners:
        selector.register(listener.socket, selectors.EVENT_READ, listener)
    pipe.send("open")
    latencies: list[float] = []
    while len(latencies) < left:
        for key, _ in selector.select(TIMEOUT):
            key.data.receive(latencies)
    wrong = [listener.received for listener in listeners if listener.is_wrong]
    pipe.send(f"an event is missing, doubled or out of order: {wrong[0]}" if wrong else latencies)
    time.sleep(TIMEOUT)


@contextmanager
def beside(work: Callable[..., None], *arguments: Any) -> Iterator[multiprocessing.connection.Connection]:
    """Run `work(pipe, *arguments)` in another process, from its message "open" until the block ends.

    Yields the other end of the pipe. Raises RuntimeError if the process sends no "open" or ends early.
    """
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_run, args=(work, theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(TIMEOUT) or ours.recv() != "open":
            raise RuntimeError(f"the process of {work} did not start")
        yield ours
        if not process.is_alive():
            raise RuntimeError(f"the process of {work} ended early")
    finally:
        process.terminate()
        process.join()


def _run(work: Callable[..., None], *arguments: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each connection is a file
    work(*arguments)
