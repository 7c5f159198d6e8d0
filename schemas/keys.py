"""Keys of access, and tickets. Source: docs/access.md."""

import re
from typing import Any

from marshmallow import fields, validate

from core.access import SCOPES
from core.wire import utc_time
from schemas.fields import BaseSchema, Choice, Id, Instant, Text, refusal

#: most characters of a key's name
MOST_NAME = 100

_SCOPES: dict[str, Any] = {"metadata": {"uniqueItems": True}, "validate": validate.Length(min=1, max=len(SCOPES))}


#: characters that show nothing: controls, blanks but U+0020, marks of direction, private and special ones; and those
#: beyond U+FFFF: controls of music, shorthand and hieroglyphs, tags, and private ones
_UNSEEN = (
    r"\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f"
    r"\u3000\ue000-\uf8ff\ufdd0-\ufdef\ufeff\ufff0-\ufffb\ufffe\uffff"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U0010ffff"
)

#: what a name matches: the document says the same, so a name that fits it is taken whatever Unicode's release
_NAME = f"^[^ {_UNSEEN}]([^{_UNSEEN}]*[^ {_UNSEEN}])?$"


class Name(Text):
    """A name of one line, for lists and for the audit."""

    def __init__(self) -> None:
        super().__init__(required=True, least=1, most=MOST_NAME, metadata={"pattern": _NAME})

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        name = super()._deserialize(value, *args, **kwargs)
        if not re.fullmatch(_NAME, name):
            raise refusal("String should be printable, without blanks around it", "string_pattern_mismatch")
        return name


class KeyRequest(BaseSchema):
    """A key to make."""

    name = Name()
    scopes = fields.List(Choice(*SCOPES), required=True, **_SCOPES)
    expires_at = Instant(load_default=None, allow_none=True, metadata={"type": "string"})


def _instant(name: str, what: str) -> fields.Function:
    return fields.Function(
        lambda key: None if getattr(key, name) is None else utc_time(getattr(key, name)),
        metadata={"type": ["string", "null"], "format": "date-time", "description": what},
    )


class KeyInfo(BaseSchema):
    """A key, without the key itself."""

    id = fields.String(required=True)
    name = fields.String(required=True)
    scopes = fields.List(fields.String(metadata={"enum": list(SCOPES)}), required=True)
    created_at = fields.Function(
        lambda key: utc_time(key.created_at), metadata={"type": "string", "format": "date-time"}
    )
    expires_at = _instant("expires_at", "Null: never.")
    used_at = _instant("used_at", "Its last use, to the minute; null: none yet.")


class NewKey(KeyInfo):
    """A key with the key itself, which no later response has."""

    key = fields.String(required=True)


class TicketRequest(BaseSchema):
    """What a ticket is for."""

    conversation_id = Id(
        metadata={"description": "The conversation to follow; absent: all pending actions, conversations or sandboxes."}
    )
    scopes = fields.List(
        Choice(*SCOPES), validate=_SCOPES["validate"], metadata={"description": "Absent: all that the asker has."}
    )


class Ticket(BaseSchema):
    ticket = fields.String(required=True, metadata={"description": "For the query of one socket or stream: `ticket=`."})
    expires_in = fields.Integer(required=True, metadata={"description": "Seconds."})
