"""Masks the values of secrets in texts, in whatever form a program prints them, and changes nothing else.

A value is found as it is, in JSON inside of a text, percent-encoded, and in Base64 wherever it stands in what was
encoded; one of several lines also by each longer line. At the ends of an output, which may be cut or come in pieces,
the first or the last part of a value is found too. What a program makes of it otherwise (reversed, in hexadecimal,
encrypted, a character per line) is not found: masking prevents accidents, and stops nobody who means to print a secret.

In a client's settings a secret is recognized by the names of members; responses have REDACTED in its place.
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
from core.wire import EXECUTION_STATUSES, Event, parse_json

#: what stands for a value. Source: the published agent server, which masks what its terminal prints
HIDDEN = "<secret-hidden>"

#: fewest characters of a value that is masked: a shorter one stands in any text
LEAST = 6

#: most characters of a value that is looked for in every form; a longer one is, as it is, in JSON, by line and in the
#: Base64 of it alone
_MOST_ENCODED = 1024

#: fewest characters of a line of a value, and of a piece of Base64, that are looked for by themselves
_LEAST_LINE, _LEAST_CODED = 16, 8

#: characters of a line of Base64 as `base64` prints it
_CODED_LINE = 76

#: characters at the end of an output that tell a part of a value: so many, or half of a shorter value, but no fewer
#: than those of the second number
_PART, _LEAST_PART = 8, 5

#: places of a value in which a part is looked for
_MOST_PLACES = 16

#: forms that are looked for one after the other; of more, each place of a text is looked up by its first characters
_MOST_SEARCHED = 500

#: kinds of the events whose texts are cut, or come in pieces
_OUTPUTS = ("ObservationEvent", "StreamingDeltaEvent", "CommandOutputEvent")

#: members of an event, at its first level, by which programs know it
_NAMES = frozenset(
    {"id", "timestamp", "source", "key", "action_id", "tool_call_id", "tool_name", "llm_response_id", "security_risk"}
)

#: texts that mean something on the wire, whatever secret is spelt alike
_WORDS = frozenset({*EXECUTION_STATUSES, "LOW", "MEDIUM", "HIGH", "UNKNOWN"})

#: a member's name as the wire has them
_MEMBER = re.compile(r"[a-z_]+")

#: a text of a JSON text, and the colon of a member's name
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"(\s*:)?', re.DOTALL)

#: what stands after a text of a JSON text, beside space
_MORE = re.compile(r"\S")

#: characters that every JSON encoder writes as they are
_AS_IT_IS = re.compile(r"[A-Za-z0-9_.-]+")

_SCHEME = re.compile(r"(?:Bearer|Basic|Token)\s+(\S+)", re.IGNORECASE)


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
_AFTER_SCHEME = re.compile(r"(?:bearer|basic|token) +(\S.*)", re.DOTALL | re.IGNORECASE)

#: fewest characters of a text that is looked for: a shorter one stands in any sentence
_LEAST = 4

#: most profiles of models that a key keeps, and most of agents
MOST_PROFILES = 50

#: most steps of a run where nobody has set them. Source: the agent-server wire
MOST_STEPS = 500


class Mask:
    """Some secrets. Their values are in memory as long as it is."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        """values: shorter ones than LEAST are left out."""
        self._values = sorted({one for value in values for one in _parts(value) if len(one) >= LEAST})
        self._forms = sorted({form for value in self._values for form in _forms(value)}, key=len, reverse=True)
        self.size = sum(map(len, self._forms))  #: characters in all

    def __bool__(self) -> bool:
        return bool(self._values)

    def event(self, event: Event) -> Event:
        """An event with HIDDEN in place of each value; the same one, its bytes included, where it has none.

        Its id, its kinds and the names by which programs know things stay.
        """
        is_output = event.kind in _OUTPUTS
        if not self._values or not (is_output or self._may_be_in(event.raw)):
            return event
        text = event.raw.decode()
        masked = "".join(self._pieces(text, is_output))
        return event if masked == text else event._replace(fields=parse_json(masked.encode()), raw=masked.encode())

    def text(self, text: str, *, is_output: bool = False) -> str:
        """A text with HIDDEN in place of each value. is_output: it may begin or end in the middle of one."""
        spans = [*self.spans(text), *(self._spans_at_ends(text) if is_output else ())]
        if not spans:
            return text
        found, end = list[str](), 0
        for first, last in _joined(spans):
            found += (text[end:first], HIDDEN)
            end = last
        return "".join((*found, text[end:]))

    def json(self, pieces: Iterable[bytes], most: int) -> Iterator[bytes]:
        """A JSON text that comes in pieces, with each text in it masked; what is no UTF-8 comes as U+FFFD.

        Raises TextTooLong of a text in it of more than so many bytes.
        """
        decoder, reader = getincrementaldecoder("utf-8")("replace"), _JsonReader(self, is_output=False)
        for piece in pieces:
            if masked := "".join(reader.feed(decoder.decode(piece))):
                yield masked.encode()
            if len(reader.rest) > most:
                raise TextTooLong
        yield "".join((*reader.feed(decoder.decode(b"", final=True), is_last=True), reader.rest)).encode()

    def begin_at_end(self, text: str) -> int:
        """Where the first form begins that a text may end in the middle of; the text's length where none does."""
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
        """A JSON value with every text in it masked, the names of its members not."""
        if isinstance(value, dict):
            return {name: self.value(inner, is_output=is_output) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner, is_output=is_output) for inner in value]
        return self.text(value, is_output=is_output) if isinstance(value, str) else value

    @cached_property
    def _heads(self) -> dict[str, list[str]]:
        """The forms by their first LEAST characters, the longest first."""
        heads = dict[str, list[str]]()
        for form in self._forms:
            heads.setdefault(form[:LEAST], []).append(form)
        return heads

    @cached_property
    def _begins(self) -> frozenset[str]:
        """What a form may begin with that has fewer characters than a head."""
        return frozenset(head[:number] for head in self._heads for number in range(1, LEAST))

    @cached_property
    def _anchors(self) -> list[bytes] | None:
        """An event that has a value has one of these parts in its bytes; None: there are values without such a part, or
        so many that it takes less to look for their heads."""
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
        """The pieces of a JSON text, with each text in it masked."""
        reader = _JsonReader(self, is_output=is_output)
        yield from reader.feed(text, is_last=True)
        yield reader.rest

    def coded(self, coded: str, is_name: bool, is_output: bool) -> str:
        """A text as JSON has it, masked; with the very same characters where nothing of it is."""
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
        """The parts of values that a text begins or ends with, and a text that is all in the middle of one."""
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


