"""Carries the connections of one container with only a loopback: its ports in, its webhooks and way out.

    python -m runtimes.isolation.container HOLD        the order, as JSON, on standard input

The engine creates the container's network with only a loopback, so the kernel blocks all else, whatever capabilities
the container has. This process stays on the host. It listens on the container's loopback for the container, and on the
host's loopback for clients, as the launcher of a process sandbox does (`entrance.py`). So the sandbox's hook key is
added outside of it, and the egress proxy decides what it reaches. The process outlives the supervisor, and ends with
the container.

HOLD is an open abstract Unix socket with the container's id in its name, so that each container has one such process. A
client of this socket reads the container's ports on the host; a later supervisor finds them this way.

Limitation: this process enters the container's network, which only root on the engine's own machine may do.
"""

import contextlib
import json
import os
import select
import socket
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from runtimes import RuntimeCallFailed
from runtimes.isolation import kernel
from runtimes.isolation.hooks import WayOut, WebhooksGate, into, listening, serve
from runtimes.isolation.network import EGRESS_PORT, HOOK_PORT
from runtimes.starts import child, held_ports

#: Timeout of a start and its poll interval, and timeout of a running process for telling its ports, in seconds.
_START_TIMEOUT, _POLL, _TELL_TIMEOUT = 20.0, 0.05, 5.0

_MOST_TOLD = 64 * 1024


@dataclass(frozen=True)
class CarryOrder:
    container: str  #: its id
    pid: int  #: its first process, as numbered on the engine's machine
    inside: Mapping[str, int]  #: its ports by name
    ports: Mapping[str, int] = field(default_factory=dict)  #: the host's ports by the same names
    webhooks: str = ""  #: base URL
    hook_key: str = field(default="", repr=False)
    egress: str = ""  #: path of the proxy's socket; "": only webhooks go out


def carried_ports(container: str) -> dict[str, int] | None:
    """Return a container's ports on the host by name; None if no process carries for it."""
    with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError, ValueError):
        client.settimeout(_TELL_TIMEOUT)
        client.connect(_name(container))
        text = b""
        while (piece := client.recv(4096)) and len(text) < _MOST_TOLD:
            text += piece
        ports: dict[str, int] = json.loads(text)
        return ports
    return None


def carry_for(order: CarryOrder, among: range) -> dict[str, int]:
    """Start a carrying process for a container, once, and return the host's ports by name.

    among: the range of sandbox ports on the host. Raises RuntimeCallFailed.
    """
    deadline = time.monotonic() + _START_TIMEOUT
    while (ports := carried_ports(order.container)) is None:
        with socket.socket(socket.AF_UNIX) as held:
            try:
                held.bind(_name(order.container))
            except OSError:  # a concurrent call has started it
                if time.monotonic() > deadline:
                    raise RuntimeCallFailed(f"its connections were not carried within {_START_TIMEOUT:g} s") from None
                time.sleep(_POLL)
                continue
            with held_ports(order.inside, among) as free:
                _start(replace(order, ports=free.ports), held, free.files)
                return free.ports
    return ports


def _start(order: CarryOrder, held: socket.socket, files: tuple[int, ...]) -> None:
    """Start the process, and wait until it carries. files: hold the host's ports. Raises RuntimeCallFailed."""
    try:
        process = child(__name__, held.fileno(), [held.fileno(), *files], {"PATH": os.defpath})
    except OSError as error:  # such as a system without free processes
        raise RuntimeCallFailed(f"its connections cannot be carried: {error.strerror}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout as output:
        with contextlib.suppress(BrokenPipeError), process.stdin as sent:
            sent.write(json.dumps(asdict(order)).encode())
        ready, _, _ = select.select([output], [], [], _START_TIMEOUT)
        text = output.read().decode(errors="replace").strip() if ready else "no output"
    if text != "ready":
        process.kill()
        why = text.rpartition("\n")[2] or "their process ended"
        raise RuntimeCallFailed(f"its connections cannot be carried: {why}")


def _name(container: str) -> str:
    return f"\0agent-server-container-{container}"


def main(held: int) -> int:
    """Carry until the container ends. Return the exit status."""
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # it has the sandbox's hook key
    try:
        order = CarryOrder(**json.loads(sys.stdin.buffer.read()))
    except ValueError:  # the supervisor died during the write
        return 1
    try:
        ended = _carry(order)
        with socket.socket(fileno=held) as asked:
            asked.listen(16)
            serve(asked, partial(_send_ports, json.dumps(dict(order.ports)).encode()), 1)
            _report("ready")
            select.select([ended], [], [])
    except OSError as error:
        _report(error.strerror or str(error))
        return 1
    return 0


def _report(line: str) -> None:
    """Print the only line that the supervisor reads; later output has no reader."""
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for each in (1, 2):
        os.dup2(nowhere, each)


def _send_ports(ports: bytes, client: socket.socket) -> None:
    """Send the container's ports to a client. Raises OSError."""
    client.settimeout(_TELL_TIMEOUT)
    client.sendall(ports)


def _carry(order: CarryOrder) -> int:
    """Carry in threads. Return a file that is readable once the container has ended. Raises OSError with a sentence."""
    ended, network = _opened(order)
    # The executor's only thread lives in the container's network. A socket stays in the network where it was created.
    inside = ThreadPoolExecutor(1)
    try:
        inside.submit(kernel.setns, network, kernel.CLONE_NEWNET).result()
    except PermissionError:
        raise OSError(0, "only root enters the network of a container") from None
    os.close(network)
    if order.webhooks:
        WebhooksGate(order.webhooks, order.hook_key).serve(inside.submit(listening, HOOK_PORT, "127.0.0.1").result())
    if order.egress:
        WayOut(order.egress, order.hook_key).serve(inside.submit(listening, EGRESS_PORT, "127.0.0.1").result())
    for name, port in order.ports.items():
        serve(listening(port, "127.0.0.1"), into(inside, order.inside[name]))
    return ended


def _opened(order: CarryOrder) -> tuple[int, int]:
    """Open the container's first process and its network. Raises OSError with a sentence.

    An engine on another machine has other process ids, so a local process with that id is unrelated.
    """
    elsewhere = OSError(0, "the engine runs on another machine than this server, or in another pid namespace")
    try:
        process = os.pidfd_open(order.pid)
        mounts = Path(f"/proc/{order.pid}/mountinfo").read_text()
        network = os.open(f"/proc/{order.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        raise OSError(0, "only root enters the network of a container") from None
    except OSError:
        raise elsewhere from None
    if order.container not in mounts or os.path.samestat(os.fstat(network), Path("/proc/self/ns/net").stat()):
        raise elsewhere
    if select.select([process], [], [], 0)[0]:
        raise OSError(0, "the container has ended")
    return process, network


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
