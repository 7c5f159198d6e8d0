"""Looks for planted secrets in files."""

from collections.abc import Iterable
from pathlib import Path


def found_in(folder: Path, words: Iterable[str], *, but: str = "") -> list[str]:
    """The files below a folder that have one of the words; but: the name of folders to leave out."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and but not in path.relative_to(folder).parts:
            text = path.read_bytes()
            found += [f"{path}: {word[:8]}…" for word in words if word.encode() in text]
    return found
