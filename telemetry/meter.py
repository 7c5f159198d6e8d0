"""The counts of a process: requests by route, round trips to Redis, followers. Source: docs/monitoring.md.

gunicorn's master makes shared memory without a file, and gives each process a slot that only this process writes. A
killed worker leaves its numbers in its slot, and the next worker continues from them. Any worker reads all slots. The
memory ends with the server. Every number has a fixed cell, so that clients cannot create numbers. Standard library
only.

| cells           | contents                                                               |
|-----------------|------------------------------------------------------------------------|
| 0, 1            | a digest of the layout; 1 while a process has the slot                 |
| 2               | current followers                                                      |
| 3 to 7          | dropped followers; failed round trips; start tasks that ended READY and |
|                 | ERROR; processes that had the slot                                     |
| 8 to 23         | seconds of round trips: buckets, the last without a limit, and their sum   |
| 24 to 30        | calls of cold storage, by verb and outcome                               |
| 64 + 24 * row … | of a route and a method: responses by class of status, seconds as      |
|                 | above, round trips                                                     |
"""

import json
import mmap
import os
import re
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Collection, Iterable
from contextvars import ContextVar
from functools import cache
from operator import add
from typing import NamedTuple
from zlib import crc32

#: Number of cells of a slot, eight bytes each.
CELLS = 64 + 1024 * 24

#: Cell that is 1 while a process has the slot.
IN_USE = 1

#: Slot of the supervisor. Workers have the others.
SUPERVISOR = 0


#: Upper bounds of the buckets, in seconds.
REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TRIP_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)

STATUS_CLASSES = ("1xx", "2xx", "3xx", "4xx", "5xx")

#: Calls of cold storage: verb and outcome.
OBJECT_CALLS = (
    *(("put", "ok"), ("put", "failed")),
    *(("get", "ok"), ("get", "failed"), ("get", "missing")),
    *(("delete", "ok"), ("delete", "failed")),
)

#: Route and method of a request with an unknown path and method.
UNMATCHED = ("unmatched", "other")

_DIGEST, _FOLLOWERS, _DROPPED, _FAILED, _READY, _ERROR, _STARTED, _TRIPS = 0, 2, 3, 4, 5, 6, 7, 8
_OBJECTS = 24
_ROWS, _ROW = 64, 24
_SECONDS, _TRIPS_OF_ROW = 5, 21

#: Maximum number of pairs of route and method.
_MOST_ROWS = (CELLS - _ROWS) // _ROW

_PARAMETER = re.compile(r"<(?:[^:<>]+:)?([^<>]+)>")


class Tallies:
    """The slots of a server's processes."""

    def __init__(self, descriptor: int) -> None:
        """descriptor: of the memory from `make`, in this process or its parent."""
        self.descriptor = descriptor
        size = os.fstat(descriptor).st_size
        self._cells = memoryview(mmap.mmap(descriptor, size)).cast("d")
        self.slots = size // 8 // CELLS
        self._free = list(range(self.slots - 1, SUPERVISOR, -1))

    @classmethod
    def make(cls, workers: int) -> "Tallies":
        """Make memory for a supervisor, `workers`, and as many workers that overlap with successors. Raises OSError.

        Only the written part uses memory.
        """
        try:
            descriptor = os.memfd_create("agent-server-tallies")
        except (AttributeError, OSError):  # not Linux, or forbidden: use a file without a name
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, 8 * CELLS * (1 + 2 * workers + 16))
        return cls(descriptor)

    def slot(self, number: int) -> "memoryview[float]":
        """Return the cells of a slot."""
        return self._cells[number * CELLS : (number + 1) * CELLS]

    def take(self) -> int | None:
        """Return a slot for a new worker, in the master; None if all slots are in use."""
        return self._free.pop() if self._free else None

    def free(self, number: int) -> None:
        """Release the slot of an ended worker, in the master. Its counts stay."""
        self.slot(number)[IN_USE] = 0.0
        self._free.append(number)


