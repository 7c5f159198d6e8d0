"""The request log: an id on every response, and a line of JSON for every request that writes.

A line has the names of keys and the ids of things, and never a key, a query, a header, a body or a message's text. The
lines of the app's own log name the request and the conversation that they are about, where they are JSON. Source:
docs/operations.md.
"""

import json
import logging
import re
import sys
import time
from random import getrandbits
from typing import Any

from flask import Flask, Response, g, has_request_context, request, request_started

from core import wire
from core.access import NOBODY, Principal
from core.cuts import beginning
from telemetry.logs import ABOUT, JsonLines, log_to_stderr
from telemetry.meter import template

#: a request id that a client may choose
_OWN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_WRITING = ("POST", "PUT", "PATCH", "DELETE")

#: characters of a name or an address, so that a line is shorter than what one write to a pipe keeps together
_MOST = 256

_PART = re.compile(r"<(?:[^:<>]+:)?([^<>]+)>")

_log = logging.getLogger("request_log")


def register_request_log(app: Flask) -> None:
    """Give every response its id, and log every request that writes to the standard output."""
    if not _log.handlers:
        _log.addHandler(logging.StreamHandler(sys.stdout))
    _log.setLevel(logging.INFO)
    _log.propagate = False
    request_started.connect(_begin, app)
    app.after_request(_end)


def _begin(_app: Flask, **_: Any) -> None:
    own = request.headers.get("X-Request-Id", "")
    g.request_id = own if _OWN_ID.fullmatch(own) else f"{getrandbits(128):032x}"
    g.began = time.monotonic()


def _end(response: Response) -> Response:
    response.headers["X-Request-Id"] = request_id()
    if request.method in _WRITING:
        note(response.status_code, began=g.began, replayed="Idempotency-Replayed" in response.headers)
    return response


def request_id() -> str:
    """The id of the present request, which its response and its log lines bear."""
    return str(g.request_id)


def note(status: int | str, *, began: float, method: str = "", replayed: bool = False) -> None:
    """Log that the present request writes; of a message over a socket, status is the outcome in a word.

    began: `time.monotonic` at its beginning.
    """
    principal: Principal = g.get("principal", NOBODY)
    line = {
        "time": wire.utc_time(wire.now()),
        "request_id": request_id(),
        "key": beginning(principal.name, _MOST),
        "key_id": principal.key_id,
        "address": beginning(request.remote_addr or "", _MOST),
        "method": method or request.method,
        "path": _path(status),
        "status": status,
        "ms": round((time.monotonic() - began) * 1000, 1),
    }
    # ASCII alone: no character of a name ends a line or moves a terminal's cursor
    _log.info("%s", json.dumps(line | ({"replayed": True} if replayed else {})))


def _path(status: int | str) -> str | None:
    """The rule of the request's URL with its ids; None where no rule matches.

    A conversation's id is a UUID. The token of a link is a key: no line has it. Any other part is text that the client
    chose, perhaps a secret in the wrong place: a line has it where the response confirms that it names something.
    """
    if request.url_rule is None:
        return None
    is_confirmed = isinstance(status, str) or status < 400 or status == 409
    ids = {
        name: beginning(str(value), _MOST)
        for name, value in (request.view_args or {}).items()
        if name != "token" and (is_confirmed or name == "conversation_id")
    }
    return _PART.sub(lambda part: ids.get(part[1], f"<{part[1]}>"), request.url_rule.rule)


def register_logs(app: Flask, level: str, *, as_json: bool) -> None:
    """Set the level of the app's log; as_json: the whole process logs JSON."""
    if as_json:
        log_to_stderr(logging.Formatter(), logging.WARNING, as_json=True)
        JsonLines.context = staticmethod(_of_request)
        app.after_request(_leave)
    app.logger.setLevel(level.upper())


def _leave(response: Response) -> Response:
    request.environ[ABOUT] = _of_request()
    return response


def _of_request() -> dict[str, Any]:
    if not has_request_context():
        return {}
    rule = request.url_rule
    return {
        "request_id": g.get("request_id"),
        "conversation_id": (request.view_args or {}).get("conversation_id"),
        "method": request.method if rule else None,
        "route": template(rule.rule) if rule else None,
    }
