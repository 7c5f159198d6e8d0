"""Many clients at once, on several workers: one winner, every event once, also where a worker is killed meanwhile."""

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import uuid4

import httpx
import psutil
import pytest

from tests.conftest import action, event, message
from tests.servers import wait_until
from tests.shared import shared_server

pytestmark = pytest.mark.faults("races of many threads")


@pytest.fixture(scope="module")
def server():
    return shared_server().client


def race(server, path: str, bodies: list, *others: str) -> list[tuple[int, dict]]:
    """Post every body at the same moment, each over a connection of its own; statuses and bodies of the responses.

    others: the paths of the bodies after the first, where they differ.
    """
    barrier = threading.Barrier(len(bodies))

    def post(where: str, body) -> tuple[int, dict]:
        with httpx.Client(base_url=server.base_url, timeout=30, verify=False) as client:
            client.get("/alive")
            barrier.wait(30)
            response = client.post(where, json=body)
            return response.status_code, response.json()

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(post, [path, *(others or [path] * (len(bodies) - 1))], bodies))


def all_events(server, conversation: str) -> list[dict]:
    found, page_id = [], ""
    while page_id is not None:
        page = server.get(f"/api/conversations/{conversation}/events/search", params={"page_id": page_id}).json()
        found += page["items"]
        page_id = page["next_page_id"]
    return found


def test_fifty_concurrent_decisions_have_one_winner(server, conversation):
    # Given a conversation that waits for a decision
    server.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": ALWAYS})
    waiting = action("rm -r /tmp/x")
    server.post(f"/api/v1/webhooks/events/{conversation}", json=[waiting])

    # When 25 requests accept and 25 reject concurrently
    decisions = [{"accept": bool(number % 2), "reason": f"reason {number}"} for number in range(50)]
    results = race(server, f"/api/conversations/{conversation}/events/respond_to_confirmation", decisions)

    # Then one decision took effect, and the state is that of its kind
    assert {status for status, _ in results} == {200}
    winners = [number for number, (_, result) in enumerate(results) if result["success"]]
    assert len(winners) == 1
    accepted = decisions[winners[0]]["accept"]
    events = all_events(server, conversation)
    rejections = [event for event in events if event["kind"] == "UserRejectObservation"]
    states = [event["value"] for event in events if event["kind"] == "ConversationStateUpdateEvent"]
    status = server.get(f"/api/conversations/{conversation}").json()["execution_status"]
    assert states == ["waiting_for_confirmation", "running" if accepted else "idle"]
    assert status == states[-1]
    assert [(event["action_id"], event["rejection_reason"]) for event in rejections] == (
        [] if accepted else [(waiting["id"], decisions[winners[0]]["reason"])]
    )
    assert server.get(f"/api/conversations/{conversation}/pending_actions").json() == []


def test_the_same_batch_from_eight_clients_is_appended_once(server, conversation):
    batch = [message(f"text {number}", "agent") if number % 2 else event() for number in range(500)]

    results = race(server, f"/api/v1/webhooks/events/{conversation}", [batch] * 8)

    assert {status for status, _ in results} == {200}
    assert Counter(result["appended"] for _, result in results) == {0: 7, 500: 1}
    assert {result["seq"] for _, result in results} == {500}
    assert [event["id"] for event in all_events(server, conversation)] == [event["id"] for event in batch]
    assert server.get(f"/api/conversations/{conversation}/events/count").json() == 500


def test_overlapping_batches_from_eight_clients_make_a_dense_log(server, conversation):
    events = [event() for _ in range(320)]
    batches = [events[start : start + 100] for start in range(0, 256, 32)]

    results = race(server, f"/api/v1/webhooks/events/{conversation}", batches)

    appended = {event["id"] for batch in batches for event in batch}
    assert sum(result["appended"] for _, result in results) == len(appended)
    assert max(result["seq"] for _, result in results) == len(appended)
    assert sorted(event["id"] for event in all_events(server, conversation)) == sorted(appended)


def test_twenty_concurrent_creates_of_one_id_create_one(server, conversation):
    bodies = [{"conversation_id": conversation, "title": f"title {number}"} for number in range(20)]

    results = race(server, "/api/conversations", bodies)

    statuses = [status for status, _ in results]
    assert sorted(statuses) == [200] * 19 + [201]
    assert {result["title"] for _, result in results} == {f"title {statuses.index(201)}"}


def test_twenty_concurrent_deletes_have_one_success(server, conversation):
    server.post("/api/conversations", json={"conversation_id": conversation})

    def delete(_number: int) -> int:
        return server.delete(f"/api/conversations/{conversation}").status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(delete, range(20)))

    assert sorted(statuses) == [200] + [404] * 19


ALWAYS = {"kind": "AlwaysConfirm"}


def test_messages_that_race_an_acceptance_approve_nothing_twice(server):
    # A message rejects pending actions; an acceptance approves them. The later one finds no pending action.
    for _ in range(5):
        conversation = str(uuid4())
        server.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": ALWAYS})
        server.post(f"/api/v1/webhooks/events/{conversation}", json=[action()])
        text = {"content": [{"type": "text", "text": "wait, do not run that"}]}
        url = f"/api/conversations/{conversation}/events"
        _, decided = race(server, url, [text, {"accept": True}], f"{url}/respond_to_confirmation")
        rejections = [e for e in all_events(server, conversation) if e["kind"] == "UserRejectObservation"]
        assert len(rejections) == (0 if decided[1]["success"] else 1), json.dumps(rejections)


class RacingAgent(threading.Thread):
    """Appends events to a conversation of its own, each again until it is acknowledged."""

    def __init__(self, server: httpx.Client, done: threading.Event) -> None:
        super().__init__(daemon=True)
        self.conversation, self.acknowledged = str(uuid4()), []
        self._server, self._done = server, done

    def run(self) -> None:
        with httpx.Client(base_url=self._server.base_url, timeout=30, verify=False) as client:
            while not self._done.is_set():
                one = event()
                while not self._appends(client, one):
                    pass
                self.acknowledged.append(one["id"])

    def _appends(self, client: httpx.Client, one: dict) -> bool:
        with suppress(httpx.TransportError):
            response = client.post(f"/api/v1/webhooks/events/{self.conversation}", json=[one])
            assert response.status_code == 200, response.text
            return True
        return False


def test_a_worker_that_is_killed_while_agents_append_loses_and_doubles_nothing(server):
    master, done = psutil.Process(shared_server().master.pid), threading.Event()
    agents = [RacingAgent(server, done) for _ in range(6)]
    for agent in agents:
        agent.start()
    wait_until(lambda: all(len(agent.acknowledged) > 5 for agent in agents), "appends before the kill")

    killed = next(child for child in master.children() if "gunicorn" in " ".join(child.cmdline()))
    killed.kill()

    goals = [(agent, len(agent.acknowledged) + 5) for agent in agents]
    wait_until(lambda: all(len(agent.acknowledged) > goal for agent, goal in goals), "appends after the kill")
    done.set()
    for agent in agents:
        agent.join()
        found = [one["id"] for one in all_events(server, agent.conversation)]
        assert sorted(found) == sorted(agent.acknowledged)
    wait_until(lambda: not psutil.pid_exists(killed.pid), "the end of the worker")
