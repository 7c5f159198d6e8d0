"""A sandbox, by its id. `_sync_sandboxes.py` is made from it."""

from typing import TYPE_CHECKING
from urllib.parse import quote

from agent_server_client.errors import AgentServerError
from agent_server_client.models import SandboxInfo

if TYPE_CHECKING:
    from agent_server_client._async import AsyncClient


class AsyncSandbox:
    """A sandbox: the machine that conversations run in. A pause keeps its files."""

    def __init__(self, client: "AsyncClient", sandbox_id: str) -> None:
        self.client = client
        self.id = sandbox_id  #: a name from the server
        self._path = f"/api/v1/sandboxes/{quote(sandbox_id, safe='')}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    async def info(self) -> SandboxInfo:
        """Return its state. Raises AgentServerError (404) if it was deleted."""
        [found] = await self.client.get("/api/v1/sandboxes", id=self.id)
        if found is None:
            raise AgentServerError(
                404,
                f"There is no sandbox {self.id}. It was deleted, or never existed. `sandboxes()` lists all that exist",
            )
        info: SandboxInfo = found
        return info

    async def status(self) -> str:
        """Return its current status: STARTING, RUNNING, PAUSED, ERROR or MISSING."""
        return (await self.info()).status

    async def pause(self) -> None:
        """Stop it, and keep its files. It takes no place, and a message wakes it."""
        await self.client.post(f"{self._path}/pause")

    async def resume(self) -> None:
        """Start it again. Raises AgentServerError (429) if there is no place."""
        await self.client.post(f"{self._path}/resume")

    async def delete(self) -> None:
        """Delete it with its files. Needs an admin's key. Its conversations stay readable."""
        await self.client.request("DELETE", self._path)
