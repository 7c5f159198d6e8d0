"""A server that drains: it has received SIGTERM, says that it is not ready, and serves on until it stops."""

import signal

import pytest

from tests.conftest import event
from tests.servers import TIMEOUT, agent_server, store_server, wait_until
from tests.sockets import socket
from tests.test_live import workers

pytestmark = pytest.mark.process("starts a server for each test, and ends it")


@pytest.fixture
def store(tmp_path):
    with store_server(tmp_path) as (url, _):
        yield url


def test_a_draining_server_is_not_ready_and_serves_until_a_second_sigterm(store, tmp_path, conversation):
    path = f"/api/v1/webhooks/events/{conversation}"
    with agent_server(tmp_path / "log", REDIS_URL=store, DRAIN_SECONDS="600") as (client, master):
        assert client.post(path, json=[event()]).headers["Connection"] == "keep-alive"

        master.send_signal(signal.SIGTERM)
        wait_until(lambda: client.get("/ready").status_code == 503, "the drain")

        assert client.get("/ready").json() == {"detail": "The server is stopping: connect again"}
        appended = client.post(path, json=[event(number=2)])
        assert (appended.status_code, appended.headers["Connection"]) == (200, "close")
        with socket(client, conversation, after_seq=1) as listener:
            listener.receive()
            assert listener.receive()["event"]["number"] == 2
            master.send_signal(signal.SIGTERM)
            assert listener.closed_with() == 1012
        assert master.wait(TIMEOUT) == 0


def test_a_worker_that_begins_while_its_server_drains_knows_of_it(store, tmp_path):
    settings = {"REDIS_URL": store, "DRAIN_SECONDS": "600", "WEB_CONCURRENCY": "1"}
    with agent_server(tmp_path / "log", **settings) as (client, master):
        master.send_signal(signal.SIGTERM)
        wait_until(lambda: client.get("/ready").status_code == 503, "the drain")
        [worker] = workers(master)

        worker.kill()
        wait_until(lambda: client.get("/alive").status_code == 200 and worker not in workers(master), "a new worker")

        assert client.get("/ready").status_code == 503
        master.send_signal(signal.SIGTERM)
        assert master.wait(TIMEOUT) == 0


def test_a_drain_ends_with_the_server(store, tmp_path):
    with agent_server(tmp_path / "log", REDIS_URL=store, DRAIN_SECONDS="1") as (_, master):
        master.send_signal(signal.SIGTERM)

        assert master.wait(TIMEOUT) == 0
    assert "Draining: /ready responds 503, and in 1 s this server stops" in (tmp_path / "log").read_text()
