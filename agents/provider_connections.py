"""Provider connections: a key and a base URL that several models share. Source: the agent-server wire.

A model is the value of a member `llm`. With a `provider_connection_id` it has no key and no base URL of its own. Both
are looked up when they are used, so that a new key of a connection applies to each later start.
"""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from core.cuts import beginning
from core.masking import redacted, unmasked
from core.refused import RefusalKind
from store.access.client_settings import ClientSettings, Entries
from store.errors import StoreError

#: Maximum number of connections of a key. Source: the published agent server.
MOST_CONNECTIONS = 64

#: Prefix of connections in a key's entries.
_CONNECTION = "connection "

_LINK = "provider_connection_id"

#: Members that a model takes from its connection.
_CREDENTIALS = ("api_key", "base_url")


class ConnectionNotFound(StoreError):
    """The key has no provider connection with this id."""

    kind = RefusalKind.MISSING
    words = "Provider connection not found. GET /api/llm/provider-connections lists those that are there"


class TooManyConnections(StoreError):
    """The key has the maximum number of provider connections."""

    kind = RefusalKind.CONFLICT
    words = f"A key keeps at most {MOST_CONNECTIONS} provider connections: delete one first"


class ConnectionInUse(StoreError):
    """Models use the provider connection."""

    kind = RefusalKind.CONFLICT

    def __init__(self, name: str, users: list[str]) -> None:
        super().__init__(
            f"The provider connection {name} is used by {' and by '.join(users)}. Give these models another connection "
            "or a key of their own first"
        )


class ConnectionUnknown(StoreError):
    """The model names a provider connection that the key does not have."""

    kind = RefusalKind.MEMBER

    def __init__(self, connection_id: str, member: str) -> None:
        self.member = member
        super().__init__(
            f"{_LINK} names {beginning(connection_id, 128)!r}, which this key does not have. "
            "GET /api/llm/provider-connections lists all. For a model with its own key send "
            f"{_LINK}: null"
        )


class LinkedModel(StoreError):
    """The model has the key and base URL of a provider connection and cannot have its own."""

    kind = RefusalKind.MEMBER

    def __init__(self, connection_id: str, member: str) -> None:
        self.member = member
        super().__init__(
            f"The model has the key and the base URL of the provider connection {connection_id}. Change the "
            f"connection, or send {_LINK}: null with the model's own api_key and base_url"
        )


def with_llms(value: Any, change: Callable[[dict[str, Any]], dict[str, Any]], name: str = "") -> Any:
    """Change each model in a JSON value. name: of the member with the value."""
    if isinstance(value, list):
        return [with_llms(one, change) for one in value]
    if not isinstance(value, dict):
        return value
    members = {inner: with_llms(one, change, inner) for inner, one in value.items()}
    return change(members) if name == "llm" else members


def link_of(llm: dict[str, Any]) -> str | None:
    """Return the id of a model's connection."""
    link = llm.get(_LINK)
    return link if link and isinstance(link, str) else None


def links_in(value: Any) -> set[str]:
    """Return the ids of the connections that models in a JSON value name."""
    found: list[str | None] = []

    def look(llm: dict[str, Any]) -> dict[str, Any]:
        found.append(link_of(llm))
        return llm

    with_llms(value, look)
    return {link for link in found if link}


def resolved(llm: dict[str, Any], entries: Entries, member: str) -> dict[str, Any]:
    """Return a model with the key and the base URL of its connection, if it names one. Raises ConnectionUnknown.

    member: of the request with the model.
    """
    if (link := link_of(llm)) is None:
        return llm
    connection = entries.get(_CONNECTION + link)
    if connection is None:
        raise ConnectionUnknown(link, member)
    return {**_without_credentials(llm), **{name: connection[name] for name in _CREDENTIALS if connection[name]}}


def is_broken(llm: dict[str, Any], entries: Entries) -> bool:
    """Return whether a model names a missing connection, because it was saved before connections existed."""
    link = link_of(llm)
    return link is not None and _CONNECTION + link not in entries


def shown_form(llm: dict[str, Any], entries: Entries) -> dict[str, Any]:
    """Return a model for display: resolved, or unchanged if its link is broken."""
    return llm if is_broken(llm, entries) else resolved(llm, entries, "llm")


def runnable(value: Any, entries: Entries, member: str) -> Any:
    """Return a JSON value whose models an agent server can run: resolved, and without connection ids.

    Raises ConnectionUnknown.
    """

    def run(llm: dict[str, Any]) -> dict[str, Any]:
        if link_of(llm) is None:
            return llm
        return {name: one for name, one in resolved(llm, entries, member).items() if name != _LINK}

    return with_llms(value, run, member)


