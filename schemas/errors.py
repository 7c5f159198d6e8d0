"""The two shapes of an error, and the conversion of a refusal into an HTTPValidationError."""

from collections.abc import Iterator
from typing import Any

from marshmallow import fields

from schemas.fields import BaseSchema, FieldFault

#: marshmallow's messages, in the words that clients of the wire know.
_MESSAGES = {
    "Missing data for required field.": FieldFault("Field required", "missing"),
    "Field may not be null.": FieldFault("Input should not be null", "none_forbidden"),
    "Not a valid string.": FieldFault("Input should be a valid string", "string_type"),
    "Not a valid list.": FieldFault("Input should be a valid array", "list_type"),
    "Not a valid mapping type.": FieldFault("Input should be a valid object", "dict_type"),
    "Invalid input type.": FieldFault("Input should be a valid object", "dict_type"),
    "Unknown field.": FieldFault("Extra inputs are not permitted", "extra_forbidden"),
}


class Location(fields.Field[str | int]):
    """A segment of the path to a fault: a name or an index."""


class ValidationError(BaseSchema):
    loc = fields.List(
        Location(metadata={"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        required=True,
        metadata={"description": "Location: `path`, `query` or `body`, then names and indexes."},
    )
    msg = fields.String(required=True, metadata={"description": "The fault, and the allowed values."})
    type = fields.String(required=True, metadata={"description": "Kind of fault, for programs."})


class HTTPValidationError(BaseSchema):
    detail = fields.List(fields.Nested(ValidationError))


class Error(BaseSchema):
    """Every error except 422."""

    detail = fields.String(required=True, metadata={"description": "The error, for people."})
    error_id = fields.String(metadata={"description": "For a 500: id of the error in the server's log."})


def validation_errors(place: str, messages: Any) -> list[dict[str, Any]]:
    """Convert marshmallow's nested messages to the `detail` of HTTPValidationError, under `path`, `query` or `body`."""
    return [{"loc": location, "msg": str(fault), "type": fault.type} for location, fault in _faults([place], messages)]


def _faults(location: list[str | int], messages: Any) -> Iterator[tuple[list[str | int], FieldFault]]:
    if isinstance(messages, dict):
        for name, inner in messages.items():
            yield from _faults(location if name == "_schema" else [*location, name], inner)
        return
    for message in messages:
        fault = (
            message if isinstance(message, FieldFault) else _MESSAGES.get(message, FieldFault(message, "value_error"))
        )
        yield location, fault
