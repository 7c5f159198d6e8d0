"""Carries the connections of one container that has no network but its loopback: its ports in, webhooks and way out.

    python -m runtimes.isolation.container HOLD        the order, as JSON, on standard input

The engine makes the container's network with a loopback and nothing else, so the kernel keeps all else from it,
whatever capabilities the container has. This process stays on the host, listens on that loopback for the container, and
on the host's loopback for those who call it, as the launcher of a process sandbox does (`entrance.py`): so a sandbox's
hook key is written outside of it, and what it reaches is the proxy's to say. It outlives the supervisor, and ends with
the container.

HOLD is an open abstract Unix socket with the container's id in its name, so that each container has one such process.
Whoever connects to it reads the container's ports on the host: that is how a later supervisor finds them.

Limitation: this process enters the container's network, which the root of the engine's own machine alone may.
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

from runtimes import RuntimeFailure
from runtimes.isolation import kernel
from runtimes.isolation.hooks import Hooks, WayOut, into, listening, serve
from runtimes.isolation.network import EGRESS_PORT, HOOK_PORT
from runtimes.starts import child, held_ports

#: seconds in which such a process must carry, and between two polls; seconds in which one that carries must tell so
_START_TIMEOUT, _POLL, _TELL_TIMEOUT = 20.0, 0.05, 5.0

_MOST_TOLD = 64 * 1024


@dataclass(frozen=True)
class Order:
    """Which container is carried for, and what."""

    container: str  #: its id
    pid: int  #: its first process, as the engine's machine numbers it
    inside: Mapping[str, int]  #: its ports by their names
    ports: Mapping[str, int] = field(default_factory=dict)  #: the host's, by the same names
    webhooks: str = ""  #: base URL
    hook_key: str = field(default="", repr=False)
    egress: str = ""  #: path of the proxy's socket; empty: nothing goes out but webhooks


def told(container: str) -> dict[str, int] | None:
    """The host's ports of a container that is carried for, by their names; None: nothing carries."""
    with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError, ValueError):
        client.settimeout(_TELL_TIMEOUT)
        client.connect(_name(container))
        text = b""
        while (piece := client.recv(4096)) and len(text) < _MOST_TOLD:
            text += piece
        ports: dict[str, int] = json.loads(text)
        return ports
    return None


def carry_for(order: Order, among: range) -> dict[str, int]:
    """Have a process carry for a container, once; the host's ports, by their names. Returns when it carries.

    among: the ports of the host that sandboxes get. Raises RuntimeFailure.
    """
    deadline = time.monotonic() + _START_TIMEOUT
    while (ports := told(order.container)) is None:
        with socket.socket(socket.AF_UNIX) as held:
            try:
                held.bind(_name(order.container))
            except OSError:  # another call has begun it
                if time.monotonic() > deadline:
                    raise RuntimeFailure(f"its connections are not carried within {_START_TIMEOUT:g} s") from None
                time.sleep(_POLL)
                continue
            with held_ports(order.inside, among) as free:
                _start(replace(order, ports=free.ports), held, free.files)
                return free.ports
    return ports


def _start(order: Order, held: socket.socket, files: tuple[int, ...]) -> None:
    """Start the process; returns when it carries. files: what holds the host's ports. Raises RuntimeFailure."""
    try:
        process = child(__name__, held.fileno(), [held.fileno(), *files], {"PATH": os.defpath})
    except OSError as error:  # as when the system has no more processes
        raise RuntimeFailure(f"its connections cannot be carried: {error.strerror}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout as said:
        with contextlib.suppress(BrokenPipeError), process.stdin as sent:
            sent.write(json.dumps(asdict(order)).encode())
        ready, _, _ = select.select([said], [], [], _START_TIMEOUT)
        text = said.read().decode(errors="replace").strip() if ready else "it says nothing"
    if text != "ready":
        process.kill()
        why = text.rpartition("\n")[2] or "their process ended"
        raise RuntimeFailure(f"its connections cannot be carried: {why}")


def _name(container: str) -> str:
    return f"\0agent-server-container-{container}"


def main(held: int) -> int:
    """Carry until the container ends. Returns the exit status."""
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # it has the sandbox's hook key
    try:
        order = Order(**json.loads(sys.stdin.buffer.read()))
    except ValueError:  # the supervisor died while it wrote
        return 1
    try:
        ended = _carry(order)
        with socket.socket(fileno=held) as asked:
            asked.listen(16)
            serve(asked, partial(_tell, json.dumps(dict(order.ports)).encode()), 1)
            _say("ready")
            select.select([ended], [], [])
    except OSError as error:
        _say(error.strerror or str(error))
        return 1
    return 0


def _say(line: str) -> None:
    """The one line that the supervisor reads; nothing that this process prints later has a reader."""
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for each in (1, 2):
        os.dup2(nowhere, each)


def _tell(ports: bytes, client: socket.socket) -> None:
    """Tell a client what the container's ports are. Raises OSError."""
    client.settimeout(_TELL_TIMEOUT)
    client.sendall(ports)


def _carry(order: Order) -> int:
    """Carry in threads; a file that can be read once the container has ended. Raises OSError with a sentence."""
    ended, network = _opened(order)
    # Its one thread lives in the container's network, and a socket stays in the network where it was made.
    inside = ThreadPoolExecutor(1)
    try:
        inside.submit(kernel.setns, network, kernel.CLONE_NEWNET).result()
    except PermissionError:
        raise OSError(0, "only root enters the network of a container") from None
    os.close(network)
    if order.webhooks:
        Hooks(order.webhooks, order.hook_key).serve(inside.submit(listening, HOOK_PORT, "127.0.0.1").result())
    if order.egress:
        WayOut(order.egress, order.hook_key).serve(inside.submit(listening, EGRESS_PORT, "127.0.0.1").result())
    for name, port in order.ports.items():
        serve(listening(port, "127.0.0.1"), into(inside, order.inside[name]))
    return ended


def _opened(order: Order) -> tuple[int, int]:
    """The container's first process and its network, as open files. Raises OSError with a sentence.

    An engine elsewhere numbers its processes otherwise: a process here of that number is another one.
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
