"""Folders that the clients of a key remember. They are remembered as clients name them, and read nowhere."""

from typing import Any

from core.refused import Kind
from store.access.client_settings import ClientSettings, Entries
from store.errors import StoreError

#: most folders of a sort that a key keeps
MOST_WORKSPACES = 100


class WorkspaceNotFound(StoreError):
    """The key has no workspace with this path."""

    kind = Kind.MISSING
    words = "Workspace not found. GET /api/workspaces lists those that are there"


class TooManyWorkspaces(StoreError):
    """The key has the maximum number of workspaces."""

    kind = Kind.CONFLICT
    words = f"A key keeps at most {MOST_WORKSPACES} folders: delete one first"


class OwnWorkspaces:
    """The folders of one key. Every method raises what `ClientSettings` raises."""

    def __init__(self, kept: ClientSettings, owner: str) -> None:
        self._kept = kept
        self._owner = owner

    def all(self) -> dict[str, Any]:
        """The folders that clients remember, by their sorts."""
        return _folders(self._kept.of(self._owner))

    def add(self, sort: str, folders: list[dict[str, Any]]) -> dict[str, Any]:
        """Remember folders, once per path. Raises TooManyWorkspaces."""

        def change(entries: Entries) -> dict[str, Any]:
            kept = _folders(entries)
            by_path = {one["path"]: one for one in [*folders[::-1], *kept[sort][::-1]]}  # the first of each path counts
            kept[sort] = [by_path[path] for path in dict.fromkeys(one["path"] for one in [*kept[sort], *folders])]
            if len(kept[sort]) > MOST_WORKSPACES:
                raise TooManyWorkspaces
            entries["workspaces"] = kept
            return kept

        return self._kept.change(self._owner, change)

    def delete(self, sort: str, path: str) -> None:
        """Forget a folder. Raises WorkspaceNotFound."""

        def change(entries: Entries) -> None:
            kept = _folders(entries)
            left = [one for one in kept[sort] if one["path"] != path]
            if len(left) == len(kept[sort]):
                raise WorkspaceNotFound
            entries["workspaces"] = {**kept, sort: left}

        self._kept.change(self._owner, change)


def _folders(entries: Entries) -> dict[str, Any]:
    return {"workspaces": [], "workspace_parents": [], **entries.get("workspaces", {})}
