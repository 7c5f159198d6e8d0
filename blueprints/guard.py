"""The one guard: who asks, and whether that one may. It stands before every operation, and before the body is read."""

from flask import Flask, Response, g

from access import ANYONE
from blueprints.posture import admit


def register_guard(app: Flask) -> None:
    """Guard every URL rule of the app; the last rule must have been added before."""
    app.before_request(_guard)


def _guard() -> Response | None:
    if preflight := admit():
        return preflight
    g.principal = ANYONE
    return None
