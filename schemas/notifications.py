"""Notifications as operators see them. Source: docs/approvals.md."""

from typing import Any

from marshmallow import fields

from core.wire import utc_time
from schemas.fields import BaseSchema, Text


def _of(name: str) -> Any:
    return lambda item: getattr(item["state"], name)


def _count(name: str, what: str) -> fields.Function:
    return fields.Function(_of(name), required=True, metadata={"type": "integer", "description": what})


def _instant(name: str, what: str) -> fields.Function:
    read = _of(name)
    return fields.Function(
        lambda item: None if read(item) is None else utc_time(read(item)),
        required=True,
        metadata={"type": ["string", "null"], "format": "date-time", "description": what},
    )


class NotificationTarget(BaseSchema):
    """A target, its queue, and the results of its deliveries. No member shows its path, its secret or its user."""

    id = fields.Function(_of("id"), required=True, metadata={"type": "string"})
    name = fields.Function(_of("name"), required=True, metadata={"type": "string", "description": "Scheme and host."})
    kind = fields.String(
        required=True,
        allow_none=True,
        metadata={"enum": ["webhook", "apprise", None], "description": "Null: this server's settings do not name it."},
    )
    queued = _count("queued", "Messages that wait.")
    oldest_at = _instant("oldest", "When the oldest of them was queued.")
    tries = _count("tries", "Failed tries of the oldest message so far.")
    next_try_at = _instant("next_at", "When it is tried again; null: as soon as there is one.")
    sent = _count("sent", "Messages that the target took.")
    last_success_at = _instant("sent_at", "When it took the last one.")
    last_failure_at = _instant("failed_at", "When a try failed last.")
    last_failure = fields.Function(
        lambda item: item["state"].failure or None,
        required=True,
        metadata={"type": ["string", "null"], "description": "Why it failed."},
    )
    given_up = _count("given_up", "Messages that the target did not take for three days.")
    dropped = _count("dropped", "Messages that a full queue dropped.")
    disabled_at = _instant("disabled_at", "When the target answered 410: it gets no more until a supervisor starts.")


class NotificationOutbox(BaseSchema):
    """What waits to be queued, because no supervisor with targets runs."""

    name = fields.String(required=True, metadata={"enum": ["approvals", "conversations", "sandboxes"]})
    waiting = fields.Integer(required=True)
    dropped = fields.Integer(required=True, metadata={"description": "Entries that a full outbox dropped."})


class Notifications(BaseSchema):
    items = fields.List(fields.Nested(NotificationTarget), required=True)
    outboxes = fields.List(fields.Nested(NotificationOutbox), required=True)


class NotificationTest(BaseSchema):
    """Which target to test."""

    body_optional = True

    target = Text(
        least=1, most=64, load_default=None, allow_none=True, metadata={"description": "Its id. Absent: all targets."}
    )


class NotificationOutcome(BaseSchema):
    id = fields.String(required=True)
    name = fields.String(required=True)
    delivered = fields.Boolean(required=True)
    detail = fields.String(required=True, metadata={"description": "Why it was not; empty."})
