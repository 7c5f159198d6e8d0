"""Notifications: what is stuck, and a test of the targets.

Both are for admins: they show where an operator's alarms go, and a test has the server open connections.
"""

from typing import Any

from blueprints import current_desk
from blueprints.api import Blueprint, needs
from notifications.sending import Outcome
from schemas.notifications import NotificationOutcome, Notifications, NotificationTest

notifications = Blueprint("Notifications", __name__, url_prefix="/api/v1")


@notifications.get("/notifications")
@needs("admin")
@notifications.fails()
@notifications.response(200, Notifications)
def list_notifications() -> dict[str, Any]:
    """List the targets of notifications with what waits for each, and why."""
    return current_desk.overview()


@notifications.post("/notifications/test")
@needs("admin")
@notifications.fails(409, 413, 415)
@notifications.arguments(NotificationTest())
@notifications.response(200, NotificationOutcome(many=True))
def send_test_notifications(wanted: dict[str, Any]) -> list[Outcome]:
    """Send a test message to one target or to all, and report the result of each."""
    return current_desk.test(wanted["target"])
