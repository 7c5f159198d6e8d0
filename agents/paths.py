"""Paths of clients that must stay in a conversation's folder."""

import posixpath

#: the name that clients have for the folder of any conversation. Source: the app-server wire
USUAL = "/workspace/project"


class PathOutside(ValueError):
    """A path leads out of a conversation's folder."""

    def __init__(self) -> None:
        super().__init__("Input should be a path in the conversation's folder, relative to it or absolute")


def within(folder: str, path: str) -> str:
    """The path relative to the folder, `.` for the folder itself. Raises PathOutside.

    folder: of a conversation, as its agent names it: absolute, or relative to the agent's working directory. USUAL
    stands for it too.
    """
    for root in (folder, USUAL):
        if root.startswith("/") and (path == root or path.startswith(f"{root.rstrip('/')}/")):
            path = path[len(root.rstrip("/")) :].lstrip("/")
            break
    inner = posixpath.normpath(path) if path else "."
    if "\0" in inner or inner.startswith("/") or inner == ".." or inner.startswith("../"):
        raise PathOutside
    return inner
