"""Pending actions: the policy that holds actions back, the actions that wait, and the one decision that wins.

An executable action is open until it is observed; the open actions are pending while their conversation is
`waiting_for_confirmation`. An append opens and closes actions (`effects.py`); one script takes the decision.
"""

import json
from typing import Any

from store.bounds import PAGE_BYTES, Bounds
from store.errors import ConversationNotFound
from store.keys import ConversationKeys
from store.listing import Listing
from store.scripts import Scripts
from store.stamps import Stamp
from wire import ConversationId, parse_json

#: from harmless to dangerous; an action of any other risk counts as UNKNOWN
RISKS = ("LOW", "MEDIUM", "HIGH")

#: reason of the rejection of pending actions by a user's message. Source: docs/wire.md, 2
SUPERSEDED = "Superseded by a new user message."


def held_risks(policy: dict[str, Any]) -> str:
    """The risks that a policy holds back, joined by commas, as the scripts read them.

    Source: the agent-server wire. Raises ValueError for any other value.
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

    def __init__(self, scripts: Scripts, listing: Listing, bounds: Bounds) -> None:
        self._scripts = scripts
        self._listing = listing
        self._bounds = bounds

    def decide(self, conversation_id: ConversationId, *, accept: bool, reason: str) -> bool:
        """Accept or reject the pending actions of a detached conversation. True only for the decision that took effect.

        Raises ConversationNotFound, ReasonTooLong. Source: docs/wire.md, 2.
        """
        self._bounds.check_reason(reason)
        verb = "accept" if accept else "reject"
        args = [*Stamp.now().args, verb, json.dumps(reason), "", "", ""]
        [outcome] = self._listing.write(self._scripts.decide_pending, conversation_id, args)
        return bool(outcome == "won")

    def pending(self, conversation_id: ConversationId) -> list[dict[str, Any]]:
        """The pending actions, in log order. Raises ConversationNotFound."""
        found: list[dict[str, Any]] = []
        last = 0
        while True:
            reply = self._scripts.list_pending([ConversationKeys(conversation_id).root], [last, PAGE_BYTES])
            if reply is None:
                raise ConversationNotFound
            for seq, since, raw in zip(reply[::3], reply[1::3], reply[2::3], strict=True):
                last = int(seq)
                found.append(_described(since.decode(), parse_json(raw)))
            if not reply:
                return found

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
