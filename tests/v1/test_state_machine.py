"""Start, pause, resume, delete and kill, in any order, against a model: reported statuses become true."""

import pytest
from hypothesis import HealthCheck, settings, stateful
from hypothesis import strategies as st

from tests.servers import supervised_server, wait_until
from tests.v1 import Api
from tests.v1.conftest import SPECS
from tests.v1.processes import agents, in_sandboxes, supervisor_of


class Sandboxes(stateful.RuleBasedStateMachine):
    """The model has the final status of each sandbox. A live sandbox has exactly one agent server."""

    server: tuple

    ids = stateful.Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.api, self.master, self.folder = self.server
        self.model: dict[str, str] = {}
        self.ports: dict[str, int] = {}

    def agent_of(self, identity: str):
        [agent] = [one for one in agents(self.folder) if str(self.ports[identity]) in one.cmdline()]
        return agent

    def ask(self, method: str, identity: str, verb: str = "") -> int:
        return self.api.client.request(method, f"/api/v1/sandboxes/{identity}{verb}").status_code

    @stateful.precondition(lambda self: len(self.model) < 3)
    @stateful.rule(target=ids)
    def start(self):
        sandbox = self.api.running_sandbox("free")
        self.model[sandbox["id"]] = "RUNNING"
        self.ports[sandbox["id"]] = sandbox["exposed_urls"][0]["port"]
        return sandbox["id"]

    @stateful.rule(identity=ids)
    def pause(self, identity):
        present = self.model.get(identity)
        expected = {"RUNNING": 200, "PAUSED": 200, "ERROR": 409, None: 404}[present]
        assert self.ask("POST", identity, "/pause") == expected
        if expected == 200:
            self.model[identity] = "PAUSED"

    @stateful.rule(identity=ids)
    def resume(self, identity):
        present = self.model.get(identity)
        expected = {"RUNNING": 200, "PAUSED": 200, "ERROR": 409, None: 404}[present]
        assert self.ask("POST", identity, "/resume") == expected
        if expected == 200:
            self.model[identity] = "RUNNING"

    @stateful.rule(identity=stateful.consumes(ids))
    def delete(self, identity):
        assert self.ask("DELETE", identity) == (200 if identity in self.model else 404)
        self.model.pop(identity, None)
        assert self.ask("DELETE", identity) == 404

    @stateful.precondition(lambda self: any(status != "ERROR" for status in self.model.values()))
    @stateful.rule(data=st.data())
    def kill(self, data):
        identity = data.draw(st.sampled_from([one for one, status in self.model.items() if status != "ERROR"]))
        self.agent_of(identity).kill()
        self.model[identity] = "ERROR"

    @stateful.rule()
    def kill_the_supervisor(self):
        supervisor_of(self.master).kill()

    @stateful.invariant()
    def reported_statuses_become_true(self):
        wait_until(lambda: self.reported() == self.model, f"the truth, which is {self.model}")
        living = {one for one, status in self.model.items() if status != "ERROR"}
        wait_until(lambda: len(agents(self.folder)) == len(living), "one agent each")
        for one in living:
            self.agent_of(one)

    def reported(self) -> dict[str, str]:
        return {one["id"]: one["status"] for one in self.api.call("GET", "/v1/sandboxes/search")["items"]}

    def teardown(self):
        for identity in self.model:
            assert self.ask("DELETE", identity) == 200
        wait_until(lambda: not in_sandboxes(self.folder), "the end of all")


@pytest.fixture(scope="module")
def whole_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machine")
    specs = folder / "specs.toml"
    specs.write_text(SPECS)
    with supervised_server(folder, SANDBOX_SPECS=str(specs)) as (client, master):
        yield Api(client), master, folder


def test_reported_statuses_become_true_after_any_order_of_start_pause_resume_delete_and_kill(whole_server):
    Sandboxes.server = whole_server
    stateful.run_state_machine_as_test(
        Sandboxes,
        settings=settings(
            max_examples=6,
            stateful_step_count=12,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
