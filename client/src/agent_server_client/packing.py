"""What of a folder of this machine goes into a sandbox.

Of a Git repository, at every depth: the files that it tracks or would track, and its history. Its hooks and its
settings stay here, and everything else of Git's folder that may hold a credential. Settings and hooks of Mercurial and
its like stay here too.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from agent_server_client.repositories import is_git, is_repository, is_setting, marks_in, report_left_out

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
_WORD = re.compile(r"[\w.-]*")

#: the mode by which Git records a submodule
_SUBMODULE = "160000"

#: variables that turn Git away from the repository of a folder; the most of `git rev-parse --local-env-vars`
_MISLEADING = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_IMPLICIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE"),
    *("GIT_NAMESPACE", "GIT_CONFIG", "GIT_CEILING_DIRECTORIES"),
)

_FOREIGN_NAME = "another system would read it as the folder of a Git repository"


def chosen(root: Path) -> dict[Path, bytes | None]:
    """The paths of a folder that are packed, each with the content that replaces its own, if any does.

    What stays here and would be missed is logged as a warning. Raises OSError; subprocess.CalledProcessError where Git
    fails.
    """
    choice = _Choice(root)
    while choice.waiting:
        choice.add(choice.waiting.pop())
    choice.leave_settings()
    report_left_out(choice.left)
    choice.found.pop(root, None)
    return choice.found


def git_environment() -> dict[str, str]:
    """The environment of this process without what a Git hook, say, sets for its own repository."""
    return {name: value for name, value in os.environ.items() if name not in _MISLEADING}


class _Choice:
    """What was chosen so far, the folders that are still to be looked at, and what is left out with its reason."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.found, self.waiting, self.left = dict[Path, bytes | None](), [root], dict[str, str]()

    def add(self, folder: Path) -> None:
        """Add a folder: a checkout, a part of one, a repository without one, or any other."""
        self.found[folder] = None
        if (is_top := _is_checkout(folder)) or (folder == self._root and _is_in_checkout(folder)):
            if is_top:
                self._add_history(folder)
            self._add_tracked(folder)
            self._add_untracked(folder)
        elif is_repository(marks_in(folder)):
            self._add_git(folder)
        else:
            for path in folder.iterdir():
                if path.name == ".git":
                    self._leave(path, "Git finds no checkout of a repository there")
                elif is_git(path.name):
                    self._leave(path, _FOREIGN_NAME)
                elif path.is_dir() and not path.is_symlink():
                    self.waiting.append(path)
                else:
                    self.found[path] = None

    def _leave(self, path: Path, why: str) -> None:
        self.left[str(path.relative_to(self._root))] = why

    def leave_settings(self) -> None:
        """Leave out the settings and hooks of systems other than Git, in whatever folder they were found."""
        for path in [path for path in self.found if is_setting(path.relative_to(self._root))]:
            del self.found[path]
            self._leave(path, "settings of a repository, which may name programs or hold a password")

    def _add_tracked(self, folder: Path) -> None:
        is_symlink = cache(Path.is_symlink)
        for line in _listed(folder, "--stage"):
            mode, _, name = line.partition("\t")
            path = folder / name
            if any(map(is_symlink, _between(folder, path))):
                continue  # a symlink is in the place of its folder
            if mode.startswith(_SUBMODULE):
                if path.is_dir() and not path.is_symlink() and any(path.iterdir()):
                    self.waiting.append(path)
                else:
                    self.found |= {path: None} if path.is_dir() else {}
                    self._leave(path, "the submodule has no files here. Run `git submodule update --init --recursive`")
            elif path.is_symlink() or path.is_file():
                self.found[path] = None

    def _add_untracked(self, folder: Path) -> None:
        is_bare = cache(lambda path: is_repository(marks_in(path)))
        for name in _listed(folder, "--others", "--exclude-standard"):
            path = folder / name
            repository = next(filter(is_bare, _between(folder, path)), None)
            if repository or name.endswith("/"):  # a repository of its own
                if (repository or path) not in self.found:
                    self.waiting.append(repository or path)
            elif any(map(is_git, Path(name).parts)):
                self._leave(path, _FOREIGN_NAME)
            elif path.is_symlink() or path.is_file():
                self.found[path] = None

    def _add_history(self, folder: Path) -> None:
        git = folder / ".git"
        if git.is_dir() and not git.is_symlink():
            self._add_git(git)
        else:
            there, root = _repository_of(folder).resolve(), self._root.resolve()
            inside = self._root / there.relative_to(root) if there.is_relative_to(root) else None
            if git.is_file() and inside and inside / "HEAD" in self.found:
                self.found[git] = os.fsencode(f"gitdir: {os.path.relpath(there, folder.resolve())}\n")
            else:
                self._leave(git, "the history is kept outside of what is sent, as of a linked worktree")

    def _add_git(self, git: Path) -> None:
        """Add a folder of Git's."""
        elsewhere = [git / name for name in ("objects/info/alternates", "commondir") if (git / name).exists()]
        elsewhere += [git / name for name in ("objects", "objects/pack", "refs") if (git / name).is_symlink()]
        if elsewhere:
            self._leave(git, f"a part of the history is elsewhere ({elsewhere[0].relative_to(git)})")
            return
        if any((git / "objects/pack").glob("*.promisor")):
            self._leave(git / "objects", "a partial clone: objects that were never fetched are on its remote alone")
        if (git / "annex").exists():
            self._leave(git / "annex", "files that git-annex keeps there come as symlinks that lead nowhere")
        self.found[git] = None
        settings = _settings(git).encode()
        self.found[git / "config"], self.found[git / "info/exclude"] = settings, f"{OF_AGENT}/\n".encode()
        for path in (*(git / name for name in _KEPT), *git.glob("sharedindex.*")):
            if path.exists():
                below = path.rglob("*") if path.is_dir() else ()
                self.found |= dict.fromkeys(one for one in (path, *below) if one.suffix != ".lock")
        for module in _modules(git / "modules"):
            self.found |= dict.fromkeys(one for one in module.parents if one.is_relative_to(git))
            self._add_git(module)


