"""Supervisors that are killed, stopped, suspended or absent: the next one continues, and starts no sandbox twice."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.servers import PROJECT, agent_server, store_server, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.processes import agents, in_sandboxes, supervisor_of

pytestmark = pytest.mark.faults("kills supervisors during starts")

#: what Python runs first: a supervisor takes longer to load than its server takes to end
LOADS_SLOWLY = """
import sys, time
if "--stand-by" in sys.orig_argv:
    time.sleep(4)
"""


def test_the_supervisor_after_a_killed_one_adopts_its_sandboxes(supervised):
    api, master, folder = supervised
    running, paused = api.running_sandbox(), api.running_sandbox()
    api.call("POST", f"/v1/sandboxes/{paused['id']}/pause")
    before = {process.pid for process in agents(folder)}

    supervisor_of(master).kill()

    wait_until(
        lambda: api.client.post(f"/api/v1/sandboxes/{running['id']}/pause").json() == {"success": True}, "a pause"
    )
    wait_until(lambda: api.sandbox(running["id"])["status"] == "PAUSED", "the first to pause")
    api.call("POST", f"/v1/sandboxes/{paused['id']}/resume")
    wait_until(lambda: api.sandbox(paused["id"])["status"] == "RUNNING", "the second to run")
    assert {process.pid for process in agents(folder)} == before


def test_a_sandbox_that_is_deleted_while_no_supervisor_lives_is_ended_by_the_next_one(supervised):
    api, master, folder = supervised
    sandbox = api.running_sandbox()
    supervisor = supervisor_of(master)
    supervisor.suspend()
    threading.Timer(0.5, supervisor.kill).start()

    api.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")

    wait_until(lambda: api.sandbox(sandbox["id"]) is None, "the end")
    wait_until(lambda: not in_sandboxes(folder), "the end of its processes")


@pytest.mark.parametrize("delay", [0.05, 0.15, 0.3, 0.5, 0.8])
def test_no_sandbox_starts_twice_when_a_supervisor_is_killed_during_starts(supervised, delay):
    api, master, folder = supervised
    ids = [api.start_sandbox()["id"] for _ in range(4)]
    time.sleep(delay)

    supervisor_of(master).kill()

    wait_until(lambda: all(api.sandbox(one)["status"] == "RUNNING" for one in ids), "all four")
    assert len(agents(folder)) == 4


@pytest.mark.parametrize("delay", [0.02, 0.1, 0.25, 0.4])
def test_a_start_task_whose_driver_is_killed_is_finished_by_another_driver(supervised, delay):
    api, master, folder = supervised
    tasks = [api.start_task(title=f"t{n}")["id"] for n in range(3)]
    time.sleep(delay)
    supervisor_of(master).kill()

    done = [api.finished(task) for task in tasks]

    assert [task["status"] for task in done] == ["READY"] * 3
    assert len(agents(folder)) == 3
    assert api.call("GET", "/v1/app-conversations/count") == 3


def test_a_decision_on_a_paused_sandbox_reaches_its_agent_after_the_supervisors_death(supervised):
    api, master, _ = supervised
    conversation = api.app_conversation(initial_message={"content": [{"type": "text", "text": "run: echo heard"}]})
    api.until(conversation["id"], "waiting_for_confirmation")
    path = f"/v1/sandboxes/{conversation['sandbox_id']}"
    api.call("POST", f"{path}/pause")
    assert api.decide(conversation["id"], True) == {"success": True}
    assert api.decide(conversation["id"], False) == {"success": False}

    supervisor_of(master).kill()
    api.call("POST", f"{path}/resume")

    wait_until(lambda: api.count(conversation["id"], kind="ObservationEvent") == 1, "the observation")
    assert api.count(conversation["id"], kind="UserRejectObservation") == 0


def test_a_second_supervisor_on_a_host_is_refused(supervised):
    api, master, folder = supervised
    environment = supervisor_of(master).environ()
    command = [sys.executable, "-m", "supervisor"]
    second = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=20)
    assert second.returncode == 3
    assert "another supervisor runs on the host" in second.stderr

    elsewhere = {**environment, "SANDBOX_DIR": str(folder / "elsewhere")}  # another machine of the same name
    second = subprocess.run(command, cwd=PROJECT, env=elsewhere, capture_output=True, text=True, timeout=20)
    assert second.returncode == 3
    assert api.running_sandbox()["status"] == "RUNNING"


def test_a_start_without_a_supervisor_is_503_with_the_reason(tmp_path):
    with store_server(tmp_path) as (url, _), agent_server(tmp_path / "log", REDIS_URL=url) as (client, _):
        for path in ("sandboxes", "app-conversations", "app-conversations/stream-start"):
            response = client.post(f"/api/v1/{path}")
            assert response.status_code == 503
            assert "supervisor" in response.json()["detail"]
            assert response.headers["Retry-After"]


def test_what_a_stopped_supervisor_has_under_way_goes_on_when_it_is_back(tmp_path, specs):
    with supervised_server(tmp_path, SANDBOX_SPECS=specs, HOST_SECONDS="2") as (client, master):
        api, supervisor = WireApi(client), supervisor_of(master)
        running = api.running_sandbox()
        before = {process.pid for process in agents(tmp_path)}
        supervisor.suspend()
        task = api.start_task()
        wait_until(lambda: api.sandbox(running["id"])["status"] == "MISSING", "the loss of the host")
        assert api.task(task["id"])["status"] == "WORKING"

        supervisor.resume()

        assert api.finished(task["id"])["status"] == "READY"
        wait_until(lambda: api.sandbox(running["id"])["status"] == "RUNNING", "the return of the host")
        assert before < {process.pid for process in agents(tmp_path)}


def test_sigterm_leaves_sandboxes_unless_configured_otherwise(tmp_path, specs):
    with store_server(tmp_path) as (url, _):
        with supervised_server(tmp_path, REDIS_URL=url, SANDBOX_SPECS=specs, STOP_SANDBOXES="0") as (client, _):
            sandbox = WireApi(client).running_sandbox()
        assert len(agents(tmp_path)) == 1
        with supervised_server(tmp_path, REDIS_URL=url, SANDBOX_SPECS=specs, STOP_SANDBOXES="1") as (client, _):
            wait_until(lambda: WireApi(client).sandbox(sandbox["id"])["status"] == "RUNNING", "the adopted one")
        assert not in_sandboxes(tmp_path)
        with supervised_server(tmp_path, REDIS_URL=url, SANDBOX_SPECS=specs) as (client, _):
            rests = WireApi(client).sandbox(sandbox["id"])
            assert rests["status"] == "PAUSED"
            assert "It ended with its server" in rests["status_detail"]
            WireApi(client).call("POST", f"/v1/sandboxes/{sandbox['id']}/resume")
            WireApi(client).wait_for(sandbox["id"], "RUNNING")


def test_a_server_that_ends_while_its_next_supervisor_is_being_loaded_stops_its_sandboxes_too(tmp_path, specs):
    (tmp_path / "sitecustomize.py").write_text(LOADS_SLOWLY)
    with supervised_server(tmp_path, SANDBOX_SPECS=specs, PYTHONPATH=str(tmp_path)) as (client, master):
        WireApi(client).running_sandbox()
        supervisor_of(master).kill()
    assert not in_sandboxes(tmp_path)


def test_a_supervisor_that_sigterm_stopped_is_replaced(supervised):
    api, master, _ = supervised
    sandbox = api.running_sandbox()
    supervisor_of(master).send_signal(signal.SIGTERM)
    wait_until(lambda: api.sandbox(sandbox["id"])["status"] in ("RUNNING", "MISSING"), "the next one")
