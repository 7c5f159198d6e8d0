"""Brings each sandbox of a host from its observed state to the desired state, a step at a time.

A sandbox's processes may end at any time; its files stay until it is deleted. A crashed sandbox is restarted as often
as `restarts` of its spec allows. Then it is ERROR until a client resumes it.

A failed step is retried with backoff. A sandbox whose deletion fails is ERROR, with the reason as its detail, until a
retry succeeds. It is never reported as gone before its processes and files are gone.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import httpx

from agents.client import AgentRefused, AgentServer, AgentUnreachable
from agents.places import IDLE_PAUSE
from core.wire import Micros, one_line
from runtimes import Handle, PartlyMeasured, ProcessState, Runtime, RuntimeCallFailed, folders_of
from settings.specs import Spec, Specs, unsupported
from store import Store
from store.errors import UNAVAILABLE, KeyUnreadable
from store.sandboxes.sandboxes import Sandbox, SandboxId
from supervisor.archives import HostArchives
from supervisor.endings import KEPT, RESUMABLE, Endings, Recovery, SandboxHost, ended_start_fields
from supervisor.launches import files_of, launch
from supervisor.presence import Gaps, Silences
from supervisor.returns import turn_back

log = logging.getLogger("supervisor")

#: Shortest and longest delay of a failed step's retry, in seconds. Each delay is twice the previous.
_SHORTEST_BACKOFF, LONGEST_BACKOFF = 1.0, 10.0

#: Longest time in seconds between two polls of a starting sandbox that counts as silence of its agent server.
_MOST_APART = 5.0

#: Detail of a sandbox with running processes whose host is back.
_UNANSWERED = "Its host is back, and its agent server does not answer yet. A resume restarts its start timeout"


#: Interval between two measurements of a sandbox, and time after which its last sample is forgotten, in seconds.
_MEASURE, _FORGET = 5.0, 60.0

#: Number of busy processor cores from which on a sandbox counts as in use, whoever started its programs.
BUSY_CORES = 0.1

#: Smallest changes to report: of memory in bytes, of processor cores, and as a share of the reported value.
_MEMORY_STEP, _CPU_STEP, _PART = 1 << 20, 0.05, 0.1

#: Interval in seconds between two measurements of a sandbox's files, and its minimum if their disk fills quickly.
MEASURE_DISK, _MEASURE_AGAIN = 60.0, 5.0

#: Pause after a measurement, as a multiple of its duration, so that it uses at most a tenth of a core.
_REST = 9

#: Divisor of the file limit: growth of the disk by this part triggers an early measurement.
_GROWTH = 16


class _Retry(NamedTuple):
    """A failed step. at: time of its retry, in seconds of the reconciler's clock."""

    wanted: str
    at: float
    backoff: float
    reason: str


