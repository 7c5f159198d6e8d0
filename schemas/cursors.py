"""Cursors of listings: a place and its order, as the `page_id` of a search. Source: docs/wire.md, 8."""

import re
from typing import Any
from uuid import UUID

from marshmallow import ValidationError, fields, post_load

from schemas.fields import BaseSchema, Choice, Fault, Limit, canonical_id

#: where a page of a listing begins: the time in µs, or the title, that it is ordered by, and an id
Place = tuple[Any, str]

#: why a cursor of another search, or text that is not a cursor, is refused
FOREIGN_CURSOR = Fault(
    "Unknown cursor: page_id must be a next_page_id of this search, with the same sort_order", "value_error"
)


class ListingOrder(Choice):
    """An order such as CREATED_AT_DESC; loaded as what a listing is ordered by, `created`, and whether it descends."""

    def __init__(self, *names: str, default: str = "CREATED_AT_DESC") -> None:
        orders = [f"{name}{end}" for name in names for end in ("", "_DESC")]
        super().__init__(*orders, data_key="sort_order", load_default=_order(default), metadata={"default": default})

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        return _order(super()._deserialize(value, *args, **kwargs))


def _order(name: str) -> tuple[str, bool]:
    return name.removesuffix("_DESC").removesuffix("_AT").lower(), name.endswith("_DESC")


class PageId(fields.String):
    """The `page_id` of a search: text, which a subclass or its schema reads.

    pattern: what every cursor matches. first: what is loaded where there is none.
    """

    def __init__(self, pattern: str, first: Any = None) -> None:
        metadata = {"pattern": f"^{pattern}$", "description": "`next_page_id` of the page before."}
        super().__init__(data_key="page_id", load_default=first, metadata=metadata)


#: hexadecimal digits of text in UTF-8
_TAIL = "[89ab][0-9a-f]"
HEX_OF_TEXT = (
    f"([0-7][0-9a-f]|(c[2-9a-f]|d[0-9a-f]){_TAIL}|(e0[ab][0-9a-f]|(e[1-9a-cef]{_TAIL}|ed[89][0-9a-f])){_TAIL}"
    f"|(f0[9ab][0-9a-f]|f[1-3]{_TAIL}|f48[0-9a-f]){_TAIL}{_TAIL})*"
)

#: places of listings by time, and by title
_BY_TIME = r"(created|updated)\.(asc|desc)\.[0-9]{1,16}"
_BY_TITLE = rf"title\.(asc|desc)\.{HEX_OF_TEXT}"


class PlaceId(PageId):
    """The cursor of a listing, which `OrderedSearch` reads. by_title: whether the listing has that order too."""

    def __init__(self, *, by_title: bool = False) -> None:
        super().__init__(f"({_BY_TIME}|{_BY_TITLE})-[0-9a-f]{{32}}" if by_title else f"{_BY_TIME}-[0-9a-f]{{32}}")


class OrderedSearch(BaseSchema):
    """The page of a listing; a subclass has the `order`. Loaded as `by`, `descending`, `limit` and `start`, a Place."""

    start = PlaceId()
    limit = Limit(100)

    @post_load
    def _read_order(self, search: dict[str, Any], **_: Any) -> dict[str, Any]:
        by, descending = search.pop("order")
        start = search["start"] if search["start"] is None else _place(search["start"], by, descending)
        return {**search, "by": by, "descending": descending, "start": start}


def page_id(by: str, descending: bool, place: Place | None) -> str | None:
    """The cursor of a place; None, where no page follows."""
    if place is None:
        return None
    at, identity = place
    written = at.encode("utf-8", "surrogatepass").hex() if by == "title" else at
    return f"{_prefix(by, descending)}{written}-{UUID(identity).hex}"


def _prefix(by: str, descending: bool) -> str:
    return f"{by}.{'desc' if descending else 'asc'}."


def _place(text: str, by: str, descending: bool) -> Place:
    """The place of a cursor. Raises ValidationError for the cursor of another order, and for what is not a cursor."""
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
