"""What of a folder of this machine goes into a sandbox.

Of a Git repository, at every depth: the files that it tracks or would track, and its history. Its hooks and its
settings stay here, and everything else of Git's folder that may hold a credential.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from agent_server_client.repositories import is_git, is_repository, marks_in, report_left_out

#: the folder in which agents keep their own records
OF_AGENT = ".agent-server"

#: what goes of Git's folder. Not listed, since they may hold credentials: settings, hooks, logs, FETCH_HEAD, keys of
#: git-crypt; and records of other checkouts (worktrees). Its modules go by this same list.
_KEPT = (
    *("HEAD", "index", "packed-refs", "shallow", "objects", "refs", "reftable", "lfs/objects"),
    *("ORIG_HEAD", "MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "AUTO_MERGE", "CHERRY_PICK_HEAD", "REVERT_HEAD"),
    *("REBASE_HEAD", "rebase-merge", "rebase-apply", "sequencer"),
    *("BISECT_LOG", "BISECT_NAMES", "BISECT_START", "BISECT_TERMS"),
)

#: the settings of a repository that go with it: others may name programs, or hold a key of a remote
_KEPT_SETTINGS = ("core.repositoryformatversion", "core.filemode", "core.bare", "extensions.")

#: the mode by which Git records a submodule
_SUBMODULE = "160000"


def chosen(root: Path) -> dict[Path, bytes | None]:
    """The paths of a folder that are packed, each with the content that replaces its own, if any does.

    What stays here and would be missed is logged as a warning. Raises OSError; subprocess.CalledProcessError where Git
    fails.
    """
    choice = _Choice(root)
    while choice.waiting:
        choice.add(choice.waiting.pop())
    report_left_out(choice.left)
    choice.found.pop(root, None)
    return choice.found


class _Choice:
    """What was chosen so far, the folders that are still to be looked at, and what is left out with its reason."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.found, self.waiting, self.left = dict[Path, bytes | None](), [root], dict[str, str]()

    def add(self, folder: Path) -> None:
        """Add a folder: a checkout, a repository without one, or any other."""
        self.found[folder] = None
        if (folder / ".git").exists():
            self._add_history(folder)
            self._add_tracked(folder)
            self._add_untracked(folder)
        elif is_repository(marks_in(folder)):
            self._add_git(folder)
        else:
            for path in folder.iterdir():
                if is_git(path.name):
                    self._leave(path, "another system would read it as the folder of a Git repository")
                elif path.is_dir() and not path.is_symlink():
                    self.waiting.append(path)
                else:
                    self.found[path] = None

    def _leave(self, path: Path, why: str) -> None:
        self.left[str(path.relative_to(self._root))] = why

    def _add_tracked(self, folder: Path) -> None:
        for line in _listed(folder, "--stage"):
            mode, _, name = line.partition("\t")
            path = folder / name
            if mode.startswith(_SUBMODULE):
                if path.is_dir() and not path.is_symlink() and any(path.iterdir()):
                    self.waiting.append(path)
                else:
                    self.found |= {path: None} if path.is_dir() else {}
                    self._leave(path, "the submodule has no files here. Run `git submodule update --init --recursive`")
            elif path.is_symlink() or path.is_file():
                self.found[path] = None

    def _add_untracked(self, folder: Path) -> None:
        bare = dict[Path, bool]()
        for name in _listed(folder, "--others", "--exclude-standard"):
            path = folder / name
            above = [one for one in path.parents if one.is_relative_to(folder) and one != folder]
            for one in above:
                if one not in bare:
                    bare[one] = is_repository(marks_in(one))
            repository = next((one for one in reversed(above) if bare[one]), None)
            if repository or name.endswith("/"):  # a repository of its own
                if (repository or path) not in self.found:
                    self.waiting.append(repository or path)
            elif any(map(is_git, Path(name).parts)):
                self._leave(path, "another system would read it as the folder of a Git repository")
            elif path.is_symlink() or path.is_file():
                self.found[path] = None

    def _add_history(self, folder: Path) -> None:
        git = folder / ".git"
        if git.is_dir():
            self._add_git(git)
            return
        text = os.fsdecode(git.read_bytes()).removeprefix("gitdir:").strip()
        there, root = (folder / text).resolve(), self._root.resolve()
        if there.is_relative_to(root) and self._root / there.relative_to(root) / "HEAD" in self.found:
            self.found[git] = os.fsencode(f"gitdir: {os.path.relpath(there, folder.resolve())}\n")
        else:
            self._leave(git, "the history is kept outside of what is sent, as of a linked worktree")

    def _add_git(self, git: Path) -> None:
        """Add a folder of Git's."""
        if (git / "objects/info/alternates").exists() or (git / "objects").is_symlink() or (git / "commondir").exists():
            self._leave(git, "a part of the history is in another repository (objects/info/alternates)")
            return
        settings = _settings(git)
        if "partialclone" in settings.lower():
            self._leave(git / "objects", "a partial clone: objects that were never fetched are on its remote alone")
        self.found[git] = None
        self.found[git / "config"], self.found[git / "info/exclude"] = settings.encode(), f"{OF_AGENT}/\n".encode()
        for path in (*(git / name for name in _KEPT), *git.glob("sharedindex.*")):
            if path.exists():
                below = path.rglob("*") if path.is_dir() else ()
                self.found |= dict.fromkeys(one for one in (path, *below) if one.suffix != ".lock")
        for module in _modules(git / "modules"):
            self.found |= dict.fromkeys(one for one in module.parents if one.is_relative_to(git))
            self._add_git(module)


def _modules(folder: Path) -> Iterator[Path]:
    """The repositories of submodules, whose names may have slashes."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_repository(marks_in(path)):
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from _modules(path)


def _listed(folder: Path, *options: str) -> Iterator[str]:
    """What Git lists of a checkout. A setting of it starts no program."""
    words = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", "ls-files", "-z", *options]
    names = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout.split(b"\0")
    return (os.fsdecode(name) for name in names if name)


def _settings(git: Path) -> str:
    """The settings of a repository that go, as a file of Git's."""
    if not (git / "config").exists():
        return ""
    words = ["git", "config", "--file", str(git / "config"), "--list", "-z"]
    listed = os.fsdecode(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout).split("\0")
    kept = [one.partition("\n") for one in listed if one.startswith(_KEPT_SETTINGS)]
    lines = [(*name.split("."), value if is_set else "true") for name, is_set, value in kept if name.count(".") == 1]
    return "".join(f"[{section}]\n\t{key} = {value}\n" for section, key, value in lines if "\n" not in value)
