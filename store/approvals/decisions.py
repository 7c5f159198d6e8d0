"""Decisions of pending actions: the policy that holds actions back, the pending actions, and the winning decision.

An executable action is open until it is observed. An open action is pending while it is undecided and its conversation
is `waiting_for_confirmation`. An append opens and closes actions (`effects.py`), and one script decides.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from core.approvals import action_digest
from core.modes import mode_of, policy_words
from core.refused import RefusalKind
from core.scopes import Origin
from core.wire import ConversationId, Micros, ReceivedEvent
from settings.limits import ConversationLimits
from store.approvals.audit import SERVER, DecisionActor, canonical_text, shown
from store.approvals.effects import effect, held_risks
from store.approvals.seen import assessment
from store.approvals.waiting import read_pending
from store.conversation import Conversation
from store.errors import ConversationNotFound, NeedsApproval, ReasonTooLong, RightsChanged, StoreError
from store.keys import ApprovalKeys, ConversationKeys
from store.link.attempts import Stamp
from store.link.commands import Redis
from store.projections import Projections
from store.record import HashRecord, pairs
from store.scripts import Scripts
from store.scripts.calls import DecidePending, TakeLink
from telemetry import traces

_NEVER = Micros(0)

#: Problems of a decision, by their names in `decide_pending.lua`.
PROBLEMS = {
    "not_pending": "is not pending: it was decided, observed or never waited",
    "expired": "has expired: its deadline has passed",
    "changed": "is not the one that was shown: the digest differs",
    "edit_not_understood": "cannot be edited: its agent does not understand edits",
    "decided_alike": "must be decided as the others are: its agent takes one decision for all",
    "decided_together": "is missing: its agent takes one decision for all that wait",
    "needs_people": "must be approved by people, each by name: not by a rule, a run or a link",
    "own": "must be approved by somebody else: you own its conversation, or sent the message that asked for it",
    "voted": "has your approval already: somebody else must approve it too",
    "in_terminal": "is asked at its terminal: its hook waits no longer, and only the terminal can answer",
    "withdrawn": "is withdrawn: its asker has gone",
    "edit_of_several": "cannot be edited: several people approve it as it is, or none",
}


#: Maximum number of audit entries that one read of pending actions returns.
MOST_ENTRIES = 100

#: Maximum number of attempts at a decision whose data change meanwhile.
MOST_READ = 10

#: Reads which actions several people must approve, as `Quorums.read`.
ReadQuorum = Callable[[ConversationId, DecisionActor, bool], str]

#: Reason for rejecting pending actions because of a user's message. Source: docs/wire.md, 2.
SUPERSEDED = "Superseded by a new user message."


class Decision(NamedTuple):
    """The decision of an action. digest: of the action as it was shown; None: any.

    since: of its record, if the decision is for this wait alone, not for one in another incarnation.
    """

    action_id: str
    verb: Literal["approve", "reject", "edit", "withdraw"]
    reason: str = ""
    digest: str | None = None
    arguments: object = None  #: of an edit: the new arguments
    since: str = ""


class StaleDecision(StoreError):
    """At least one decision of the request is no longer possible, so none was made."""

    kind = RefusalKind.CONFLICT

    def __init__(self, problems: list[dict[str, str]]) -> None:
        """problems: {action_id, problem} each, with a key of PROBLEMS."""
        words = "; ".join(f"{one['action_id']} {PROBLEMS[one['problem']]}" for one in problems[:10])
        more = f"; and {len(problems) - 10} more" if len(problems) > 10 else ""
        super().__init__(f"No decision was taken. The action {words}{more}. Read the pending actions again")
        self.problems = problems


def check_reason(reason: str, most_bytes: int) -> None:
    """Raise ReasonTooLong for a reason of more than most_bytes bytes of UTF-8."""
    if len(reason.encode("utf-8", "surrogatepass")) > most_bytes:
        raise ReasonTooLong(most_bytes)


def encode_decisions(decisions: Sequence[Decision], tools: dict[str, object]) -> str:
    """Encode decisions for `decide_pending.lua`. tools: names of tools by the ids of edited actions."""
    return json.dumps(
        [
            {
                "id": one.action_id,
                "verb": one.verb,
                "reason": json.dumps(one.reason),
                "said": canonical_text(one.reason),
                "digest": one.digest or "",
                "since": one.since,
                "arguments": json.dumps(one.arguments),
                "edited": action_digest(tools.get(one.action_id), one.arguments) if one.verb == "edit" else "",
                "edited_shown": _edited_shown(tools.get(one.action_id), one.arguments) if one.verb == "edit" else "",
            }
            for one in decisions
        ]
    )


def _edited_shown(tool: object, arguments: object) -> str:
    """Describe an edited action for its entry."""
    return shown(str(tool), None, arguments)


def decide_pending(
    scripts: Scripts,
    conversation_id: ConversationId,
    stamp: Stamp,
    verb: str,
    actor: DecisionActor,
    *,
    reason: str = "",
    decisions: str = "",
    sandbox_id: str = "",
    latest: int | None = None,
    echo: str = "",
    quorum: ReadQuorum,
    at_terminal: bool = False,
) -> "DecidePending.Reply | None":
    """Run `decide_pending.lua`, which defines the verbs. decisions: from `encode_decisions`.

    at_terminal: the asker of an action reports them, see `agents/asking.py`. Raises RightsChanged if nothing was
    decided.
    """
    verbs = {one["verb"] for one in json.loads(decisions)} if verb == "each" else {verb}
    approves = bool(verbs & {"approve", "edit"})
    for attempt in range(MOST_READ):
        reply = scripts.decide_pending(
            ConversationKeys(conversation_id).root,
            stamp=stamp,
            verb=verb,
            reason=json.dumps(reason),
            sandbox=sandbox_id,
            latest=latest,
            may_decide=actor.may_decide,
            echo=echo,
            actor=actor.json,
            said=canonical_text(reason),
            ballot=actor.ballot,
            rights=actor.rights,
            quorum=quorum(conversation_id, actor, attempt > 0) if approves else "",
            at_terminal=at_terminal,
            each=decisions,
        )
        if reply is None or reply.outcome != "unread":
            break
    if reply is not None and reply.outcome in ("changed", "unread"):
        raise RightsChanged
    return reply


class Approvals(NamedTuple):
    """The pending actions of a conversation, and the end of its audit, at one moment."""

    gone: bool  #: the conversation does not exist; its audit may
    left: bool  #: all pending actions are decided or were ended by the agent itself, so the decisions take effect
    revision: int  #: grows with every change, also across incarnations
    title: str | None
    tags: dict[str, str]
    sandbox_id: str | None
    capabilities: list[str]
    audited: int  #: number of all audit entries
    audit: list[bytes]  #: the requested audit entries
    folder: str | None  #: folder of its agent; None: unknown
    origin: Origin
    approves_inside: bool  #: this server approves actions inside the folder, and the policy is that of this mode
    pending: list[dict[str, Any]]  #: records as in `_actions.lua`, in log order, with parsed `tool`

    @property
    def together(self) -> bool:
        """Return whether the agent takes one decision for all pending actions."""
        return self.sandbox_id is not None and "decide_each" not in self.capabilities


class Confirmations:
    """The policy and the pending actions of conversations."""

    def __init__(
        self,
        redis: Redis,
        scripts: Scripts,
        projections: Projections,
        bounds: ConversationLimits,
        quorum: ReadQuorum,
    ) -> None:
        """quorum: reads which actions several people must approve."""
        self._redis = redis
        self._scripts = scripts
        self._projections = projections
        self._bounds = bounds
        self._quorum = quorum

    def decide(
        self, conversation_id: ConversationId, *, accept: bool, reason: str, actor: DecisionActor = SERVER
    ) -> bool:
        """Accept or reject the pending actions of a detached conversation. True only for the decision that took effect.

        True also for an approval that was counted where several people must approve. Raises ConversationNotFound,
        ReasonTooLong, StaleDecision, RightsChanged, NeedsApproval if the actor may not decide. Source: docs/wire.md, 2.
        """
        check_reason(reason, self._bounds.max_reason_bytes)
        reply = self._decide(conversation_id, "approve" if accept else "reject", actor, reason=reason)
        if reply.outcome == "forbidden":
            raise NeedsApproval
        if reply.outcome == "stale":
            raise StaleDecision(json.loads(reply.problems))
        return reply.outcome in ("won", "agreed")

    def decide_each(
        self,
        conversation_id: ConversationId,
        decisions: Sequence[Decision],
        actor: DecisionActor,
        *,
        at_terminal: bool = False,
    ) -> None:
        """Decide single actions of a detached conversation, all or none.

        at_terminal: the asker reports a decision at its terminal, which no quorum can hold back. Raises
        ConversationNotFound, ReasonTooLong, StaleDecision, RightsChanged, NeedsApproval if the actor may not decide.
        Source: docs/approvals.md.
        """
        encoded = self.encode_decisions(conversation_id, decisions)
        reply = self._decide(conversation_id, "each", actor, decisions=encoded, at_terminal=at_terminal)
        if reply.outcome == "forbidden":
            raise NeedsApproval
        if reply.outcome not in ("won", "agreed"):
            raise StaleDecision(json.loads(reply.problems or "[]"))

    def expire(self, conversation_id: ConversationId) -> None:
        """Reject the actions of a detached conversation whose deadline has passed. Raises ConversationNotFound."""
        self._decide(conversation_id, "expire", SERVER)

    def _decide(
        self,
        conversation_id: ConversationId,
        verb: str,
        actor: DecisionActor,
        *,
        reason: str = "",
        decisions: str = "",
        at_terminal: bool = False,
    ) -> "DecidePending.Reply":
        """Decide, and list the conversation. Raises ConversationNotFound."""
        stamp = Stamp.now()
        reply = decide_pending(
            self._scripts,
            conversation_id,
            stamp,
            verb,
            actor,
            reason=reason,
            decisions=decisions,
            quorum=self._quorum,
            at_terminal=at_terminal,
        )
        if reply is None:
            raise ConversationNotFound
        self._projections.settle(conversation_id, reply.state)
        traces.note_decided(conversation_id, reply.decided)
        return reply

    def encode_decisions(self, conversation_id: ConversationId, decisions: Sequence[Decision]) -> str:
        """Encode decisions for `decide_pending.lua`. One round trip for edits, otherwise none. Raises ReasonTooLong."""
        for one in decisions:
            check_reason(one.reason, self._bounds.max_reason_bytes)
        edited = [one.action_id for one in decisions if one.verb == "edit"]
        records = self._redis.hmget(ConversationKeys(conversation_id).pending, edited) if edited else []
        tools = {
            name: json.loads(json.loads(record)["tool"]) for name, record in zip(edited, records, strict=True) if record
        }
        return encode_decisions(decisions, tools)

    def decided(self, conversation_id: ConversationId) -> list[dict[str, object]]:
        """Return the approved actions that are not observed yet, in log order. Raises ConversationNotFound."""
        decided = self._scripts.list_decisions(ConversationKeys(conversation_id).root)
        if decided is None:
            raise ConversationNotFound
        return [
            {"action_id": one.id, "decision": one.decision}
            | ({} if one.arguments is None else {"arguments": json.loads(one.arguments)})
            for one in decided
        ]

    def pending(self, conversation_id: ConversationId) -> list[dict[str, Any]]:
        """Return the pending actions, in log order. Raises ConversationNotFound."""
        return read_pending(self._scripts, conversation_id)

    def shown_pending(self, conversation_id: ConversationId) -> list[dict[str, Any]]:
        """Return the pending actions with the server's own assessment. Raises ConversationNotFound."""
        folder = self.folder(conversation_id)
        return [
            {**one, **assessment(one["tool_name"], one["arguments"], folder, one["security_risk"])}
            for one in self.pending(conversation_id)
        ]

    def folder(self, conversation_id: ConversationId) -> str | None:
        """Return the folder of a conversation's agent; None if unknown. One round trip."""
        stored = self._redis.hget(ConversationKeys(conversation_id).root, "folder")
        return stored.decode() if stored else None

    def open_ids(self, conversation_id: ConversationId) -> list[str]:
        """Return the ids of the open, undecided actions, in no order, pending or not. One round trip."""
        stored = self._redis.hkeys(ConversationKeys(conversation_id).pending)
        return [one.decode() for one in stored]

    def reopen(self, conversation_id: ConversationId, actions: Sequence[ReceivedEvent]) -> None:
        """Make exactly these actions of the log the open ones, as a restarted agent reports.

        Single decisions that the agent has not received stay valid only if it waits for exactly the same actions.
        """
        effects = ((action, effect(action).get("open")) for action in actions)
        self._scripts.reopen_actions(
            ConversationKeys(conversation_id).root,
            time=Stamp.now().utc_time,
            expiry=self._bounds.confirmation_seconds,
            actions=[
                (action.id, action.at, json.dumps(opened, ensure_ascii=False))
                for action, opened in effects
                if opened is not None
            ],
        )
        self._projections.refresh(conversation_id)

    def set_policy(
        self,
        conversation_id: ConversationId,
        policy: dict[str, object],
        *,
        approves_inside: bool = False,
        before: Mapping[str, Any] | None = None,
        actor: DecisionActor = SERVER,
    ) -> None:
        """Store a policy. A change is an event of the log. Raises ConversationNotFound, ValueError.

        before: the earlier record. With it, a change also writes an audit entry `mode_changed`, by the actor.
        """
        fields = Conversation.fields_of(confirmation_policy=policy)
        inside = Conversation.fields_of(approves_inside=True)["approves_inside"] if approves_inside else ""
        noted: dict[str, str] = {}
        if before is not None:
            was, is_now = (before.get("confirmation_policy"), before.get("approves_inside")), (policy, approves_inside)
            noted = {
                "mode": json.dumps({"before": mode_of(*was), "mode": mode_of(*is_now)}),
                "actor": actor.json,
                "reason": canonical_text(f"{policy_words(*is_now)}. Before: {policy_words(*was)}."),
            }
        reply = self._scripts.set_fields(
            ConversationKeys(conversation_id).root,
            stamp=Stamp.now(),
            held=held_risks(policy),
            mode=noted.get("mode"),
            actor=noted.get("actor"),
            reason=noted.get("reason"),
            fields=[*((name, text, True) for name, text in fields.items()), ("approves_inside", inside, False)],
        )
        self._projections.settled(conversation_id, reply)


