"""The types of the wire: the values that each accepts, and the message and type of its refusals.

A refusal is a `FieldFault`: its text is for people, its `type` for programs, as in HTTPValidationError. The cursor of a
listing, the `page_id` of a search, is a place and its order. Source: docs/wire.md, 8.
"""

import re
from functools import partial
from typing import Any, ClassVar, Self
from uuid import UUID

from marshmallow import EXCLUDE, Schema, ValidationError, fields, post_load, pre_load

from core.wire import MOST_TITLE, Micros, as_unicode, bare_kind, lone_surrogate, micros, parse_json, utc_time

#: Pattern of a calendar day, for the OpenAPI document: no 30 February, and 29 February only in leap years.
DAY = (
    "((?!0000)[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)"
)

#: JSON escape of a surrogate, alone or in a pair.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")

#: Pattern of an id, in both forms.
UUID_TEXT = "([0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"

_CANONICAL_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

#: Hexadecimal digits of text in UTF-8.
_TAIL = "[89ab][0-9a-f]"
HEX_OF_TEXT = (
    f"([0-7][0-9a-f]|(c[2-9a-f]|d[0-9a-f]){_TAIL}|(e0[ab][0-9a-f]|(e[1-9a-cef]{_TAIL}|ed[89][0-9a-f])){_TAIL}"
    f"|(f0[9ab][0-9a-f]|f[1-3]{_TAIL}|f48[0-9a-f]){_TAIL}{_TAIL})*"
)

#: Places of listings by time, and by title.
_BY_TIME = r"(created|updated)\.(asc|desc)\.[0-9]{1,16}"
_BY_TITLE = rf"title\.(asc|desc)\.{HEX_OF_TEXT}"


class FieldFault(str):
    """The message of a refusal, with its `type` in an HTTPValidationError."""

    __slots__ = ("type",)

    def __new__(cls, message: str, type: str) -> "FieldFault":
        fault = super().__new__(cls, message)
        fault.type = type
        return fault

    type: str


def refusal(message: str, type: str) -> ValidationError:
    """Make a ValidationError with one Fault."""
    return ValidationError([FieldFault(message, type)])


class BaseSchema(Schema):
    """A schema that ignores unknown members, as existing servers do."""

    #: A request may have no body, which is equivalent to `{}`.
    body_optional = False

    #: Sent by agents, whose text is accepted in any state.
    of_agents = False

    #: Rules of the OpenAPI document that concern several members.
    as_a_whole: ClassVar[dict[str, Any]] = {}

    class Meta:
        unknown = EXCLUDE

    def __deepcopy__(self, memo: Any) -> Self:
        """Return this schema, which never changes: each decorator of a view copies the declarations below it."""
        return self


class ChangedElsewhere(BaseSchema):
    """A schema that refuses non-null members that another request sets.

    If they were ignored, they would seem to be set.
    """

    #: Refused member → what to do instead.
    elsewhere: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        named = [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in sorted(cls.elsewhere)
        ]
        cls.as_a_whole = {"not": {"anyOf": named}}

    @pre_load
    def _refuse_elsewhere(self, given: Any, **_: Any) -> Any:
        members = given if isinstance(given, dict) else {}
        wrong = {name: way for name, way in self.elsewhere.items() if members.get(name) is not None}
        if wrong:
            faults = {name: [FieldFault(f"Is not set here: {way}", "extra_forbidden")] for name, way in wrong.items()}
            raise ValidationError(faults)
        return given


