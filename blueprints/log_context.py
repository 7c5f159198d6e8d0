"""The logs of the app: their level and, as JSON, the request and the conversation that a line is about."""

import logging
from typing import Any

from flask import Flask, Response, g, has_request_context, request

from boot.json_lines import ABOUT, JsonLines, log_to_stderr
from boot.routes import template


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
