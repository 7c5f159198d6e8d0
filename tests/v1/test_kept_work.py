"""The work of agents stays, whatever ends: one agent, the whole server, a host without power."""

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from uuid import UUID

import httpx
import psutil
import pytest

from tests.chance import often
from tests.servers import store_server, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.conftest import AGENT
from tests.v1.processes import agents, in_sandboxes, kill_all

pytestmark = pytest.mark.faults("kills agents many times, and restarts whole servers")

SPECS = f"""
[[spec]]
id = "tough"
{AGENT.replace("restarts = 0", "restarts = 50")}
[spec.conversation]
confirmation_policy = {{ kind = "AlwaysConfirm" }}

[[spec]]
id = "eager"
resume_runs = true
{AGENT.replace("restarts = 0", "restarts = 50")}

[[spec]]
id = "rests"
idle_stop_seconds = 0.1
{AGENT}
"""

#: sandboxes, kills of each, and commands of each message
SANDBOXES, KILLS, COMMANDS = often(3, 10), often(3, 5), 20

#: sandboxes that rest on disk, and how often each does
RESTING, RESTS = often(3, 5), often(4, 20)


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept") / "specs.toml"
    path.write_text(SPECS)
    return str(path)


def message(text: str) -> dict:
    return {"content": [{"type": "text", "text": text}]}


def agent_of(folder: Path, sandbox_id: str) -> psutil.Process:
    found: list[psutil.Process] = []

    def is_there() -> bool:
        found[:] = [one for one in agents(folder) if f"/{sandbox_id}/" in one.environ()["OH_CONVERSATIONS_PATH"]]
        return len(found) == 1

    wait_until(is_there, "the agent server")  # another one may end while they are read
    return found[0]


def work_of(folder: Path, sandbox_id: str) -> Path:
    [work] = (folder / "sandboxes").glob(f"*/{sandbox_id}/work")
    return work


def drive_to_the_end(api: WireApi, conversation_id: str, actions: int) -> None:
    """As a client does: accept what waits, run what rests, until the agent has finished so many actions."""

    def is_finished() -> bool:
        proposed = api.count(conversation_id, kind="ActionEvent")  # first: the status is at least as new then
        state = api.conversation(conversation_id)
        if state["sandbox_status"] != "RUNNING" or state["execution_status"] == "running":
            return False
        if state["execution_status"] == "waiting_for_confirmation":
            api.client.post(
                f"/api/conversations/{UUID(conversation_id)}/events/respond_to_confirmation", json={"accept": True}
            )
        elif state["execution_status"] != "finished":
            api.client.post(f"/api/conversations/{UUID(conversation_id)}/run")  # it may crash before it responds
        return state["execution_status"] == "finished" and proposed == actions

    wait_until(is_finished, f"the end of {conversation_id}", seconds=120)


def every_event(client: httpx.Client, path: str, **options) -> list[dict]:
    found, page_id = [], None
    while True:
        query = {"limit": 100} | ({"page_id": page_id} if page_id else {})
        page = client.get(path, params=query, **options).raise_for_status().json()
        found += page["items"]
        page_id = page["next_page_id"]
        if page_id is None:
            return found


def ids_at_the_agent(api: WireApi, conversation_id: str) -> list[str]:
    state = api.conversation(conversation_id)
    with httpx.Client(headers={"X-Session-API-Key": state["session_api_key"]}) as agent:
        return [event["id"] for event in every_event(agent, f"{state['conversation_url']}/events/search")]


def is_told(api: WireApi, conversation_id: str, ends: int) -> bool:
    return api.count(conversation_id, kind="ConversationErrorEvent") >= ends


def key_of(api: WireApi, sandbox_id: str) -> str | None:
    """The session key, which each start of a sandbox changes; None while it does not run."""
    return api.sandbox(sandbox_id)["session_api_key"]


def runs_again(api: WireApi, sandbox_id: str, last_key: str | None) -> bool:
    return key_of(api, sandbox_id) not in (None, last_key)


