"""The published SDK drives this server with two workers: talks, runs in a row, other clients and keys, a lost worker.

INTEROP_LONG=1 makes it ten talks and a hundred runs.
"""

import contextlib
import os
from uuid import uuid4

import psutil
import pytest

from tests.interop.sides import Client
from tests.servers import wait_until

TALKS, RUNS = (10, 100) if os.environ.get("INTEROP_LONG") else (2, 20)

#: what the client must tell of each talk
TALK = [
    ("proposed", {"status": "waiting_for_confirmation"}),
    ("rejected", {"reasons": ["not today"]}),
    ("proposed", {"status": "waiting_for_confirmation"}),
    ("accepted", {"times": 1, "status": "finished"}),
    ("runs", {}),
    ("ran", {"status": "finished"}),
    ("replied", {"status": "finished"}),
    (
        "seen",
        {
            "actions": ["terminal", "terminal", "finish", "terminal", "finish"],
            "observed": ["second", "done", "third", "done"],
            "errors": [],
            "rejections": 1,
        },
    ),
    ("attached", {"missing": []}),
]


def told(lines: list[dict]) -> list[tuple[str, dict]]:
    return [
        (line["step"], {name: value for name, value in line.items() if name not in ("step", "id")}) for line in lines
    ]


def test_every_talk_of_several_in_a_row_passes(our_side):
    lines = our_side.played("drive", str(TALKS))

    assert told(lines) == [("created", {}), *TALK] * TALKS


@pytest.mark.parametrize("number", [0, 1])
def test_a_talk_passes_while_a_worker_is_killed_in_the_middle_of_a_run(our_side, number):
    """The client's socket is at one of both workers, so one of these two tests cuts it."""
    with our_side.client("drive", "1") as client:
        lines = []
        for line in client.lines():
            lines.append(line)
            if line["step"] == "runs":
                wait_until(lambda: len(our_side.workers()) == 2, "both workers")
                sorted(our_side.workers(), key=lambda worker: worker.pid)[number].kill()

    assert told(lines) == [("created", {}), *TALK]


def test_runs_in_a_row_return_neither_early_nor_never(our_side):
    *_, last = our_side.played("runs", str(RUNS))

    assert last == {"step": "ran", "early": []}


@pytest.fixture(scope="module")
def talked(our_side):
    """The id of a conversation after a talk."""
    return our_side.played("talk")[0]["id"]


def test_a_process_that_has_imported_no_tool_attaches(our_side, talked):
    [attached] = our_side.played("attach", talked)

    assert told([attached]) == [("attached", {"tools": ["terminal"], **TALK[-2][1]})]


def test_clients_of_two_workers_see_the_same_sequence(our_side, talked):
    with contextlib.ExitStack() as stack:
        clients: dict[int, Client] = {}
        while len(clients) < 2:
            client = stack.enter_context(our_side.client("follow", talked))
            client.until("follows")
            clients[worker_of(our_side, client)] = client
        ids = {event["id"] for event in our_side.events(talked)}

        our_side.played("resume", talked, "run: echo for both")
        our_side.played("resume", talked, "and a question")

        one, other = (client.until("followed")["ids"] for client in clients.values())
        for client in clients.values():
            client.end()
    # A client sorts what it has by time, and the log is in the order of arrival.
    assert [each for each in one if each not in ids] == [each for each in other if each not in ids]
    assert set(one) == set(other) == {event["id"] for event in our_side.events(talked)} & set(one)
    assert len(set(one) - ids) >= 8


def worker_of(side, client: Client) -> int:
    """The process id of the worker that has a client's socket."""
    own = {connection.laddr.port for connection in connections(psutil.Process(client.process.pid))}
    [found] = [
        worker.pid
        for worker in side.workers()
        if any(connection.raddr and connection.raddr.port in own for connection in connections(worker))
    ][:1]
    return found


def connections(process: psutil.Process) -> list:
    return [each for each in process.net_connections("tcp") if each.status == psutil.CONN_ESTABLISHED]


def test_a_client_with_a_key_that_may_write_cannot_accept(our_side, talked):
    with our_side.http as http:
        made = http.post("/api/v1/keys", json={"name": f"a client {uuid4()}", "scopes": ["read", "write"]})
        http.post(f"/api/conversations/{talked}/confirmation_policy", json={"policy": {"kind": "AlwaysConfirm"}})
        message = {"role": "user", "content": [{"type": "text", "text": "run: echo never"}], "run": True}
        http.post(f"/api/conversations/{talked}/events", json=message)
        path = f"/api/conversations/{talked}"
        wait_until(lambda: http.get(path).json()["execution_status"] == "waiting_for_confirmation", "the action")
        before = http.get(f"{path}/events/count", params={"kind": "ObservationEvent"}).json()

        [refused] = our_side.played("accept", talked, key=made.json()["key"])

        assert refused == {"step": "refused", "status": 403}
        assert http.get(path).json()["execution_status"] == "waiting_for_confirmation"
        assert http.get(f"{path}/events/count", params={"kind": "ObservationEvent"}).json() == before
