"""A server that was away, webhooks that were refused, stopped agents: the log gets whole, and no run stays."""

import signal
from collections import Counter
from contextlib import suppress
from uuid import UUID

import httpx
import psutil
import pytest
from redis import Redis

from tests.servers import free_port, store_server, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.processes import agents, in_sandboxes, kill_all, supervisor_of, workers
from tests.v1.test_kept_work import every_event

pytestmark = pytest.mark.faults("stops stores, servers and agents during long runs")

#: commands of a long run, as many as a message may have; each makes two events: several pages
COMMANDS = 200

RUN = "\n".join(["run: :"] * COMMANDS)


class OutageAgent:
    """The agent server of a conversation, asked past the server under test."""

    def __init__(self, api: WireApi, conversation_id: str) -> None:
        shown = api.conversation(conversation_id)
        self._url = shown["conversation_url"]
        self._headers = {"X-Session-API-Key": shown["session_api_key"]}

    def status(self) -> str:
        return httpx.get(self._url, headers=self._headers).json()["execution_status"]

    def events(self) -> list[dict]:
        with httpx.Client(headers=self._headers, timeout=20) as client:
            return every_event(client, f"{self._url}/events/search")


def same(api: WireApi, conversation_id: str, theirs: list[dict]) -> bool:
    """Whether our log has every event of the agent's once, with equal counts of every kind and source."""
    path = f"/api/v1/conversation/{conversation_id}/events/search"
    ours = [one["id"] for one in every_event(api.client, path)]
    kinds = Counter((one["kind"], one["source"]) for one in theirs)
    return (
        sorted(ours) == sorted(one["id"] for one in theirs)
        and all(api.count(conversation_id, kind=kind, source=source) == kinds[kind, source] for kind, source in kinds)
        and ours == [one["id"] for one in sorted(theirs, key=lambda one: one["timestamp"])]
    )


@pytest.mark.parametrize("address", ["the same", "another"])
def test_a_server_and_a_redis_that_were_away_have_every_event_of_a_long_run_after_that(
    tmp_path, specs, request, address
):
    """At the same address the agent posts what it has kept, at another none of its webhooks arrives."""
    settings = {"SANDBOX_SPECS": specs, "STOP_SANDBOXES": "0", "PORT": str(free_port())}
    with (
        store_server(tmp_path) as (url, redis),
        supervised_server(tmp_path, REDIS_URL=url, **settings) as (client, master),
    ):
        api = WireApi(client)
        conversation = api.app_conversation(sandbox_spec_id="free")["id"]
        api.send(conversation, RUN, run=True)
        api.until(conversation, "running")
        agent = OutageAgent(api, conversation)
        kill_server(master)
        redis.kill()
    request.addfinalizer(lambda: kill_all(in_sandboxes(tmp_path)))
    wait_until(lambda: agent.status() == "finished", "the end of the run", seconds=120)
    theirs = agent.events()
    port = settings["PORT"] if address == "the same" else str(free_port())
    assert len(theirs) > 2 * COMMANDS

    with (
        store_server(tmp_path) as (url, _),
        supervised_server(tmp_path, REDIS_URL=url, SANDBOX_SPECS=specs, PORT=port) as (client, _),
    ):
        api = WireApi(client)
        wait_until(lambda: same(api, conversation, theirs), "every event", seconds=120)
        api.until(conversation, "finished")
        api.clean()


def kill_server(master) -> None:
    """Kill a server with its workers and its supervisor, as a power cut does; its sandboxes go on."""
    mine = [psutil.Process(master.pid), *workers(master), supervisor_of(master)]
    for one in mine:
        with suppress(psutil.Error):
            one.kill()
    psutil.wait_procs(mine, timeout=10)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, specs):
    """A server, its folder and its Redis."""
    folder = tmp_path_factory.mktemp("outages")
    with (
        store_server(folder) as (url, _),
        supervised_server(folder, REDIS_URL=url, SANDBOX_SPECS=specs, WEB_CONCURRENCY="2") as (client, master),
        Redis.from_url(url) as redis,
    ):
        yield WireApi(client), redis, folder, master


@pytest.fixture
def with_redis(whole):
    """That server, which every test leaves without a sandbox."""
    yield whole
    whole[0].clean()


