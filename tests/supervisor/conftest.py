"""A reconciler whose runtime a test scripts; and a scripted agent server with conversations that it loses and finds."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from runtimes import Handle, Launch, Observation, ProcessState, ResourceUsage
from settings.specs import Spec, Specs
from supervisor.archives import HostArchives
from supervisor.endings import Endings, Recovery, SandboxHost
from supervisor.sandboxes import Reconciler
from supervisor.upkeep import Upkeep
from tests.agents import agent_client, running_sandbox, scripted_agent
from tests.conftest import as_events, limits_of, store_of

LIMITS = limits_of(most=1, pause_idlest=False, host_seconds=60, start_seconds=60)

SPEC = Spec(
    id="spec",
    command=("/bin/true",),
    created_at=datetime(2026, 11, 21, tzinfo=UTC),
    initial_env={},
    working_dir=".",
    runtime="scripted",
    image=None,
    ports={"AGENT_SERVER": 8000},
    isolation="none",
    readable=(),
    secret_env={},
    idle_pause_seconds=0,
    idle_stop_seconds=0,
    max_seconds=0,
    restarts=3,
    resume_runs=None,
    disk_bytes=None,
    memory_bytes=None,
    cpus=None,
    processes=None,
    network=None,
    capabilities=(),
    new_privileges=False,
    read_only=True,
    conversation={},
)


class ScriptedRuntime:
    """A runtime that a test scripts: `failures` has the exception of each call, `called` the calls."""

    def __init__(self) -> None:
        self.failures: dict[str, Exception] = {}
        self.called: list[tuple[str, str]] = []
        self.known_ids: list[str] = []
        self.launches: dict[str, Launch] = {}  #: sandbox → the launch of the processes that live
        self.state = ProcessState.RUNNING
        self.printed = ""
        self.used: int | None = None
        self.bounds: list[int | None] = []  #: of the measurements of files
        self.measuring = lambda: None
        self.occupied: int | None = None
        self.usages = ResourceUsage(None, None)
        self.by_order = False
        self.seen = {"working_dir": "", "linked_dir": ""}  #: the agent's folder, once it answers
        self.freezes = True
        self.in_folder = True

    def start(self, launch: Launch) -> Handle:
        self._call("start", launch.sandbox_id)
        if launch.sandbox_id not in self.launches or self.launches[launch.sandbox_id].start != launch.start:
            self.launches[launch.sandbox_id] = launch
        self.known_ids.append(launch.sandbox_id)
        return handle(launch.sandbox_id)

    def folders(self, handle: Handle) -> dict[str, str]:
        self._call("folders", handle["sandbox_id"])
        return self.seen

    def known(self) -> list[Handle]:
        return [handle(each) for each in self.known_ids]

    def observe(self, handle: Handle) -> Observation:
        self._call("observe", handle["sandbox_id"])
        detail = "exit code 3" if self.state is ProcessState.GONE else ""
        return Observation(self.state, detail, self.by_order)

    def pause(self, handle: Handle) -> None:
        self._call("pause", handle["sandbox_id"])

    def resume(self, handle: Handle) -> None:
        self._call("resume", handle["sandbox_id"])

    def stop(self, handle: Handle) -> None:
        self._call("stop", handle["sandbox_id"])

    def remove(self, sandbox_id: str) -> None:
        self._call("remove", sandbox_id)
        if sandbox_id in self.known_ids:
            self.known_ids.remove(sandbox_id)

    def disk_bytes(self, sandbox_id: str, most: int | None = None) -> int | None:
        self._call("disk_bytes", sandbox_id)
        self.bounds.append(most)
        self.measuring()
        return self.used

    def occupied_bytes(self, sandbox_id: str) -> int | None:
        assert sandbox_id in self.known_ids
        return self.occupied

    def usage(self, sandbox_id: str) -> ResourceUsage:
        self._call("usage", sandbox_id)
        return self.usages

    def logs(self, handle: Handle, tail: int) -> str:
        self._call("logs", handle["sandbox_id"])
        return "\n".join(self.printed.split("\n")[-tail:])

    def shadow(self, launch: Launch, folder: str) -> None:  # noqa: ARG002
        self._call("shadow", launch.sandbox_id)

    def count(self, verb: str) -> int:
        return sum(called == verb for called, _ in self.called)

    def _call(self, verb: str, sandbox_id: str) -> None:
        self.called.append((verb, sandbox_id))
        failure = self.failures.get(verb) or self.failures.get(f"{verb} {sandbox_id}")
        if failure:
            raise failure


def hook_key(launch: Launch) -> str:
    """What the webhooks of a launched sandbox bear."""
    return json.loads(launch.env["OH_WEBHOOKS_0_HEADERS"])["Authorization"].removeprefix("Bearer ")


def handle(sandbox_id: str) -> Handle:
    return Handle({"runtime": "scripted", "sandbox_id": sandbox_id, "ports": {"AGENT_SERVER": 1}})


class SupervisorClock:
    """Seconds that pass when the test adds them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def sandboxes(redis_url):
    """The sandboxes of an empty store, of which one may run."""
    store = store_of(redis_url, LIMITS)
    redis = store.sandboxes._redis
    for key in redis.scan_iter("{sandboxes}*"):
        redis.delete(key)
    assert store.sandboxes.beat("h", "supervisor")
    return store.sandboxes


