"""The state of a conversation as Redis has it."""

import json
from collections.abc import Mapping
from typing import Any

from store.keys import APP_FIELD, TOLD_FIELD

#: fields of the hash that the recovery after a restart of an agent server keeps
_OF_RECOVERY = ("agent_log", "interrupted")

#: fields of the hash that say where its log lies
_OF_THE_LOG = (b"cold", b"warm_until")

#: fields of the hash that are JSON
_JSON_FIELDS = ("confirmation_policy", "title", "tags", "stats", "security_analyzer", "info", *_OF_RECOVERY)


def read_state(stored: dict[bytes, bytes], secret_names: list[bytes]) -> dict[str, Any]:
    """A conversation's state, its members by name, from its hash and the names of its secrets."""
    texts = {name.decode(): value.decode() for name, value in stored.items() if name not in _OF_THE_LOG}
    app = _popped(texts, APP_FIELD)
    told = _popped(texts, TOLD_FIELD)
    if "agent" in texts:
        told["agent"] = json.loads(texts.pop("agent"))
    state: dict[str, Any] = texts | {name: json.loads(texts.get(name, "null")) for name in _JSON_FIELDS}
    state["info"] = {**state["info"], **told}
    state["app"] = app
    seconds = texts.get("confirmation_seconds")
    state["confirmation_seconds"] = None if seconds is None else int(seconds)
    return {**state["info"], **state, "secret_names": sorted(name.decode() for name in secret_names)}


def _popped(texts: dict[str, str], prefix: str) -> dict[str, Any]:
    """The fields of a prefix, taken out of the others and read."""
    return {name.removeprefix(prefix): json.loads(texts.pop(name)) for name in [*texts] if name.startswith(prefix)}


def optional_fields(sandbox_id: str | None, app: dict[str, Any], seconds: int | None) -> dict[str, str]:
    """The fields that not every conversation has: its place in a sandbox, and its own `confirmation_seconds`."""
    fields = {} if seconds is None else {"confirmation_seconds": str(seconds)}
    if sandbox_id:
        fields |= {"sandbox_id": sandbox_id, "groups": _groups_of(sandbox_id, app), **app_fields(app)}
    return fields


def _groups_of(sandbox_id: str, app: dict[str, Any]) -> str:
    """The groups that an app conversation is listed in, beside its status; see `store/keys.py`."""
    parent = app.get("parent_conversation_id")
    return ",".join(["app", f"in-{sandbox_id}", f"of-{parent}" if parent else "top"])


def app_fields(app: Mapping[str, Any]) -> dict[str, str]:
    """Members that only app conversations have, each a field of its own: so two writers keep each other's."""
    return {APP_FIELD + name: json.dumps(value) for name, value in app.items()}