def kept_form(value: Any, entries: Entries, member: str, *, names_link: bool = True) -> Any:
    """Return a JSON value for storage: its linked models lose their own key and base URL.

    names_link: the request itself names the model's connection. Otherwise a key or a base URL in it is not the
    connection's. Raises ConnectionUnknown, LinkedModel.
    """

    def keep(llm: dict[str, Any]) -> dict[str, Any]:
        if (link := link_of(llm)) is None:
            return llm
        shared = resolved(llm, entries, member)
        if not names_link and any(llm.get(name) and llm[name] != shared.get(name) for name in _CREDENTIALS):
            raise LinkedModel(link, member)
        return _without_credentials(llm)

    return with_llms(value, keep, member)


def _without_credentials(llm: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in llm.items() if name not in _CREDENTIALS}


class OwnConnections:
    """The provider connections of a key. Every method raises the errors of `ClientSettings`."""

    def __init__(self, kept: ClientSettings, owner: str, unsealed: Callable[[Any], Any]) -> None:
        """unsealed: opens values that this server has sealed for the key; raises SealedElsewhere."""
        self._kept = kept
        self._owner = owner
        self._unsealed = unsealed

    def all(self) -> list[dict[str, Any]]:
        """Return all connections without their keys, the oldest first."""
        entries = self._kept.of(self._owner)
        return [
            _without_key(entries[name]) for name in sorted(_names(entries), key=lambda one: entries[one]["created_at"])
        ]

    def create(self, given: dict[str, Any]) -> dict[str, Any]:
        """Store a connection. Raises TooManyConnections, SealedElsewhere."""
        now, identity = self._kept.now(), uuid4().hex
        opened = self._opened(given, {})
        connection = {"base_url": None, **opened, "id": identity, "created_at": now, "updated_at": now}

        def change(entries: Entries) -> None:
            if len(_names(entries)) >= MOST_CONNECTIONS:
                raise TooManyConnections
            entries[_CONNECTION + identity] = connection

        self._kept.change(self._owner, change)
        return _without_key(connection)

    def update(self, connection_id: str, given: dict[str, Any]) -> dict[str, Any]:
        """Change members of a connection. Raises ConnectionNotFound, SealedElsewhere."""
        now = self._kept.now()

        def change(entries: Entries) -> dict[str, Any]:
            kept = _connection(entries, connection_id)
            entries[_CONNECTION + connection_id] = {**kept, **self._opened(given, kept), "updated_at": now}
            return _without_key(entries[_CONNECTION + connection_id])

        return self._kept.change(self._owner, change)

    def delete(self, connection_id: str) -> dict[str, Any]:
        """Delete a connection, and return it. Raises ConnectionNotFound, ConnectionInUse."""

        def change(entries: Entries) -> dict[str, Any]:
            gone = _connection(entries, connection_id)
            if users := list(_users(entries, connection_id)):
                raise ConnectionInUse(gone["display_name"], users)
            del entries[_CONNECTION + connection_id]
            return {**_without_key(gone), "api_key_set": False}

        return self._kept.change(self._owner, change)

    def _opened(self, given: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
        given = unmasked(given, kept)
        return {**given, **self._unsealed({name: given[name] for name in _CREDENTIALS if name in given})}


def _names(entries: Entries) -> list[str]:
    return [name for name in entries if name.startswith(_CONNECTION)]


def _connection(entries: Entries, connection_id: str) -> dict[str, Any]:
    connection: dict[str, Any] | None = entries.get(_CONNECTION + connection_id)
    if connection is None:
        raise ConnectionNotFound
    return connection


def _without_key(connection: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in connection.items() if name != "api_key"}
    times = {name: connection[name] // 1_000_000 for name in ("created_at", "updated_at")}
    masked: dict[str, Any] = redacted({**shown, **times, "api_key_set": True})
    return masked


def _users(entries: Entries, connection_id: str) -> Iterator[str]:
    """Yield the users of a connection, in words."""
    sorts = {"llm ": "the profiles", "agent ": "the agent profiles"}
    for prefix, words in sorts.items():
        named = {name.removeprefix(prefix): {"llm": one} for name, one in entries.items() if name.startswith(prefix)}
        if users := sorted(name for name, one in named.items() if connection_id in links_in(one)):
            yield f"{words} {', '.join(users)}"
    if connection_id in links_in(entries.get("settings")):
        yield "the settings"
