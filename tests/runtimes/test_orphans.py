"""A sandbox whose supervisors are gone ends; one whose supervisor lives, or came again in time, does not."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from runtimes import Handle, State, cgroup
from runtimes.orphans import OrphanWatch, is_supervised, supervise
from runtimes.process import ProcessRuntime
from runtimes.tree import found
from tests.runtimes.test_process import PARENT, marked
from tests.servers import PROJECT, wait_until

#: seconds after which an orphan ends in these tests
ORPHAN = 1.0

SUPERVISOR = """
import json, sys, time
from pathlib import Path
from runtimes import Launch
from runtimes.process import ProcessRuntime
runtime = ProcessRuntime(Path({folder!r}), grace=0.5, parent_cgroup={parent!r}, orphan_seconds={seconds})
handle = runtime.start(Launch("box", ("/bin/sh", "-c", "sleep 600 & setsid sleep 600 & echo ready; wait"), {{}}, "."))
while not runtime.logs(handle, 1):
    time.sleep(0.01)
if {paused}:
    runtime.pause(handle)
print(json.dumps(handle), flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["signals", "cgroup"])
def parent(request):
    if request.param == "cgroup" and not (cgroup.own() and os.access(cgroup.own(), os.W_OK)):
        pytest.skip("no cgroup v2 here below which another may be made")
    return PARENT[request.param]


@contextmanager
def supervisor(folder: Path, parent: str | None, *, paused: bool = False) -> Iterator[tuple[subprocess.Popen, Handle]]:
    """A process that has started a sandbox and supervises its folder; killed with the block."""
    script = SUPERVISOR.format(folder=str(folder), parent=parent, seconds=ORPHAN, paused=paused)
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process, Handle(json.loads(process.stdout.readline()))
        finally:
            process.kill()


@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_a_sandbox_whose_supervisor_was_killed_ends_with_all_its_processes_and_its_cgroup(tmp_path, parent, paused):
    with supervisor(tmp_path, parent, paused=paused) as (_, handle):
        assert len(marked(tmp_path)) >= 3

    wait_until(lambda: not found(handle["pid"], handle["started"]), "the end of the orphan")

    assert not marked(tmp_path)
    if handle["cgroup"]:
        assert not Path(handle["cgroup"]).exists()
    later = ProcessRuntime(tmp_path, grace=0.5, parent_cgroup=parent)
    seen = later.observe(handle)
    assert seen.state is State.GONE
    assert seen.detail == "its supervisor was gone for 1 s (ORPHAN_SECONDS)"
    assert seen.by_order
    assert (Path(handle["folder"]) / "work").exists()


def test_a_sandbox_runs_while_its_supervisor_lives_even_if_that_is_suspended(tmp_path, parent):
    with supervisor(tmp_path, parent) as (process, handle):
        psutil.Process(process.pid).suspend()  # as a supervisor that waits for the store
        time.sleep(2 * ORPHAN)
        assert found(handle["pid"], handle["started"])
    wait_until(lambda: not marked(tmp_path), "the end of the orphan")


def test_a_supervisor_within_the_timeout_adopts_the_sandbox(tmp_path, parent):
    with supervisor(tmp_path, parent) as (process, handle):
        process.kill()
        process.wait()
        later = ProcessRuntime(tmp_path, grace=0.5, parent_cgroup=parent)
        time.sleep(2 * ORPHAN)
        assert later.observe(handle).state is State.RUNNING
        later.stop(handle)
    assert not marked(tmp_path)


def test_a_folder_is_supervised_as_long_as_one_of_its_supervisors_lives(tmp_path):
    assert not is_supervised(tmp_path)
    one, two = supervise(tmp_path), supervise(tmp_path)
    assert is_supervised(tmp_path)
    os.close(one)
    assert is_supervised(tmp_path)
    os.close(two)
    assert not is_supervised(tmp_path)


def test_the_absence_restarts_from_zero_after_a_supervisor_was_seen(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr("runtimes.orphans.time.monotonic", lambda: now)
    watch = OrphanWatch(tmp_path, 60.0)

    def absent_for(seconds: int) -> bool:
        nonlocal now
        for _ in range(seconds):
            now += 1
            if watch.is_orphan():
                return True
        return False

    assert not absent_for(59)
    held = supervise(tmp_path)
    assert not absent_for(1)
    os.close(held)
    assert not absent_for(59)
    now += 100_000  # the launcher or the machine was stopped: one poll, however many it missed
    assert watch.is_orphan()
    assert not OrphanWatch(tmp_path, 60.0).is_orphan()


def test_time_during_which_the_launcher_was_stopped_is_no_absence(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr("runtimes.orphans.time.monotonic", lambda: now)
    watch = OrphanWatch(tmp_path, 60.0)
    for _ in range(3):
        now += 100_000
        assert not watch.is_orphan()
