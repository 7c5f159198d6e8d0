"""Isolation of a process sandbox from its host: bubblewrap, otherwise Landlock, otherwise none (docs/isolation.md).

The supervisor decides for each start (`decided`), after a probe of the host (`abilities.py`). The sandbox's launcher
applies it (`entrance.py`) and stays outside. With bubblewrap it carries the agent's port in and the webhooks out
(`hooks.py`), with Landlock the webhooks. With a way out by name it carries all other connections to the egress proxy.
`container.py` does this for a container without a network.
"""

import os
from dataclasses import dataclass, field
from typing import Any

from runtimes import RuntimeCallFailed

BUBBLEWRAP, LANDLOCK, NONE = "bubblewrap", "landlock", "none"

#: The network of a sandbox that reaches only what the egress proxy allows.
NAMED = "named"

#: Landlock versions that restrict TCP, and abstract Unix sockets and signals.
_TCP, _SCOPES = 4, 6

#: TCP ports that count as the internet if only ports can be restricted: ssh, DNS, HTTP and HTTPS.
INTERNET_PORTS = (22, 53, 80, 443)

_UNCONFINED = (
    "Nothing keeps it away from what the server's user can read, write, signal or connect to: the server's data and "
    "keys, other sandboxes, the API on loopback."
)


_OWN_USER = (
    "Nothing but a user of its own keeps it away from the machine: from files that all users may read, the list of "
    "processes, the network, the API on loopback."
)


@dataclass(frozen=True)
class Abilities:
    """Isolation features of this host for the server's user. A text is the reason why not; "" if it works."""

    bubblewrap: str
    pasta: str
    landlock: int  #: version of the interface; 0: none
    seccomp: bool
    users: bool  #: root may mount and change its user, so each sandbox can have its own user


@dataclass(frozen=True)
class SandboxIsolation:
    """The isolation of a sandbox, for people and clients."""

    kind: str  #: bubblewrap, landlock, none
    network: str  #: internet, named (only the way out by name), none, or host: the machine's own
    reaches: list[str] = field(default_factory=list)  #: sentences: access that remains
    lacks: list[str] = field(default_factory=list)  #: sentences: what its spec asks for and is missing

    def described(self) -> dict[str, Any]:
        return {"kind": self.kind, "network": self.network, "reaches": self.reaches, "lacks": self.lacks}


def decided(wanted: str, network: str, can: Abilities, shared: str = "") -> SandboxIsolation:
    """Return the isolation of a sandbox for its spec's `isolation` and `network`.

    shared: why the sandbox runs as the server's user without asking for it. Raises RuntimeCallFailed for "required".
    """
    if wanted == NONE:
        return SandboxIsolation(NONE, "host", [_UNCONFINED])
    if not can.bubblewrap:
        return _wrapped(network, can)
    if wanted == "required":
        raise RuntimeCallFailed(
            f'its spec says isolation = "required", and bubblewrap does not work here: {can.bubblewrap}'
        )
    if not can.landlock:
        why = f"bubblewrap does not work here: {can.bubblewrap}; and the kernel has no Landlock"
        lacks = [f"It is not isolated: {why}.", *_shares(shared)]
        if network == NAMED:
            lacks.append(
                "It has no way out by name: its programs get a proxy's address, and nothing prevents other connections."
            )
        return SandboxIsolation(NONE, "host", [_UNCONFINED if shared else _OWN_USER], lacks)
    return _locked(network, can, shared)


def _wrapped(network: str, can: Abilities) -> SandboxIsolation:
    reaches, lacks = [], []
    if network == "internet" and can.pasta:
        lacks.append(f"It does not reach the internet: {can.pasta}.")
        network = "none"
    if network == "internet":
        reaches.append("It reaches the internet and other machines of the host's networks.")
    if not can.seccomp:
        reaches.append("All system calls that need no capability are allowed: libseccomp is not installed.")
    return SandboxIsolation(BUBBLEWRAP, network, reaches, lacks)


def why_shared(users: range, can: Abilities) -> str:
    """Return why process sandboxes run as the server's user; "" if each gets its own among `users`."""
    if not users:
        return "SANDBOX_USERS is none"
    if not can.users:
        return "the server is not root" if os.geteuid() else "the server's root may not mount"
    return ""


def _shares(shared: str) -> list[str]:
    return [f"It has no user of its own: {shared}."] if shared else []


def _locked(network: str, can: Abilities, shared: str) -> SandboxIsolation:
    """Return the isolation by Landlock alone, with sentences about gaps of its version or without libseccomp."""
    servers = (
        "the mode and times of files and the priority of processes of the server's user, which it can change; "
        if shared
        else ""
    )
    reaches = [
        f"It sees the sizes and modes of files whose path it knows; {servers}the host's list of processes with their "
        "command lines, its name, users and interfaces.",
        "It can listen on a port of the host that the kernel chooses, and can reply to its clients.",
    ]
    lacks = []
    if can.landlock < _TCP and network == NAMED:
        lacks.append(
            "It has no way out by name: its programs get a proxy's address, and may connect elsewhere. "
            "Landlock before version 4 does not prevent it."
        )
    if can.landlock < _TCP:
        reaches.append(
            "It reaches every TCP port of the host and of other machines: the kernel has Landlock before version 4."
        )
    elif network == "internet":
        ports = ", ".join(map(str, INTERNET_PORTS))
        reaches.append(
            f"It reaches TCP ports {ports} of every machine, this one and link-local addresses (169.254.169.254) among "
            "them."
        )
    if can.landlock < _SCOPES:
        signals = "all processes of the server's user by signals, and " if shared else ""
        reaches.append(f"It reaches {signals}abstract Unix sockets: the kernel has Landlock before version 6.")
    if not can.seccomp:
        reaches.append(
            "It reaches Unix sockets, System V memory, UDP, and TCP past the rules (MPTCP): libseccomp is not "
            "installed, so no call is filtered."
        )
    elif network == "internet":
        reaches.append("It reaches every machine, this one among them, by UDP.")
    lacks += [f"It has no namespaces of its own, as bubblewrap does not work here: {can.bubblewrap}.", *_shares(shared)]
    return SandboxIsolation(LANDLOCK, network, reaches, lacks)
