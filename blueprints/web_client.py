"""The configuration of web clients, which ask for it before they have a key. Source: the app-server wire."""

from datetime import UTC, datetime

from blueprints.api import Blueprint, needs
from schemas.web_client import WebClientConfig

web_client = Blueprint("Web Client", __name__, url_prefix="/api/v1/web-client")

_STARTED_AT = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@web_client.get("/config")
@needs("open")
@web_client.response(200, WebClientConfig)
def get_web_client_config() -> dict[str, str]:
    """Get what a web client shows and hides. It needs no key and has no data."""
    return {"updated_at": _STARTED_AT}
