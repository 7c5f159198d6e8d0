"""The cost of a poll of a paused sandbox, and the late output of a paused sandbox."""

import os
import subprocess
import time
from functools import partial
from types import SimpleNamespace

import psutil
import pytest

from runtimes import Launch, ProcessState, cgroup
from runtimes.process import ProcessRuntime
from runtimes.tree import _CHILDREN
from tests.runtimes.test_process import marked
from tests.servers import wait_until


@pytest.fixture
def runtime(tmp_path):
    """A runtime that freezes by signals."""
    runtime = ProcessRuntime(tmp_path / "sandboxes", grace=0.5, parent_cgroup=None)
    yield runtime
    for handle in runtime.known():
        runtime.stop(handle)
    assert not marked(tmp_path)


def test_what_is_printed_between_two_pieces_is_copied_as_one(tmp_path, monkeypatch):
    """A sandbox that prints without end waits: its launcher, which copies, is outside of its limits."""
    output, end = os.pipe()
    later, waits, read = [b"second\n", b"third\n"], [], []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        for text in later:
            os.write(end, text)
        if later:
            later.clear()
            os.close(end)

    def counted(file: int, size: int) -> bytes:
        read.append(os.read(file, size))
        return read[-1]

    monkeypatch.setattr(cgroup, "time", SimpleNamespace(sleep=wait))
    monkeypatch.setattr(cgroup, "os", SimpleNamespace(**vars(os) | {"read": counted}))
    os.write(end, b"first\n")
    cgroup.copy(output, tmp_path, 1 << 20)
    os.close(output)

    assert read == [b"first\n", b"second\nthird\n", b""]
    assert waits == [0.005, 0.005]
    assert cgroup.printed(tmp_path, 10) == "first\nsecond\nthird"


def test_a_log_takes_the_place_of_the_older_one_before_it_is_longer_than_its_bound(tmp_path):
    output, end = os.pipe()
    os.write(end, b"12345\n12345\n12345\n")
    os.close(end)
    cgroup.copy(output, tmp_path, 8)
    os.close(output)

    assert [(tmp_path / name).read_bytes() for name in ("log.1", "log")] == [b"345\n1234", b"5\n"]
    assert cgroup.printed(tmp_path, 10) == "… 1 earlier line is not shown\n345\n12345"


def opened(runtime, handle, monkeypatch) -> int:
    """The number of files and folders of /proc that one poll of a sandbox reads."""
    number = 0

    def counted(call, path, *args, **options):
        nonlocal number
        number += str(path).startswith("/proc")
        return call(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr("io.open", partial(counted, open))
        patch.setattr("builtins.open", partial(counted, open))
        patch.setattr(os, "listdir", partial(counted, os.listdir))
        patch.setattr(os, "scandir", partial(counted, os.scandir))
        assert runtime.observe(handle).state is ProcessState.PAUSED
    return number


@pytest.mark.process("starts many processes, and counts what a poll reads of them")
@pytest.mark.skipif(not _CHILDREN.exists(), reason="this kernel does not list the children of a thread")
def test_a_poll_of_a_paused_sandbox_reads_a_constant_part_of_proc(runtime, monkeypatch):
    handle = runtime.start(Launch("box", ("/bin/sh", "-c", "sleep 60 & sleep 60 & wait"), {}, "."))
    runtime.pause(handle)
    alone = opened(runtime, handle, monkeypatch)

    others = [subprocess.Popen(["/bin/sleep", "60"]) for _ in range(100)]
    try:
        assert opened(runtime, handle, monkeypatch) == alone
        assert 0 < alone < 60
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.process("starts many processes, and counts what a poll reads of them")
def test_a_poll_of_a_paused_sandbox_lists_no_processes_of_the_system(runtime, monkeypatch):
    if not _CHILDREN.exists():
        pytest.skip("this kernel does not list the children of a thread")
    handle = runtime.start(Launch("box", ("/bin/sh", "-c", "sleep 60 & sleep 60 & wait"), {}, "."))
    runtime.pause(handle)

    def fail(*_):
        raise AssertionError("all processes of the system are listed")

    with monkeypatch.context() as patch:
        patch.setattr(psutil, "pids", fail)
        patch.setattr(psutil, "_ppid_map", fail)
        assert runtime.observe(handle).state is ProcessState.PAUSED


@pytest.mark.process("starts sandboxes")
def test_the_next_poll_stops_a_process_that_continued_by_itself(runtime, tmp_path):
    handle = runtime.start(Launch("box", ("/bin/sh", "-c", "sleep 60 & setsid sleep 60 & wait"), {}, "."))
    wait_until(lambda: len([each for each in marked(tmp_path) if each.name() == "sleep"]) == 2, "both")
    runtime.pause(handle)
    sleeping = [each for each in marked(tmp_path) if each.name() == "sleep"]

    for process in sleeping:
        process.resume()
    assert runtime.observe(handle).state is ProcessState.PAUSED

    assert all(process.status() == psutil.STATUS_STOPPED for process in sleeping)


@pytest.mark.process("starts sandboxes")
def test_output_before_a_pause_reaches_the_log_after_the_resume_or_the_end(runtime):
    handle = runtime.start(Launch("box", ("/bin/sh", "-c", "while :; do echo line; done"), {}, "."))
    wait_until(lambda: runtime.logs(handle, 1), "it")
    runtime.pause(handle)
    before = runtime.logs(handle, 10**9)
    time.sleep(0.3)
    assert runtime.logs(handle, 10**9) == before

    runtime.resume(handle)
    wait_until(lambda: runtime.logs(handle, 10**9) != before, "the resumed processes")
