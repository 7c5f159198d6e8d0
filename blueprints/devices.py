"""Devices with web push. Only the person or key that added a device sees, tests and ends it.

Source: docs/approvals.md.
"""

from typing import Any

from flask import g

from blueprints import current_devices
from blueprints.api import Blueprint, needs
from notifications.devices import RingOutcome
from schemas.devices import DeviceInfo, DeviceRequest, OwnDevices
from schemas.fields import Success
from schemas.operations import NotificationOutcome
from store.devices import Device

devices = Blueprint("Devices", __name__, url_prefix="/api/v1")


@devices.get("/devices")
@needs("read")
@devices.fails(503)
@devices.response(200, OwnDevices)
def list_devices() -> dict[str, Any]:
    """List your devices, and the key with which a browser subscribes."""
    return {"application_server_key": current_devices.push_key(), "items": current_devices.own(g.principal)}


@devices.post("/devices")
@needs("read")
@devices.fails(409, 503)
@devices.arguments(DeviceRequest())
@devices.response(201, DeviceInfo)
def add_device(wanted: dict[str, Any]) -> Device:
    """Add or renew a device. It is notified of pending actions until its owner's key ends or 90 days pass."""
    keys = wanted["keys"]
    return current_devices.add(
        g.principal,
        wanted["endpoint"],
        keys["p256dh"].rstrip("="),
        keys["auth"].rstrip("="),
        label=wanted["name"],
        shows=wanted["shows"],
    )


@devices.delete("/devices/<device_id>")
@needs("read")
@devices.fails()
@devices.response(200, Success)
def end_device(device_id: str) -> dict[str, bool]:
    """End your device. It gets no more notifications, and the buttons of earlier ones decide nothing."""
    current_devices.end(g.principal, device_id)
    return {"success": True}


@devices.post("/devices/<device_id>/test")
@needs("read")
@devices.fails(503)
@devices.response(200, NotificationOutcome)
def test_device(device_id: str) -> RingOutcome:
    """Notify your device, and report the result."""
    return current_devices.test(g.principal, device_id)