def kill_in_each_message(api: WireApi, folder: Path, conversation: dict, seed: str) -> None:
    """Kill a conversation's agent at a random moment of each of its messages."""
    chance = random.Random(seed)
    for kill in range(KILLS):
        commands = "\n".join(f"run: echo {kill}.{number} >> ran" for number in range(COMMANDS))
        key = key_of(api, conversation["sandbox_id"])
        victim = agent_of(folder, conversation["sandbox_id"])
        killer = threading.Timer(chance.uniform(0, 0.8), victim.kill)
        api.send(conversation["id"], commands, run=True)
        killer.start()
        drive_to_the_end(api, conversation["id"], (kill + 1) * COMMANDS)
        killer.join()
        victim.wait(10)
        wait_until(partial(is_told, api, conversation["id"], kill + 1), "the note of the end")
        # The note is written before the sandbox is said to start again.
        wait_until(partial(runs_again, api, conversation["sandbox_id"], key), "the next agent server")
        drive_to_the_end(api, conversation["id"], (kill + 1) * COMMANDS)


def test_agents_that_are_killed_at_random_moments_lose_and_double_nothing(tmp_path, specs):
    with supervised_server(tmp_path, SANDBOX_SPECS=specs) as (client, _):
        api = WireApi(client)
        conversations = [api.app_conversation(sandbox_spec_id="tough") for _ in range(SANDBOXES)]
        with ThreadPoolExecutor(SANDBOXES) as pool:
            list(pool.map(lambda each: kill_in_each_message(api, tmp_path, each, each["id"]), conversations))

        for conversation_id in (each["id"] for each in conversations):
            ours = every_event(client, f"/api/v1/conversation/{conversation_id}/events/search")
            theirs = ids_at_the_agent(api, conversation_id)
            ids = [event["id"] for event in ours]
            assert len(set(ids)) == len(ids)
            assert len(set(theirs)) == len(theirs)
            assert set(theirs) <= set(ids)
            own = {event["kind"] for event in ours if event["id"] not in set(theirs)}
            assert own <= {"ConversationErrorEvent", "ConversationStateUpdateEvent"}

            kinds = Counter(event["kind"] for event in ours)
            assert kinds["MessageEvent"] == KILLS
            assert kinds["ActionEvent"] == KILLS * COMMANDS
            results = Counter(
                event["tool_call_id"] for event in ours if event["kind"] in ("ObservationEvent", "AgentErrorEvent")
            )
            assert set(results.values()) == {1}
            assert len(results) == KILLS * COMMANDS
            said = [event["code"] for event in ours if event["kind"] == "ConversationErrorEvent"]
            assert said.count("AgentServerRestarted") == KILLS

            sandbox_id = api.conversation(conversation_id)["sandbox_id"]
            ran = Counter(work_of(tmp_path, sandbox_id).joinpath("ran").read_text().split())
            assert set(ran.values()) == {1}
            observed = {
                event["action_id"]: event["observation"]["command"]
                for event in ours
                if event["kind"] == "ObservationEvent"
            }
            assert {command.split()[1] for command in observed.values()} <= set(ran)
            unknown = KILLS * COMMANDS - len(observed)  # each is said by an AgentErrorEvent
            assert len(observed) <= len(ran) <= len(observed) + unknown
            assert unknown <= KILLS


def test_after_a_power_cut_every_conversation_goes_on_with_its_files(tmp_path, specs):
    with store_server(tmp_path) as (url, redis):
        settings = {"REDIS_URL": url, "SANDBOX_SPECS": specs}
        with supervised_server(tmp_path, **settings) as (client, master):
            api = WireApi(client)
            tasks = [api.start_task(sandbox_spec_id="tough")["id"] for _ in range(often(4, 10))]
            conversations = [api.finished(task)["app_conversation_id"] for task in tasks]
            for number, conversation_id in enumerate(conversations):
                api.send(conversation_id, f"run: echo {number} > mine", run=True)
                if number % 2:
                    drive_to_the_end(api, conversation_id, 1)
            before = [set(ids_at_the_agent(api, conversation_id)) for conversation_id in conversations]
            kill_all([psutil.Process(master.pid), psutil.Process(redis.pid), *in_sandboxes(tmp_path)])
    assert not in_sandboxes(tmp_path)

    with (
        store_server(tmp_path) as (url, _),
        supervised_server(tmp_path, **settings | {"REDIS_URL": url}) as (client, _),
    ):
        api = WireApi(client)
        for number, conversation_id in enumerate(conversations):
            drive_to_the_end(api, conversation_id, 1)
            api.send(conversation_id, "run: cat mine", run=True)
            drive_to_the_end(api, conversation_id, 2)
            *_, last = api.events(conversation_id, kind__eq="ObservationEvent")
            assert last["observation"]["content"][0]["text"] == f"{number}\n"
            ids = {
                event["id"] for event in every_event(client, f"/api/v1/conversation/{conversation_id}/events/search")
            }
            assert before[number] <= set(ids_at_the_agent(api, conversation_id)) <= ids


