"""Paths of clients in the folder that they asked for, and the folder of the sandbox that stands for it.

A client may name any absolute folder as the `working_dir` of a conversation, such as one of its own host. The sandbox
has another one for it, so a path in the folder that was asked for means the same place in the sandbox's.
"""

import json
from typing import Any, NamedTuple

from store import Store
from store.conversations.app_conversations import app_filter
from store.sandboxes.sandbox_record import SandboxId
from wire import InvalidJson, parse_json

#: members of a JSON body that are paths
_PATHS = ("cwd", "path")

#: conversations that are asked for their folder
_MOST = 100


class Folder(NamedTuple):
    """The folder of a conversation; both are absolute paths, empty where unknown."""

    asked: str = ""
    real: str = ""

    @classmethod
    def of(cls, state: dict[str, Any]) -> "Folder":
        """Of a conversation's state."""
        asked, workspace = state["info"].get("asked_dir"), state["info"].get("workspace")
        real = workspace.get("working_dir") if isinstance(workspace, dict) else None
        return cls(*(path if isinstance(path, str) and path.startswith("/") else "" for path in (asked, real)))

    @classmethod
    def in_sandbox(cls, store: Store, sandbox_id: SandboxId) -> "Folder":
        """That of all conversations in a sandbox, where they agree; of more than _MOST, those that were made last."""
        filters = app_filter(sandbox_id=sandbox_id, with_children=True)
        states, _ = store.app_conversations.search(filters, by="created", descending=True, limit=_MOST, start=None)
        folders = {cls.of(state) for state in states}
        return folders.pop() if len(folders) == 1 else cls()

    def mapped(self, path: str) -> str:
        """The path in the sandbox for a path of a client."""
        asked = self.asked.rstrip("/")
        if asked and self.real and (path == asked or path.startswith(f"{asked}/")):
            return self.real.rstrip("/") + path[len(asked) :] or "/"
        return path

    def mapped_json(self, raw: bytes, *, is_command: bool) -> bytes:
        """A JSON body with its paths mapped. A command without a `cwd` runs in the folder. What is no object stays."""
        try:
            body = parse_json(raw)
        except InvalidJson:
            return raw
        if not isinstance(body, dict):
            return raw
        changed = {name: self.mapped(body[name]) for name in _PATHS if isinstance(body.get(name), str)}
        if is_command and self.real and body.get("cwd") is None:
            changed["cwd"] = self.real
        if all(body.get(name) == value for name, value in changed.items()):
            return raw
        return json.dumps(body | changed).encode()