@pytest.fixture
def runtime():
    return ScriptedRuntime()


@pytest.fixture
def clock():
    return SupervisorClock()


@pytest.fixture
def host():
    return SandboxHost("h", "supervisor", "127.0.0.1", "http://127.0.0.1:1/api/v1/webhooks", 60)


@pytest.fixture
def one_store(redis_url, sandboxes):
    return store_of(redis_url, LIMITS)


@pytest.fixture
def endings(one_store, runtime, host):
    return Endings(one_store, {"scripted": runtime}, host, Recovery(one_store))


@pytest.fixture
def upkeep(one_store, runtime):
    return Upkeep(one_store, {"scripted": runtime}, "h")


@pytest.fixture
def archives(one_store, spec, runtime, host):
    return HostArchives(one_store, Specs([spec]), {"scripted": runtime}, host.id, most_bytes=1)


@pytest.fixture
def spec():
    """The spec of every sandbox; a test may replace it."""
    return SPEC


@pytest.fixture
def reconciler(one_store, spec, runtime, host, endings, archives, clock):
    runtimes = {"scripted": runtime}
    return Reconciler(
        one_store, Specs([spec]), runtimes, host, agent_client(1), Recovery(one_store), endings, archives, clock=clock
    )


@pytest.fixture
def running(sandboxes, runtime):
    """A sandbox that the runtime has started and the store shows as RUNNING."""
    started = sandboxes.start("spec")
    assert sandboxes.claim("h") == started.id
    runtime.known_ids.append(started.id)
    assert sandboxes.begin(started.id, "h", "supervisor", "scripted")
    sandboxes.report(
        started.id, "h", "supervisor", "RUNNING", handle=handle(started.id), urls=[], agent_url="http://127.0.0.1:1"
    )
    return sandboxes.get(started.id)


@pytest.fixture
def agent():
    with scripted_agent() as agent:
        yield agent


@pytest.fixture
def sandbox(store, agent):
    with running_sandbox(store, agent.url) as sandbox:
        yield replace(sandbox, start=1)


@pytest.fixture
def recovery(store):
    return Recovery(store)


@pytest.fixture
def begin(store, sandbox, agent):
    """Begin a conversation in the sandbox, whose agent has written these events and posted all, or so many of them."""

    def do(*events: dict, posted: int | None = None) -> str:
        conversation = str(uuid4())
        store.conversations.create(conversation, sandbox_id=sandbox.id, app={})
        agent.logs[conversation] = list(events)
        if batch := as_events(list(events)[:posted]):
            store.events.append(conversation, batch, sandbox_id=sandbox.id)
        return conversation

    return do


@pytest.fixture
def settle(recovery, sandbox, agent):
    """Settle after a start of that number."""

    def do(start: int = 2, *, resume_runs: bool | None = False):
        recovery.settle(replace(sandbox, start=start), agent.server(), resume_runs=resume_runs)

    return do
