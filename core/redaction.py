"""Recognizes secrets in a client's settings by the names of members; responses never repeat them."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

#: the ends of names of settings whose values are never stored in clear, so that they cannot leak
_SECRET_NAMES = (
    "api_key",
    "authorization",
    "secret",
    "secret_key",
    "secret_access_key",
    "access_key_id",
    "password",
    "token",
    "headers",
    "env",
    "secrets",
)
REDACTED = "**********"

#: in the name of a setting, a header or a variable whose value is a secret by itself
_CREDENTIAL = re.compile(
    r"(?:^|[_-])KEY$|(?:API|ACCESS)[_-]?KEY|TOKEN$|SECRET|PASSW|CREDENTIAL|^AUTHORIZATION$|COOKIE$|DSN$", re.IGNORECASE
)
#: the password of a URL, after its first colon. Nothing is tried twice: the text may be a hostile one, and long
_PASSWORD = re.compile(r"://[^/@\s:]*+:([^/@\s]++)@")

#: an argument of a program that names what it gives: `--token=VALUE`, `TOKEN=VALUE`, `Authorization: VALUE`
_ARGUMENT = re.compile(r"-{0,2}([A-Za-z0-9_.-]{1,64})(?:=|:\s*+)(.+)", re.DOTALL)

#: what a header's value has after the name of its scheme
_SCHEME = re.compile(r"(?:bearer|basic|token) +(\S.*)", re.DOTALL | re.IGNORECASE)

#: fewest characters of a text that is looked for: a shorter one stands in any sentence
_LEAST = 4


def redacted(value: Any) -> Any:
    """A JSON value with REDACTED in place of each text whose name, or an outer one, is that of a secret."""
    return with_secrets(value, lambda _: REDACTED)


def with_secrets(value: Any, replace: Callable[[str], Any], hidden: bool = False) -> Any:
    """A JSON value with something else in place of each text whose name, or an outer one, is that of a secret."""
    if isinstance(value, dict):
        # The credential of an MCP server is called `value`, beside the strategy by which it is shown.
        return {
            name: inner
            if name == "kind"
            else with_secrets(inner, replace, hidden or _is_secret(name) or (name == "value" and "strategy" in value))
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [with_secrets(inner, replace, hidden) for inner in value]
    return replace(value) if hidden and value and isinstance(value, str) else value


def without_secrets_of(body: Any, said: Any) -> Any:
    """A JSON value that somebody said about a body, with REDACTED in place of every secret of that body."""
    secrets = sorted({text for text in _secrets(body) if len(text) >= _LEAST}, key=len, reverse=True)
    return _without(secrets, said)


def without_inputs(detail: Any) -> Any:
    """The detail of an HTTPValidationError without the inputs that it refuses: one of them may be a secret."""
    return [_fault(one) for one in detail] if isinstance(detail, list) else detail


def credentials_in(settings: Any) -> Iterator[str]:
    """The texts of settings that are secrets by their own names, of headers and variables too; passwords in URLs.

    A list may be the arguments of a program: `--api-key`, its value; `--token=VALUE`; `Authorization: VALUE`.
    """
    if isinstance(settings, Mapping):
        for name, inner in settings.items():
            if isinstance(inner, str):
                if _CREDENTIAL.search(name):
                    yield inner
                yield from _PASSWORD.findall(inner)
            else:
                yield from credentials_in(inner)
    elif isinstance(settings, list):
        option = ""
        for inner in settings:
            if isinstance(inner, str):
                yield from _in_argument(inner, option)
            else:
                yield from credentials_in(inner)
            option = inner if isinstance(inner, str) and inner.startswith("-") else ""
    elif isinstance(settings, str):
        yield from _PASSWORD.findall(settings)


def _in_argument(text: str, option: str) -> Iterator[str]:
    """The credentials in one argument of a program, which follows that option."""
    if option and not text.startswith("-") and _CREDENTIAL.search(option):
        yield text
    if (named := _ARGUMENT.match(text)) and _CREDENTIAL.search(named[1]):
        yield named[2]
        if scheme := _SCHEME.match(named[2]):
            yield scheme[1]
    yield from _PASSWORD.findall(text)


def _fault(said: Any) -> dict[str, Any]:
    said = said if isinstance(said, dict) else {}
    loc = said.get("loc")
    return {
        "loc": [one for one in loc if isinstance(one, str | int)] if isinstance(loc, list) else ["body"],
        "msg": str(said.get("msg", "")),
        "type": str(said.get("type", "value_error")),
    }


def _is_secret(name: str) -> bool:
    return name.lower().endswith(_SECRET_NAMES)


def _secrets(value: Any, hidden: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name != "kind":
                yield from _secrets(inner, hidden or _is_secret(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets(inner, hidden)
    elif hidden and isinstance(value, str):
        yield value


def _without(secrets: list[str], said: Any) -> Any:
    if isinstance(said, dict):
        return {_without(secrets, name): _without(secrets, inner) for name, inner in said.items()}
    if isinstance(said, list):
        return [_without(secrets, inner) for inner in said]
    if isinstance(said, str):
        for secret in secrets:
            said = said.replace(secret, REDACTED)
    return said


#: most profiles of models that a key keeps, and most of agents
MOST_PROFILES = 50

#: most steps of a run where nobody has set them. Source: the agent-server wire
MOST_STEPS = 500


def merged(kept: Any, diff: dict[str, Any]) -> dict[str, Any]:
    """What is kept with a diff laid over it: null removes a member, an object goes into an object. Source: RFC 7386."""
    result = dict(kept) if isinstance(kept, dict) else {}
    for name, value in diff.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name), value)
        else:
            result[name] = value
    return result


def unmasked(value: Any, kept: Any) -> Any:
    """A value that a client sends back, where each mask stands for what is kept; without such the member is absent."""
    if isinstance(value, dict):
        before = kept if isinstance(kept, dict) else {}
        return {
            name: unmasked(inner, before.get(name))
            for name, inner in value.items()
            if inner != REDACTED or before.get(name) is not None
        }
    if isinstance(value, list):
        items = kept if isinstance(kept, list) else []
        return [unmasked(inner, items[at] if at < len(items) else None) for at, inner in enumerate(value)]
    return kept if value == REDACTED else value


def has_key(llm: Any) -> bool:
    """Whether a model has a key of its own."""
    return isinstance(llm, dict) and bool(str(llm.get("api_key") or "").strip())


def without_key(llm: dict[str, Any]) -> dict[str, Any]:
    """A model without its secrets."""
    return {name: value for name, value in llm.items() if with_secrets({name: value}, lambda _: "") == {name: value}}
