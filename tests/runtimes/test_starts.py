"""Ports of sandboxes: outside the kernel's own range, and one sandbox's on the whole host."""

import multiprocessing
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runtimes import Launch, RuntimeCallFailed, starts
from runtimes.process import ProcessRuntime
from runtimes.starts import held_ports
from tests.servers import PROJECT

pytestmark = pytest.mark.process("starts sandboxes")

NAMES = {"AGENT_SERVER": 8000, "VSCODE": 8001}


def ephemeral() -> range:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    return range(first, last + 1)


def free_run(length: int) -> range:
    """A few consecutive ports that no process uses now, below those of the tests' servers and the kernel's own."""
    for start in range(9_000, 10_000, 50):
        try:
            for port in range(start, start + length):
                with socket.socket() as probe:
                    probe.bind(("", port))
        except OSError:
            continue
        return range(start, start + length)
    pytest.skip("no ports are free")


@pytest.fixture
def runtimes(tmp_path):
    """Two supervisors' runtimes with folders of their own; their sandboxes end with the test."""
    runtimes = [ProcessRuntime(tmp_path / name, grace=0.5) for name in ("one", "two")]
    yield runtimes
    for runtime in runtimes:
        for handle in runtime.known():
            runtime.stop(handle)


def sleeping(sandbox_id: str = "box") -> Launch:
    return Launch(sandbox_id, ("/bin/sleep", "60"), {}, ".", ports=NAMES)


def test_a_port_lies_outside_the_ephemeral_range_of_the_kernel(runtimes):
    handle = runtimes[0].start(sleeping())

    assert handle["ports"].keys() == NAMES.keys()
    assert not set(handle["ports"].values()) & set(ephemeral())


def test_a_sandbox_keeps_its_port_while_no_process_listens_on_it(tmp_path):
    few = free_run(2)
    one, two = (ProcessRuntime(tmp_path / name, grace=0.5, ports=few) for name in ("one", "two"))
    handle = one.start(sleeping())
    try:
        with pytest.raises(RuntimeCallFailed, match=f"no port is free.*{few.start}-{few.stop - 1}"):
            two.start(sleeping())
        assert two.known() == []
    finally:
        one.stop(handle)

    again = two.start(sleeping())
    assert set(again["ports"].values()) == set(few)
    two.stop(again)


@pytest.mark.process("starts a sandbox from another process")
def test_a_port_is_held_when_the_process_that_started_the_sandbox_has_ended(tmp_path):
    few = free_run(2)
    script = (
        "from pathlib import Path; from runtimes import Launch; from runtimes.process import *;"
        f"r = ProcessRuntime(Path({str(tmp_path / 'one')!r}), ports=range({few.start}, {few.stop}));"
        f"r.start(Launch('box', ('/bin/sleep', '60'), {{}}, '.', ports={NAMES!r}))"
    )
    subprocess.run([sys.executable, "-c", script], cwd=PROJECT, check=True)
    one, two = (ProcessRuntime(tmp_path / name, grace=0.5, ports=few) for name in ("one", "two"))
    try:
        with pytest.raises(RuntimeCallFailed, match="no port is free"):
            two.start(sleeping())
    finally:
        for handle in one.known():
            one.stop(handle)


def test_a_port_that_a_program_listens_on_is_not_given():
    few = free_run(3)
    with (
        socket.create_server(("127.0.0.1", few[0])),
        socket.create_server(("0.0.0.0", few[1])),
        held_ports({"AGENT_SERVER": 8000}, few) as held,
    ):
        assert held.ports == {"AGENT_SERVER": few[2]}


def test_a_range_inside_the_kernels_own_has_no_port():
    with pytest.raises(RuntimeCallFailed, match="0 lie outside"), held_ports(NAMES, ephemeral()[:100]):
        pass


def test_no_sandbox_gets_a_port_at_an_end_of_the_kernels_own_range(tmp_path, monkeypatch):
    kernels = tmp_path / "range"
    kernels.write_text("9000\t9001\n")
    monkeypatch.setattr(starts, "_EPHEMERAL", kernels)

    with pytest.raises(RuntimeCallFailed, match="0 lie outside"), held_ports(NAMES, range(9000, 9002)):
        pass


def _hold_some(few: range, number: int, given: "multiprocessing.Queue[list[int]]", end) -> None:
    with held_ports({str(n): n for n in range(number)}, few) as held:
        given.put(list(held.ports.values()))
        end.wait()


@pytest.mark.process("starts several processes at once")
def test_processes_that_choose_concurrently_get_different_ports():
    few, context = free_run(40), multiprocessing.get_context("spawn")
    given, end = context.Queue(), context.Event()
    processes = [context.Process(target=_hold_some, args=(few, 10, given, end)) for _ in range(4)]
    for process in processes:
        process.start()
    starts = [port for _ in processes for port in given.get(timeout=60)]
    end.set()
    for process in processes:
        process.join()

    assert sorted(starts) == list(few)
