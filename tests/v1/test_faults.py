"""Workers, agents, Redis or the whole server are killed: reported statuses become true again by themselves."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.servers import PROJECT, agent_server, store_server, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.processes import agents, in_sandboxes, launchers, supervisor_of, workers

pytestmark = pytest.mark.faults("kills agents, workers, the store and whole servers")


def test_a_killed_worker_harms_no_start_task_and_no_conversation(supervised):
    api, master, folder = supervised
    conversation = api.app_conversation()["id"]
    tasks = [api.start_task()["id"] for _ in range(3)]

    workers(master)[0].kill()

    assert [api.finished(task)["status"] for task in tasks] == ["READY"] * 3
    api.send(conversation, "run: echo on")
    api.until(conversation, "waiting_for_confirmation")
    assert len(agents(folder)) == 4


def test_a_supervisor_that_is_killed_while_a_clone_fails_leaves_one_failed_start_and_nothing_else(supervised):
    api, master, _ = supervised
    for status in ("WAITING_FOR_SANDBOX", "PREPARING_REPOSITORY", "ERROR"):
        task = api.start_task(selected_repository="file:///nowhere/name")["id"]
        wait_until(lambda task=task, at=status: api.task(task)["status"] in (at, "ERROR"), status)
        supervisor_of(master).kill()

        ended = api.finished(task)
        assert (ended["status"], ended["failed_in"]) == ("ERROR", "PREPARING_REPOSITORY")
        assert ended["detail"].startswith("The repository file:///nowhere/name was not cloned: fatal: ")
        wait_until(lambda: not api.call("GET", "/v1/sandboxes/search")["items"], "the end of its sandbox")
        assert api.call("GET", "/v1/app-conversations/count") == 0


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("victim", ["agent", "launcher"])
def test_a_sandbox_whose_process_is_killed_says_so_and_leaves_no_process(supervised, paused, victim):
    api, _, folder = supervised
    sandbox = api.running_sandbox()
    if paused:
        api.call("POST", f"/v1/sandboxes/{sandbox['id']}/pause")
    [agent] = agents(folder)
    [launcher] = launchers(folder)
    target = agent if victim == "agent" else launcher

    target.kill()

    wait_until(lambda: api.sandbox(sandbox["id"])["status_detail"], "the end")
    ended = api.sandbox(sandbox["id"])
    assert ended["status"] == ("PAUSED" if paused else "ERROR")
    assert ("SIGKILL" if victim == "agent" else "killed from outside") in ended["status_detail"]
    assert "serving on" in api.call("GET", f"/v1/sandboxes/{sandbox['id']}/logs")["log"]
    wait_until(lambda: not in_sandboxes(folder), "the end of leftover processes")


def test_a_killed_redis_restarts_with_its_data(tmp_path, specs):
    # The embedded store restarts its server.
    settings = {"SUPERVISOR": "1", "STOP_SANDBOXES": "1", "DATA_DIR": str(tmp_path), "SANDBOX_SPECS": specs}
    with agent_server(tmp_path / "log", REDIS_URL="", **settings) as (client, master):
        api = WireApi(client)
        running, paused = api.running_sandbox(), api.running_sandbox()
        api.call("POST", f"/v1/sandboxes/{paused['id']}/pause")
        before = {process.pid for process in agents(tmp_path)}
        starting = api.start_sandbox()
        [redis] = [one for one in psutil.Process(master.pid).children(recursive=True) if "-server" in one.name()]

        redis.kill()
        [agent] = [one for one in agents(tmp_path) if str(running["exposed_urls"][0]["port"]) in one.cmdline()]
        agent.kill()

        wait_until(lambda: api.sandbox(running["id"])["status"] == "ERROR", "the one that ended meanwhile")
        wait_until(lambda: api.sandbox(paused["id"])["status"] == "PAUSED", "the paused one")
        wait_until(lambda: api.sandbox(starting["id"])["status"] == "RUNNING", "the one that was starting")
        left = {process.pid for process in agents(tmp_path)}
        assert left & before == before - {agent.pid}
        assert len(left) == 2
    assert not in_sandboxes(tmp_path)


def test_a_server_whose_processes_are_all_killed_finds_its_sandboxes_again(tmp_path, specs):
    settings = {"SANDBOX_SPECS": specs, "STOP_SANDBOXES": "0"}
    with store_server(tmp_path) as (url, _):
        with supervised_server(tmp_path, REDIS_URL=url, **settings) as (client, master):
            api = WireApi(client)
            running, paused = api.running_sandbox(), api.running_sandbox()
            api.call("POST", f"/v1/sandboxes/{paused['id']}/pause")
            before = {process.pid for process in agents(tmp_path)}
            keeper, supervisor = supervisor_of(master).parent(), supervisor_of(master)
            master.kill()
            psutil.wait_procs([keeper, supervisor], timeout=10)
            assert not supervisor.is_running()
        assert {process.pid for process in agents(tmp_path)} == before

        with supervised_server(tmp_path, REDIS_URL=url, **settings | {"STOP_SANDBOXES": "1"}) as (client, _):
            api = WireApi(client)
            wait_until(lambda: api.sandbox(running["id"])["status"] == "RUNNING", "the running one")
            assert api.sandbox(paused["id"])["status"] == "PAUSED"
            api.call("POST", f"/v1/sandboxes/{paused['id']}/resume")
            wait_until(lambda: api.sandbox(paused["id"])["status"] == "RUNNING", "the paused one")
            assert {process.pid for process in agents(tmp_path)} == before
    assert not in_sandboxes(tmp_path)


def test_concurrent_decisions_have_a_single_winner_that_reaches_the_agent(supervised):
    api, _, _ = supervised
    conversation = api.app_conversation(initial_message={"content": [{"type": "text", "text": "run: echo once"}]})["id"]
    api.until(conversation, "waiting_for_confirmation")

    with ThreadPoolExecutor(16) as pool:
        decisions = list(pool.map(lambda n: (n % 2 == 0, api.decide(conversation, n % 2 == 0)), range(16)))

    [accepted] = [accept for accept, said in decisions if said == {"success": True}]
    kind = "ObservationEvent" if accepted else "UserRejectObservation"
    wait_until(lambda: api.count(conversation, kind=kind) == 1, "the decided event")
    assert api.count(conversation, kind="ObservationEvent") + api.count(conversation, kind="UserRejectObservation") == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[spec]]\nid = 7", "id"),
        ('[[spec]]\nid = "a"\ncommand = "ls"\ncreated_at = 2026-11-21T00:00:00Z', "command"),
        ("not toml", "TOML"),
        ("", "spec"),
    ],
)
def test_an_invalid_specs_file_stops_the_server_with_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"]
    environment = {**os.environ, "SANDBOX_SPECS": str(path), "DATA_DIR": str(tmp_path)}
    said = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=20)
    assert said.returncode != 0
    assert "mine.toml" in said.stderr
    assert sentence in said.stderr
    assert "Traceback" not in said.stderr
