"""What a schema refuses, as a response says it."""

from collections.abc import Callable
from typing import Any

from marshmallow import ValidationError

from schemas.errors import validation_errors


def faults_of(load: Callable[[Any], Any], value: Any, place: str = "query") -> list[dict[str, Any]]:
    """The `detail` of the response to a value; none where it is taken."""
    try:
        load(value)
    except ValidationError as refusal:
        return validation_errors(place, refusal.normalized_messages())
    return []
