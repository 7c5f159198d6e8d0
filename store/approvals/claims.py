"""What the events of a sandbox claim of people, and what is stored of a claim that nothing here bears out.

Code in a sandbox can make its agent server, or its webhooks, say anything. So `append_events.lua` takes an event that
speaks for a person only where this server expects it: as the echo of a message, a rejection or a policy that it has
sent to the agent. Else the event is stored as `disowned` makes it. Nothing is refused: an agent server sends a refused
batch again without end, and the honest events after it would be lost. Source: docs/promises.md.

| claim            | of                                             | expected from                              |
|------------------|------------------------------------------------|--------------------------------------------|
| `message SHA256` | a user's message with that content             | a message sent to the agent, its start     |
| `reject ID`      | the rejection of an action by a user           | the decision here, a settlement            |
| `policy RISKS`   | a policy that holds back those risks           | a change here; the present policy          |
| `person`         | any other event of source `user`               | never                                      |
"""

import json
import logging
from hashlib import sha256
from typing import Any

from store.approvals.effects import encodable
from store.policies import held_risks
from wire import Event

_log = logging.getLogger("audit")

#: code of the event that takes the place of a policy's
UNAPPROVED_POLICY = "unapproved_policy"

#: kinds of source `user` that say nothing but that the agent stands still. Source: the agent-server wire
_SILENT_KINDS = ("PauseEvent", "InterruptEvent")


def claim(event: Event) -> str | None:
    """What an event claims of a person; None: nothing."""
    if event.source == "user" and event.kind not in _SILENT_KINDS:
        said = event.fields.get("llm_message")
        if event.kind != "MessageEvent" or not isinstance(said, dict):
            return "person"
        return message_claim(said.get("content"))
    if _rejects(event):
        action_id = event.fields.get("action_id")
        return reject_claim(action_id) if isinstance(action_id, str) and encodable(action_id) else "person"
    if _sets_policy(event):
        return f"policy {_risks(event.fields.get('value'))}"
    return None


def message_claim(content: Any) -> str:
    """The claim of the echo of a message; what an agent adds to its parts by itself counts for nothing."""
    parts = [_said(part) for part in content] if isinstance(content, list) else content
    return "message " + sha256(json.dumps(parts).encode()).hexdigest()


def reject_claim(action_id: str) -> str:
    return f"reject {action_id}"


def policy_claim(policy: dict[str, Any]) -> str:
    return f"policy {_risks(policy)}"


def disowned(event: Event) -> Event:
    """What is stored, under the same id, of an event whose claim nothing bears out; it claims nothing."""
    fields = dict(event.fields)
    if event.source == "user":
        fields["source"] = "environment"
    if _rejects(event):
        fields["rejection_source"] = "hook"
    if _sets_policy(event):
        kept = {name: fields[name] for name in ("id", "timestamp", "source")}
        detail = f"The agent has a confirmation policy that was not set here: {json.dumps(fields.get('value'))[:1024]}"
        fields = {**kept, "code": UNAPPROVED_POLICY, "detail": detail, "kind": "ConversationErrorEvent"}
    kind = "ConversationErrorEvent" if _sets_policy(event) else event.kind
    return event._replace(kind=kind, source=fields["source"], fields=fields, raw=json.dumps(fields).encode())


def disowned_code(event: Event) -> str:
    """The name that a line of the log gives an event whose claim nothing bears out."""
    if _sets_policy(event):
        return UNAPPROVED_POLICY
    return "unapproved_rejection" if _rejects(event) else "unapproved_message"


def _rejects(event: Event) -> bool:
    """Whether an event rejects an action for a user, which it does unless it names another source."""
    return event.kind == "UserRejectObservation" and event.fields.get("rejection_source") != "hook"


def _sets_policy(event: Event) -> bool:
    return event.kind == "ConversationStateUpdateEvent" and event.fields.get("key") == "confirmation_policy"


def _risks(policy: Any) -> str:
    try:
        return held_risks(policy)
    except ValueError:
        return "unknown"


def _said(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return [part.get(name) for name in ("type", "text", "image_urls")]


def log_unapproved(conversation_id: str, sandbox_id: str | None, code: str, ids: list[str]) -> None:
    """One line of JSON about what an agent did, or claimed, without a person of this server. ids: of events."""
    line = {"event": code, "conversation_id": conversation_id, "sandbox_id": sandbox_id, "ids": ids}
    _log.warning(json.dumps(line))
