"""Sandboxes as real processes: frozen whole, started once, ended whole, and ignorant of the server."""

import errno
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

import runtimes.starts
from runtimes import Launch, ProcessState, ResourceUsage, RuntimeCallFailed, cgroup
from runtimes.process import ProcessRuntime, are_used
from runtimes.tree import MARK
from tests.servers import PROJECT, wait_until

pytestmark = pytest.mark.process("starts sandboxes")

#: a family: a child in a session of its own and a grandchild whose parent has gone, each printing every 50 ms
FAMILY = r"""
import os, sys, time
def tell(name):
    while True:
        os.write(1, f"{name} {time.time_ns()}\n".encode())
        time.sleep(0.05)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        tell("grandchild")
    if os.fork() == 0:
        while True:          # forks all the time, as a build does
            if os.fork() == 0:
                os.write(1, b"brief\n")
                os._exit(0)
            os.wait()
            time.sleep(0.05)
    os._exit(0)
tell("parent")
"""


#: where sandboxes get a cgroup
PARENT = {"signals": None, "cgroup": "own"}

#: each way to freeze a sandbox
WAYS = ["signals", pytest.param("cgroup", marks=pytest.mark.process("the same, frozen by the kernel"))]


def python(text: str, **options) -> Launch:
    return Launch("box", (sys.executable, "-u", "-c", text), options.pop("env", {}), ".", **options)


@pytest.fixture(params=WAYS)
def runtime(request, tmp_path):
    """A runtime whose sandboxes end with the test, however that ends; each way to freeze them."""
    if request.param == "cgroup" and not (cgroup.own() and os.access(cgroup.own(), os.W_OK)):
        pytest.skip("no cgroup v2 here below which another may be made")
    runtime = ProcessRuntime(tmp_path / "sandboxes", grace=0.5, parent_cgroup=PARENT[request.param])
    yield runtime
    for handle in runtime.known():
        runtime.stop(handle)
    assert not marked(tmp_path)


def marked(folder: Path) -> list[psutil.Process]:
    """Processes that carry the mark of a sandbox below a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").startswith(str(folder)) and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            pass
    return found


def printed(runtime, handle) -> list[str]:
    return runtime.logs(handle, 10_000).splitlines()


def prints_more(runtime, handle, than: int) -> bool:
    return len(printed(runtime, handle)) > than


def all_print(runtime, handle, after: int) -> bool:
    """Whether every member of the family has printed something after so many lines."""
    return {line.split()[0] for line in printed(runtime, handle)[after:]} == {"parent", "grandchild", "brief"}


@pytest.mark.process("pauses and resumes many times, and waits in between")
def test_a_paused_family_prints_nothing_and_goes_on_after_resume(runtime):
    handle = runtime.start(python(FAMILY))
    wait_until(partial(all_print, runtime, handle, 0), "the family")

    for _ in range(3):
        runtime.pause(handle)
        assert runtime.observe(handle).state is ProcessState.PAUSED
        before = printed(runtime, handle)
        time.sleep(0.3)
        assert printed(runtime, handle) == before

        runtime.resume(handle)
        assert runtime.observe(handle).state is ProcessState.RUNNING
        wait_until(partial(all_print, runtime, handle, len(before)), "the resumed processes")


@pytest.mark.process("pauses and resumes many times, and waits in between")
def test_racing_pause_and_resume_leave_all_processes_paused_or_all_running(runtime):
    handle = runtime.start(python(FAMILY))
    wait_until(lambda: printed(runtime, handle), "it")

    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            verbs = [runtime.pause, runtime.resume]
            random.shuffle(verbs)
            for done in [pool.submit(verb, handle) for verb in verbs]:
                done.result()
            before = len(printed(runtime, handle))
            if runtime.observe(handle).state is ProcessState.PAUSED:
                time.sleep(0.15)
                assert len(printed(runtime, handle)) == before
            else:
                wait_until(partial(prints_more, runtime, handle, before), "the running processes")

    runtime.resume(handle)
    before = len(printed(runtime, handle))
    wait_until(partial(prints_more, runtime, handle, before + 5), "the resumed processes")


def test_pause_and_resume_may_be_repeated(runtime):
    handle = runtime.start(python(FAMILY))
    for _ in range(2):
        runtime.pause(handle)
    assert runtime.observe(handle).state is ProcessState.PAUSED
    for _ in range(2):
        runtime.resume(handle)
    assert runtime.observe(handle).state is ProcessState.RUNNING


def test_a_process_that_its_sandbox_stopped_stays_stopped_where_the_kernel_freezes(runtime):
    text = """
