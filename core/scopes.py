"""Scopes of approval rules: where a conversation began, and what a rule may name of that. No store and no Flask.

Source: docs/approvals.md, "Scopes". The server records an origin when it makes a conversation, and nothing changes it
later: no event, no agent and no PATCH. The key is the one that asked. Limitation: the repository and the folder are the
words of whoever started the conversation.
"""

import posixpath
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from core.cuts import beginning

#: hosts of the providers of the wire, for repositories that are named OWNER/NAME; the others need a URL
REPOSITORY_HOSTS = {"github": "github.com", "gitlab": "gitlab.com", "bitbucket": "bitbucket.org"}

#: maximum number of characters of a repository or a folder of a rule; longer ones are not recorded
MOST_SCOPE = 1024

#: maximum number of characters of a name in a sentence
_MOST_SAID = 120

#: what a repository of a rule matches: HOST/OWNER/NAME, or more parts
REPOSITORY = r"^[a-z0-9][a-z0-9.:-]*(/[\w.~-]+){2,}$"
_REPOSITORY = re.compile(REPOSITORY, re.ASCII)
_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?(?:[^@/\s]*@)?([^/:\s]+(?::[0-9]+)?)[/:]+(\S+)", re.ASCII | re.IGNORECASE)
_SHORT = re.compile(r"[\w][\w.-]*(/[\w.-]+)+", re.ASCII)

ScopeName = Literal["conversation", "folder", "repository", "key", "everywhere"]

#: how long a rule may hold: name, words, and seconds; None: until it is revoked
LASTS: tuple[tuple[str, str, int | None], ...] = (
    ("ever", "until it is revoked", None),
    ("day", "for 24 hours", 86_400),
    ("hour", "for 1 hour", 3_600),
)


class Origin(NamedTuple):
    """Where a conversation began; an empty text where that is not known."""

    key_id: str = ""  #: id of the key that started it
    repository: str = ""  #: HOST/OWNER/NAME, as `repository_name` has it
    folder: str = ""  #: absolute, without `.`, `..` and empty parts
    machine: str = ""  #: host of an agent that runs outside of sandboxes, in its hook's words, as are the next two
    person: str = ""  #: user on that machine
    agent: str = ""  #: name of that agent, such as `claude-code`

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "Origin":
        """The origin of a conversation's record."""
        return cls(**{name: str(stored.get(name) or "") for name in cls._fields})

    @property
    def stored(self) -> dict[str, str]:
        """What a conversation's record has of it."""
        return {name: value for name, value in self._asdict().items() if value}


#: the origin of a conversation of which nothing is known
NOWHERE = Origin()


class Scope(NamedTuple):
    """Where a rule may hold."""

    name: ScopeName
    words: str  #: `in this conversation`
    members: Mapping[str, Any]  #: of the rule


def repository_name(repository: str | None, provider: str | None = None) -> str:
    """The repository of a start as HOST/OWNER/NAME; empty if it names none that a rule can name.

    A URL loses its scheme, its user and a final `.git`: all ways to clone a repository have one name. The host is in
    lower case.
    """
    text = (repository or "").strip().rstrip("/").removesuffix(".git")
    if _SHORT.fullmatch(text):
        host = REPOSITORY_HOSTS.get(provider or "github")
        text = f"{host}/{text}" if host else ""
    elif match := _URL.fullmatch(text):
        text = f"{match[1].lower()}/{match[2].lstrip('/')}"
    return text if len(text) <= MOST_SCOPE and not repository_fault(text) else ""


def repository_fault(text: str) -> str | None:
    """Why a text is no repository of a rule; None if it is one."""
    if _REPOSITORY.fullmatch(text) and not any(part in (".", "..") for part in text.split("/")):
        return None
    return "Input should be HOST/OWNER/NAME, such as github.com/ada/shop"


def folder_name(path: Any) -> str:
    """A working folder as rules name it; empty if a rule cannot name it: a relative path, or the root."""
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        return ""
    folder = "/" + posixpath.normpath(path).lstrip("/")
    return folder if 1 < len(folder) <= MOST_SCOPE else ""


def folder_fault(text: str) -> str | None:
    """Why a text is no folder of a rule; None if it is one."""
    if folder_name(text) == text:
        return None
    return "Input should be an absolute path other than /, without . and .. and a slash at its end"


def holds_in(
    origin: Origin, *, key_id: str | None, repository: str | None, folder: str | None, is_wide: bool = False
) -> bool:
    """Whether a conversation of this origin is in the scope that these members of a rule name; None names nothing.

    A folder has those below it in its scope. is_wide: of a rule that rejects, whose names match whatever their case.
    """
    found_repository, found_folder = origin.repository, origin.folder
    if is_wide:
        found_repository, found_folder = found_repository.casefold(), found_folder.casefold()
        repository, folder = repository and repository.casefold(), folder and folder.casefold()
    return (
        (key_id is None or origin.key_id == key_id)
        and (repository is None or found_repository == repository)
        and (folder is None or f"{found_folder}/".startswith(f"{folder}/"))
    )


def scopes_of(conversation_id: str, origin: Origin, key_name: str) -> list[Scope]:
    """The scopes that a rule made in a conversation may have, the narrowest first.

    key_name: of the key of its origin, for people; empty where rules should not name that key.
    """
    found = [Scope("conversation", "in this conversation", {"conversation_ids": (conversation_id,)})]
    if origin.folder:
        words = f"in every conversation in the folder {quoted(origin.folder)}"
        found.append(Scope("folder", words, {"folder": origin.folder}))
    if origin.repository:
        words = f"in every conversation about the repository {quoted(origin.repository)}"
        found.append(Scope("repository", words, {"repository": origin.repository}))
    if origin.key_id and key_name:
        words = f"in every conversation that the key {quoted(key_name)} starts"
        found.append(Scope("key", words, {"key_id": origin.key_id}))
    return [*found, Scope("everywhere", "in every conversation", {})]


def narrowest_useful(scopes: list[Scope]) -> Scope:
    """The scope that is proposed first: the folder or the repository, where the work goes on; else the conversation."""
    return next((one for one in scopes if one.name in ("folder", "repository")), scopes[0])


def quoted(text: str) -> str:
    """The beginning of a text in backticks, in one line; in quotes if it has a backtick."""
    short = beginning(" ".join(text.split()), _MOST_SAID)
    return f'"{short}"' if "`" in short else f"`{short}`"
