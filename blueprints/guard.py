"""Authenticates and authorizes every request, before its operation runs and before its body is read.

A key comes as `Authorization: Bearer KEY` or as `X-Session-API-Key: KEY`, on a socket also as the query's
`session_api_key` or in the first frame (`blueprints/websocket.py`). Where a ticket may stand for a key it is the
query's `ticket`; where a browser's cookie may, that of `blueprints/forwarding.py`.
Source: docs/access.md; the agent-server wire, 5.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from flask import Flask, Response, g, request
from werkzeug.exceptions import Forbidden, LengthRequired, Unauthorized

from blueprints.api import InvalidInput, Needs, declared
from blueprints.following import Following
from blueprints.people import ProxiedPeople
from blueprints.posture import admit
from blueprints.rates import count_failure
from core.access import ANYONE, NOBODY, Principal, SettingsKeys
from core.people import Person
from schemas.sandboxes import SHOWS_KEYS
from store import Store
from store.access import Quota
from store.access.access_keys import WORKSPACE_COOKIE
from store.errors import UNAVAILABLE
from store.sandboxes.sandboxes import key_hash

#: the rules that other packages add: pages and assets, which hold no data
_OF_PACKAGES = {"static", "api-docs.openapi_json"}

#: most characters of a key: a longer one is none of ours
_LONGEST = 512

#: Maximum number of people and groups that a refusal names.
_MOST_NAMED = 10

#: says `unknown` where a request shows a key that an open server does not know: it is served all the same
KEY_STATUS = "X-Key-Status"

#: whether a key is needed. open_until_key: not now, but from the next start after the first key is made
Auth = Literal["keys", "open", "open_until_key"]


class Guard:
    """Who asks, by the keys of the settings, of admins and of sandboxes."""

    def __init__(
        self,
        app: Flask,
        store: Store,
        keys: SettingsKeys,
        followers: Quota,
        *,
        is_open: bool,
        until_key: bool = False,
        make_key: Callable[[], str] | None = None,
        people: ProxiedPeople | None = None,
    ) -> None:
        """is_open: everyone who reaches the server may do everything. until_key: the next start needs a key if the
        store has one. make_key: the store is asked for keys first; it makes a key where none of them is an admin's.

        followers: the bound of what one key follows. people: who comes through a trusted proxy; None: nobody does.
        Raises LookupError for a rule that declares nothing.
        """
        self._declared = {rule.endpoint: _needs(app, rule.endpoint) for rule in app.url_map.iter_rules()}
        self._keys = keys
        self._store = store
        self._is_open = is_open
        self._until_key = until_key
        self._make_key = make_key
        self._people = people
        self.following = Following(self._store.access.keys, followers)

    def check(self) -> Response | None:
        """Let the present request pass, with its `g.principal`; a preflight is answered here.

        Raises MisdirectedRequest, Forbidden, Unauthorized, and TooManyRequests after too many wrong keys.
        """
        if preflight := admit():
            return preflight
        g.principal = ANYONE if self._is_open else NOBODY
        SHOWS_KEYS.set(self._is_open)
        rule = request.url_rule
        if request.method == "OPTIONS":  # it changes nothing, and a browser sends it without a key
            return None
        if rule is None:
            # An unknown path is 404 for everyone; a malformed id is shown only to those who may read.
            if isinstance(request.routing_exception, InvalidInput) and not self._is_open:
                self._require(Needs("read"))
            return None
        if (needs := self._declared[rule.endpoint]).scope not in ("open", "link"):
            if self._make_key:
                self._ask_store(self._make_key)
            try:
                self._require(needs)
                g.has_unknown_key = self._is_open and g.principal is ANYONE and self._shows_unknown_key(needs)
            except Unauthorized:
                count_failure()
                raise
            SHOWS_KEYS.set(g.principal.may("approve"))
        return None

    @property
    def auth(self) -> Auth:
        """Whether a key is needed, now and after the next start."""
        return "keys" if not self._is_open else "open_until_key" if self._until_key else "open"

    def _ask_store(self, make_key: Callable[[], str]) -> None:
        """Settle whether a key is needed, once. Raises one of UNAVAILABLE."""
        self._is_open = not self._store.access.keys.all()
        if not self._is_open and not self._store.access.keys.of_admins():
            self._keys = SettingsKeys([make_key()])
        self._make_key = None
        g.principal = ANYONE if self._is_open else NOBODY

    def stands(self, principal: Principal) -> bool:
        """Whether one who was let in earlier still is: the key opens something, or none is needed."""
        return self.following.are_live(principal) if principal.key_id else self._is_open and not self._make_key

    def find(self, key: str) -> Principal | None:
        """The one whose key this is, of the settings or of an admin's making."""
        return None if len(key) > _LONGEST else self._keys.find(key) or self._store.access.keys.find(key)

    def _shows_unknown_key(self, needs: Needs) -> bool:
        """Whether a request shows a key that opens nothing. At most one round trip; False while the store is away."""
        with suppress(Unauthorized, *UNAVAILABLE):
            return (key := shown_key(needs)) is not None and self.find(key) is None
        return False

    def _require(self, needs: Needs) -> None:
        if self._is_open and not needs.hook:
            if needs.session and (key := request.headers.get("X-Session-API-Key")):
                g.principal = self._user_of_sandbox(key) or ANYONE
            return
        if self._people and (person := self._people.of_request()):
            g.principal = self._person(person, needs)
        elif needs.ticket and "ticket" in request.args:
            g.principal = self._bearer_of_ticket()
        elif (key := shown_key(needs)) is not None:
            g.principal = self._owner(key, needs)
        elif needs.cookie and (cookie := request.cookies.get(WORKSPACE_COOKIE)):
            g.principal = self._bearer_of_cookie(cookie)
        elif _is_socket() and not self._is_open:
            return  # its first frame has the key
        if needs.hook and g.principal.sandbox_id is not None:
            if (request.view_args or {}).get("sandbox_id", g.principal.sandbox_id) != g.principal.sandbox_id:
                raise Unauthorized("The hook key is that of another sandbox than the path names")
            return
        if g.principal is NOBODY:
            raise Unauthorized("A key is needed: Authorization: Bearer KEY, or X-Session-API-Key: KEY")
        if needs.session and g.principal.user_of is not None:
            return
        if needs.scope == "hook":
            raise Unauthorized("Authorization: Bearer must have the hook key of the sandbox")
        if needs.scope != "open" and not g.principal.may(needs.scope):
            if g.principal.person:
                raise Forbidden(self._refusal_of(g.principal, needs.scope))
            raise Forbidden(f"This needs a key with the scope {needs.scope}: an admin makes one by POST /api/v1/keys")

    def _person(self, person: Person, needs: Needs) -> Principal:
        """One who comes through the proxy. Raises Unauthorized beside a key, Forbidden for one without a right."""
        if shown_key(needs) is not None:
            raise Unauthorized(
                f"The request shows a key and comes from {person.name} through the proxy: send one of both"
            )
        if found := self._store.access.people.admit(person, (request.view_args or {}).get("conversation_id")):
            return found
        raise Forbidden(f"{person.name} has no right here: an admin gives one by POST /api/v1/grants")

    def _refusal_of(self, principal: Principal, scope: str) -> str:
        """Why a person may not do something, and who may."""
        about = (request.view_args or {}).get("conversation_id")
        if not principal.rights or about is None:
            where = "outside of single conversations"
            role = {"write": "ask, steer", "ask": "admin"}.get(scope, scope)
            return f"{principal.name} may not do this: it needs a grant of the role {role} {where}, see docs/access.md"
        roles = "admin" if scope == "admin" else "steer" if scope == "write" else scope
        others = self._store.access.people.who_may(scope, about)
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        names = ", ".join(others[:_MOST_NAMED]) + more
        return f"{principal.name} may not do this in this conversation: it needs the role {roles} here, which " + (
            f"{names} may use" if others else "nobody has by a grant; an admin gives it by POST /api/v1/grants"
        )

    def _owner(self, key: str, needs: Needs) -> Principal:
        """The one whose key a request shows. Raises Unauthorized, Forbidden for a sandbox that may not ask this, and as
        `_sandbox`."""
        if needs.hook and (sandbox := self._sandbox(key)):
            return sandbox
        if found := self.find(key) or (self._user_of_sandbox(key) if needs.session else None):
            return found
        if not needs.hook and (sandbox := self._sandbox(key)):
            g.principal = sandbox
            raise Forbidden("The hook key of a sandbox opens its webhooks alone")
        if _is_socket():  # existing clients know this status. Source: the agent-server wire, 5
            count_failure()
            raise Forbidden("The key is wrong, was revoked or has expired")
        raise Unauthorized("The key is wrong, was revoked or has expired")

    def _sandbox(self, key: str) -> Principal | None:
        """The sandbox whose hook key this is. Raises SandboxPostedTooMuch, SandboxPostsTooFast, LengthRequired."""
        about = (request.view_args or {}).get("conversation_id", "")
        if len(key) > _LONGEST:
            return None
        sandbox_id = self._store.sandboxes.of_hook_key(key, about, request.content_length or 0)
        if sandbox_id and "HTTP_TRANSFER_ENCODING" in request.environ:  # its bytes are bounded before any is read
            raise LengthRequired("A webhook of a sandbox must have its length: Content-Length, no Transfer-Encoding")
        return (
            Principal(f"sandbox {sandbox_id}", sandbox_id=sandbox_id, hook_hash=key_hash(key)) if sandbox_id else None
        )

    def _user_of_sandbox(self, key: str) -> Principal | None:
        sandbox_id = self._store.sandboxes.of_session_key(key) if len(key) <= _LONGEST else None
        return Principal(f"user of sandbox {sandbox_id}", user_of=sandbox_id) if sandbox_id else None

    def _bearer_of_ticket(self) -> Principal:
        """Raises Unauthorized, and Forbidden for a ticket of another conversation."""
        about_now = (request.view_args or {}).get("conversation_id")
        principal = self._store.access.tickets.take(request.args["ticket"][:_LONGEST], about_now)
        if principal is None or not self.following.are_live(principal):
            raise Unauthorized("The ticket is unknown, too old, or was used before: POST /api/v1/tickets makes another")
        if principal.conversation_id != about_now:
            about = f"the conversation {principal.conversation_id}" if principal.conversation_id else "no conversation"
            raise Forbidden(f"The ticket is for {about}: POST /api/v1/tickets makes one for another")
        return principal

    def _bearer_of_cookie(self, cookie: str) -> Principal:
        """Raises Unauthorized."""
        found = self._store.access.sessions.find(cookie)
        if found is None or not found[0].key_id or not self.following.are_live(found[0]):
            raise Unauthorized("The cookie has expired, or its key was revoked: POST /api/auth/workspace-session again")
        return replace(found[0], scopes=frozenset({"approve"}))  # no operation that writes takes a cookie


