"""What is worth a note of the use of sandboxes, and those that nobody uses, which are paused."""

from dataclasses import replace

import pytest

from runtimes import ResourceUsage
from tests.supervisor.conftest import SPEC
from tests.supervisor.test_endings import passes

MIB = 1 << 20


@pytest.fixture
def measured(sandboxes, reconciler, runtime, clock, running):
    """Let some seconds pass, and let the sandbox use so much; what is shown of it then."""

    def do(memory: int | None, cpu_seconds: float | None, *, after: float = 6) -> tuple:
        clock.now += after
        runtime.usages = ResourceUsage(memory, cpu_seconds)
        reconciler.reconcile(sandboxes.get(running.id))
        shown = sandboxes.get(running.id)
        return shown.memory_bytes, shown.cpu_cores

    return do


def test_the_cores_are_the_processor_time_between_two_measurements(measured):
    assert measured(100 * MIB, 50.0) == (100 * MIB, None)
    assert measured(100 * MIB, 53.0, after=6) == (100 * MIB, 0.5)
    assert measured(200 * MIB, 73.0, after=10) == (200 * MIB, 2.0)


def test_a_sandbox_is_measured_every_few_seconds_and_not_with_each_pass(measured, runtime):
    for _ in range(10):
        measured(MIB, 1.0, after=0.5)

    assert runtime.count("usage") == 1


def test_a_small_change_is_not_written(measured):
    measured(100 * MIB, 0.0)
    assert measured(100 * MIB, 3.0) == (100 * MIB, 0.5)

    assert measured(109 * MIB, 6.2) == (100 * MIB, 0.5)
    assert measured(111 * MIB, 9.2) == (111 * MIB, 0.5)


def test_a_runtime_that_cannot_tell_is_null(measured):
    measured(100 * MIB, 1.0)

    assert measured(None, None) == (None, None)


def test_processor_time_that_has_become_less_is_no_negative_use(measured):
    measured(100 * MIB, 100.0)

    assert measured(100 * MIB, 1.0) == (100 * MIB, 0.0)


def test_the_processor_time_of_an_earlier_start_is_not_compared(measured, sandboxes, running):
    measured(100 * MIB, 1.0)
    assert measured(100 * MIB, 4.0) == (100 * MIB, 0.5)

    assert sandboxes.begin(running.id, "h", "supervisor", "scripted")

    assert measured(100 * MIB, 5.0) == (100 * MIB, None)


SECONDS = 100  #: without use, after which a sandbox is paused


@pytest.fixture
def spec():
    return replace(SPEC, idle_pause_seconds=SECONDS)


@pytest.fixture
def look(sandboxes, reconciler, runtime, clock, running):
    """Let some seconds pass in which the processes use so much, and have the supervisor look; the desired state."""
    seconds_used = 0.0

    def do(seconds: float, *, cores: float = 0.0, visited: bool = False) -> str:
        nonlocal seconds_used
        seconds_used += cores * seconds
        clock.now += seconds
        passes(sandboxes, running, seconds)
        runtime.usages = ResourceUsage(1, seconds_used, visited)
        reconciler.reconcile(sandboxes.get(running.id))
        return sandboxes.get(running.id).wanted

    return do


def test_a_sandbox_that_nobody_uses_is_paused(look):
    assert look(6) == "running"
    assert look(SECONDS) == "paused"


def test_a_sandbox_whose_processes_burn_the_processor_is_not_paused_until_they_end(look):
    for _ in range(5):
        assert look(SECONDS + 1, cores=1.0) == "running"

    assert look(SECONDS - 10) == "running"
    assert look(11) == "paused"


def test_an_agent_server_that_only_waits_does_not_count_as_work(look):
    look(6, cores=0.02)

    assert look(SECONDS, cores=0.02) == "paused"


def test_a_sandbox_whose_further_ports_are_visited_is_not_paused_until_nobody_comes(look):
    for _ in range(5):
        assert look(SECONDS + 1, visited=True) == "running"

    assert look(SECONDS - 10) == "running"
    assert look(11) == "paused"


def test_a_sandbox_is_not_paused_before_its_work_is_known(look):
    assert look(10 * SECONDS) == "running"  # the first look tells no processor time
    assert look(6) == "paused"


def test_after_a_restart_its_work_is_to_be_known_again(look, sandboxes, running):
    look(6)
    look(6)
    assert sandboxes.begin(running.id, "h", "supervisor", "scripted")
    sandboxes.report(running.id, "h", "supervisor", "", handle=running.handle, agent_url=running.agent_url)

    assert look(10 * SECONDS) == "running"
    assert look(6) == "paused"
