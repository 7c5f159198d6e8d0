"""The request log: an id in every response, and a line for every writing request, as JSON or as text in a terminal.

A line has names of keys and ids, and never a key, a query, a header, a body or the text of a message. Lines of the
app's own log name their request and conversation. Source: docs/operations.md.
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
from core.access import ANYONE, NOBODY, Principal
from core.cuts import beginning
from telemetry.logs import ABOUT, LineFormatter, TextLines, is_json, is_terminal, log_to_stderr, readable
from telemetry.meter import template

#: Form of a client's request id.
_OWN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_WRITING = ("POST", "PUT", "PATCH", "DELETE")

#: Maximum number of characters of a name or an address, so that a line is written to a pipe atomically.
_MOST = 256

#: Colours of statuses in a terminal, by their first digit.
_STATUSES = {2: "\x1b[32m", 4: "\x1b[33m", 5: "\x1b[1;31m"}

_PART = re.compile(r"<(?:[^:<>]+:)?([^<>]+)>")

_log = logging.getLogger("request_log")


def register_request_log(app: Flask) -> None:
    """Give every response its id, and log every writing request to standard output."""
    if not _log.handlers:
        _log.addHandler(handler := logging.StreamHandler(sys.stdout))
        if is_terminal(sys.stdout) and not is_json():
            handler.setFormatter(_ForPeople("request", sys.stdout))
            handler.addFilter(is_for_people)
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
    """Return the id of the current request, which its response and its log lines contain."""
    return str(g.request_id)


def note(status: int | str, *, began: float, method: str = "", replayed: bool = False) -> None:
    """Log a writing request. began: `time.monotonic` at its beginning.

    status: HTTP status; for a message over a socket, its outcome in a word.
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
    line |= {"replayed": True} if replayed else {}
    # json.dumps escapes all but ASCII, so that no name can end a line or move a terminal's cursor
    _log.info("%s", json.dumps(line), extra={"line": line, "is_of_sandbox": principal.sandbox_id is not None})


def is_for_people(record: logging.LogRecord) -> bool:
    """Return whether a terminal shows a line.

    Successful webhooks of sandboxes are hidden, because there are many per action.
    """
    status = record.line["status"]  # type: ignore[attr-defined]
    is_refused = not isinstance(status, int) or status >= 400
    return is_refused or not record.is_of_sandbox  # type: ignore[attr-defined]


class _ForPeople(TextLines):
    """Formats a line for people: `POST /api/conversations 201 12 ms`, and the caller."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = record.line  # type: ignore[attr-defined]
        status, is_refused = line["status"], isinstance(line["status"], int) and line["status"] >= 400
        colour = "" if not isinstance(status, int) else _STATUSES.get(status // 100, "")
        path = readable(line["path"] or "(no such path)")
        message = f"{line['method']} {path} {self.colour(colour, str(status))} {line['ms']:.0f} ms"
        of_someone, from_elsewhere = line["key"] != ANYONE.name, line["address"] != "127.0.0.1"
        shown = {
            "key": line["key"] if of_someone else None,
            "address": line["address"] if from_elsewhere else None,
            "replayed": line.get("replayed"),
        }
        return self.line(record, message, shown | ({"request_id": line["request_id"]} if is_refused else {}))


def _path(status: int | str) -> str | None:
    """Return the rule of the request's URL with its ids; None if no rule matches.

    A conversation's id is always logged, because it is a UUID. A link's token is a key, and never logged. Any other
    part is a client's text, which may be a misplaced secret: it is logged only if the status shows that it names
    something.
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


def register_logs(app: Flask, level: str) -> None:
    """Set the format of the process's log, and the level of the app's log."""
    log_to_stderr("agent-server", logging.WARNING)
    LineFormatter.context = staticmethod(_of_request)
    if is_json():
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