def register_guard(app: Flask, guard: Guard) -> None:
    """Guard every URL rule of the app."""
    app.before_request(guard.check)
    app.after_request(_with_key_status)


def _with_key_status(response: Response) -> Response:
    if g.get("has_unknown_key"):
        response.headers[KEY_STATUS] = "unknown"
    return response


def shown_key(needs: Needs) -> str | None:
    """The key that the present request shows. Raises Unauthorized for two that differ, and for one in a wrong place."""
    environ = request.environ
    authorization, header = environ.get("HTTP_AUTHORIZATION"), environ.get("HTTP_X_SESSION_API_KEY")
    bearer = None if authorization is None else _bearer(authorization)
    # An agent server adds its own key to the headers of its webhooks, and a client that of its sandbox to its own.
    if (needs.hook or needs.session) and bearer is not None:
        return bearer
    # A query that is no Unicode is refused where it is read: after the key, and not by what ignores its query.
    query = environ.get("QUERY_STRING", "")
    is_read = bool(query) and (_is_socket() or "session_api_key" in query)
    in_query = request.args.get("session_api_key") if is_read else None
    if in_query is not None and not _is_socket():
        raise Unauthorized("A key in the query opens sockets alone: show it in a header")
    shown = {key for key in (bearer, header, in_query) if key is not None}
    if len(shown) > 1:
        raise Unauthorized("The request shows two different keys: show one of them")
    return shown.pop() if shown else None


def _bearer(header: str) -> str:
    scheme, _, key = header.partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthorized("Authorization must be: Bearer KEY")
    return key.strip()


def _is_socket() -> bool:
    return request.url_rule is not None and request.url_rule.websocket


def _needs(app: Flask, endpoint: str) -> Needs:
    return Needs("open") if endpoint in _OF_PACKAGES else declared(app.view_functions.get(endpoint), endpoint)
