"""Devices that ring by web push, as their owners add and see them. Source: docs/approvals.md."""

from base64 import urlsafe_b64decode
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from marshmallow import RAISE, ValidationError, fields

from schemas.access import PrintableName
from schemas.fields import BaseSchema, Choice, Fault, ShownTime, Text

#: Maximum number of characters of the URL of a push service.
_MOST_URL = 2048

_WRONG_POINT = Fault("Input should be a point of P-256, as the browser gives it", "value_error")


class BrowserKey(Text):
    """The public key of a browser: an uncompressed point of P-256."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> str:
        text = super()._deserialize(value, *args, **kwargs)
        try:
            ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), urlsafe_b64decode(text.rstrip("=") + "=="))
        except ValueError:
            raise ValidationError([_WRONG_POINT]) from None
        return text


class DeviceKeys(BaseSchema):
    """The keys of a browser's subscription."""

    class Meta:
        unknown = RAISE

    p256dh = BrowserKey(required=True, pattern="^[A-Za-z0-9_-]{87}=?$", refused=_WRONG_POINT)
    auth = Text(
        required=True,
        pattern="^[A-Za-z0-9_-]{22}(==)?$",
        refused=Fault("Input should be 16 bytes in base64url", "value_error"),
    )


class DeviceRequest(BaseSchema):
    """A browser's push subscription, as its `toJSON()` gives it, and what its owner wants."""

    class Meta:
        unknown = RAISE

    endpoint = Text(
        required=True,
        most=_MOST_URL,
        pattern="^https?://.+$",
        refused=Fault("Input should be the URL of a push service, as the browser gives it", "value_error"),
        metadata={"description": "`https:`, of a public host. With PUSH_PRIVATE=1 also `http:` and private hosts."},
    )
    keys = fields.Nested(DeviceKeys, required=True)
    expirationTime = fields.Raw(
        load_default=None,
        allow_none=True,
        metadata={"type": "number", "description": "Ignored."},
    )
    name = PrintableName(required=True, metadata={"description": "What you call the device."})
    shows = Choice(
        "everything",
        "nothing",
        load_default="everything",
        metadata={"description": "`nothing`: that something waits, and no more."},
    )


class DeviceInfo(BaseSchema):
    """A device that rings. No member shows its address or its keys."""

    id = fields.String(required=True)
    name = fields.String(required=True, attribute="label")
    host = fields.String(required=True, metadata={"description": "Of its push service."})
    shows = fields.String(required=True, metadata={"enum": ["everything", "nothing"]})
    renewed_at = ShownTime()
    expires_at = ShownTime("It rings no more, unless it is added again.")
    queued = fields.Integer(required=True, attribute="state.queued", metadata={"description": "Messages that wait."})
    last_success_at = ShownTime(
        "When its push service took the last message.", attribute="state.sent_at", optional=True, required=True
    )
    last_failure_at = ShownTime("When a try failed last.", attribute="state.failed_at", optional=True, required=True)
    last_failure = fields.Function(
        lambda device: device.state.failure or None,
        required=True,
        metadata={"type": ["string", "null"], "description": "Why it failed."},
    )


class OwnDevices(BaseSchema):
    """The devices of the caller."""

    application_server_key = fields.String(
        required=True, metadata={"description": "The server's public key, which a browser subscribes with; base64url."}
    )
    items = fields.List(fields.Nested(DeviceInfo), required=True)
