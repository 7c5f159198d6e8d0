"""Files that usually hold secrets: no wildcard of a rule that approves stands for them, and to use one is an effect.

The one table of them is `core/secret_files.toml`.

Limitation: a secret in a file of another name, and one behind a link, do not show.
"""

import re
import tomllib
from pathlib import Path

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
_PART, _NOT_PART, _WITHIN = (re.compile(_TABLE[name], re.IGNORECASE) for name in ("part", "not_part", "within"))

#: What stands between the paths and the parts of paths of a word.
_BETWEEN = re.compile(r"[/=@:,]")


def is_secret(part: str) -> bool:
    """Whether a part of a path usually holds secrets."""
    part = part.removesuffix("\n")
    return _PART.fullmatch(part) is not None and _NOT_PART.fullmatch(part) is None


def is_within_secret(path: str) -> bool:
    """Whether a path lies in a folder that usually holds secrets, though none of its parts says so."""
    return _WITHIN.search(path) is not None


def names_secret(word: str) -> bool:
    """Whether a word of a command, or a path, names a file that usually holds secrets."""
    return is_within_secret(word) or any(map(is_secret, _BETWEEN.split(word)))


def may_name_hidden(beginning: str) -> bool:
    """Whether a word that begins so, and is not written out, may name a hidden file: `.s*`, or any file of a home."""
    last = _BETWEEN.split(beginning)[-1]
    return (
        beginning.startswith("~")
        or names_secret(beginning)
        or (len(last) > 1 and last.startswith(".") and last != "..")
    )
