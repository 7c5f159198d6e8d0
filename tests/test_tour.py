"""The newcomer's way, once: the server as `make run` starts it, a sandbox with the bundled agent, decisions, a kill.

The one part of the quick run that starts processes. It waits for events, and measures nothing.
"""

from uuid import UUID

import psutil
import pytest

from store.errors import ConversationNotFound
from tests.conftest import message
from tests.servers import supervised_server, wait_until
from tests.sockets import socket
from tests.v1 import WireApi

pytestmark = pytest.mark.tour("walks through the real server")


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """The server on its embedded store, with two workers and a supervisor: its calls, and its master process."""
    with supervised_server(tmp_path_factory.mktemp("tour"), REDIS_URL="", WEB_CONCURRENCY="2") as (client, master):
        api = WireApi(client)
        wait_until(lambda: client.get("/ready").status_code == 200, "the server to be ready")
        yield api, master
        api.clean()


@pytest.fixture(scope="module")
def api(house):
    return house[0]


@pytest.fixture
def waiting(api):
    """A conversation in a sandbox of its own, whose agent waits for a decision."""
    said = {"content": [{"type": "text", "text": "run: echo it is $((40 + 2))"}]}
    conversation = api.app_conversation(initial_message=said)
    api.until(conversation["id"], "waiting_for_confirmation")
    yield conversation
    api.client.delete(f"/api/v1/app-conversations/{conversation['id']}")


def test_the_first_pages_are_there(api):
    console = api.client.get("/console/")
    assert (console.status_code, console.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "<script" in console.text
    assert api.client.get("/docs").status_code == 200
    assert api.client.get("/openapi.json").json()["openapi"] == "3.1.0"


def test_an_approved_action_runs_and_nobody_decides_it_again(api, waiting):
    assert api.decide(waiting["id"], True) == {"success": True}
    assert api.decide(waiting["id"], False) == {"success": False}

    wait_until(lambda: api.count(waiting["id"], kind="ObservationEvent") == 1, "the observation")
    [seen] = api.events(waiting["id"], kind__eq="ObservationEvent")
    assert seen["observation"]["content"] == [{"type": "text", "text": "it is 42\n"}]


def test_a_rejected_action_never_runs_and_the_log_says_why(api, waiting):
    assert api.decide(waiting["id"], False, reason="not today") == {"success": True}

    wait_until(lambda: api.count(waiting["id"], kind="UserRejectObservation") == 1, "the rejection")
    [seen] = api.events(waiting["id"], kind__eq="UserRejectObservation")
    assert seen["rejection_reason"] == "not today"
    assert api.count(waiting["id"], kind="ObservationEvent") == 0


def test_what_waits_stands_in_the_inbox_until_it_is_decided(api, waiting):
    def is_in_inbox() -> bool:
        items = api.call("GET", "/v1/pending-actions")["items"]
        return str(UUID(waiting["id"])) in [one["conversation_id"] for one in items]

    wait_until(is_in_inbox, "the action in the inbox")  # the worker that took it indexes it after it is in the log
    api.decide(waiting["id"], False)
    assert not is_in_inbox()


def test_a_socket_tells_of_an_event_that_any_worker_takes(api, conversation):
    api.call("POST", "/conversations", status=201, json={"conversation_id": conversation})

    with socket(api.client, conversation) as listener:
        said = message("hello")
        api.call("POST", f"/v1/webhooks/events/{conversation}", json=[said])
        assert listener.receive_until(id=said["id"])[-1]["kind"] == "MessageEvent"


def test_a_sandbox_pauses_resumes_and_ends_with_its_deletion(api, waiting):
    path = f"/v1/sandboxes/{waiting['sandbox_id']}"

    assert api.call("POST", f"{path}/pause") == {"success": True}
    assert api.sandbox(waiting["sandbox_id"])["status"] == "PAUSED"
    assert api.call("POST", f"{path}/resume") == {"success": True}
    api.wait_for(waiting["sandbox_id"], "RUNNING")
    assert api.call("DELETE", path) == {"success": True}
    assert api.sandbox(waiting["sandbox_id"]) is None


def test_a_killed_worker_loses_nothing_that_was_acknowledged(house, conversation):
    api, master = house
    api.call("POST", "/conversations", status=201, json={"conversation_id": conversation})
    api.call("POST", f"/v1/webhooks/events/{conversation}", json=[message(str(one)) for one in range(20)])
    workers = [one for one in psutil.Process(master.pid).children() if "gunicorn" in " ".join(one.cmdline())]

    workers[0].kill()

    wait_until(lambda: api.count(conversation) == 20, "the other worker")
    wait_until(
        lambda: not workers[0].is_running() or workers[0].status() == psutil.STATUS_ZOMBIE, "the end of the worker"
    )
    api.call("POST", f"/v1/webhooks/events/{conversation}", json=[message("one more")])
    assert api.count(conversation) == 21


def test_bad_input_names_its_field_and_changes_nothing(api, conversation):
    api.call("POST", "/conversations", status=201, json={"conversation_id": conversation})

    refused = api.call(
        "POST", f"/conversations/{conversation}/events/respond_to_confirmation", status=422, json={"accept": "yes"}
    )
    assert refused["detail"][0]["loc"] == ["body", "accept"]
    assert (
        api.call("GET", f"/conversations/{UUID(int=0)}/events/count", status=404)["detail"]
        == ConversationNotFound.words
    )
    assert api.count(conversation) == 0
