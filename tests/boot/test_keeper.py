"""A process that keeps ending is restarted with growing delays, and ends with its keeper."""

import errno
import os
import subprocess
import sys
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from boot.keeper import keep_running
from core.pauses import Backoff
from tests.servers import PROJECT, wait_until

pytestmark = pytest.mark.process("starts programs and waits for their end")

#: children hold SIGTERM: one that is ended while it begins notes its start all the same
KEEPER = """
import signal, subprocess, sys
from boot.keeper import keep_running
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
start = lambda: subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]], stdin=subprocess.DEVNULL)
keep_running(start(), start, name="the child", steady=float(sys.argv[2]), grace=float(sys.argv[3]))
"""

#: a child that writes its start time and its process id
NOTES = "import os, time; open({file!r}, 'a').write(f'{{time.monotonic()}} {{os.getpid()}}\\n'); "


@contextmanager
def kept(file: Path, then: str, *, steady: float, grace: float = 5):
    """A keeper of a child that notes its starts in a file, and then does something."""
    child = NOTES.format(file=str(file)) + then
    keeper = subprocess.Popen(
        [sys.executable, "-c", KEEPER, child, str(steady), str(grace)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=PROJECT,
    )
    try:
        yield keeper
    finally:
        keeper.stdin.close()
        keeper.wait(90)
        keeper.stderr.close()


def starts(file: Path) -> list[tuple[float, int]]:
    """The start time and the process id of each child."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [(float(line.split()[0]), int(line.split()[1])) for line in lines]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_delays_double_up_to_a_bound_and_begin_again_after_a_success():
    backoff = Backoff(0.5, 3)

    assert [backoff.delay() for _ in range(5)] == [0.5, 1, 2, 3, 3]
    backoff.reset()
    assert backoff.delay() == 0.5


@pytest.mark.process("waits for growing delays")
def test_a_process_that_ends_at_once_is_restarted_with_growing_delays(tmp_path):
    with kept(tmp_path / "starts", "os._exit(3)", steady=60) as keeper:
        wait_until(lambda: len(starts(tmp_path / "starts")) >= 4, "four starts")
    began = [time for time, _ in starts(tmp_path / "starts")][:4]

    for (before, after), delay in zip(pairwise(began), [0.1, 0.2, 0.4], strict=True):
        assert after - before >= delay
    assert keeper.returncode == 0


def test_a_process_that_lived_for_long_is_restarted_after_the_shortest_delay(tmp_path):
    with kept(tmp_path / "starts", "os._exit(3)", steady=0) as keeper:
        wait_until(lambda: len(starts(tmp_path / "starts")) >= 3, "three starts")
        keeper.stdin.close()
        delays = {line.rpartition(b"status 3: ")[2] for line in keeper.stderr}

    assert delays == {b"restart in 0.1 s\n"}


def test_a_process_that_could_not_be_started_yet_is_started_until_it_is_wanted_no_more(tmp_path, capsys):
    waits, tries = [], []

    def start():
        tries.append(len(waits))
        if len(tries) < 3:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])

    def goes_on(seconds: float) -> bool:
        waits.append(seconds)
        return len(tries) < 3

    keep_running(None, start, name="the child", steady=60, grace=5, goes_on=goes_on)

    assert waits == [0.2, 0.1, 0.2, 0.2, 0.2, 0.4, 0.2]
    assert len(tries) == 3
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all("the child could not be started" in line for line in said)


def test_a_process_that_had_ended_is_started_once_more_with_the_end_of_its_keeper(tmp_path):
    with kept(tmp_path / "starts", "os._exit(3)", steady=60, grace=60) as keeper:
        wait_until(lambda: starts(tmp_path / "starts"), "the start")
        before = len(starts(tmp_path / "starts"))
    assert keeper.returncode == 0
    assert len(starts(tmp_path / "starts")) > before


def test_a_process_ends_with_its_keeper_even_if_it_ignores_sigterm(tmp_path):
    with kept(tmp_path / "starts", "time.sleep(600)", steady=1, grace=0.5):
        wait_until(lambda: starts(tmp_path / "starts"), "the start")
    [(_, child)] = starts(tmp_path / "starts")
    assert not is_running(child)
