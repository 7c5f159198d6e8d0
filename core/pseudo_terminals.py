"""Pseudo-terminals of a sandbox: new ones or, where it may open none, those that its launcher has opened for it.

The launcher names them in VARIABLE, as `MASTER:SLAVE MASTER:SLAVE`.
"""

import contextlib
import errno
import os
import termios

VARIABLE = "AGENT_TERMINALS"


def opened(number: int) -> list[tuple[int, int]]:
    """Open terminals, and return their masters and slaves: fewer than `number` if the host has no more."""
    pairs = []
    with contextlib.suppress(OSError):
        for _ in range(number):
            pairs.append(os.openpty())
    return pairs


def named(pairs: list[tuple[int, int]]) -> str:
    """Return the value of VARIABLE."""
    return " ".join(f"{master}:{slave}" for master, slave in pairs)


class PseudoTerminals:
    def __init__(self, given: str = "") -> None:
        """given: the value of VARIABLE; empty: new terminals are opened."""
        pairs = [pair.split(":") for pair in given.split()]
        self._slaves = {int(master): int(slave) for master, slave in pairs}
        self._free = list(self._slaves)
        self._modes = [termios.tcgetattr(slave) for slave in self._slaves.values()][:1]  #: of a new terminal

    def open(self) -> tuple[int, int]:
        """Return the master and the slave of a terminal. Raises OSError."""
        if not self._slaves:
            return os.openpty()
        try:
            master = self._free.pop()
        except IndexError:
            reason = f"all {len(self._slaves)} terminals of this sandbox are in use: close one, or end a conversation"
            raise OSError(errno.EAGAIN, reason) from None
        slave = self._slaves[master]
        termios.tcsetattr(slave, termios.TCSANOW, self._modes[0])
        termios.tcflush(slave, termios.TCIOFLUSH)
        return master, slave

    def close(self, *files: int) -> None:
        """Close files. A terminal of the launcher's stays open; it is free again once its master is closed."""
        for file in files:
            if file in self._slaves:
                self._free.append(file)
            elif file not in self._slaves.values():
                os.close(file)


#: Those of this process, whose programs get no VARIABLE.
pseudo_terminals = PseudoTerminals(os.environ.pop(VARIABLE, ""))
