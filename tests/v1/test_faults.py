"""Whatever is killed: what is observed becomes true again by itself, nothing is orphaned, nothing is started twice."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from runtimes.tree import MARK
from tests.servers import PROJECT, agent_server, redis_server, supervised_server, wait_until
from tests.v1 import Api
from tests.v1.conftest import SPECS

#: seconds within which what is told must be true again
SOON = 5.0


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    path = tmp_path_factory.mktemp("specs") / "specs.toml"
    path.write_text(SPECS)
    return str(path)


@pytest.fixture(scope="module")
def started(tmp_path_factory, specs):
    """A server whose host is lost soon: its api, its master process, its folder."""
    folder = tmp_path_factory.mktemp("faults")
    with supervised_server(folder, SANDBOX_SPECS=specs, HOST_SECONDS="3") as (client, master):
        yield Api(client), master, folder
    assert not in_sandboxes(folder)


@pytest.fixture
def server(started):
    """That server, which every test leaves without a sandbox and without a process of one."""
    api, _, folder = started
    yield started
    api.clean()
    wait_until(lambda: not in_sandboxes(folder), "the end of every process")


def soon(ready, what: str) -> None:
    began = time.monotonic()
    wait_until(ready, what)
    assert time.monotonic() - began < SOON, what


def supervisor_of(master) -> psutil.Process:
    """The supervisor that a server has now."""
    wait_until(lambda: _supervisors(master), "the supervisor")
    return _supervisors(master)[0]


def _supervisors(master) -> list[psutil.Process]:
    children = psutil.Process(master.pid).children(recursive=True)
    return [child for child in children if "--stand-by" in child.cmdline()]


def in_sandboxes(folder: Path) -> list[psutil.Process]:
    """Every process of every sandbox under a folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK, "").startswith(str(folder)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def stands_still(url: str, seconds: float = 0.5) -> bool:
    """Whether an agent server takes connections, as the kernel does for it, but answers none."""
    try:
        httpx.get(url, timeout=seconds)
    except httpx.ReadTimeout:
        return True
    return False


def agents(folder: Path) -> list[psutil.Process]:
    """The agent servers among them."""
    found = []
    for process in in_sandboxes(folder):
        with contextlib.suppress(psutil.Error):
            if "agents.reference" in process.cmdline():
                found.append(process)
    return found


def test_a_supervisor_that_is_killed_is_followed_by_one_that_adopts(server):
    api, master, folder = server
    running, paused = api.running_sandbox(), api.running_sandbox()
    api.call("POST", f"/v1/sandboxes/{paused['id']}/pause")
    before = {process.pid for process in agents(folder)}

    supervisor_of(master).kill()

    soon(lambda: api.client.post(f"/api/v1/sandboxes/{running['id']}/pause").json() == {"success": True}, "a pause")
    soon(lambda: api.sandbox(running["id"])["status"] == "PAUSED", "the first to pause")
    api.call("POST", f"/v1/sandboxes/{paused['id']}/resume")
    soon(lambda: api.sandbox(paused["id"])["status"] == "RUNNING", "the second to run")
    assert {process.pid for process in agents(folder)} == before


def test_what_was_deleted_while_no_supervisor_lived_is_ended(server):
    api, master, folder = server
    sandbox = api.running_sandbox()
    supervisor = supervisor_of(master)
    supervisor.suspend()
    threading.Timer(0.5, supervisor.kill).start()

    api.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")

    soon(lambda: api.sandbox(sandbox["id"]) is None, "the end")
    soon(lambda: not in_sandboxes(folder), "the end of its processes")


@pytest.mark.parametrize("delay", [0.05, 0.15, 0.3, 0.5, 0.8])
def test_a_supervisor_that_is_killed_while_it_starts_some_starts_none_twice(server, delay):
    api, master, folder = server
    ids = [api.start_sandbox()["id"] for _ in range(4)]
    time.sleep(delay)

    supervisor_of(master).kill()

    wait_until(lambda: all(api.sandbox(one)["status"] == "RUNNING" for one in ids), "all four")
    assert len(agents(folder)) == 4


@pytest.mark.parametrize("delay", [0.02, 0.1, 0.25, 0.4])
def test_a_start_whose_driver_is_killed_is_finished_by_another(server, delay):
    api, master, folder = server
    tasks = [api.start_task(title=f"t{n}")["id"] for n in range(3)]
    time.sleep(delay)
    supervisor_of(master).kill()
    began = time.monotonic()

    done = [api.finished(task) for task in tasks]

    assert [task["status"] for task in done] == ["READY"] * 3
    assert time.monotonic() - began < 10 + SOON
    assert len(agents(folder)) == 3
    assert api.call("GET", "/v1/app-conversations/count") == 3


def test_a_worker_that_is_killed_changes_nothing(server):
    api, master, folder = server
    conversation = api.app_conversation()["id"]
    tasks = [api.start_task()["id"] for _ in range(3)]
    workers = [one for one in psutil.Process(master.pid).children() if "gunicorn" in " ".join(one.cmdline())]

    workers[0].kill()

    assert [api.finished(task)["status"] for task in tasks] == ["READY"] * 3
    api.send(conversation, "run: echo on")
    api.until(conversation, "waiting_for_confirmation")
    assert len(agents(folder)) == 4


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("victim", ["agent", "launcher"])
def test_a_sandbox_whose_process_is_killed_is_an_error_that_says_so(server, paused, victim):
    api, _, folder = server
    sandbox = api.running_sandbox()
    if paused:
        api.call("POST", f"/v1/sandboxes/{sandbox['id']}/pause")
    [agent] = agents(folder)
    target = agent if victim == "agent" else agent.parent()

    target.kill()

    soon(lambda: api.sandbox(sandbox["id"])["status"] == "ERROR", "the error")
    said = api.sandbox(sandbox["id"])["status_detail"]
    assert ("SIGKILL" if victim == "agent" else "killed from outside") in said
    assert "serving on" in said
    soon(lambda: not in_sandboxes(folder), "the end of what was left")


def test_redis_that_is_killed_comes_back_with_its_file(tmp_path, specs):
    # The embedded store starts its redis-server anew.
    settings = {"SUPERVISOR": "1", "STOP_SANDBOXES": "1", "DATA_DIR": str(tmp_path), "SANDBOX_SPECS": specs}
    with agent_server(tmp_path / "log", REDIS_URL="", **settings) as (client, master):
        api = Api(client)
        running, paused = api.running_sandbox(), api.running_sandbox()
        api.call("POST", f"/v1/sandboxes/{paused['id']}/pause")
        before = {process.pid for process in agents(tmp_path)}
        starting = api.start_sandbox()
        [redis] = [one for one in psutil.Process(master.pid).children(recursive=True) if one.name() == "redis-server"]

        redis.kill()
        [agent] = [one for one in agents(tmp_path) if str(running["exposed_urls"][0]["port"]) in one.cmdline()]
        agent.kill()

        soon(lambda: api.sandbox(running["id"])["status"] == "ERROR", "the one that ended meanwhile")
        soon(lambda: api.sandbox(paused["id"])["status"] == "PAUSED", "the paused one")
        wait_until(lambda: api.sandbox(starting["id"])["status"] == "RUNNING", "the one that was starting")
        left = {process.pid for process in agents(tmp_path)}
        assert left & before == before - {agent.pid}
        assert len(left) == 2
    assert not in_sandboxes(tmp_path)


def test_a_server_that_is_killed_whole_finds_its_sandboxes_again(tmp_path, specs):
    settings = {"SANDBOX_SPECS": specs, "STOP_SANDBOXES": "0"}
    with redis_server(tmp_path) as (url, _):
        with supervised_server(tmp_path, REDIS_URL=url, **settings) as (client, master):
            api = Api(client)
            running, paused = api.running_sandbox(), api.running_sandbox()
            api.call("POST", f"/v1/sandboxes/{paused['id']}/pause")
            before = {process.pid for process in agents(tmp_path)}
            keeper, supervisor = supervisor_of(master).parent(), supervisor_of(master)
            master.kill()
            psutil.wait_procs([keeper, supervisor], timeout=10)
            assert not supervisor.is_running()
        assert {process.pid for process in agents(tmp_path)} == before

        with supervised_server(tmp_path, REDIS_URL=url, **settings | {"STOP_SANDBOXES": "1"}) as (client, _):
            api = Api(client)
            soon(lambda: api.sandbox(running["id"])["status"] == "RUNNING", "the running one")
            assert api.sandbox(paused["id"])["status"] == "PAUSED"
            api.call("POST", f"/v1/sandboxes/{paused['id']}/resume")
            soon(lambda: api.sandbox(paused["id"])["status"] == "RUNNING", "the paused one")
            assert {process.pid for process in agents(tmp_path)} == before
    assert not in_sandboxes(tmp_path)


def test_an_answer_that_the_agent_could_not_hear_reaches_it_after_the_supervisors_death(server):
    api, master, _ = server
    conversation = api.app_conversation(initial_message={"content": [{"type": "text", "text": "run: echo heard"}]})
    api.until(conversation["id"], "waiting_for_confirmation")
    path = f"/v1/sandboxes/{conversation['sandbox_id']}"
    api.call("POST", f"{path}/pause")
    assert api.answer(conversation["id"], True) == {"success": True}
    assert api.answer(conversation["id"], False) == {"success": False}

    supervisor_of(master).kill()
    api.call("POST", f"{path}/resume")

    wait_until(lambda: api.count(conversation["id"], kind="ObservationEvent") == 1, "the observation")
    assert api.count(conversation["id"], kind="UserRejectObservation") == 0


def test_of_many_answers_at_once_one_wins_and_reaches_the_agent(server):
    api, _, _ = server
    conversation = api.app_conversation(initial_message={"content": [{"type": "text", "text": "run: echo once"}]})["id"]
    api.until(conversation, "waiting_for_confirmation")

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: (n % 2 == 0, api.answer(conversation, n % 2 == 0)), range(16)))

    [accepted] = [accept for accept, said in answers if said == {"success": True}]
    kind = "ObservationEvent" if accepted else "UserRejectObservation"
    wait_until(lambda: api.count(conversation, kind=kind) == 1, "what was decided")
    assert api.count(conversation, kind="ObservationEvent") + api.count(conversation, kind="UserRejectObservation") == 1


