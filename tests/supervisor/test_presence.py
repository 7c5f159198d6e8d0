"""Leases that are renewed, and spans of time as far as a supervisor was there: what a silent sandbox gets of them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from core.wire import Micros
from runtimes import ProcessState
from settings.specs import Specs
from supervisor import presence
from supervisor.presence import Gaps, Presence, Silences, renewed
from tests.servers import wait_until
from tests.store.conftest import silent_for
from tests.supervisor.conftest import LIMITS, SPEC, SupervisorClock, handle


def test_a_process_that_was_stopped_was_away_from_then_on(monkeypatch):
    clock = SupervisorClock()
    monkeypatch.setattr(presence, "time", SimpleNamespace(monotonic=clock))
    ours = Presence(5)
    clock.now += 5
    assert not ours.was_away()

    clock.now += 6
    assert ours.was_away()
    assert ours.was_away()


@pytest.mark.process("waits for what threads do")
def test_a_lease_is_renewed_until_its_block_ends():
    renewals = []
    with renewed(lambda: not renewals.append(1), 0.03) as ours:
        wait_until(lambda: len(renewals) > 2, "the renewals")
    number = len(renewals)

    assert isinstance(ours, Presence)
    assert len(renewals) == number


HOUR = 3600

#: seconds for which a supervisor is stopped, its machine suspended, or a clock steps
AWAY = [10, 60, 300, HOUR, -HOUR]


def at(seconds: float) -> Micros:
    return Micros(round((1_800_000_000 + seconds) * 1e6))


def test_a_silence_counts_from_the_look_that_finds_it():
    silences = Silences(5)
    assert [silences.found("a", at(seconds)) for seconds in (100, 103, 108)] == [0, 3, 8]
    assert silences.found("b", at(108)) == 0

    silences.ended("a")
    assert silences.found("a", at(109)) == 0


@pytest.mark.parametrize("seconds", AWAY)
def test_a_gap_counts_for_no_silence(seconds):
    silences = Silences(5)
    assert [silences.found("a", at(one)) for one in (0, 4, 4 + seconds, 6 + seconds)] == [0, 4, 4, 6]


def test_what_nobody_looked_at_for_an_hour_is_forgotten():
    silences = Silences(5)
    silences.found("gone", at(0))
    silences.found("new", at(HOUR + 1))

    assert list(silences._known) == ["new"]


@pytest.mark.parametrize("seconds", [10, 60, 300, HOUR])
def test_a_span_is_as_much_shorter_as_gaps_lie_in_it(seconds):
    gaps = Gaps(5)
    for one in (0, 4, 4 + seconds, 6 + seconds):
        gaps.look(at(one))

    assert gaps.seconds(at(-100), at(6 + seconds)) == 106
    assert gaps.seconds(at(5 + seconds), at(6 + seconds)) == 1


def test_of_a_gap_only_the_part_within_a_span_makes_it_shorter():
    gaps = Gaps(5)
    for one in (0, 12 * HOUR, 12 * HOUR + 2):
        gaps.look(at(one))

    assert gaps.seconds(at(12 * HOUR - 1), at(12 * HOUR + 2)) == 2
    assert gaps.seconds(at(-1), at(12 * HOUR + 2)) == 3


def test_rounds_without_a_sandbox_are_no_gap(running, reconciler, runtime, look):
    """A host on which nothing ran for hours gives its next sandbox no longer than any."""
    look(running, -HOUR)
    for seconds in range(-HOUR, 0, 4):
        reconciler.look(Micros(running.seen_at + seconds * 1_000_000))
    for one in range(0, 104, 4):
        look(running, one)

    assert runtime.count("stop") == 1


@pytest.fixture
def spec():
    return replace(SPEC, max_seconds=100, idle_stop_seconds=100)


@pytest.fixture
def look(sandboxes, reconciler):
    """Have the supervisor look at a sandbox so many seconds after its last change; the sandbox after that."""

    def do(sandbox, seconds: float):
        seen = sandboxes.get(sandbox.id)
        reconciler.reconcile(replace(seen, seen_at=Micros(sandbox.seen_at + round(seconds * 1e6))))
        return sandboxes.get(sandbox.id)

    return do


@pytest.fixture
def back(sandboxes, running):
    """A sandbox whose host was lost and is back."""
    silent_for(sandboxes, LIMITS.host_seconds + 1)
    assert sandboxes.get(running.id).status == "MISSING"
    assert sandboxes.beat("h", "supervisor")
    return running


def test_a_living_process_of_a_host_that_is_back_is_never_ended_for_checks_that_it_misses(back, runtime, look):
    for seconds in range(0, 96, 4):  # the time of a start, and more
        seen = look(back, seconds)
        assert (seen.status, runtime.count("stop")) == ("MISSING", 0)
    assert "does not answer yet" in seen.detail


def test_a_silent_sandbox_has_no_more_time_than_others(back, runtime, look):
    for seconds in range(0, 108, 4):
        seen = look(back, seconds)

    assert (seen.status, runtime.count("stop")) == ("PAUSED", 1)
    assert "Its 100 s are over" in seen.detail


@pytest.mark.parametrize("limit", ["disk", "idle"])
def test_a_silent_sandbox_is_paused_by_the_limits_of_others(sandboxes, back, runtime, reconciler, clock, look, limit):
    limits = {"disk_bytes": 100} if limit == "disk" else {"idle_pause_seconds": 20}
    reconciler._specs = Specs([replace(SPEC, **limits)])
    runtime.used = 200
    for seconds in range(0, 40, 4):
        seen = look(back, seconds)
        clock.now += 4

    assert (seen.status, runtime.count("stop")) == ("PAUSED", 0)
    assert runtime.count("pause") > 0


def test_a_sandbox_of_a_host_that_is_back_runs_as_soon_as_it_answers(sandboxes, back, agent, look):
    look(back, 0)
    assert look(back, HOUR).status == "MISSING"
    assert sandboxes.report(back.id, "h", "supervisor", "", agent_url=agent.url)

    seen = look(back, 2 * HOUR)
    assert (seen.status, seen.detail) == ("RUNNING", "")


def test_a_resume_gives_a_silent_sandbox_of_a_host_that_is_back_the_time_of_a_start(sandboxes, back, runtime, look):
    look(back, 0)
    sandboxes.ask(back.id, "resume")
    for seconds in range(0, 60, 4):
        assert look(back, seconds).status == "STARTING"
    for seconds in (60, 64):
        look(back, seconds)

    assert sandboxes.get(back.id).status == "ERROR"


@pytest.fixture
def starting(sandboxes, runtime):
    """A sandbox whose agent server does not answer yet."""
    started = sandboxes.start("spec")
    assert sandboxes.claim("h") == started.id
    assert sandboxes.begin(started.id, "h", "supervisor", "scripted")
    sandboxes.report(started.id, "h", "supervisor", "", handle=handle(started.id), agent_url="http://127.0.0.1:1")
    return sandboxes.get(started.id)


@pytest.mark.parametrize("seconds", AWAY)
def test_a_start_gets_all_its_time_though_the_supervisor_was_away(starting, runtime, look, seconds):
    for one in range(0, 40, 4):
        look(starting, one)
    for one in range(40, 60, 4):
        assert look(starting, seconds + one).status == "STARTING"
    assert runtime.count("stop") == 0

    for one in (60, 64, 68):
        seen = look(starting, seconds + one)
    assert seen.status == "ERROR"
    assert "did not answer within 60 s" in seen.detail


def test_a_supervisor_after_another_one_gives_a_start_all_its_time(starting, look):
    assert look(starting, HOUR).status == "STARTING"
    assert look(starting, HOUR + 4).status == "STARTING"


@pytest.mark.parametrize("seconds", AWAY)
@pytest.mark.parametrize("status", ["RUNNING", "PAUSED"])
def test_a_limit_of_time_counts_no_time_in_which_the_supervisor_was_away(
    sandboxes, running, runtime, look, seconds, status
):
    if status == "PAUSED":
        sandboxes.ask(running.id, "pause")
        assert sandboxes.report(running.id, "h", "supervisor", "PAUSED")
        runtime.state = ProcessState.PAUSED
    for one in (0, 4, 4 + seconds, 8 + seconds):
        look(running, one)
    assert runtime.count("stop") == 0


def test_a_clock_that_stepped_back_holds_up_no_restart(running):
    assert replace(running, start_after=Micros(running.seen_at + 1)).is_delayed
    assert not replace(running, start_after=Micros(running.seen_at + HOUR * 1_000_000)).is_delayed
