"""How the processes of a sandbox end, and what follows: a restart, PAUSED, ERROR, or its deletion."""

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from runtimes import Handle, Observation, Runtime, RuntimeFailure
from specs import Spec
from store import Store
from store.link import traces
from store.sandboxes.sandbox_record import Sandbox
from supervisor.recovery import Recovery
from wire import plain

log = logging.getLogger("supervisor")

#: last lines of a log: in the detail of a sandbox whose processes ended, and kept as its log
_DETAIL_LINES, _KEPT_LINES = 20, 1000

#: seconds in which the crashes of a sandbox are counted; seconds before its first restart, and at most before any
_CRASH_SPAN, _FIRST_RESTART, _LONGEST_RESTART = 600.0, 0.5, 30.0

#: codes of the events by which a conversation learns that its agent server ended. Source: docs/wire.md
RESTARTED, ENDED = "AgentServerRestarted", "AgentServerEnded"

#: what a sandbox without processes has, and what one can do: one that rests, and one that failed
KEPT = "its processes have ended, its files are kept, and it starts again when it is used or resumed"
OLDER = "An older release of this server started it, whose keys no webhook may bear any more"
RESUMABLE = "Its files are kept: a resume starts it again"


@dataclass(frozen=True)
class Host:
    """The settings of a host for its sandboxes. Times are in seconds."""

    id: str
    supervisor: str  #: who speaks for it, as in its lease
    url_host: str
    webhook_base_url: str
    start_seconds: float
    allowed_origins: tuple[str, ...] = ()  #: of web pages that may use the agent servers


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
            self.stop(sandbox, f"Its processes ended ({how}): {KEPT}", resumes=sandbox.wanted == "running")
            return
        crashes = [at for at in sandbox.crashes if sandbox.seen_at - at < _CRASH_SPAN * 1e6]
        if sandbox.start <= 1 and sandbox.status == "STARTING":
            self.fail(sandbox, f"The sandbox ended: {how}. {RESUMABLE}")
        elif len(crashes) >= spec.restarts:
            times = f" It crashed {len(crashes) + 1} times in ten minutes." if crashes else ""
            self.fail(sandbox, f"The sandbox ended: {how}.{times} {RESUMABLE}")
        else:
            delay = min(_FIRST_RESTART * 2 ** len(crashes), _LONGEST_RESTART)
            text = self.clear(sandbox)
            reason = f"The sandbox ended: {how}. It is started again (restart {len(crashes) + 1} of {spec.restarts})"
            detail = f"{plain(reason)}\n{_tail(text)}".strip()
            self._recovery.interrupted(sandbox, RESTARTED, detail)
            log.warning("sandbox %s: %s", sandbox.id, reason)
            start_after = str(sandbox.seen_at + round(delay * 1e6))
            fields = {"crashes": [*crashes, sandbox.seen_at], "start_after": start_after, "starting_at": start_after}
            self._report(sandbox, "STARTING", detail=detail, log=text, handle=None, **fields)

    def renew(self, sandbox: Sandbox) -> None:
        """End the processes that an older release started with one key for everything; a wanted one starts again.

        Raises RuntimeFailure.
        """
        if sandbox.wanted == "paused":
            self.stop(sandbox, f"{OLDER}: {KEPT}")
            return
        text = self.clear(sandbox)
        detail = f"{OLDER}. It is started again"
        self._recovery.interrupted(sandbox, RESTARTED, detail)
        log.warning("sandbox %s: %s", sandbox.id, detail)
        starting_at = str(sandbox.seen_at)
        self._report(sandbox, "STARTING", detail=detail, log=text, handle=None, starting_at=starting_at)

    def stop(self, sandbox: Sandbox, detail: str, *, resumes: bool = False) -> None:
        """End the processes of a sandbox and keep its files; it is PAUSED until it is used. Raises RuntimeFailure."""
        text = self.clear(sandbox)
        self._recovery.stopped(sandbox)
        self._store.sandboxes.stopped(sandbox, self._host.supervisor, plain(detail), log=text, resumes=resumes)

    def clear(self, sandbox: Sandbox) -> str:
        """End what is left of a sandbox's processes; the last lines that they printed. Raises RuntimeFailure."""
        if sandbox.handle is None:
            return ""
        handle = Handle(sandbox.handle)
        runtime = self._runtimes[handle["runtime"]]
        text = runtime.logs(handle, _KEPT_LINES)
        runtime.stop(handle)
        return runtime.logs(handle, _KEPT_LINES) or text  # a container takes its log with it

    def fail(self, sandbox: Sandbox, reason: str) -> None:
        """End a sandbox's processes, keep its files and the last lines of its log, and report why it failed.

        A sandbox that keeps its handle is not cleared away yet; a warm one is deleted instead. Raises RuntimeFailure.
        """
        if self.discarded(sandbox, reason):
            return
        log.warning("sandbox %s: %s", sandbox.id, reason)
        text, cleared = "", {}
        try:
            text = self.clear(sandbox)
            cleared = {"handle": None}
        finally:
            detail = f"{plain(reason)}\n{_tail(text)}".strip()
            self._report(sandbox, "ERROR", detail=detail, log=text, **cleared, **told_start(sandbox, "ERROR"))
            self._recovery.interrupted(sandbox, ENDED, detail)

    def discarded(self, sandbox: Sandbox, failure: str = "") -> bool:
        """Have a warm sandbox deleted that is not needed, or has failed; False if it is bound."""
        if not sandbox.warm or not self._store.warm.discard(sandbox.id, failed=bool(failure)):
            return False
        if failure:
            log.warning("warm sandbox %s: %s. Another one is started after a backoff", sandbox.id, failure)
        return True

    def remove(self, sandbox: Sandbox) -> None:
        """Delete a sandbox: first its processes and files, then its record. Raises RuntimeFailure."""
        if name := sandbox.runtime or (sandbox.handle or {}).get("runtime"):  # a handle: started by an older release
            self._runtimes[name].remove(sandbox.id)
        self._report(sandbox, "GONE")

    def end_all(self) -> None:
        """End the processes of every sandbox of this host, all at once: each is PAUSED after that, a warm one gone."""
        living = [one for one in self._store.sandboxes.of_host(self._host.id) if one.handle and one.status != "ERROR"]
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
        return self._store.sandboxes.report(sandbox.id, self._host.id, self._host.supervisor, status, **fields)


def told_start(sandbox: Sandbox, error: str = "") -> dict[str, str]:
    """What a report has of a start that has ended: its trace, which gets a span of it, is not kept longer."""
    traces.note(sandbox.trace, "start_sandbox", {"agent_server.sandbox": sandbox.id}, sandbox.starting_at, error)
    return {"trace": ""} if sandbox.trace else {}


def _tail(text: str) -> str:
    return "\n".join(plain(text).splitlines()[-_DETAIL_LINES:])
