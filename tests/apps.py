"""The app with something else where it counts events, for tests that start it as a server."""

import gc
from dataclasses import replace
from typing import Any

from flask import Flask, request

import app


def failing_app() -> Flask:
    """The app with an error that nobody foresaw: it counts no events of a request with the header `Fail`."""
    changed = app.create_app()
    events = changed.extensions["server"].store.events
    count = events.count

    def count_or_fail(*given: Any, **filters: Any) -> Any:
        if "Fail" in request.headers:
            raise RuntimeError(request.headers["Fail"])
        return count(*given, **filters)

    events.count = count_or_fail
    return changed


def frozen_app() -> Flask:
    """The app that counts, instead of events, the objects of its process that no collection looks through."""
    counting = app.create_app()

    def count(*_given: Any, **_filters: Any) -> int:
        return gc.get_freeze_count()

    counting.extensions["server"].store.events.count = count
    return counting


def serve_with(monkeypatch, app, **parts) -> None:
    """Exchange parts of what an app serves with, until the test ends."""
    monkeypatch.setitem(app.extensions, "server", replace(app.extensions["server"], **parts))