def test_webhooks_that_were_refused_are_made_up_for(with_redis):
    """The reference agent posts what was refused no more: neither what ran in between nor the end of the run."""
    api, redis, _, _ = with_redis
    conversation = api.app_conversation(sandbox_spec_id="free")["id"]
    agent = OutageAgent(api, conversation)
    api.send(conversation, RUN, run=True)
    api.until(conversation, "running")
    known = redis.hgetall("{sandboxes}:keys")

    redis.delete("{sandboxes}:keys")
    wait_until(lambda: agent.status() == "finished", "the end of the run", seconds=120)
    redis.hset("{sandboxes}:keys", mapping=known)

    theirs = agent.events()
    wait_until(lambda: same(api, conversation, theirs), "every event", seconds=120)
    api.until(conversation, "finished")
    api.send(conversation, "run: echo on", run=True)
    wait_until(lambda: same(api, conversation, agent.events()) and agent.status() == "finished", "what follows")


def test_a_worker_that_is_killed_while_an_agent_posts_costs_no_event(with_redis):
    api, _, _, master = with_redis
    conversation = api.app_conversation(sandbox_spec_id="free")["id"]
    api.send(conversation, "\n".join(["run: :"] * 200), run=True)
    for _ in range(3):
        workers(master)[0].kill()
        wait_until(lambda: len(workers(master)) == 2, "the next worker")
    wait_until(lambda: api.client.get("/alive").status_code == 200, "a worker that serves")
    agent = OutageAgent(api, conversation)
    wait_until(lambda: agent.status() == "finished", "the end of the run")
    wait_until(lambda: same(api, conversation, agent.events()), "every event")
    api.until(conversation, "finished")


@pytest.mark.parametrize("who", ["the agent server", "all processes"])
def test_a_run_whose_agent_was_stopped_from_outside_goes_on(with_redis, who):
    api, _, folder, _ = with_redis
    conversation = api.app_conversation(sandbox_spec_id="free")["id"]
    api.send(conversation, "run: sleep 1\nrun: echo done", run=True)
    wait_until(lambda: api.count(conversation, kind="ActionEvent") == 2, "the actions")
    [agent] = agents(folder)

    for process in [agent, *(agent.children(recursive=True) if who == "all processes" else [])]:
        process.send_signal(signal.SIGSTOP)

    api.until(conversation, "finished")
    assert api.count(conversation, kind="ObservationEvent") == 2


def test_a_run_in_a_sandbox_that_gets_paused_is_paused_and_goes_on_when_it_is_run(with_redis):
    api, _, _, _ = with_redis
    conversation = api.app_conversation(sandbox_spec_id="free")["id"]
    sandbox_id = api.conversation(conversation)["sandbox_id"]
    api.send(conversation, "run: sleep 1\nrun: echo done", run=True)
    wait_until(lambda: api.count(conversation, kind="ActionEvent") == 2, "the actions")

    api.call("POST", f"/v1/sandboxes/{sandbox_id}/pause")
    path = f"/conversations/{UUID(conversation)}"
    wait_until(lambda: api.call("GET", path)["execution_status"] == "paused", "the run to be shown as paused")

    # As an SDK does, which takes 409 for a run that goes on
    assert api.client.post(f"/api{path}/run").status_code in (200, 409)
    api.until(conversation, "finished")
    assert api.count(conversation, kind="ObservationEvent") == 2


def test_a_command_to_a_paused_sandbox_that_may_not_wake_is_503_and_never_a_run_that_goes_on(tmp_path, specs):
    with supervised_server(tmp_path, SANDBOX_SPECS=specs, WAKE_SECONDS="0") as (client, _):
        api = WireApi(client)
        conversation = api.app_conversation(sandbox_spec_id="free")
        path = f"/api/conversations/{UUID(conversation['id'])}"
        content = [{"type": "text", "text": "hello"}]
        api.call("POST", f"/v1/sandboxes/{conversation['sandbox_id']}/pause")

        for verb, body in {
            "run": None,
            "events": {"role": "user", "content": content},
            "confirmation_policy": {"policy": {"kind": "NeverConfirm"}},
            "security_analyzer": {"security_analyzer": None},
            "secrets": {"secrets": {"A": "b"}},
        }.items():
            response = client.post(f"{path}/{verb}", json=body)
            assert (response.status_code, "Retry-After" in response.headers) == (503, True), verb
            assert "PAUSED" in response.json()["detail"]
        assert api.send(conversation["id"], "hello", status=409)
