"""The end of a sandbox is shown by the kernel and never assumed; what nothing shows keeps its folder, and says so.

A sandbox whose supervisors are gone ends; one whose supervisor lives, or came again in time, does not.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

import runtimes.starts
from runtimes import Handle, Launch, ProcessState, RuntimeCallFailed, cgroup, tree
from runtimes.ends import OrphanWatch, is_supervised, own_mark, supervise
from runtimes.isolation.users import USERS, end_processes_of, freed, held_user, processes_of
from runtimes.process import ProcessRuntime
from runtimes.tree import process_of
from tests.runtimes.host import require, require_cgroup
from tests.runtimes.test_process import PARENT, WAYS, marked
from tests.servers import PROJECT, wait_until

pytestmark = pytest.mark.process("starts sandboxes and waits for their end")

#: starts a process in a session of its own, without an environment that would name its sandbox
AWAY = """
import os, sys, time
if sys.argv[1:] != ["bare"]:
    os.mkfifo("alive")
    os.set_inheritable(os.open("alive", os.O_RDWR), True)
    if not os.fork():
        os.setsid()
        os.execve(sys.executable, [sys.executable, "-c", sys.argv[1], "bare"], {})
    time.sleep(600)
print("ready", flush=True)
"""

#: three processes that fork, leave their session and end, again and again
HOPPING = (
    AWAY
    + """
for _ in range(2):
    if not os.fork():
        break
ends = time.monotonic() + 300 # of a run that was killed nothing hops on
while time.monotonic() < ends:
    if os.fork():
        os._exit(0)
    os.setsid()
