"""How a launcher brings a command into its isolation, and what it does for the sandbox from outside."""

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from runtimes.folder import opened_below
from runtimes.isolation import BUBBLEWRAP, INTERNET_PORTS, LANDLOCK, kernel, view
from runtimes.isolation.hooks import Hooks, WayOut, into, listening, serve
from runtimes.isolation.network import Network
from runtimes.isolation.view import resolvers
from runtimes.tree import ids_below

_DEVICES = [f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")]

#: where programs open terminals. The host's are there too: only their modes keep other users away from them
_TERMINALS = [f"/dev/{name}" for name in ("tty", "ptmx", "pts")]

#: terminals opened for a sandbox that runs as the server's user, and so may open no others
_GIVEN_TERMINALS = 32

#: seconds in which bubblewrap must run the command, and between two polls
_WRAP_TIMEOUT, _POLL = 20.0, 0.002


@dataclass(frozen=True)
class Confinement:
    """What a launcher needs to confine its sandbox; JSON in its order."""

    kind: str
    network: str = "host"
    readable: Sequence[str] = ()  #: paths
    work: str = ""
    temporary: str = ""  #: folder for temporary files, of Landlock, which cannot give a /tmp of its own
    user: int | None = None  #: that the sandbox runs as; None: the launcher's
    hidden: Sequence[str] = ()  #: folders that the user cannot enter, and of which it is shown what it needs
    processes: int | None = None  #: most of its user
    ports: Sequence[int] = ()  #: of the host, that lead to the same ports in the sandbox
    address: str = "127.0.0.1"  #: of the host, where its ports listen
    webhooks: str = ""  #: base URL
    hook_key: str = field(default="", repr=False)  #: that they bear
    hook_port: int = 0  #: of the host, where Landlock lets the sandbox post to
    egress: str = ""  #: path of the proxy's socket; empty: the way out is not by name
    egress_port: int = 0  #: of the host, where a sandbox without a network of its own finds the way out


class Entrance:
    """The way into one isolation: the command to run instead, and `enter`, called in its process before that."""

    def __init__(self, confinement: Confinement, command: Sequence[str], env: Mapping[str, str], folder: str) -> None:
        self.confinement = confinement
        self.command, self.env, self.folder = list(command), dict(env), folder
        self.files: list[int] = []  #: that the process inherits
        is_near = confinement.egress and confinement.egress_port
        self._egress = listening(confinement.egress_port, "127.0.0.1") if is_near else None

    def enter(self) -> None:
        """Confine the calling process, which has one thread. Raises OSError, after it has printed the reason."""
        try:
            self._confine()
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            os.write(2, f"its isolation fails: {error.strerror}{where}\n".encode())
            raise

    def _confine(self) -> None:
        """Confine the calling process."""
        if self.confinement.user is not None:
            self._become()

    def _become(self) -> None:
        """Give the calling process the sandbox's user, if it has one of its own, and what that needs to see."""
        confinement = self.confinement
        view.limit(confinement.processes)
        if confinement.user is not None:
            work = [confinement.work, *([confinement.temporary] if confinement.temporary else [])]
            view.show([*confinement.readable, *work], confinement.hidden)
            kernel.become(confinement.user)
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
            os.fchdir(opened_below(confinement.work, self.folder))  # that of its own view

    def wrappers(self, confined: int) -> list[int]:  # noqa: ARG002 - bubblewrap makes them
        """The processes between the launcher and the command, once it runs; empty if it has ended, or there are none.

        confined: the process that entered. Raises OSError if that does nothing for too long.
        """
        return []

    def serve(self) -> None:
        """Carry what passes between the sandbox and the host, in threads that live as long as the process."""
        if self._egress is not None:
            self._way_out().serve(self._egress)

    def _hooks(self) -> Hooks:
        return Hooks(self.confinement.webhooks, self.confinement.hook_key)

    def _way_out(self) -> WayOut:
        return WayOut(self.confinement.egress, self.confinement.hook_key)

    def close(self) -> None:
        """Close the files that the sandbox's process has by now."""
        for file in self.files:
            os.close(file)


class _Wrapped(Entrance):
    def __init__(self, confinement: Confinement, command: Sequence[str], env: Mapping[str, str], folder: str) -> None:
        """Makes the network and listens on the host's ports. Raises OSError. The process has one thread."""
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
            below = ids_below(confined)  # bubblewrap's other process, which is the sandbox's init, and the command
            if len(below) > 1:
                return [confined, below[0]]
            if time.monotonic() > deadline:
                raise OSError(errno.ETIMEDOUT, f"bubblewrap runs nothing within {_WRAP_TIMEOUT:g} s")
            time.sleep(_POLL)
        return []

    def serve(self) -> None:
        # Its one thread lives in the sandbox's network, and a socket stays in the network where it was made.
        network = ThreadPoolExecutor(1, initializer=self._network.enter)
        for port, listener in self._listeners.items():
            serve(listener, into(network, port))
        if self.confinement.webhooks:
            self._hooks().serve(self._network.hooks)
        if self.confinement.egress:
            self._way_out().serve(self._network.egress)
        else:
            self._network.egress.close()  # so that a program is refused there, and does not wait


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
            pairs = _opened(_GIVEN_TERMINALS)
            self.files += [end for pair in pairs for end in pair]
            self.env["AGENT_TERMINALS"] = " ".join(f"{master}:{slave}" for master, slave in pairs)
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


def _opened(number: int) -> list[tuple[int, int]]:
    """Open terminals: their masters and slaves, fewer where the host has no more."""
    pairs = []
    with contextlib.suppress(OSError):
        for _ in range(number):
            pairs.append(os.openpty())
    return pairs


def _resolved() -> list[str]:
    """The host's accounts and resolvers: Landlock gives a sandbox none of its own."""
    files = [Path(path) for path in ("/etc/resolv.conf", "/etc/passwd", "/etc/group", "/etc/hostname")]
    return [str(path.resolve()) for path in files]


def entrance(confinement: Confinement, command: Sequence[str], env: Mapping[str, str], folder: str) -> Entrance:
    """The way into an isolation; folder: the working directory. Raises OSError."""
    made = {BUBBLEWRAP: _Wrapped, LANDLOCK: _Locked}.get(confinement.kind, Entrance)
    return made(confinement, command, env, folder)
