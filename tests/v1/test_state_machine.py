"""Start, write, pause, resume, crash, end, delete and a power cut, in any order, against a model."""

import contextlib
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, Phase, settings, stateful
from hypothesis import strategies as st

from tests.servers import redis_server, supervised_server, wait_until
from tests.v1 import Api
from tests.v1.conftest import SPECS
from tests.v1.processes import agents, in_sandboxes, kill_all, supervisor_of


class Server:
    """A whole server that can be ended and started again on the same data."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self._url = folder, url
        (folder / "specs.toml").write_text(SPECS)
        self.start()

    def start(self) -> None:
        self._stack = contextlib.ExitStack()
        environment = {"REDIS_URL": self._url, "SANDBOX_SPECS": str(self.folder / "specs.toml")}
        client, self.master = self._stack.enter_context(supervised_server(self.folder, **environment))
        self.api = Api(client)

    def end(self) -> None:
        """As SIGTERM ends it: its sandboxes rest."""
        self._stack.close()

    def cut_power(self) -> None:
        """Kill every process of the server and of its sandboxes at once."""
        kill_all([psutil.Process(self.master.pid), *in_sandboxes(self.folder)])
        self._stack.close()


class Sandboxes(stateful.RuleBasedStateMachine):
    """The model has the final status of each sandbox, and its files. One that runs has exactly one agent server."""

    server: Server
    ids = stateful.Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, str] = {}
        self.files: dict[str, set[str]] = {}

    @property
    def api(self) -> Api:
        return self.server.api

    def work(self, identity: str) -> Path:
        [folder] = (self.server.folder / "sandboxes").glob(f"*/{identity}/work")
        return folder

    def ask(self, method: str, identity: str, verb: str = "") -> int:
        return self.api.client.request(method, f"/api/v1/sandboxes/{identity}{verb}").status_code

    @stateful.precondition(lambda self: len(self.model) < 2)
    @stateful.rule(target=ids)
    def start(self):
        sandbox = self.api.running_sandbox("tough")
        self.model[sandbox["id"]], self.files[sandbox["id"]] = "RUNNING", set()
        return sandbox["id"]

    @stateful.rule(identity=ids, name=st.sampled_from(["a", "b", "c"]))
    def write(self, identity, name):
        if identity in self.model:
            (self.work(identity) / name).write_text(identity)
            self.files[identity].add(name)

    @stateful.rule(identity=ids, verb=st.sampled_from(["pause", "resume"]))
    def pause_or_resume(self, identity, verb):
        known = identity in self.model
        assert self.ask("POST", identity, f"/{verb}") == (200 if known else 404)
        if known:
            self.model[identity] = "PAUSED" if verb == "pause" else "RUNNING"

    @stateful.rule(identity=stateful.consumes(ids))
    def delete(self, identity):
        assert self.ask("DELETE", identity) == (200 if identity in self.model else 404)
        self.model.pop(identity, None)
        assert self.ask("DELETE", identity) == 404
        assert not list((self.server.folder / "sandboxes").glob(f"*/*{identity}*"))

    @stateful.precondition(lambda self: "RUNNING" in self.model.values())
    @stateful.rule()
    def crash(self):
        for agent in agents(self.server.folder):
            with contextlib.suppress(psutil.Error):
                agent.kill()
        running = sum(status == "RUNNING" for status in self.model.values())
        wait_until(lambda: len(agents(self.server.folder)) >= running, "the restart")  # until then it may say RUNNING

    @stateful.rule()
    def kill_the_supervisor(self):
        supervisor_of(self.server.master).kill()

    @stateful.rule()
    def cut_power(self):
        self.server.cut_power()
        self.server.start()

    @stateful.rule()
    def end_and_start_again(self):
        self.server.end()
        self.model = dict.fromkeys(self.model, "PAUSED")
        self.server.start()

    @stateful.invariant()
    def reported_statuses_become_true(self):
        wait_until(lambda: self.reported() == self.model, f"the truth, which is {self.model}")
        running = sum(status == "RUNNING" for status in self.model.values())
        wait_until(lambda: running <= len(agents(self.server.folder)) <= len(self.model), "one agent each")
        for identity, files in self.files.items():
            if identity in self.model:
                found = {path.name for path in self.work(identity).iterdir() if not path.name.startswith(".")}
                assert found == files
                assert all((self.work(identity) / name).read_text() == identity for name in files)

    def reported(self) -> dict[str, str]:
        return {one["id"]: one["status"] for one in self.api.call("GET", "/v1/sandboxes/search")["items"]}

    def teardown(self):
        for identity in self.model:
            assert self.ask("DELETE", identity) == 200
        wait_until(lambda: not in_sandboxes(self.server.folder), "the end of all")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machine")
    with redis_server(folder) as (url, _):
        server = Server(folder, url)
        yield server
        server.end()


def test_statuses_become_true_and_files_stay_in_any_order_of_requests_crashes_and_restarts(server):
    Sandboxes.server = server
    stateful.run_state_machine_as_test(
        Sandboxes,
        settings=settings(
            max_examples=4,
            stateful_step_count=10,
            deadline=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
