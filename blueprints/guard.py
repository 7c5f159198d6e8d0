"""Authenticates and authorizes every request, before its operation runs and before its body is read.

A client sends a key as `Authorization: Bearer KEY` or as `X-Session-API-Key: KEY`. For a socket it may also be the
query's `session_api_key`, or come in the first frame (`blueprints/websocket.py`). A ticket is the query's `ticket`, and
`blueprints/forwarding.py` describes the cookie. Source: docs/access.md; the agent-server wire, 5.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from flask import Flask, Response, g, request
from werkzeug.exceptions import Forbidden, LengthRequired, Unauthorized

from blueprints.api import InvalidInput, Needs, declared
from blueprints.following import FollowingRequests
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

#: Rules of other packages: pages and assets, which contain no data.
_OF_PACKAGES = {"static", "api-docs.openapi_json"}

#: Maximum length of a key, in characters.
_LONGEST = 512

#: Maximum number of people and groups that a refusal names.
_MOST_NAMED = 10

#: Response header: `unknown` if an open server does not know the request's key. The request is served anyway.
KEY_STATUS = "X-Key-Status"

#: Whether a key is needed. open_until_key: from the next start after the first key is made.
Auth = Literal["keys", "open", "open_until_key"]


class Guard:
    """Authenticates callers by the keys of the settings, of admins and of sandboxes."""

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
        """is_open: everyone who reaches the server may do everything. until_key: the next start needs a key if one is
        stored. make_key: ask the store for keys at the first request, and call this if no key has the scope `admin`.
        followers: limit of long-lived requests per key. people: of a trusted proxy; None: there is no such proxy.
        Raises LookupError for a rule without @needs.
        """
        self._declared = {rule.endpoint: _needs(app, rule.endpoint) for rule in app.url_map.iter_rules()}
        self._keys = keys
        self._store = store
        self._is_open = is_open
        self._until_key = until_key
        self._make_key = make_key
        self._people = people
        self.following = FollowingRequests(self._store.access.keys, followers)

    def check(self) -> Response | None:
        """Authenticate the current request and set its `g.principal`, or return the response to a preflight.

        Raises MisdirectedRequest, Forbidden, Unauthorized, and TooManyRequests after too many wrong keys.
        """
        if preflight := admit():
            return preflight
        g.principal = ANYONE if self._is_open else NOBODY
        SHOWS_KEYS.set(self._is_open)
        rule = request.url_rule
        if request.method == "OPTIONS":  # it changes nothing, and browsers send it without a key
            return None
        if rule is None:
            # An unknown path is 404 for everyone. Only callers with the scope `read` learn that an id is malformed.
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
        """Return whether a key is needed now and after the next start."""
        return "keys" if not self._is_open else "open_until_key" if self._until_key else "open"

    def _ask_store(self, make_key: Callable[[], str]) -> None:
        """Ask the store, once, whether a key is needed. Raises one of UNAVAILABLE."""
        self._is_open = not self._store.access.keys.all()
        if not self._is_open and not self._store.access.keys.of_admins():
            self._keys = SettingsKeys([make_key()])
        self._make_key = None
        g.principal = ANYONE if self._is_open else NOBODY

    def stands(self, principal: Principal) -> bool:
        """Return whether an earlier caller is still accepted: the key is valid, or none is needed."""
        return self.following.are_live(principal) if principal.key_id else self._is_open and not self._make_key

    def find(self, key: str) -> Principal | None:
        """Return the principal of a key from the settings or from an admin."""
        return None if len(key) > _LONGEST else self._keys.find(key) or self._store.access.keys.find(key)

    def _shows_unknown_key(self, needs: Needs) -> bool:
        """Return whether a request has an unknown key; false if the store is unavailable.

        Cost: at most one round trip.
        """
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
            return  # the first frame has the key
        if needs.hook and g.principal.sandbox_id is not None:
            if (request.view_args or {}).get("sandbox_id", g.principal.sandbox_id) != g.principal.sandbox_id:
                raise Unauthorized("The hook key belongs to another sandbox than the path names")
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
        """Return a person's principal. Raises Unauthorized for a request with a key too, Forbidden without a right."""
        if shown_key(needs) is not None:
            raise Unauthorized(
                f"The request shows a key and comes from {person.name} through the proxy: send only one of both"
            )
        if found := self._store.access.people.admit(person, (request.view_args or {}).get("conversation_id")):
            return found
        raise Forbidden(f"{person.name} has no right here: an admin gives one by POST /api/v1/grants")

    def _refusal_of(self, principal: Principal, scope: str) -> str:
        """Return why a person may not do something, and who may."""
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
        """Return the principal of the request's key. Raises the errors of `_sandbox` too.

        Raises Unauthorized for a wrong key, Forbidden for a sandbox that may not call this operation.
        """
        if needs.hook and (sandbox := self._sandbox(key)):
            return sandbox
        if found := self.find(key) or (self._user_of_sandbox(key) if needs.session else None):
            return found
        if not needs.hook and (sandbox := self._sandbox(key)):
            g.principal = sandbox
            raise Forbidden("The hook key of a sandbox is only valid for its webhooks")
        if _is_socket():  # existing clients expect this status. Source: the agent-server wire, 5
            count_failure()
            raise Forbidden("The key is wrong, was revoked or has expired")
        raise Unauthorized("The key is wrong, was revoked or has expired")

    def _sandbox(self, key: str) -> Principal | None:
        """Return the sandbox of a hook key. Raises SandboxPostedTooMuch, SandboxPostsTooFast, LengthRequired."""
        about = (request.view_args or {}).get("conversation_id", "")
        if len(key) > _LONGEST:
            return None
        sandbox_id = self._store.sandboxes.of_hook_key(key, about, request.content_length or 0)
        if sandbox_id and "HTTP_TRANSFER_ENCODING" in request.environ:  # the length is checked before the body is read
            raise LengthRequired("A webhook of a sandbox must have its length: Content-Length, no Transfer-Encoding")
        return (
            Principal(f"sandbox {sandbox_id}", sandbox_id=sandbox_id, hook_hash=key_hash(key)) if sandbox_id else None
        )

    def _user_of_sandbox(self, key: str) -> Principal | None:
        sandbox_id = self._store.sandboxes.of_session_key(key) if len(key) <= _LONGEST else None
        return Principal(f"user of sandbox {sandbox_id}", user_of=sandbox_id) if sandbox_id else None

    def _bearer_of_ticket(self) -> Principal:
        """Return the principal of a ticket. Raises Unauthorized, and Forbidden for a ticket of another conversation."""
        about_now = (request.view_args or {}).get("conversation_id")
        principal = self._store.access.tickets.take(request.args["ticket"][:_LONGEST], about_now)
        if principal is None or not self.following.are_live(principal):
            raise Unauthorized("The ticket is unknown, too old, or was used before: POST /api/v1/tickets makes another")
        if principal.conversation_id != about_now:
            about = f"the conversation {principal.conversation_id}" if principal.conversation_id else "no conversation"
            raise Forbidden(f"The ticket is for {about}: POST /api/v1/tickets makes one for another")
        return principal

    def _bearer_of_cookie(self, cookie: str) -> Principal:
        """Return the principal of a cookie. Raises Unauthorized."""
        found = self._store.access.sessions.find(cookie)
        if found is None or not found[0].key_id or not self.following.are_live(found[0]):
            raise Unauthorized("The cookie has expired, or its key was revoked: POST /api/auth/workspace-session again")
        return replace(found[0], scopes=frozenset({"approve"}))  # no operation that writes accepts a cookie


