"""The app with an error that nobody foresaw: it counts no events of a request with the header `Fail`."""

from typing import Any

from flask import Flask, request

import app


def create_app() -> Flask:
    """The app as it is, with that error."""
    failing = app.create_app()
    events = failing.extensions["store"].events
    count = events.count

    def count_or_fail(*given: Any, **filters: Any) -> Any:
        if "Fail" in request.headers:
            raise RuntimeError(request.headers["Fail"])
        return count(*given, **filters)

    events.count = count_or_fail
    return failing