def test_a_second_supervisor_on_a_host_is_refused(server):
    api, master, folder = server
    environment = supervisor_of(master).environ()
    command = [sys.executable, "-m", "supervisor"]
    second = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=20)
    assert second.returncode == 3
    assert "another supervisor runs on the host" in second.stderr

    elsewhere = {**environment, "SANDBOX_DIR": str(folder / "elsewhere")}  # another machine of the same name
    second = subprocess.run(command, cwd=PROJECT, env=elsewhere, capture_output=True, text=True, timeout=20)
    assert second.returncode == 3
    assert api.running_sandbox()["status"] == "RUNNING"


@contextlib.contextmanager
def two_hosts(folder: Path, **settings: str):
    """Two servers with a supervisor each, on one Redis."""
    with redis_server(folder) as (url, _), contextlib.ExitStack() as stack:
        hosts = []
        for name in ("a", "b"):
            own = folder / name
            own.mkdir()
            entered = supervised_server(own, REDIS_URL=url, HOST_ID=name, HOST_SECONDS="3", **settings)
            hosts.append((*stack.enter_context(entered), own))
        yield hosts


def test_two_hosts_serve_each_others_sandboxes(tmp_path, specs):
    with two_hosts(tmp_path, SANDBOX_SPECS=specs) as [(client_a, master_a, a), (client_b, master_b, b)]:
        api_a, api_b = Api(client_a), Api(client_b)
        supervisor_of(master_a).suspend()  # so that host b takes the next one
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
        assert api_a.answer(conversation["id"], True) == {"success": True}
        wait_until(lambda: api_b.count(conversation["id"], kind="ObservationEvent") == 1, "the observation")

        # The other host is lost, and comes again.
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


