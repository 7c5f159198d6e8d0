"""A body that comes after the response to its request, or does not come: others have their share."""

import itertools
import socket
from types import SimpleNamespace

import gevent
import pytest
from gevent.socket import socket as GreenSocket
from gunicorn.config import Config
from gunicorn.http import get_parser
from gunicorn.workers.ggevent import GeventWorker

from boot import http
from boot.http import RequestBody
from boot.worker import Worker, WorkerConnection
from settings.http import HttpSettings
from tests.servers import TIMEOUT

HEAD = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture
def client():
    """The client's end of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, WorkerConnection(theirs.family, theirs.type, theirs.proto, fileno=theirs.detach())


@pytest.fixture
def worker(monkeypatch):
    """A worker that serves nothing by itself, and whose app reads no body."""
    worker = Worker.__new__(Worker)
    worker._served, worker._waiting, worker._open = SimpleNamespace(network=""), {}, 0
    settings = HttpSettings(body_seconds=600, body_bytes_per_second=1, idle_seconds=60)
    server = SimpleNamespace(config=SimpleNamespace(http=settings))
    worker.wsgi = SimpleNamespace(extensions={"server": server})
    return worker


def test_work_takes_its_share_of_the_time_of_a_process_however_many_do_it(monkeypatch):
    present = [100.0]
    monkeypatch.setattr(http, "time", SimpleNamespace(monotonic=lambda: present[0]))
    share = http.TimeBudget(5)

    assert [share.pause(1.0), share.pause(0.5)] == [4.0, 6.0]
    present[0] = 200.0
    assert share.pause(0.25) == 1.0


@pytest.mark.parametrize("framing", ["chunked", "a length"])
def test_a_body_that_nobody_reads_leaves_others_their_share(client, monkeypatch, framing):
    ours, theirs = client
    head, body = (
        HEAD.replace(b"Content-Length: 100", b"Transfer-Encoding: chunked"),
        b"1\r\nx\r\n" * 5000 + b"0\r\n\r\n",
    )
    if framing == "a length":
        head, body = HEAD.replace(b"100", b"200000"), b"x" * 200_000
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    ours.sendall(head + body)
    request = next(get_parser(Config(), theirs, ("127.0.0.1", 1)))
    looks, waits = itertools.count(step=0.001), []
    monkeypatch.setattr(http, "_unread", http.TimeBudget(5))
    monkeypatch.setattr(http, "time", SimpleNamespace(monotonic=lambda: next(looks), sleep=waits.append))

    # When it is received in pieces, each of which takes a millisecond or more by this clock
    assert RequestBody(request, theirs, seconds=600, least_rate=1).finish()

    # Then it waits four times as long after each
    assert len(waits) >= 2
    assert min(waits) >= 0.003
    theirs.close()


@pytest.mark.parametrize("framing", ["chunked", "a length"])
def test_a_streamed_body_ends_its_connection_unless_it_was_read_to_its_end(client, framing):
    ours, theirs = client
    head, body = HEAD.replace(b"100", b"4096"), b"x" * 4096
    if framing == "chunked":
        head, body = (
            HEAD.replace(b"Content-Length: 100", b"Transfer-Encoding: chunked"),
            b"1000\r\n%b\r\n0\r\n\r\n" % body,
        )
    ours.sendall(head + body)
    request = next(get_parser(Config(), theirs, ("127.0.0.1", 1)))
    RequestBody(request, theirs, seconds=600, least_rate=1).stream()
    assert request.should_close()

    request.body.read(1024)
    assert request.should_close()

    request.body.read(4096)
    assert not request.should_close()
    theirs.close()


def test_a_request_without_a_body_keeps_its_connection_where_one_would_be_streamed(client):
    ours, theirs = client
    ours.sendall(HEAD.replace(b"100", b"0"))
    request = next(get_parser(Config(), theirs, ("127.0.0.1", 1)))

    RequestBody(request, theirs, seconds=600, least_rate=1).stream()

    assert not request.should_close()
    theirs.close()


@pytest.mark.parametrize("is_last", [True, False], ids=["of a last request", "of one that another may follow"])
def test_a_body_that_does_not_come_after_the_response_is_not_waited_for_in_a_crowd(
    worker, client, monkeypatch, is_last
):
    def answer(*_):
        if is_last:
            raise StopIteration

    monkeypatch.setattr(GeventWorker, "handle_request", answer)
    ours, theirs = client
    ours.sendall(HEAD)
    worker._served.client = theirs
    request = next(get_parser(Config(), theirs, ("127.0.0.1", 1)))

    # When the app has answered, the connection waits for the rest of the body
    serving = gevent.spawn(worker.handle_request, ("127.0.0.1", 2), request, theirs, ("127.0.0.1", 1))
    with gevent.Timeout(TIMEOUT):
        while theirs not in worker._waiting and not serving.dead:
            gevent.sleep(0.001)

        # Then a new connection may end it, and it waits no longer
        assert list(worker._waiting) == [theirs]
        worker._end(theirs)
        serving.join()
    assert isinstance(serving.exception, StopIteration)
    assert isinstance(theirs, GreenSocket)
    theirs.close()
