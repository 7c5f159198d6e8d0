"""The network of one sandbox: a namespace with its own loopback, and pasta for the internet.

A short-lived process creates the namespace as the sandbox's user, in a user namespace that the sandbox never enters. So
nothing in the sandbox can change its network. Rules before every route refuse parts of the internet: link-local
addresses, where clouds have their metadata services, and the host's addresses at the start. The host's loopback is
never reached, because the sandbox has its own and pasta forwards no port.
"""

import array
import fcntl
import os
import shutil
import socket
import stat
import struct
import subprocess
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

import psutil

from runtimes.isolation import kernel
from runtimes.isolation.view import FORWARDER

#: Ports for webhooks and the way out, on the sandbox's own loopback. No program in the sandbox can take them.
HOOK_PORT, EGRESS_PORT = 1022, 1023

_LINK_LOCAL = ("169.254.0.0/16", "fe80::/10")

#: Maximum number of the host's addresses that are refused; the rest is ignored.
_MOST_ADDRESSES = 1024

_TUN, _TUN_DEVICE = Path("/dev/net/tun"), (10, 200)

#: Timeout of pasta's setup of a network, in seconds.
_PASTA_TIMEOUT = 10.0

# --no-netns-quit: otherwise pasta of 2025 ends with the process whose namespace it joins, a second after the start.
_OPTIONS = ["--config-net", "--no-netns-quit", "--no-map-gw", "-t", "none", "-u", "none", "-T", "none", "-U", "none"]

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _UP = 0x8913, 0x8914, 1

# Source: linux/rtnetlink.h, linux/fib_rules.h
_NEW_RULE, _TO, _UNREACHABLE = 32, 1, 7
_REQUEST_ACK_CREATE, _PRIORITY = 0x1 | 0x4 | 0x400, 6


class Network:
    """The namespace, held by open files. `hooks` accepts the sandbox's webhooks, `egress` its connections by name."""

    def __init__(self, user: int | None, *, internet: bool, environment: Mapping[str, str]) -> None:
        """user: the sandbox's, if the caller is root. environment: pasta's. Raises OSError.

        The caller has one thread. Without root it joins the user namespace, so that it may use the network.
        """
        ours, theirs = socket.socketpair()
        with ours:
            holder = os.fork()
            if not holder:
                _hold(user, theirs, internet=internet)
            theirs.close()
            try:
                text, [hooks, egress], _, _ = socket.recv_fds(ours, 256, 2)
            except ValueError:  # it has ended, or sent an error instead
                os.waitpid(holder, 0)
                raise OSError(0, f"no network namespace: {text.decode() or 'its maker ended'}") from None
            try:
                self.hooks, self.egress = socket.socket(fileno=hooks), socket.socket(fileno=egress)
                self.file = os.open(f"/proc/{holder}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                if internet:
                    _start_pasta(holder, user, environment)
                if user is None:
                    with open(f"/proc/{holder}/ns/user", "rb") as own:  # noqa: PTH123 - a descriptor is wanted
                        kernel.setns(own.fileno(), kernel.CLONE_NEWUSER)
            finally:
                ours.shutdown(socket.SHUT_RDWR)
                os.waitpid(holder, 0)

    def enter(self) -> None:
        kernel.setns(self.file, kernel.CLONE_NEWNET)


def _hold(user: int | None, channel: socket.socket, *, internet: bool) -> None:
    """Create the namespaces in a child process, send the listener, and stay until the other end is closed."""
    try:
        if user is not None:
            kernel.become(user)
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # otherwise root owns /proc/self
        identity, group = os.geteuid(), os.getegid()
        hosts = _addresses() if internet else []
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{identity} {identity} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        _raise_loopback()
        if internet:
            _refuse([*_LINK_LOCAL, *hosts])
        hooks, egress = (socket.create_server(("127.0.0.1", port), backlog=128) for port in (HOOK_PORT, EGRESS_PORT))
        with hooks, egress:
            socket.send_fds(channel, [b"ready"], [hooks.fileno(), egress.fileno()])
        channel.recv(1)
    except OSError as error:
        channel.send(f"{error.strerror or error}".encode())
    finally:
        os._exit(0)


def _addresses() -> list[str]:
    """Return the addresses of the host's interfaces, each as a network of one address."""
    addresses = []
    for each in [each for interface in psutil.net_if_addrs().values() for each in interface]:
        if each.family in (socket.AF_INET, socket.AF_INET6):
            address = each.address.partition("%")[0]
            if not address.startswith(("127.", "fe80:")) and address != "::1":
                addresses.append(address)
    return addresses[:_MOST_ADDRESSES]


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = array.array("B", struct.pack("16sh22x", b"lo", 0))
        fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        flags = struct.unpack_from("h", request, 16)[0]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _UP))


def _refuse(networks: Iterable[str]) -> None:
    """Add a rule before all routes for each destination, so that nothing is sent there. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        for number, network in enumerate(map(ip_network, networks), 1):
            netlink.sendall(_rule(network, number))
            reply = netlink.recv(4096)
            if error := struct.unpack_from("=i", reply, 16)[0]:
                raise OSError(-error, f"{network} cannot be refused: {os.strerror(-error)}")


def _rule(network: IPv4Network | IPv6Network, number: int) -> bytes:
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    head = struct.pack("=BBBBBBBBI", family, network.prefixlen, 0, 0, 0, 0, 0, _UNREACHABLE, 0)
    to = network.network_address.packed
    body = head + struct.pack("=HH", 4 + len(to), _TO) + to + struct.pack("=HHI", 8, _PRIORITY, number)
    return struct.pack("=IHHII", 16 + len(body), _NEW_RULE, _REQUEST_ACK_CREATE, number, 0) + body


def _start_pasta(holder: int, user: int | None, environment: Mapping[str, str]) -> None:
    """Connect the namespaces of a process with the internet; pasta stays in the background. Raises OSError."""
    program = shutil.which("pasta")
    if program is None:
        raise OSError(0, "the program pasta (of passt) is not installed")
    command = [program, "--quiet", *_OPTIONS, "--dns-forward", FORWARDER]
    command += ["--userns", f"/proc/{holder}/ns/user", "--netns", f"/proc/{holder}/ns/net"]
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            timeout=_PASTA_TIMEOUT,
            preexec_fn=lambda: _become_for_pasta(user),
        )
    except (subprocess.TimeoutExpired, subprocess.SubprocessError) as error:
        raise OSError(0, f"pasta does not start: {error}") from None
    if done.returncode:
        said = [line for line in done.stderr.decode(errors="replace").splitlines() if "syslog" not in line]
        raise OSError(0, f"pasta does not start: {said[-1] if said else f'exit status {done.returncode}'}")


def _become_for_pasta(user: int | None) -> None:
    if user is None:
        return
    if not _TUN.stat().st_mode & stat.S_IWOTH:  # without udev, only root may open it
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("tmpfs", str(_TUN.parent), "tmpfs", options="mode=755,size=64k")
        os.mknod(_TUN, stat.S_IFCHR | 0o666, os.makedev(*_TUN_DEVICE))
        _TUN.chmod(0o666)
    kernel.become(user)
