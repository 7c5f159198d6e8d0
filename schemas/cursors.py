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


class OrderedSearch(BaseSchema):
    """The page of a listing; a subclass has the `order`. Loaded as `by`, `descending`, `limit` and `start`, a Place."""

    start = fields.String(
        data_key="page_id", load_default=None, metadata={"description": "`next_page_id` of the page before."}
    )
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
