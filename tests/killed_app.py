"""The app in a worker that is killed by a request: before a decision, or after the effect and before the response.

A request with the header `Kill-Before` kills its worker where it is about to decide single actions, one with
`Kill-Before-Index` where a conversation's script has returned and the index of approvals has not changed, and one with
`Kill-After` where a view has returned, and before anything is noted of that.
"""

import os
import signal
from typing import Any

from flask import Flask, Response, has_request_context, request

import app


def create_app() -> Flask:
    """The app as it is, with that end of a worker."""
    killed = app.create_app()
    confirmations = killed.extensions["store"].confirmations
    decide_each = confirmations.decide_each

    def decide_or_die(*given: Any) -> None:
        if "Kill-Before" in request.headers:
            os.kill(os.getpid(), signal.SIGKILL)
        decide_each(*given)

    confirmations.decide_each = decide_or_die
    killed.after_request(_kill)  # what is registered last runs first
    listing = killed.extensions["store"].conversations._listing
    settle = listing.on_approvals

    def settle_or_die(conversation_id: str) -> None:
        if has_request_context() and "Kill-Before-Index" in request.headers:
            os.kill(os.getpid(), signal.SIGKILL)
        settle(conversation_id)

    listing.on_approvals = settle_or_die
    return killed


def _kill(response: Response) -> Response:
    if "Kill-After" in request.headers:
        os.kill(os.getpid(), signal.SIGKILL)
    return response
