"""The grants of people in Redis, in the slot of the access keys.

A worker caches the grants, and reads their version with each request of a person: a revoked grant is invalid from the
next request on. The script that decides actions compares the version, the conversation's tags and its owner again
(`scripts/_rights.lua`), so that no decision uses a revoked grant. Limitation: in a cluster the version lies on another
node than the conversation, and is read just before the decision.
"""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple
from uuid import uuid4

from core.access import Principal
from core.people import Grant, Person, grants_for, scopes_of
from core.refused import RefusalKind
from core.wire import ConversationId
from store.errors import StoreError
from store.keys import AccessRoot, ConversationKeys
from store.link.attempts import minted
from store.link.commands import Redis
from store.scripts import Scripts
from store.scripts.calls import MakeGrant

#: Maximum number of grants, and of people whose presence is recorded.
MOST_GRANTS, MOST_PEOPLE = 1000, 10_000


class GrantNotFound(StoreError):
    """The grant does not exist."""

    kind = RefusalKind.MISSING
    words = "Grant not found. GET /api/v1/grants lists all grants"


class GrantWasRevoked(StoreError):
    """An earlier attempt of this request made the grant, and it was revoked since."""

    kind = RefusalKind.CONFLICT
    words = "This request made a grant that has been revoked since: make another with a new request"


class TooManyGrants(StoreError):
    """The maximum number of grants is reached."""

    kind = RefusalKind.CONFLICT
    words = f"Limit of {MOST_GRANTS} grants reached: revoke one first (MOST_GRANTS)"


class ConversationStanding(NamedTuple):
    """The stored tags and owner of a conversation."""

    tags: str = "{}"
    owner: str = ""  #: name of a person or of a key


@dataclass(frozen=True, slots=True)
class _CachedGrants:
    version: str
    grants: tuple[Grant, ...]


class People:
    """The grants, and the people who have used this server."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts
        self._known = _CachedGrants("", ())

    def grant(self, wanted: Grant) -> Grant:
        """Store a grant with a new id and `created_at`, once per request.

        Raises TooManyGrants, GrantWasRevoked.
        """
        wanted = replace(wanted, id=str(minted("grant")))
        members = asdict(wanted)
        del members["created_at"]
        text = json.dumps(members, separators=(",", ":"))
        match self._scripts.make_grant(AccessRoot.root, id=wanted.id, grant=text, most=MOST_GRANTS):
            case MakeGrant.Made(made):
                return _grant(made)
            case "full":
                raise TooManyGrants
            case "revoked":
                raise GrantWasRevoked

    def all(self) -> list[Grant]:
        """Return the grants, the newest first."""
        found = map(_grant, self._scripts.list_grants(AccessRoot.root).grants)
        return sorted(found, key=lambda one: (one.created_at or 0, one.id), reverse=True)

    def get(self, grant_id: str) -> Grant:
        """Return a grant. Raises GrantNotFound."""
        for grant in self.all():
            if grant.id == grant_id:
                return grant
        raise GrantNotFound

    def revoke(self, grant_id: str) -> None:
        """Delete a grant, which ends its rights at once. Raises GrantNotFound."""
        if not self._scripts.revoke_grant(AccessRoot.root, id=grant_id, request=uuid4().hex):
            raise GrantNotFound

    def admit(self, person: Person, conversation_id: ConversationId | None) -> Principal | None:
        """Return the principal of a person whom the proxy names, with the scopes for a request; None without a right.

        conversation_id: conversation of the request, if any. One round trip, and more after a change of the grants.
        """
        about = json.dumps({"name": person.name, "groups": list(person.groups)})
        while True:
            known, standing, noted = self._read(conversation_id, person.id)
            tags = None if conversation_id is None else json.loads(standing.tags)
            scopes = scopes_of(known.grants, person, tags, standing.owner)
            if not scopes:
                return None
            if noted == about or self._scripts.note_person(
                AccessRoot.root, id=person.id, person=about, version=known.version, most=MOST_PEOPLE
            ):
                rights = json.dumps({"version": known.version, **standing._asdict()}) if conversation_id else ""
                return Principal(
                    person.name, person.id, scopes, person=person.name, groups=person.groups, rights=rights
                )

    def scopes(self, person: Person, conversation_id: ConversationId) -> frozenset[str]:
        """Return the scopes that a person has in a conversation. One round trip."""
        known, standing, _ = self._read(conversation_id)
        return scopes_of(known.grants, person, json.loads(standing.tags), standing.owner)

    def may_everywhere(self, person: Person, scope: str) -> bool:
        """Return whether a person has a scope in all conversations. One round trip."""
        return scope in scopes_of(self._read()[0].grants, person)

    def who_may(self, scope: str, conversation_id: ConversationId) -> list[str]:
        """Return, sorted, the names of people and `@` names of groups whose grants give a scope in a conversation."""
        known, standing, _ = self._read(conversation_id)
        found = grants_for(known.grants, scope, json.loads(standing.tags))
        return sorted({f"@{one.group}" if one.person is None else one.person for one in found})

    def _read(
        self, conversation_id: ConversationId | None = None, person_id: str = ""
    ) -> tuple[_CachedGrants, ConversationStanding, str | None]:
        """Return the grants, the tags and owner of a conversation, and the name recorded for an id.

        One round trip, two after a change of the grants.
        """
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.get(AccessRoot.grants_version)
            pipe.hget(AccessRoot.people, person_id)
            if conversation_id is not None:
                pipe.hmget(ConversationKeys(conversation_id).root, ["right_tags", "owner"])
            version, noted, *stored = pipe.execute()
        known = self._known
        if (version or b"").decode() != known.version:
            reply = self._scripts.list_grants(AccessRoot.root)
            self._known = known = _CachedGrants(reply.version.decode(), tuple(map(_grant, reply.grants)))
        tags, owner = stored[0] if stored else (None, None)
        return known, ConversationStanding((tags or b"{}").decode(), (owner or b"").decode()), noted and noted.decode()


def _grant(text: str) -> Grant:
    members: dict[str, Any] = json.loads(text)
    return Grant(**members)
