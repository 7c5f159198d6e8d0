"""Idle means idle: what runs or is visited in a sandbox keeps it from being paused, and nothing else does."""

from dataclasses import replace

import pytest

from runtimes import Usage
from tests.supervisor.conftest import SPEC
from tests.supervisor.test_endings import passes

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
        runtime.usages = Usage(1, seconds_used, visited)
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
