"""Folders that the clients of a key store, as clients name them. The server never reads them."""

from typing import Any

from core.refused import RefusalKind
from store.access.client_settings import ClientSettings, Entries
from store.errors import StoreError

#: Maximum number of folders of a kind that a key stores.
MOST_WORKSPACES = 100


class WorkspaceNotFound(StoreError):
    """The key has no workspace with this path."""

    kind = RefusalKind.MISSING
    words = "Workspace not found. GET /api/workspaces lists those that are there"


class TooManyWorkspaces(StoreError):
    """The key has the maximum number of workspaces."""

    kind = RefusalKind.CONFLICT
    words = f"A key keeps at most {MOST_WORKSPACES} folders: delete one first"


class OwnWorkspaces:
    """The folders of a key. Every method raises the errors of `ClientSettings`."""

    def __init__(self, kept: ClientSettings, owner: str) -> None:
        self._kept = kept
        self._owner = owner

    def all(self) -> dict[str, Any]:
        """Return the stored folders by kind."""
        return _folders(self._kept.of(self._owner))

    def add(self, sort: str, folders: list[dict[str, Any]]) -> dict[str, Any]:
        """Store folders, once per path. Raises TooManyWorkspaces."""

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
        """Delete a folder. Raises WorkspaceNotFound."""

        def change(entries: Entries) -> None:
            kept = _folders(entries)
            left = [one for one in kept[sort] if one["path"] != path]
            if len(left) == len(kept[sort]):
                raise WorkspaceNotFound
            entries["workspaces"] = {**kept, sort: left}

        self._kept.change(self._owner, change)


def _folders(entries: Entries) -> dict[str, Any]:
    return {"workspaces": [], "workspace_parents": [], **entries.get("workspaces", {})}