class Instant(fields.Field[Micros]):
    """A date-time, loaded as microseconds since the epoch (see `wire.micros`). Without a zone it is UTC."""

    def __init__(self, **kwargs: Any) -> None:
        metadata = {"type": "string", "format": "date-time", **kwargs.pop("metadata", {})}
        super().__init__(metadata=metadata, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Micros:
        try:
            return micros(value)
        except (ValueError, TypeError):
            raise refusal(
                "Input should be a date-time such as 2026-11-20T20:37:22.528416Z; without a zone it is UTC",
                "datetime_parsing",
            ) from None


class ShownTime(fields.Field[Micros]):
    """A time that is stored in µs, for display."""

    def __init__(
        self, description: str = "", *, optional: bool = False, format: str | None = "date-time", **kwargs: Any
    ) -> None:
        """optional: may be null. format: for the OpenAPI document."""
        told = {"format": format, "description": description}
        metadata = {"type": ["string", "null"] if optional else "string", **{k: v for k, v in told.items() if v}}
        super().__init__(dump_only=True, metadata=metadata, **kwargs)

    def _serialize(self, value: Micros | None, *args: Any, **kwargs: Any) -> str | None:
        return None if value is None else utc_time(value)


class EventKind(fields.String):
    """An event kind, bare or qualified, loaded bare. Any text is a kind; unknown kinds match nothing."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        return bare_kind(super()._deserialize(value, *args, **kwargs))


class StrictBoolean(fields.Boolean):
    """Only `true` or `false`. Source: docs/wire.md, 2."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> bool:
        if value is True or value is False:
            return value
        raise refusal("Input should be a valid boolean: true or false", "bool_type")


class StrictInteger(fields.Integer):
    """A JSON integer within bounds; no text, no fraction, no boolean. `5.0` is valid, as in JSON Schema."""

    def __init__(self, *, least: int, most: int | None = None, **kwargs: Any) -> None:
        bounds = {"minimum": least} | ({} if most is None else {"maximum": most})
        super().__init__(metadata={**bounds, **kwargs.pop("metadata", {})}, **kwargs)
        self._least, self._most = least, most

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise refusal("Input should be a valid integer", "int_type")
        if value < self._least:
            raise refusal(f"Input should be greater than or equal to {self._least}", "greater_than_equal")
        if self._most is not None and value > self._most:
            raise refusal(f"Input should be less than or equal to {self._most}", "less_than_equal")
        return value


class WholeNumber(fields.Integer):
    """A whole number within bounds, in a query."""

    def __init__(self, *, least: int, most: int, **kwargs: Any) -> None:
        metadata = {"minimum": least, "maximum": most, **kwargs.pop("metadata", {})}
        super().__init__(metadata=metadata, **kwargs)
        self._least, self._most = least, most

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> int:
        bounds = f"Input should be an integer from {self._least} to {self._most}"
        if not (value.isascii() and value.removeprefix("-").isdigit()) or len(value) > 20:
            raise refusal(bounds, "int_parsing")
        if int(value) < self._least:
            raise refusal(bounds, "greater_than_equal")
        if int(value) > self._most:
            raise refusal(bounds, "less_than_equal")
        return int(value)


class PageLimit(WholeNumber):
    """A page size from 1 to `most`, in a query."""

    def __init__(self, most: int) -> None:
        super().__init__(least=1, most=most, load_default=most)


class EventPlace(WholeNumber):
    """The seq of an event, or 0 for the place before the first event, in a query."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(least=0, most=10**10 - 1, **kwargs)


class DurationSeconds(fields.Float):
    """A duration from 0 to `most` seconds, in a query, in the notation of any language, such as `1e-05`."""

    def __init__(self, *, most: int, **kwargs: Any) -> None:
        super().__init__(metadata={"minimum": 0, "maximum": most, **kwargs.pop("metadata", {})}, **kwargs)
        self._most = most

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", value):
            raise refusal(f"Input should be a number from 0 to {self._most}", "float_parsing")
        if float(value) > self._most:
            raise refusal(f"Input should be a number from 0 to {self._most}", "less_than_equal")
        return float(value)


class Choice(fields.String):
    """A word of a fixed set."""

    def __init__(self, *choices: str, **kwargs: Any) -> None:
        super().__init__(metadata={"enum": list(choices), **kwargs.pop("metadata", {})}, **kwargs)
        self._choices = choices

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        if value not in self._choices:
            raise refusal(f"Input should be one of {', '.join(self._choices)}", "enum")
        return str(value)


class SortOrder(Choice):
    """An order by time, ascending or descending. Loaded as whether it descends."""

    def __init__(self, by: str) -> None:
        metadata = {"default": by}
        super().__init__(by, f"{by}_DESC", data_key="sort_order", load_default=False, metadata=metadata)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return super()._deserialize(value, *args, **kwargs).endswith("_DESC")


class Text(fields.String):
    """Text that is valid UTF-8, of bounded length in characters.

    pattern: must match the whole text. refused: fault if it does not.
    """

    def __init__(
        self,
        *,
        most: int | None = None,
        least: int = 0,
        pattern: str = "",
        refused: FieldFault | None = None,
        **kwargs: Any,
    ) -> None:
        bounds: dict[str, Any] = {"minLength": least} if least else {}
        if most is not None:
            bounds["maxLength"] = most
        if pattern:
            bounds["pattern"] = pattern
        super().__init__(metadata={**bounds, **kwargs.pop("metadata", {})}, **kwargs)
        self._least, self._most, self._pattern, self._refused = least, most, pattern, refused

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        if not isinstance(value, str):
            raise refusal("Input should be a valid string", "string_type")
        text = checked_text(value, least=self._least, most=self._most)
        if self._refused and not re.fullmatch(self._pattern, text):
            raise ValidationError([self._refused])
        return text


#: The digest of an action or a destination, which binds a decision to what was shown.
Digest = partial(Text, pattern="^[0-9a-f]{64}$", refused=FieldFault("Must be 64 hexadecimal digits.", "value_error"))


class Title(Text):
    """The title that a client gives a conversation: stripped, and at most MOST_TITLE characters."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_none=True, least=1, most=MOST_TITLE, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        return super()._deserialize(value.strip() if isinstance(value, str) else value, *args, **kwargs)


def checked_text(text: str, *, least: int, most: int | None) -> str:
    """Return the text, if its length is within bounds and it has no lone surrogate. Raises ValidationError."""
    if len(text) < least:
        raise refusal(f"String should have at least {least} character{'s' * (least != 1)}", "string_too_short")
    if most is not None and len(text) > most:
        raise refusal(f"String should have at most {most} characters", "string_too_long")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValidationError([_NO_UNICODE]) from None
    return text


_NO_UNICODE = FieldFault("String should be valid Unicode: it has a lone surrogate", "string_unicode")


def read_said(raw: bytes) -> Any:
    """Parse a client's JSON: all text is Unicode, names in an object are unique, and numbers are finite.

    So it can be written as UTF-8 everywhere: to Redis, an agent server, a log, an environment. Raises InvalidJson, and
    ValidationError by member.
    """
    value = parse_json(raw, strict=True)
    if _HALF.search(raw) and (place := lone_surrogate(value)) is not None:
        messages: Any = [_NO_UNICODE]
        for step in reversed(place):
            messages = {step: messages}
        raise ValidationError(messages)
    return value


def read_told(raw: bytes) -> Any:
    """Parse an agent's JSON, with U+FFFD for each lone surrogate, because a refusal would lose the rest.

    Raises InvalidJson.
    """
    value = parse_json(raw)
    return as_unicode(value) if _HALF.search(raw) else value


class Id(fields.UUID):
    """A UUID, dashed or as 32 hexadecimal digits. Loaded as dashed text."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(metadata={"pattern": f"^{UUID_TEXT}$", **kwargs.pop("metadata", {})}, **kwargs)

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return canonical_id(value)


def canonical_id(text: Any) -> str:
    """Return the dashed form of a UUID. Raises ValidationError."""
    if isinstance(text, str) and _CANONICAL_ID.fullmatch(text):  # the form in nearly every request
        return text
    if isinstance(text, str) and len(text) in (32, 36):
        try:
            identity = UUID(text)
        except ValueError:
            pass
        else:
            if text.lower() in (str(identity), identity.hex):
                return str(identity)
    raise refusal("Input should be a valid UUID, dashed or of 32 hexadecimal digits", "uuid_parsing")


class Success(BaseSchema):
    success = fields.Boolean(required=True)


#: Beginning of a page of a listing: the time in µs, or the title, that it is ordered by, and an id.
PageStart = tuple[Any, str]

#: Fault of an invalid cursor, or of the cursor of another search.
FOREIGN_CURSOR = FieldFault(
    "Unknown cursor: page_id must be a next_page_id of this search, with the same sort_order", "value_error"
)


class ListingOrder(Choice):
    """An order such as CREATED_AT_DESC. Loaded as the key of a listing, such as `created`, and whether it descends."""

    def __init__(self, *names: str, default: str = "CREATED_AT_DESC") -> None:
        orders = [f"{name}{end}" for name in names for end in ("", "_DESC")]
        super().__init__(*orders, data_key="sort_order", load_default=_order(default), metadata={"default": default})

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return _order(super()._deserialize(value, *args, **kwargs))


def _order(name: str) -> tuple[str, bool]:
    return name.removesuffix("_DESC").removesuffix("_AT").lower(), name.endswith("_DESC")


class PageId(fields.String):
    """The `page_id` of a search: text, which a subclass or its schema parses.

    pattern: of every cursor. first: value without a cursor.
    """

    def __init__(self, pattern: str, first: Any = None) -> None:
        metadata = {"pattern": f"^{pattern}$", "description": "`next_page_id` of the previous page."}
        super().__init__(data_key="page_id", load_default=first, metadata=metadata)


class PlaceId(PageId):
    """The cursor of a listing, which `OrderedSearch` parses. by_title: the listing can be ordered by title."""

    def __init__(self, *, by_title: bool = False) -> None:
        super().__init__(f"({_BY_TIME}|{_BY_TITLE})-[0-9a-f]{{32}}" if by_title else f"{_BY_TIME}-[0-9a-f]{{32}}")


class OrderedSearch(BaseSchema):
    """The page of a listing; a subclass has the `order`. Loaded as `by`, `descending`, `limit`, `start`."""

    start = PlaceId()
    limit = PageLimit(100)

    @post_load
    def _read_order(self, search: dict[str, Any], **_: Any) -> dict[str, Any]:
        by, descending = search.pop("order")
        start = search["start"] if search["start"] is None else _place(search["start"], by, descending)
        return {**search, "by": by, "descending": descending, "start": start}


def page_id(by: str, descending: bool, place: PageStart | None) -> str | None:
    """Return the cursor of a place; None on the last page."""
    if place is None:
        return None
    at, identity = place
    written = at.encode("utf-8", "surrogatepass").hex() if by == "title" else at
    return f"{_prefix(by, descending)}{written}-{UUID(identity).hex}"


def _prefix(by: str, descending: bool) -> str:
    return f"{by}.{'desc' if descending else 'asc'}."


def _place(text: str, by: str, descending: bool) -> PageStart:
    """Parse a cursor. Raises ValidationError for invalid cursors and cursors of another order."""
    at = "(?:[0-9a-f]{2})*" if by == "title" else "[0-9]{1,16}"
    match = re.fullmatch(f"{re.escape(_prefix(by, descending))}({at})-([0-9a-f]{{32}})", text)
    try:
        if match is not None:
            return (_title(match[1]) if by == "title" else int(match[1])), canonical_id(match[2])
    except UnicodeDecodeError:
        pass
    raise ValidationError([FOREIGN_CURSOR], "page_id")


def _title(digits: str) -> str:
    return bytes.fromhex(digits).decode("utf-8", "surrogatepass")
