"""The published SDK drives this server with two workers: talks, runs in a row, other clients and keys, a lost worker.

INTEROP_LONG=1 makes it ten talks and a hundred runs.
"""

import contextlib
import os
from uuid import uuid4

import pytest

from tests.interop.sides import second
from tests.servers import wait_until

pytestmark = pytest.mark.interop("runs the published agent server in sandboxes, and kills workers")

TALKS, RUNS = (10, 100) if os.environ.get("INTEROP_LONG") else (1, 10)

#: what the client must tell of each talk
TALK = [
    ("proposed", {"status": "waiting_for_confirmation"}),
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
            "rejected": ["not today"],
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
                wait_until(lambda: actions(our_side, lines[0]["id"]) == 4, "the action of the run")
                wait_until(lambda: len(our_side.workers()) == 2, "both workers")
                sorted(our_side.workers(), key=lambda worker: worker.pid)[number].kill()

    assert told(lines) == [("created", {}), *TALK]


def actions(side, conversation_id: str) -> int:
    with side.http as http:
        path = f"/api/conversations/{conversation_id}/events/count"
        return http.get(path, params={"kind": "ActionEvent"}).json()


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


def test_clients_of_workers_on_two_hosts_see_the_same_sequence(our_side, talked, tmp_path):
    with second(our_side, tmp_path) as other_side, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(side.client("follow", talked)) for side in (our_side, other_side)]
        for client in clients:
            client.until("follows")
        before = {event["id"] for event in our_side.events(talked)}

        our_side.played("resume", talked, "run: echo for both")
        our_side.played("resume", talked, "and a question")

        one, other = (client.until("followed")["ids"] for client in clients)
        for client in clients:
            client.end()

    log = [event["id"] for event in our_side.events(talked)]
    assert one == other
    assert [each for each in one if each not in before] == [each for each in log if each in one and each not in before]
    assert len(set(one) - before) >= 8


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
