"""Two hosts of one name, of which one is frozen and comes back: each sandbox has one owner, and nothing runs twice."""

import signal
from contextlib import ExitStack

import pytest
from redis import Redis

from tests.conftest import SECRET_KEY
from tests.servers import agent_server, free_port, store_server, wait_until
from tests.supervisor import supervisor
from tests.v1 import WireApi
from tests.v1.processes import agents, in_sandboxes, kill_all

pytestmark = pytest.mark.faults("freezes a supervisor until another one has its name")

HOST_SECONDS = 3


@pytest.fixture
def twins(tmp_path, specs):
    """A server, and two supervisors of one name with a folder each, the second one standing by."""
    with ExitStack() as stack:
        url, _ = stack.enter_context(store_server(tmp_path))
        redis = stack.enter_context(Redis.from_url(url))
        settings = {"SANDBOX_SPECS": specs, "SECRET_KEY": SECRET_KEY, "HOST_SECONDS": str(HOST_SECONDS)}
        settings |= {"PORT": str(free_port()), "WEB_CONCURRENCY": "1"}
        client, _ = stack.enter_context(agent_server(tmp_path / "server.log", REDIS_URL=url, **settings))
        stack.callback(lambda: kill_all(in_sandboxes(tmp_path)))
        hosts = []
        for name in ("first", "second"):
            hosts.append(
                stack.enter_context(supervisor(redis, tmp_path / name, "--stand-by", HOST_ID="one", **settings))
            )
            event = "supervising" if name == "first" else "standing by"
            wait_until(lambda: event in text(hosts[-1]), event)  # noqa: B023
        yield WireApi(client), hosts, tmp_path
        for process, _ in hosts:
            process.send_signal(signal.SIGCONT)


def text(host) -> str:
    return host[1].read_text()


def test_a_frozen_supervisor_that_lost_its_name_runs_nothing_and_has_its_sandboxes_again_after_the_other(twins):
    api, (first, second), folder = twins
    kept = api.running_sandbox("free")["id"]
    living = agents(folder)
    first[0].send_signal(signal.SIGSTOP)
    wait_until(lambda: "supervising" in text(second), "the next supervisor of the name")
    api.wait_for(kept, "MISSING")
    started = [api.running_sandbox("free")["id"]]

    first[0].send_signal(signal.SIGCONT)
    wait_until(lambda: "another supervisor has taken the host one" in text(first), "the end of the first one's work")
    started.append(api.running_sandbox("free")["id"])

    assert api.sandbox(kept)["status"] == "MISSING"
    assert len(agents(folder / "second")) == len(started)
    assert agents(folder / "first") == living

    second[0].kill()
    wait_until(lambda: text(first).count("supervising") == 2, "the first one again")
    api.wait_for(kept, "RUNNING")
    wait_until(lambda: {api.sandbox(one)["status"] for one in started} == {"MISSING"}, "the others")
    assert agents(folder / "first") == living