"""
)

HIDDEN = AWAY + "time.sleep(600)"


@pytest.mark.parametrize(
    "found",
    [[], [SimpleNamespace(pid=1 << 30, send_signal=lambda _number: None)]],
    ids=["at its end", "at its beginning"],
)
def test_a_caller_that_was_stopped_while_it_ended_processes_takes_none_for_a_survivor(monkeypatch, found):
    clock = iter([0.0, 300.0])
    monkeypatch.setattr(tree.time, "monotonic", lambda: next(clock, 300.1))
    looks = iter([found])

    tree.end(lambda: next(looks, []))


def a_sandbox(program: str, **options) -> Launch:
    options = {"isolation": "none", **options}
    return Launch("box", (sys.executable, "-c", program, program), {}, ".", **options)


@contextmanager
def watched(runtime: ProcessRuntime, launch: Launch) -> Iterator[tuple[dict, int]]:
    """A sandbox that has started, and a file of which the kernel says whether a process of the sandbox lives."""
    handle = runtime.start(launch)
    wait_until(lambda: "ready" in runtime.logs(handle, 10), "the processes")
    file = os.open(Path(handle["folder"]) / "work" / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield handle, file
    finally:
        os.close(file)


def has_writers(fifo: int) -> bool:
    with suppress(BlockingIOError):
        return os.read(fifo, 1) != b""
    return True


@pytest.fixture(
    params=[
        "none",
        "landlock",
        pytest.param("none in a cgroup", marks=pytest.mark.process("the same in a cgroup")),
        pytest.param("landlock in a cgroup", marks=pytest.mark.process("the same in a cgroup")),
        pytest.param("bubblewrap", marks=pytest.mark.process("the same in bubblewrap")),
        pytest.param("bubblewrap in a cgroup", marks=pytest.mark.process("the same in bubblewrap")),
    ]
)
def way(request, monkeypatch):
    """What holds a sandbox: the name of its isolation, and whether it has a cgroup."""
    kind, _, in_group = request.param.partition(" in a ")
    if in_group:
        require_cgroup()
    if kind != "none":
        require(kind, monkeypatch)
    return kind, bool(in_group)


@pytest.fixture
def runtime(way, tmp_path):
    _, in_group = way
    runtime = ProcessRuntime(tmp_path / "sandboxes", grace=0.1, parent_cgroup="own" if in_group else None)
    yield runtime
    for handle in runtime.known():
        runtime.stop(handle)


@pytest.fixture
def options(way):
    kind, _ = way
    return {"isolation": "none"} if kind == "none" else {"isolation": "auto", "network": "none"}


def test_processes_that_fork_and_end_without_end_have_ended_when_a_sandbox_was_removed(runtime, options):
    with watched(runtime, a_sandbox(HOPPING, **options)) as (handle, alive):
        assert has_writers(alive)

        runtime.remove("box")

        assert not has_writers(alive)
        assert not Path(handle["folder"]).exists()


def test_a_folder_stays_while_nothing_shows_that_its_processes_have_ended(runtime, way, options):
    kind, in_group = way
    with watched(runtime, a_sandbox(HIDDEN, **options)) as (handle, alive):
        os.kill(handle["pid"], signal.SIGKILL)
        wait_until(lambda: tree.process_of(handle["pid"], handle["started"]) is None, "the end of the launcher")

        if kind == "bubblewrap" or (kind == "landlock" and in_group):
            runtime.remove("box")
            assert not has_writers(alive)
            assert not Path(handle["folder"]).exists()
        else:
            with pytest.raises(RuntimeCallFailed, match=r"nothing shows that all of its processes have ended.*unended"):
                runtime.remove("box")
            assert (Path(handle["folder"]) / "work" / "alive").exists()
            with suppress(ProcessLookupError):
                for pid in openers(Path(handle["folder"]) / "work" / "alive"):
                    os.kill(pid, signal.SIGKILL)
            forget(handle)


@contextmanager
def orphaned(runtime: ProcessRuntime, launch: Launch) -> Iterator[dict]:
    """A sandbox whose launcher was killed, and of whose processes one lives hidden; that one ends after the block."""
    with watched(runtime, launch) as (handle, alive):
        fifo = Path(handle["folder"]) / "work" / "alive"
        os.kill(handle["pid"], signal.SIGKILL)
        wait_until(lambda: tree.process_of(handle["pid"], handle["started"]) is None, "the end of the launcher")
        yield handle
        for pid in openers(fifo):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not has_writers(alive), "the end of the processes")
        forget(handle)


def forget(handle: dict) -> None:
    """Delete the marks of a sandbox, as a person does who knows that none of its processes lives."""
    for mark in Path(handle["folder"]).glob("unended.*"):
        mark.unlink()


def test_a_sandbox_that_may_still_live_is_not_said_to_be_stopped_and_none_is_started_beside_it(tmp_path):
    runtime = ProcessRuntime(tmp_path / "sandboxes", grace=0.1, parent_cgroup=None)
    launch = a_sandbox(HIDDEN)
    with orphaned(runtime, launch) as handle:
        for _ in range(2):
            with pytest.raises(RuntimeCallFailed, match="nothing shows that all of its processes have ended"):
                runtime.stop(handle)
            with pytest.raises(RuntimeCallFailed, match=r"cannot be started.*nothing shows that all"):
                runtime.start(replace(launch, start=2))
        assert (Path(handle["folder"]) / "work" / "alive").exists()
        assert runtime.known() == [handle]

    runtime.stop(handle)


def test_a_launcher_that_does_not_reply_in_time_ends_its_sandbox_before_itself(tmp_path, monkeypatch):
    runtime = ProcessRuntime(tmp_path / "sandboxes", grace=0.1, parent_cgroup=None)
    opened = []

    def no_reply(*_):
        fifo = tmp_path / "sandboxes" / "box" / "work" / "alive"
        wait_until(fifo.exists, "the processes")
        opened.append(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))
        wait_until(lambda: openers(fifo), "one of them")
        return [], [], []

    monkeypatch.setattr(runtimes.starts.select, "select", no_reply)
    with pytest.raises(RuntimeCallFailed, match="did not reply"):
        runtime.start(a_sandbox(HIDDEN))

    assert not has_writers(opened[0])
    os.close(opened[0])
    assert runtime.known() == []


def test_a_launcher_that_cannot_end_its_sandbox_is_killed_last(tmp_path, monkeypatch):
    monkeypatch.setattr(runtimes.starts, "END_TIMEOUT", -0.1)
    runtime = ProcessRuntime(tmp_path / "sandboxes", grace=0.1, parent_cgroup=None)
    monkeypatch.setattr(runtimes.starts.select, "select", lambda *_: ([], [], []))

    with pytest.raises(RuntimeCallFailed, match="did not reply"):
        runtime.start(a_sandbox(HIDDEN))

    assert [child for child in psutil.Process().children() if "runtimes.launch" in child.cmdline()] == []


def test_a_user_who_may_not_see_process_1_knows_a_restart_by_the_boot(monkeypatch):
    real = tree.started
    monkeypatch.setattr(tree, "started", lambda pid: None if pid == 1 else real(pid))
    mark = own_mark(None, None)
    assert not replace(mark, pid=0).is_shown()
    assert not mark.is_shown()

    monkeypatch.setattr(tree, "boot", lambda: "a later one")
    assert mark.is_shown()


def openers(path: Path) -> list[int]:
    """The processes but this one that have a file open."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if entry.readlink() == path and entry.parts[2] != str(os.getpid()):
                found.append(int(entry.parts[2]))
    return found