@dataclass(frozen=True, slots=True)
class LinkUse(HashRecord):
    """The use of a one-time link."""

    key = f"{ApprovalKeys.root}:link:SHA-256"
    decision: str = ""  #: `approve` or `reject`; empty: not used
    at: Micros = _NEVER  #: µs by Redis' clock; 0: not used


class LinkUses:
    """The uses of all links. Redis' clock decides when a link expires."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def find(self, identity: str, ends: Micros) -> LinkUse | None:
        """Return the use of a link; None if it has expired. One round trip."""
        reply = self._scripts.read_link(ApprovalKeys.root, id=identity)
        return LinkUse.read(pairs(reply.use)) if reply.now < ends else None

    def take(
        self, identity: str, ends: Micros, decision: Literal["approve", "reject"]
    ) -> tuple[Literal["first", "again", "other", "past"], LinkUse]:
        """Use a link for a decision, once. One round trip.

        Returns `first`, `again` after an earlier use for this decision, `other` after one for the other decision, which
        stays valid, or `past` for an expired link; and the valid use.
        """
        reply = self._scripts.take_link(ApprovalKeys.root, id=identity, ends=ends, decision=decision)
        match reply:
            case TakeLink.First():
                return "first", LinkUse(*reply)
            case TakeLink.Again():
                return "again", LinkUse(*reply)
            case TakeLink.Other():
                return "other", LinkUse(*reply)
            case "past":
                return "past", LinkUse()
