"""Which names and folders Git, Mercurial and their like take for a repository.

The settings and hooks of a repository name programs, and `git status` or `hg status` is enough to start them. So no
repository of an agent is written to this machine. The names are those that Git itself refuses to track
(core.protectHFS, core.protectNTFS), on every system: a download may be copied to another one later.
"""

import logging
import re
import unicodedata
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from agent_server_client.visible import in_line

_log = logging.getLogger(__name__)

#: most paths that are left out and logged
_MOST_LOGGED = 10

#: characters that HFS+ ignores in names, as utf8.c of Git lists them
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")

#: what NTFS ignores at the end of a name: dots, spaces and the name of a stream
_END = re.compile(r"(?<=.)(:.*|[. ]+)+$", re.DOTALL)

#: what is in a folder that Git takes for a repository: HEAD and one of these sets
_EITHER = ({"objects", "refs"}, {"commondir"})
MARKS = frozenset({"head"}.union(*_EITHER))

#: folders in which other systems keep a repository, and the settings and hooks in them, which may hold a credential
_OTHERS: dict[str, tuple[str, ...]] = {
    ".hg": ("hgrc", "hgrc-not-shared"),
    ".sl": ("config", "hgrc"),
    ".jj": ("config.toml", "config-id", "workspace-config.toml", "workspace-config-id", "repo/config*"),
    ".bzr": ("branch/branch.conf", "branch/control.conf", "branch/location", "branch/parent", "control.conf"),
    ".svn": ("auth/*", "hooks/*"),
    "_darcs": ("prefs/defaults", "prefs/defaultrepo", "prefs/repos", "prefs/sources"),
    ".pijul": ("config",),
    "_MTN": ("monotonerc", "options"),
    ".fslckout": ("",),
    "_FOSSIL_": ("",),
    ".repo": (),
}

#: their names as `folded` has them, also those that NTFS makes of a name with a dot
_OTHER_NAMES = frozenset(
    short for name in _OTHERS for short in (name.lower(), f"{name.removeprefix('.').lower()[:6]}~1")
)


def folded(step: str) -> str:
    """A step of a path, the same for all spellings that a file system may read as one name."""
    return _END.sub("", _IGNORED.sub("", unicodedata.normalize("NFD", step)).casefold())


def is_git(step: str) -> bool:
    """Whether a file system may read a step of a path as `.git`. A backslash may separate steps."""
    return any(folded(part) in (".git", "git~1") for part in step.split("\\"))


def keeps_settings(step: str) -> bool:
    """Whether a file system may read a step of a path as the folder of any such system."""
    return is_git(step) or any(folded(part) in _OTHER_NAMES for part in step.split("\\"))


def is_setting(path: PurePath) -> bool:
    """Whether a path is one of the settings or hooks that systems other than Git keep in a repository."""
    return any(
        fnmatchcase("/".join(path.parts[at + 1 :]), pattern)
        for at, step in enumerate(path.parts)
        for pattern in _OTHERS.get(step, ())
    )


def is_repository(marks: Iterable[str]) -> bool:
    """Whether Git takes a folder with these of the MARKS for a repository."""
    found = set(marks)
    return "head" in found and any(needed <= found for needed in _EITHER)


def marks_in(folder: Path) -> set[str]:
    """The MARKS that a folder of this machine has."""
    names = {"head": "HEAD"}
    return {mark for mark in MARKS if (folder / names.get(mark, mark)).exists()}


def report_left_out(left: dict[str, str]) -> None:
    """Log why paths are left out, the first 10 of them."""
    for path, why in list(left.items())[:_MOST_LOGGED]:
        _log.warning("Left out: %s: %s", in_line(path), why)
    if len(left) > _MOST_LOGGED:
        _log.warning("Left out: %d more", len(left) - _MOST_LOGGED)
