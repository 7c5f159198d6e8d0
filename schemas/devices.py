"""Devices with web push, as their owners add and see them. Source: docs/approvals.md."""

from base64 import urlsafe_b64decode
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from marshmallow import RAISE, ValidationError, fields

from schemas.access import PrintableName
from schemas.fields import BaseSchema, Choice, FieldFault, ShownTime, Text

#: Maximum number of characters of the URL of a push service.
_MOST_URL = 2048

_WRONG_POINT = FieldFault("Input should be a point of P-256, as the browser gives it", "value_error")


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
        refused=FieldFault("Input should be 16 bytes in base64url", "value_error"),
    )


class DeviceRequest(BaseSchema):
    """A browser's push subscription, from its `toJSON()`, and its owner's choices."""

    class Meta:
        unknown = RAISE

    endpoint = Text(
        required=True,
        most=_MOST_URL,
        pattern="^https?://.+$",
        refused=FieldFault("Input should be the URL of a push service, as the browser gives it", "value_error"),
        metadata={
            "description": "An `https:` URL of a public host. With PUSH_PRIVATE=1 also `http:` and private hosts."
        },
    )
    keys = fields.Nested(DeviceKeys, required=True)
    expirationTime = fields.Raw(
        load_default=None,
        allow_none=True,
        metadata={"type": "number", "description": "Ignored."},
    )
    name = PrintableName(required=True, metadata={"description": "Your name of the device."})
    shows = Choice(
        "everything",
        "nothing",
        load_default="everything",
        metadata={"description": "`nothing`: notifications only say that something waits."},
    )


class DeviceInfo(BaseSchema):
    """A device with web push. No member shows its address or its keys."""

    id = fields.String(required=True)
    name = fields.String(required=True, attribute="label")
    host = fields.String(required=True, metadata={"description": "Host of its push service."})
    shows = fields.String(required=True, metadata={"enum": ["everything", "nothing"]})
    renewed_at = ShownTime()
    expires_at = ShownTime("Time of the last notification, unless the device is added again.")
    queued = fields.Integer(required=True, attribute="state.queued", metadata={"description": "Pending messages."})
    last_success_at = ShownTime(
        "Time of the last delivered message.", attribute="state.sent_at", optional=True, required=True
    )
    last_failure_at = ShownTime(
        "Time of the last failed attempt.", attribute="state.failed_at", optional=True, required=True
    )
    last_failure = fields.Function(
        lambda device: device.state.failure or None,
        required=True,
        metadata={"type": ["string", "null"], "description": "Reason of the last failure."},
    )


class OwnDevices(BaseSchema):
    """The devices of the caller."""

    application_server_key = fields.String(
        required=True, metadata={"description": "The server's public key for a browser's subscription, in base64url."}
    )
    items = fields.List(fields.Nested(DeviceInfo), required=True)
