"""Measures what the sandboxes of a host use, and says what is worth a note."""

from collections.abc import Callable
from typing import Any, NamedTuple

from runtimes import PartlyMeasured, Runtime
from store.sandboxes.sandboxes import Sandbox, SandboxId

#: seconds between two measurements of a sandbox, and after which the sample of one that is gone is forgotten
_MEASURE, _FORGET = 5.0, 60.0

#: processor cores; a sandbox that keeps as many busy is in use, whoever started what runs there
BUSY_CORES = 0.1

#: a change that is worth a note: more than so much, and than such a part of what was noted
_MEMORY_STEP, _CPU_STEP, _PART = 1 << 20, 0.05, 0.1


#: seconds between two measurements of a sandbox's files, and at least where their disk fills quickly
MEASURE_DISK, _MEASURE_AGAIN = 60.0, 5.0

#: the part of what a sandbox's files may take by which their disk must fill before they are measured at once
_GROWTH = 16


class _Sample(NamedTuple):
    start: int  #: number of the start of the sandbox's processes
    at: float
    cpu_seconds: float | None
    number: int  #: of its measurements since that start


class UsageMeter:
    """Any number of threads may use it, each for another sandbox."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._clock = clock
        self._samples: dict[SandboxId, _Sample] = {}

    def measure(self, sandbox: Sandbox, runtime: Runtime, idle_pause: float = 0) -> dict[str, Any]:
        """The fields of a running sandbox to be noted; empty where little has changed, and between two measurements.

        One that keeps BUSY_CORES busy, or whose further ports are connected to, is in use: its `active_at` is noted.
        The first measurement after a start tells no processor time: that is the difference of two.
        idle_pause: seconds after which a sandbox that is not in use is paused; two measurements fit in. 0: never.
        """
        now, last = self._clock(), self._samples.get(sandbox.id)
        if last is not None and last.start != sandbox.start:
            last = None
        if last is not None and now < last.at + min(_MEASURE, idle_pause / 3 or _MEASURE):
            return {}
        used = runtime.usage(sandbox.id)
        self._forget(now)
        number = last.number + 1 if last else 1
        self._samples[sandbox.id] = _Sample(sandbox.start, now, used.cpu_seconds, number)
        cores, fields = None, dict[str, Any]()
        if last is not None and last.cpu_seconds is not None and used.cpu_seconds is not None:
            cores = round(max(0.0, used.cpu_seconds - last.cpu_seconds) / (now - last.at), 2)
        if _differs(sandbox.memory_bytes, used.memory_bytes, _MEMORY_STEP) or _differs(
            sandbox.cpu_cores, cores, _CPU_STEP
        ):
            fields = {"memory_bytes": used.memory_bytes, "cpu_cores": cores}
        if idle_pause and (used.is_visited or (cores or 0.0) >= BUSY_CORES):
            fields["active_at"] = str(sandbox.seen_at)
        return fields

    def is_known(self, sandbox: Sandbox) -> bool:
        """Whether a sandbox was measured twice since its start: before that, it may keep the processor busy."""
        sample = self._samples.get(sandbox.id)
        return sample is not None and sample.start == sandbox.start and sample.number > 1

    def _forget(self, now: float) -> None:
        for sandbox_id, sample in list(self._samples.items()):
            if now > sample.at + _FORGET:
                self._samples.pop(sandbox_id, None)


class _Disk(NamedTuple):
    """A measurement of a sandbox's files."""

    at: float
    used: int | None
    occupied: int | None  #: bytes in use on their whole file system
    again: float  #: seconds until the next one
    is_whole: bool  #: all files could be measured


class DiskMeter:
    """Measures the files of sandboxes: every minute, and at once when their file system fills by as much as one may
    still take. Only a walk tells whose bytes these are. Any number of threads may use it, each for another sandbox."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._clock = clock
        self._last: dict[SandboxId, _Disk] = {}

    def is_due(self, sandbox: Sandbox, runtime: Runtime, limit: int | None) -> bool:
        """Whether a sandbox's files are to be measured, which may take so many bytes."""
        now, last = self._clock(), self._last.get(sandbox.id)
        if last is None or now >= last.at + last.again:
            return True
        if not limit or now < last.at + _MEASURE_AGAIN or last.used is None or last.occupied is None:
            return False
        room = limit - last.used if last.used <= limit else limit  # one that is above it has a minute to remove some
        occupied = runtime.occupied_bytes(sandbox.id)
        return occupied is not None and occupied - last.occupied > max(room, limit // _GROWTH)

    def measure(self, sandbox: Sandbox, runtime: Runtime) -> int | None:
        """Bytes that a sandbox's files take; None if that is not known.

        Where not all of them could be measured they take what was last known at least, and are measured again soon.
        """
        now, occupied, last = self._clock(), runtime.occupied_bytes(sandbox.id), self._last.get(sandbox.id)
        again, is_whole = MEASURE_DISK, True
        try:
            used = runtime.disk_bytes(sandbox.id)
        except PartlyMeasured as partly:
            used = max(partly.least, sandbox.disk_bytes or 0)
            again = _MEASURE_AGAIN if last is None or last.is_whole else min(2 * last.again, MEASURE_DISK)
            is_whole = False
        recent = {one: disk for one, disk in self._last.items() if now < disk.at + 2 * MEASURE_DISK}
        self._last = recent | {sandbox.id: _Disk(now, used, occupied, again, is_whole)}
        return used


def _differs(noted: float | None, used: float | None, step: float) -> bool:
    if noted is None or used is None:
        return noted is not used
    return abs(used - noted) > max(step, _PART * noted)
