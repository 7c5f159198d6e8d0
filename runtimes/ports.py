"""Ports for the sandboxes of this host: outside the range from which the kernel takes ports by itself, and held.

A port is held by an abstract unix socket of its number. So each port is one sandbox's, whatever folder or user the
sandbox belongs to: the name exists once in the network namespace, as the port does, and the kernel frees it when the
last process that has the socket open ends. A sandbox's launcher inherits the socket and keeps it open.

Limitation: a program that is no sandbox can bind a port of the range after its choice and before the sandbox binds it;
so `SANDBOX_PORTS` should name a range that nothing else uses.
"""

import random
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from runtimes import RuntimeFailure

#: first and last port that sandboxes get, unless a setting says otherwise: below Linux' ephemeral range
DEFAULT_RANGE = range(20_000, 30_000)

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True)
class HeldPorts:
    """Ports by name, and the open files that hold them."""

    ports: dict[str, int]
    files: tuple[int, ...]


@contextmanager
def held_ports(names: Mapping[str, int], among: range) -> Iterator[HeldPorts]:
    """A free port for each name, held until the block and every process that inherited the files have ended.

    Raises RuntimeFailure when fewer are free in the range.
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
            raise RuntimeFailure(
                f"no port is free for {wanted[0]}: of SANDBOX_PORTS {among.start}-{among.stop - 1}, "
                f"{len(candidates)} lie outside the range of {_EPHEMERAL} and all of them are in use"
            )
        yield HeldPorts(ports, tuple(files))


def _hold(port: int) -> socket.socket | None:
    """A socket that holds a port; None if another sandbox holds it or a program uses it."""
    hold = socket.socket(socket.AF_UNIX)
    try:
        hold.bind(f"\0agent-server-port-{port}")
        with socket.socket(socket.AF_INET) as probe:
            probe.bind(("", port))  # without SO_REUSEADDR: a port with old connections is not free either
    except OSError:
        hold.close()
        return None
    return hold


def _ephemeral() -> range:
    """The ports that the kernel chooses by itself, for connections and for a bind to port 0."""
    try:
        first, last = _EPHEMERAL.read_text().split()
    except (OSError, ValueError):
        return range(0)
    return range(int(first), int(last) + 1)