import os, signal, time
child = os.fork()
if not child:
    time.sleep(60)
os.kill(child, signal.SIGSTOP)
print(child, flush=True)
time.sleep(60)
"""
    handle = runtime.start(python(text))
    wait_until(lambda: printed(runtime, handle), "it")

    runtime.pause(handle)
    runtime.resume(handle)

    # Signals do not record which process stopped another: without a freezer, a resume continues every process.
    is_stopped = psutil.Process(int(printed(runtime, handle)[0])).status() == psutil.STATUS_STOPPED
    assert is_stopped == bool(handle["cgroup"])
    assert runtime.observe(handle).state is ProcessState.RUNNING


@pytest.mark.process("starts eight at once")
def test_concurrent_starts_of_one_id_start_one_sandbox(runtime, tmp_path):
    with ThreadPoolExecutor(8) as pool:
        handles = list(pool.map(lambda _: runtime.start(python(FAMILY)), range(8)))

    assert all(handle == handles[0] for handle in handles)
    assert runtime.known() == handles[:1]
    launchers = [process for process in marked(tmp_path) if "runtimes.launch" in " ".join(process.cmdline())]
    assert len(launchers) == 1


def test_another_process_adopts_a_sandbox(runtime, tmp_path):
    script = (
        "import json,sys; from pathlib import Path; from runtimes import Launch; from runtimes.process import *;"
        f"r = ProcessRuntime(Path({str(tmp_path / 'sandboxes')!r}));"
        "print(json.dumps(r.start(Launch('box', ('/bin/sleep', '60'), {}, '.'))))"
    )
    said = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True)
    handle = json.loads(said.stdout)

    assert runtime.known() == [handle]
    assert runtime.start(Launch("box", ("/bin/sleep", "60"), {}, ".")) == handle
    assert runtime.observe(handle).state is ProcessState.RUNNING


def test_a_reused_process_id_is_not_taken_for_the_sandbox(runtime):
    handle = runtime.start(Launch("box", ("/bin/sleep", "60"), {}, "."))
    other = {**handle, "pid": os.getpid()}

    assert runtime.observe(other).state is ProcessState.GONE
    with pytest.raises(RuntimeCallFailed, match="ended"):
        runtime.pause(other)


@pytest.mark.parametrize(
    ("script", "detail"),
    [("raise SystemExit(3)", "exit code 3"), ("import os; os.kill(os.getpid(), 9)", "signal SIGKILL")],
)
def test_an_ended_sandbox_reports_its_exit_and_keeps_its_last_lines(runtime, script, detail):
    handle = runtime.start(python(f"print('last words', flush=True)\n{script}"))
    wait_until(lambda: runtime.observe(handle).state is ProcessState.GONE, "the end")

    assert runtime.observe(handle).detail == detail
    assert printed(runtime, handle) == ["last words"]


def test_a_paused_sandbox_whose_command_is_killed_ends_without_a_resume(runtime, tmp_path):
    handle = runtime.start(python(FAMILY))
    wait_until(partial(all_print, runtime, handle, 0), "the family")
    runtime.pause(handle)

    [command] = psutil.Process(handle["pid"]).children()[:1]
    command.kill()

    wait_until(lambda: runtime.observe(handle).state is ProcessState.GONE, "the end")
    assert runtime.observe(handle).detail == "signal SIGKILL"
    assert not marked(tmp_path)


def test_a_killed_launcher_takes_its_sandbox_with_it(runtime, tmp_path):
    handle = runtime.start(python(FAMILY))
    wait_until(lambda: len(marked(tmp_path)) >= 3, "the family")

    os.kill(handle["pid"], signal.SIGKILL)

    wait_until(lambda: runtime.observe(handle).state is ProcessState.GONE, "the end")
    assert runtime.observe(handle).detail == "it was killed from outside"
    with pytest.raises(RuntimeCallFailed, match="nothing shows that all of its processes have ended"):
        runtime.stop(handle)
    assert not marked(tmp_path)
    for mark in Path(handle["folder"]).glob("unended.*"):
        mark.unlink()


@pytest.mark.parametrize("paused", [False, pytest.param(True, marks=pytest.mark.process("the same of a paused one"))])
def test_stop_ends_every_process_and_keeps_the_files(runtime, tmp_path, paused):
    handle = runtime.start(python(FAMILY))
    wait_until(lambda: printed(runtime, handle), "it")
    (Path(handle["folder"]) / "work" / "mine").write_text("kept")
    if paused:
        runtime.pause(handle)

    runtime.stop(handle)
    runtime.stop(handle)

    assert not marked(tmp_path)
    assert (Path(handle["folder"]) / "work" / "mine").read_text() == "kept"
    assert runtime.observe(handle).state is ProcessState.GONE
    assert runtime.known() == [handle]
    assert printed(runtime, handle)


@pytest.mark.parametrize(
    "before",
    [
        "running",
        *(pytest.param(one, marks=pytest.mark.process("the same from there")) for one in ("paused", "stopped")),
    ],
)
def test_remove_ends_every_process_and_removes_the_folder(runtime, tmp_path, before):
    handle = runtime.start(python(FAMILY))
    wait_until(lambda: printed(runtime, handle), "it")
    if before != "running":
        getattr(runtime, {"paused": "pause", "stopped": "stop"}[before])(handle)

    runtime.remove("box")
    runtime.remove("box")

    assert not marked(tmp_path)
    assert list(Path(handle["folder"]).parent.glob("*box*")) == []
    assert runtime.known() == []


@pytest.mark.process("starts a sandbox three times")
def test_what_a_killed_agent_leaves_in_agent_tmpdir_is_gone_after_a_stop_and_at_the_next_start(runtime):
    leaves = python(
        "import os, time; folder = os.environ['AGENT_TMPDIR']; print(os.listdir(folder))\n"
        "os.mkdir(f'{folder}/agent-shell-x'); print('left'); time.sleep(600)"
    )
    handle = runtime.start(leaves)
    temporary = Path(handle["folder"]) / "tmp"
    wait_until(lambda: printed(runtime, handle)[-1:] == ["left"], "its folder")
    assert [one.name for one in temporary.iterdir()] == ["agent-shell-x"]

    runtime.stop(handle)
    assert not temporary.exists()

    for start in (2, 3):  # the third one ends the second, which nobody has stopped
        again = runtime.start(replace(leaves, start=start))
        wait_until(lambda now=again: printed(runtime, now)[-1:] == ["left"], "its folder")
        assert printed(runtime, again)[-2] == "[]"


@pytest.mark.process("starts a sandbox twice")
def test_a_later_start_ends_the_processes_of_the_earlier_one_and_finds_its_files(runtime, tmp_path):
    first = runtime.start(python("open('mine', 'w').write('kept')\n" + FAMILY))
    wait_until(lambda: printed(runtime, first), "it")

    again = runtime.start(python(FAMILY))
    second = runtime.start(replace(python("print(open('mine').read())\n" + FAMILY), start=2))

    assert again == first
    assert runtime.observe(first).state is ProcessState.GONE
    wait_until(lambda: "kept" in runtime.logs(second, 100), "its files")
    assert {each.environ()[MARK] for each in marked(tmp_path)} == {second["folder"]}
    runtime.stop(second)
    assert not marked(tmp_path)


def test_a_folder_that_was_deleted_or_cannot_be_written_is_broken_and_says_so(runtime):
    handle = runtime.start(python(FAMILY))
    work = Path(handle["folder"]) / "work"
    work.rename(work.with_name("elsewhere"))

    seen = runtime.observe(handle)

    assert seen.state is ProcessState.BROKEN
    assert "deleted from outside" in seen.detail
    runtime.stop(handle)
    assert not marked(Path(handle["folder"]))


def test_the_disk_use_of_a_sandbox_is_the_size_of_its_files(runtime):
    handle = runtime.start(python(FAMILY))
    before = runtime.disk_bytes("box")

    (Path(handle["folder"]) / "work" / "mine").write_bytes(bytes(1 << 20))

    assert (1 << 20) <= runtime.disk_bytes("box") - before <= (1 << 20) + (64 << 10)
    runtime.remove("box")
    assert runtime.disk_bytes("box") == 0


@pytest.mark.faults("waits for the grace of a stop")
def test_a_process_that_ignores_sigterm_is_killed(runtime, tmp_path):
    handle = runtime.start(python("import signal,time\nsignal.signal(15, signal.SIG_IGN)\nprint(1)\ntime.sleep(60)"))
    wait_until(lambda: printed(runtime, handle), "it")

    runtime.stop(handle)

    assert not marked(tmp_path)


def test_the_environment_of_a_sandbox_is_its_launchs_alone(runtime, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "the server's own")
    handle = runtime.start(
        python(
            "import os,json; print(json.dumps(dict(os.environ)))", env={"GIVEN": "at {AGENT_SERVER}", "LC_CTYPE": "C"}
        )
    )
    wait_until(lambda: printed(runtime, handle), "it")

    env = json.loads(printed(runtime, handle)[0])

    assert set(env) == {"PATH", "HOME", "GIVEN", "LC_CTYPE", "AGENT_TMPDIR", MARK}
    assert env["GIVEN"] == f"at {handle['ports']['AGENT_SERVER']}"


def test_no_open_file_of_the_server_reaches_a_sandbox(runtime, tmp_path):
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        handle = runtime.start(python("import os; print(os.listdir('/proc/self/fd'))"))
        wait_until(lambda: printed(runtime, handle), "it")

    assert len(json.loads(printed(runtime, handle)[0].replace("'", '"'))) == 4  # three, and the folder itself


@pytest.mark.process("starts four sandboxes")
def test_each_sandbox_has_ports_of_its_own(runtime):
    ports = {"AGENT_SERVER": 8000, "VSCODE": 8001}
    handles = [runtime.start(Launch(f"box{n}", ("/bin/sleep", "60"), {}, ".", ports=ports)) for n in range(4)]

    given = [port for handle in handles for port in handle["ports"].values()]

    assert len(set(given)) == 8


@pytest.mark.process("prints a hundred thousand lines")
def test_the_log_is_bounded(tmp_path):
    runtime = ProcessRuntime(tmp_path / "sandboxes", log_bytes=10_000, grace=0.5)
    handle = runtime.start(python("for n in range(100_000): print(n)\nprint('end')\nimport time; time.sleep(60)"))
    try:
        wait_until(lambda: printed(runtime, handle)[-1:] == ["end"], "the last line")
        assert printed(runtime, handle)[-3:] == ["99998", "99999", "end"]
        assert runtime.logs(handle, 1) == "… 100,000 earlier lines are not shown\nend"
        size = sum(file.stat().st_size for file in Path(handle["folder"]).glob("log*"))
        assert 10_000 <= size <= 30_000
    finally:
        runtime.stop(handle)


@pytest.mark.parametrize(
    ("launch", "sentence"),
    [
        (Launch("box", ("/no/such/program",), {}, "."), "/no/such/program"),
        (Launch("box", ("/bin/true",), {}, "../elsewhere"), "outside of its folder"),
        (Launch("box", ("/bin/true",), {}, "a/../../elsewhere"), "outside of its folder"),
        (Launch("../box", ("/bin/true",), {}, "."), "cannot name"),
    ],
)
def test_a_sandbox_that_cannot_start_reports_the_reason_and_leaves_nothing(runtime, tmp_path, launch, sentence):
    with pytest.raises(RuntimeCallFailed, match=sentence):
        runtime.start(launch)

    assert runtime.known() == []
    assert not (tmp_path / "sandboxes" / "box").exists()


def test_a_working_directory_that_became_a_symlink_before_the_command_runs_is_not_entered(
    runtime, tmp_path, monkeypatch
):
    (tmp_path / "outside").mkdir()
    real = runtimes.starts._give

    def give(launch, folder, working_dir, confinement):
        real(launch, folder, working_dir, confinement)
        working_dir.rename(working_dir.with_name("aside"))
        working_dir.symlink_to(tmp_path / "outside")

    monkeypatch.setattr(runtimes.starts, "_give", give)
    with pytest.raises(RuntimeCallFailed, match="cannot be run: Not a directory"):
        runtime.start(Launch("box", ("/usr/bin/touch", "made"), {}, "project"))

    assert list((tmp_path / "outside").iterdir()) == []


def test_no_file_gets_larger_than_all_files_of_the_sandbox_may_be(runtime):
    text = """
