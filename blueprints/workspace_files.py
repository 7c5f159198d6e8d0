"""Files of a conversation's workspace as a browser shows them: text, pictures, pages. Source: the agent-server wire.

A browser that loads a picture or a page cannot show a key: POST /api/auth/workspace-session gives it a cookie, which
opens these paths alone and ends after SESSION_SECONDS.

Guarantee: what an agent has written acts for nobody. Every response puts its page into a sandbox without an origin,
which reads no cookie and no response of this server, sends nothing by scripts, and loads from its workspace alone.
Limitation: a page can put text of its workspace into the address of a picture of the same workspace, and nowhere else.
"""

import mimetypes
import posixpath
from urllib.parse import quote

from flask import Response, current_app, g, request
from werkzeug.exceptions import NotFound

from agents.forwarding import Call, Folder, Forwarding
from blueprints import current_store
from blueprints.api import Blueprint, needs
from blueprints.following import client_required
from core.origins import authority, is_loopback
from core.wire import ConversationId
from store.access.access_keys import SESSION_SECONDS, WORKSPACE_COOKIE

workspace_files = Blueprint("Workspace Files", __name__, url_prefix="/api")

#: where the cookie is shown
_COOKIE_PATH = "/api/conversations"

#: what a page may do: run its scripts, and load what lies beside it
_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; media-src 'self' data: blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)

#: types that are text in UTF-8 unless they say otherwise
_TEXTS = ("text/", "application/json", "application/javascript", "image/svg+xml")

#: headers of the agent server's response that the browser gets
_OF_AGENT = ("Content-Length", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified")

_FILE = {"200": {"description": "The file", "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}}


@workspace_files.post("/auth/workspace-session")
@needs("approve")
@workspace_files.fails(409)
@workspace_files.response(204)
def create_workspace_session() -> Response:
    """Give a browser a cookie that opens files of workspaces, for the key that asks."""
    return _with_cookie(current_store.access.sessions.make(g.principal), SESSION_SECONDS)


@workspace_files.delete("/auth/workspace-session")
@needs("read")
@workspace_files.response(204)
def delete_workspace_session() -> Response:
    """Take the cookie away from the browser."""
    return _with_cookie("", 0)


def _with_cookie(value: str, seconds: int) -> Response:
    place = authority(request.host)
    is_secure = request.is_secure or bool(place and is_loopback(place.host))  # where browsers take a cookie as secure
    response = Response(status=204)
    response.set_cookie(
        WORKSPACE_COOKIE,
        value,
        max_age=seconds,
        path=f"{request.root_path}{_COOKIE_PATH}",
        secure=is_secure,
        httponly=True,
        samesite="None" if is_secure else "Lax",
        partitioned=is_secure,
    )
    return response


@workspace_files.get("/conversations/<conversation_id:conversation_id>/workspace")
@workspace_files.fails(404, 409, 410, 429, 500, 502)
@workspace_files.doc(responses=_FILE)
@needs("approve", cookie=True)
def get_workspace_page(conversation_id: ConversationId) -> Response:
    """Show `index.html` of a conversation's workspace."""
    return _shown(conversation_id, "index.html")


@workspace_files.get("/conversations/<conversation_id:conversation_id>/workspace/<path:file_path>")
@workspace_files.fails(404, 409, 410, 429, 500, 502)
@workspace_files.doc(responses=_FILE)
@needs("approve", cookie=True)
def get_workspace_file(conversation_id: ConversationId, file_path: str) -> Response:
    """Show a file of a conversation's workspace, with the type that its name has; of a folder its `index.html`."""
    return _shown(conversation_id, file_path + ("index.html" if file_path.endswith("/") else ""))


def _shown(conversation_id: ConversationId, path: str) -> Response:
    forwarding: Forwarding = current_app.extensions["forwarding"]
    sandbox_id = forwarding.sandbox_of(conversation_id)
    folder = Folder.of(current_store.conversations.in_sandboxes.get(conversation_id))
    place = posixpath.normpath(posixpath.join(folder.real or "/", path))
    if not folder.has(place):
        raise NotFound("No such file in the workspace")
    query = f"path={quote(place, safe='')}".encode()
    answer = forwarding.open(
        sandbox_id,
        Call(
            "GET",
            f"/api/conversations/{conversation_id}/file/download",
            query,
            request.headers.get,
            require_client=client_required(),
        ),
    )
    response = Response(answer, answer.status)
    del response.headers["Content-Type"]
    response.headers.extend((name, value) for name, value in answer.headers if name in _OF_AGENT)
    kind = mimetypes.guess_type(place)[0] or "text/plain" if answer.status in (200, 206, 304) else "application/json"
    response.headers["Content-Type"] = f"{kind}; charset=utf-8" if kind.startswith(_TEXTS) else kind
    response.headers["Content-Security-Policy"] = _framed_policy()
    response.headers["Cross-Origin-Resource-Policy"] = "cross-origin" if _allowed_origins() else "same-origin"
    response.headers["X-Frame-Options"] = "SAMEORIGIN"  # of old browsers; the policy's frame-ancestors comes first
    response.headers["Cache-Control"] = "no-store"
    return response


def _allowed_origins() -> list[str]:
    return sorted(current_app.extensions["posture"].allowed_origins)


def _framed_policy() -> str:
    """The policy, by which this server's own pages and those of ALLOWED_ORIGINS may show the page in a frame."""
    return " ".join([_POLICY, *_allowed_origins()])
