"""Digests of what a person decides about, and of the entries of an audit. Source: RFC 8785, docs/approvals.md."""

import json
from hashlib import sha256
from types import NoneType
from typing import Any

import rfc8785

#: the largest integer that RFC 8785 has a form of
_MOST_INTEGER = 2**53 - 1

#: rfc8785 is Python alone, and takes five times as long
_sorted_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def canonical(value: Any) -> bytes:
    """The canonical JSON of a value, after RFC 8785.

    RFC 8785 has no form of an integer beyond 2^53 or of a lone surrogate: there it is Python's JSON with sorted keys,
    which keeps every digit, so that two values never share a form.
    """
    try:
        return _sorted_json(value).encode() if _is_plain(value) else rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _is_plain(value: Any) -> bool:
    """Whether a value's sorted JSON is canonical: not where a number is a fraction, nor where a name is not ASCII, as
    RFC 8785 sorts names by UTF-16.
    """
    kind = type(value)
    if kind is dict:
        return all(type(name) is str and name.isascii() for name in value) and all(map(_is_plain, value.values()))
    if kind is list:
        return all(map(_is_plain, value))
    return kind in (str, bool, NoneType) or (kind is int and abs(value) <= _MOST_INTEGER)


def digest(value: Any) -> str:
    """The hex SHA-256 of a value's canonical JSON."""
    return sha256(canonical(value)).hexdigest()


def shown_arguments(action: Any) -> Any:
    """The arguments of an action as people are shown them: its members but `kind`."""
    if not isinstance(action, dict):
        return action
    return {name: value for name, value in action.items() if name != "kind"}


def action_digest(tool_name: Any, arguments: Any) -> str:
    """The digest of an action, which binds a decision to what a person was shown."""
    return digest({"tool_name": tool_name, "arguments": arguments})