def _between(folder: Path, path: Path) -> Iterator[Path]:
    """The folders from a folder to a path below it, the outermost first."""
    for step in Path(path.relative_to(folder)).parent.parts:
        folder /= step
        yield folder


def _repository_of(folder: Path) -> Path:
    """Where the `.git` of a folder is, or leads to."""
    git = folder / ".git"
    text = os.fsdecode(git.read_bytes()) if git.is_file() else ""
    return folder / text.removeprefix("gitdir:").strip() if text.startswith("gitdir:") else git


def _is_checkout(folder: Path) -> bool:
    """Whether a folder is the top of a checkout. Raises subprocess.CalledProcessError."""
    return is_repository(marks_in(_repository_of(folder))) and _is_in_work_tree(folder)


def _is_in_checkout(folder: Path) -> bool:
    """Whether a folder is a part of a checkout, and not one that is ignored as a whole.

    Raises subprocess.CalledProcessError.
    """
    real = folder.resolve()
    if not any((one / ".git").exists() for one in (real, *real.parents)):
        return False  # without Git: it need not be installed
    if not _is_in_work_tree(real):
        return False
    is_ignored = _git(real.parent, "check-ignore", "--", real.name, allowed=(0, 1))
    return not is_ignored or bool(_git(real, "ls-files", "-z"))


def _is_in_work_tree(folder: Path) -> bool:
    return _git(folder, "rev-parse", "--is-inside-work-tree").strip() == b"true"


def _modules(folder: Path) -> Iterator[Path]:
    """The repositories of submodules, whose names may have slashes."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_repository(marks_in(path)):
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from _modules(path)


def _git(folder: Path, *words: str, allowed: tuple[int, ...] = (0,)) -> bytes:
    """What Git says of a folder. Neither a setting of its repository nor a remote starts a program."""
    offline = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *words]
    done = subprocess.run(command, env=git_environment() | offline, check=False, stdout=subprocess.PIPE)
    if done.returncode not in allowed:
        raise subprocess.CalledProcessError(done.returncode, ["git", *words])
    return done.stdout


def _listed(folder: Path, *options: str) -> Iterator[str]:
    """The names that Git lists of a checkout."""
    return (os.fsdecode(name) for name in _git(folder, "ls-files", "-z", *options).split(b"\0") if name)


def _settings(git: Path) -> str:
    """The settings of a repository that go, as a file of Git's."""
    if not (git / "config").exists():
        return ""
    listed = os.fsdecode(_git(git, "config", "--file", str((git / "config").resolve()), "--list", "-z")).split("\0")
    kept = [one.partition("\n") for one in listed if one.startswith(_KEPT_SETTINGS)]
    lines = [(*name.split("."), value if is_set else "true") for name, is_set, value in kept if name.count(".") == 1]
    # A partial clone may name its remote by a URL, with a password.
    return "".join(f"[{section}]\n\t{key} = {value}\n" for section, key, value in lines if _WORD.fullmatch(value))
