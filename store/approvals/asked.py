"""Actions that agents in terminals await: open requests, decisions, and limits per key.

The record of such an action says who awaits it, and for how long: `scripts/_asked.lua`. Source: docs/approvals.md.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.refused import RefusalKind
from core.scopes import Origin
from core.wire import ConversationId, Micros, now, utc_time
from store.approvals.audit import decider_of
from store.errors import StoreError
from store.keys import AskingKeys, ConversationKeys, audit_key
from store.link.commands import Redis
from store.scripts import Scripts

#: Maximum number of open requests of one key and of one session, and of sessions that a key begins in a day.
MOST_OPEN, MOST_OPEN_HERE, MOST_SESSIONS = 256, 64, 1000

#: Seconds for which a question that only its terminal can answer stays open, as in `_asked.lua`.
_TERMINAL_SECONDS = 86_400

#: Maximum number of audit entries in which an earlier decision about a call is searched.
_LOOKED_AT = 200

State = Literal["pending", "approved", "rejected", "withdrawn", "expired"]
_STATES: Mapping[str, State] = {
    "approve": "approved",
    "edit": "approved",
    "unapproved": "approved",
    "reject": "rejected",
}
_BOUNDS = {
    "full": f"This key has {MOST_OPEN} permission requests open, the most at once: answer or withdraw some first",
    "session_full": f"This session has {MOST_OPEN_HERE} permission requests open, the most at once: answer some first",
    "too_many_sessions": f"This key has begun {MOST_SESSIONS} sessions within 24 hours, the most: use another key",
}


class RequestNotFound(StoreError):
    """The key has no permission request with this id."""

    kind = RefusalKind.MISSING
    words = "Permission request not found: this key has none with this id, or its conversation was deleted. Ask again"


class TooMuchAsked(StoreError):
    """The key or the session has too many open requests, or the key has too many sessions."""

    kind = RefusalKind.TAKEN


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """The state of a permission request."""

    conversation_id: ConversationId
    action_id: str
    state: State
    is_due: bool  #: a deadline or the lease has passed, without a consequence yet
    record: dict[str, Any] | None  #: the open action, as `_actions.lua` has it
    entry: dict[str, Any] | None  #: the decision's entry in the audit

    @property
    def id(self) -> str:
        """Return the id for its routes."""
        return f"{self.conversation_id}.{self.action_id}"

    @property
    def is_gate(self) -> bool:
        """Whether it is open and no terminal asks."""
        return ((self.record or {}).get("ask") or {}).get("kind") == "gate"

    @property
    def shown(self) -> dict[str, Any]:
        """Return what its asker gets."""
        entry, record = self.entry, self.record or {}
        members: dict[str, Any] = {
            "id": self.id,
            "conversation_id": self.conversation_id,
            "action_id": self.action_id,
            "digest": record.get("digest") or (_digest_of(entry, self.action_id) if entry else ""),
            "state": self.state,
        }
        if entry is None:
            return members
        members |= {"reason": entry["reason"], "by": decider_of(entry)}
        if entry["decision"] in ("approve", "edit", "reject"):
            members["decision"] = entry["decision"]
        elif self.state == "approved":
            members["decision"] = "approve"
        if entry["decision"] == "edit" and "arguments" in record:
            members["arguments"] = json.loads(record["arguments"])
        return members


class Asked:
    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def read(
        self, conversation_id: ConversationId, action_id: str, owner: str, *, renews: bool = False
    ) -> AskedRequest:
        """Return a request of a key. renews: also renew its lease, if it waits. One round trip.

        Raises RequestNotFound.
        """
        root = ConversationKeys(conversation_id).root
        reply = self._scripts.read_request(root, id=action_id, renews=renews)
        if reply is None or not reply.external or Origin.of(json.loads(reply.origin)).key_id != owner:
            raise RequestNotFound
        record = json.loads(reply.record) if reply.record else None
        entry = json.loads(reply.entry) if reply.entry else None
        if not entry and not (record and record.get("ask")) and not self._is_event(conversation_id, action_id):
            raise RequestNotFound
        return AskedRequest(conversation_id, action_id, _state(reply.waits, entry), reply.is_due, record, entry)

    def _is_event(self, conversation_id: ConversationId, action_id: str) -> bool:
        """Return whether the log has an event with that id, for an action that ended without a decision."""
        found = self._scripts.find_events(ConversationKeys(conversation_id).root, ids=[action_id])
        return bool(found and found[0] is not None)

    def hold(self, owner: str, conversation_id: ConversationId, action_id: str, ask: Mapping[str, Any]) -> None:
        """Count an open request of a key, while it is open. ask: with `lease`, and `patience` or `ends`.

        One round trip. Raises TooMuchAsked.
        """
        left = ask.get("patience") or (int(ask["ends"]) - now()) / 1e6
        # If the lease outlasts the wait of the hook, the terminal takes over, and the asker sends nothing more.
        seconds = ask["lease"] if ask["lease"] < left else left + _TERMINAL_SECONDS
        self._hold(owner, conversation_id, f"{conversation_id}.{action_id}", max(1, round(seconds)))

    def hold_session(self, owner: str, conversation_id: ConversationId) -> None:
        """Count a session of a key. One round trip. Raises TooMuchAsked."""
        self._hold(owner, conversation_id, "", 1)

    def leave(self, owner: str, request: AskedRequest) -> None:
        """Stop counting a request that has ended. One round trip."""
        self._hold(owner, request.conversation_id, request.id, 0)

    def _hold(self, owner: str, conversation_id: ConversationId, request: str, lease: int) -> None:
        reply = self._scripts.hold_request(
            AskingKeys.root(owner),
            conversation=conversation_id,
            request=request,
            lease=lease,
            most=MOST_OPEN,
            most_here=MOST_OPEN_HERE,
            most_sessions=MOST_SESSIONS,
        )
        if reply != "held":
            raise TooMuchAsked(_BOUNDS[reply])

    def of_call(
        self, conversation_id: ConversationId, digest: str, subagent: str, *, has_run: bool = False
    ) -> str | None:
        """Return the action of a call without an id: the oldest pending one, or else the newest approved one; or None.

        has_run: approved actions come before pending ones, so that of two equal calls the pending one is not decided
        because the other has run. A gate comes after a question, which its terminal may have answered. Actions of the
        same subagent come first. One round trip.
        """
        stored = self._redis.hgetall(ConversationKeys(conversation_id).pending)
        found = [(name.decode(), json.loads(record)) for name, record in stored.items()]
        found = [(name, one) for name, one in found if one["digest"] == digest and one.get("ask")]
        found = [one for one in found if one[1]["ask"].get("subagent", "") == subagent] or found

        def rank(one: tuple[str, dict[str, Any]]) -> tuple[bool, bool, int]:
            record = one[1]
            waits, is_gate = "decided" not in record, record["ask"]["kind"] == "gate"
            first = (is_gate, waits) if has_run else (not waits, is_gate)
            return (*first, record["seq"] if waits else -record["seq"])

        return min(found, key=rank)[0] if found else None

    def open_ids(self, conversation_id: ConversationId, *, in_terminal: bool = False) -> tuple[list[str], list[str]]:
        """Return the pending actions, and the approved ones that have not been seen to run; in log order.

        One round trip. in_terminal: of the pending actions only those that their terminal alone can answer.
        """
        stored = self._redis.hgetall(ConversationKeys(conversation_id).pending)
        found = sorted(
            (json.loads(record)["seq"], name.decode(), json.loads(record)) for name, record in stored.items()
        )
        asked = [(name, one) for _, name, one in found if one.get("ask")]
        waiting = [name for name, one in asked if "decided" not in one and (is_handed(one) or not in_terminal)]
        return waiting, [name for name, one in asked if "decided" in one]

    def was_refused(self, conversation_id: ConversationId, digest: str) -> bool:
        """Return whether the last decision about such a call was a rejection. Searches the last entries.

        One round trip.
        """
        entry = self._last_decision(conversation_id, digest)
        return entry is not None and bool(entry["decision"] == "reject")

    def last_allowed(self, conversation_id: ConversationId, digest: str) -> str | None:
        """Return the last decided action of such a call if it was approved. As `was_refused`."""
        entry = self._last_decision(conversation_id, digest)
        if entry is None or entry["decision"] == "reject":
            return None
        return str(entry["action_ids"][entry["digests"].index(digest)])

    def is_known_unasked(self, conversation_id: ConversationId, tool_name: str, digest: str, reason: str) -> bool:
        """Return whether the audit has a call of this tool that ran unasked, for this reason.

        False if the call was asked before and withdrawn without an answer. Searches the last entries. One round trip.
        """
        entries = self._last_entries(conversation_id)
        if any(one["decision"] == "withdrawn" and digest in one["digests"] for one in entries):
            return False
        ran = [one for one in entries if one["decision"] == "unapproved" and one["reason"] == reason]
        return any(action["tool_name"] == tool_name for one in ran for action in one["shown"])

    def _last_entries(self, conversation_id: ConversationId) -> list[dict[str, Any]]:
        stored = self._redis.lrange(audit_key(ConversationKeys(conversation_id)), -_LOOKED_AT, -1)
        return [dict(json.loads(raw)) for raw in stored]

    def _last_decision(self, conversation_id: ConversationId, digest: str) -> dict[str, Any] | None:
        entry: dict[str, Any]
        for entry in reversed(self._last_entries(conversation_id)):
            if digest in entry["digests"] and entry["decision"] in ("approve", "edit", "reject"):
                return entry
        return None


def is_handed(record: Mapping[str, Any]) -> bool:
    """Return whether the asker of an action has stopped waiting, so that only its terminal can answer."""
    ask = record.get("ask") or {}
    return bool(ask) and (bool(ask.get("handed")) or (ask["kind"] != "gate" and int(ask["ends"]) <= now()))


def asking_terminal(record: Mapping[str, Any], began: Origin) -> dict[str, Any] | None:
    """Return the terminal whose agent asks for an open action; None for other actions."""
    if not (ask := record.get("ask")):
        return None
    return {
        "agent": began.agent,
        "machine": began.machine,
        "person": began.person,
        "folder": began.folder,
        "kind": ask["kind"],
        "order": ask["order"],
        "answerable_until": utc_time(Micros(int(ask["ends"]))),
        "in_terminal": is_handed(record),
    }


def _state(waits: str, entry: Mapping[str, Any] | None) -> State:
    if waits:
        return "expired" if waits == "in_terminal" else "pending"
    return _STATES.get(entry["decision"], "withdrawn") if entry else "withdrawn"


def _digest_of(entry: Mapping[str, Any], action_id: str) -> str:
    return str(dict(zip(entry["action_ids"], entry["digests"], strict=False)).get(action_id, ""))
