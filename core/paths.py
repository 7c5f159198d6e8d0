"""Rules about paths: which files a pattern such as `src/**` allows, and whether it rejects a path.

`*` stands for any text within one part of a path, `**` alone for any parts, also none. A path has no `..`, no empty
part and no control character, and a wildcard does not stand for `.git`: hooks and settings there run programs.

A rule for is compared as the path is written: a relative pattern allows relative paths, an absolute one absolute paths.
A rule against is compared whatever the case, and is unsure where an absolute and a relative path may be the same.

Limitation: links do not show in a path. One within a folder may lead out of it.
"""

import posixpath
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from core.secret_files import is_secret, is_within_secret

#: Maximum length of a path that is compared, number of its parts, and number of `*` of a pattern.
MOST_PATH, MOST_PARTS, MOST_STARS = 4096, 256, 16

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\\]")

#: What a pattern is like, as far as an expression says it.
PATTERN = r"^/?([^/\\\x00-\x1f\x7f]+/)*[^/\\\x00-\x1f\x7f]+$"

#: Folders that no wildcard of a rule that approves stands for, in lower case; `core/secret_files.py` has more.
_GUARDED = frozenset({".git"})


def path_fault(pattern: str) -> str | None:
    """Why a text is no pattern of a path; None if it is one."""
    parts = pattern.removeprefix("/").split("/")
    if len(pattern) > MOST_PATH or _CONTROL.search(pattern) or not {"", ".", ".."}.isdisjoint(parts):
        return "A path should have no empty part, no `.`, `..`, backslash, control or invisible character"
    return f"A path should have at most {MOST_STARS} `*`" if pattern.count("*") > MOST_STARS else None


def fits_path(pattern: str, value: Any) -> bool:
    """Whether a value is a path that a pattern allows."""
    if not isinstance(value, str) or not value or len(value) > MOST_PATH or _CONTROL.search(value):
        return False
    if value.startswith("/") != pattern.startswith("/") or value.startswith("~"):
        return False
    parts = value.removeprefix("/").removeprefix("./").split("/")
    if not {"", ".", ".."}.isdisjoint(parts) or (is_within_secret(value) and not is_within_secret(pattern)):
        return False
    return _fits(_parts(pattern), parts, _GUARDED)


def rejects_path(pattern: str, value: str) -> bool | None:
    """Whether a pattern rejects a path; None if unsure."""
    if len(value) > MOST_PATH or value.count("/") > MOST_PARTS or _CONTROL.search(value) or not value:
        return None
    wanted, parts = _parts(pattern.lower()), _parts(posixpath.normpath(value.lower()))
    is_same = value.startswith("/") == pattern.startswith("/")
    if _fits(wanted, parts, frozenset()):
        return True if is_same else None
    if is_same and ".." not in parts and "~" not in parts[:1]:
        return False
    if not value.startswith("/"):
        return None
    return None if any(_fits(wanted, parts[place:], frozenset()) for place in range(len(parts))) else False


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _fits(wanted: Sequence[str], parts: Sequence[str], guarded: frozenset[str]) -> bool:
    """Whether parts of a path are those of a pattern, all of them and in their order."""
    if len(parts) > MOST_PARTS:
        return False
    ends = {0}
    for one in wanted:
        if one == "**":
            reached = set(ends)
            for place in sorted(ends):
                while place < len(parts) and not _is_guarded(parts[place], guarded):
                    place += 1
                    reached.add(place)
            ends = reached
        else:
            ends = {
                place + 1
                for place in ends
                if place < len(parts) and _is_part(one, parts[place], guarded if "*" in one else frozenset())
            }
    return len(parts) in ends


def _is_guarded(part: str, guarded: frozenset[str]) -> bool:
    """Whether no wildcard stands for a part. guarded: empty where a rule rejects, which guards nothing."""
    return bool(guarded) and (part.lower() in guarded or is_secret(part))


def _is_part(wanted: str, part: str, guarded: frozenset[str]) -> bool:
    return not _is_guarded(part, guarded) and _compiled(wanted).fullmatch(part) is not None


@lru_cache(maxsize=1024)
def _compiled(wanted: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, wanted.split("*"))), re.DOTALL)
