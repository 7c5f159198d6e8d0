"""Measures what the sandboxes of a host use, and says what is worth a note."""

from collections.abc import Callable
from typing import NamedTuple

from runtimes import Runtime
from store.sandbox_record import Sandbox, SandboxId

#: seconds between two measurements of a sandbox, and after which the sample of one that is gone is forgotten
_MEASURE, _FORGET = 5.0, 60.0

#: a change that is worth a note: more than so much, and than such a part of what was noted
_MEMORY_STEP, _CPU_STEP, _PART = 1 << 20, 0.05, 0.1


class _Sample(NamedTuple):
    start: int  #: number of the start of the sandbox's processes
    at: float
    cpu_seconds: float | None


class UsageMeter:
    """Any number of threads may use it, each for another sandbox."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: seconds."""
        self._clock = clock
        self._samples: dict[SandboxId, _Sample] = {}

    def measure(self, sandbox: Sandbox, runtime: Runtime) -> dict[str, float | None]:
        """The fields of a running sandbox to be noted; empty where little has changed, and between two measurements.

        The first measurement after a start tells no processor time: that is the difference of two.
        """
        now, last = self._clock(), self._samples.get(sandbox.id)
        if last is not None and last.start != sandbox.start:
            last = None
        if last is not None and now < last.at + _MEASURE:
            return {}
        used = runtime.usage(sandbox.id)
        self._forget(now)
        self._samples[sandbox.id] = _Sample(sandbox.start, now, used.cpu_seconds)
        cores = None
        if last is not None and last.cpu_seconds is not None and used.cpu_seconds is not None:
            cores = round(max(0.0, used.cpu_seconds - last.cpu_seconds) / (now - last.at), 2)
        if _differs(sandbox.memory_bytes, used.memory_bytes, _MEMORY_STEP) or _differs(
            sandbox.cpu_cores, cores, _CPU_STEP
        ):
            return {"memory_bytes": used.memory_bytes, "cpu_cores": cores}
        return {}

    def _forget(self, now: float) -> None:
        for sandbox_id, sample in list(self._samples.items()):
            if now > sample.at + _FORGET:
                self._samples.pop(sandbox_id, None)


def _differs(noted: float | None, used: float | None, step: float) -> bool:
    if noted is None or used is None:
        return noted is not used
    return abs(used - noted) > max(step, _PART * noted)
