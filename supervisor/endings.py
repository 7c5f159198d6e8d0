"""How the processes of a sandbox end, and what follows: a restart, PAUSED, ERROR, or its deletion."""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from core.cuts import last_lines
from core.wire import plain
from runtimes import Handle, Observation, Runtime, RuntimeFailure
from settings.specs import Spec
from store import Store
from store.sandboxes.sandboxes import LONGEST_RESTART, Sandbox
from supervisor.settlement import Recovery
from telemetry import traces

log = logging.getLogger("supervisor")

#: last lines of a log: in the detail of a sandbox whose processes ended, and kept as its log
_DETAIL_LINES, _KEPT_LINES = 20, 1000

#: seconds in which the crashes of a sandbox are counted; seconds before its first restart
_CRASH_SPAN, _FIRST_RESTART = 600.0, 0.5

#: codes of the events by which a conversation learns that its agent server ended. Source: docs/wire.md
RESTARTED, ENDED = "AgentServerRestarted", "AgentServerEnded"

#: what a sandbox without processes has, and what one can do: one that rests, and one that failed
KEPT = "its processes have ended, its files are kept, and it starts again when it is used or resumed"
RESUMABLE = "Its files are kept: a resume starts it again"


@dataclass(frozen=True)
class Host:
    """The settings of a host for its sandboxes. Times are in seconds."""

    id: str
    supervisor: str  #: the holder of its lease
    url_host: str
    webhook_base_url: str
    start_seconds: float
    allowed_origins: tuple[str, ...] = ()  #: of web pages that may use the agent servers
    folder: str = ""  #: id of the folder that its sandboxes' files are in, where their runtime has them there

    def lacks(self, sandbox: Sandbox) -> bool:
        """Whether another folder has a sandbox's files: that of an earlier supervisor of this host's name."""
        return sandbox.folder not in ("", self.folder)


