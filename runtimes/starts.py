"""Starts process sandboxes: decides isolation, user and limits, and gives the order to a launcher of their own."""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runtimes import Handle, Launch, RuntimeFailure, cgroup, tree
from runtimes.command import PATH, composed
from runtimes.folder import remove
from runtimes.freezer import PAUSED
from runtimes.isolation import BUBBLEWRAP, LANDLOCK, NONE, Abilities, Isolation, decided
from runtimes.isolation.abilities import abilities
from runtimes.isolation.entrance import Confinement
from runtimes.isolation.users import hand_over, held_user
from runtimes.isolation.view import is_seen, link_agent, readable
from runtimes.launch import ENDING, HANDLE, Order
from runtimes.ports import held_ports

#: limits of a sandbox whose spec names none: bytes of memory, where a cgroup holds it, and processes
MEMORY_BYTES, PROCESSES = 4 << 30, 512

#: seconds in which a launcher must reply whether the command runs
_START_TIMEOUT = 30.0

#: the name under which the port is held that Landlock lets a sandbox post to; no spec can use it
_HOOKS = ""

_PROJECT = Path(__file__).parent.parent


@dataclass(frozen=True, kw_only=True)
class Starts:
    """Starts the sandboxes of one folder, whose locks the caller holds. `ProcessRuntime` explains the members."""

    cgroups: cgroup.Cgroups
    ports: range
    log_bytes: int
    grace: float
    orphan_seconds: float
    address: str
    private: tuple[Path, ...]

    def start(self, launch: Launch, folder: Path, lock: int) -> Handle:
        """Start a launcher and send it its order; its handle. Raises RuntimeFailure and OSError."""
        can = abilities() if launch.isolation != NONE else _NOTHING
        isolation = decided(launch.isolation, launch.network or "internet", can)
        for left in (ENDING, HANDLE, PAUSED):
            (folder / left).unlink(missing_ok=True)
        for made in (folder, folder / "work"):
            made.mkdir(mode=0o700, exist_ok=True)
        names = {**launch.ports, **({_HOOKS: 0} if isolation.kind == LANDLOCK else {})}
        with ExitStack() as stack:
            held = stack.enter_context(held_ports(names, self.ports))
            hook_port = held.ports.pop(_HOOKS, 0)
            command, env, working_dir = composed(launch, folder, held.ports, isolation.kind, hook_port)
            user, files = None, [lock, *held.files]
            if can.users and isolation.kind == BUBBLEWRAP:
                user, hold = held_user(folder / "work")
                stack.enter_context(hold)
                files.append(hold.fileno())
            _give(folder / "work", working_dir, os.geteuid() if user is None else user)
            confinement = self._confinement(launch, isolation, folder, held.ports, user)
            _check_program(command[0], confinement)
            confinement = replace(confinement, hook_port=hook_port)
            process = _launcher(folder, lock, files)
            limited = _limited(launch)
            group, limits = self.cgroups.confine(limited, folder, process.pid)
            if confinement.processes is not None and limits.get("processes") != "cgroup":
                limits["processes"] = "its user"
            in_group = limits.get("memory_bytes") == "cgroup"
            if not in_group and not launch.memory_bytes:
                limits.pop("memory_bytes", None)
            handle = {"limits": limits, "start": launch.start, "isolation": isolation.described()}
            handle["working_dir"] = launch.working_dir if launch.working_dir.startswith("/") else str(working_dir)
            order = Order(
                handle=described(folder, held.ports, group) | handle,
                command=command,
                env=env,
                working_dir=str(working_dir),
                log_bytes=self.log_bytes,
                confinement=confinement,
                address_space=None if in_group else launch.memory_bytes or None,
                grace=self.grace,
                orphan_seconds=self.orphan_seconds,
            )
            return Handle(_send_order(process, json.dumps(asdict(order))))

    def _confinement(
        self, launch: Launch, isolation: Isolation, folder: Path, ports: Mapping[str, int], user: int | None
    ) -> Confinement:
        if isolation.kind == NONE:
            return Confinement(NONE)
        temporary, project = folder / "tmp", folder / "project"
        paths = readable(launch.readable, self.private)
        if isolation.kind == LANDLOCK:
            remove(temporary)
            temporary.mkdir(mode=0o700)
            remove(project)
            link_agent(project)
            paths.append(str(project))
        return Confinement(
            kind=isolation.kind,
            network=isolation.network,
            readable=paths,
            work=str(folder / "work"),
            temporary=str(temporary),
            user=user,
            processes=_limited(launch).processes if isolation.kind == BUBBLEWRAP else None,
            ports=list(ports.values()),
            address=self.address,
            webhooks=launch.webhooks,
        )


_NOTHING = Abilities("it is not asked for", "it is not asked for", 0, False, False)


def described(folder: Path, ports: dict[str, int], group: Path | None) -> dict[str, Any]:
    """The members of a handle except its launcher, its limits and its isolation."""
    return {
        "runtime": "process",
        "sandbox_id": folder.name,
        "folder": str(folder),
        "ports": ports,
        "cgroup": str(group) if group else None,
    }


def _limited(launch: Launch) -> Launch:
    """The launch with the limits that it gets: those of the spec, else the runtime's; none for 0."""
    memory = MEMORY_BYTES if launch.memory_bytes is None else launch.memory_bytes
    processes = PROCESSES if launch.processes is None else launch.processes
    return replace(launch, memory_bytes=memory or None, processes=processes or None)


def _give(work: Path, working_dir: Path, user: int) -> None:
    """Give the working folder, and a working directory that was made in it just now, to the sandbox's user."""
    if os.geteuid() == 0:
        hand_over(work, user)
        for made in (working_dir, *working_dir.parents):
            if made == work:
                break
            os.chown(made, user, user)


def _check_program(program: str, confinement: Confinement) -> None:
    """Refuse a program that a confined sandbox would not find, with a sentence that says how it can."""
    if confinement.kind != NONE and program.startswith("/"):
        if not Path(program).exists():
            raise RuntimeFailure(f"{program} cannot be run: No such file or directory")
        if not is_seen(program, [*confinement.readable, confinement.work]):
            raise RuntimeFailure(
                f"{program} cannot be run: the sandbox does not see it; `readable` of its spec names more"
            )


def _launcher(folder: Path, lock: int, files: list[int]) -> subprocess.Popen[bytes]:
    """A launcher, which waits for its order. files: those that it keeps open."""
    process = subprocess.Popen(
        [sys.executable, "-m", "runtimes.launch", str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=_PROJECT,
        env={"PATH": PATH, tree.MARK: str(folder)},
        start_new_session=True,
        pass_fds=files,
    )
    threading.Thread(target=process.wait, daemon=True).start()  # so that it does not stay a zombie
    return process


def _send_order(process: subprocess.Popen[bytes], order: str) -> dict[str, Any]:
    """Send a launcher its order. Returns the handle; raises RuntimeFailure when the command cannot be run."""
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout, contextlib.suppress(BrokenPipeError):
        with process.stdin:
            process.stdin.write(order.encode())
        if not select.select([process.stdout], [], [], _START_TIMEOUT)[0]:
            process.kill()
            raise RuntimeFailure(f"its launcher did not reply within {_START_TIMEOUT:g} s")
        text = process.stdout.readline()
    try:
        reply: dict[str, Any] = json.loads(text)
    except ValueError:
        raise RuntimeFailure(
            f"its launcher broke off: {text.decode(errors='replace').strip() or 'it printed nothing'}"
        ) from None
    if "error" in reply:
        raise RuntimeFailure(reply["error"])
    handle: dict[str, Any] = reply["handle"]
    return handle
