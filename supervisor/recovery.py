"""Placeholder of the merge."""

from agents.link import AgentServer
from store.sandbox_record import Sandbox


class Recovery:
    def interrupted(self, sandbox: Sandbox, code: str, detail: str) -> None: ...

    def rested(self, sandbox: Sandbox) -> None: ...

    def settle(self, sandbox: Sandbox, agent: AgentServer, *, resume_runs: bool) -> None: ...