class Reconciler:
    """Reconciles a sandbox. Threads may use it for different sandboxes at the same time."""

    def __init__(
        self,
        store: Store,
        specs: Specs,
        runtimes: Mapping[str, Runtime],
        host: SandboxHost,
        client: httpx.Client,
        recovery: Recovery,
        endings: Endings,
        archives: HostArchives,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """runtimes: by their names in specs. client: for the agent servers. clock: in seconds, for backoff."""
        self._store = store
        self._specs = specs
        self._runtimes = runtimes
        self._host = host
        self._client = client
        self._recovery = recovery
        self._endings = endings
        self._archives = archives
        self._disk = DiskMeter(clock)
        self._usage = UsageMeter(clock)
        self._clock = clock
        self._silences, self._gaps = Silences(_MOST_APART), Gaps(_MOST_APART)  #: of starting agent servers; of checks
        # The time between two attempts to settle is the retry delay, plus the timeouts of the requests.
        self._unsettled = Silences(_MOST_APART + LONGEST_BACKOFF + 3 * (client.timeout.read or 0.0))
        self._retries: dict[SandboxId, _Retry] = {}

    def look(self, at: Micros) -> None:
        """Record that this supervisor is running, even if it has nothing to reconcile. at: by Redis' clock."""
        self._gaps.look(at)

    def lacks(self, sandbox: Sandbox) -> bool:
        """Return whether another folder has a sandbox's files, so that it is not started here."""
        return self._host.lacks(sandbox)

    def reconcile(self, sandbox: Sandbox) -> None:
        """Take a step towards a sandbox's desired state, and report its observed state. Raises only UNAVAILABLE.

        After a failure the call does nothing until the retry is due or a client requests another state.
        """
        self.look(sandbox.seen_at)
        retry = self._retries.get(sandbox.id)
        if retry and retry.wanted == sandbox.wanted and self._clock() < retry.at:
            return
        try:
            self._reconcile(sandbox)
        except UNAVAILABLE:
            raise
        except Exception as error:
            self._postpone(sandbox, error)
            self._report_failure(sandbox, one_line(str(error)) or type(error).__name__)
        else:
            self._retries.pop(sandbox.id, None)

    def _postpone(self, sandbox: Sandbox, error: Exception) -> None:
        """Schedule the retry of a step. An unforeseen error is logged with its traceback, once."""
        now, reason = self._clock(), repr(error)
        earlier = self._retries.get(sandbox.id)
        backoff = min(2 * earlier.backoff, LONGEST_BACKOFF) if earlier else _SHORTEST_BACKOFF
        is_new = earlier is None or earlier.reason != reason
        trace = is_new and not isinstance(error, RuntimeCallFailed)
        log.warning("sandbox %s: %s; retry in %g s", sandbox.id, error, backoff, exc_info=error if trace else None)
        # A deleted sandbox is never reconciled again, so drop retries that are long overdue.
        known = [(key, retry) for key, retry in list(self._retries.items()) if now - retry.at < 10 * LONGEST_BACKOFF]
        self._retries = dict(known) | {sandbox.id: _Retry(sandbox.wanted, now + backoff, backoff, reason)}

    def _report_failure(self, sandbox: Sandbox, reason: str) -> None:
        """Report ERROR for a failed deletion, and for a failed start without processes. Other statuses still hold."""
        if sandbox.wanted == "deleted":
            self._endings.report(sandbox, "ERROR", detail=f"Its deletion fails and is retried: {reason}")
        elif sandbox.status == "STARTING" and sandbox.handle is None and not self._endings.discarded(sandbox, reason):
            self._endings.report(
                sandbox, "ERROR", detail=f"{reason}. A resume tries again", **ended_start_fields(sandbox, "ERROR")
            )

    def _reconcile(self, sandbox: Sandbox) -> None:
        if self._host.lacks(sandbox):
            self._leave(sandbox)
            return
        if sandbox.wanted == "deleted":
            if self._archives.stopped(sandbox.id):
                self._endings.remove(sandbox)
            return
        if sandbox.status == "ERROR":
            if sandbox.handle is not None:  # its processes could not be ended when it failed
                self._endings.clear(sandbox)
                self._endings.report(sandbox, "", handle=None)
            return
        if sandbox.handle is None and sandbox.wanted == "paused":
            if sandbox.status == "MISSING":
                self._endings.report(sandbox, "PAUSED", detail=f"Its host is back: {KEPT}")
            return
        if sandbox.handle is None and sandbox.is_delayed:
            return
        spec = self._specs.find(sandbox.spec_id)
        if spec is None:
            self._endings.fail(sandbox, f"There is no spec {sandbox.spec_id} on host {self._host.id}. {RESUMABLE}")
            return
        if reason := unsupported(spec.runtime):
            self._endings.fail(sandbox, reason)
            return
        runtime = self._runtimes[spec.runtime]
        if sandbox.back and "failed" not in sandbox.back:
            sandbox = self._turned_back(sandbox, spec, runtime)
        if sandbox.handle is None:
            if sandbox.source is not None and not sandbox.start and not self._is_filled(sandbox, spec, runtime):
                return
            sandbox = self._start(sandbox, spec, runtime)
        handle = _handle(sandbox)
        seen = runtime.observe(handle)
        if seen.state is ProcessState.BROKEN:
            self._endings.fail(sandbox, f"The sandbox cannot be used: {seen.detail}")
        elif seen.state is ProcessState.GONE:
            self._endings.settle(sandbox, spec, seen)
        elif unreadable := _unreadable(sandbox):
            self._endings.fail(sandbox, f"{unreadable}. {RESUMABLE}")
        elif sandbox.wanted == "paused" and not runtime.freezes:
            self._endings.stop(sandbox, f"It was paused: {KEPT}")
        elif sandbox.wanted == "paused":
            if seen.state is not ProcessState.PAUSED:
                runtime.pause(handle)
            if sandbox.status != "PAUSED":
                self._endings.report(sandbox, "PAUSED")
            elif self._is_over(sandbox, sandbox.changed_at, spec.idle_stop_seconds):
                self._endings.stop(sandbox, f"It was paused for {spec.idle_stop_seconds:g} s: {KEPT}")
        else:
            if seen.state is ProcessState.PAUSED:
                runtime.resume(handle)
            self._care_for(sandbox, spec, runtime, seen.detail)

    def _leave(self, sandbox: Sandbox) -> None:
        """Show a sandbox as MISSING whose files are in another folder, because its processes may run there."""
        detail = (
            f"Its files are in another folder than the folder of the supervisor that is now named {self._host.id}. "
        )
        detail += "It returns with the supervisor of its folder. Give each folder its own HOST_ID"
        if sandbox.status == "ERROR" and sandbox.wanted == "deleted":  # like a MISSING sandbox
            self._endings.report(sandbox, "LEFT")
            return
        if sandbox.status != "ERROR" and (sandbox.status, sandbox.detail) != ("MISSING", detail):
            self._endings.report(sandbox, "MISSING", detail=detail)

    def _care_for(self, sandbox: Sandbox, spec: Spec, runtime: Runtime, waits_for: str) -> None:
        """Check a sandbox that should run: its agent server must respond, and its limits must hold."""
        if sandbox.status in ("STARTING", "MISSING"):
            agent, start = self._agent(sandbox), (sandbox.id, sandbox.starting_at)
            if agent.is_alive():
                self._silences.ended(start)
                if not self._is_settled(sandbox, agent, spec, runtime):
                    return
                self._recovery.tell_labels(sandbox, agent)
                seen = runtime.folders(_handle(sandbox))
                self._endings.report(sandbox, "RUNNING", detail="", **seen, **ended_start_fields(sandbox))
            elif sandbox.status == "MISSING":  # its processes run, and may still respond
                if not sandbox.detail.startswith(_UNANSWERED):
                    self._endings.report(sandbox, "", detail=_UNANSWERED)
                self._limit(sandbox, spec, runtime)
            elif self._silences.found(start, sandbox.seen_at) > self._host.start_seconds:
                self._silences.ended(start)
                reason = f"Its agent server did not answer within {self._host.start_seconds:g} s"
                self._endings.fail(
                    sandbox, f"{reason}: {waits_for}. {RESUMABLE}" if waits_for else f"{reason}. {RESUMABLE}"
                )
        else:
            self._limit(sandbox, spec, runtime)

    def _is_settled(self, sandbox: Sandbox, agent: AgentServer, spec: Spec, runtime: Runtime) -> bool:
        """Settle the conversations of a sandbox before clients use it. Return false if its start failed instead.

        A running agent server that does not report them has the timeout of its first response. Raises AgentUnreachable
        until then, and RuntimeCallFailed.
        """
        start = (sandbox.id, sandbox.starting_at)
        if sandbox.start <= 1:
            return True
        try:
            self._recovery.settle(sandbox, agent, resume_runs=spec.resume_runs, services=spec.services)
        except AgentUnreachable as error:
            if sandbox.status == "MISSING":  # its processes run, and may still respond
                self._limit(sandbox, spec, runtime)
                raise
            if self._unsettled.found(start, sandbox.seen_at) <= self._host.start_seconds:
                raise
            reason = f"Its agent server did not report its conversations within {self._host.start_seconds:g} s"
            self._endings.fail(sandbox, f"{reason}: {error}. {RESUMABLE}")
            self._unsettled.ended(start)
            return False
        self._unsettled.ended(start)
        return True

    def _limit(self, sandbox: Sandbox, spec: Spec, runtime: Runtime) -> None:
        """Enforce the limits of a running sandbox: lifetime, files and idle time."""
        if not sandbox.warm and self._is_over(sandbox, sandbox.starting_at, spec.max_seconds):
            self._endings.over(sandbox, f"Its {spec.max_seconds:g} s are over")
            return
        idle_pause = 0.0 if sandbox.warm else _idle_pause(sandbox, spec)
        if changed := self._usage.measure(sandbox, runtime, idle_pause):
            self._endings.report(sandbox, "", **changed)
        if sandbox.warm or not self._is_within_quota(sandbox, spec, runtime) or "active_at" in changed:
            return
        if self._is_over(sandbox, sandbox.active_at, idle_pause) and self._usage.is_known(sandbox):
            self._pause_if_idle(sandbox, idle_pause)

    def _is_within_quota(self, sandbox: Sandbox, spec: Spec, runtime: Runtime) -> bool:
        """Measure the sandbox's files. Return false if they exceed the quota and the sandbox is paused."""
        if not self._disk.is_due(sandbox, runtime, spec.disk_bytes):
            return True
        used = self._disk.measure(sandbox, runtime, spec.disk_bytes)
        self._endings.report(sandbox, "", disk_bytes=used)
        if used is None or not spec.disk_bytes or used <= spec.disk_bytes:
            return True
        detail = f"Its files take {used} bytes or more, and {spec.disk_bytes} are allowed (disk_mb): it is paused. "
        detail += f"Many small files count too. After a resume it has {MEASURE_DISK:g} s to remove some"
        self._endings.report(sandbox, "", detail=detail)
        self._store.sandboxes.ask(sandbox.id, "rest")
        return False

    def _pause_if_idle(self, sandbox: Sandbox, seconds: float) -> None:
        """Pause the sandbox unless an agent runs in it, or a client recently used its agent server directly."""
        try:
            idle = self._agent(sandbox).idle_seconds()
        except (AgentUnreachable, AgentRefused):
            idle = None
        if self._store.conversations.in_sandboxes.runs_in(sandbox.id) or (idle is not None and idle < seconds):
            self._endings.report(sandbox, "", active_at=str(sandbox.seen_at - round((idle or 0) * 1e6)))
        else:
            self._store.sandboxes.ask(sandbox.id, "rest")

    def _is_over(self, sandbox: Sandbox, since: int, seconds: float) -> bool:
        """Return whether a span has passed since a time, without gaps of this supervisor. 0 seconds never pass."""
        return 0 < seconds < self._gaps.seconds(since, sandbox.seen_at)

    def _agent(self, sandbox: Sandbox) -> AgentServer:
        return AgentServer(self._client, sandbox.agent_url, sandbox.session_api_key)

    def _is_filled(self, sandbox: Sandbox, spec: Spec, runtime: Runtime) -> bool:
        """Return whether the files of a new sandbox are complete. Raises RuntimeCallFailed if they cannot be."""
        if not sandbox.runtime:
            # So that a deletion removes the files, and no supervisor of another folder looks for them.
            self._endings.report(sandbox, "", runtime=spec.runtime, folder=self._folder(runtime))
        return self._archives.fill(sandbox, files_of(sandbox, spec), runtime)

    def _turned_back(self, sandbox: Sandbox, spec: Spec, runtime: Runtime) -> Sandbox:
        """End the sandbox's processes, and return the files of a conversation to an earlier event.

        After a kill the files are either unchanged or as recorded, and the next supervisor continues.
        """
        back, failed = sandbox.back or {}, ""
        try:
            self._endings.clear(sandbox)
        except RuntimeCallFailed as failure:  # processes may still run: nothing has changed
            self._endings.report(sandbox, "", back=_failed_return(back, failure))
            raise
        self._recovery.stopped(sandbox)
        try:
            turn_back(runtime, files_of(sandbox, spec), back)
        except UNAVAILABLE:
            raise
        except Exception as failure:  # the sandbox starts again after any failure
            trace = None if isinstance(failure, RuntimeCallFailed) else failure
            log.warning("conversation %s is not turned back: %s", back["conversation"], failure, exc_info=trace)
            failed = str(failure) or type(failure).__name__
        fields: dict[str, Any] = {"back": _failed_return(back, failed) if failed else None, "handle": None}
        if not self._endings.report(sandbox, "", **fields):
            raise RuntimeCallFailed("Another supervisor has it now")
        return replace(sandbox, **fields)

    def _start(self, sandbox: Sandbox, spec: Spec, runtime: Runtime) -> Sandbox:
        """Start the sandbox, and store its addresses.

        Raises RuntimeCallFailed, also if it no longer belongs to this host.
        """
        hook_key = self._store.sandboxes.begin(
            sandbox.id, self._host.id, self._host.supervisor, spec.runtime, self._folder(runtime), spec.secret_texts
        )
        if hook_key is None:
            raise RuntimeCallFailed("It is not started: another supervisor has it, or it must not run")
        sandbox = self._store.sandboxes.get(sandbox.id)
        handle = runtime.start(launch(sandbox, spec, self._host.webhook_base_url, hook_key, self._host.allowed_origins))
        urls = [
            {"name": name, "url": f"http://{handle.get('host', self._host.url_host)}:{port}", "port": port}
            for name, port in handle["ports"].items()
        ]
        [agent_url] = [url["url"] for url in urls if url["name"] == "AGENT_SERVER"]
        if not self._endings.report(sandbox, "", handle=handle, urls=urls, agent_url=agent_url, **folders_of(handle)):
            runtime.stop(handle)
            raise RuntimeCallFailed(
                "It was started here, but now belongs to another supervisor or to none: it was ended"
            )
        return replace(sandbox, handle=handle, urls=urls, agent_url=agent_url)

    def _folder(self, runtime: Runtime) -> str:
        return self._host.folder if runtime.in_folder else ""

    def send_log(self, sandbox: Sandbox, tail: int, reply: str) -> None:
        """Reply to a worker's request for the log of a sandbox."""
        text = self._runtimes[sandbox.handle["runtime"]].logs(_handle(sandbox), tail) if sandbox.handle else ""
        self._store.sandboxes.send_log(reply, self._store.masks.in_sandbox(sandbox.id).text(text, is_output=True))


def _failed_return(back: Mapping[str, Any], failure: object) -> dict[str, str]:
    """Return a sandbox's record of a failed return."""
    return {"id": back["id"], "failed": one_line(str(failure))}


def _idle_pause(sandbox: Sandbox, spec: Spec) -> float:
    """Return the idle time in seconds after which a sandbox is paused; 0: never."""
    return spec.idle_pause_seconds or (IDLE_PAUSE if sandbox.gives_way else 0.0)


def _unreadable(sandbox: Sandbox) -> str | None:
    """Return why this supervisor cannot read the key of the sandbox's agent server; None if it can."""
    try:
        sandbox.session_api_key  # noqa: B018 - opens it
    except KeyUnreadable as error:
        return str(error)
    return None


def _handle(sandbox: Sandbox) -> Handle:
    assert sandbox.handle is not None
    return Handle(sandbox.handle)


class _Sample(NamedTuple):
    start: int  #: start number of the sandbox's processes
    at: float
    cpu_seconds: float | None
    number: int  #: measurements since that start


class UsageMeter:
    """Measures processor and memory use. Threads may use it for different sandboxes at the same time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: in seconds."""
        self._clock = clock
        self._samples: dict[SandboxId, _Sample] = {}

    def measure(self, sandbox: Sandbox, runtime: Runtime, idle_pause: float = 0) -> dict[str, Any]:
        """Return the changed fields of a running sandbox; empty between two measurements, or if little has changed.

        A sandbox that keeps BUSY_CORES busy, or with connections to its other ports, is in use: the fields have its
        `active_at`. Processor time needs two measurements after a start. idle_pause: idle time in seconds after which a
        sandbox is paused; it covers at least two measurements. 0: never.
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
        """Return whether a sandbox was measured twice since its start. Before that its processor use is unknown."""
        sample = self._samples.get(sandbox.id)
        return sample is not None and sample.start == sandbox.start and sample.number > 1

    def _forget(self, now: float) -> None:
        for sandbox_id, sample in list(self._samples.items()):
            if now > sample.at + _FORGET:
                self._samples.pop(sandbox_id, None)


class _Disk(NamedTuple):
    """A measurement of a sandbox's files."""

    at: float  #: when it ended
    rest: float  #: minimum pause after it, in seconds
    used: int | None
    occupied: int | None  #: bytes in use on the whole file system
    again: float  #: seconds until the next measurement
    is_whole: bool  #: all files could be measured


class DiskMeter:
    """Measures the files of sandboxes. Threads may use it for different sandboxes at the same time.

    A measurement runs every minute, and early if the file system grows by the sandbox's remaining quota. Only a walk of
    the files shows whose bytes these are.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """clock: in seconds."""
        self._clock = clock
        self._last: dict[SandboxId, _Disk] = {}

    def is_due(self, sandbox: Sandbox, runtime: Runtime, limit: int | None) -> bool:
        """Return whether a sandbox's files should be measured. limit: their quota in bytes."""
        now, last = self._clock(), self._last.get(sandbox.id)
        if last is None or now >= last.at + last.again:
            return True
        if not limit or now < last.at + max(_MEASURE_AGAIN, last.rest) or last.used is None or last.occupied is None:
            return False
        room = limit - last.used if last.used <= limit else limit  # above it, a sandbox has a minute to remove files
        occupied = runtime.occupied_bytes(sandbox.id)
        return occupied is not None and occupied - last.occupied > max(room, limit // _GROWTH)

    def measure(self, sandbox: Sandbox, runtime: Runtime, limit: int | None) -> int | None:
        """Return the bytes of a sandbox's files, at most slightly above the limit; None if unknown.

        If only part of the files could be measured, return at least the last known size, and measure again soon.
        """
        begun, occupied, last = self._clock(), runtime.occupied_bytes(sandbox.id), self._last.get(sandbox.id)
        again, is_whole = MEASURE_DISK, True
        try:
            used = runtime.disk_bytes(sandbox.id, limit)
        except PartlyMeasured as partly:
            used = max(partly.least, sandbox.disk_bytes or 0)
            again = _MEASURE_AGAIN if last is None or last.is_whole else min(2 * last.again, MEASURE_DISK)
            is_whole = False
        now = self._clock()
        rest = _REST * (now - begun)
        recent = {one: disk for one, disk in self._last.items() if now < disk.at + disk.again + MEASURE_DISK}
        self._last = recent | {sandbox.id: _Disk(now, rest, used, occupied, max(again, rest), is_whole)}
        return used


def _differs(noted: float | None, used: float | None, step: float) -> bool:
    if noted is None or used is None:
        return noted is not used
    return abs(used - noted) > max(step, _PART * noted)
