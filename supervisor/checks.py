"""Compares conversations with their running agents: the log and the status.

A conversation is due soon after every webhook and command (see `store/sandboxes/checks.py`), and repeatedly while it is
`running` or differs from its agent. So no conversation stays `running` forever: neither after an unreported end of the
run, nor in a sandbox that is frozen, has failed or lost its host.

Guarantee: a difference counts only if two comparisons found it, because a webhook may be in flight. Otherwise a
comparison only asks for the number of events while the agent posts, and also for the status after it stops posting.

Cost: at most MOST_CHECKS comparisons at once, MOST_OF_ONE of them with one sandbox, and _MOST_PAGES pages of an agent's
log in a comparison.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from uuid import uuid4

import httpx

from agents.client import AgentRefused, AgentServer, AgentUnreachable
from core import wire
from runtimes import Handle, Runtime, RuntimeCallFailed
from store import Store
from store.errors import UNAVAILABLE, ConversationNotFound, KeyUnreadable, LogDamaged, NotItsSandbox, NotStartedHere
from store.link.attempts import Stamp
from store.sandboxes.checks import Check
from store.sandboxes.sandboxes import Sandbox
from supervisor.agent_log import Comparison
from supervisor.deliveries import tell
from supervisor.endings import Settlement
from supervisor.presence import Silences, in_thread

log = logging.getLogger("supervisor")

#: Maximum number of concurrent comparisons of a supervisor, and of a sandbox, whose agent may be slow.
MOST_CHECKS, MOST_OF_ONE = 16, 4

#: Lease of a comparison, longer than any comparison, and interval between two comparisons of a conversation, in
#: seconds.
_LEASE, _AGAIN = 60.0, 3.0

#: Time in seconds after which runs of a silent agent server are shown as paused, and interval between retries then.
_SILENT, _SILENT_AGAIN = 60.0, 10.0

#: Codes of the events that report a silent agent server, and the end of comparisons. Source: docs/wire.md, 11.
SILENT, NOT_COMPARED = "AgentServerSilent", "LogNotCompared"

#: Consecutive comparisons of a conversation that fail with a bug of ours, after which they are given up.
MOST_FAILED = 3


class Checker:
    """The comparisons of a host. Its threads end with the process; their comparisons are due when the lease expires."""

    def __init__(self, store: Store, client: httpx.Client, runtimes: Mapping[str, Runtime], host: str) -> None:
        """client: for the agent servers. runtimes: by their names in specs."""
        self._store = store
        self._client = client
        self._runtimes = runtimes
        self._host = host
        self._busy: dict[str, str] = {}  #: entries in a thread → their sandboxes
        self._failed: dict[str, int] = {}  #: entries whose last comparisons failed → number of failures
        # Time between two attempts: their interval, and the timeouts of the requests.
        self._silences = Silences(_SILENT_AGAIN + 3 * (client.timeout.read or 0.0))  #: silent agent servers, by entry

    def check_due(self) -> None:
        """Give due comparisons to threads, at most MOST_CHECKS at once. Those beyond MOST_OF_ONE are postponed."""
        room = MOST_CHECKS - len(self._busy)
        for check in self._store.sandboxes.checks.claim(self._host, _LEASE, room) if room else ():
            if check.entry in self._busy:
                continue
            if list(self._busy.values()).count(check.sandbox_id) >= MOST_OF_ONE:
                self._store.sandboxes.checks.close(check, again_in=_AGAIN)
            else:
                self._busy[check.entry] = check.sandbox_id
                in_thread(self._drive, check, name="check", undo=partial(self._busy.pop, check.entry))

    def adopt(self) -> None:
        """Request a comparison of every conversation on this host, because its agents worked without a supervisor."""
        for sandbox in self._store.sandboxes.of_host(self._host):
            self._store.sandboxes.checks.require(sandbox.id)

    def _drive(self, check: Check) -> None:
        try:
            again_in = self.check(check)
            if again_in is None:
                self._silences.ended(check.entry)
            self._store.sandboxes.checks.close(check, again_in=again_in)
            self._failed.pop(check.entry, None)
        except UNAVAILABLE as error:
            log.warning("the store does not answer: %s", error)
        except Exception as error:
            self._fail(check, error)
        finally:
            self._busy.pop(check.entry, None)

    def _fail(self, check: Check, error: Exception) -> None:
        """Leave a comparison that failed with a bug until its lease expires.

        After MOST_FAILED failures it is given up until the next activity in the conversation, whose log reports that.
        """
        log.exception("the comparison of conversation %s failed", check.conversation_id)
        self._failed[check.entry] = failed = self._failed.get(check.entry, 0) + 1
        if failed < MOST_FAILED:
            return
        del self._failed[check.entry]
        detail = f"The agent server's log is not compared with this one any more: unforeseen {type(error).__name__}"
        log.error("conversation %s: %s", check.conversation_id, detail)
        with suppress(*UNAVAILABLE):
            tell(self._store, check.conversation_id, check.sandbox_id, str(uuid4()), NOT_COMPARED, detail)
            self._store.sandboxes.checks.close(check, again_in=None)

    def check(self, check: Check) -> float | None:
        """Compare a conversation, and return the seconds until the next comparison; None: after the next activity."""
        [state] = self._store.conversations.get_many([check.conversation_id])
        [sandbox] = self._store.sandboxes.get_many([check.sandbox_id])
        if state is None or sandbox is None or state.get("sandbox_id") != sandbox.id:
            return None
        runs = state["execution_status"] == "running"
        if sandbox.status == "STARTING":  # the reconciler settles it first
            return _AGAIN
        try:
            agent = AgentServer(self._client, sandbox.agent_url, sandbox.session_api_key)
            if sandbox.status != "RUNNING" and not (sandbox.status == "MISSING" and agent.is_alive()):
                if runs:
                    self._pause(check, {})
                return None
            return self._compare(check, sandbox, agent, runs=runs)
        except (ConversationNotFound, LogDamaged, NotItsSandbox, NotStartedHere):
            return None
        except KeyUnreadable:  # the reconciler ends it
            return _AGAIN

    def _compare(self, check: Check, sandbox: Sandbox, agent: AgentServer, *, runs: bool) -> float | None:
        comparison = Comparison(self._store, agent, check)
        try:
            again = comparison.compare()
        except AgentRefused as refusal:
            if refusal.status == 404 and runs and comparison.is_forgotten():
                Settlement(self._store, sandbox, agent, check.conversation_id).forget()
                return None
            return _AGAIN if runs else None
        except AgentUnreachable:
            return self._unanswered(check, sandbox, agent, runs=runs)
        self._silences.ended(check.entry)
        return again

    def _unanswered(self, check: Check, sandbox: Sandbox, agent: AgentServer, *, runs: bool) -> float:
        """Resume an agent server that was stopped from outside. After a timeout, show its runs as suspended."""
        if agent.is_alive():  # the agent server is busy
            self._silences.ended(check.entry)
            return _AGAIN
        if sandbox.host == self._host and sandbox.handle:
            with suppress(RuntimeCallFailed):
                self._runtimes[sandbox.handle["runtime"]].resume(Handle(sandbox.handle))
        if self._silences.found(check.entry, sandbox.seen_at) < _SILENT:
            return _AGAIN
        if runs:
            detail = f"The agent server has not answered for {_SILENT:g} s. It runs again when it answers"
            self._pause(check, {"code": SILENT, "detail": detail})
        return _SILENT_AGAIN

    def _pause(self, check: Check, error: dict[str, str]) -> None:
        """Show a run as paused because its agent is suspended or has ended. It is shown as running if it resumes."""
        stamp = Stamp(wire.now(), str(uuid4())[:24])
        self._store.conversations.interrupt(check.conversation_id, check.sandbox_id, stamp, error)