#: the mask of what has no secrets
NOTHING = Mask()


class TextTooLong(Exception):
    """A JSON text has a text in it that is longer than what may be in memory."""


class _JsonReader:
    """Masks the texts of a JSON text, which may come in pieces. rest: what a later piece ends."""

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
                break  # it goes on, or its colon is still to come
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
        """What stands between two texts, as it is."""
        self._depth += sum(map(text.count, "{[")) - sum(map(text.count, "}]"))
        return text


class Masked:
    """A text that comes in pieces, masked; a value is found also where it is split over them.

    What may be the begin of a value is held back until the next piece, or the end, tells.
    """

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._held, self._hidden = "", 0  # characters at the begin of what is held that belong to a masked value

    def feed(self, piece: str) -> str:
        """What can be shown by now."""
        text = self._held + piece
        return self._shown(text, self._mask.begin_at_end(text))

    def end(self) -> str:
        """The rest."""
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
    """Spans in their order, those that overlap or touch as one."""
    found = list[tuple[int, int]]()
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _parts(value: str) -> Iterator[str]:
    """A value without the space around it, the credentials of one that names their scheme, and its longer lines."""
    value = value.strip()
    yield value
    if match := _SCHEME.fullmatch(value):
        yield match[1]
    if "\n" in value:
        # What some programs take for the end of a line, such as a form feed, others print within one: both are masked.
        lines = (line.strip() for line in dict.fromkeys((*value.split("\n"), *value.splitlines())))
        yield from (line for line in lines if len(line) >= _LEAST_LINE and not line.startswith("-----"))


def _forms(value: str) -> Iterator[str]:
    """How a value may stand in a text."""
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
    """The part of Base64 that is the same whatever is encoded before and after, and lines of the whole."""
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
    """A JSON value with REDACTED in place of each text that is a secret, as `with_secrets` finds them."""
    return with_secrets(value, lambda _: REDACTED)


def with_secrets(value: Any, replace: Callable[[str], Any], hidden: bool = False) -> Any:
    """A JSON value with something else in place of each text that is a secret.

    A text is one if its name or an outer one says so, if it is a URL with a password, or, in a list, if it is an
    argument that holds a credential (`bears_credential`).
    """
    if isinstance(value, dict):
        # The credential of an MCP server is called `value`, beside the strategy by which it is shown.
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
    """A JSON value that somebody said about a body, with REDACTED in place of every secret of that body."""
    found = [*credentials_in(body)]
    with_secrets(body, found.append)
    return _without(sorted({text for text in found if len(text) >= _LEAST}, key=len, reverse=True), said)


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
        for before, inner in zip([None, *settings], settings, strict=False):
            if isinstance(inner, str):
                yield from _in_argument(inner, before)
            else:
                yield from credentials_in(inner)
    elif isinstance(settings, str):
        yield from _PASSWORD.findall(settings)


def bears_credential(text: str, before: Any = None) -> bool:
    """Whether an argument of a program, which follows that other one, holds a credential."""
    return any(True for _ in _in_argument(text, before))


def _in_argument(text: str, before: Any) -> Iterator[str]:
    """The credentials in one argument of a program, which follows that other one."""
    follows_option = isinstance(before, str) and before.startswith("-") and not text.startswith("-")
    if follows_option and _CREDENTIAL.search(before):
        yield text
    if (named := _ARGUMENT.match(text)) and _CREDENTIAL.search(named[1]):
        yield named[2]
        if scheme := _AFTER_SCHEME.match(named[2]):
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


def _without(secrets: list[str], said: Any) -> Any:
    if isinstance(said, dict):
        return {_without(secrets, name): _without(secrets, inner) for name, inner in said.items()}
    if isinstance(said, list):
        return [_without(secrets, inner) for inner in said]
    if isinstance(said, str):
        for secret in secrets:
            said = said.replace(secret, REDACTED)
    return said


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
