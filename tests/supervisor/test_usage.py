"""What sandboxes use, as a supervisor measures it and notes what has changed."""

import pytest

from runtimes import Usage

MIB = 1 << 20


@pytest.fixture
def measured(sandboxes, reconciler, runtime, clock, running):
    """Let some seconds pass, and let the sandbox use so much; what is shown of it then."""

    def do(memory: int | None, cpu_seconds: float | None, *, after: float = 6) -> tuple:
        clock.now += after
        runtime.usages = Usage(memory, cpu_seconds)
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
