"""The page of a one-time link, with one action and a form to decide it. A GET never decides. Source: docs/approvals.md.

A client that accepts JSON, such as the console's worker for a button of a notification, gets `title` and `detail`. The
token in the path is the key, and only permits the decision of this action. The page runs no script and loads nothing
from other origins. Text of an agent is shown literally, with invisible characters escaped.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from flask import Blueprint, Response, current_app, g, jsonify, render_template, request
from markupsafe import Markup, escape
from werkzeug.exceptions import HTTPException

from agents.approval_links import (
    ActionDecided,
    ConversationGone,
    DeviceEnded,
    LinkExpired,
    LinkRefused,
    LinkUsed,
    ShownItem,
    decide_by_link,
    show_link,
)
from blueprints import current_server, current_store
from blueprints.api import needs
from blueprints.rates import count_failure
from core.access import Principal
from core.approvals import LINK_PATH, Link, LinkForged
from core.pauses import take_turns
from core.visible import is_seen, visible
from core.wire import Micros, utc_time
from store.errors import UNAVAILABLE, ReasonTooLong
from store.link.connection import NotKept

_PAGES = Path(__file__).parent / "pages"

approval_links = Blueprint("approval_links", __name__, template_folder=str(_PAGES))

_STYLE = Markup((_PAGES / "approval.css").read_text())
_STYLE_HASH = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()

_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

#: Maximum size of the form's body in bytes, and the default reason of a rejection.
_MOST_BODY, _NO_REASON = 256 * 1024, "User rejected the action."

#: Maximum number of characters in the field for the reason. MAX_REASON_BYTES has this maximum too.
_MOST_REASON = 32_768

#: Number of characters that are converted to HTML before other requests get a turn.
_PIECE = 4096

_VERBS: dict[str, Literal["approve", "reject"]] = {"approve": "approve", "reject": "reject"}

_STATUSES: dict[type[LinkRefused], tuple[int, str]] = {
    LinkExpired: (410, "Too late"),
    LinkUsed: (409, "This link was used"),
    ActionDecided: (409, "Nothing to decide"),
    ConversationGone: (404, "Nothing to decide"),
    DeviceEnded: (403, "This device does not decide"),
}


@approval_links.get(f"{LINK_PATH}/<token>")
@needs("link")
def show_action(token: str) -> Response:
    """Show the action, and a form to decide it."""
    link = _link(token)
    return _page(200, _question(link), shown=show_link(current_store, link), link=link)


def _question(link: Link) -> str:
    if link.destination is None:
        return "May the agent do this?"
    return "May the sandbox reach this?" if link.destination[2] else "May this budget have the same amount again?"


@approval_links.post(f"{LINK_PATH}/<token>")
@needs("link")
def decide_action(token: str) -> Response:
    """Apply the decision of the form."""
    link = _link(token)
    request.max_content_length = _MOST_BODY
    verb = _VERBS.get(request.form.get("decision", ""))
    reason = request.form.get("reason", "").replace("\r\n", "\n").strip()
    if verb is None:
        sentence = "The form lacks a decision: approve or reject. Nothing was decided."
        return _page(422, _question(link), sentence, shown=show_link(current_store, link), link=link)
    if verb == "approve" and not request.form.get("sure"):
        with suppress(LinkRefused):  # the decision below reports the reason
            if (shown := show_link(current_store, link)).risk == "HIGH":
                sentence = "The risk is high: check the box to approve. Nothing was decided."
                return _page(422, _question(link), sentence, shown=shown, link=link, reason=reason)
    words = (reason or ("" if link.destination else _NO_REASON)) if verb == "reject" else ""
    try:
        decide_by_link(current_server().commands, link, verb, words, request.remote_addr or "")
    except ReasonTooLong as error:
        sentence = f"{error}. Nothing was decided."
        shown = show_link(current_store, link)
        return _page(422, _question(link), sentence, shown=shown, link=link, reason=reason)
    if link.destination:
        is_allowed = verb == "approve"
        told = f"The sandbox {'may connect once, within ten minutes' if is_allowed else 'may not connect'}."
        if not link.destination[2]:
            told = f"The budget {'has the same amount once more' if is_allowed else 'stays closed'}."
        return _page(200, "Allowed" if is_allowed else "Refused", f"{told} You can close this page.")
    if verb == "approve":
        return _page(200, "Approved", "The action is approved. You can close this page.")
    return _page(200, "Rejected", f"The action is rejected, and the agent is told: {words} You can close this page.")


def _link(token: str) -> Link:
    """Return the link of a token. Raises LinkForged, and TooManyRequests for an address with too many wrong tokens."""
    links = current_server().links
    try:
        link = links.read(token)
    except LinkForged:
        count_failure()
        raise
    g.principal = Principal(f"link of {link.target}")
    if link.device:
        _require_device(link)
    return link


def _require_device(link: Link) -> None:
    """Raise DeviceEnded unless the device of a link is registered and its owner may decide here."""
    standing = current_server().devices.standing
    device_id, _, owner = link.device.partition(" ")
    device = standing.find(device_id)
    if device is None or device.owner != owner or not standing.may_decide(device, link.conversation_id or None):
        raise DeviceEnded(
            "The device that was notified has ended, or its owner may not decide here any more. Nothing was decided: "
            "decide in the inbox."
        )


@approval_links.errorhandler(LinkForged)
def _forged(error: LinkForged) -> Response:
    return _page(403, "No such link", str(error))


@approval_links.errorhandler(LinkRefused)
def _refused(error: LinkRefused) -> Response:
    return _page(*_STATUSES[type(error)], str(error))


@approval_links.errorhandler(HTTPException)
def _failed(error: HTTPException) -> Response:
    page = _page(error.code or 500, error.name, error.description or error.name)
    if isinstance(seconds := getattr(error, "retry_after", None), int):
        page.headers["Retry-After"] = str(seconds)
    return page


def _unavailable(error: Exception) -> Response:
    current_app.logger.warning("store unavailable: %s: %s", type(error).__name__, error)
    why = "Redis cannot say that it is kept" if isinstance(error, NotKept) else "The server's store does not answer"
    sentence = f"{why}. If you have sent a decision, it may have been taken: try again."
    page = _page(503, "Try again shortly", sentence)
    page.headers["Retry-After"] = "1"
    return page


for _kind in UNAVAILABLE:
    approval_links.register_error_handler(_kind, _unavailable)


def _page(
    status: int,
    heading: str,
    sentence: str = "",
    *,
    shown: ShownItem | None = None,
    link: Link | None = None,
    reason: str = "",
) -> Response:
    if request.accept_mimetypes.best == "application/json":
        response = jsonify(title=heading, detail=sentence)
        response.status_code = status
        return response
    about = {"shown": shown, "digest": link.digest, "ends": link.ends} if shown and link else {}
    text = render_template(
        "approval.html",
        heading=heading,
        sentence=sentence,
        style=_STYLE,
        reason=reason,
        most_reason=_MOST_REASON,
        **about,
    )
    response = Response(text, status, mimetype="text/html")
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["X-Robots-Tag"] = "noindex, nofollow"
    # With no-referrer a browser would send the form with `Origin: null`, which forms of other sites can send too.
    response.headers["Referrer-Policy"] = "same-origin" if shown else "no-referrer"
    return response


@approval_links.app_template_filter("marked")
def _marked(text: str) -> Markup:
    """Convert a text to HTML, with marked escapes for invisible and ambiguous characters."""
    return Markup("").join(
        escape(part) if seen else Markup("<mark>{}</mark>").format(visible(part)) for part, seen in _parts(text)
    )


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yield runs of a text, and whether their characters are visible as themselves. A text may have a mebibyte."""
    is_shown = cache(is_seen)
    for at in range(0, len(text), _PIECE):
        for seen, group in groupby(text[at : at + _PIECE], is_shown):
            take_turns()
            yield "".join(group), seen


@approval_links.app_template_filter("exact")
def _exact(value: Any) -> Markup:
    """Convert an argument to HTML: a text literally, anything else as JSON."""
    return _marked(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1))


@approval_links.app_template_filter("instant")
def _instant(at: Micros) -> str:
    return utc_time(at).partition(".")[0].replace("T", " ") + " UTC"
