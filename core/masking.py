"""Masking of secrets in texts and in settings.

A secret is found literally, JSON-escaped, percent-encoded, and in Base64 at any offset; a multi-line secret also by
each of its longer lines. At the ends of an output, which may be truncated or arrive in chunks, a prefix or suffix of
the secret is found too. Other encodings (reversed, hexadecimal, encrypted, a character per line) are not found: masking
prevents accidents, and does not stop a program that wants to print a secret.

In a client's settings, a value is a secret if its name says so, such as `api_key`. Responses have REDACTED instead.
"""

import base64
import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import quote, quote_plus

from core.pauses import take_turns
from core.wire import EXECUTION_STATUSES, ReceivedEvent, parse_json

#: Replacement of a secret. Source: the published agent server, which masks the output of its terminal
HIDDEN = "<secret-hidden>"

#: Minimum length of a masked secret, in characters. Shorter ones occur in any text.
LEAST = 6

#: Maximum length of a secret that is searched in every form, in characters. Longer ones are searched literally, in
#: JSON, by line, and in the Base64 of the whole.
_MOST_ENCODED = 1024

#: Minimum length of a line of a secret, and of a piece of its Base64, that are searched by themselves, in characters.
_LEAST_LINE, _LEAST_CODED = 16, 8

#: Line length of `base64`, in characters.
_CODED_LINE = 76

#: Minimum overlap that masks a truncated secret at an end of an output, in characters. For a secret of less than twice
#: the first number it is half of the secret, and never less than the second number.
_PART, _LEAST_PART = 8, 5

#: Maximum number of occurrences of the start or end of an output in a secret that are compared.
_MOST_PLACES = 16

#: Maximum number of forms that are searched one by one. With more forms, each position of the text is looked up in
#: `_heads`.
_MOST_SEARCHED = 500

#: Kinds of events whose texts may be truncated or arrive in chunks.
_OUTPUTS = ("ObservationEvent", "StreamingDeltaEvent", "CommandOutputEvent")

#: Top-level members of an event that identify it, and stay unmasked.
_NAMES = frozenset(
    {"id", "timestamp", "source", "key", "action_id", "tool_call_id", "tool_name", "llm_response_id", "security_risk"}
)

#: Constants of the wire, which stay unmasked even if a secret is equal to one.
_WORDS = frozenset({*EXECUTION_STATUSES, "LOW", "MEDIUM", "HIGH", "UNKNOWN"})

#: The name of a member on the wire.
_MEMBER = re.compile(r"[a-z_]+")

#: A JSON string, with the colon if it is a member's name.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"(\s*:)?', re.DOTALL)

#: The next character after a JSON string that is not a space.
_MORE = re.compile(r"\S")

#: Characters that no JSON encoder escapes.
_AS_IT_IS = re.compile(r"[A-Za-z0-9_.-]+")

_SCHEME = re.compile(r"(?:Bearer|Basic|Token)\s+(\S+)", re.IGNORECASE)


#: Suffixes of the names of secret settings, whose values are never stored in clear.
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

#: Matches the name of a setting, a header or a variable that holds a secret.
_CREDENTIAL = re.compile(
    r"(?:^|[_-])KEY$|(?:API|ACCESS)[_-]?KEY|TOKEN$|SECRET|PASSW|CREDENTIAL|^AUTHORIZATION$|COOKIE$|DSN$", re.IGNORECASE
)

#: The password in a URL. Possessive, because the text may be long and hostile.
_PASSWORD = re.compile(r"://[^/@\s:]*+:([^/@\s]++)@")

#: A named argument of a program: `--token=VALUE`, `TOKEN=VALUE`, `Authorization: VALUE`.
_ARGUMENT = re.compile(r"-{0,2}([A-Za-z0-9_.-]{1,64})(?:=|:\s*+)(.+)", re.DOTALL)

#: The credential in a header's value, after the scheme.
_AFTER_SCHEME = re.compile(r"(?:bearer|basic|token) +(\S.*)", re.DOTALL | re.IGNORECASE)

#: Minimum length of a credential, in characters. Shorter ones occur in any sentence.
_LEAST = 4

#: Maximum number of profiles of models, and of agents, that a key keeps.
MOST_PROFILES = 50

#: Default maximum number of steps of a run. Source: the agent-server wire
MOST_STEPS = 500


