"""Devices that ring by web push. Each belongs to whoever added it, who alone sees, tests and ends it.

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
    """List your devices that ring, and the key that a browser subscribes with."""
    return {"application_server_key": current_devices.push_key(), "items": current_devices.own(g.principal)}


@devices.post("/devices")
@needs("read")
@devices.fails(409, 503)
@devices.arguments(DeviceRequest())
@devices.response(201, DeviceInfo)
def add_device(wanted: dict[str, Any]) -> Device:
    """Add a device, or renew it: it rings when something waits, until its owner's key ends or 90 days pass."""
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
    """End a device of yours: it rings no more, and its notifications decide nothing."""
    current_devices.end(g.principal, device_id)
    return {"success": True}


@devices.post("/devices/<device_id>/test")
@needs("read")
@devices.fails(503)
@devices.response(200, NotificationOutcome)
def test_device(device_id: str) -> RingOutcome:
    """Ring a device of yours, and report the result."""
    return current_devices.test(g.principal, device_id)
