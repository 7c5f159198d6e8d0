"""The files of a sandbox. `_sync_files.py` is made from it."""

import asyncio
import posixpath
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import httpx

from agent_server_client.archives import unpack
from agent_server_client.errors import AgentServerError

if TYPE_CHECKING:
    from agent_server_client._async import AsyncConversation


#: Paths in a sandbox, and of this machine. `list` is a method below.
_Names: TypeAlias = list[str]
_Written: TypeAlias = list[Path]


class AsyncFiles:
    """The files of a conversation's sandbox. Paths are relative to its folder."""

    def __init__(self, conversation: "AsyncConversation") -> None:
        self._client, self._id = conversation.client, conversation.id

    async def list(self, path: str = ".") -> _Names:
        """Return the paths of its files, at most 2,000."""
        names: _Names = await self._client.get(f"/api/v1/app-conversations/{self._id}/files", path=path)
        return names

    async def read(self, path: str) -> str:
        """Return the text of a file. Raises AgentServerError (404) if it does not exist."""
        text: str = await self._client.get(f"/api/v1/app-conversations/{self._id}/file", file_path=path)
        return text

    async def download(self, path: str = "", to: Path | str = Path()) -> _Written:
        """Download a file, or the files of a folder, to this machine, and return their paths (see archives.unpack)."""
        sandbox = await self._client.conversation(self._id).sandbox()
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "files.tar.zst"
            try:
                async with self._client._http.stream("GET", f"/api/v1/sandboxes/{sandbox.id}/archive") as sent:
                    if sent.is_error:
                        await sent.aread()
                        raise AgentServerError.of(sent)
                    with archive.open("wb") as file:
                        async for piece in sent.aiter_bytes():
                            file.write(piece)
            except httpx.TransportError as error:
                raise self._client._unreachable(error) from error
            return await asyncio.to_thread(unpack, archive, path, Path(to))

    async def _folder(self) -> str:
        """Return the absolute path of the folder in the sandbox, which uploads need."""
        conversation = self._client.conversation(self._id)
        workspace = (await conversation.info()).get("workspace")
        folder = str(workspace.get("working_dir") or "") if isinstance(workspace, dict) else ""
        if folder.startswith("/"):
            return folder
        return "".join([piece.stdout async for piece in conversation.execute("pwd")]).strip()

    async def upload(self, file: Path | str, path: str = "") -> None:
        """Upload a file of this machine into the sandbox. path defaults to its name.

        Raises AgentServerError if the agent accepts no files.
        """
        file = Path(file)
        with file.open("rb") as content:
            await self._put(content, path or file.name)

    async def write(self, path: str, text: str | bytes) -> None:
        """Write a text as a file of the sandbox. Raises the errors of `upload`."""
        await self._put(text.encode() if isinstance(text, str) else text, path)

    async def _put(self, content: IO[bytes] | bytes, path: str) -> None:
        place = posixpath.normpath(posixpath.join(await self._folder(), path))
        options: dict[str, Any] = {"params": {"path": place}, "files": {"file": (posixpath.basename(path), content)}}
        await self._client.request("POST", f"/api/conversations/{self._id}/file/upload", again=False, **options)