def test_a_restart_of_the_machine_or_the_container_shows_the_end(tmp_path):
    runtime = ProcessRuntime(tmp_path / "sandboxes", grace=0.1, parent_cgroup=None)
    with watched(runtime, a_sandbox(HIDDEN)) as (handle, alive):
        os.kill(handle["pid"], signal.SIGKILL)
        for pid in openers(Path(handle["folder"]) / "work" / "alive"):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not has_writers(alive), "the end of the processes")
        [mark] = Path(handle["folder"]).glob("unended.*")
        mark.write_text(json.dumps(json.loads(mark.read_text()) | {"era": "another+1"}))

        runtime.remove("box")

        assert not Path(handle["folder"]).exists()


def test_a_mark_that_cannot_be_read_keeps_its_folder(tmp_path):
    runtime = ProcessRuntime(tmp_path / "sandboxes", grace=0.1, parent_cgroup=None)
    (tmp_path / "sandboxes" / "box").mkdir()
    mark = tmp_path / "sandboxes" / "box" / "unended.1-1"
    mark.write_text("")

    with pytest.raises(RuntimeCallFailed, match="nothing shows"):
        runtime.remove("box")
    mark.unlink()
    runtime.remove("box")


def test_a_launcher_that_was_stopped_is_continued_to_end_its_sandbox(tmp_path):
    runtime = ProcessRuntime(tmp_path / "sandboxes", grace=0.1, parent_cgroup=None)
    with watched(runtime, a_sandbox(HIDDEN)) as (handle, alive):
        os.kill(handle["pid"], signal.SIGSTOP)

        runtime.remove("box")

        assert not has_writers(alive)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give sandboxes users of their own")


@needs_root
def test_all_processes_of_a_user_end_at_one_moment(tmp_path):
    user, hold = held_user(tmp_path)
    fork = (
        "import os, time\nprint(1, flush=True)\nends = time.monotonic() + 300\n"
        "while time.monotonic() < ends:\n    if os.fork(): os._exit(0)\n    os.setsid()"
    )
    with hold, subprocess.Popen(["/usr/bin/python3", "-c", fork], user=user, group=user, stdout=subprocess.PIPE) as one:
        one.stdout.readline()

        end_processes_of(user)

        assert processes_of(user) == []
        assert one.stdout.read() == b""


@needs_root
@pytest.mark.parametrize("end", ["\\r", "\\f", "\\v", "\\n", "\u2028"])
def test_a_process_that_names_itself_like_another_line_of_its_status_is_found(tmp_path, end):
    user, hold = held_user(tmp_path)
    named = (
        "import ctypes, time\n"
        f"ctypes.CDLL(None).prctl(15, 'x{end}Uid:\\t0'.encode(), 0, 0, 0)\nprint(1, flush=True)\ntime.sleep(300)"
    )
    with (
        hold,
        subprocess.Popen(["/usr/bin/python3", "-c", named], user=user, group=user, stdout=subprocess.PIPE) as one,
    ):
        one.stdout.readline()
        try:
            assert processes_of(user) == [one.pid]
        finally:
            one.kill()


#: becomes a killer, waits for a line, and kills
KILLER = """
import os, signal, sys
from runtimes.isolation.users import become_killer
become_killer(int(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
os.kill(-1, signal.SIGKILL)
"""

#: sends everything that it may signal SIGKILL a thousand times, says so, and goes on
KILLING = """
import os, signal
for attempt in range(10**9):
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if attempt == 1000:
        print("ready", flush=True)
"""


