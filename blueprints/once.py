"""Idempotency-Key: a repeated POST has one effect, and the repeat gets the first response.

Every POST accepts the header. A one-time link ignores it, because a link decides only once. `Blueprint.replay` declares
how to answer a repeat whose first response was not kept. A request without the header has no cost. Source:
docs/wire.md.
"""

import re
from contextlib import suppress
from hashlib import sha256

from flask import Flask, Response, current_app, g, request
from werkzeug.exceptions import BadRequest

from blueprints import current_store
from blueprints.api import Replay, declared
from blueprints.exports import EXPORT_TYPES
from blueprints.openai import CONVERSATION
from blueprints.sandboxes import ARCHIVE_TYPES
from core.access import ANYONE, Principal
from core.pauses import take_turns
from store.access.idempotency import KeptResponse, ResponseNotKept
from store.errors import UNAVAILABLE
from store.link.attempts import enter

HEADER, REPLAYED = "Idempotency-Key", "Idempotency-Replayed"

#: Headers that are kept with a response.
_KEPT_HEADERS = ("Location", CONVERSATION)

#: Number of bytes to hash before other requests get a turn: 8 MiB would take 10 ms.
_PIECE = 1024 * 1024

_KEY = re.compile(r"[ -~]{1,255}")

#: Statuses of refusals before any effect. They release the key, so that the client may send a corrected request.
_DID_NOTHING = (400, 401, 403, 405, 408, 413, 414, 415, 422, 429)


def register_once(app: Flask) -> None:
    """Wrap every POST. Call it after `register_guard`."""
    app.before_request(_begin)
    app.after_request(_end)
    app.teardown_request(lambda _: enter(None))


def _begin() -> Response | None:
    key = request.headers.get(HEADER)
    if key is None or request.method != "POST" or request.url_rule is None:
        return None
    view = current_app.view_functions[request.endpoint or ""]
    # Only the view authenticates the token of a link, and the body must not be read before that.
    if declared(view, request.endpoint or "").scope == "link":
        return None
    if not _KEY.fullmatch(key):
        raise BadRequest(f"{HEADER} must have 1 to 255 printable ASCII characters")
    if request.mimetype in (*ARCHIVE_TYPES, *EXPORT_TYPES):
        raise BadRequest(f"{HEADER} does not cover archives and exports: send this request without it")
    if getattr(view, "is_forwarded", False):
        raise BadRequest(f"{HEADER} does not cover what a sandbox serves: send this request without it")
    found = current_store.access.idempotency.begin(_client(), key, _fingerprint())
    if isinstance(found, KeptResponse):
        response = Response(found.body, found.status, content_type=found.content_type or None)
        response.headers.update({**found.headers, REPLAYED: "true"})
        if place := found.headers.get("Location"):
            response.headers["Location"] = f"{request.root_path}{place}"
        return response
    if found.is_finished and not _replay().remade:
        raise ResponseNotKept
    g.attempt = found
    enter(found)
    return None


def _client() -> str:
    """Return the owner of an idempotency key: two clients may choose the same key."""
    principal: Principal = g.get("principal", ANYONE)
    return f"sandbox {principal.sandbox_id}" if principal.sandbox_id else f"key {principal.key_id}"


def _fingerprint() -> str:
    """Return a digest of the request. A different request with the same key is refused."""
    named = request.headers.get(CONVERSATION, "").encode()  # this header selects the conversation of a call
    parts = (request.path.encode(), request.query_string, request.mimetype.encode(), *([named] if named else []), b"")
    digest, body = sha256(b"\0".join(parts)), request.get_data(cache=True)
    for at in range(0, len(body), _PIECE):
        take_turns()
        digest.update(body[at : at + _PIECE])
    return digest.hexdigest()


def _replay() -> Replay:
    view = current_app.view_functions[request.endpoint or ""]
    return getattr(view, "replay", Replay())


def _end(response: Response) -> Response:
    attempt = g.pop("attempt", None)
    if attempt is None:
        return response
    if attempt.is_finished:
        response.headers[REPLAYED] = "true"
        return response
    records, whose = current_store.access.idempotency, (_client(), request.headers[HEADER])
    # A failed `finish` is sent again. Otherwise the lease expires, and the next attempt finds the effects of this
    # attempt.
    with suppress(*UNAVAILABLE):
        if response.status_code in _DID_NOTHING:
            records.forget(*whose, attempt)
        elif response.status_code >= 500:
            records.release(*whose, attempt)
        else:
            records.finish(*whose, attempt, _replayable(response))
    return response


def _replayable(response: Response) -> KeptResponse | None:
    if response.is_streamed or _replay().has_key:
        return None
    headers = {name: value for name in _KEPT_HEADERS if (value := response.headers.get(name)) is not None}
    if place := headers.get("Location"):  # the repeat may come through another proxy, or through none
        headers["Location"] = place.removeprefix(request.root_path)
    content_type = response.headers.get("Content-Type", "")
    return KeptResponse(response.status_code, content_type, response.get_data(as_text=True), headers)