def test_a_cap_that_is_reached_is_429_with_the_number_whoever_asks(tmp_path, specs):
    with supervised_server(tmp_path, SANDBOX_SPECS=specs, MAX_SANDBOXES="3") as (client, _):
        api = Api(client)
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


def test_where_it_is_so_set_the_longest_idle_one_is_paused_instead(tmp_path, specs):
    settings = {"SANDBOX_SPECS": specs, "MAX_SANDBOXES": "2", "SANDBOX_OVERFLOW": "pause"}
    with supervised_server(tmp_path, **settings) as (client, _):
        api = Api(client)
        first, second = api.app_conversation(), api.app_conversation()
        time.sleep(1.1)  # use is noted once a second
        api.send(first["id"], "hello")
        third = api.running_sandbox()

        api.wait_for(second["sandbox_id"], "PAUSED")
        assert api.sandbox(first["sandbox_id"])["status"] == "RUNNING"
        assert third["status"] == "RUNNING"


def test_one_sandbox_serves_several_conversations_where_it_is_so_set(tmp_path, specs):
    with supervised_server(tmp_path, SANDBOX_SPECS=specs, SANDBOX_SHARING="shared") as (client, _):
        api = Api(client)
        conversations = [api.app_conversation(title=f"t{n}") for n in range(3)]

        assert len({one["sandbox_id"] for one in conversations}) == 1
        assert len(agents(tmp_path)) == 1
        for number, one in enumerate(conversations):
            api.send(one["id"], f"run: echo {number}")
            api.until(one["id"], "waiting_for_confirmation")
            assert api.answer(one["id"], True) == {"success": True}
        for number, one in enumerate(conversations):
            wait_until(lambda one=one: api.count(one["id"], kind="ObservationEvent") == 1, "the observation")
            [seen] = api.events(one["id"], kind__eq="ObservationEvent")
            assert seen["observation"]["content"][0]["text"] == f"{number}\n"


