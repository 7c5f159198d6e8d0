"""Starts process sandboxes: decides isolation, user, limits and ports, and sends the order to a launcher.

The ports of this host's sandboxes are outside of the kernel's ephemeral range. A port is held by an abstract Unix
socket named after its number, so each port belongs to one sandbox, of any folder or user. The name is unique in the
network namespace, like the port, and the kernel frees it when the last process with the socket ends. A sandbox's
launcher inherits the socket and keeps it open.

Limitation: another program can bind a port of the range after its choice and before the sandbox binds it.
`SANDBOX_PORTS` should name a range that nothing else uses.
"""

import contextlib
import json
import os
import random
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from runtimes import PROJECT, Handle, Launch, RuntimeCallFailed, cgroup, filled
from runtimes.cgroup import PAUSED
from runtimes.ends import END_TIMEOUT
from runtimes.folder import make_below, remove
from runtimes.isolation import BUBBLEWRAP, LANDLOCK, NAMED, NONE, Abilities, SandboxIsolation, decided, view, why_shared
from runtimes.isolation.abilities import abilities
from runtimes.isolation.entrance import Confinement
from runtimes.isolation.network import EGRESS_PORT, HOOK_PORT
from runtimes.isolation.users import hand_over, held_user
from runtimes.isolation.view import is_seen, link_agent, readable
from runtimes.launch import ENDING, HANDLE, Order
from runtimes.tree import MARK

#: Default range of sandbox ports, below Linux' ephemeral range.
DEFAULT_RANGE = range(20_000, 30_000)

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

#: Default limits of a sandbox: bytes of memory, with a cgroup only, and number of processes.
MEMORY_BYTES, PROCESSES = 4 << 30, 512

#: Timeout for a launcher's reply whether the command runs, in seconds.
_START_TIMEOUT = 30.0

#: Name of the held port that Landlock lets a sandbox post to; invalid in a spec.
_HOOKS = ""

#: Name of the held port for the way out of a sandbox without its own network.
_EGRESS = "egress"

#: The proxy's socket in the folder of the host's sandboxes.
EGRESS_SOCKET = "egress.sock"

_NOTHING = Abilities("it is not asked for", "it is not asked for", 0, False, False)


@dataclass(frozen=True)
class HeldPorts:
    """Ports by name, and the open files that hold them."""

    ports: dict[str, int]
    files: tuple[int, ...]


@contextmanager
def held_ports(names: Mapping[str, int], among: range) -> Iterator[HeldPorts]:
    """Hold a free port for each name, until the block and every process that inherited the files have ended.

    Raises RuntimeCallFailed if the range has too few free ports.
    """
    with ExitStack() as stack:
        ports: dict[str, int] = {}
        files: list[int] = []
        ephemeral = _ephemeral()
        candidates = [port for port in among if port not in ephemeral]
        first = random.randrange(len(candidates)) if candidates else 0
        wanted = list(names)
        for port in candidates[first:] + candidates[:first]:
            if not wanted:
                break
            if hold := _hold(port):
                stack.enter_context(hold)
                ports[wanted.pop(0)] = port
                files.append(hold.fileno())
        if wanted:
            raise RuntimeCallFailed(
                f"no port is free for {wanted[0]}: of SANDBOX_PORTS {among.start}-{among.stop - 1}, "
                f"{len(candidates)} lie outside the range of {_EPHEMERAL} and all of them are in use"
            )
        yield HeldPorts(ports, tuple(files))


def _hold(port: int) -> socket.socket | None:
    """Return a socket that holds a port; None if another sandbox holds it or a program uses it."""
    hold = socket.socket(socket.AF_UNIX)
    try:
        hold.bind(f"\0agent-server-port-{port}")
        with socket.socket(socket.AF_INET) as probe:
            probe.bind(("", port))  # without SO_REUSEADDR: a port with old connections is not free
    except OSError:
        hold.close()
        return None
    return hold


def _ephemeral() -> range:
    """Return the kernel's ephemeral range, for connections and for a bind to port 0."""
    try:
        first, last = _EPHEMERAL.read_text().split()
    except (OSError, ValueError):
        return range(0)
    return range(int(first), int(last) + 1)


