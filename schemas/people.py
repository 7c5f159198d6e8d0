"""The rights of people, and owners of conversations. Source: docs/access.md, "People"."""

from typing import Any

from marshmallow import RAISE, ValidationError, fields, validates_schema

from core.people import MOST_NAME, NAME, ROLES
from schemas.approvals import NamedTags
from schemas.fields import BaseSchema, Choice, FieldFault, ShownTime, Text

_TAGS = {"type": ["object", "null"], "description": "Name → value, null for any value; null: all conversations."}


class PersonName(Text):
    """A name of a person or of a group, in the form of a proxy's header."""

    def __init__(self, **kwargs: Any) -> None:
        words = "String should be printable ASCII without blanks, commas and semicolons"
        refused = FieldFault(words, "string_pattern_mismatch")
        super().__init__(least=1, most=MOST_NAME, pattern=f"^{NAME}$", refused=refused, **kwargs)


class GrantRequest(BaseSchema):
    """A right for a person or for everybody in a group."""

    as_a_whole = {"oneOf": [{"required": ["person"]}, {"required": ["group"]}]}

    class Meta:
        unknown = RAISE

    person = PersonName(metadata={"description": "Name from the proxy, case-sensitive."})
    group = PersonName(metadata={"description": "Name from the proxy."})
    role = Choice(*ROLES, required=True)
    tags = NamedTags(allow_none=True)

    @validates_schema
    def _one_of_both(self, given: dict[str, Any], **_: Any) -> None:
        if (given.get("person") is None) == (given.get("group") is None):
            raise ValidationError(["Give either person or group."], "person")


class OwnGrant(BaseSchema):
    """A right as its person sees it."""

    id = fields.String(required=True)
    person = fields.String(required=True, allow_none=True)
    group = fields.String(required=True, allow_none=True)
    role = fields.String(required=True, metadata={"enum": list(ROLES)})
    tags = fields.Raw(required=True, metadata=_TAGS)


class GrantInfo(OwnGrant):
    """A right in a list."""

    created_by = fields.String(
        required=True, metadata={"description": "Name of the key or person that made the grant."}
    )
    created_at = ShownTime()


class OwnerRequest(BaseSchema):
    """The new owner of a conversation."""

    class Meta:
        unknown = RAISE

    owner = PersonName(required=True, metadata={"description": "Name of a person, or of a key."})


class OwnerInfo(BaseSchema):
    owner = fields.String(
        required=True, allow_none=True, metadata={"description": "Name of a person or of a key; null: unknown."}
    )
