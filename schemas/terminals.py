"""What a client sends to a terminal. Source: docs/wire.md."""

from typing import Any

from marshmallow import ValidationError, validates_schema

from schemas.fields import BaseSchema, StrictInteger, Text, WholeNumber

#: most columns and rows of a terminal, and characters of one message
MOST_COLS, MOST_ROWS, MOST_INPUT = 500, 200, 4096


class TerminalSize(BaseSchema):
    """The size of a terminal, in the query of its socket."""

    cols = WholeNumber(least=1, most=MOST_COLS, load_default=80)
    rows = WholeNumber(least=1, most=MOST_ROWS, load_default=24)


class TerminalMessage(BaseSchema):
    """What was typed, or a new size; loaded as the agent server takes it."""

    input = Text(most=MOST_INPUT)
    cols = StrictInteger(least=1, most=MOST_COLS)
    rows = StrictInteger(least=1, most=MOST_ROWS)

    @validates_schema
    def _is_one_of_two(self, data: dict[str, Any], **_: Any) -> None:
        if data.keys() not in ({"input"}, {"cols", "rows"}):
            raise ValidationError("A message has `input`, or `cols` and `rows`")
