"""Bash, files, git and VS Code of a sandbox: calls that its agent server handles. Source: docs/wire.md.

A call names a conversation in its path, or else its sandbox: by a sandbox's session key, by `?cid=`, or by the caller's
key. In the last case the sandbox is that of the key's conversation, or its workspace sandbox, which a POST starts. This
module never touches the disk or a shell of this server.

Below `/workspace` a browser shows files of a conversation: text, pictures and pages. A browser that loads a picture or
a page cannot send a key. POST /api/auth/workspace-session gives it a cookie, which is valid for these paths and for
SESSION_SECONDS. Source: the agent-server wire.

Guarantee: an agent's page cannot act for anybody. Every response puts its page into a sandbox without an origin. The
page reads no cookie and no response of this server, sends nothing by scripts, and loads only from its workspace.
Limitation: a page can put text of its workspace into the URL of a picture in the same workspace, and nowhere else.
"""

import mimetypes
import posixpath
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any
from urllib.parse import quote

from flask import Response, g, jsonify, request
from webargs import core
from werkzeug.exceptions import Forbidden, NotFound

from agents.forwarding import (
    PATH,
    QUERY_PATHS,
    ClientGone,
    ConversationFolder,
    ForwardedCall,
    ForwardedResponse,
    pairs_of,
)
from agents.places import after_making_room
from agents.waking import wake
from blueprints import current_client, current_forwarding, current_server, current_specs, current_store
from blueprints.api import Blueprint, InvalidInput, View, needs, refuse_unknown, refused
from blueprints.following import caller_required
from boot.http import body_of
from core.access import Scope
from core.filenames import from_text
from core.origins import authority, is_loopback
from core.wire import ConversationId
from schemas.catalogs import Home
from schemas.fields import FieldFault, canonical_id
from schemas.forwarding import CID, NAMED, ForwardedOperation
from store.access.access_keys import SESSION_SECONDS, WORKSPACE_COOKIE
from store.sandboxes.sandboxes import SandboxId

forwarding = Blueprint("Forwarded", __name__, url_prefix="/api")

#: Size of a chunk of a body, in bytes: small enough to arrive at the minimum rate before an agent server times out.
_PIECE = 16 * 1024

#: Service → its methods with their descriptions, and the required scope.
_SERVICES: dict[str, tuple[dict[str, str], Scope]] = {
    "bash": (
        {
            "GET": "Read the output of commands",
            "POST": "Run or stop a command",
            "DELETE": "Delete the output of commands",
        },
        "approve",
    ),
    "file": ({"GET": "Download from a sandbox", "POST": "Upload to a sandbox, or create a folder"}, "approve"),
    "git": ({"GET": "Read changes, differences and commits of a repository"}, "read"),
    "vscode": ({"GET": "Read the state or the URL of VS Code"}, "approve"),
}

#: Git operations that need no scope `approve`: their path is in the query, where it is checked.
_GIT = re.compile(r"(?:changes|diff|commits|commits/[0-9A-Za-z]+/changes|repositories/search)/?")

#: Services whose responses contain output of commands and files, where secrets are masked. Downloads are unmasked.
_TOLD = frozenset({"bash", "git"})

#: Home of clients without a sandbox. A start maps folders below it to the working folder of its sandbox.
HOME = "/workspace"

_ANY = {"schema": {"type": "string", "format": "binary"}}
_BODY = {"required": False, "content": {"application/json": {"schema": {}}, "multipart/form-data": {"schema": {}}}}


#: Path of the cookie.
_COOKIE_PATH = "/api/conversations"

#: Policy of a workspace page: it runs its scripts, and loads from its own folder.
_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; media-src 'self' data: blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)

#: Types that default to UTF-8.
_TEXTS = ("text/", "application/json", "application/javascript", "image/svg+xml")

