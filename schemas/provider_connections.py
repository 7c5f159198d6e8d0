"""Provider connections: a key and a base URL that several models share. Source: the agent-server wire."""

from typing import Any, ClassVar

from marshmallow import RAISE, fields, validates_schema

from core.masking import REDACTED
from schemas.fields import BaseSchema, FieldFault, Text, refusal


class _ApiKey(Text):
    """A key of a model's provider. Blank text and the mask are refused."""

    def __init__(self, **kwargs: Any) -> None:
        metadata = {"not": {"const": REDACTED}, "description": "Stored sealed. No response has it."}
        super().__init__(
            least=1,
            most=8192,
            pattern=r"[\s\S]*\S[\s\S]*",
            refused=FieldFault("Should be a key, not blank text", "value_error"),
            metadata=metadata,
            **kwargs,
        )

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        if value == REDACTED:
            raise refusal("Should be the key itself, not its mask: leave the member out to keep a key", "value_error")
        return super()._deserialize(value, *args, **kwargs)


class ProviderConnectionCreate(BaseSchema):
    """A connection to store."""

    class Meta:
        unknown = RAISE

    display_name = Text(required=True, least=1, most=128)
    provider = Text(least=1, most=128, load_default="custom")
    api_key = _ApiKey(required=True)
    base_url = Text(most=2048, allow_none=True, metadata={"description": "Null: the provider's default."})


class ProviderConnectionUpdate(BaseSchema):
    """Changes of a connection; at least one member. Null is only allowed for the base URL."""

    as_a_whole: ClassVar[dict[str, Any]] = {"minProperties": 1}

    class Meta:
        unknown = RAISE

    display_name = Text(least=1, most=128)
    provider = Text(least=1, most=128)
    api_key = _ApiKey()
    base_url = Text(most=2048, allow_none=True)

    @validates_schema
    def _require_one(self, given: dict[str, Any], **_: Any) -> None:
        if not given:
            raise refusal(f"At least one of {', '.join(self.fields)} is needed", "missing")


class ProviderConnectionInfo(BaseSchema):
    """A connection without its key."""

    id = fields.String(required=True)
    display_name = fields.String(required=True)
    provider = fields.String(required=True)
    base_url = fields.String(required=True, allow_none=True)
    created_at = fields.Integer(required=True, metadata={"description": "Unix time in seconds."})
    updated_at = fields.Integer(required=True, metadata={"description": "Unix time in seconds."})
    api_key_set = fields.Boolean(required=True)