def composed(
    launch: Launch, folder: Path, ports: Mapping[str, int], kind: str, hook_port: int, egress_port: int = 0
) -> tuple[list[str], dict[str, str], Path]:
    """Return command, environment and working directory for a kind of isolation. Raises RuntimeCallFailed.

    hook_port: of the host, where Landlock lets the sandbox post. egress_port: of the host, the way out by name of a
    sandbox without its own network; 0: it has its own network, or no way out. A relative working directory is in the
    sandbox's `work`. An absolute one is left to the command, which may change its root; the command starts in `work`.
    """
    work = folder / "work"
    working_dir = work if launch.working_dir.startswith("/") else Path(os.path.normpath(work / launch.working_dir))
    if not working_dir.is_relative_to(work):
        raise RuntimeCallFailed(f"its working directory {launch.working_dir} is outside of its folder")
    words: dict[str, object] = {"WORK": work, "WEBHOOKS": _webhooks(launch.webhooks, kind, hook_port), **ports}
    words["EGRESS"] = f"http://127.0.0.1:{egress_port or EGRESS_PORT}"
    words["PROJECT"] = folder / "project" if kind == LANDLOCK else PROJECT
    env = {"PATH": PATH, "HOME": str(work)}
    if kind != BUBBLEWRAP:  # its /tmp is the host's, where a killed agent's files would stay
        env["AGENT_TMPDIR"] = str(folder / "tmp")
    if kind == LANDLOCK:  # Landlock can neither give it a private /tmp nor hide a file that Git refuses
        env |= {"TMPDIR": str(folder / "tmp"), "GIT_CONFIG_NOSYSTEM": "1"}
    env |= {name: filled(text, words) for name, text in launch.env.items()}
    return [filled(word, words) for word in launch.command], env | {MARK: str(folder)}, working_dir


def _webhooks(url: str, kind: str, hook_port: int) -> str:
    """Return the webhooks' base URL in the sandbox: a relay's on its loopback if it is confined."""
    port = {BUBBLEWRAP: HOOK_PORT, LANDLOCK: hook_port}.get(kind)
    return f"http://127.0.0.1:{port}{urlsplit(url).path}" if url and port else url


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
    users: range

    def start(self, launch: Launch, folder: Path, lock: int) -> Handle:
        """Start a launcher, send it its order, and return its handle. Raises RuntimeCallFailed and OSError."""
        can = abilities() if launch.isolation != NONE else _NOTHING
        network = launch.network or "internet"
        isolation = decided(launch.isolation, network, can)
        for left in (ENDING, HANDLE, PAUSED):
            (folder / left).unlink(missing_ok=True)
        for made in (folder, folder / "work"):
            made.mkdir(mode=0o700, exist_ok=True)
        names = {**launch.ports, **({_HOOKS: 0} if isolation.kind == LANDLOCK else {})}
        if network == NAMED and isolation.kind != BUBBLEWRAP:
            names[_EGRESS] = 0
        with ExitStack() as stack:
            held = stack.enter_context(held_ports(names, self.ports))
            hook_port = held.ports.pop(_HOOKS, 0)
            egress_port = held.ports.pop(_EGRESS, 0)
            command, env, working_dir = composed(launch, folder, held.ports, isolation.kind, hook_port, egress_port)
            confinement = self._confinement(launch, isolation, folder, held.ports, hook_port, egress_port)
            _check_program(command[0], confinement)
            files = [lock, *held.files]
            shared = _why_shared(confinement, command[0]) or why_shared(self.users, can)
            if not shared:
                user, hold = held_user(folder / "work", self.users)
                stack.enter_context(hold)
                files.append(hold.fileno())
                confinement = _of_user(confinement, user, _limited(launch).processes)
            elif isolation.kind != BUBBLEWRAP:
                isolation = decided(launch.isolation, network, can, shared)
            _give(launch, folder, working_dir, confinement)
            process = child("runtimes.launch", lock, files, {"PATH": PATH, MARK: str(folder)})
            limited = _limited(launch)
            group, limits = self.cgroups.confine(limited, folder, process.pid)
            if confinement.processes is not None and limits.get("processes") != "cgroup":
                limits["processes"] = "its user"
            in_group = limits.get("memory_bytes") == "cgroup"
            if not in_group and not launch.memory_bytes:
                limits.pop("memory_bytes", None)
            handle = {"limits": limits, "start": launch.start, "isolation": isolation.described()}
            handle["working_dir"] = launch.working_dir if launch.working_dir.startswith("/") else str(working_dir)
            if network == NAMED:
                handle["egress_url"] = f"http://127.0.0.1:{egress_port or EGRESS_PORT}"
            order = Order(
                handle=described(folder, held.ports, group) | handle,
                command=command,
                env=env,
                working_dir=str(working_dir),
                log_bytes=self.log_bytes,
                confinement=confinement,
                address_space=None if in_group else launch.memory_bytes or None,
                file_bytes=launch.disk_bytes,
                grace=self.grace,
                orphan_seconds=self.orphan_seconds,
            )
            return Handle(_send_order(process, json.dumps(asdict(order)), self.grace + END_TIMEOUT))

    def _confinement(
        self,
        launch: Launch,
        isolation: SandboxIsolation,
        folder: Path,
        ports: Mapping[str, int],
        hook_port: int,
        egress_port: int,
    ) -> Confinement:
        temporary, project = folder / "tmp", folder / "project"
        if isolation.kind != BUBBLEWRAP:
            remove(temporary)
            temporary.mkdir(mode=0o700)
        if launch.isolation == NONE:
            return Confinement(NONE)
        paths = readable(launch.readable, self.private)
        if isolation.kind == LANDLOCK:
            remove(project)
            link_agent(project)
            paths.append(str(project))
        return Confinement(
            kind=isolation.kind,
            network=isolation.network,
            readable=paths,
            work=str(folder / "work"),
            temporary=str(temporary) if isolation.kind == LANDLOCK else "",
            processes=_limited(launch).processes if isolation.kind == BUBBLEWRAP else None,
            ports=list(ports.values()),
            address=self.address,
            webhooks=launch.webhooks,
            hook_key=launch.hook_key,
            hook_port=hook_port,
            egress=str(folder.parent / EGRESS_SOCKET) if launch.network == NAMED else "",
            egress_port=egress_port,
        )


