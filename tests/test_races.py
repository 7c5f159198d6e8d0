"""Many clients at once, on several workers: one winner, every event once."""

import json
import multiprocessing
from collections import Counter
from uuid import uuid4

import httpx
import pytest

from tests.conftest import action, event, message
from tests.servers import agent_server, fakeredis_server, redis_server

FORK = multiprocessing.get_context("fork")


@pytest.fixture(scope="module", params=[redis_server, fakeredis_server], ids=["server", "fakeredis"])
def server(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("races")
    with request.param(folder) as (url, _), agent_server(folder / "log", REDIS_URL=url) as (client, _):
        yield client


def _post(arguments):
    """A request of a racing process, on a connection of its own, once all processes are ready."""
    barrier, url, body = arguments
    with httpx.Client(timeout=30) as client:
        client.get(f"{url.split('/api')[0]}/alive")
        barrier.wait(30)
        response = client.post(url, json=body)
        return response.status_code, response.json()


def race(server, path: str, bodies: list) -> list[tuple[int, dict]]:
    """Post every body from a process of its own at the same moment; statuses and response bodies."""
    with FORK.Manager() as manager, FORK.Pool(len(bodies)) as pool:
        barrier = manager.Barrier(len(bodies))
        return pool.map(_post, [(barrier, f"{server.base_url}{path}", body) for body in bodies], chunksize=1)


def all_events(server, conversation: str) -> list[dict]:
    found, page_id = [], ""
    while page_id is not None:
        page = server.get(f"/api/conversations/{conversation}/events/search", params={"page_id": page_id}).json()
        found += page["items"]
        page_id = page["next_page_id"]
    return found


@pytest.mark.parametrize("_attempt", range(3))
def test_fifty_concurrent_decisions_have_one_winner(server, conversation, _attempt):
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


def test_the_same_batch_from_eight_processes_is_appended_once(server, conversation):
    batch = [message(f"text {number}", "agent") if number % 2 else event() for number in range(500)]

    results = race(server, f"/api/v1/webhooks/events/{conversation}", [batch] * 8)

    assert {status for status, _ in results} == {200}
    assert Counter(result["appended"] for _, result in results) == {0: 7, 500: 1}
    assert {result["seq"] for _, result in results} == {500}
    assert [event["id"] for event in all_events(server, conversation)] == [event["id"] for event in batch]
    assert server.get(f"/api/conversations/{conversation}/events/count").json() == 500


def test_overlapping_batches_from_eight_processes_make_a_dense_log(server, conversation):
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
    with FORK.Pool(8) as pool:
        url = f"{server.base_url}/api/conversations/{conversation}"
        statuses = pool.map(_delete, [url] * 20, chunksize=1)

    assert sorted(statuses) == [200] + [404] * 19


def _delete(url):
    return httpx.delete(url).status_code


ALWAYS = {"kind": "AlwaysConfirm"}


def test_messages_that_race_an_acceptance_approve_nothing_twice(server):
    # A message rejects pending actions; an acceptance approves them. The later one finds no pending action.
    for _ in range(5):
        conversation = str(uuid4())
        server.post("/api/conversations", json={"conversation_id": conversation, "confirmation_policy": ALWAYS})
        server.post(f"/api/v1/webhooks/events/{conversation}", json=[action()])
        text = {"content": [{"type": "text", "text": "wait, do not run that"}]}
        with FORK.Pool(2) as pool, FORK.Manager() as manager:
            barrier = manager.Barrier(2)
            url = f"{server.base_url}/api/conversations/{conversation}/events"
            _, decided = pool.map(
                _post,
                [(barrier, url, text), (barrier, f"{url}/respond_to_confirmation", {"accept": True})],
                chunksize=1,
            )
        rejections = [e for e in all_events(server, conversation) if e["kind"] == "UserRejectObservation"]
        assert len(rejections) == (0 if decided[1]["success"] else 1), json.dumps(rejections)