class Endings:
    """Ends the processes of one sandbox per call. Any number of threads may use it, each for another sandbox."""

    def __init__(self, store: Store, runtimes: Mapping[str, Runtime], host: Host, recovery: Recovery) -> None:
        """runtimes: by their names in specs."""
        self._store = store
        self._runtimes = runtimes
        self._host = host
        self._recovery = recovery

    def over(self, sandbox: Sandbox, reason: str) -> None:
        """Stop a sandbox whose time is over; its conversations are told. Raises RuntimeFailure."""
        detail = f"{reason}: {KEPT}"
        self._recovery.interrupted(sandbox, ENDED, detail)
        self.stop(sandbox, detail)

    def settle(self, sandbox: Sandbox, spec: Spec, seen: Observation) -> None:
        """Decide what follows the end of a sandbox's processes that no client asked for."""
        how = seen.detail or "how is not known"
        if self.discarded(sandbox, f"The sandbox ended: {how}"):
            return
        if sandbox.wanted == "paused" or seen.by_order:
            text = self._cleared(sandbox, f"The sandbox ended: {how}")
            detail = f"Its processes ended ({how}): {KEPT}"
            self._stopped(sandbox, detail, text, resumes=sandbox.wanted == "running")
            return
        crashes = [at for at in sandbox.crashes if sandbox.seen_at - at < _CRASH_SPAN * 1e6]
        if sandbox.start <= 1 and sandbox.status == "STARTING":
            self.fail(sandbox, f"The sandbox ended: {how}. {RESUMABLE}")
        elif len(crashes) >= spec.restarts:
            times = f" It crashed {len(crashes) + 1} times in ten minutes." if crashes else ""
            self.fail(sandbox, f"The sandbox ended: {how}.{times} {RESUMABLE}")
        else:
            delay = min(_FIRST_RESTART * 2 ** len(crashes), LONGEST_RESTART)
            text = self._cleared(sandbox, f"The sandbox ended: {how}")
            reason = f"The sandbox ended: {how}. It is started again (restart {len(crashes) + 1} of {spec.restarts})"
            detail = f"{plain(reason)}\n{_tail(text)}".strip()
            self._recovery.interrupted(sandbox, RESTARTED, detail)
            log.warning("sandbox %s: %s", sandbox.id, reason)
            start_after = str(sandbox.seen_at + round(delay * 1e6))
            fields = {"crashes": [*crashes, sandbox.seen_at], "start_after": start_after, "starting_at": start_after}
            self._report(sandbox, "STARTING", detail=detail, log=text, handle=None, **fields)

    def stop(self, sandbox: Sandbox, detail: str, *, resumes: bool = False) -> None:
        """End the processes of a sandbox and keep its files; it is PAUSED until it is used. Raises RuntimeFailure."""
        self._stopped(sandbox, detail, self.clear(sandbox), resumes=resumes)

    def _stopped(self, sandbox: Sandbox, detail: str, text: str, *, resumes: bool) -> None:
        self._recovery.stopped(sandbox)
        self._store.sandboxes.stopped(sandbox, self._host.supervisor, plain(detail), log=text, resumes=resumes)

    def clear(self, sandbox: Sandbox) -> str:
        """End what is left of a sandbox's processes; the last lines that they printed, without the secrets there.

        Raises RuntimeFailure.
        """
        if sandbox.handle is None:
            return ""
        handle = Handle(sandbox.handle)
        runtime = self._runtimes[handle["runtime"]]
        text = runtime.logs(handle, _KEPT_LINES)
        runtime.stop(handle)
        text = runtime.logs(handle, _KEPT_LINES) or text  # a container takes its log with it
        return self._store.masks.in_sandbox(sandbox.id).text(text, is_output=True)

    def fail(self, sandbox: Sandbox, reason: str) -> None:
        """End a sandbox's processes, keep its files and the last lines of its log, and report why it failed.

        A sandbox that keeps its handle is not cleared away yet; a warm one is deleted instead. Raises RuntimeFailure.
        """
        if self.discarded(sandbox, reason):
            return
        log.warning("sandbox %s: %s", sandbox.id, reason)
        self._failed(sandbox, reason, self._cleared(sandbox, reason), handle=None)

    def _cleared(self, sandbox: Sandbox, reason: str) -> str:
        """As `clear`; a sandbox of whose processes it is not shown that they have ended is ERROR. Raises likewise."""
        try:
            return self.clear(sandbox)
        except Exception as failure:
            self._failed(sandbox, f"{reason}. What is left of it cannot be ended: {failure}", "")
            raise

    def _failed(self, sandbox: Sandbox, reason: str, text: str, **cleared: None) -> None:
        detail = f"{plain(reason)}\n{_tail(text)}".strip()
        self._report(sandbox, "ERROR", detail=detail, log=text, **cleared, **ended_start_fields(sandbox, "ERROR"))
        self._recovery.interrupted(sandbox, ENDED, detail)

    def discarded(self, sandbox: Sandbox, failure: str = "") -> bool:
        """Have a warm sandbox deleted that is not needed, or has failed; False if it is bound."""
        if not sandbox.warm or not self._store.sandboxes.warm.discard(sandbox.id, failed=bool(failure)):
            return False
        if failure:
            log.warning("warm sandbox %s: %s. Another one is started after a backoff", sandbox.id, failure)
        return True

    def remove(self, sandbox: Sandbox) -> None:
        """Delete a sandbox: first its processes and files, then its record. Raises RuntimeFailure."""
        if sandbox.runtime:
            self._runtimes[sandbox.runtime].remove(sandbox.id)
        self._report(sandbox, "GONE")

    def end_all(self) -> None:
        """End the processes of every sandbox of this host, all at once: each is PAUSED after that, a warm one gone."""
        ours = [one for one in self._store.sandboxes.of_host(self._host.id) if not self._host.lacks(one)]
        living = [one for one in ours if one.handle and one.status != "ERROR"]
        with ThreadPoolExecutor(max(1, len(living))) as pool:
            list(pool.map(self._end_with_supervisor, living))

    def _end_with_supervisor(self, sandbox: Sandbox) -> None:
        detail = f"It ended with its server: {KEPT}"
        try:
            if self.discarded(sandbox):
                self.remove(sandbox)
            else:
                self.stop(sandbox, detail, resumes=sandbox.wanted == "running")
        except Exception as error:  # the others are still to end
            trace = not isinstance(error, RuntimeFailure)
            log.warning("sandbox %s: %s", sandbox.id, error, exc_info=error if trace else None)

    def _report(self, sandbox: Sandbox, status: str, **fields: Any) -> bool:
        return report(self._store, self._host, sandbox, status, **fields)


def report(store: Store, host: Host, sandbox: Sandbox, status: str, **fields: Any) -> bool:
    """Report the observed state of a sandbox, as `Sandboxes.report`; its detail shows no secrets."""
    if detail := fields.get("detail"):
        fields["detail"] = store.masks.in_sandbox(sandbox.id).text(detail)
    return store.sandboxes.report(sandbox.id, host.id, host.supervisor, status, **fields)


def ended_start_fields(sandbox: Sandbox, error: str = "") -> dict[str, str]:
    """What a report has of a start that has ended: its trace, which gets a span of it, is not kept longer."""
    traces.note(sandbox.trace, "start_sandbox", {"agent_server.sandbox": sandbox.id}, sandbox.starting_at, error)
    return {"trace": ""} if sandbox.trace else {}


def _tail(text: str) -> str:
    return last_lines(plain(text), _DETAIL_LINES)
