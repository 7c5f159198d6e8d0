"""Removes sandboxes that fight it:  python -m tests.runtimes.race FOLDER ORDER, an `RaceOrder` as JSON

Each makes hundreds of directories, clears its environment, and hops by fork and setsid. As soon as its
removal begins it swaps its directories for symlinks to a tree outside, and back. Prints the result, as JSON.
"""

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import runtimes.starts
from runtimes import Launch, ProcessState
from runtimes.isolation.abilities import abilities
from runtimes.isolation.users import USERS, processes_of
from runtimes.process import ProcessRuntime

#: sandboxes at once; directories of each; processes of each that hop, one of them only from the begin of its end on
_AT_ONCE, _DIRECTORIES, _HOPPING = 4, 400, 3

#: seconds between SIGTERM and SIGKILL, in which the sandbox fights; and in which it hops
_GRACE, _HOPS_SECONDS = 0.6, 300

HOSTILE = f"""
import os, random, signal, sys, time
program, outside = sys.argv[1:3]
if not sys.argv[3:]:
    for number in range({_DIRECTORIES}):
        os.makedirs(f"d{{number}}/inner")
        open(f"d{{number}}/file", "w").close()
    os.mkfifo("alive")
    os.set_inheritable(os.open("alive", os.O_RDWR), True)
    for number in range({_HOPPING}):
        if not os.fork():
            os.setsid()
            os.execve(sys.executable, [sys.executable, "-c", program, program, outside, str(number)], {{}})
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
places = {{os.path.realpath("/proc/self/fd/" + each): int(each) for each in os.listdir("/proc/self/fd")}}
[alive] = [file for place, file in places.items() if place.endswith("/alive")]
signal.signal(signal.SIGTERM, lambda *_: open("begun", "w").close())
open("ready" + sys.argv[3], "w").close()
while sys.argv[3] == "0" and not os.path.exists("begun"):
    signal.sigtimedwait([], 0.01)

def swap(number):
    name, aside = f"d{{number}}", f"a{{number}}"
    try:
        if os.path.islink(name):
            os.unlink(name)
            os.rename(aside, name)
        else:
            os.rename(name, aside)
            os.symlink(outside, name)
    except OSError:
        pass

is_told, ends = False, time.monotonic() + {_HOPS_SECONDS} # of a run that was killed nothing hops on
while time.monotonic() < ends:
    if os.path.exists("begun") or not (os.path.lexists("d0") or os.path.lexists("a0")):
        for _ in range(20):
            swap(random.randrange({_DIRECTORIES}))
        if not is_told:
            is_told = os.write(alive, b"s")
    else:
        time.sleep(0.01)
    if os.fork():
        os._exit(0)
    os.setsid()
"""


@dataclass(frozen=True)
class RaceOrder:
    kind: str
    tries: int
    with_user: bool  #: under Landlock, a user of each sandbox's own; bubblewrap of a root has that anyway
    in_cgroup: bool


@dataclass
class RaceOutcome:
    lacks: str = ""  #: why this was not tried
    tries: int = 0
    swapped: int = 0  #: tries in which directories were swapped before the end
    faults: list[str] = field(default_factory=list)


def seen(folder: Path) -> dict[str, tuple]:
    """Everything of a tree that a removal could change; reading it changes nothing of that."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        stat = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (stat.st_mode, stat.st_uid, stat.st_nlink, stat.st_mtime_ns, stat.st_ctime_ns, content)
    return found


def run(order: RaceOrder, folder: Path) -> RaceOutcome:
    real = abilities()
    if order.kind == "bubblewrap" and real.bubblewrap:
        return RaceOutcome(real.bubblewrap)
    if order.kind == "landlock":
        if not real.landlock or (order.with_user and not real.users):
            return RaceOutcome("this kernel has no Landlock, or this root may not give sandboxes users of their own")
        forced = replace(real, bubblewrap="this test does without", users=order.with_user)
        runtimes.starts.abilities = lambda: forced
    outside = folder / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "inner" / "file").write_text("nobody's business")
    (outside / "file").write_text("nobody's business")
    outside.chmod(0o750)
    before, outcome = seen(outside), RaceOutcome(tries=order.tries)
    runtime = ProcessRuntime(folder / "sandboxes", grace=_GRACE, parent_cgroup="own" if order.in_cgroup else None)

    def one(number: int) -> bool:
        try:
            return _removed(runtime, order, f"box{number}", outside)
        except Exception as error:
            outcome.faults.append(f"try {number}: {error!r}")
            return False

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        outcome.swapped = sum(pool.map(one, range(order.tries)))
    if seen(outside) != before:
        outcome.faults.append("the tree outside was changed")
    if runtime.known():
        outcome.faults.append(f"folders are left: {[handle['sandbox_id'] for handle in runtime.known()]}")
    return outcome


def _removed(runtime: ProcessRuntime, order: RaceOrder, name: str, outside: Path) -> bool:
    """Remove a hostile sandbox; whether it swapped directories before its end. Raises AssertionError."""
    isolation = "none" if order.kind == "none" else "auto"
    command = (sys.executable, "-c", HOSTILE, HOSTILE, str(outside))
    handle = runtime.start(Launch(name, command, {}, ".", isolation=isolation, network="none"))
    work = Path(handle["folder"]) / "work"
    owner = work.stat().st_uid
    assert handle["isolation"]["kind"] == order.kind
    assert bool(handle["cgroup"]) == order.in_cgroup
    assert (owner in USERS) == (os.geteuid() == 0 and (order.with_user or order.kind == "bubblewrap"))
    while not all((work / f"ready{number}").exists() for number in range(_HOPPING)):
        assert runtime.observe(handle).state is ProcessState.RUNNING, runtime.logs(handle, 10)
        time.sleep(0.02)
    alive = os.open(work / "alive", os.O_RDONLY | os.O_NONBLOCK)
    try:
        runtime.remove(name)
        said = b""
        while piece := os.read(alive, 1000):  # BlockingIOError: one that has it open still lives
            said += piece
    finally:
        os.close(alive)
    assert not Path(handle["folder"]).exists()
    assert owner not in USERS or processes_of(owner) == []
    return bool(said)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        print(json.dumps(asdict(run(RaceOrder(**json.loads(sys.argv[2])), Path(sys.argv[1])))))
