"""Decisions of pending actions: the policy that holds actions back, the actions that wait, and the decision that wins.

An executable action is open until it is observed; an open action is pending while it is undecided and its conversation
is `waiting_for_confirmation`. An append opens and closes actions (`effects.py`); one script takes the decision.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from core.approvals import action_digest
from core.modes import mode_of, policy_words
from core.refused import Kind
from core.scopes import Origin
from core.wire import ConversationId, Event, Micros
from settings.limits import ConversationLimits
from store.approvals.audit import SERVER, Actor, said, shown
from store.approvals.effects import effect, held_risks
from store.approvals.seen import shown_seen
from store.approvals.waiting import read_pending
from store.conversation import Conversation
from store.errors import ConversationNotFound, NeedsApproval, ReasonTooLong, RightsChanged, StoreError
from store.keys import ApprovalKeys, ConversationKeys
from store.link.attempts import Stamp
from store.link.commands import Redis
from store.projections import Projections
from store.record import Record, pairs
from store.scripts import Scripts
from store.scripts.calls import DecidePending, TakeLink
from telemetry import traces

_NEVER = Micros(0)

#: what is wrong with a decision, by the word that `decide_pending.lua` has for it
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


#: entries of an audit that one read of pending actions takes
MOST_ENTRIES = 100

#: times that a decision is read again because what it was read from has changed meanwhile
MOST_READ = 10

#: reads what several people must approve, as `Quorums.read`
ReadQuorum = Callable[[ConversationId, Actor, bool], str]

#: reason of the rejection of pending actions by a user's message. Source: docs/wire.md, 2
SUPERSEDED = "Superseded by a new user message."


class Decision(NamedTuple):
    """The decision of one action. digest: of the action as it was shown; None: whatever it is.

    since: of its record, where the decision is about this wait alone, and not about one in another incarnation.
    """

    action_id: str
    verb: Literal["approve", "reject", "edit", "withdraw"]
    reason: str = ""
    digest: str | None = None
    arguments: object = None  #: of an edit: those that take the place of the action's
    since: str = ""


class StaleDecision(StoreError):
    """At least one decision of the request is not possible any more, so none was made."""

    kind = Kind.CONFLICT

    def __init__(self, problems: list[dict[str, str]]) -> None:
        """problems: {action_id, problem} each, a problem of PROBLEMS."""
        words = "; ".join(f"{one['action_id']} {PROBLEMS[one['problem']]}" for one in problems[:10])
        more = f"; and {len(problems) - 10} more" if len(problems) > 10 else ""
        super().__init__(f"No decision was taken. The action {words}{more}. Read what waits again")
        self.problems = problems


def check_reason(reason: str, most_bytes: int) -> None:
    """most_bytes: of UTF-8. Raises ReasonTooLong."""
    if len(reason.encode("utf-8", "surrogatepass")) > most_bytes:
        raise ReasonTooLong(most_bytes)


def encode_decisions(decisions: Sequence[Decision], tools: dict[str, object]) -> str:
    """Decisions as `decide_pending.lua` takes them. tools: by the ids of edited actions, the names of their tools."""
    return json.dumps(
        [
            {
                "id": one.action_id,
                "verb": one.verb,
                "reason": json.dumps(one.reason),
                "said": said(one.reason),
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
    """What an edited action is in words, as its entry has it."""
    return shown(str(tool), None, arguments)


def decide_pending(
    scripts: Scripts,
    conversation_id: ConversationId,
    stamp: Stamp,
    verb: str,
    actor: Actor,
    *,
    reason: str = "",
    decisions: str = "",
    sandbox_id: str = "",
    latest: int | None = None,
    echo: str = "",
    quorum: ReadQuorum,
    at_terminal: bool = False,
) -> "DecidePending.Reply | None":
    """Run `decide_pending.lua`, which has the verbs. decisions: as `encode_decisions` makes them.

    at_terminal: they are told by the asker of an action, `agents/asking.py`.

    Raises RightsChanged, and then nothing was decided.
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
            said=said(reason),
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
    """What waits in a conversation, and the end of its audit, as one moment has them."""

    gone: bool  #: there is no such conversation; its audit may have outlived it
    left: bool  #: all that waited is decided, and its agent ended the last one by itself: what is decided takes effect
    revision: int  #: grows with every change, also from one incarnation to the next
    title: str | None
    tags: dict[str, str]
    sandbox_id: str | None
    capabilities: list[str]  #: what its agent has said that it understands
    audited: int  #: entries of the audit in all
    audit: list[bytes]  #: those that were asked for
    folder: str | None  #: of its agent; None: it is not known
    origin: Origin  #: where the conversation began
    approves_inside: bool  #: this server approves what stays inside the folder, and the policy is that of this mode
    pending: list[dict[str, Any]]  #: records as `_actions.lua` has them, in log order; `tool` is read

    @property
    def together(self) -> bool:
        """Whether the agent takes one decision for all pending actions."""
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
        """quorum: reads what several people must approve."""
        self._redis = redis
        self._scripts = scripts
        self._projections = projections
        self._bounds = bounds
        self._quorum = quorum

    def decide(self, conversation_id: ConversationId, *, accept: bool, reason: str, actor: Actor = SERVER) -> bool:
        """Accept or reject the pending actions of a detached conversation. True only for the decision that took effect.

        True also for an approval that was counted where several people must approve. Raises ConversationNotFound,
        ReasonTooLong, StaleDecision, RightsChanged, NeedsApproval of an actor who may not decide.
        Source: docs/wire.md, 2.
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
        actor: Actor,
        *,
        at_terminal: bool = False,
    ) -> None:
        """Decide single actions of a detached conversation, all or none.

        at_terminal: the asker of the actions tells what was decided at its terminal, and no quorum holds that back.
        Raises ConversationNotFound, ReasonTooLong, StaleDecision, NeedsApproval of an actor who may not decide, and
        RightsChanged. Source: docs/approvals.md.
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
        actor: Actor,
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
        """Decisions as `decide_pending.lua` takes them; for an edit one round trip. Raises ReasonTooLong."""
        for one in decisions:
            check_reason(one.reason, self._bounds.max_reason_bytes)
        edited = [one.action_id for one in decisions if one.verb == "edit"]
        records = self._redis.hmget(ConversationKeys(conversation_id).pending, edited) if edited else []
        tools = {
            name: json.loads(json.loads(record)["tool"]) for name, record in zip(edited, records, strict=True) if record
        }
        return encode_decisions(decisions, tools)

    def decided(self, conversation_id: ConversationId) -> list[dict[str, object]]:
        """The actions that were approved and are not observed yet, in log order. Raises ConversationNotFound."""
        decided = self._scripts.list_decisions(ConversationKeys(conversation_id).root)
        if decided is None:
            raise ConversationNotFound
        return [
            {"action_id": one.id, "decision": one.decision}
            | ({} if one.arguments is None else {"arguments": json.loads(one.arguments)})
            for one in decided
        ]

    def pending(self, conversation_id: ConversationId) -> list[dict[str, Any]]:
        """The pending actions, in log order. Raises ConversationNotFound."""
        return read_pending(self._scripts, conversation_id)

    def shown_pending(self, conversation_id: ConversationId) -> list[dict[str, Any]]:
        """The pending actions with what the server sees of them. Raises ConversationNotFound."""
        folder = self.folder(conversation_id)
        return [
            {**one, **shown_seen(one["tool_name"], one["arguments"], folder, one["security_risk"])}
            for one in self.pending(conversation_id)
        ]

    def folder(self, conversation_id: ConversationId) -> str | None:
        """The folder of a conversation's agent; None if it is not known. One round trip."""
        stored = self._redis.hget(ConversationKeys(conversation_id).root, "folder")
        return stored.decode() if stored else None

    def open_ids(self, conversation_id: ConversationId) -> list[str]:
        """Ids of the open, unanswered actions, in no order, whether or not they are pending. One round trip."""
        stored = self._redis.hkeys(ConversationKeys(conversation_id).pending)
        return [one.decode() for one in stored]

    def reopen(self, conversation_id: ConversationId, actions: Sequence[Event]) -> None:
        """Make these actions of the log the open ones, and no other: after a restart the agent says which wait.

        Single decisions that the agent has not received count on only where it waits for exactly the actions of before.
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
        actor: Actor = SERVER,
    ) -> None:
        """Store a policy; a change is an event of the log. Raises ConversationNotFound, ValueError.

        before: the record as it was. With it a change is also an entry of the audit, `mode_changed`, by the actor.
        """
        fields = Conversation.fields_of(confirmation_policy=policy)
        inside = Conversation.fields_of(approves_inside=True)["approves_inside"] if approves_inside else ""
        noted: dict[str, str] = {}
        if before is not None:
            was, is_now = (before.get("confirmation_policy"), before.get("approves_inside")), (policy, approves_inside)
            noted = {
                "mode": json.dumps({"before": mode_of(*was), "mode": mode_of(*is_now)}),
                "actor": actor.json,
                "reason": said(f"{policy_words(*is_now)}. Before: {policy_words(*was)}."),
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
class LinkUse(Record):
    """What a one-time link was used for."""

    key = f"{ApprovalKeys.root}:link:SHA-256"
    decision: str = ""  #: `approve` or `reject`; empty: it was not used
    at: Micros = _NEVER  #: µs by Redis' clock; 0: it was not used


class LinkUses:
    """The uses of all links. Redis' clock says when a link expires."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def find(self, identity: str, ends: Micros) -> LinkUse | None:
        """The use of a link; None of one that has expired. One round trip."""
        reply = self._scripts.read_link(ApprovalKeys.root, id=identity)
        return LinkUse.read(pairs(reply.use)) if reply.now < ends else None

    def take(
        self, identity: str, ends: Micros, decision: Literal["approve", "reject"]
    ) -> tuple[Literal["first", "again", "other", "past"], LinkUse]:
        """Use a link for a decision, which a repeat finds again. One round trip.

        Returns `first`, `again` after an earlier use for the same decision, `other` after one for the other decision,
        which alone counts then, and `past` for a link that has expired; and the use that counts.
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
