"""Pending actions: which the policy holds back, which wait, and the one answer that counts.

An executable action is open until it is observed; the open actions are pending while their conversation is
`waiting_for_confirmation`. Opening and closing happen on append (`effects.py`), the answer in one script.
"""

import json
from typing import Any

from store.errors import ConversationNotFound
from store.keys import ConversationKeys
from store.listing import Listing
from store.scripts import Scripts
from store.stamps import Stamp
from wire import ConversationId, parse_json

#: from harmless to dangerous; an action of any other risk counts as UNKNOWN
RISKS = ("LOW", "MEDIUM", "HIGH")

#: what a message tells the agent about the actions that it overtakes. Source: docs/wire.md, 2
SUPERSEDED = "Superseded by a new user message."


def held_risks(policy: dict[str, Any]) -> str:
    """The risks that a policy holds back, joined by commas: all the scripts need to know of it.

    Source: the agent-server wire. Raises ValueError for a policy that is none.
    """
    match policy:
        case {"kind": "NeverConfirm"}:
            return ""
        case {"kind": "AlwaysConfirm"}:
            return ",".join((*RISKS, "UNKNOWN"))
        case {"kind": "ConfirmRisky"}:
            threshold, unknown = policy.get("threshold", "HIGH"), policy.get("confirm_unknown", True)
            if threshold in RISKS and isinstance(unknown, bool):
                held = RISKS[RISKS.index(threshold) :]
                return ",".join((*held, "UNKNOWN") if unknown else held)
    raise ValueError(f"not a confirmation policy: {policy!r}")


class Confirmations:
    """The policy and the pending actions of conversations."""

    def __init__(self, scripts: Scripts, listing: Listing) -> None:
        self._scripts = scripts
        self._listing = listing

    def answer(self, conversation_id: ConversationId, *, accept: bool, reason: str, stamp: Stamp | None = None) -> bool:
        """Accept or reject everything that waits. True only for the answer that took effect.

        Raises ConversationNotFound. Source: docs/wire.md, 2.
        """
        stamp = stamp or Stamp.now()
        verb = "accept" if accept else "reject"
        args = [*stamp.args, verb, json.dumps(reason)]
        [outcome] = self._listing.write(self._scripts.answer_pending, conversation_id, args)
        return bool(outcome == "won")

    def pending(self, conversation_id: ConversationId) -> list[dict[str, Any]]:
        """The actions that wait for an answer, in log order. Raises ConversationNotFound."""
        reply = self._scripts.list_pending([ConversationKeys(conversation_id).root], [])
        if reply is None:
            raise ConversationNotFound
        return [_described(since.decode(), parse_json(raw)) for since, raw in zip(reply[::2], reply[1::2], strict=True)]

    def set_policy(self, conversation_id: ConversationId, policy: dict[str, Any]) -> None:
        """Store a policy; a change is an event of the log. Raises ConversationNotFound, ValueError."""
        stamp = Stamp.now()
        args = [*stamp.args, held_risks(policy), "confirmation_policy", json.dumps(policy), "1"]
        self._listing.write(self._scripts.set_fields, conversation_id, args)


def _described(since: str, action: dict[str, Any]) -> dict[str, Any]:
    arguments = action["action"]
    if isinstance(arguments, dict):
        arguments = {name: value for name, value in arguments.items() if name != "kind"}
    return {
        "id": action["id"],
        "tool_name": action.get("tool_name"),
        "tool_call_id": action.get("tool_call_id"),
        "summary": action.get("summary"),
        "security_risk": action.get("security_risk", "UNKNOWN"),
        "arguments": arguments,
        "since": since,
    }
