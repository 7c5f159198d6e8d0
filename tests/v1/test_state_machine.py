"""Start, write, pause, resume, crash, end, delete and a power cut, in a random order, against a model."""

import contextlib
import random
from pathlib import Path

import psutil
import pytest

from tests.servers import store_server, supervised_server, wait_until
from tests.v1 import WireApi
from tests.v1.conftest import SPECS
from tests.v1.processes import agents, in_sandboxes, kill_all, supervisor_of

pytestmark = pytest.mark.faults("kills and restarts a server and its sandboxes in a random order")

OF_ONE = ("pause", "resume", "delete", "write")
OF_ALL = ("crash", "kill_the_supervisor", "cut_power", "end_and_start_again")

#: every action in every status of a sandbox; nothing can be written into one that was deleted
TRANSITIONS = {(action, status) for action in OF_ONE + OF_ALL for status in ("RUNNING", "PAUSED")} | {
    (action, "DELETED") for action in ("pause", "resume", "delete")
}

#: the action that gives a sandbox a status
LEADS_TO = {"RUNNING": "resume", "PAUSED": "pause", "DELETED": "delete"}

#: the most steps until all of them were taken: each is a new one, or brings a new one within reach
MOST = 3 * len(TRANSITIONS)


class MachineServer:
    """A whole server that can be ended and started again on the same data."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self._url = folder, url
        (folder / "specs.toml").write_text(SPECS)
        self.start()

    def start(self) -> None:
        self._stack = contextlib.ExitStack()
        environment = {"REDIS_URL": self._url, "SANDBOX_SPECS": str(self.folder / "specs.toml"), "HOST_SECONDS": "3"}
        client, self.master = self._stack.enter_context(supervised_server(self.folder, **environment))
        self.api = WireApi(client)

    def end(self) -> None:
        """As SIGTERM ends it: its sandboxes rest."""
        self._stack.close()

    def cut_power(self) -> None:
        """Kill every process of the server and of its sandboxes at once."""
        kill_all([psutil.Process(self.master.pid), *in_sandboxes(self.folder)])
        self._stack.close()


@pytest.fixture
def server(tmp_path):
    with store_server(tmp_path) as (url, _):
        server = MachineServer(tmp_path, url)
        yield server
        server.end()


class MachineWalk:
    """At most two sandboxes at a time. A sandbox that runs has exactly one agent server.

    statuses: what each of them must become, by its id. taken: the transitions so far.
    """

    def __init__(self, server: MachineServer, seed: str) -> None:
        self.server, self.random = server, random.Random(seed)
        self.statuses: dict[str, str] = {}
        self.files: dict[str, set[str]] = {}
        self.taken: set[tuple[str, str]] = set()

    def living(self) -> dict[str, str]:
        return {identity: status for identity, status in self.statuses.items() if status != "DELETED"}

    def step(self) -> str:
        """Take a transition that was not taken yet, where there is one; else bring one within reach. What was done."""
        of_one = {(action, one): {(action, status)} for action in OF_ONE for one, status in self.statuses.items()}
        of_all = {(action, ""): {(action, status) for status in self.living().values()} for action in OF_ALL}
        left = TRANSITIONS - self.taken
        moves = [move for move, taken in (of_one | of_all).items() if taken & left]
        if not moves and len(self.living()) < 2:
            moves = [("start", "")]
        elif not moves:
            status = self.random.choice(sorted({status for _, status in left}))
            moves = [(LEADS_TO[status], one) for one in self.living()]
        action, identity = self.random.choice(moves)
        self.taken |= (of_one | of_all).get((action, identity), set())
        getattr(self, action)(*([identity] if identity else []))
        return f"{action} {identity}"

    def work(self, identity: str) -> Path:
        [folder] = (self.server.folder / "sandboxes").glob(f"*/{identity}/work")
        return folder

    def ask(self, method: str, identity: str, verb: str = "") -> int:
        return self.server.api.client.request(method, f"/api/v1/sandboxes/{identity}{verb}").status_code

    def start(self) -> None:
        identity = self.server.api.running_sandbox("tough")["id"]
        self.statuses[identity], self.files[identity] = "RUNNING", set()

    def write(self, identity: str) -> None:
        name = self.random.choice("abc")
        (self.work(identity) / name).write_text(identity)
        self.files[identity].add(name)

    def pause(self, identity: str) -> None:
        self.turn(identity, "pause", "PAUSED")

    def resume(self, identity: str) -> None:
        self.turn(identity, "resume", "RUNNING")

    def turn(self, identity: str, verb: str, status: str) -> None:
        known = identity in self.living()
        assert self.ask("POST", identity, f"/{verb}") == (200 if known else 404)
        if known:
            self.statuses[identity] = status

    def delete(self, identity: str) -> None:
        assert self.ask("DELETE", identity) == (200 if identity in self.living() else 404)
        self.statuses[identity] = "DELETED"
        assert self.ask("DELETE", identity) == 404
        assert not list((self.server.folder / "sandboxes").glob(f"*/*{identity}*"))

    def crash(self) -> None:
        kill_all(agents(self.server.folder))
        # Until then the old status may be reported.
        wait_until(lambda: len(agents(self.server.folder)) >= self.running(), "the restart")

    def kill_the_supervisor(self) -> None:
        supervisor_of(self.server.master).kill()

    def cut_power(self) -> None:
        self.server.cut_power()
        self.server.start()

    def end_and_start_again(self) -> None:
        self.server.end()
        self.statuses |= dict.fromkeys(self.living(), "PAUSED")
        self.server.start()

    def running(self) -> int:
        return list(self.statuses.values()).count("RUNNING")

    def reported(self) -> dict[str, str]:
        return {one["id"]: one["status"] for one in self.server.api.call("GET", "/v1/sandboxes/search")["items"]}

    def check(self) -> None:
        """Reported statuses become true, and files stay."""
        living = self.living()
        wait_until(lambda: self.reported() == living, f"the truth, which is {living}")
        wait_until(lambda: self.running() <= len(agents(self.server.folder)) <= len(living), "one agent each")
        for identity in living:
            found = [path for path in self.work(identity).iterdir() if not path.name.startswith(".")]
            assert {path.name: path.read_text() for path in found} == dict.fromkeys(self.files[identity], identity)


def test_statuses_become_true_and_files_stay_in_any_order_of_requests_crashes_and_restarts(server):
    walk, done = MachineWalk(server, "any order"), []
    while walk.taken != TRANSITIONS:
        done.append(walk.step())
        print(done[-1])  # pytest shows it where the walk fails
        walk.check()
        assert len(done) <= MOST, TRANSITIONS - walk.taken

    for identity in walk.living():
        assert walk.ask("DELETE", identity) == 200
    wait_until(lambda: not in_sandboxes(server.folder), "the end of all")