def test_a_conversation_that_ran_goes_on_by_itself_where_its_spec_says_so(tmp_path, specs):
    with supervised_server(tmp_path, SANDBOX_SPECS=specs) as (client, _):
        api = WireApi(client)
        conversation = api.app_conversation(sandbox_spec_id="eager")
        api.send(conversation["id"], "run: sleep 1; echo 1 >> ran\nrun: echo 2 >> ran", run=True)
        wait_until(lambda: api.count(conversation["id"], kind="ActionEvent") == 2, "the actions")

        agent_of(tmp_path, conversation["sandbox_id"]).kill()

        wait_until(lambda: "2" in (work_of(tmp_path, conversation["sandbox_id"]) / "ran").read_text(), "the second")
        api.until(conversation["id"], "finished")


def rest_and_wake(api: WireApi, folder: Path, conversation: dict) -> None:
    """The rests on disk of one sandbox; a message wakes it from every fourth, a resume from the others."""
    identity, sandbox_id = conversation["id"], conversation["sandbox_id"]
    for cycle in range(RESTS):
        api.call("POST", f"/v1/sandboxes/{sandbox_id}/pause")
        wait_until(lambda: "files are kept" in (api.sandbox(sandbox_id)["status_detail"] or ""), "its rest")
        assert api.sandbox(sandbox_id)["status"] == "PAUSED"
        if cycle % 4:
            api.call("POST", f"/v1/sandboxes/{sandbox_id}/resume")
        else:
            api.send(identity, f"run: echo {cycle} >> ran", run=True)
            drive_to_the_end(api, identity, cycle // 4 + 1)
        api.wait_for(sandbox_id, "RUNNING")
    assert (work_of(folder, sandbox_id) / "ran").read_text().split() == [str(cycle) for cycle in range(0, RESTS, 4)]
    kinds = Counter(
        event["kind"] for event in every_event(api.client, f"/api/v1/conversation/{identity}/events/search")
    )
    assert kinds["MessageEvent"] == kinds["ActionEvent"] == kinds["ObservationEvent"] == RESTS // 4
    assert not kinds["ConversationErrorEvent"]


def test_many_rests_on_disk_keep_the_files_and_the_conversations(tmp_path, specs):
    with supervised_server(tmp_path, SANDBOX_SPECS=specs) as (client, _):
        api = WireApi(client)
        conversations = [api.app_conversation(sandbox_spec_id="rests") for _ in range(RESTING)]
        with ThreadPoolExecutor(RESTING) as pool:
            list(pool.map(lambda each: rest_and_wake(api, tmp_path, each), conversations))
        for conversation in conversations:
            api.call("POST", f"/v1/sandboxes/{conversation['sandbox_id']}/pause")
        wait_until(lambda: not in_sandboxes(tmp_path), "the end of their processes")


@pytest.mark.parametrize("resumes", ["0", "1"])
def test_sandboxes_that_ran_when_their_server_ended_start_with_the_next_one_or_when_they_are_used(
    tmp_path, specs, resumes
):
    with store_server(tmp_path) as (url, _):
        settings = {"REDIS_URL": url, "SANDBOX_SPECS": specs, "RESUME_SANDBOXES": resumes}
        with supervised_server(tmp_path, **settings) as (client, _):
            api = WireApi(client)
            conversation = api.app_conversation(sandbox_spec_id="tough")
            paused = api.running_sandbox("tough")["id"]
            api.call("POST", f"/v1/sandboxes/{paused}/pause")
        with supervised_server(tmp_path, **settings) as (client, _):
            api = WireApi(client)
            if resumes == "0":
                assert api.sandbox(conversation["sandbox_id"])["status"] == "PAUSED"
                assert not agents(tmp_path)
                api.send(conversation["id"], "hello", run=True)
            api.wait_for(conversation["sandbox_id"], "RUNNING")
            assert api.sandbox(paused)["status"] == "PAUSED"
            assert len(agents(tmp_path)) == 1