def register_guard(app: Flask, guard: Guard) -> None:
    app.before_request(guard.check)
    app.after_request(_with_key_status)


def _with_key_status(response: Response) -> Response:
    if g.get("has_unknown_key"):
        response.headers[KEY_STATUS] = "unknown"
    return response


def shown_key(needs: Needs) -> str | None:
    """Return the key of the current request. Raises Unauthorized for two different keys, or a key in a wrong place."""
    environ = request.environ
    authorization, header = environ.get("HTTP_AUTHORIZATION"), environ.get("HTTP_X_SESSION_API_KEY")
    bearer = None if authorization is None else _bearer(authorization)
    # An agent server adds its own key to its webhooks, and a client the key of its sandbox.
    if (needs.hook or needs.session) and bearer is not None:
        return bearer
    # Invalid Unicode in a query is refused after the key is read, and only by operations that read the query.
    query = environ.get("QUERY_STRING", "")
    is_read = bool(query) and (_is_socket() or "session_api_key" in query)
    in_query = request.args.get("session_api_key") if is_read else None
    if in_query is not None and not _is_socket():
        raise Unauthorized("A key in the query is only valid for sockets: send it in a header")
    shown = {key for key in (bearer, header, in_query) if key is not None}
    if len(shown) > 1:
        raise Unauthorized("The request has two different keys: send one of them")
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
