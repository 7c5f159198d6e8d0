"""Keeps a process sandbox away from its host: by bubblewrap, else Landlock, else not. docs/isolation.md says from what.

The supervisor decides for each start (`decided`), after a probe of what works here (`abilities.py`). The launcher of
the sandbox carries it out (`entrance.py`) and stays outside: with bubblewrap it carries the agent's port in and the
webhooks out (`hooks.py`), with Landlock the webhooks; and where the way out is by name, all else to the proxy. For a
container without a network `container.py` does the same.
"""

import os
from dataclasses import dataclass, field
from typing import Any

from runtimes import RuntimeFailure

BUBBLEWRAP, LANDLOCK, NONE = "bubblewrap", "landlock", "none"

#: the network of a sandbox that reaches what the proxy lets out, and nothing else
NAMED = "named"

#: versions of Landlock that restrict TCP, and abstract Unix sockets and signals
_TCP, _SCOPES = 4, 6

#: TCP ports that stand for the internet where only ports can be told apart: ssh, DNS, HTTP and HTTPS
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
    """What works on this host for the server's user. A text is the reason why not, empty where it works."""

    bubblewrap: str
    pasta: str
    landlock: int  #: version of the interface, 0 for none
    seccomp: bool
    users: bool  #: root may mount and become another user, so each sandbox can have a user of its own


@dataclass(frozen=True)
class Isolation:
    """What a sandbox has, for people and clients."""

    kind: str  #: bubblewrap, landlock, none
    network: str  #: internet, named (the way out by name alone), none, or host: the machine's own
    reaches: list[str] = field(default_factory=list)  #: sentences: what it is not kept away from
    lacks: list[str] = field(default_factory=list)  #: sentences: what its spec asks for and it does not have

    def described(self) -> dict[str, Any]:
        return {"kind": self.kind, "network": self.network, "reaches": self.reaches, "lacks": self.lacks}


def decided(wanted: str, network: str, can: Abilities, shared: str = "") -> Isolation:
    """The isolation of a sandbox whose spec says `isolation` and `network`. Raises RuntimeFailure for "required".

    shared: why the sandbox runs as the server's user, if it does and does not ask for that.
    """
    if wanted == NONE:
        return Isolation(NONE, "host", [_UNCONFINED])
    if not can.bubblewrap:
        return _wrapped(network, can)
    if wanted == "required":
        raise RuntimeFailure(
            f'its spec says isolation = "required", and bubblewrap does not work here: {can.bubblewrap}'
        )
    if not can.landlock:
        why = f"bubblewrap does not work here: {can.bubblewrap}; and the kernel has no Landlock"
        lacks = [f"It is not isolated: {why}.", *_shares(shared)]
        if network == NAMED:
            lacks.append("It has no way out by name: its programs are told of one, and nothing keeps them to it.")
        return Isolation(NONE, "host", [_UNCONFINED if shared else _OWN_USER], lacks)
    return _locked(network, can, shared)


def _wrapped(network: str, can: Abilities) -> Isolation:
    reaches, lacks = [], []
    if network == "internet" and can.pasta:
        lacks.append(f"It does not reach the internet: {can.pasta}.")
        network = "none"
    if network == "internet":
        reaches.append("It reaches the internet and other machines of the host's networks.")
    if not can.seccomp:
        reaches.append("It may make all system calls that need no capability: libseccomp is not installed.")
    return Isolation(BUBBLEWRAP, network, reaches, lacks)


def why_shared(users: range, can: Abilities) -> str:
    """Why process sandboxes run as the server's user; empty if each gets one of its own. users: those it may get."""
    if not users:
        return "SANDBOX_USERS is none"
    if not can.users:
        return "the server is not root" if os.geteuid() else "the server's root may not mount"
    return ""


def _shares(shared: str) -> list[str]:
    return [f"It has no user of its own: {shared}."] if shared else []


def _locked(network: str, can: Abilities, shared: str) -> Isolation:
    """Landlock alone: its sentences name what its version, or a missing libseccomp, leaves open."""
    servers = (
        "the mode and times of files and the priority of processes of the server's user, which it can change; "
        if shared
        else ""
    )
    reaches = [
        f"It sees the sizes and modes of files whose path it knows; {servers}the host's list of processes with their "
        "command lines, its name, users and interfaces.",
        "It can listen on a port of the host that the kernel chooses, and reaches whoever connects to it.",
    ]
    lacks = []
    if can.landlock < _TCP and network == NAMED:
        lacks.append(
            "It has no way out by name: its programs are told of one, and Landlock before version 4 keeps none to it."
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
    return Isolation(LANDLOCK, network, reaches, lacks)
