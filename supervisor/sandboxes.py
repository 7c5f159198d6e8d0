"""Brings each sandbox of a host from its observed state to the desired one, a step at a time.

A step that fails is retried with backoff. A sandbox whose deletion fails is ERROR, with the reason as its detail, until
a retry succeeds: it is never reported as gone before its processes and its folder are.
"""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import httpx

from agents.link import AgentRefused, AgentServer, AgentUnreachable
from runtimes import Handle, Launch, Runtime, RuntimeFailure, State
from specs import Spec, Specs, unsupported
from store import Store
from store.errors import UNAVAILABLE
from store.sandboxes import Sandbox, SandboxId
from supervisor.archives import Archives
from supervisor.launches import launch
from wire import one_line, plain

log = logging.getLogger("supervisor")

#: last lines of a failed sandbox's log: in its detail, and kept as its log
_DETAIL_LINES, _KEPT_LINES = 20, 1000

#: seconds before the first retry of a step that failed, and most seconds between two: each wait is twice the one before
_SHORTEST_BACKOFF, LONGEST_BACKOFF = 1.0, 10.0


@dataclass(frozen=True)
class Host:
    """The settings of a host for its sandboxes. Times are in seconds."""

    id: str
    supervisor: str  #: who speaks for it, as in its lease
    url_host: str
    webhook_base_url: str
    start_seconds: float


class _Retry(NamedTuple):
    """A step that failed. at: the time of its retry, in seconds of the reconciler's clock."""

    wanted: str
    at: float
    backoff: float
    reason: str


