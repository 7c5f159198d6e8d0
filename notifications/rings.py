"""The notifications that a device shows, for pending and ended requests.

A notification is JSON that `console/worker.js` shows: `title`, `text`, `tag`, `place` (of the console), `quiet`, and
optionally `token` (of a one-time link) and `decides`. A later notification with the same `tag` replaces an earlier one.
`decides` offers Approve and Reject, but only if the text is the whole action and the risk is not HIGH, so that nobody
approves more than the notification shows. `until` is the expiry of the notification, in µs.
"""

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from core.approvals import SHELL_ARGUMENTS, canonical, says_nothing
from core.incomplete import is_complete
from core.masking import redacted, without_secrets_of
from core.wire import Micros, micros, utc_time
from notifications.messages import Subject, place_of, shortened

#: Types of entries that notify, and their subjects.
_WAITS = {"action.pending": "action", "destination.pending": "destination", "budget.pending": "budget"}

#: Types of entries that replace a notification quietly.
_ENDS = frozenset(f"{what}.{how}" for what in _WAITS.values() for how in ("decided", "expired"))

#: Maximum number of characters of a title and of a text: a phone shows fewer.
_MOST_TITLE, _MOST_TEXT = 80, 240

#: Maximum size in bytes. A longer notification loses its token. A push service accepts 4,096 bytes of ciphertext.
_MOST_BYTES = 3500

#: Lifetimes in µs: of a notification about a pending request, and about an ended one.
_LASTS, _LASTS_QUIETLY = 86_400_000_000, 3_600_000_000

_DECIDED = {"approve": "Approved", "reject": "Rejected", "edit": "Approved with other arguments"}


def rings(kind: str) -> bool:
    """Return whether an entry of an outbox concerns devices."""
    return kind in _WAITS or kind in _ENDS


def waits(kind: str) -> bool:
    """Return whether an entry is about a pending request."""
    return kind in _WAITS


def ring_of(entry: Mapping[str, Any], subject: Subject, *, shows: str, token: str | None) -> str:
    """Return the notification for an entry. shows: `everything`, or `nothing` except that a request is pending."""
    at = micros(entry["time"])
    is_quiet, is_told = not waits(entry["type"]), shows == "everything"
    text, is_whole = _text(entry, subject)
    ends = micros(subject.expires_at) if subject.expires_at else None
    ring: dict[str, Any] = {
        "title": _title(entry, subject) if is_told else "Decided" if is_quiet else "Something waits for your decision",
        "text": text if is_told else "",
        "tag": _tag(entry, subject),
        "place": _place(entry) if is_told else "#/inbox",
        "quiet": is_quiet,
        "until": min(at + (_LASTS_QUIETLY if is_quiet else _LASTS), ends or at + _LASTS),
    }
    if token and is_told and not is_quiet:
        ring |= {"token": token, "decides": is_whole and entry.get("risk") != "HIGH"}
    made = json.dumps(ring)
    if len(made) > _MOST_BYTES:
        made = json.dumps({name: value for name, value in ring.items() if name not in ("token", "decides")})
    return made


def test_ring(at: Micros) -> str:
    """Return a test notification."""
    return json.dumps(
        {
            "title": "This device rings",
            "text": "A test of the agent server's notifications has arrived.",
            "tag": f"test {utc_time(at)}",
            "place": "#/inbox",
            "quiet": False,
            "until": at + 300_000_000,
        }
    )


def _title(entry: Mapping[str, Any], subject: Subject) -> str:
    if entry["type"].endswith(".expired"):
        return "Expired, and rejected"
    if entry["type"] in _ENDS:
        return _DECIDED.get(str(entry.get("decision")), "Decided")
    hidden = without_secrets_of({"secrets": subject.secrets}, {"title": subject.title})
    return shortened(hidden["title"], _MOST_TITLE) or {
        "destination": "A sandbox asks to reach a destination",
        "budget": "A budget of models is used up",
    }.get(_WAITS[entry["type"]], "An agent asks")


def _text(entry: Mapping[str, Any], subject: Subject) -> tuple[str, bool]:
    """Return a pending request as one line, and whether that is all of it."""
    if at := subject.destination:
        line = f"Connect to {at}" + (f" ({subject.program})" if subject.program else "")
        return (text := shortened(line, _MOST_TEXT)), text == line
    if subject.budget:
        return shortened(f"{subject.budget}: {subject.more} more", _MOST_TEXT), bool(subject.more)
    if subject.arguments is None:
        return shortened(str(entry.get("tool") or ""), _MOST_TEXT), False
    said = without_secrets_of({"secrets": subject.secrets}, {"arguments": redacted(subject.arguments)})["arguments"]
    line = _line(said)
    text = shortened(line, _MOST_TEXT)
    is_whole = text == line and said == subject.arguments and is_complete(subject.arguments)
    before = [word for word in (str(entry.get("risk") or ""), str(entry.get("tool") or "")) if word]
    return " · ".join([*(shortened(word, 40) for word in before), text]), is_whole


def _line(arguments: Any) -> str:
    """Return all arguments as a line: a single command literally, anything else as JSON."""
    said = {name: value for name, value in arguments.items() if not says_nothing(value)} if arguments else {}
    if len(said) == 1 and (name := next(iter(said))) in SHELL_ARGUMENTS and isinstance(said[name], str):
        return str(said[name])
    return canonical(arguments).decode()


def _tag(entry: Mapping[str, Any], subject: Subject) -> str:
    """Return the tag of a subject, with 32 characters as the topic of a push service (RFC 8030, 5.4)."""
    about = entry.get("action_id") or f"{entry.get('sandbox_id')} {subject.destination or subject.budget}"
    digest = sha256(f"{entry.get('conversation_id')} {about}".encode("utf-8", "surrogatepass")).digest()
    return urlsafe_b64encode(digest[:24]).decode()


def _place(entry: Mapping[str, Any]) -> str:
    """The place of the console that shows what waits: an action is reached in its conversation."""
    return f"#/{place_of(entry)}"
