"""What the processes of a real server count together: under two workers, kills, reloads, and a store that is away."""

import random
import signal
import string
from contextlib import contextmanager

import httpx
import psutil
import pytest

from tests.scrapes import scrape
from tests.servers import agent_server, runs, store_server, supervised_server, wait_until
from tests.sockets import socket

pytestmark = pytest.mark.faults("starts servers, and kills their workers and supervisors")

REQUESTS, SECONDS = "agent_server_requests_total", "agent_server_request_seconds_count"
WORKERS, STARTED = "agent_server_workers", "agent_server_processes_started_total"
KEY = "a-key-of-the-settings"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A client for a server with two workers, and its master process."""
    folder = tmp_path_factory.mktemp("tallies")
    with store_server(folder) as (url, _), agent_server(folder / "log", REDIS_URL=url) as server:
        wait_until(lambda: len(workers_of(server)) == 2, "two workers")
        yield server


def workers_of(server) -> list[psutil.Process]:
    return psutil.Process(server[1].pid).children()


def get(server, path: str, number: int, method: str = "GET") -> None:
    """Requests over a connection each, which any worker may take."""
    for _ in range(number):
        httpx.request(method, f"{server[0].base_url}{path}", timeout=20)


@contextmanager
def stopped(worker: psutil.Process):
    """Another worker takes every request."""
    worker.suspend()
    try:
        yield
    finally:
        worker.resume()


def test_the_counts_of_two_workers_add_up_whichever_responds(running):
    first, second = workers_of(running)

    with stopped(second):
        get(running, "/openapi.json", 3)
    with stopped(first):
        get(running, "/openapi.json", 4)

    for _ in range(8):
        found = scrape(running[0])
        assert found.value(REQUESTS, route="/openapi.json", method="GET", status_class="2xx") == 7
        assert found.value(SECONDS, route="/openapi.json", method="GET") == 7
    assert found.value(WORKERS) == 2


def test_a_killed_worker_takes_no_count_with_it(running):
    get(running, "/docs", 20)
    before = scrape(running[0])

    workers_of(running)[0].kill()

    wait_until(
        lambda: scrape(running[0]).value(STARTED, process="worker") == before.value(STARTED) + 1, "its successor"
    )
    after = scrape(running[0])
    assert after.value(REQUESTS, route="/docs") == before.value(REQUESTS, route="/docs") == 20
    assert after.value(WORKERS) == 2


def test_a_killed_worker_has_no_followers_left(running):
    conversation = running[0].post("/api/conversations", json={}).json()["id"]
    path = f"/api/conversations/{conversation}/events/stream"
    with httpx.stream("GET", f"{running[0].base_url}{path}", timeout=20):
        wait_until(lambda: scrape(running[0]).value("agent_server_followers") == 1, "the follower")

        for worker in workers_of(running):
            worker.kill()

        wait_until(lambda: scrape(running[0]).value("agent_server_followers") == 0, "no follower")


def test_a_reload_of_the_configuration_keeps_the_counts(running):
    client, master = running
    get(running, "/health", 5)
    started = scrape(client).value(STARTED, process="worker")

    master.send_signal(signal.SIGHUP)

    wait_until(lambda: scrape(client).value(STARTED, process="worker") == started + 2, "new workers")
    wait_until(lambda: scrape(client).value(WORKERS) == 2, "the end of the old workers")
    assert scrape(client).value(REQUESTS, route="/health") == 5


def test_no_path_and_no_method_makes_a_label(running):
    get(running, "/nowhere", 1)
    before, chance = scrape(running[0]), random.Random(1)

    with httpx.Client(base_url=running[0].base_url, timeout=20) as client:
        for number in range(1000):
            path = "".join(chance.choices(string.ascii_letters + "/", k=20))
            client.request("GET" if number % 10 else f"ODD{number}", f"/x{path}")

    after = scrape(running[0])
    assert after.series - before.series <= {
        (name, frozenset(labels)) for name, labels in after.series if ("route", "/metrics") in labels
    }
    assert after.value(REQUESTS, route="unmatched") == before.value(REQUESTS, route="unmatched") + 1000
    assert {dict(labels).get("route") for _, labels in after.series} <= {None, "unmatched", *templates(running[0])}


def templates(client: httpx.Client) -> set[str]:
    """The paths of the OpenAPI document, and of the pages that it does not have."""
    return {*client.get("/openapi.json").json()["paths"], "/openapi.json", "/docs"}


def test_a_socket_counts_once_and_its_life_is_no_duration(running):
    conversation = running[0].post("/api/conversations", json={}).json()["id"]
    with socket(running[0], conversation) as listener:
        listener.receive()

    route = "/sockets/events/{conversation_id}"
    wait_until(lambda: scrape(running[0]).value(REQUESTS, route=route, status_class="1xx") == 1, "the socket")
    assert scrape(running[0]).value(SECONDS, route=route) == 0


def test_without_the_store_the_counts_are_shown_and_the_state_is_not(tmp_path):
    settings = {"SESSION_API_KEY": KEY, "REDIS_TIMEOUT": "0.2"}
    headers = {"Authorization": f"Bearer {KEY}"}
    with store_server(tmp_path) as (url, redis), agent_server(tmp_path / "log", REDIS_URL=url, **settings) as server:
        assert server[0].get("/metrics").status_code == 401
        assert scrape(server[0], headers=headers).value("agent_server_store_up") == 1

        redis.kill()
        redis.wait()
        assert server[0].get("/api/conversations/count", headers=headers).status_code == 503

        found = scrape(server[0], headers=headers)
        assert found.value("agent_server_store_up") == 0
        assert found.value(REQUESTS, status_class="4xx", route="/metrics") == 1
        assert found.value(REQUESTS, status_class="5xx", route="/api/conversations/count") == 1
        assert found.value("agent_server_redis_failures_total", process="worker") > 0
        assert "agent_server_pending_actions" not in found.names


def test_a_supervisor_counts_beside_the_workers_and_its_successor_counts_on(tmp_path):
    with supervised_server(tmp_path) as server:
        trips = "agent_server_redis_seconds_count"
        wait_until(lambda: scrape(server[0]).value("agent_server_hosts") == 1, "a heartbeat")
        before = scrape(server[0])
        assert before.value(trips, process="supervisor") > 0
        assert before.value("agent_server_supervisor_heartbeat_age_seconds") < 60

        children = psutil.Process(server[1].pid).children(recursive=True)
        [supervisor] = [one for one in children if runs(one, "supervisor")]
        supervisor.kill()

        wait_until(lambda: scrape(server[0]).value(STARTED, process="supervisor") == 2, "its successor")
        assert scrape(server[0]).value(trips, process="supervisor") >= before.value(trips, process="supervisor")