class Reconciler:
    """Reconciles one sandbox per call. Any number of threads may use it, each for another sandbox."""

    def __init__(
        self,
        store: Store,
        specs: Specs,
        runtimes: Mapping[str, Runtime],
        host: Host,
        client: httpx.Client,
        archives: Archives,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """runtimes: by their names in specs. client: for the agent servers. clock: seconds, for backoff."""
        self._store = store
        self._specs = specs
        self._runtimes = runtimes
        self._host = host
        self._client = client
        self._archives = archives
        self._clock = clock
        self._retries: dict[SandboxId, _Retry] = {}

    def reconcile(self, sandbox: Sandbox) -> None:
        """Take the step that brings a sandbox to its desired state, and report the observed state.

        After a failure the call does nothing until the retry is due or a client asks for another state.
        Raises only UNAVAILABLE.
        """
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
        trace = is_new and not isinstance(error, RuntimeFailure)
        log.warning("sandbox %s: %s; retry in %g s", sandbox.id, error, backoff, exc_info=error if trace else None)
        # A sandbox that was deleted meanwhile is never reconciled again: a retry that is long overdue is dropped.
        known = [(key, retry) for key, retry in list(self._retries.items()) if now - retry.at < 10 * LONGEST_BACKOFF]
        self._retries = dict(known) | {sandbox.id: _Retry(sandbox.wanted, now + backoff, backoff, reason)}

    def _report_failure(self, sandbox: Sandbox, reason: str) -> None:
        """Report ERROR for a deletion that fails, and for a start that left nothing; other statuses are still true."""
        if sandbox.wanted == "deleted":
            self._report(sandbox, "ERROR", detail=f"Its deletion fails and is retried: {reason}")
        elif sandbox.status == "STARTING" and sandbox.handle is None:
            self._report(sandbox, "ERROR", detail=reason)

    def _reconcile(self, sandbox: Sandbox) -> None:
        if sandbox.wanted == "deleted":
            if self._archives.stopped(sandbox.id):
                self._end(sandbox)
            return
        if sandbox.status == "ERROR":
            if sandbox.handle is not None:  # it could not be cleared away when it failed
                self._runtime_of(sandbox).stop(_handle(sandbox))
                self._report(sandbox, "", handle=None)
            return
        spec = self._specs.find(sandbox.spec_id)
        if spec is None:
            self._fail(sandbox, f"There is no spec {sandbox.spec_id} on host {self._host.id}")
            return
        if reason := unsupported(spec.runtime):
            self._fail(sandbox, reason)
            return
        runtime = self._runtimes[spec.runtime]
        if sandbox.handle is None:
            order = launch(sandbox, spec, self._host.webhook_base_url)
            if sandbox.source is not None:
                if not self._archives.fill(sandbox, order, runtime):
                    return
                sandbox = replace(sandbox, starting_at=sandbox.seen_at)  # the time of the fill is not its start's
            sandbox = self._start(sandbox, order, runtime)
        handle = _handle(sandbox)
        seen = runtime.observe(handle)
        if seen.state is State.GONE:
            self._fail(sandbox, f"The sandbox ended: {seen.detail or 'how is not known'}")
        elif sandbox.wanted == "paused":
            if seen.state is not State.PAUSED:
                runtime.pause(handle)
            if sandbox.status != "PAUSED":
                self._report(sandbox, "PAUSED", detail="")
        else:
            if seen.state is State.PAUSED:
                runtime.resume(handle)
            self._care_for(sandbox, spec)

    def _care_for(self, sandbox: Sandbox, spec: Spec) -> None:
        """Check a sandbox that should run: whether its agent server responds, and whether its time is over."""
        now = sandbox.seen_at
        if sandbox.status in ("STARTING", "MISSING"):
            if self._agent(sandbox).is_alive():
                self._report(sandbox, "RUNNING", detail="")
            elif now - sandbox.starting_at > self._host.start_seconds * 1e6:
                self._fail(sandbox, f"Its agent server did not answer within {self._host.start_seconds:g} s")
        elif spec.max_seconds and now - sandbox.created_at > spec.max_seconds * 1e6:
            self._fail(sandbox, f"Its {spec.max_seconds:g} s are over")
        elif spec.idle_pause_seconds and now - sandbox.active_at > spec.idle_pause_seconds * 1e6:
            self._pause_if_idle(sandbox, spec)

    def _pause_if_idle(self, sandbox: Sandbox, spec: Spec) -> None:
        """Pause the sandbox unless an agent runs in it, or its agent server was used by a client of its own."""
        try:
            idle = self._agent(sandbox).idle_seconds()
        except (AgentUnreachable, AgentRefused):
            idle = None
        if self._store.app_conversations.runs_in(sandbox.id) or (idle is not None and idle < spec.idle_pause_seconds):
            self._report(sandbox, "", active_at=str(sandbox.seen_at - round((idle or 0) * 1e6)))
        else:
            self._store.sandboxes.ask(sandbox.id, "pause")

    def _agent(self, sandbox: Sandbox) -> AgentServer:
        return AgentServer(self._client, sandbox.agent_url, sandbox.session_api_key)

    def _start(self, sandbox: Sandbox, order: Launch, runtime: Runtime) -> Sandbox:
        """Start it, and store how it is reached. Raises RuntimeFailure, also of one that is no longer this host's."""
        handle = runtime.start(order)
        urls = [
            {"name": name, "url": f"http://{self._host.url_host}:{port}", "port": port}
            for name, port in handle["ports"].items()
        ]
        [agent_url] = [url["url"] for url in urls if url["name"] == "AGENT_SERVER"]
        starting_at = str(sandbox.starting_at)
        if not self._report(sandbox, "", handle=handle, urls=urls, agent_url=agent_url, starting_at=starting_at):
            runtime.stop(handle)
            raise RuntimeFailure("It was started here and is another supervisor's by now, or nobody's: it is ended")
        return replace(sandbox, handle=handle, urls=urls, agent_url=agent_url)

    def _fail(self, sandbox: Sandbox, reason: str) -> None:
        """Keep the last lines of the sandbox's log, end its processes, and report why it failed.

        A sandbox that keeps its handle is not cleared away yet. Raises RuntimeFailure.
        """
        log.warning("sandbox %s: %s", sandbox.id, reason)
        text, cleared = "", {}
        try:
            if sandbox.handle is not None:
                runtime, handle = self._runtime_of(sandbox), _handle(sandbox)
                text = runtime.logs(handle, _KEPT_LINES)
                runtime.stop(handle)
                cleared = {"handle": None}
        finally:
            last = "\n".join(plain(text).splitlines()[-_DETAIL_LINES:])
            self._report(sandbox, "ERROR", detail=f"{plain(reason)}\n{last}".strip(), log=text, **cleared)

    def _end(self, sandbox: Sandbox) -> None:
        """Delete a sandbox: first its processes and folder, then its record. Raises RuntimeFailure."""
        if sandbox.handle is not None:
            self._runtime_of(sandbox).stop(_handle(sandbox))
        else:  # a supervisor may have died after the start and before it stored the handle
            for runtime in self._runtimes.values():
                for handle in runtime.known():
                    if handle["sandbox_id"] == sandbox.id:
                        runtime.stop(handle)
        self._report(sandbox, "GONE")

    def end_unknown(self) -> None:
        """End what runs here and is no sandbox of this host in the store. The next call retries a failure."""
        for runtime in self._runtimes.values():
            for handle in runtime.known():
                identity = SandboxId(handle["sandbox_id"])
                [sandbox] = self._store.sandboxes.get_many([identity])
                if sandbox is None or sandbox.host != self._host.id:
                    log.warning("sandbox %s is unknown to the store: it is ended", identity)
                    _attempt(runtime, handle)

    def end_all(self) -> None:
        """End every sandbox of this host, all at once; each is MISSING after that."""
        living = [one for one in self._store.sandboxes.of_host(self._host.id) if one.handle and one.status != "ERROR"]
        with ThreadPoolExecutor(max(1, len(living))) as pool:
            list(pool.map(self._end_with_supervisor, living))

    def _end_with_supervisor(self, sandbox: Sandbox) -> None:
        if _attempt(self._runtime_of(sandbox), _handle(sandbox)):
            self._report(sandbox, "MISSING", detail="It ended with its supervisor")

    def _runtime_of(self, sandbox: Sandbox) -> Runtime:
        assert sandbox.handle is not None
        return self._runtimes[sandbox.handle["runtime"]]

    def _report(self, sandbox: Sandbox, status: str, **fields: Any) -> bool:
        return self._store.sandboxes.report(sandbox.id, self._host.id, self._host.supervisor, status, **fields)

    def send_log(self, sandbox_id: SandboxId, tail: int, reply: str) -> None:
        """Reply to a worker's request for the log of a sandbox, if the sandbox is this host's."""
        [sandbox] = self._store.sandboxes.get_many([sandbox_id])
        if sandbox is None or sandbox.host != self._host.id:
            return
        text = self._runtime_of(sandbox).logs(_handle(sandbox), tail) if sandbox.handle else ""
        self._store.sandboxes.send_log(reply, text)


def _attempt(runtime: Runtime, handle: Handle) -> bool:
    """Stop a sandbox; True if it ended. A failure is logged."""
    try:
        runtime.stop(handle)
    except Exception as error:
        trace = not isinstance(error, RuntimeFailure)
        log.warning("sandbox %s: %s", handle["sandbox_id"], error, exc_info=error if trace else None)
        return False
    return True


def _handle(sandbox: Sandbox) -> Handle:
    assert sandbox.handle is not None
    return Handle(sandbox.handle)