_of_this_server: list[Tallies] = []


def of_this_server(workers: int) -> Tallies:
    """Return the memory of this server, in the master. It survives a reload of gunicorn's configuration."""
    if not _of_this_server:
        _of_this_server.append(Tallies.make(workers))
    return _of_this_server[0]


class RunningRequest:
    """A running request: its beginning, and its round trips to Redis so far."""

    __slots__ = ("began", "trips")

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.trips = 0


_request: ContextVar[RunningRequest | None] = ContextVar("request", default=None)


class SecondsHistogram(NamedTuple):
    """A histogram: counts of separate buckets, the last without a bound; and their sum."""

    bounds: tuple[float, ...]
    counts: list[float]
    sum: float


class RouteCounts(NamedTuple):
    """The requests of a route and method."""

    route: str
    method: str
    by_class: dict[str, float]
    seconds: SecondsHistogram
    trips: float


class ProcessCounts(NamedTuple):
    """The counts of processes of a kind, beside requests."""

    kind: str  #: `worker` or `supervisor`
    processes: int  #: current
    started: float
    followers: float  #: current
    dropped: float
    trips: SecondsHistogram
    failed_trips: float
    starts: dict[str, float]
    objects: dict[tuple[str, str], float]


class Meter:
    """The counts of this process, and of the processes that share its memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cells = memoryview(bytearray(8 * CELLS)).cast("d")
        self._tallies: Tallies | None = None
        self._rows: dict[tuple[str, str], int] = {}
        self._unmatched = 0
        self.add_routes([])

    def add_routes(self, routes: Iterable[tuple[str, str]]) -> None:
        """Count requests of the routes by method. Call it before the first request. Raises ValueError for too many."""
        pairs = [UNMATCHED, *sorted(set(routes))]
        if len(pairs) > _MOST_ROWS:
            raise ValueError(
                f"{len(pairs)} routes and methods: {_MOST_ROWS} can be counted (CELLS of telemetry/meter.py)"
            )
        self._rows = {pair: _ROWS + _ROW * number for number, pair in enumerate(pairs)}
        self._unmatched = self._rows[UNMATCHED]
        self._begin()

    def share(self, tallies: Tallies, slot: int) -> None:
        """Count in a slot from now on. It keeps the counts of an earlier process of a release with equal routes."""
        with self._lock:
            self._tallies, self._cells = tallies, tallies.slot(slot)
            self._begin()

    def _begin(self) -> None:
        if (known := self._cells[_DIGEST]) != (digest := self._digest(self._rows)):
            if known:
                self._cells[:] = memoryview(bytearray(8 * CELLS)).cast("d")
            self._cells[_DIGEST] = digest
        self._cells[_FOLLOWERS] = 0
        self._cells[_STARTED] += 1
        self._cells[IN_USE] = 1

    @staticmethod
    def _digest(rows: Iterable[tuple[str, str]]) -> int:
        return crc32(json.dumps([REQUEST_BUCKETS, TRIP_BUCKETS, *rows]).encode())

    def begin_request(self) -> None:
        """Begin a request in this thread."""
        _request.set(RunningRequest())

    def end_request(self, route: str | None, method: str, status: int, *, is_timed: bool = True) -> None:
        """Count the request of this thread. route: None for an unknown path."""
        request = _request.get()
        row = self._rows.get((route, method), self._unmatched) if route else self._unmatched
        with self._lock:
            cells = self._cells
            cells[row + status // 100 - 1] += 1
            if request is not None:
                cells[row + _TRIPS_OF_ROW] += request.trips
                if is_timed:
                    seconds = time.monotonic() - request.began
                    cells[row + _SECONDS + bisect_left(REQUEST_BUCKETS, seconds)] += 1
                    cells[row + _SECONDS + len(REQUEST_BUCKETS) + 1] += seconds
        _request.set(None)

    @property
    def trips(self) -> int:
        """Return the round trips to Redis of this thread's request so far."""
        request = _request.get()
        return request.trips if request else 0

    def count_trip(self, seconds: float, *, failed: bool) -> None:
        """Count a round trip to Redis, also for this thread's request."""
        request = _request.get()
        if request is not None:
            request.trips += 1
        with self._lock:
            cells = self._cells
            cells[_TRIPS + bisect_left(TRIP_BUCKETS, seconds)] += 1
            cells[_TRIPS + len(TRIP_BUCKETS) + 1] += seconds
            if failed:
                cells[_FAILED] += 1

    def note_followers(self, number: int) -> None:
        """Set the current number of followers of this process."""
        self._cells[_FOLLOWERS] = number

    def count_dropped_follower(self) -> None:
        """Count a follower that was dropped because the ring no longer contained its cursor."""
        with self._lock:
            self._cells[_DROPPED] += 1

    def count_start(self, status: str) -> None:
        """Count a start task that ended as READY or ERROR."""
        with self._lock:
            self._cells[_READY if status == "READY" else _ERROR] += 1

    def count_object(self, verb: str, outcome: str) -> None:
        """Count a call of cold storage, one of OBJECT_CALLS."""
        with self._lock:
            self._cells[_OBJECTS + OBJECT_CALLS.index((verb, outcome))] += 1

    def read(self) -> tuple[list[RouteCounts], list[ProcessCounts]]:
        """Return the requests of all used routes, and the counts of each kind of process. Cost: O(slots in use)."""
        tallies = self._tallies
        workers = [tallies.slot(slot) for slot in range(SUPERVISOR + 1, tallies.slots)] if tallies else [self._cells]
        of_workers = self._sum(workers, self._rows)
        of_supervisor = self._sum([tallies.slot(SUPERVISOR)] if tallies else [], [UNMATCHED])
        routes = [_route(pair, of_workers[row : row + _ROW]) for pair, row in self._rows.items()]
        processes = [_process("worker", of_workers), _process("supervisor", of_supervisor)]
        return [one for one in routes if any(one.by_class.values())], processes

    def _sum(self, slots: "list[memoryview[float]]", rows: Collection[tuple[str, str]]) -> list[float]:
        """Return the sum of the slots with the rows."""
        digest, length = self._digest(rows), _ROWS + _ROW * len(rows)
        total = [0.0] * length
        for slot in slots:
            if slot[_DIGEST] == digest:
                cells = slot[:length].tolist()
                cells[_FOLLOWERS] *= cells[IN_USE]
                total = list(map(add, total, cells))
        return total