class Mask:
    """Masks a set of secrets. It holds their values in memory."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """values: those shorter than LEAST are ignored."""
        self._values = sorted({one for value in values for one in _parts(value) if len(one) >= LEAST})
        self._forms = sorted({form for value in self._values for form in _forms(value)}, key=len, reverse=True)
        self.size = sum(map(len, self._forms))  #: characters of all forms

    def __bool__(self) -> bool:
        return bool(self._values)

    def event(self, event: ReceivedEvent) -> ReceivedEvent:
        """Mask an event; an event without a secret is returned unchanged, with the same bytes.

        Its id, its kind and other identifiers stay.
        """
        is_output = event.kind in _OUTPUTS
        if not self._values or not (is_output or self._may_be_in(event.raw)):
            return event
        text = event.raw.decode()
        masked = "".join(self._pieces(text, is_output))
        return event if masked == text else event._replace(fields=parse_json(masked.encode()), raw=masked.encode())

    def text(self, text: str, *, is_output: bool = False) -> str:
        """Mask a text. is_output: it may begin or end within a secret."""
        spans = [*self.spans(text), *(self._spans_at_ends(text) if is_output else ())]
        if not spans:
            return text
        found, end = list[str](), 0
        for first, last in _joined(spans):
            found += (text[end:first], HIDDEN)
            end = last
        return "".join((*found, text[end:]))

    def json(self, pieces: Iterable[bytes], most: int) -> Iterator[bytes]:
        """Mask the strings of a JSON text that arrives in chunks. Invalid UTF-8 becomes U+FFFD.

        Raises TextTooLong for a string of more bytes than allowed.
        """
        decoder, reader = getincrementaldecoder("utf-8")("replace"), _JsonReader(self, is_output=False)
        for piece in pieces:
            if masked := "".join(reader.feed(decoder.decode(piece))):
                yield masked.encode()
            if len(reader.rest) > most:
                raise TextTooLong
        yield "".join((*reader.feed(decoder.decode(b"", final=True), is_last=True), reader.rest)).encode()

    def begin_at_end(self, text: str) -> int:
        """Return the index from which the text may be the beginning of a form; the text's length if there is none."""
        longest = len(self._forms[0]) if self._forms else 0
        for at in range(max(len(text) - longest + 1, 0), len(text)):
            rest = text[at:] if len(text) - at < LEAST else ""
            if rest in self._begins:
                return at
            for form in self._heads.get(text[at : at + LEAST], ()):
                if len(form) > len(text) - at and form.startswith(text[at:]):
                    return at
        return len(text)

    def value(self, value: Any, *, is_output: bool = False) -> Any:
        """Mask every string of a JSON value except the names of members."""
        if isinstance(value, dict):
            return {name: self.value(inner, is_output=is_output) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner, is_output=is_output) for inner in value]
        return self.text(value, is_output=is_output) if isinstance(value, str) else value

    @cached_property
    def _heads(self) -> dict[str, list[str]]:
        """Return the forms by their first LEAST characters, the longest first."""
        heads = dict[str, list[str]]()
        for form in self._forms:
            heads.setdefault(form[:LEAST], []).append(form)
        return heads

    @cached_property
    def _begins(self) -> frozenset[str]:
        """Return the prefixes of all forms with less than LEAST characters."""
        return frozenset(head[:number] for head in self._heads for number in range(1, LEAST))

    @cached_property
    def _anchors(self) -> list[bytes] | None:
        """Return byte strings for a quick check: an event without any of them has no secret.

        None: a form has no such string, or there are more than _MOST_SEARCHED forms.
        """
        if len(self._forms) > _MOST_SEARCHED:
            return None
        found = {max(_AS_IT_IS.findall(form), key=len, default="") for form in self._forms}
        if any(len(anchor) < 3 for anchor in found):
            return None
        least = list[str]()
        for anchor in sorted(found, key=len):
            if not any(one in anchor for one in least):
                least.append(anchor)
        return [anchor.encode() for anchor in least]

    def _may_be_in(self, raw: bytes) -> bool:
        return self._anchors is None or any(anchor in raw for anchor in self._anchors)

    def _pieces(self, text: str, is_output: bool) -> Iterator[str]:
        """Mask the strings in the chunks of a JSON text."""
        reader = _JsonReader(self, is_output=is_output)
        yield from reader.feed(text, is_last=True)
        yield reader.rest

    def coded(self, coded: str, is_name: bool, is_output: bool) -> str:
        """Mask a JSON string. A string without a secret is returned unchanged, with the same escapes."""
        take_turns()
        if not (is_output or self._may_be_in(coded.encode("utf-8", "surrogatepass"))):
            return coded
        text = json.loads(coded)
        if text in _WORDS or (is_name and _MEMBER.fullmatch(text)):
            return coded
        masked = self.text(text, is_output=is_output and not is_name)
        return coded if masked == text else json.dumps(masked)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        if len(self._forms) > _MOST_SEARCHED:
            for at in range(len(text) - LEAST + 1):
                for form in self._heads.get(text[at : at + LEAST], ()):
                    if text.startswith(form, at):
                        yield at, at + len(form)
                        break
            return
        for form in self._forms:
            at = text.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = text.find(form, at + len(form))

    def _spans_at_ends(self, text: str) -> Iterator[tuple[int, int]]:
        """Return the spans of truncated secrets at the ends of a text. A text that lies within a secret is one span."""
        for value in self._values:
            part = max(_LEAST_PART, min(_PART, (len(value) + 1) // 2))
            if len(text) < part:
                continue
            for at in _places(value, text[:part]):
                if text.startswith(value[at:]):
                    yield 0, len(value) - at
                elif value.startswith(text, at):
                    yield 0, len(text)
            for at in _places(value, text[-part:]):
                if text.endswith(value[: at + part]):
                    yield len(text) - at - part, len(text)


#: A mask without secrets.
NOTHING = Mask()


class TextTooLong(Exception):
    """A JSON text has a string that is too long to hold in memory."""


class _JsonReader:
    """Masks the strings of a JSON text that may arrive in chunks. rest: the unfinished end of the last chunk."""

    def __init__(self, mask: Mask, *, is_output: bool) -> None:
        self.rest = ""
        self._mask, self._is_output = mask, is_output
        self._depth, self._member = 0, ""

    def feed(self, piece: str, *, is_last: bool = False) -> Iterator[str]:
        text, end = self.rest + piece, 0
        while (begin := text.find('"', end)) >= 0:
            yield self._between(text[end:begin])
            end = begin
            match = _STRING.match(text, begin)
            if match is None or (not is_last and not (match[1] or _MORE.search(text, match.end()))):
                break  # the string or its colon may follow in the next chunk
            coded = match[0][: match[0].rindex('"') + 1]
            end, is_name = match.end(), match[1] is not None
            if not is_name and (self._member == "kind" or (self._depth == 1 and self._member in _NAMES)):
                yield match[0]
            else:
                yield self._mask.coded(coded, is_name, self._is_output) + (match[1] or "")
            self._member = coded[1:-1] if is_name else ""
        else:
            yield self._between(text[end:])
            end = len(text)
        self.rest = text[end:]

    def _between(self, text: str) -> str:
        """Return the text between two strings, unchanged."""
        self._depth += sum(map(text.count, "{[")) - sum(map(text.count, "}]"))
        return text


class Masked:
    """Masks a text that arrives in chunks, also where a secret is split between them.

    A possible beginning of a secret is held back until the next chunk or the end.
    """

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._held, self._hidden = "", 0  # number of held characters that belong to a masked secret

    def feed(self, piece: str) -> str:
        """Add a chunk. Return the text that is final."""
        text = self._held + piece
        return self._shown(text, self._mask.begin_at_end(text))

    def end(self) -> str:
        """Return the rest, after the last chunk."""
        return self._shown(self._held, len(self._held))

    def _shown(self, text: str, most: int) -> str:
        spans = [(0, self._hidden)] if self._hidden else []
        shown, end, goes_on = list[str](), 0, bool(self._hidden)
        self._hidden = 0
        for first, last in _joined([*spans, *self._mask.spans(text)]):
            if first >= most:
                break
            shown += () if goes_on and first == 0 else (text[end:first], HIDDEN)
            end, self._hidden = min(last, most), max(last - most, 0)
        self._held = text[most:]
        return "".join((*shown, text[end:most]))


def _places(value: str, part: str) -> Iterator[int]:
    at, number = value.find(part), 0
    while at >= 0 and number < _MOST_PLACES:
        yield at
        at, number = value.find(part, at + 1), number + 1


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge spans that overlap or touch, in order."""
    found = list[tuple[int, int]]()
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _parts(value: str) -> Iterator[str]:
    """Return a secret without surrounding space, its credential after a scheme, and its longer lines."""
    value = value.strip()
    yield value
    if match := _SCHEME.fullmatch(value):
        yield match[1]
    if "\n" in value:
        # Programs disagree about line ends such as a form feed. Mask both readings.
        lines = (line.strip() for line in dict.fromkeys((*value.split("\n"), *value.splitlines())))
        yield from (line for line in lines if len(line) >= _LEAST_LINE and not line.startswith("-----"))


def _forms(value: str) -> Iterator[str]:
    """Return the encodings in which a text may contain a secret."""
    yield value
    for as_ascii in (True, False):
        within = json.dumps(value, ensure_ascii=as_ascii)[1:-1]
        yield within
        yield json.dumps(within, ensure_ascii=as_ascii)[1:-1]
    raw = value.encode("utf-8", "surrogatepass")
    if len(value) <= _MOST_ENCODED:
        for percent in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
            yield percent
            yield re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), percent)
    for coded in _coded(raw):
        yield coded
        yield coded.replace("+", "-").replace("/", "_")


def _coded(raw: bytes) -> Iterator[str]:
    """Return the parts of the Base64 that do not depend on the bytes around the secret.

    A long secret also yields the lines that `base64` prints for it.
    """
    whole = base64.b64encode(raw).decode()
    if len(whole) > _CODED_LINE:
        lines = (whole[at : at + _CODED_LINE] for at in range(0, len(whole), _CODED_LINE))
        yield from (line for line in (one.rstrip("=") for one in lines) if len(line) >= _LEAST_LINE)
    for before in range(3) if len(raw) <= _MOST_ENCODED else (0,):
        coded = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        part = coded[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]
        if len(part) >= _LEAST_CODED:
            yield part


def redacted(value: Any) -> Any:
    """Replace each secret of a JSON value by REDACTED. `with_secrets` finds them."""
    return with_secrets(value, lambda _: REDACTED)


def with_secrets(value: Any, replace: Callable[[str], Any], hidden: bool = False) -> Any:
    """Replace each secret string of a JSON value.

    A string is a secret if its name or an enclosing one says so, if it is a URL with a password, or, in a list, if it
    is an argument with a credential (`bears_credential`).
    """
    if isinstance(value, dict):
        # The credential of an MCP server is named `value`, beside its strategy.
        return {
            name: inner
            if name == "kind"
            else with_secrets(inner, replace, hidden or _is_secret(name) or (name == "value" and "strategy" in value))
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [
            with_secrets(inner, replace, hidden or (isinstance(inner, str) and bears_credential(inner, before)))
            for before, inner in zip([None, *value], value, strict=False)
        ]
    if not value or not isinstance(value, str):
        return value
    return replace(value) if hidden or _PASSWORD.search(value) else value


def without_secrets_of(body: Any, said: Any) -> Any:
    """Replace every secret of a request's body in a message about that body by REDACTED."""
    found = [*credentials_in(body)]
    with_secrets(body, found.append)
    return _without(sorted({text for text in found if len(text) >= _LEAST}, key=len, reverse=True), said)


def without_inputs(detail: Any) -> Any:
    """Remove the refused inputs from the detail of an HTTPValidationError, because an input may be a secret."""
    return [_fault(error) for error in detail] if isinstance(detail, list) else detail


def credentials_in(settings: Any) -> Iterator[str]:
    """Return the secrets of settings: passwords in URLs, and values of members, headers and variables by their names.

    A list may be the arguments of a program: `--api-key` and its value, `--token=VALUE`, `Authorization: VALUE`.
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
        for before, inner in zip([None, *settings], settings, strict=False):
            if isinstance(inner, str):
                yield from _in_argument(inner, before)
            else:
                yield from credentials_in(inner)
    elif isinstance(settings, str):
        yield from _PASSWORD.findall(settings)


def bears_credential(text: str, before: Any = None) -> bool:
    """Return whether a program's argument holds a credential. before: the argument in front of it."""
    return any(True for _ in _in_argument(text, before))


def _in_argument(text: str, before: Any) -> Iterator[str]:
    """Return the credentials in a program's argument. before: the argument in front of it."""
    follows_option = isinstance(before, str) and before.startswith("-") and not text.startswith("-")
    if follows_option and _CREDENTIAL.search(before):
        yield text
    if (named := _ARGUMENT.match(text)) and _CREDENTIAL.search(named[1]):
        yield named[2]
        if scheme := _AFTER_SCHEME.match(named[2]):
            yield scheme[1]
    yield from _PASSWORD.findall(text)


def _fault(error: Any) -> dict[str, Any]:
    error = error if isinstance(error, dict) else {}
    loc = error.get("loc")
    return {
        "loc": [one for one in loc if isinstance(one, str | int)] if isinstance(loc, list) else ["body"],
        "msg": str(error.get("msg", "")),
        "type": str(error.get("type", "value_error")),
    }


def _is_secret(name: str) -> bool:
    return name.lower().endswith(_SECRET_NAMES)


def _without(secrets: list[str], value: Any) -> Any:
    if isinstance(value, dict):
        return {_without(secrets, name): _without(secrets, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without(secrets, inner) for inner in value]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, REDACTED)
    return value


def merged(kept: Any, diff: dict[str, Any]) -> dict[str, Any]:
    """Apply a JSON Merge Patch: null removes a member, objects merge. Source: RFC 7386."""
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
    """Replace each REDACTED that a client sends back by the stored value. Without a stored value, drop the member."""
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
    """Return whether a model's settings have an API key."""
    return isinstance(llm, dict) and bool(str(llm.get("api_key") or "").strip())


def without_key(llm: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a model without its secrets."""
    return {name: value for name, value in llm.items() if with_secrets({name: value}, lambda _: "") == {name: value}}
