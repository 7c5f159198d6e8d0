"""Actions that agents in terminals await: what is open, how each was decided, and how many one key may have open.

The record of such an action says who awaits it and how long: `scripts/_asked.lua`. Source: docs/approvals.md.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.refused import Kind
from core.scopes import Origin
from core.wire import ConversationId, Micros, now, utc_time
from store.approvals.audit import decider_of
from store.errors import StoreError
from store.keys import AskingKeys, ConversationKeys, audit_key
from store.link.commands import Redis
from store.scripts import Scripts

#: Maximum number of open requests of one key and of one session, and of sessions that a key begins in a day.
MOST_OPEN, MOST_OPEN_HERE, MOST_SESSIONS = 256, 64, 1000

#: Seconds for which a question that only its terminal can answer stays open, as `_asked.lua` has it.
_TERMINAL_SECONDS = 86_400

#: Maximum number of entries of the audit in which an earlier decision about a call is looked for.
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

    kind = Kind.MISSING
    words = (
        "Permission request not found: this key has opened none of that id, or its conversation was deleted. Ask again"
    )


class TooMuchAsked(StoreError):
    """The key or the session has too many open requests, or the key has too many sessions."""

    kind = Kind.TAKEN


@dataclass(frozen=True, slots=True)
class Request:
    """A permission request as it stands."""

    conversation_id: ConversationId
    action_id: str
    state: State
    is_due: bool  #: a deadline or the lease is over, and nothing has followed from that yet
    record: dict[str, Any] | None  #: the open action, as `_actions.lua` has it
    entry: dict[str, Any] | None  #: of the audit: who decided it

    @property
    def id(self) -> str:
        """For its routes."""
        return f"{self.conversation_id}.{self.action_id}"

    @property
    def is_gate(self) -> bool:
        """Whether it is open and no terminal asks."""
        return ((self.record or {}).get("ask") or {}).get("kind") == "gate"

    @property
    def shown(self) -> dict[str, Any]:
        """What its asker gets."""
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
    """The actions that agents in terminals await."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    def read(self, conversation_id: ConversationId, action_id: str, owner: str, *, renews: bool = False) -> Request:
        """A request of a key. renews: also its lease, if it waits. One round trip. Raises RequestNotFound."""
        root = ConversationKeys(conversation_id).root
        reply = self._scripts.read_request(root, id=action_id, renews=renews)
        if reply is None or not reply.external or Origin.of(json.loads(reply.origin)).key_id != owner:
            raise RequestNotFound
        record = json.loads(reply.record) if reply.record else None
        entry = json.loads(reply.entry) if reply.entry else None
        if not entry and not (record and record.get("ask")) and not self._is_event(conversation_id, action_id):
            raise RequestNotFound
        return Request(conversation_id, action_id, _state(reply.waits, entry), reply.is_due, record, entry)

    def _is_event(self, conversation_id: ConversationId, action_id: str) -> bool:
        """Whether the log has an event of that id: of an action that ended without a decision."""
        found = self._scripts.find_events(ConversationKeys(conversation_id).root, ids=[action_id])
        return bool(found and found[0] is not None)

    def hold(self, owner: str, conversation_id: ConversationId, action_id: str, ask: Mapping[str, Any]) -> None:
        """Count an open request of a key, while it is open. ask: with `lease`, and `patience` or `ends`.

        One round trip. Raises TooMuchAsked.
        """
        left = ask.get("patience") or (int(ask["ends"]) - now()) / 1e6
        # One whose lease outlasts the wait of its hook is left to its terminal, without a further word of its asker.
        seconds = ask["lease"] if ask["lease"] < left else left + _TERMINAL_SECONDS
        self._hold(owner, conversation_id, f"{conversation_id}.{action_id}", max(1, round(seconds)))

    def hold_session(self, owner: str, conversation_id: ConversationId) -> None:
        """Count a session of a key. One round trip. Raises TooMuchAsked."""
        self._hold(owner, conversation_id, "", 1)

    def leave(self, owner: str, request: Request) -> None:
        """Count a request no longer, which is over. One round trip."""
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
        """The action that a call without an id is about: the oldest that waits, else the newest that was allowed.

        has_run: what was allowed goes before what waits. Of two equal calls the one that waits is not decided because
        the other has run. A gate goes after a question, which its terminal may have answered.
        An action of the same subagent goes before others. One round trip. None: nothing of the kind is open.
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
        """The actions that wait, and those that were allowed and not seen to run; in log order. One round trip.

        in_terminal: of those that wait only what its terminal alone can answer.
        """
        stored = self._redis.hgetall(ConversationKeys(conversation_id).pending)
        found = sorted(
            (json.loads(record)["seq"], name.decode(), json.loads(record)) for name, record in stored.items()
        )
        asked = [(name, one) for _, name, one in found if one.get("ask")]
        waiting = [name for name, one in asked if "decided" not in one and (is_handed(one) or not in_terminal)]
        return waiting, [name for name, one in asked if "decided" in one]

    def was_refused(self, conversation_id: ConversationId, digest: str) -> bool:
        """Whether the last decision about such a call was a refusal. Looks at the last entries. One round trip."""
        entry = self._last_decision(conversation_id, digest)
        return entry is not None and bool(entry["decision"] == "reject")

    def last_allowed(self, conversation_id: ConversationId, digest: str) -> str | None:
        """The action of such a call that was decided last, if it was allowed. As `was_refused`."""
        entry = self._last_decision(conversation_id, digest)
        if entry is None or entry["decision"] == "reject":
            return None
        return str(entry["action_ids"][entry["digests"].index(digest)])

    def is_known_unasked(self, conversation_id: ConversationId, tool_name: str, digest: str, reason: str) -> bool:
        """Whether the audit has a call of this tool that ran unasked, for this reason.

        False of a call that was asked before and left without an answer. Looks at the last entries. One round trip.
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
    """Whether the asker of an action has stopped waiting, so that only its terminal can answer."""
    ask = record.get("ask") or {}
    return bool(ask) and (bool(ask.get("handed")) or (ask["kind"] != "gate" and int(ask["ends"]) <= now()))


def shown_asker(record: Mapping[str, Any], began: Origin) -> dict[str, Any] | None:
    """The terminal at which the agent of an open action asks; None where none does."""
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