@needs_root
def test_a_sandbox_that_kills_all_that_it_can_does_not_reach_the_process_that_ends_it(tmp_path):
    user, hold = held_user(tmp_path)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with hold, subprocess.Popen([sys.executable, "-c", KILLER, str(user)], cwd=PROJECT, **pipes) as killer:
        assert killer.stdout.readline() == b"ready\n"
        with subprocess.Popen(["/usr/bin/python3", "-c", KILLING], user=user, group=user, **pipes) as one:
            assert one.stdout.readline() == b"ready\n"
            assert killer.poll() is None
            killer.stdin.write(b"\n")
            killer.stdin.flush()
            assert one.wait() == -signal.SIGKILL
        assert killer.wait() == 0


@needs_root
def test_a_user_that_another_sandbox_has_by_now_is_left_alone(tmp_path):
    user, hold = held_user(tmp_path)
    with hold, subprocess.Popen(["/bin/sleep", "600"], user=user, group=user) as later:
        assert not freed(user)
        assert later.poll() is None
        end_processes_of(user)


@needs_root
def test_a_user_that_has_a_process_is_given_to_no_sandbox(tmp_path):
    user, hold = held_user(tmp_path)
    os.chown(tmp_path, user, user)
    hold.close()
    with subprocess.Popen(["/bin/sleep", "600"], user=user, group=user) as left:
        other, hold = held_user(tmp_path)
        hold.close()
        assert other in USERS
        assert other != user
        left.kill()


#: seconds after which an orphan ends in these tests, and where the next supervisor must be in time
ORPHAN, IN_TIME = 1.0, 5.0

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


@pytest.fixture(params=WAYS)
def parent(request):
    if request.param == "cgroup" and not (cgroup.own() and os.access(cgroup.own(), os.W_OK)):
        pytest.skip("no cgroup v2 here below which another may be made")
    return PARENT[request.param]


@contextmanager
def supervisor(
    folder: Path, parent: str | None, *, paused: bool = False, seconds: float = ORPHAN
) -> Iterator[tuple[subprocess.Popen, Handle]]:
    """A process that has started a sandbox and supervises its folder; killed with the block."""
    script = SUPERVISOR.format(folder=str(folder), parent=parent, seconds=seconds, paused=paused)
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process, Handle(json.loads(process.stdout.readline()))
        finally:
            process.kill()


@pytest.mark.faults("kills or suspends a supervisor, and waits for ORPHAN_SECONDS")
@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_a_sandbox_whose_supervisor_was_killed_ends_with_all_its_processes_and_its_cgroup(tmp_path, parent, paused):
    with supervisor(tmp_path, parent, paused=paused) as (_, handle):
        assert len(marked(tmp_path)) >= 3

    wait_until(lambda: not process_of(handle["pid"], handle["started"]), "the end of the orphan")

    assert not marked(tmp_path)
    if handle["cgroup"]:
        assert not Path(handle["cgroup"]).exists()
    later = ProcessRuntime(tmp_path, grace=0.5, parent_cgroup=parent)
    seen = later.observe(handle)
    assert seen.state is ProcessState.GONE
    assert seen.detail == "it had no supervisor for 1 s (ORPHAN_SECONDS)"
    assert seen.by_order
    assert (Path(handle["folder"]) / "work").exists()


@pytest.mark.faults("kills or suspends a supervisor, and waits for ORPHAN_SECONDS")
def test_a_sandbox_runs_while_its_supervisor_lives_even_if_that_is_suspended(tmp_path, parent):
    with supervisor(tmp_path, parent) as (process, handle):
        psutil.Process(process.pid).suspend()  # as a supervisor that waits for the store
        time.sleep(2 * ORPHAN)
        assert process_of(handle["pid"], handle["started"])
    wait_until(lambda: not marked(tmp_path), "the end of the orphan")


@pytest.mark.faults("kills or suspends a supervisor, and waits for ORPHAN_SECONDS")
def test_a_supervisor_within_the_timeout_adopts_the_sandbox(tmp_path, parent):
    with supervisor(tmp_path, parent, seconds=IN_TIME) as (process, handle):
        process.kill()
        process.wait()
        later = ProcessRuntime(tmp_path, grace=0.5, parent_cgroup=parent)
        time.sleep(1.5 * IN_TIME)
        assert later.observe(handle).state is ProcessState.RUNNING
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
    monkeypatch.setattr("runtimes.ends.time.monotonic", lambda: now)
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
    monkeypatch.setattr("runtimes.ends.time.monotonic", lambda: now)
    watch = OrphanWatch(tmp_path, 60.0)
    for _ in range(3):
        now += 100_000
        assert not watch.is_orphan()
