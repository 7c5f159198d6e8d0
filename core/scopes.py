"""Scopes of approval rules: where a conversation began, and what a rule may name of that. No store and no Flask.

Source: docs/approvals.md, "Scopes". The server records an origin when it makes a conversation, and nothing changes it
later: no event, no agent and no PATCH. The key is the one that asked. Limitation: all other members are the words of
whoever started the conversation. A key with the scope `ask` may claim any machine, folder, person and agent.
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

ScopeName = Literal["conversation", "folder", "repository", "machine", "person", "agent", "key", "everywhere"]

#: members of the origin of a conversation whose agent runs outside of sandboxes
OUTSIDE = frozenset({"machine", "person", "agent"})

#: members of an origin that are the words of whoever started the conversation, the narrowest first
_CLAIMS: tuple[ScopeName, ...] = ("folder", "repository", "machine", "person", "agent")

#: what stands before the value of a member of an origin in a sentence about a rule
WORDS = {
    "folder": "in the folder",
    "repository": "about the repository",
    "machine": "on the machine",
    "person": "of the person",
    "agent": "of the agent",
    "key_id": "of the key",
}

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

    @property
    def is_outside(self) -> bool:
        """Whether an agent that runs outside of sandboxes asks."""
        return any(getattr(self, name) for name in OUTSIDE)

    @property
    def asker(self) -> str:
        """Who asks from outside: `claude-code · ada@laptop · /home/ada/shop`; empty for an agent in a sandbox."""
        who = "@".join(filter(None, (self.person, self.machine)))
        return " · ".join(filter(None, (self.agent, who, self.folder))) if self.is_outside else ""


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


def holds_in(origin: Origin, named: Mapping[str, str], is_wide: bool = False) -> bool:
    """Whether a conversation of this origin is in the scope of a rule.

    named: what the rule says of members of an origin. A folder has those below it in its scope.
    is_wide: of a rule that rejects, whose names match whatever their case.
    """
    for name, value in named.items():
        has = getattr(origin, name)
        if is_wide and name != "key_id":
            has, value = has.casefold(), value.casefold()
        if not (f"{has}/".startswith(f"{value}/") if name == "folder" else has == value):
            return False
    return True


def scopes_of(conversation_id: str, origin: Origin, key_name: str) -> list[Scope]:
    """The scopes that a rule made in a conversation may have, the narrowest first.

    What an agent outside of sandboxes says of itself is offered together with its key: no other key can claim it.
    key_name: of the key of the origin, for people; empty where rules should not name that key.
    """
    key = {"key_id": origin.key_id} if origin.key_id and key_name else {}
    starts = f" that the key {quoted(key_name)} starts" if key else ""
    found = [Scope("conversation", "in this conversation", {"conversation_ids": (conversation_id,)})]
    for name in _CLAIMS:
        if not getattr(origin, name):
            continue
        names = ("folder", "machine") if name == "folder" and origin.machine else (name,)
        words = " ".join(f"{WORDS[one]} {quoted(getattr(origin, one))}" for one in names)
        members = {one: getattr(origin, one) for one in names}
        if origin.is_outside:
            words, members = f"{words}{starts}", members | key
        found.append(Scope(name, f"in every conversation {words}", members))
    if key:
        found.append(Scope("key", f"in every conversation{starts}", key))
    return [*found, Scope("everywhere", "in every conversation", {})]


def narrowest_useful(scopes: list[Scope]) -> Scope:
    """The scope that is proposed first.

    The key, where an agent outside of sandboxes asks: all else is its own word. Otherwise the folder or the
    repository, where the work goes on; else the conversation.
    """
    by_name = {one.name: one for one in scopes}
    first: tuple[ScopeName, ...] = ("key", "folder") if OUTSIDE & by_name.keys() else ("folder", "repository")
    return next((by_name[name] for name in first if name in by_name), scopes[0])


def quoted(text: str) -> str:
    """The beginning of a text in backticks, in one line; in quotes if it has a backtick."""
    short = beginning(" ".join(text.split()), _MOST_SAID)
    return f'"{short}"' if "`" in short else f"`{short}`"
