"""How a launcher moves a command into its isolation, and its services for the sandbox from outside."""

import errno
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from core import pseudo_terminals
from runtimes.folder import opened_below
from runtimes.isolation import BUBBLEWRAP, INTERNET_PORTS, LANDLOCK, kernel, view
from runtimes.isolation.hooks import WayOut, WebhooksGate, into, listening, serve
from runtimes.isolation.network import Network
from runtimes.isolation.view import resolvers
from runtimes.tree import ids_below

_DEVICES = [f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")]

#: Terminal devices. The host's terminals are there too; only their modes protect them from other users.
_TERMINALS = [f"/dev/{name}" for name in ("tty", "ptmx", "pts")]

#: Terminals opened for a sandbox that runs as the server's user, which may open no others.
_GIVEN_TERMINALS = 32

#: Timeout for bubblewrap to run the command, and poll interval, in seconds.
_WRAP_TIMEOUT, _POLL = 20.0, 0.002


@dataclass(frozen=True)
class Confinement:
    """A launcher's settings to confine its sandbox; JSON in its order."""

    kind: str
    network: str = "host"
    readable: Sequence[str] = ()
    work: str = ""
    temporary: str = ""  #: folder for temporary files, for Landlock, which cannot give a private /tmp
    user: int | None = None  #: of the sandbox; None: the launcher's
    hidden: Sequence[str] = ()  #: folders that the user cannot enter, and of which it sees only the needed parts
    processes: int | None = None  #: maximum of its user
    ports: Sequence[int] = ()  #: of the host; lead to the same ports in the sandbox
    address: str = "127.0.0.1"  #: of the host, where its ports listen
    webhooks: str = ""  #: base URL
    hook_key: str = field(default="", repr=False)  #: of the webhooks
    hook_port: int = 0  #: of the host, where Landlock lets the sandbox post
    egress: str = ""  #: path of the proxy's socket; "": no way out by name
    egress_port: int = 0  #: of the host, the way out of a sandbox without its own network


class Entrance:
    """The way into one isolation: the command to run instead, and `enter`, called in its process before."""

    def __init__(self, confinement: Confinement, command: Sequence[str], env: Mapping[str, str], folder: str) -> None:
        self.confinement = confinement
        self.command, self.env, self.folder = list(command), dict(env), folder
        self.files: list[int] = []  #: inherited by the process
        is_near = confinement.egress and confinement.egress_port
        self._egress = listening(confinement.egress_port, "127.0.0.1") if is_near else None

    def enter(self) -> None:
        """Confine the calling process, which has one thread. Prints the reason before it raises OSError."""
        try:
            self._confine()
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            os.write(2, f"its isolation fails: {error.strerror}{where}\n".encode())
            raise

    def _confine(self) -> None:
        if self.confinement.user is not None:
            self._become()

    def _become(self) -> None:
        """Give the calling process the sandbox's user, if it has its own, and the user's view of folders."""
        confinement = self.confinement
        view.limit(confinement.processes)
        if confinement.user is not None:
            work = [confinement.work, *([confinement.temporary] if confinement.temporary else [])]
            view.show([*confinement.readable, *work], confinement.hidden)
            kernel.become(confinement.user)
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
            os.fchdir(opened_below(confinement.work, self.folder))  # in the sandbox's own view

    def wrappers(self, confined: int) -> list[int]:  # noqa: ARG002 - bubblewrap makes them
        """Return the processes between the launcher and the running command; empty if it has ended or there are none.

        confined: the process that entered. Raises OSError on timeout.
        """
        return []

    def serve(self) -> None:
        """Carry connections between the sandbox and the host, in threads that live as long as the process."""
        if self._egress is not None:
            self._way_out().serve(self._egress)

    def _hooks(self) -> WebhooksGate:
        return WebhooksGate(self.confinement.webhooks, self.confinement.hook_key)

    def _way_out(self) -> WayOut:
        return WayOut(self.confinement.egress, self.confinement.hook_key)

    def close(self) -> None:
        """Close the files that the sandbox's process has inherited."""
        for file in self.files:
            os.close(file)


class _Wrapped(Entrance):
    def __init__(self, confinement: Confinement, command: Sequence[str], env: Mapping[str, str], folder: str) -> None:
        """Create the network and listen on the host's ports. Raises OSError. The process has one thread."""
        super().__init__(confinement, command, {}, "/")
        program = shutil.which("bwrap") or "bwrap"
        self._listeners = {port: listening(port, confinement.address) for port in confinement.ports}
        mark = {name: value for name, value in os.environ.items() if name != "PATH"}
        internet = confinement.network == "internet"
        self._network = Network(confinement.user, internet=internet, environment=mark)
        self.env = mark
        options, self.files = view.bubblewrap_words(
            confinement.readable, confinement.work, folder, env, resolvers(), staged=confinement.user is not None
        )
        if kernel.HAS_SECCOMP:
            self.files.append(view.in_memory(kernel.filter_program(shared=False, datagrams=True)))
            options += ["--seccomp", str(self.files[-1])]
        self.files.append(view.in_memory(b"".join(word.encode() + b"\0" for word in options)))
        self.command = [program, "--args", str(self.files[-1]), "--", *command]

    def _confine(self) -> None:
        self._network.enter()
        if self.confinement.user is None:
            view.limit(self.confinement.processes)
        else:
            sources = view.sources(self.confinement.readable, self.confinement.work)
            view.step_aside(self.confinement.user, sources, self.confinement.processes)

    def wrappers(self, confined: int) -> list[int]:
        deadline = time.monotonic() + _WRAP_TIMEOUT
        while not os.waitid(os.P_PID, confined, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            below = ids_below(confined)  # bubblewrap's other process, the sandbox's init, and the command
            if len(below) > 1:
                return [confined, below[0]]
            if time.monotonic() > deadline:
                raise OSError(errno.ETIMEDOUT, f"bubblewrap ran nothing within {_WRAP_TIMEOUT:g} s")
            time.sleep(_POLL)
        return []

    def serve(self) -> None:
        # The executor's only thread lives in the sandbox's network. A socket stays in the network where it was created.
        network = ThreadPoolExecutor(1, initializer=self._network.enter)
        for port, listener in self._listeners.items():
            serve(listener, into(network, port))
        if self.confinement.webhooks:
            self._hooks().serve(self._network.hooks)
        if self.confinement.egress:
            self._way_out().serve(self._network.egress)
        else:
            self._network.egress.close()  # so that programs are refused there instead of waiting


class _Locked(Entrance):
    def __init__(self, confinement: Confinement, command: Sequence[str], env: Mapping[str, str], folder: str) -> None:
        super().__init__(confinement, command, env, folder)
        self._listener = listening(confinement.hook_port, "127.0.0.1") if confinement.webhooks else None
        self._abi = kernel.landlock_version()
        self._filter = b""
        internet = confinement.network == "internet"
        if kernel.HAS_SECCOMP:
            self._filter = kernel.filter_program(shared=True, datagrams=internet)
        devices = _DEVICES + _TERMINALS
        if confinement.user is None:
            pairs = pseudo_terminals.opened(_GIVEN_TERMINALS)
            self.files += [end for pair in pairs for end in pair]
            self.env[pseudo_terminals.VARIABLE] = pseudo_terminals.named(pairs)
            devices = [*_DEVICES, "/dev/tty", *(os.ttyname(slave) for _, slave in pairs)]
        own = [*confinement.ports, *([confinement.hook_port] if confinement.webhooks else [])]
        own += [confinement.egress_port] if confinement.egress else []
        self._rules = kernel.LandlockRules(
            readable=[*confinement.readable, "/proc", *_resolved()],
            writable=[confinement.work, confinement.temporary],
            devices=devices,
            bind=confinement.ports,
            connect=[*own, *(INTERNET_PORTS if internet else ())],
        )

    def _confine(self) -> None:
        self._become()
        kernel.restrict(self._rules, self._abi)
        kernel.drop_capabilities()
        if self._filter:
            kernel.install_filter(self._filter)

    def serve(self) -> None:
        super().serve()
        if self._listener is not None:
            self._hooks().serve(self._listener)


def _resolved() -> list[str]:
    """Return the host's accounts and resolvers: Landlock gives a sandbox no own ones."""
    files = [Path(path) for path in ("/etc/resolv.conf", "/etc/passwd", "/etc/group", "/etc/hostname")]
    return [str(path.resolve()) for path in files]


def entrance(confinement: Confinement, command: Sequence[str], env: Mapping[str, str], folder: str) -> Entrance:
    """Return the way into an isolation. folder: the working directory. Raises OSError."""
    made = {BUBBLEWRAP: _Wrapped, LANDLOCK: _Locked}.get(confinement.kind, Entrance)
    return made(confinement, command, env, folder)
