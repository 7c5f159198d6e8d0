"""Paths that redirect to another path: a trailing slash, `/console`, and `/` for a browser. Source: docs/wire.md, 2.

Neither bypasses the guard: a refused request is not redirected.
"""

from urllib.parse import quote

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException

from blueprints.api import InvalidInput
from blueprints.posture import admit


def lead_browsers(app: Flask) -> None:
    """Lead to the console, which is open to all: browsers from `/`, everyone from its path without a slash, to which
    the page's own addresses are not relative. Goes before the guard, which would ask for a key."""
    app.before_request(_to_console)


def lead_from_slashes(app: Flask) -> None:
    """Lead clients to the path without trailing slashes, with the method and the body."""
    app.after_request(_without_slashes)


def _to_console() -> Response | None:
    is_led = request.path == "/console" or (request.path == "/" and _is_browser())
    if not is_led or request.method not in ("GET", "HEAD"):
        return None
    # Relative: a proxy that serves this below a path may not say so. If it does, that path may come without a slash.
    place = f"{request.root_path}/console/" if request.root_path else "console/"
    return admit() or Response(status=302, headers={"Location": place, "Vary": "Accept"})


def _is_browser() -> bool:
    """Whether a request prefers a page; a program that names no type does not."""
    return request.accept_mimetypes.best_match(["application/json", "text/html"]) == "text/html"


def _without_slashes(response: Response) -> Response:
    """The response, or where nothing is served there, 307 to the path without its last slashes, if that is served.

    Only the id of an event may end in a slash: one that exists is served. A path that was meant as another may seem to
    be one, and then its query is refused.
    """
    if response.status_code not in (404, 405, 422):
        return response
    path = request.path.rstrip("/")
    if path in ("", request.path) or not _is_served(path):
        return response
    # One slash at the begin: after two, the name of a host would follow.
    query = f"?{request.query_string.decode('latin-1')}" if request.query_string else ""
    return Response(status=307, headers={"Location": f"{request.root_path}/{quote(path.lstrip('/'))}{query}"})


def _is_served(path: str) -> bool:
    """Whether a rule serves a path, with the method of the present request."""
    adapter = current_app.create_url_adapter(request)
    try:
        return adapter is not None and bool(adapter.match(path, method=request.method))
    except InvalidInput:  # a rule serves it, and refuses the id in it
        return True
    except HTTPException:
        return False
