"""The app in a worker that is killed by a request: after the effect, and before the response.

A request with the header `Kill-After` kills its worker where a view has returned, and before anything is noted of that.
"""

import os
import signal

from flask import Flask, Response, request

import app


def create_app() -> Flask:
    """The app as it is, with that end of a worker."""
    killed = app.create_app()
    killed.after_request(_kill)  # what is registered last runs first
    return killed


def _kill(response: Response) -> Response:
    if "Kill-After" in request.headers:
        os.kill(os.getpid(), signal.SIGKILL)
    return response
