"""A sandbox, by its id. Made by docs/make.py from `_async_sandboxes.py`."""

from typing import TYPE_CHECKING
from urllib.parse import quote

from agent_server_client.errors import AgentServerError
from agent_server_client.models import SandboxInfo

if TYPE_CHECKING:
    from agent_server_client._sync import Client


class Sandbox:
    """A sandbox, by its id: the machine that conversations run in. Its files stay while it is paused."""

    def __init__(self, client: "Client", sandbox_id: str) -> None:
        self.client = client
        self.id = sandbox_id  #: a name that the server gave
        self._path = f"/api/v1/sandboxes/{quote(sandbox_id, safe='')}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def info(self) -> SandboxInfo:
        """Its state. Raises AgentServerError (404) where it is gone."""
        [found] = self.client.get("/api/v1/sandboxes", id=self.id)
        if found is None:
            raise AgentServerError(
                404, f"There is no sandbox {self.id}: it was deleted, or never there. `sandboxes()` has those that are"
            )
        info: SandboxInfo = found
        return info

    def status(self) -> str:
        """Its status now: STARTING, RUNNING, PAUSED, ERROR or MISSING."""
        return (self.info()).status

    def pause(self) -> None:
        """Stop it, and keep its files: it takes no place, and a message wakes it."""
        self.client.post(f"{self._path}/pause")

    def resume(self) -> None:
        """Let it run again. Raises AgentServerError (429) where there is no place."""
        self.client.post(f"{self._path}/resume")

    def delete(self) -> None:
        """Delete it with its files, for an admin. Its conversations stay readable."""
        self.client.request("DELETE", self._path)
