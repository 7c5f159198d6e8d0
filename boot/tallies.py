"""Memory for the numbers that the processes of a server count, which any of them can read: no file, and no folder.

gunicorn's master makes it, and gives each process a slot that this process alone writes. A killed worker leaves its
numbers in its slot, and the worker after it counts on from there. The memory ends with the server.
Only the standard library stands here, as everywhere in `boot/` but in `boot/worker.py`.
"""

import mmap
import os
import tempfile

#: numbers of a slot, eight bytes each; `meter.py` says what each of them is
CELLS = 64 + 1024 * 24

#: the cell that is 1 while a process has the slot
IN_USE = 1

#: the slot of the supervisor; workers have the others
SUPERVISOR = 0


class Tallies:
    """The slots of a server's processes."""

    def __init__(self, descriptor: int) -> None:
        """descriptor: of the memory that `make` has made, in this process or in the one that started it."""
        self.descriptor = descriptor
        size = os.fstat(descriptor).st_size
        self._cells = memoryview(mmap.mmap(descriptor, size)).cast("d")
        self.slots = size // 8 // CELLS
        self._free = list(range(self.slots - 1, SUPERVISOR, -1))

    @classmethod
    def make(cls, workers: int) -> "Tallies":
        """Memory for a supervisor and so many workers, and for as many again that end while others begin.

        Only the part that is written takes memory. Raises OSError.
        """
        try:
            descriptor = os.memfd_create("agent-server-tallies")
        except (AttributeError, OSError):  # not Linux, or it is forbidden: a file without a name
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, 8 * CELLS * (1 + 2 * workers + 16))
        return cls(descriptor)

    def slot(self, number: int) -> "memoryview[float]":
        """The cells of a slot."""
        return self._cells[number * CELLS : (number + 1) * CELLS]

    def take(self) -> int | None:
        """In the master: a slot for a worker that is about to start; None where every slot is in use."""
        return self._free.pop() if self._free else None

    def free(self, number: int) -> None:
        """In the master: take the slot of a worker that has ended back. Its counts stay."""
        self.slot(number)[IN_USE] = 0.0
        self._free.append(number)


_of_this_server: list[Tallies] = []


def of_this_server(workers: int) -> Tallies:
    """In the master: the memory of this server, the same after gunicorn has read its configuration again."""
    if not _of_this_server:
        _of_this_server.append(Tallies.make(workers))
    return _of_this_server[0]
