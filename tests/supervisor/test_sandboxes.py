"""Failures of a runtime: a supervisor reports the reason, retries with backoff, never calls a live sandbox gone."""

import logging
from datetime import UTC, datetime

import pytest

from agents.link import http_client
from runtimes import Handle, Launch, Observation, RuntimeFailure, State
from runtimes.launch import Order
from schemas.sandboxes import SandboxInfo
from specs import Spec, Specs
from store import Limits
from supervisor.archives import Archives
from supervisor.launches import launch
from supervisor.sandboxes import LONGEST_BACKOFF, Host, Reconciler
from tests.conftest import store_of

SPEC = Spec(
    id="spec",
    command=("/bin/true",),
    created_at=datetime(2026, 11, 21, tzinfo=UTC),
    initial_env={},
    working_dir=".",
    runtime="scripted",
    image=None,
    ports={"AGENT_SERVER": 8000},
    isolated=False,
    idle_pause_seconds=0,
    max_seconds=0,
    memory_bytes=None,
    cpus=None,
    processes=None,
    network=None,
    capabilities=(),
    new_privileges=False,
    read_only=True,
    conversation={},
)


class Scripted:
    """A runtime that a test scripts: `failures` has the exception of each call, `called` the calls."""

    def __init__(self) -> None:
        self.failures: dict[str, Exception] = {}
        self.called: list[tuple[str, str]] = []
        self.known_ids: list[str] = []
        self.state = State.RUNNING
        self.printed = ""

    def start(self, launch: Launch) -> Handle:
        self._call("start", launch.sandbox_id)
        self.known_ids.append(launch.sandbox_id)
        return handle(launch.sandbox_id)

    def known(self) -> list[Handle]:
        return [handle(each) for each in self.known_ids]

    def observe(self, handle: Handle) -> Observation:
        self._call("observe", handle["sandbox_id"])
        return Observation(self.state, "exit code 3" if self.state is State.GONE else "")

    def pause(self, handle: Handle) -> None:
        self._call("pause", handle["sandbox_id"])

    def resume(self, handle: Handle) -> None:
        self._call("resume", handle["sandbox_id"])

    def stop(self, handle: Handle) -> None:
        self._call("stop", handle["sandbox_id"])
        if handle["sandbox_id"] in self.known_ids:
            self.known_ids.remove(handle["sandbox_id"])

    def logs(self, handle: Handle, tail: int) -> str:
        self._call("logs", handle["sandbox_id"])
        return "\n".join(self.printed.split("\n")[-tail:])

    def count(self, verb: str) -> int:
        return sum(called == verb for called, _ in self.called)

    def _call(self, verb: str, sandbox_id: str) -> None:
        self.called.append((verb, sandbox_id))
        failure = self.failures.get(verb) or self.failures.get(f"{verb} {sandbox_id}")
        if failure:
            raise failure


def handle(sandbox_id: str) -> Handle:
    return Handle({"runtime": "scripted", "sandbox_id": sandbox_id, "ports": {"AGENT_SERVER": 1}})


class Clock:
    """Seconds that pass when the test adds them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def sandboxes(redis_url):
    """The sandboxes of an empty store, of which one may run."""
    store = store_of(redis_url, Limits(most=1, pause_idlest=False, host_seconds=60, start_seconds=60))
    redis = store.sandboxes._redis
    for key in redis.scan_iter("{sandboxes}*"):
        redis.delete(key)
    assert store.sandboxes.beat("h", "supervisor")
    return store.sandboxes


@pytest.fixture
def runtime():
    return Scripted()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def reconciler(redis_url, sandboxes, runtime, clock):
    limits = Limits(most=1, pause_idlest=False, host_seconds=60, start_seconds=60)
    host = Host("h", "supervisor", "127.0.0.1", "http://127.0.0.1:1/api/v1/webhooks", 60)
    store, specs, runtimes = store_of(redis_url, limits), Specs([SPEC]), {"scripted": runtime}
    archives = Archives(store, specs, runtimes, host.id, host.webhook_base_url, most_bytes=1)
    with http_client(1) as client:
        yield Reconciler(store, specs, runtimes, host, client, archives, clock=clock)


@pytest.fixture
def running(sandboxes, runtime):
    """A sandbox that the runtime has started and the store shows as RUNNING."""
    started = sandboxes.start("spec")
    assert sandboxes.claim("h") == started.id
    runtime.known_ids.append(started.id)
    sandboxes.report(
        started.id, "h", "supervisor", "RUNNING", handle=handle(started.id), urls=[], agent_url="http://127.0.0.1:1"
    )
    return sandboxes.get(started.id)


FAILURES = [RuntimeFailure("its folder cannot be removed"), NotImplementedError("its folder cannot be removed")]


@pytest.mark.parametrize("failure", FAILURES, ids=["foreseen", "unforeseen"])
def test_a_failed_deletion_is_an_error_with_its_reason_that_shows_no_key_and_takes_no_room(
    sandboxes, runtime, reconciler, running, failure
):
    runtime.failures["stop"] = failure
    sandboxes.ask(running.id, "delete")

    reconciler.reconcile(sandboxes.get(running.id))

    shown = SandboxInfo().dump(sandboxes.get(running.id))
    assert shown["status"] == "ERROR"
    assert "deletion" in shown["status_detail"]
    assert "its folder cannot be removed" in shown["status_detail"]
    assert shown["session_api_key"] is None
    other = sandboxes.start("spec")  # of one that may run
    assert sandboxes.claim("h") == other.id


@pytest.mark.parametrize("failure", FAILURES, ids=["foreseen", "unforeseen"])
def test_a_deletion_that_fails_is_retried_with_backoff_until_it_is_done(
    sandboxes, runtime, reconciler, clock, running, failure
):
    runtime.failures["stop"] = failure
    sandboxes.ask(running.id, "delete")

    for _ in range(100):
        reconciler.reconcile(sandboxes.get(running.id))
    assert runtime.count("stop") == 1

    for _ in range(1000):  # polls, twice a second
        clock.now += 0.5
        reconciler.reconcile(sandboxes.get(running.id))
    assert 500 / LONGEST_BACKOFF <= runtime.count("stop") <= 10 + 500 / LONGEST_BACKOFF

    runtime.failures.clear()
    clock.now += LONGEST_BACKOFF
    reconciler.reconcile(sandboxes.get(running.id))
    assert sandboxes.get_many([running.id]) == [None]
    assert runtime.known_ids == []


def test_a_repeated_unexpected_error_logs_one_traceback(sandboxes, runtime, reconciler, clock, running, caplog):
    runtime.failures["observe"] = KeyError("nobody foresaw this")

    with caplog.at_level(logging.WARNING, "supervisor"):
        for _ in range(1000):
            clock.now += 0.5
            reconciler.reconcile(sandboxes.get(running.id))

    assert sum(record.exc_info is not None for record in caplog.records) == 1
    assert len(caplog.records) < 70


def test_another_request_is_served_at_once_while_an_earlier_one_waits_for_its_retry(
    sandboxes, runtime, reconciler, running
):
    runtime.failures["pause"] = RuntimeFailure("a process of the sandbox would not stop")
    sandboxes.ask(running.id, "pause")
    reconciler.reconcile(sandboxes.get(running.id))
    assert sandboxes.get(running.id).status == "RUNNING"  # and never PAUSED

    sandboxes.ask(running.id, "delete")
    reconciler.reconcile(sandboxes.get(running.id))

    assert sandboxes.get_many([running.id]) == [None]


@pytest.mark.parametrize("failure", FAILURES, ids=["foreseen", "unforeseen"])
def test_a_failed_start_is_an_error_with_its_reason(sandboxes, runtime, reconciler, failure):
    runtime.failures["start"] = failure
    started = sandboxes.start("spec")
    sandboxes.claim("h")

    reconciler.reconcile(sandboxes.get(started.id))

    failed = sandboxes.get(started.id)
    assert failed.status == "ERROR"
    assert "its folder cannot be removed" in failed.detail


def test_a_sandbox_that_became_another_supervisors_during_its_start_is_ended_here(sandboxes, runtime, reconciler):
    started = sandboxes.start("spec")
    sandboxes.claim("h")
    sandboxes._redis.zincrby("{sandboxes}:hosts", -4_000_000, "h")
    assert sandboxes.beat("h", "another")

    reconciler.reconcile(sandboxes.get(started.id))

    assert runtime.called == [("start", started.id), ("stop", started.id)]
    assert (sandboxes.get(started.id).status, sandboxes.get(started.id).handle) == ("STARTING", None)


def test_the_removal_of_an_ended_sandbox_is_retried_until_it_succeeds(sandboxes, runtime, reconciler, clock, running):
    runtime.state, runtime.failures["stop"] = State.GONE, RuntimeFailure("its folder cannot be removed")
    reconciler.reconcile(running)
    ended = sandboxes.get(running.id)
    assert ended.status == "ERROR"
    assert "exit code 3" in ended.detail

    runtime.failures.clear()
    clock.now += LONGEST_BACKOFF
    for _ in range(5):
        reconciler.reconcile(sandboxes.get(running.id))

    assert runtime.known_ids == []
    assert runtime.count("stop") == 2
    assert sandboxes.get(running.id).detail == ended.detail


def test_a_status_detail_is_plain_text_and_the_log_stays_as_it_was_printed(sandboxes, runtime, reconciler, running):
    runtime.state, runtime.printed = State.GONE, "\x1b[31mno key given\x1b[0m\r\n\x1b]0;title\x07bye\x00"

    reconciler.reconcile(running)

    failed = sandboxes.get(running.id)
    assert failed.detail == "The sandbox ended: exit code 3\nno key given\nbye"
    assert sandboxes.log(running.id, 100) == "\n".join(runtime.printed.splitlines()[-100:])


def test_an_unknown_sandbox_that_cannot_be_ended_does_not_block_others(runtime, reconciler):
    runtime.known_ids = ["first", "second", "third"]
    runtime.failures["stop first"] = NotImplementedError()
    runtime.failures["stop second"] = RuntimeFailure("its folder cannot be removed")

    reconciler.end_unknown()

    assert runtime.known_ids == ["first", "second"]


def test_a_deletion_finds_a_process_whose_handle_was_never_stored(sandboxes, runtime, reconciler, clock):
    started = sandboxes.start("spec")
    sandboxes.claim("h")
    runtime.known_ids.append(started.id)
    sandboxes.ask(started.id, "delete")

    runtime.failures["stop"] = RuntimeFailure("its folder cannot be removed")
    reconciler.reconcile(sandboxes.get(started.id))
    assert sandboxes.get(started.id).status == "ERROR"

    runtime.failures.clear()
    sandboxes.ask(started.id, "delete")
    clock.now += LONGEST_BACKOFF
    reconciler.reconcile(sandboxes.get(started.id))
    assert sandboxes.get_many([started.id]) == [None]
    assert runtime.known_ids == []


@pytest.mark.parametrize("failure", FAILURES, ids=["foreseen", "unforeseen"])
def test_a_failure_at_the_end_of_a_supervisor_does_not_block_other_sandboxes(
    sandboxes, runtime, reconciler, running, failure
):
    runtime.failures["stop"] = failure

    reconciler.end_all()

    assert sandboxes.get(running.id).status == "RUNNING"  # a sandbox that was not ended is not reported as ended

    runtime.failures.clear()
    reconciler.end_all()
    assert sandboxes.get(running.id).status == "MISSING"


def test_no_secret_is_in_the_repr_of_a_sandbox_its_launch_and_its_handle(running):
    described = launch(running, SPEC, "http://127.0.0.1:1/api/v1/webhooks")

    assert running.session_api_key in str(dict(described.env))
    order = Order(dict(running.handle), ["/bin/true"], dict(described.env), ".", 1, None, 1.0, 1.0)
    for shown in (repr(running), str(running), repr(described), repr(running.handle), repr(order)):
        assert running.session_api_key not in shown
    assert running.id in repr(running)
