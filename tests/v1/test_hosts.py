"""Several hosts on one Redis, and as many sandboxes as the settings allow."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chance import often
from tests.servers import store_server, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.processes import agents, stands_still, supervisor_of

pytestmark = pytest.mark.process("starts two servers, and a server for each setting")

#: sandboxes that start at once
STARTS = often(8, 20)


@contextlib.contextmanager
def two_hosts(folder: Path, **settings: str):
    """Two servers with a supervisor each, on one Redis."""
    with store_server(folder) as (url, _), contextlib.ExitStack() as stack:
        hosts = []
        for name in ("a", "b"):
            own = folder / name
            own.mkdir()
            entered = supervised_server(own, REDIS_URL=url, HOST_ID=name, HOST_SECONDS="3", **settings)
            hosts.append((*stack.enter_context(entered), own))
        yield hosts


def test_two_hosts_serve_each_others_sandboxes(tmp_path, specs):
    with two_hosts(tmp_path, SANDBOX_SPECS=specs) as [(client_a, master_a, a), (client_b, master_b, b)]:
        api_a, api_b = WireApi(client_a), WireApi(client_b)
        supervisor_of(master_a).suspend()  # so that host b claims the next sandbox
        conversation = api_a.app_conversation(initial_message={"content": [{"type": "text", "text": "run: echo on b"}]})
        supervisor_of(master_a).resume()
        assert len(agents(b)) == 1
        assert not agents(a)

        api_a.until(conversation["id"], "waiting_for_confirmation")
        api_a.call("POST", f"/v1/sandboxes/{conversation['sandbox_id']}/pause")
        [agent] = agents(b)
        assert stands_still(conversation["conversation_url"])
        assert api_b.sandbox(conversation["sandbox_id"])["status"] == "PAUSED"
        api_a.call("POST", f"/v1/sandboxes/{conversation['sandbox_id']}/resume")
        api_b.wait_for(conversation["sandbox_id"], "RUNNING")
        assert "serving on" in api_a.call("GET", f"/v1/sandboxes/{conversation['sandbox_id']}/logs")["log"]
        assert api_a.decide(conversation["id"], True) == {"success": True}
        wait_until(lambda: api_b.count(conversation["id"], kind="ObservationEvent") == 1, "the observation")

        # The other host is lost, and restarts.
        keeper = supervisor_of(master_b).parent()
        keeper.suspend()
        supervisor_of(master_b).kill()
        api_a.wait_for(conversation["sandbox_id"], "MISSING")
        assert "does not answer" in api_a.sandbox(conversation["sandbox_id"])["status_detail"]
        assert api_a.running_sandbox()["status"] == "RUNNING"
        keeper.resume()
        api_a.wait_for(conversation["sandbox_id"], "RUNNING")
        assert [one.pid for one in agents(b)] == [agent.pid]
        assert len(agents(a)) == 1


def test_a_reached_cap_is_429_with_its_number_for_every_client(tmp_path, specs):
    with supervised_server(tmp_path, SANDBOX_SPECS=specs, MAX_SANDBOXES="3", SANDBOX_OVERFLOW="refuse") as (client, _):
        api = WireApi(client)
        with ThreadPoolExecutor(8) as pool:
            responses = list(pool.map(lambda _: api.client.post("/api/v1/sandboxes"), range(12)))

        assert sorted(response.status_code for response in responses) == [200] * 3 + [429] * 9
        detail = next(response for response in responses if response.status_code == 429).json()["detail"]
        assert "3" in detail
        ids = [response.json()["id"] for response in responses if response.status_code == 200]
        for one in ids:
            api.wait_for(one, "RUNNING")
        api.call("POST", f"/v1/sandboxes/{ids[0]}/pause")
        replacement = api.running_sandbox()
        api.call("POST", f"/v1/sandboxes/{ids[0]}/resume", status=429)
        api.call("DELETE", f"/v1/sandboxes/{replacement['id']}")
        api.call("POST", f"/v1/sandboxes/{ids[0]}/resume")
        task = api.finished(api.start_task()["id"])
        assert task["status"] == "ERROR"
        assert "3" in task["detail"]


def test_the_longest_idle_sandbox_is_paused_for_a_new_one(tmp_path, specs):
    settings = {"SANDBOX_SPECS": specs, "MAX_SANDBOXES": "2"}
    with supervised_server(tmp_path, **settings) as (client, _):
        api = WireApi(client)
        first, second = api.app_conversation(), api.app_conversation()
        time.sleep(1.1)  # use is noted once a second
        api.send(first["id"], "hello")
        third = api.running_sandbox()

        api.wait_for(second["sandbox_id"], "PAUSED")
        assert api.sandbox(first["sandbox_id"])["status"] == "RUNNING"
        assert third["status"] == "RUNNING"


def test_a_start_that_finds_no_place_waits_for_the_one_that_becomes_free(tmp_path, specs):
    with supervised_server(tmp_path, SANDBOX_SPECS=specs, MAX_SANDBOXES="1") as (client, _):
        api = WireApi(client)
        only = api.running_sandbox()
        task = api.start_task()

        def waits():
            read = api.task(task["id"])
            return read["status"] == "WAITING_FOR_SANDBOX" and "Waiting for a place: 1 of 1" in (read["detail"] or "")

        wait_until(waits, "the start that waits")
        refused = client.post("/api/v1/sandboxes")
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2")
        api.call("DELETE", f"/v1/sandboxes/{only['id']}")
        assert api.finished(task["id"])["status"] == "READY"


def test_a_sandbox_serves_several_conversations_if_so_configured(tmp_path, specs):
    with supervised_server(tmp_path, SANDBOX_SPECS=specs, SANDBOX_SHARING="shared") as (client, _):
        api = WireApi(client)
        conversations = [api.app_conversation(title=f"t{n}") for n in range(3)]

        assert len({one["sandbox_id"] for one in conversations}) == 1
        assert len(agents(tmp_path)) == 1
        for number, one in enumerate(conversations):
            api.send(one["id"], f"run: echo {number}")
            api.until(one["id"], "waiting_for_confirmation")
            assert api.decide(one["id"], True) == {"success": True}
        for number, one in enumerate(conversations):
            wait_until(lambda one=one: api.count(one["id"], kind="ObservationEvent") == 1, "the observation")
            [seen] = api.events(one["id"], kind__eq="ObservationEvent")
            assert seen["observation"]["content"][0]["text"] == f"{number}\n"


def test_concurrent_start_tasks_become_ready_and_their_sandboxes_pause(tmp_path, specs):
    with supervised_server(tmp_path, SANDBOX_SPECS=specs) as (client, _):
        api = WireApi(client)
        with ThreadPoolExecutor(STARTS) as pool:
            tasks = list(pool.map(lambda n: api.start_task(title=f"t{n}"), range(STARTS)))
        done = [api.finished(task["id"]) for task in tasks]

        assert [task["status"] for task in done] == ["READY"] * STARTS
        assert len(agents(tmp_path)) == STARTS
        assert api.call("GET", "/v1/app-conversations/count") == STARTS
        with ThreadPoolExecutor(STARTS) as pool:
            list(pool.map(lambda task: api.call("POST", f"/v1/sandboxes/{task['sandbox_id']}/pause"), done))
        assert all(stands_still(task["agent_server_url"], 0.2) for task in done)