try:
    open("f", "wb").truncate(1 << 30)
except OSError as error:
    print(error.errno)
"""
    handle = runtime.start(python(text, disk_bytes=1 << 20))
    wait_until(lambda: runtime.observe(handle).state is ProcessState.GONE, "the end")

    assert printed(runtime, handle) == [str(errno.EFBIG)]


@pytest.mark.faults("fills 200 MiB of memory")
def test_memory_is_limited(runtime):
    handle = runtime.start(
        python("print('begins', flush=True)\nb = bytearray(400 << 20)\nprint('has it')", memory_bytes=200 << 20)
    )
    wait_until(lambda: runtime.observe(handle).state is ProcessState.GONE, "the end")

    assert "has it" not in printed(runtime, handle)
    assert handle["limits"]["memory_bytes"] in ("each process", "cgroup")


@pytest.mark.faults("kills five supervisors at five moments of a start")
def test_a_supervisor_that_dies_during_a_start_leaves_one_sandbox_at_most(tmp_path):
    script = (
        "from pathlib import Path; from runtimes import Launch; from runtimes.process import *;"
        f"ProcessRuntime(Path({str(tmp_path / 'sandboxes')!r})).start(Launch('box', ('/bin/sleep', '60'), {{}}, '.'))"
    )
    runtime = ProcessRuntime(tmp_path / "sandboxes", grace=0.5)
    for delay in (0.15, 0.2, 0.25, 0.3, 0.4):
        process = subprocess.Popen([sys.executable, "-c", script], cwd=PROJECT)
        timer = threading.Timer(delay, process.kill)
        timer.start()
        process.wait()
        timer.cancel()
        handle = runtime.start(Launch("box", ("/bin/sleep", "60"), {}, "."))
        assert runtime.observe(handle).state is ProcessState.RUNNING
        assert len([one for one in marked(tmp_path) if one.name() == "sleep"]) == 1
        runtime.stop(handle)
        assert not marked(tmp_path)


BUSY = "kept = bytearray(b'x') * (64 << 20)\nprint(1, flush=True)\nwhile True: pass"
ENDING_CHILD = """
import subprocess, sys, time
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.32: pass"])
print(1)
time.sleep(60)
"""


@pytest.mark.process("uses processor time until it is measured")
def test_what_the_processes_use_is_measured(runtime):
    handle = runtime.start(python(BUSY))
    wait_until(lambda: runtime.logs(handle, 1), "the sandbox's first line")

    first = runtime.usage("box")

    assert 64 << 20 < first.memory_bytes < 1 << 30
    wait_until(lambda: runtime.usage("box").cpu_seconds > first.cpu_seconds + 0.1, "the processor time to grow")
    runtime.stop(handle)
    assert runtime.usage("box") == ResourceUsage(None, None)
    assert runtime.usage("nobody") == ResourceUsage(None, None)


@pytest.mark.process("uses processor time until it is measured")
def test_the_processor_time_of_a_process_that_has_ended_counts(runtime):
    handle = runtime.start(python(ENDING_CHILD))
    wait_until(lambda: runtime.logs(handle, 1), "the end of the child")

    assert runtime.usage("box").cpu_seconds >= 0.3  # the kernel drops up to two ticks of the child's 0.32


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_a_port_that_only_listens_is_not_used(listener):
    assert not are_used([listener.getsockname()[1]])
    assert not are_used([])


def test_a_port_with_an_open_connection_counts_as_used(listener):
    with socket.create_connection(listener.getsockname()):
        assert are_used([listener.getsockname()[1]])


@pytest.mark.parametrize("first", ["client", "server"])
def test_a_port_counts_as_used_after_either_side_closed_the_connection_first(listener, first):
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    sides = {"client": client, "server": server}

    ending, other = sides.pop(first), next(iter(sides.values()))
    ending.close()
    assert other.recv(1) == b""
    other.close()

    assert are_used([listener.getsockname()[1]])


def test_a_port_with_connections_of_ipv6_is_used():
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with listener, socket.create_connection(listener.getsockname()[:2]):
        assert are_used([listener.getsockname()[1]])


def test_connections_to_other_ports_do_not_count(listener):
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_connection(listener.getsockname()):
        assert not are_used([other.getsockname()[1]])
