"""What the processes of a sandbox of this machine use: by its cgroup where it has one, else by /proc. Linux only."""

import contextlib
import os
from pathlib import Path

from runtimes import Handle, Usage
from runtimes.cgroup import Cgroup
from runtimes.connections import are_used
from runtimes.tree import ids_below

_PAGE_BYTES, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")

#: positions in /proc/PID/stat after the name: ticks of the process and of its children that have ended; resident pages
_OWN, _CHILDREN, _RESIDENT = slice(11, 13), slice(13, 15), 21


def usage_of(handle: Handle) -> Usage:
    """What the processes of a handle use, whose launcher lives.

    Memory is without the files that the kernel can drop. Limitation: by /proc, memory that processes share counts for
    each of them.
    """
    group = Cgroup(Path(handle["cgroup"])) if handle["cgroup"] else None
    visited = are_used([port for name, port in handle["ports"].items() if name != "AGENT_SERVER"])
    memory, seconds = (group.memory_bytes(), group.cpu_seconds()) if group else (None, None)
    if memory is not None and seconds is not None:
        return Usage(memory, seconds, visited)
    tree = _of_tree(handle["pid"])
    used = tree.memory_bytes if memory is None else memory
    return Usage(used, tree.cpu_seconds if seconds is None else seconds, visited)


def _of_tree(launcher: int) -> Usage:
    """The processes below a launcher. Those that have ended count with their time."""
    pages, ticks = 0, sum(map(int, _stat(launcher)[_CHILDREN]))
    for pid in ids_below(launcher):
        if fields := _stat(pid):
            pages += int(fields[_RESIDENT])
            ticks += sum(map(int, [*fields[_OWN], *fields[_CHILDREN]]))
    return Usage(pages * _PAGE_BYTES, ticks / _TICKS)


def _stat(pid: int) -> list[str]:
    """The fields of a process's state after its name, which may have any characters; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []
