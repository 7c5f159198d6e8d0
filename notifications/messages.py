"""The texts of notifications, and the quiet rules of the settings, which select events.

A payload is `{"type", "timestamp", "data"}`, after Standard Webhooks; docs/approvals.md lists the members of `data`. It
contains no secret of its conversation that this server knows, and only the beginning of an action's arguments.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from core.approvals import canonical
from core.cuts import beginning
from core.effects import RISKS
from core.masking import redacted, without_secrets_of
from core.scopes import NOWHERE, OUTSIDE, Origin
from core.visible import visible
from core.wire import as_unicode
from settings.notify import NotifySettings, names

#: Maximum number of characters of a text in a payload.
MOST_TEXT = 300

#: Members of an entry that its payload contains.
_REPEATED = (
    *("conversation_id", "action_id", "sandbox_id", "tool", "risk", "security_risk"),
    *("decision", "actor"),
)

_TITLES = {
    "action.pending": "An action waits for a decision",
    "action.decided": "An action was decided",
    "action.expired": "An action expired and was rejected",
    "destination.pending": "A sandbox asks to reach a destination",
    "destination.decided": "A destination was decided",
    "destination.expired": "A destination expired and was refused",
    "budget.pending": "A budget of models is used up, and more is asked for",
    "budget.decided": "More of a budget of models was decided",
    "budget.expired": "More of a budget of models was asked for, expired and was refused",
    "conversation.finished": "A conversation has finished",
    "conversation.error": "A conversation has failed",
    "sandbox.error": "A sandbox has failed",
    "notification.test": "A test of notifications",
}


class Subject(NamedTuple):
    """Facts about the subject of an entry beyond the entry itself. Missing facts are empty."""

    title: str = ""  #: of the conversation
    summary: str = ""  #: of the action, by the agent
    arguments: Any = None  #: of the action, as people see them
    seen: str = ""  #: the server's rating of the action
    since: str = ""
    expires_at: str = ""
    digest: str = ""
    detail: str = ""
    destination: str = ""  #: NAME:PORT that a sandbox asks for
    budget: str = ""  #: setting of the requested budget
    more: str = ""  #: the amount that an approval adds
    program: str = ""  #: the asking program's own name
    origin: Origin = NOWHERE  #: of the conversation
    secrets: Mapping[str, Any] = {}  #: of the conversation, masked in all texts
    trace: str = ""  #: W3C traceparent of the batch that proposed the action; not in the payload


def body_of(entry: Mapping[str, Any], subject: Subject, *, public_url: str, approval_link: str | None) -> str:
    """Return the payload for an entry of an outbox, as JSON. approval_link: a one-time link."""
    outside = ("folder", *sorted(OUTSIDE)) if subject.origin.is_outside else ()
    said = {
        **{name: getattr(subject.origin, name) for name in outside},
        "title": subject.title,
        "summary": subject.summary,
        "destination": subject.destination,
        "budget": subject.budget,
        "more": subject.more,
        "program": subject.program,
        "arguments": redacted(subject.arguments),
        "detail": subject.detail or str(entry.get("detail") or ""),
    }
    said = without_secrets_of({"secrets": subject.secrets}, said)
    texts = {**said, "arguments": canonical(said["arguments"]).decode() if said["arguments"] else ""}
    facts = {"since": subject.since, "expires_at": subject.expires_at, "digest": subject.digest}
    data = {name: entry[name] for name in _REPEATED if entry.get(name)}
    data |= {name: shortened(text) for name, text in texts.items() if text}
    data |= {name: text for name, text in facts.items() if text}
    if public_url:
        data["link"] = f"{public_url.rstrip('/')}/console/#/{place_of(entry)}"
    if approval_link:
        data["approval_link"] = approval_link
    body = json.dumps({"type": entry["type"], "timestamp": entry["time"], "data": data}, ensure_ascii=False)
    return str(as_unicode(body))


def body_of_test(time: str) -> str:
    """Return a test payload."""
    data = {"detail": "Somebody tests whether notifications of the agent server arrive here."}
    return json.dumps({"type": "notification.test", "timestamp": time, "data": data})


def text_of(body: str) -> tuple[str, str]:
    """Return the title and the text of a payload, for services with human readers."""
    payload = json.loads(body)
    data = payload["data"]
    tool, risk = data.get("tool"), data.get("risk")
    about = f": {tool}" + (f" ({risk})" if risk else "") if tool else ""
    words = {
        "From": Origin.of(data).asker,
        "Conversation": data.get("title") or data.get("conversation_id"),
        "Sandbox": data.get("sandbox_id"),
        "Destination": data.get("destination"),
        "Budget": data.get("budget"),
        "More": data.get("more"),
        "Program": data.get("program"),
        "Arguments": data.get("arguments"),
        "Summary": data.get("summary"),
        "Decision": data.get("decision"),
        "By": _name_of(data.get("actor")),
        "Detail": data.get("detail"),
        "Expires": data.get("expires_at"),
        "Decide": data.get("approval_link"),
        "See": data.get("link"),
    }
    lines = [f"{name}: {value}" for name, value in words.items() if value]
    return _TITLES.get(payload["type"], payload["type"]) + about, "\n".join(lines)


def shortened(text: str, most: int = MOST_TEXT) -> str:
    """Convert a text to one line of at most `most` characters, with invisible characters escaped."""
    return beginning(visible(" ".join(text.split())[: most + 1]), most)  # escapes only make it longer


def _name_of(actor: Any) -> str:
    return str(actor.get("name") or actor.get("kind") or "") if isinstance(actor, dict) else str(actor or "")


def place_of(entry: Mapping[str, Any]) -> str:
    """Return the console's path of the subject of an entry. For an action: its event in the conversation."""
    if entry["type"].startswith(("destination.", "budget.")):
        return "inbox"
    room = "sandboxes" if entry.get("sandbox_id") and not entry.get("conversation_id") else "conversations"
    identity = quote(entry.get("conversation_id") or entry.get("sandbox_id") or "", safe="")
    event = entry.get("action_id") if entry["type"].startswith("action.") else None
    return f"{room}/{identity}" + (f"?event={quote(event, safe='')}" if event else "")


@dataclass(frozen=True, slots=True)
class QuietRules:
    """Filters of the notified events: of actions by risk and tool, of conversations also by tag."""

    events: frozenset[str]  #: types; empty: all
    risk: str  #: the minimum
    tools: frozenset[str]  #: empty: all
    tags: tuple[tuple[str, str | None], ...]  #: name, and value or None for any; empty: all

    @classmethod
    def of(cls, settings: NotifySettings) -> "QuietRules":
        pairs = [tag.partition("=") for tag in names(settings.notify_tags)]
        return cls(
            frozenset(names(settings.notify_events)),
            settings.notify_risk,
            frozenset(names(settings.notify_tools)),
            tuple((name, value if sign else None) for name, sign, value in pairs),
        )

    def pass_entry(self, entry: Mapping[str, Any]) -> bool:
        """Return whether an entry of an outbox passes the filters, except risk and tags."""
        if self.events and entry["type"] not in self.events:
            return False
        return not entry["type"].startswith("action.") or not self.tools or entry.get("tool") in self.tools

    def pass_risk(self, entry: Mapping[str, Any]) -> bool:
        """Return whether the risk of an action passes.

        The risk is the agent's rating, or the greater of the agent's and the server's rating. An unknown rating of the
        agent counts as HIGH.
        """
        if not entry["type"].startswith("action."):
            return True
        risks = {entry.get("risk"), entry.get("security_risk", entry.get("risk"))}
        return not risks <= set(RISKS[: RISKS.index(self.risk)])

    def pass_tags(self, tags: Mapping[str, str]) -> bool:
        """Return whether the tags of a conversation pass. A deleted conversation has none."""
        return not self.tags or any(name in tags and value in (None, tags[name]) for name, value in self.tags)
