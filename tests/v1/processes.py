"""The processes of a whole server under test: its supervisor, and the processes in its sandboxes."""

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import httpx
import psutil

from runtimes.tree import MARK
from tests.servers import PROJECT, runs, wait_until

#: the scripted program that speaks ACP
ACP_PROGRAM = PROJECT / "tests" / "reference_agent" / "acp" / "scripted.py"


def supervisor_of(master) -> psutil.Process:
    """The supervisor that a server has now."""
    found: list[psutil.Process] = []

    def is_there() -> bool:
        children = psutil.Process(master.pid).children(recursive=True)
        found[:] = [child for child in children if runs(child, "--stand-by")]
        return bool(found)

    wait_until(is_there, "the supervisor")
    return found[0]


def workers(master) -> list[psutil.Process]:
    """The workers that a server has now."""
    return [one for one in psutil.Process(master.pid).children() if runs(one, "gunicorn")]


def in_sandboxes(folder: Path) -> list[psutil.Process]:
    """Every process of every sandbox under a folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK, "").startswith(str(folder)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def stands_still(url: str, seconds: float = 0.5) -> bool:
    """Whether an agent server's port accepts connections, as the kernel does for it, but sends no response."""
    try:
        httpx.get(url, timeout=seconds)
    except httpx.ReadTimeout:
        return True
    return False


def agents(folder: Path) -> list[psutil.Process]:
    """The agent servers among them, without the bubblewrap around each."""
    found = []
    for process in in_sandboxes(folder):
        with contextlib.suppress(psutil.Error):
            if "reference_agent" in process.cmdline() and process.name() != "bwrap":
                found.append(process)
    return found


def acp_programs(folder: Path) -> list[psutil.Process]:
    """The scripted programs that speak ACP among them."""
    found = []
    for process in in_sandboxes(folder):
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[1:2] == [str(ACP_PROGRAM)]:
                found.append(process)
    return found


def launchers(folder: Path) -> list[psutil.Process]:
    """The launchers of the sandboxes under a folder."""
    found = []
    for process in in_sandboxes(folder):
        with contextlib.suppress(psutil.Error):
            if "runtimes.launch" in process.cmdline():
                found.append(process)
    return found


def kill_one(master, folder: Path, chance: Random, *, but: str = "") -> str:
    """Kill a supervisor, a worker, a launcher or an agent server; which it was. but: a sandbox that is left alone."""
    found = {"supervisor": [supervisor_of(master)], "worker": workers(master)}
    for name, processes in {"launcher": launchers(folder), "agent": agents(folder)}.items():
        with contextlib.suppress(psutil.Error):
            found[name] = [one for one in processes if not but or but not in one.environ()[MARK]]
    name = chance.choice([name for name, processes in found.items() if processes])
    with contextlib.suppress(psutil.NoSuchProcess):
        chance.choice(found[name]).kill()
    return name


@contextmanager
def suspended(supervisor: psutil.Process, folder: Path) -> Iterator[None]:
    """Suspend a host, as a laptop that sleeps: its supervisor, and all processes in its sandboxes.

    folder: of the host. What is stopped already, as in a paused sandbox, stays so at the end.
    """
    stopped: list[psutil.Process] = []

    def stop_more() -> bool:
        """Whether something went on, or was started, since the last look."""
        is_new = False
        for process in [supervisor, *supervisor.children(recursive=True), *in_sandboxes(folder)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process not in stopped and process.status() != psutil.STATUS_STOPPED:
                    process.suspend()
                    stopped.append(process)
                    is_new = True
        return is_new

    try:
        while stop_more():
            pass
        yield
    finally:
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def hook_key(folder: Path, sandbox_id: str) -> str:
    """What the webhooks of a sandbox bear, as the environment of its agent server has it."""
    for process in in_sandboxes(folder):
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
            if environment[MARK].endswith(f"/{sandbox_id}") and "OH_WEBHOOKS_0_HEADERS" in environment:
                headers = json.loads(environment["OH_WEBHOOKS_0_HEADERS"])
                return str(headers["Authorization"]).removeprefix("Bearer ")
    raise AssertionError(f"no agent server of {sandbox_id} runs")


def kill_all(processes: list[psutil.Process]) -> None:
    """Kill processes and all that they have started, at once, as a power cut does; returns when all have ended."""
    found: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found += [process, *process.children(recursive=True)]
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(found, timeout=10)
