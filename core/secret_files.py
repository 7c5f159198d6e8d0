"""Names of files that usually hold secrets: what no wildcard of a rule that approves stands for.

Limitation: a secret in a file of another name, and one behind a link, do not show.
"""

import re

#: Folders and files, as parts of a path.
_PART = re.compile(
    r"\.(?:ssh|aws|gnupg|kube|docker|azure|password-store|envrc|netrc|npmrc|pypirc|pgpass|git-credentials|htpasswd)"
    r"|\.env(?:\.(?!(?:example|sample|template|dist)$)[\w-]+)*"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)|credentials(?:\.\w+)?|g?shadow|environ|[\w.-]+\.(?:pem|key|p12|pfx|jks|kdbx)",
    re.IGNORECASE,
)

#: What stands between the paths and the parts of paths of a word.
_BETWEEN = re.compile(r"[/=@:,]")


def is_secret(part: str) -> bool:
    """Whether a part of a path usually holds secrets."""
    return _PART.fullmatch(part) is not None


def names_secret(word: str) -> bool:
    """Whether a word of a command names a file that usually holds secrets."""
    return any(map(is_secret, _BETWEEN.split(word)))


def may_name_hidden(beginning: str) -> bool:
    """Whether a word that begins so, and is not written out, may name a hidden file: `.s*`, or any file of a home."""
    last = _BETWEEN.split(beginning)[-1]
    return (
        beginning.startswith("~")
        or names_secret(beginning)
        or (len(last) > 1 and last.startswith(".") and last != "..")
    )