def described(folder: Path, ports: dict[str, int], group: Path | None) -> dict[str, Any]:
    """Return the members of a handle except its launcher, its limits and its isolation."""
    return {
        "runtime": "process",
        "sandbox_id": folder.name,
        "folder": str(folder),
        "ports": ports,
        "cgroup": str(group) if group else None,
    }


def _limited(launch: Launch) -> Launch:
    """Return the launch with its final limits: the spec's, otherwise the runtime's; none for 0."""
    memory = MEMORY_BYTES if launch.memory_bytes is None else launch.memory_bytes
    processes = PROCESSES if launch.processes is None else launch.processes
    return replace(launch, memory_bytes=memory or None, processes=processes or None)


def _why_shared(confinement: Confinement, program: str) -> str:
    """Return why a sandbox must run as the server's user, because of its settings or files; "" if it need not."""
    if not confinement.work:
        return "its spec says so"
    programs = [program] if program.startswith("/") else []
    return "" if confinement.kind == BUBBLEWRAP else view.closed([*programs, *confinement.readable])


def _of_user(confinement: Confinement, user: int, processes: int | None) -> Confinement:
    """Return the confinement with the sandbox's own user, whose processes the kernel counts."""
    hidden = view.hidden([*confinement.readable, confinement.work]) if confinement.kind != BUBBLEWRAP else []
    return replace(confinement, user=user, hidden=hidden, processes=processes)


def _give(launch: Launch, folder: Path, working_dir: Path, confinement: Confinement) -> None:
    """Give a sandbox's files to its user, and create the working directory. Raises RuntimeCallFailed."""
    work, user = folder / "work", os.geteuid() if confinement.user is None else confinement.user
    if os.geteuid() == 0:
        hand_over(work, user)
        if confinement.temporary:
            os.chown(confinement.temporary, user, user, follow_symlinks=False)
    try:
        make_below(work, working_dir.relative_to(work).parts, user)
    except NotADirectoryError:
        raise RuntimeCallFailed(
            f"its working directory {launch.working_dir} leads through a symlink or a file"
        ) from None


def _check_program(program: str, confinement: Confinement) -> None:
    """Refuse a program that a confined sandbox would not find, and say how to make it visible."""
    if confinement.kind != NONE and program.startswith("/"):
        if not Path(program).exists():
            raise RuntimeCallFailed(f"{program} cannot be run: No such file or directory")
        if not is_seen(program, [*confinement.readable, confinement.work]):
            raise RuntimeCallFailed(
                f"{program} cannot be run: the sandbox does not see it. Add its path to `readable` of the spec"
            )


def child(module: str, argument: int, files: Sequence[int], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program of this server that outlives it and waits for its order. files: inherited open files.

    Raises OSError.
    """
    process = subprocess.Popen(
        [sys.executable, "-B", "-m", module, str(argument)],  # -B: see `keep_private`
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=PROJECT,
        env=env,
        start_new_session=True,
        pass_fds=files,
    )
    threading.Thread(target=process.wait, daemon=True).start()  # so that it does not become a zombie
    return process


def _send_order(process: subprocess.Popen[bytes], order: str, end_seconds: float) -> dict[str, Any]:
    """Send a launcher its order, and return the handle. Raises RuntimeCallFailed if the command cannot run.

    end_seconds: timeout for a launcher without a reply to end its sandbox.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout, contextlib.suppress(BrokenPipeError):
        with process.stdin:
            process.stdin.write(order.encode())
        if not select.select([process.stdout], [], [], _START_TIMEOUT)[0]:
            _end(process, end_seconds)
            raise RuntimeCallFailed(f"its launcher did not reply within {_START_TIMEOUT:g} s")
        text = process.stdout.readline()
    try:
        reply: dict[str, Any] = json.loads(text)
    except ValueError:
        raise RuntimeCallFailed(
            f"its launcher failed: {text.decode(errors='replace').strip() or 'it printed nothing'}"
        ) from None
    if "error" in reply:
        raise RuntimeCallFailed(reply["error"])
    handle: dict[str, Any] = reply["handle"]
    return handle


def _end(launcher: subprocess.Popen[bytes], seconds: float) -> None:
    """Let a launcher end its sandbox and itself. Kill it last, because only it can prove the end of the rest."""
    launcher.terminate()  # a signal before the command runs waits until it does
    try:
        launcher.wait(seconds)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()
