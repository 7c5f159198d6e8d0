"""People who come through a proxy that has authenticated them, and what they may do where. No Flask and no Redis.

A grant gives a person, or everybody in a group, a role in the conversations with its tags, or in all. Names and groups
are compared exactly. Where two names would count as two people, case does not matter: `Ada` and `ada` are one voter.
Source: docs/access.md, "People".
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, NamedTuple, get_args

from core.access import Scope
from core.wire import Micros, has_tag

#: what a grant allows; `approve` includes nothing of `steer`, `admin` includes all
Role = Literal["ask", "steer", "approve", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

#: Maximum number of characters of a person's name and of a group's, and of groups in one request.
MOST_NAME, MOST_GROUPS = 128, 100

#: what a name is made of: printable ASCII without blanks, commas and semicolons, in which proxies list several values
NAME = r"[!-+\-.-:<-~]{1,128}"
_NAME = re.compile(NAME)

#: what the id of a person begins with, where a key's would stand
_PERSON = "person-"

_SCOPES: dict[Role, Scope] = {"ask": "write", "steer": "write", "approve": "approve", "admin": "admin"}


class PersonRefused(ValueError):
    """A request names a person in a way that nobody can rely on; the message is for the client."""


class Person(NamedTuple):
    """One whom a trusted proxy has authenticated."""

    name: str
    groups: tuple[str, ...] = ()  #: sorted, each once

    @property
    def id(self) -> str:
        """What stands where a key's id would."""
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
        """Whether it is the person's, or one of their groups'."""
        return self.person == person.name if self.group is None else self.group in person.groups

    def holds_for(self, tags: Mapping[str, str]) -> bool:
        """Whether it is about a conversation with these tags."""
        return all(has_tag(tags, name, value) for name, value in (self.tags or {}).items())


def voter(name: str) -> str:
    """The name under which a person counts once: an approval of `Ada` and one of `ada` are one person's."""
    return name.casefold()


def is_person_id(key_id: str) -> bool:
    """Whether an id that stands where a key's would is a person's."""
    return key_id.startswith(_PERSON)


def scopes_of(
    grants: Iterable[Grant], person: Person, tags: Mapping[str, str] | None = None, owner: str = ""
) -> frozenset[str]:
    """The scopes that grants give a person; none where no grant is theirs.

    tags, owner: of the conversation that is asked about; None: of no conversation, where grants for tags count for
    reading alone. `ask` gives `write` outside of conversations, and in those that the person owns.
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
    """The grants that give a scope in a conversation with these tags, whoever owns it."""
    roles = ("steer", "admin") if scope == "write" else (scope, "admin")
    return [grant for grant in grants if grant.role in roles and grant.holds_for(tags)]


def read_person(name: str, groups: str) -> Person:
    """The person whom two headers name; groups: with commas, "" none. Raises PersonRefused."""
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