def test_twenty_sandboxes_at_once(tmp_path, specs):
    with supervised_server(tmp_path, SANDBOX_SPECS=specs) as (client, _):
        api = Api(client)
        with ThreadPoolExecutor(20) as pool:
            tasks = list(pool.map(lambda n: api.start_task(title=f"t{n}"), range(20)))
        done = [api.finished(task["id"]) for task in tasks]

        assert [task["status"] for task in done] == ["READY"] * 20
        assert len(agents(tmp_path)) == 20
        assert api.call("GET", "/v1/app-conversations/count") == 20
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda task: api.call("POST", f"/v1/sandboxes/{task['sandbox_id']}/pause"), done))
        assert all(stands_still(task["agent_server_url"], 0.2) for task in done)


def test_without_a_supervisor_a_start_is_503_and_says_so(tmp_path):
    with redis_server(tmp_path) as (url, _), agent_server(tmp_path / "log", REDIS_URL=url) as (client, _):
        for path in ("sandboxes", "app-conversations", "app-conversations/stream-start"):
            response = client.post(f"/api/v1/{path}")
            assert response.status_code == 503
            assert "supervisor" in response.json()["detail"]
            assert response.headers["Retry-After"]


def test_a_start_that_nobody_goes_on_with_fails_and_is_cleared_away_later(tmp_path, specs):
    settings = {"SANDBOX_SPECS": specs, "SANDBOX_START_SECONDS": "2", "HOST_SECONDS": "2"}
    with supervised_server(tmp_path, **settings) as (client, master):
        api = Api(client)
        supervisor = supervisor_of(master)
        supervisor.suspend()
        task = api.start_task()

        failed = api.finished(task["id"])
        assert failed["status"] == "ERROR"
        assert "No supervisor" in failed["detail"]
        supervisor.resume()
        time.sleep(1)
        assert api.task(task["id"])["status"] == "ERROR"
        assert api.call("GET", "/v1/sandboxes/search")["items"] == []


def test_sigterm_leaves_sandboxes_unless_it_is_so_set(tmp_path, specs):
    with redis_server(tmp_path) as (url, _):
        with supervised_server(tmp_path, REDIS_URL=url, SANDBOX_SPECS=specs, STOP_SANDBOXES="0") as (client, _):
            sandbox = Api(client).running_sandbox()
        assert len(agents(tmp_path)) == 1
        with supervised_server(tmp_path, REDIS_URL=url, SANDBOX_SPECS=specs, STOP_SANDBOXES="1") as (client, _):
            soon(lambda: Api(client).sandbox(sandbox["id"])["status"] == "RUNNING", "the adopted one")
        assert not in_sandboxes(tmp_path)
        with supervised_server(tmp_path, REDIS_URL=url, SANDBOX_SPECS=specs) as (client, _):
            soon(lambda: Api(client).sandbox(sandbox["id"])["status"] in ("MISSING", "ERROR"), "the truth")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[spec]]\nid = 7", "id"),
        ('[[spec]]\nid = "a"\ncommand = "ls"\ncreated_at = 2026-11-21T00:00:00Z', "command"),
        ("not toml", "TOML"),
        ("", "spec"),
    ],
)
def test_a_wrong_file_of_specs_stops_the_start_with_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    command = [sys.executable, "-m", "gunicorn", "-c", "gunicorn.conf.py", "app:create_app()"]
    environment = {**os.environ, "SANDBOX_SPECS": str(path), "DATA_DIR": str(tmp_path)}
    said = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=20)
    assert said.returncode != 0
    assert "mine.toml" in said.stderr
    assert sentence in said.stderr
    assert "Traceback" not in said.stderr


def test_signals_are_not_left_pending(server):
    """A supervisor that is stopped by SIGTERM is followed by one as well."""
    api, master, _ = server
    sandbox = api.running_sandbox()
    supervisor_of(master).send_signal(signal.SIGTERM)
    soon(lambda: api.sandbox(sandbox["id"])["status"] in ("RUNNING", "MISSING"), "the next one")
