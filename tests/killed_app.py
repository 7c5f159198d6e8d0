"""The app in a worker that is killed by a request: before a decision, or after the effect and before the response.

A request with the header `Kill-Before` kills its worker where it is about to decide single actions, one with
`Kill-Before-Index` where a conversation's script has returned and the index of approvals has not changed, as it can be
in a cluster, and one with
`Kill-After` where a view has returned, and before anything is noted of that.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from flask import Flask, Response, has_request_context, request

import app
from settings.config import Config
from tests.round_trips import leave_to_callers
from tests.shared import client_of


class WorkerKilled(BaseException):
    """Ends a request in the tests' own process where it would kill its worker: no `except Exception` catches it."""


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise() -> None:
    raise WorkerKilled


@contextmanager
def killed_here(config: Config) -> Iterator[httpx.Client]:
    """A client of such an app in this process, where a request that would kill its worker raises WorkerKilled."""
    with pytest.MonkeyPatch.context() as patched, client_of(create_app(config)) as client:
        patched.setitem(globals(), "_die", _raise)
        yield client


def create_app(config: Config | None = None) -> Flask:
    """The app as it is, with that end of a worker."""
    killed = app.create_app(config)
    store = killed.extensions["server"].store
    leave_to_callers(store)
    confirmations = store.approvals.confirmations
    decide_each = confirmations.decide_each

    def decide_or_die(*given: Any) -> None:
        if "Kill-Before" in request.headers:
            _die()
        decide_each(*given)

    confirmations.decide_each = decide_or_die
    killed.after_request(_kill)  # what is registered last runs first
    decisions = store.approvals.rule_decisions
    refresh = decisions.refresh

    def refresh_or_die(conversation_id: str) -> None:
        if has_request_context() and "Kill-Before-Index" in request.headers:
            _die()
        refresh(conversation_id)

    decisions.refresh = refresh_or_die
    return killed


def _kill(response: Response) -> Response:
    if "Kill-After" in request.headers:
        _die()
    return response