def _route(pair: tuple[str, str], row: list[float]) -> RouteCounts:
    by_class = dict(zip(STATUS_CLASSES, row, strict=False))
    return RouteCounts(*pair, by_class, _seconds(REQUEST_BUCKETS, row[_SECONDS:]), row[_TRIPS_OF_ROW])


def _process(kind: str, cells: list[float]) -> ProcessCounts:
    starts = {"READY": cells[_READY], "ERROR": cells[_ERROR]}
    trips = _seconds(TRIP_BUCKETS, cells[_TRIPS:])
    objects = dict(zip(OBJECT_CALLS, cells[_OBJECTS:], strict=False))
    counts = (cells[_STARTED], cells[_FOLLOWERS], cells[_DROPPED], trips, cells[_FAILED], starts, objects)
    return ProcessCounts(kind, round(cells[IN_USE]), *counts)


def _seconds(bounds: tuple[float, ...], cells: list[float]) -> SecondsHistogram:
    return SecondsHistogram(bounds, cells[: len(bounds) + 1], cells[len(bounds) + 1])


@cache  # an app has about a hundred rules
def template(rule: str) -> str:
    """Return a route in the form of metrics, traces and logs: `/sandboxes/<sandbox_id>` → `/sandboxes/{sandbox_id}`."""
    return _PARAMETER.sub(r"{\1}", rule)
