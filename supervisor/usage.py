"""Measures what the sandboxes of a host use, and says what is worth a note."""

from collections.abc import Callable
from typing import Any, NamedTuple

from runtimes import Runtime
from store.sandboxes.sandbox_record import Sandbox, SandboxId

#: seconds between two measurements of a sandbox, and after which the sample of one that is gone is forgotten
_MEASURE, _FORGET = 5.0, 60.0

#: processor cores; a sandbox that keeps as many busy is in use, whoever started what runs there
BUSY_CORES = 0.1

#: a change that is worth a note: more than so much, and than such a part of what was noted
_MEMORY_STEP, _CPU_STEP, _PART = 1 << 20, 0.05, 0.1


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


def _differs(noted: float | None, used: float | None, step: float) -> bool:
    if noted is None or used is None:
        return noted is not used
    return abs(used - noted) > max(step, _PART * noted)
