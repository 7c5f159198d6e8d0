"""The page that shows the OpenAPI document; nothing of it is inline or from elsewhere."""

from flask import Blueprint, Response, current_app

from blueprints.api import needs

docs_page = Blueprint("docs", __name__)

#: the style sheet draws its arrows as data: images
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@docs_page.get("/docs")
@needs("open")
def show_docs() -> Response:
    """Show the page, which is open to all: it holds no data."""
    response = current_app.send_static_file("page/docs.html")
    response.headers["Content-Security-Policy"] = _POLICY
    return response
