"""The headers of every response, errors, streams and assets included: what a browser may do with it, and for whom."""

from flask import Flask, Response, current_app, request

from boot.headers import SECURITY_HEADERS
from origins import origin

#: what a page of an allowed origin may read of a response, beside its body
EXPOSED = (
    "ETag",
    "Idempotency-Replayed",
    "Location",
    "Retry-After",
    "X-Request-Id",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
)

#: of every response. Conversations, keys and secrets: no cache on the way keeps any of it
_HEADERS = {**SECURITY_HEADERS, "Cache-Control": "no-store"}

#: seconds for which a browser may keep the response to a preflight
_MAX_AGE = 600


def register_headers(app: Flask) -> None:
    """Add them to every response of the app. A view's own header stands."""
    app.after_request(_with_headers)


def _with_headers(response: Response) -> Response:
    # One pass over the names: `setdefault` would read all headers for each of these.
    given = {name.lower() for name, _ in response.headers}
    for name, value in _HEADERS.items():
        if name.lower() not in given:
            response.headers.add(name, value)
    allowed = current_app.extensions["posture"].allowed_origins
    if not allowed:
        return response
    response.vary.add("Origin")
    sent = request.headers.get("Origin", "")
    if origin(sent) in allowed:
        response.headers["Access-Control-Allow-Origin"] = sent
        response.headers["Access-Control-Allow-Credentials"] = "true"
        response.headers["Access-Control-Expose-Headers"] = ", ".join(EXPOSED)
        if request.method == "OPTIONS":
            _grant(response)
    return response


def _grant(response: Response) -> None:
    """Complete the response to a preflight: a page may send what it asks for."""
    response.vary.update(("Access-Control-Request-Method", "Access-Control-Request-Headers"))
    response.headers["Access-Control-Allow-Methods"] = "DELETE, GET, HEAD, PATCH, POST, PUT"
    response.headers["Access-Control-Max-Age"] = str(_MAX_AGE)
    if wanted := request.headers.get("Access-Control-Request-Headers"):
        response.headers["Access-Control-Allow-Headers"] = wanted
