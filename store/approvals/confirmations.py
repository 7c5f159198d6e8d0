"""Pending actions: the policy that holds actions back, the actions that wait, and the one decision that wins.

An executable action is open until it is observed; the open actions are pending while their conversation is
`waiting_for_confirmation`. An append opens and closes actions (`effects.py`); one script takes the decision.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from redis import Redis

from approvals.digests import shown_arguments
from store.approvals.audit import SERVER, Actor
from store.approvals.decisions import Decision, StaleDecision, decision_args, words
from store.approvals.effects import effect
from store.bounds import PAGE_BYTES, Bounds
from store.errors import ConversationNotFound, NeedsApproval
from store.keys import ConversationKeys
from store.link import traces
from store.link.stamps import Stamp
from store.listing import Listing
from store.log.frames import original
from store.policies import held_risks
from store.scripts import Scripts
from wire import ConversationId, Event, parse_json

#: entries of an audit that one look at what waits reads
MOST_ENTRIES = 100

#: reason of the rejection of pending actions by a user's message. Source: docs/wire.md, 2
SUPERSEDED = "Superseded by a new user message."


class Approvals(NamedTuple):
    """What waits in a conversation, and the end of its audit, as one moment has them."""

    gone: bool  #: there is no such conversation; its audit may have outlived it
    left: bool  #: all that waited is decided, and its agent ended the last one by itself: what is decided takes effect
    revision: int  #: grows with every change, also from one life of an id to the next
    title: str | None
    tags: dict[str, str]
    sandbox_id: str | None
    capabilities: list[str]  #: what its agent has said that it understands
    audited: int  #: entries of the audit in all
    audit: list[bytes]  #: those that were asked for
    pending: list[dict[str, Any]]  #: records as `_actions.lua` has them, in log order; `tool` is read

    @property
    def together(self) -> bool:
        """Whether the agent takes one decision for all pending actions."""
        return self.sandbox_id is not None and "decide_each" not in self.capabilities


class Confirmations:
    """The policy and the pending actions of conversations."""

    def __init__(self, redis: "Redis", scripts: Scripts, listing: Listing, bounds: Bounds) -> None:
        self._redis = redis
        self._scripts = scripts
        self._listing = listing
        self._bounds = bounds

    def decide(self, conversation_id: ConversationId, *, accept: bool, reason: str, actor: Actor = SERVER) -> bool:
        """Accept or reject the pending actions of a detached conversation. True only for the decision that took effect.

        Raises ConversationNotFound, ReasonTooLong, NeedsApproval of an actor who may not decide.
        Source: docs/wire.md, 2.
        """
        self._bounds.check_reason(reason)
        args = decision_args(Stamp.now(), "approve" if accept else "reject", actor, reason=reason)
        outcome, _ = self._decide(conversation_id, args)
        if outcome == "forbidden":
            raise NeedsApproval
        return bool(outcome == "won")

    def decide_each(self, conversation_id: ConversationId, decisions: Sequence[Decision], actor: Actor) -> None:
        """Decide single actions of a detached conversation, all or none.

        Raises ConversationNotFound, ReasonTooLong, StaleDecision, NeedsApproval of an actor who may not decide.
        Source: docs/approvals.md.
        """
        args = decision_args(Stamp.now(), "each", actor, decisions=self.words(conversation_id, decisions))
        outcome, problems = self._decide(conversation_id, args)
        if outcome == "forbidden":
            raise NeedsApproval
        if outcome != "won":
            raise StaleDecision(json.loads(problems or "[]"))

    def expire(self, conversation_id: ConversationId) -> None:
        """Reject the actions of a detached conversation whose deadline has passed. Raises ConversationNotFound."""
        self._decide(conversation_id, decision_args(Stamp.now(), "expire", SERVER))

    def _decide(self, conversation_id: ConversationId, args: list[Any]) -> tuple[str, str]:
        """The outcome, and the problems of stale decisions."""
        outcome, problems, decided = self._listing.write(self._scripts.decide_pending, conversation_id, args)
        traces.note_decided(conversation_id, decided)
        return outcome, problems

    def words(self, conversation_id: ConversationId, decisions: Sequence[Decision]) -> str:
        """Decisions as `decide_pending.lua` takes them; for an edit one round trip. Raises ReasonTooLong."""
        for one in decisions:
            self._bounds.check_reason(one.reason)
        edited = [one.action_id for one in decisions if one.verb == "edit"]
        records: Any = self._redis.hmget(ConversationKeys(conversation_id).pending, edited) if edited else []
        tools = {
            name: json.loads(json.loads(record)["tool"]) for name, record in zip(edited, records, strict=True) if record
        }
        return words(decisions, tools)

    def decided(self, conversation_id: ConversationId) -> list[dict[str, Any]]:
        """The actions that were approved and are not observed yet, in log order. Raises ConversationNotFound."""
        reply = self._scripts.list_decisions([ConversationKeys(conversation_id).root], [])
        if reply is None:
            raise ConversationNotFound
        return [
            {"action_id": name.decode(), "decision": verb.decode()}
            | ({"arguments": json.loads(arguments)} if arguments else {})
            for name, verb, arguments in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
        ]

    def read_approvals(self, conversation_id: ConversationId, audited: int = 0) -> Approvals:
        """What waits, and MOST_ENTRIES entries of the audit after a seq. One round trip."""
        reply = self._scripts.read_approvals([ConversationKeys(conversation_id).root], [audited, MOST_ENTRIES])
        there, revision, title, tags, sandbox_id, capabilities, number, read, *rest = reply
        records = rest[read:]
        pending = [
            {**record, "id": name.decode(), "tool": json.loads(record["tool"])}
            for name, record in zip(records[::2], map(json.loads, records[1::2]), strict=True)
        ]
        return Approvals(
            there == b"gone",
            there == b"left",
            int(revision),
            json.loads(title),
            json.loads(tags),
            sandbox_id.decode() or None,
            json.loads(capabilities or "[]"),
            number,
            rest[:read],
            pending,
        )

    def pending(self, conversation_id: ConversationId) -> list[dict[str, Any]]:
        """The pending actions, in log order. Raises ConversationNotFound."""
        found: list[dict[str, Any]] = []
        last = 0
        while True:
            reply = self._scripts.list_pending([ConversationKeys(conversation_id).root], [last, PAGE_BYTES])
            if reply is None:
                raise ConversationNotFound
            for seq, since, kept in zip(reply[::3], reply[1::3], reply[2::3], strict=True):
                last = int(seq)
                found.append(_described(since.decode(), parse_json(original(kept))))
            if not reply:
                return found

    def open_ids(self, conversation_id: ConversationId) -> list[str]:
        """Ids of the open, unanswered actions, in no order, whether or not they are pending. One round trip."""
        stored: Any = self._redis.hkeys(ConversationKeys(conversation_id).pending)
        return [one.decode() for one in stored]

    def drop(self, conversation_id: ConversationId, action_ids: Sequence[str]) -> None:
        """Close open actions whose ends are in the log."""
        if action_ids:
            self._scripts.drop_actions([ConversationKeys(conversation_id).root], list(action_ids))
            self._listing.settle(conversation_id)

    def reopen(self, conversation_id: ConversationId, actions: Sequence[Event]) -> None:
        """Make these actions of the log the open ones, and no other: after a restart the agent says which wait.

        Single decisions that the agent has not received count on only where it waits for exactly the actions of before.
        """
        args: list[Any] = [Stamp.now().utc_time, self._bounds.confirmation_seconds]
        for action in actions:
            if "open" in (found := effect(action)):
                args += (action.id, action.at, json.dumps(found["open"], ensure_ascii=False))
        self._scripts.reopen_actions([ConversationKeys(conversation_id).root], args)
        self._listing.settle(conversation_id)

    def set_policy(self, conversation_id: ConversationId, policy: dict[str, Any]) -> None:
        """Store a policy; a change is an event of the log. Raises ConversationNotFound, ValueError."""
        stamp = Stamp.now()
        args = [*stamp.args, held_risks(policy), "confirmation_policy", json.dumps(policy), "1"]
        self._listing.write(self._scripts.set_fields, conversation_id, args)


def _described(since: str, action: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": action["id"],
        "tool_name": action.get("tool_name"),
        "tool_call_id": action.get("tool_call_id"),
        "summary": action.get("summary"),
        "security_risk": action.get("security_risk", "UNKNOWN"),
        "arguments": shown_arguments(action["action"]),
        "since": since,
    }