#: Headers of the agent server's response that the browser gets.
_OF_AGENT = ("Content-Length", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified")

_FILE = {"200": {"description": "The file", "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}}


def _serve(service: str, method: str, what: str, *, alone: bool, named: ForwardedOperation | None = None) -> None:
    """Add the rule of a service and a method, under a conversation or without one.

    named: the operation of the rule; None: any other operation of an agent server.
    """

    def under_conversation(conversation_id: ConversationId, **parts: str) -> Response:
        rest = rest_of(parts)
        _require_acceptable(rest)
        sandbox_id = current_forwarding.sandbox_of(conversation_id)
        folder = partial(_folder_of, conversation_id)
        return _forward(sandbox_id, service, f"/api/conversations/{conversation_id}/{service}/{rest}", folder)

    def without_conversation(**parts: str) -> Response:
        rest = rest_of(parts)
        _require_acceptable(rest)
        sandbox_id, folder = _named_sandbox()
        response = _forward(sandbox_id, service, f"/api/{service}/{rest}", folder)
        response.headers["X-Sandbox-Id"] = sandbox_id
        return response

    def rest_of(parts: dict[str, str]) -> str:
        return named.path.format(**parts) if named else parts["rest"]

    view: Callable[..., Response] = without_conversation if alone else under_conversation
    view.__name__ = (named.name if named else f"{method.lower()}_{service}") + ("_of_sandbox" if alone else "")
    whose = "a sandbox" if alone else "the conversation's sandbox"
    view.__doc__ = f"{what}, by the agent server of {whose}."
    document: dict[str, Any] = {
        "responses": {"200": {"description": "The agent server's response", "content": {"*/*": _ANY}}}
    }
    document |= {"requestBody": _BODY} if method == "POST" else {}
    parameters = [CID] if alone else []
    if named:
        document, parameters = named.document(), [*parameters, *named.query]
    document |= {"parameters": parameters} if parameters else {}
    view = _forwarded(needs(_SERVICES[service][1], session=alone)(view))
    view = forwarding.doc(**document)(view)
    view = forwarding.fails(400, 404, 405, 408, 409, 410, 413, 415, 429, 500, 502)(view)
    rest = re.sub(r"{(\w+)}", r"<\1>", named.path) if named else "<path:rest>"
    before = "" if alone else "/conversations/<conversation_id:conversation_id>"
    forwarding.route(f"{before}/{service}/{rest}", methods=[method])(view)


def _forwarded(view: View) -> View:
    """Mark a view whose query the agent server reads."""
    view.is_forwarded = True  # type: ignore[attr-defined]
    return view


@forwarding.get("/file/home")
@forwarding.fails(404, 409, 410, 429, 500, 502)
@forwarding.doc(parameters=[CID])
@forwarding.response(200, Home)
@_forwarded
@needs("read", session=True)
def get_home() -> Response:
    """Get the folder below which clients put their folders. With a sandbox, its agent server responds."""
    _require_acceptable("home")
    if g.principal.user_of is None and "cid" not in request.args:
        refuse_unknown({"cid"})  # no agent server checks this query
        return jsonify(Home().dump({"home": HOME}))
    if g.principal.user_of is None and not g.principal.may("approve"):
        raise Forbidden("Of a sandbox this needs a key with the scope approve")
    sandbox_id, folder = _named_sandbox()
    return _forward(sandbox_id, "file", "/api/file/home", folder)


for _named in NAMED:
    for _alone in (False, True):
        if _alone or not _named.alone:
            _serve(_named.service, _named.method, _named.what, alone=_alone, named=_named)

for _service, (_methods, _) in _SERVICES.items():
    for _method, _what in _methods.items():
        for _alone in (False, True):
            _serve(_service, _method, _what, alone=_alone)


workspace_files = Blueprint("Workspace Files", __name__, url_prefix="/api")


@workspace_files.post("/auth/workspace-session")
@needs("approve")
@workspace_files.fails(409)
@workspace_files.response(204)
def create_workspace_session() -> Response:
    """Give a browser a cookie for the workspace files that the caller's key may read."""
    return _with_cookie(current_store.access.sessions.make(g.principal), SESSION_SECONDS)


@workspace_files.delete("/auth/workspace-session")
@needs("read")
@workspace_files.response(204)
def delete_workspace_session() -> Response:
    """Delete the cookie of the browser."""
    return _with_cookie("", 0)


def _with_cookie(value: str, seconds: int) -> Response:
    place = authority(request.host)
    is_secure = request.is_secure or bool(place and is_loopback(place.host))  # contexts that browsers consider secure
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
@workspace_files.fails(409, 410, 429, 500, 502)
@workspace_files.doc(responses=_FILE)
@needs("approve", cookie=True)
def get_workspace_page(conversation_id: ConversationId) -> Response:
    """Show `index.html` of a conversation's workspace."""
    return _serve_file(conversation_id, "index.html")


@workspace_files.get("/conversations/<conversation_id:conversation_id>/workspace/<path:file_path>")
@workspace_files.fails(409, 410, 429, 500, 502)
@workspace_files.doc(responses=_FILE)
@needs("approve", cookie=True)
def get_workspace_file(conversation_id: ConversationId, file_path: str) -> Response:
    """Show a file of a conversation's workspace, with the type of its name. A folder shows its `index.html`."""
    return _serve_file(conversation_id, file_path + ("index.html" if file_path.endswith("/") else ""))


def _serve_file(conversation_id: ConversationId, path: str) -> Response:
    sandbox_id = current_forwarding.sandbox_of(conversation_id)
    folder = _folder_of(conversation_id)
    place = posixpath.normpath(posixpath.join(folder.real or "/", path))
    if not folder.has(place):
        raise NotFound("No such file in the workspace")
    query = f"path={quote(from_text(place), safe='', errors='surrogateescape')}".encode()
    path = f"/api/conversations/{conversation_id}/file/download"
    call = ForwardedCall("GET", path, query, request.headers.get, require_client=caller_required())
    answer = current_forwarding.open(sandbox_id, call)
    response = Response(answer, answer.status)
    del response.headers["Content-Type"]
    response.headers.extend((name, value) for name, value in answer.headers if name in _OF_AGENT)
    kind = mimetypes.guess_type(place)[0] or "text/plain" if answer.status in (200, 206, 304) else "application/json"
    response.headers["Content-Type"] = f"{kind}; charset=utf-8" if kind.startswith(_TEXTS) else kind
    response.headers["Content-Security-Policy"] = _framed_policy()
    response.headers["Cross-Origin-Resource-Policy"] = "cross-origin" if _allowed_origins() else "same-origin"
    # for old browsers; frame-ancestors of the policy takes precedence
    response.headers["X-Frame-Options"] = "SAMEORIGIN"
    return response


def _allowed_origins() -> list[str]:
    return sorted(current_server().posture.allowed_origins)


def _framed_policy() -> str:
    """Return the policy that lets pages of this server and of ALLOWED_ORIGINS frame the page."""
    return " ".join([_POLICY, *_allowed_origins()])


def _require_acceptable(rest: str) -> None:
    """Raise NotFound for a path that no agent server has, InvalidInput for a request for plain secrets."""
    if not PATH.fullmatch(rest):
        raise NotFound("No agent server has such a path")
    if "X-Expose-Secrets" in request.headers:
        fault = FieldFault("The secrets of a sandbox are not shown: send this request without it", "value_error")
        raise InvalidInput("header", {"X-Expose-Secrets": [fault]})


def _folder_of(conversation_id: ConversationId) -> ConversationFolder:
    return ConversationFolder.of(current_store.conversations.in_sandboxes.get(conversation_id))


def _named_sandbox() -> tuple[SandboxId, Callable[[], ConversationFolder]]:
    """Return the sandbox of a call without a conversation, and a function that reads its folder."""
    own: str | None = g.principal.user_of
    named = dict(reversed(pairs_of(request.query_string))).get("cid")  # the first value of a repeated name counts
    if own is not None or named is None:
        if own is not None:
            return SandboxId(own), lambda: ConversationFolder.in_sandbox(current_store, SandboxId(own))
        owner: str = g.principal.owner
        sandbox_id = current_forwarding.own_sandbox(owner, _paths, partial(_workspace, owner), current_client())
        return sandbox_id, lambda: ConversationFolder.in_sandbox(current_store, sandbox_id, owner)
    with refused("query", "cid"):
        conversation_id = ConversationId(canonical_id(named))
    return current_forwarding.sandbox_of(conversation_id), partial(_folder_of, conversation_id)


def _workspace(owner: str) -> SandboxId | None:
    """Return the running workspace sandbox of a key; None if the key may not start it.

    A POST starts a missing sandbox. A GET does not, because a new sandbox has nothing to read. Raises TooManySandboxes,
    TooManyStopped, and NotReachable if the sandbox does not start in time.
    """
    if not g.principal.may("write"):
        return None
    workspaces = current_store.sandboxes.workspaces
    if request.method != "POST":
        named = workspaces.known(owner)
    elif (named := workspaces.named(owner)) is not None:
        # the spec of the starts that adopt the sandbox
        spec, sandboxes = current_specs.of_own_agents, current_store.sandboxes
        after_making_room(current_store, partial(sandboxes.start, spec.id, named, gives_way=True, owner=owner))
    if named is not None:
        # Its folder is known once the sandbox runs.
        wake(current_store, named, current_store.sandboxes.limits.sandbox_start_seconds)
    return named


def _paths() -> list[str]:
    """Return the paths in the query and the body of the current request."""
    return _asked_paths() + (ConversationFolder.paths_of(request.get_data()) if core.is_json(request.mimetype) else [])


def _asked_paths() -> list[str]:
    """Return the paths in the query."""
    return [value for name, value in pairs_of(request.query_string) if name in QUERY_PATHS]


def _forward(sandbox_id: SandboxId, service: str, path: str, read_folder: Callable[[], ConversationFolder]) -> Response:
    if "/git/" in path:
        _require_within(cache(read_folder), path.partition("/git/")[2])
    # read once the sandbox runs, because its folder may have changed, for instance after a restore
    folder = cache(read_folder)
    is_json = core.is_json(request.mimetype)
    content: Callable[[], bytes | None] | Iterator[bytes] | None = None
    if is_json:
        is_command = request.method == "POST" and path.endswith(("/execute_bash_command", "/start_bash_command"))
        raw = request.get_data()
        content = lambda: folder().mapped_json(raw, is_command=is_command) or None  # noqa: E731
    elif request.content_length or "chunked" in request.headers.get("Transfer-Encoding", "").lower():
        content = _pieces()
    call = ForwardedCall(
        request.method,
        path,
        request.query_string,
        _whole_header if service in _TOLD else request.headers.get,
        content,
        None if is_json else request.content_length,
        lambda path: folder().mapped(path),
        caller_required(),
    )
    answer = current_forwarding.open(sandbox_id, call)
    answer.require_route(path)
    if request.method == "GET" and path.endswith("/vscode/url"):
        answer.require_web_url()
    if service in _TOLD:
        answer.mask(current_store.masks.in_sandbox(sandbox_id))
    if request.method == "HEAD":
        answer.close()
    return _response(answer)


def _whole_header(name: str) -> str | None:
    """Return a header of the current request. Range headers are dropped, because masking needs the whole content."""
    return None if name in ("Range", "If-Range") else request.headers.get(name)


def _require_within(folder: Callable[[], ConversationFolder], rest: str) -> None:
    """Raise Forbidden for a path outside the folder, unless the caller may read all files of the sandbox."""
    if g.principal.user_of is not None or g.principal.may("approve"):
        return
    if not _GIT.fullmatch(rest):
        raise Forbidden(
            "Without the scope approve a key reads git/changes, git/diff, git/commits, git/commits/SHA/changes and "
            "git/repositories/search alone; give a path as ?path="
        )
    if not all(map(folder().has, _asked_paths())):
        raise Forbidden("A path outside of the conversation's folder needs a key with the scope approve")


def _response(answer: ForwardedResponse) -> Response:
    response = Response(answer, answer.status)
    del response.headers["Content-Type"]
    response.headers.extend(answer.headers)
    return response


def _pieces() -> Iterator[bytes]:
    """Yield the body in chunks as it arrives. Raises BodyTooSlow, ParseException and ClientGone."""
    request.max_content_length = sys.maxsize  # this server does not store it
    stream = request.stream
    if body := body_of(request.environ):
        body.stream(caller_required())
    return iter(lambda: _read(stream), b"")


def _read(stream: Any) -> bytes:
    try:
        piece: bytes = stream.read(_PIECE)
    except ConnectionError as error:
        raise ClientGone(str(error)) from None
    return piece
