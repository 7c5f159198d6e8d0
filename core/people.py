"""People whom a trusted proxy has authenticated, and their grants. No Flask and no Redis.

A grant gives a person or a group a role in all conversations, or in those with its tags. Names and groups are compared
exactly. Only a vote ignores case, so that `Ada` and `ada` are one voter.
Source: docs/access.md, "People".
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, NamedTuple, get_args

from core.access import Scope
from core.wire import Micros, has_tag

#: The roles of a grant. `approve` does not include `steer`; `admin` includes all.
Role = Literal["ask", "steer", "approve", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

#: Maximum number of characters of a person's name and of a group's, and of groups in one request.
MOST_NAME, MOST_GROUPS = 128, 100

#: Characters of a name: printable ASCII without blanks, and without the commas and semicolons of a proxy's lists.
NAME = r"[!-+\-.-:<-~]{1,128}"
_NAME = re.compile(NAME)

#: Prefix of a person's id, which stands in the place of a key's id.
_PERSON = "person-"

_SCOPES: dict[Role, Scope] = {"ask": "write", "steer": "write", "approve": "approve", "admin": "admin"}


class PersonRefused(ValueError):
    """The headers that name a person are malformed. The message is for the client."""


class Person(NamedTuple):
    """A person whom a trusted proxy has authenticated."""

    name: str
    groups: tuple[str, ...] = ()  #: sorted, each once

    @property
    def id(self) -> str:
        """Return the id that stands in the place of a key's id."""
        return _PERSON + sha256(self.name.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Grant:
    """A role of a person or of a group."""

    role: Role
    person: str | None = None
    group: str | None = None
    tags: Mapping[str, str | None] | None = None  #: name → value, None for any value; None: all conversations
    created_by: str = ""
    created_at: Micros | None = None
    id: str = ""

    def is_of(self, person: Person) -> bool:
        """Return whether it names the person or one of their groups."""
        return self.person == person.name if self.group is None else self.group in person.groups

    def holds_for(self, tags: Mapping[str, str]) -> bool:
        """Return whether it applies to a conversation with these tags."""
        return all(has_tag(tags, name, value) for name, value in (self.tags or {}).items())


def voter(name: str) -> str:
    """Return the name under which a person's votes count: `Ada` and `ada` are one voter."""
    return name.casefold()


def is_person_id(key_id: str) -> bool:
    """Return whether an id is a person's rather than a key's."""
    return key_id.startswith(_PERSON)


def scopes_of(
    grants: Iterable[Grant], person: Person, tags: Mapping[str, str] | None = None, owner: str = ""
) -> frozenset[str]:
    """Return the scopes that grants give a person.

    tags, owner: of the conversation of the request. None: the request concerns no conversation, and grants for tags
    give `read` alone. `ask` gives `write` outside of conversations, and in those that the person owns.
    """
    mine = [grant for grant in grants if grant.is_of(person)]
    scopes = {"read"} if mine else set()
    for grant in mine:
        if grant.role == "ask":
            holds = tags is None or (owner == person.name and grant.holds_for(tags))
        else:
            holds = not grant.tags if tags is None else grant.holds_for(tags)
        if holds:
            scopes.add(_SCOPES[grant.role])
    return frozenset(scopes)


def grants_for(grants: Iterable[Grant], scope: str, tags: Mapping[str, str]) -> list[Grant]:
    """Return the grants that give a scope in a conversation with these tags, whoever owns it."""
    roles = ("steer", "admin") if scope == "write" else (scope, "admin")
    return [grant for grant in grants if grant.role in roles and grant.holds_for(tags)]


def read_person(name: str, groups: str) -> Person:
    """Parse the two headers of a person. groups: separated by commas; "": none. Raises PersonRefused."""
    if not name:
        raise PersonRefused("The header of the person is empty: the proxy has authenticated nobody")
    if not _NAME.fullmatch(name):
        raise PersonRefused(
            f"The header of the person must have one name of 1 to {MOST_NAME} printable ASCII characters, without "
            "blanks, commas and semicolons: have the proxy send an address or an id"
        )
    found = sorted({group.strip() for group in groups.split(",")} - {""})
    if len(found) > MOST_GROUPS or not all(map(_NAME.fullmatch, found)):
        raise PersonRefused(
            f"The header of the groups may have {MOST_GROUPS} names with commas between them, each of 1 to {MOST_NAME} "
            "printable ASCII characters without blanks and semicolons"
        )
    return Person(name, tuple(found))
