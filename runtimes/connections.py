"""Whether ports of this machine are in use, by the kernel's table of TCP connections. Linux only."""

from collections.abc import Collection
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

#: states of a connection in those tables. Source: include/net/tcp_states.h
_TIME_WAIT, _LISTEN = "06", "0A"

#: the loopback as a peer: of IPv4, of IPv6, and of IPv4 in IPv6
_LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")


def are_used(ports: Collection[int]) -> bool:
    """Whether a connection to one of the ports stands, or has ended within a minute.

    Limitation: of a connection that a client on another machine ended, the kernel remembers nothing.
    """
    wanted = {f"{port:04X}" for port in ports}
    if not wanted:
        return False
    for table in _TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:  # the kernel has no IPv6
            continue
        for line in lines:
            _, local, peer, state, *_ = line.split()
            address, _, peer_port = peer.partition(":")
            if state != _LISTEN and local.rpartition(":")[2] in wanted:
                return True
            if state == _TIME_WAIT and address in _LOOPBACK and peer_port in wanted:
                return True
    return False
