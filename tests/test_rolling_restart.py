"""The workers are replaced while clients append and follow: no request is cut, and no event is lost."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import uuid4

import httpx
import pytest

from tests.conftest import event
from tests.servers import agent_server, store_server, wait_until
from tests.test_live import SocketReader, StreamReader, log_of, workers

pytestmark = pytest.mark.faults("reloads the workers of a server under load")

#: clients that append
CLIENTS = 3

#: events that each client appends around the reload, and seconds between two of them
AROUND, PAUSE = 10, 0.02


class Appender:
    """Appends events to a conversation of its own, each by one request, and keeps those that are acknowledged.

    It repeats no request.
    """

    def __init__(self, client: httpx.Client, *, keeps_connections: bool) -> None:
        self.conversation = str(uuid4())
        self.acknowledged: list[str] = []
        self._headers = {} if keeps_connections else {"Connection": "close"}
        self._base_url = client.base_url

    def append_until(self, done: threading.Event) -> None:
        path = f"/api/v1/webhooks/events/{self.conversation}"
        with httpx.Client(base_url=self._base_url, timeout=60) as client:
            while not done.is_set():
                one = event()
                response = client.post(path, json=[one], headers=self._headers)
                assert response.status_code == 200, response.text
                self.acknowledged.append(one["id"])
                done.wait(PAUSE)


@contextmanager
def appending(client: httpx.Client):
    """Clients append while the block runs; half of them open a connection for each request."""
    appenders = [Appender(client, keeps_connections=number % 2 == 0) for number in range(CLIENTS)]
    done = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        futures = [pool.submit(appender.append_until, done) for appender in appenders]
        try:
            wait_for_appends(appenders)
            yield appenders
            wait_for_appends(appenders)
        finally:
            done.set()
        for future in futures:
            future.result()


def wait_for_appends(appenders: list[Appender]) -> None:
    """Wait until each has appended some more."""
    goals = [len(one.acknowledged) + AROUND for one in appenders]
    wait_until(
        lambda: all(len(one.acknowledged) >= goal for one, goal in zip(appenders, goals, strict=True)), "appends"
    )


def followed(client: httpx.Client, appenders: list[Appender]) -> list[SocketReader | StreamReader]:
    readers = [kind(client, appender.conversation) for appender in appenders for kind in (SocketReader, StreamReader)]
    for reader in readers:
        reader.start()
    return readers


def assert_complete(client: httpx.Client, appenders: list[Appender], readers: list) -> None:
    """Each log has what was acknowledged, once and in order, and each follower has received the log."""
    for appender in appenders:
        log = log_of(client, appender.conversation)
        assert [identity for _, identity in log] == appender.acknowledged
        for reader in readers:
            if reader.conversation == appender.conversation:
                wait_until(lambda reader=reader, log=log: len(reader.received) >= len(log), "a follower")
                reader.wanted = False
                assert reader.received == log


def test_a_reload_of_the_workers_cuts_no_request_and_loses_no_event(tmp_path):
    with (
        store_server(tmp_path) as (url, _),
        agent_server(tmp_path / "log", REDIS_URL=url, GRACEFUL_TIMEOUT="60") as (client, master),
    ):
        with appending(client) as appenders:
            readers = followed(client, appenders)
            old = set(workers(master))
            master.send_signal(signal.SIGHUP)
            wait_until(lambda: len(workers(master)) == 2 and not old & set(workers(master)), "the reload")

        assert_complete(client, appenders, readers)
